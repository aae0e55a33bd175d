# SPDX-License-Identifier: MIT
"""Buffers of an AMD GPU as dma-bufs, by the ioctls of its render node: what pyverbs/dmabuf_alloc.h is for amdgpu."""
import ctypes
import fcntl
import os
import struct

from pyverbs.pyverbs_error import PyverbsRDMAError

VERSION, GEM_CLOSE, PRIME = 0xC0406400, 0x40086409, 0xC00C642D
AMDGPU_CREATE, AMDGPU_MMAP = 0xC0206440, 0xC0086441
VRAM, GTT, CPU_ACCESS_REQUIRED, RDWR_CLOEXEC = 4, 2, 1, os.O_RDWR | os.O_CLOEXEC


class DmaBuf:
    """As a number, it is its descriptor: that is what ibv_reg_dmabuf_mr takes."""

    def __init__(self, size, gpu=0, gtt=0):
        try:
            self.drm_fd = os.open("/dev/dri/renderD%d" % (128 + gpu), os.O_RDWR)
        except OSError as e:
            raise PyverbsRDMAError("no render node", e.errno)
        name = ctypes.create_string_buffer(16)
        version = bytearray(struct.pack("<3i4xQQQQQQ", 0, 0, 0, 16, ctypes.addressof(name), 0, 0, 0, 0))
        fcntl.ioctl(self.drm_fd, VERSION, version)
        assert name.value == b"amdgpu", name.value
        create = bytearray(struct.pack("<QQQQ", size, 4096, GTT if gtt else VRAM, CPU_ACCESS_REQUIRED))
        fcntl.ioctl(self.drm_fd, AMDGPU_CREATE, create)
        self.handle, = struct.unpack_from("<I", create)
        prime = bytearray(struct.pack("<IIi", self.handle, RDWR_CLOEXEC, -1))
        fcntl.ioctl(self.drm_fd, PRIME, prime)
        self.fd = struct.unpack("<IIi", prime)[2]
        mmap = bytearray(struct.pack("<II", self.handle, 0))
        fcntl.ioctl(self.drm_fd, AMDGPU_MMAP, mmap)
        self.map_offset, = struct.unpack("<Q", mmap)

    def __int__(self):
        return self.fd

    def close(self):
        if self.fd >= 0:
            fcntl.ioctl(self.drm_fd, GEM_CLOSE, struct.pack("<II", self.handle, 0))
            os.close(self.fd)
            os.close(self.drm_fd)
            self.fd = -1

    __del__ = close

# SPDX-License-Identifier: MIT
"""pyverbs' tests of dma-bufs on the render node, run as `python3 pyverbs_dmabuf.py FOLDER-OF-SUITE [arguments of run_tests.py]`.

The tests and DmaBufMR are Debian's, untouched. DmaBuf, the class that allocates, is replaced: Debian 12 builds it without DRM, and DmaBufMR cannot take a
DmaBuf in any release up to v65 (it calls DmaBuf.add_ref, which Python cannot see). This one makes the same ioctls."""
import ctypes
import fcntl
import os
import struct
import sys

folder = sys.argv[1]
sys.path[:0] = [folder, os.path.join(folder, "tests")]
os.chdir(folder)

import pyverbs.mr  # noqa: E402
from pyverbs.pyverbs_error import PyverbsRDMAError  # noqa: E402

VERSION, GEM_CLOSE, PRIME = 0xC0406400, 0x40086409, 0xC00C642D
AMDGPU_CREATE, AMDGPU_MMAP = 0xC0206440, 0xC0086441
VRAM, GTT, CPU_ACCESS_REQUIRED, RDWR_CLOEXEC = 4, 2, 1, os.O_RDWR | os.O_CLOEXEC


class DmaBuf:
    """What pyverbs/dmabuf_alloc.h is for amdgpu. As a number, it is its descriptor: that is what ibv_reg_dmabuf_mr takes."""

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


class DmaBufMR(pyverbs.mr.DmaBufMR):
    def __init__(self, pd, length, access, dmabuf=None, offset=0, gpu=0, gtt=0):
        super().__init__(pd, length, access, dmabuf or DmaBuf(length + offset, gpu, gtt), offset)


import tests.test_mr  # noqa: E402

tests.test_mr.DmaBuf, tests.test_mr.DmaBufMR = DmaBuf, DmaBufMR
sys.argv = ["tests/run_tests.py"] + sys.argv[2:]
__file__ = os.path.join(folder, sys.argv[0])
exec(compile(open(__file__).read(), __file__, "exec"))

# SPDX-License-Identifier: MIT
# A buffer in the memory of an AMD GPU: allocated on the render node, exported, registered; then the CPU reads it, for which it moves to system
# memory, and the NIC is told to have it ready again.
import fcntl
import os
import struct

from pyverbs.device import Context
from pyverbs.mr import DmaBufMR
from pyverbs.pd import PD
from pyverbs.wr import SGE

GEM_CREATE, PRIME_HANDLE_TO_FD, SYNC = 0xC0206440, 0xC00C642D, 0x40086200
VRAM, CPU_ACCESS, READ, SYNC_START, SYNC_END = 4, 1, 1, 0, 4
LOCAL_WRITE, REMOTE_WRITE, PREFETCH_WRITE = 1, 2, 1

card = os.open("/dev/dri/renderD128", os.O_RDWR)
create = bytearray(struct.pack("<QQQQ", 1 << 20, 4096, VRAM, CPU_ACCESS))
fcntl.ioctl(card, GEM_CREATE, create)
prime = bytearray(struct.pack("<IIi", struct.unpack_from("<I", create)[0], os.O_RDWR | os.O_CLOEXEC, -1))
fcntl.ioctl(card, PRIME_HANDLE_TO_FD, prime)
fd = struct.unpack("<IIi", prime)[2]

pd = PD(Context(name="mlx5_0"))
mr = DmaBufMR(pd, 1 << 20, LOCAL_WRITE | REMOTE_WRITE, fd, offset=0)
fcntl.ioctl(fd, SYNC, struct.pack("<Q", READ | SYNC_START))
fcntl.ioctl(fd, SYNC, struct.pack("<Q", READ | SYNC_END))
pd.advise_mr(PREFETCH_WRITE, 1, [SGE(0, 1 << 20, mr.lkey)])
mr.close()

# SPDX-License-Identifier: MIT
"""Does this device register dma-bufs? Asks as programs do: with a descriptor that cannot be one."""
import ctypes
import errno

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_dmabuf_mr"):
    getattr(verbs, name).restype = ctypes.c_void_p
devices = ctypes.cast(ctypes.c_void_p(verbs.ibv_get_device_list(None)), ctypes.POINTER(ctypes.c_void_p))
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
pd = ctypes.c_void_p(verbs.ibv_alloc_pd(context))
u64 = ctypes.c_uint64
mr = verbs.ibv_reg_dmabuf_mr(pd, u64(0), ctypes.c_size_t(0), u64(0), -1, 0)
print("registered" if mr else errno.errorcode[ctypes.get_errno()])

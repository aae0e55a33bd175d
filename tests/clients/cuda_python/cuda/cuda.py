# SPDX-License-Identifier: MIT
"""The driver API: functions return (CUresult, answers...)."""
import ctypes
import enum

_lib = ctypes.CDLL("libcuda.so.1")


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_OPERATING_SYSTEM = 304
    CUDA_ERROR_NOT_SUPPORTED = 801
    CUDA_ERROR_UNKNOWN = 999


class CUctx_flags(enum.IntEnum):
    CU_CTX_MAP_HOST = 8


class CUpointer_attribute(enum.IntEnum):
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6


class CUmemRangeHandleType(enum.IntEnum):
    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1


class CUdeviceptr(int):
    def __new__(cls, init_value=0):
        return super().__new__(cls, init_value)


def _call(name, *arguments):
    return CUresult(getattr(_lib, name)(*arguments))


def _dptr(p):
    return ctypes.c_ulonglong(int(p))


def cuInit(flags):
    return (_call("cuInit", flags),)


def cuDeviceGetCount():
    n = ctypes.c_int()
    return _call("cuDeviceGetCount", ctypes.byref(n)), n.value


def cuDeviceGet(ordinal):
    d = ctypes.c_int()
    return _call("cuDeviceGet", ctypes.byref(d), ordinal), d.value


def cuCtxCreate(flags, device):
    c = ctypes.c_void_p()
    return _call("cuCtxCreate_v2", ctypes.byref(c), int(flags), device), c


def cuCtxSetCurrent(context):
    return (_call("cuCtxSetCurrent", context),)


def cuCtxDestroy(context):
    return (_call("cuCtxDestroy_v2", context),)


def cuMemAlloc(size):
    p = ctypes.c_ulonglong()
    return _call("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(size)), CUdeviceptr(p.value)


def cuMemFree(p):
    return (_call("cuMemFree_v2", _dptr(p)),)


def cuMemcpyHtoD(p, data, size):
    return (_call("cuMemcpyHtoD_v2", _dptr(p), bytes(data), ctypes.c_size_t(size)),)


def cuMemcpyDtoH(data, p, size):
    return (_call("cuMemcpyDtoH_v2", (ctypes.c_char * len(data)).from_buffer(data), _dptr(p), ctypes.c_size_t(size)),)


def cuPointerSetAttribute(value, attribute, p):
    v = ctypes.c_uint(value)
    return (_call("cuPointerSetAttribute", ctypes.byref(v), int(attribute), _dptr(p)),)


def cuMemGetHandleForAddressRange(p, size, kind, flags):
    fd = ctypes.c_int(-1)
    return _call("cuMemGetHandleForAddressRange", ctypes.byref(fd), _dptr(p), ctypes.c_size_t(size), int(kind), ctypes.c_ulonglong(flags)), fd.value


def cuGetErrorName(code):
    name = ctypes.c_char_p()
    return _call("cuGetErrorName", int(code), ctypes.byref(name)), name.value

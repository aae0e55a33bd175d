# SPDX-License-Identifier: MIT
"""The runtime API: the tests ask it for the number of devices."""
import enum

from cuda import cuda


class cudaError_t(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorNoDevice = 100


def cudaGetDeviceCount():
    cuda.cuInit(0)
    result, n = cuda.cuDeviceGetCount()
    return (cudaError_t.cudaSuccess if result == 0 else cudaError_t.cudaErrorNoDevice), n


def cudaGetErrorName(error):
    return cudaError_t.cudaSuccess, error.name

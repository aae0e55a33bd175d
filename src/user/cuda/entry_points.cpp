// SPDX-License-Identifier: MIT
// Names of errors, and entry points by name: cuGetProcAddress gives the newest of a function that a program of that version knows.
#include <cstring>

#include "user/cuda/driver.h"

using namespace uhca::cuda;  // NOLINT: the functions below are CUDA's own

// Name, the version from which on it is that one, symbol.
#define UHCA_CUDA_FUNCTIONS(X)                                                                                                             \
  X(cuInit, 2000, cuInit)                                                                                                                  \
  X(cuDriverGetVersion, 2020, cuDriverGetVersion) X(cuDeviceGetCount, 2000, cuDeviceGetCount) X(cuDeviceGet, 2000, cuDeviceGet)            \
      X(cuDeviceGetName, 2000, cuDeviceGetName) X(cuDeviceGetUuid, 9020, cuDeviceGetUuid) X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2) X( \
          cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2) X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute)                                 \
          X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId) X(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId) X(                       \
              cuCtxCreate, 3020, cuCtxCreate_v2) X(cuCtxDestroy, 4000, cuCtxDestroy_v2) X(cuCtxSetCurrent, 4000, cuCtxSetCurrent)          \
              X(cuCtxGetCurrent, 4000, cuCtxGetCurrent) X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2) X(                                  \
                  cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2) X(cuCtxGetDevice, 2000, cuCtxGetDevice) X(cuCtxGetFlags, 7000, cuCtxGetFlags) \
                  X(cuCtxSynchronize, 2000, cuCtxSynchronize) X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain) X(               \
                      cuDevicePrimaryCtxRelease, 11000,                                                                                    \
                      cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState)                        \
                      X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2) X(cuStreamCreate, 2000, cuStreamCreate)          \
                          X(cuStreamDestroy, 4000, cuStreamDestroy_v2) X(cuStreamSynchronize, 2000, cuStreamSynchronize) X(                \
                              cuStreamQuery, 2000, cuStreamQuery) X(cuMemAlloc, 3020, cuMemAlloc_v2) X(cuMemFree, 3020, cuMemFree_v2)      \
                              X(cuMemGetInfo, 3020, cuMemGetInfo_v2) X(cuMemAllocHost, 3020,                                               \
                                                                       cuMemAllocHost_v2) X(cuMemHostAlloc, 2020, cuMemHostAlloc)          \
                                  X(cuMemFreeHost, 2000, cuMemFreeHost) X(cuMemHostRegister, 6050, cuMemHostRegister_v2) X(                \
                                      cuMemHostUnregister, 4000,                                                                           \
                                      cuMemHostUnregister) X(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2)                \
                                      X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2) X(cuMemcpy, 4000, cuMemcpy)                   \
                                          X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2) X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2)                    \
                                              X(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2) X(cuMemcpyAsync, 4000, cuMemcpyAsync)                 \
                                                  X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync, 3020,              \
                                                                                                     cuMemcpyDtoHAsync_v2)                 \
                                                      X(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2) X(cuMemsetD8, 3020, cuMemsetD8_v2)  \
                                                          X(cuMemsetD16, 3020, cuMemsetD16_v2) X(cuMemsetD32, 3020, cuMemsetD32_v2)        \
                                                              X(cuMemsetD8Async, 3020, cuMemsetD8Async)                                    \
                                                                  X(cuMemsetD32Async, 3020, cuMemsetD32Async)                              \
                                                                      X(cuPointerGetAttribute, 4000, cuPointerGetAttribute)                \
                                                                          X(cuPointerGetAttributes, 7000, cuPointerGetAttributes)          \
                                                                              X(cuPointerSetAttribute, 6000, cuPointerSetAttribute)        \
                                                                                  X(cuMemGetHandleForAddressRange, 11070,                  \
                                                                                    cuMemGetHandleForAddressRange)                         \
                                                                                      X(cuGetErrorName, 6000, cuGetErrorName)              \
                                                                                          X(cuGetErrorString, 6000, cuGetErrorString)      \
                                                                                              X(cuGetProcAddress, 11030, cuGetProcAddress) \
                                                                                                  X(cuGetProcAddress, 12000,               \
                                                                                                    cuGetProcAddress_v2)

// Declared by address only: each has its own parameters where it is defined.
#define UHCA_DECLARE(name, version, symbol) extern "C" char uhca_cuda_##symbol __asm__(#symbol);
UHCA_CUDA_FUNCTIONS(UHCA_DECLARE)
#undef UHCA_DECLARE

namespace uhca::cuda {
namespace {

struct Entry {
  const char* name;
  int version;
  void* function;
};
#define UHCA_ENTRY(name, version, symbol) {#name, version, &uhca_cuda_##symbol},
const Entry kEntries[] = {UHCA_CUDA_FUNCTIONS(UHCA_ENTRY)};
#undef UHCA_ENTRY

struct Error {
  CUresult code;
  const char *name, *text;
};
constexpr Error kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Error* error_of(int code) {
  for (const Error& e : kErrors)
    if (e.code == code) return &e;
  return nullptr;
}

}  // namespace

void* entry_point(const char* name, int version, bool* known) {
  const Entry* best = nullptr;
  *known = false;
  for (const Entry& e : kEntries) {
    if (std::strcmp(e.name, name) != 0) continue;
    *known = true;
    if (e.version <= version && (best == nullptr || e.version > best->version)) best = &e;
  }
  return best ? best->function : nullptr;
}

}  // namespace uhca::cuda

CU_API cuGetErrorName(int code, const char** out) {
  const Error* e = error_of(code);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = e ? e->name : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CU_API cuGetErrorString(int code, const char** out) {
  const Error* e = error_of(code);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = e ? e->text : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// *status: 0 found, 1 no such function, 2 one that is newer than the version asked for.
CU_API cuGetProcAddress_v2(const char* name, void** out, int version, unsigned long long flags, int* status) {
  if (!name || !out || version > kVersion || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  bool known;
  *out = entry_point(name, version, &known);
  if (status) *status = *out ? 0 : known ? 2 : 1;
  // Without somewhere to say so, what is not found is an error.
  return *out || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CU_API cuGetProcAddress(const char* name, void** out, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, out, version, flags, nullptr);
}

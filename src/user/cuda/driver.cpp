// SPDX-License-Identifier: MIT
// Initialisation, the device, contexts, streams. A context here is a name: all share one address space, as they do in CUDA for what
// programs see of memory. What was submitted has been done when the call returns, so that streams have nothing to wait for.
#include "user/cuda/driver.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

namespace uhca::cuda {
namespace {

std::vector<Context*>& stack() {
  static thread_local auto* s = new std::vector<Context*>;
  return *s;
}
// Contexts that exist, so that a stale handle is told.
std::set<Context*>& contexts() {
  static auto* s = new std::set<Context*>;
  return *s;
}
bool exists(Context* c) {
  Driver& d = Driver::get();
  return c == &d.primary ? d.retained != 0 : contexts().count(c) != 0;
}

}  // namespace

Driver& Driver::get() {
  static auto* d = new Driver;
  return *d;
}

CUresult Driver::init() {
  // CUDA does not survive fork; the lock may have been another thread's then.
  if (fd_.load() >= 0) return pid_ == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard g(lock);
  if (fd_.load() >= 0) return CUDA_SUCCESS;
  const int fd = open("/dev/uhca_gpu0", O_RDWR | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_NO_DEVICE;
  pid_ = getpid();
  fd_.store(fd);
  return CUDA_SUCCESS;
}

CUresult Driver::ready() const {
  return fd_.load() >= 0 && pid_ == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult Driver::ready_with_context() const {
  if (CUresult r = ready(); r != CUDA_SUCCESS) return r;
  return current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

int Driver::call(unsigned long request, void* arg) const {
  return ioctl(fd_.load(), request, arg) == 0 ? 0 : errno;
}

Driver::Ranges::iterator Driver::find(CUdeviceptr p, std::size_t n) {
  auto next = ranges.upper_bound(p);
  if (next == ranges.begin()) return ranges.end();
  auto it = std::prev(next);
  const std::size_t off = p - it->first;
  return off < it->second.whole && n <= it->second.whole - off ? it : ranges.end();
}

// A context that was destroyed, by whichever thread, is current no more.
Context* current_locked() {
  return !stack().empty() && exists(stack().back()) ? stack().back() : nullptr;
}
Context* current() {
  std::lock_guard g(Driver::get().lock);
  return current_locked();
}

}  // namespace uhca::cuda

using namespace uhca::cuda;  // NOLINT: the functions below are CUDA's own

#define NEED_INIT() \
  if (CUresult r_ = Driver::get().ready(); r_ != CUDA_SUCCESS) return r_
#define NEED_DEVICE(dev) \
  NEED_INIT();           \
  if ((dev) != 0) return CUDA_ERROR_INVALID_DEVICE

CU_API cuInit(unsigned flags) {
  return flags ? CUDA_ERROR_INVALID_VALUE : Driver::get().init();
}
CU_API cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = kVersion;
  return CUDA_SUCCESS;
}

CU_API cuDeviceGetCount(int* count) {
  NEED_INIT();
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}
CU_API cuDeviceGet(CUdevice* device, int ordinal) {
  NEED_DEVICE(ordinal);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = 0;
  return CUDA_SUCCESS;
}
CU_API cuDeviceGetName(char* name, int length, CUdevice device) {
  NEED_DEVICE(device);
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "uhca simulated GPU");
  return CUDA_SUCCESS;
}
CU_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  NEED_DEVICE(device);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, "uhca simulated 0", sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
CU_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid(uuid, device);
}
CU_API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  NEED_DEVICE(device);
  uhca::gpu::Info info{};
  if (!bytes || Driver::get().call(uhca::gpu::kIoctlInfo, &info)) return CUDA_ERROR_INVALID_VALUE;
  *bytes = info.vram;
  return CUDA_SUCCESS;
}
CU_API cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  NEED_DEVICE(device);
  if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1410000; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 108; break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 1512000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 5120; break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 8; break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = 1; break;
    default: *value = 0; break;  // what it cannot do; nvidia-peermem (116) is part of that
  }
  return CUDA_SUCCESS;
}
CU_API cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  NEED_DEVICE(device);
  if (!id || length < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<std::size_t>(length), "0000:04:00.0");
  return CUDA_SUCCESS;
}
CU_API cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  NEED_INIT();
  if (!device || !id) return CUDA_ERROR_INVALID_VALUE;
  if (std::strcmp(id, "0000:04:00.0") != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

CU_API cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  NEED_DEVICE(device);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  auto* c = new Context{false, flags};
  {
    std::lock_guard g(Driver::get().lock);
    contexts().insert(c);
  }
  stack().push_back(c);
  *context = c;
  return CUDA_SUCCESS;
}
CU_API cuCtxDestroy_v2(CUcontext context) {
  NEED_INIT();
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard g(Driver::get().lock);
  if (contexts().erase(context) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack().empty() && stack().back() == context) stack().pop_back();
  delete context;
  return CUDA_SUCCESS;
}
CU_API cuCtxSetCurrent(CUcontext context) {
  NEED_INIT();
  std::lock_guard g(Driver::get().lock);
  if (context && !exists(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack().empty()) stack().pop_back();
  if (context) stack().push_back(context);
  return CUDA_SUCCESS;
}
CU_API cuCtxGetCurrent(CUcontext* context) {
  NEED_INIT();
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = current();
  return CUDA_SUCCESS;
}
CU_API cuCtxPushCurrent_v2(CUcontext context) {
  NEED_INIT();
  std::lock_guard g(Driver::get().lock);
  if (!context || !exists(context)) return CUDA_ERROR_INVALID_CONTEXT;
  stack().push_back(context);
  return CUDA_SUCCESS;
}
CU_API cuCtxPopCurrent_v2(CUcontext* context) {
  NEED_INIT();
  if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = current();
  stack().pop_back();
  return CUDA_SUCCESS;
}
CU_API cuCtxGetDevice(CUdevice* device) {
  if (CUresult r = Driver::get().ready_with_context(); r != CUDA_SUCCESS) return r;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = 0;
  return CUDA_SUCCESS;
}
CU_API cuCtxGetFlags(unsigned* flags) {
  if (CUresult r = Driver::get().ready_with_context(); r != CUDA_SUCCESS) return r;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard g(Driver::get().lock);
  const Context* c = current_locked();
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *flags = c->flags;
  return CUDA_SUCCESS;
}
CU_API cuCtxSynchronize() {
  return Driver::get().ready_with_context();
}

CU_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  NEED_DEVICE(device);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard g(Driver::get().lock);
  ++Driver::get().retained;
  *context = &Driver::get().primary;
  return CUDA_SUCCESS;
}
CU_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  NEED_DEVICE(device);
  std::lock_guard g(Driver::get().lock);
  if (Driver::get().retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --Driver::get().retained;
  return CUDA_SUCCESS;
}
CU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  NEED_DEVICE(device);
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard g(Driver::get().lock);
  *flags = Driver::get().primary.flags;
  *active = Driver::get().retained != 0;
  return CUDA_SUCCESS;
}
CU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  NEED_DEVICE(device);
  std::lock_guard g(Driver::get().lock);
  Driver::get().primary.flags = flags;
  return CUDA_SUCCESS;
}

// Streams: work is done when it is submitted.
namespace uhca::cuda {
struct Stream {
  unsigned flags;
};
namespace {
std::set<Stream*>& streams() {
  static auto* s = new std::set<Stream*>;
  return *s;
}
}  // namespace
}  // namespace uhca::cuda
CU_API cuStreamCreate(CUstream* stream, unsigned flags) {
  if (CUresult r = Driver::get().ready_with_context(); r != CUDA_SUCCESS) return r;
  if (!stream || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  auto* s = new Stream{flags};
  std::lock_guard g(Driver::get().lock);
  streams().insert(s);
  *stream = s;
  return CUDA_SUCCESS;
}
CU_API cuStreamDestroy_v2(CUstream stream) {
  NEED_INIT();
  std::lock_guard g(Driver::get().lock);
  if (streams().erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete stream;
  return CUDA_SUCCESS;
}
CU_API cuStreamSynchronize(CUstream) {
  return Driver::get().ready_with_context();
}
CU_API cuStreamQuery(CUstream) {
  return Driver::get().ready_with_context();
}

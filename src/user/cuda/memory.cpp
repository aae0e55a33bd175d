// SPDX-License-Identifier: MIT
// Memory: allocation, copies, what a pointer is of, and handles of ranges. Device memory has addresses that the CPU cannot touch: they are
// reserved in the process, so that they are nobody else's (unified addressing).
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "user/cuda/driver.h"

using namespace uhca::cuda;  // NOLINT: the functions below are CUDA's own

namespace {

constexpr std::size_t kGpuPage = 64 << 10, kHuge = 2 << 20;

std::size_t up(std::size_t n, std::size_t a) {
  return (n + a - 1) / a * a;
}

// Address space of the process at a multiple of 2 MiB, which nothing is mapped at.
CUdeviceptr reserve(std::size_t size) {
  void* p = mmap(nullptr, size + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(p), at = up(begin, kHuge);
  if (at > begin) munmap(p, at - begin);
  if (begin + kHuge > at) munmap(reinterpret_cast<void*>(at + size), begin + kHuge - at);
  return at;
}

void release(CUdeviceptr p, std::size_t size) {
  munmap(reinterpret_cast<void*>(p), size);
}

// Which of the two must be device memory.
CUresult copy(CUdeviceptr dst, CUdeviceptr src, std::size_t n, bool dst_device, bool src_device) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  if (n == 0) return CUDA_SUCCESS;
  bool any = false;
  {
    std::lock_guard g(d.lock);
    auto in = [&](CUdeviceptr p, bool must) {
      auto it = d.find(p, n);
      any |= it != d.ranges.end() && it->second.device;
      return !must || it != d.ranges.end();
    };
    if (!in(dst, dst_device) || !in(src, src_device)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!any) {
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), n);
    return CUDA_SUCCESS;
  }
  uhca::gpu::Copy c{dst, src, n};
  return d.call(uhca::gpu::kIoctlCopy, &c) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUdeviceptr address(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

CUresult fill(CUdeviceptr dst, unsigned value, unsigned width, std::size_t count) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  if (count == 0) return CUDA_SUCCESS;
  {
    std::lock_guard g(d.lock);
    if (dst % width != 0 || count > ~std::size_t{0} / width || d.find(dst, count * width) == d.ranges.end())
      return CUDA_ERROR_INVALID_VALUE;
  }
  uhca::gpu::Fill f{dst, count, value, width};
  return d.call(uhca::gpu::kIoctlFill, &f) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CU_API cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  if (!out || size == 0 || size > std::size_t{1} << 46) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t whole = up(size, kGpuPage);
  uhca::gpu::Alloc a{reserve(whole), whole};
  if (a.va == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (int e = d.call(uhca::gpu::kIoctlAlloc, &a)) {
    release(a.va, whole);
    return e == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
  }
  std::lock_guard g(d.lock);
  d.ranges[a.va] = {size, whole, true, false, false, d.next_id++};
  *out = a.va;
  return CUDA_SUCCESS;
}

CU_API cuMemFree_v2(CUdeviceptr p) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  if (p == 0) return CUDA_SUCCESS;
  std::lock_guard g(d.lock);
  auto it = d.ranges.find(p);
  if (it == d.ranges.end() || !it->second.device) return CUDA_ERROR_INVALID_VALUE;
  uhca::gpu::Free f{p};
  if (d.call(uhca::gpu::kIoctlFree, &f)) return CUDA_ERROR_UNKNOWN;
  release(p, it->second.whole);
  d.ranges.erase(it);
  return CUDA_SUCCESS;
}

CU_API cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  uhca::gpu::Info info{};
  if (!free_bytes || !total || d.call(uhca::gpu::kIoctlInfo, &info)) return CUDA_ERROR_INVALID_VALUE;
  *free_bytes = info.vram_free;
  *total = info.vram;
  return CUDA_SUCCESS;
}

CU_API cuMemHostAlloc(void** out, std::size_t size, unsigned) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  if (!out || size == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t whole = up(size, 4096);
  void* p = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard g(d.lock);
  d.ranges[address(p)] = {size, whole, false, false, false, d.next_id++};
  *out = p;
  return CUDA_SUCCESS;
}
CU_API cuMemAllocHost_v2(void** out, std::size_t size) {
  return cuMemHostAlloc(out, size, 0);
}
CU_API cuMemFreeHost(void* p) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  std::lock_guard g(d.lock);
  auto it = d.ranges.find(address(p));
  if (it == d.ranges.end() || it->second.device || it->second.registered) return CUDA_ERROR_INVALID_VALUE;
  munmap(p, it->second.whole);
  d.ranges.erase(it);
  return CUDA_SUCCESS;
}
CU_API cuMemHostRegister_v2(void* p, std::size_t size, unsigned) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  if (!p || size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard g(d.lock);
  if (d.find(address(p), 1) != d.ranges.end()) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  d.ranges[address(p)] = {size, size, false, true, false, d.next_id++};
  return CUDA_SUCCESS;
}
CU_API cuMemHostUnregister(void* p) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  std::lock_guard g(d.lock);
  auto it = d.ranges.find(address(p));
  if (it == d.ranges.end() || !it->second.registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  d.ranges.erase(it);
  return CUDA_SUCCESS;
}
CU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned flags) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  std::lock_guard g(d.lock);
  auto it = d.find(address(p), 1);
  if (!out || flags || it == d.ranges.end() || it->second.device) return CUDA_ERROR_INVALID_VALUE;
  *out = address(p);
  return CUDA_SUCCESS;
}
CU_API cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr p) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  std::lock_guard g(d.lock);
  auto it = d.find(p, 1);
  if (it == d.ranges.end() || p - it->first >= it->second.size) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = it->first;
  if (size) *size = it->second.size;
  return CUDA_SUCCESS;
}

CU_API cuMemcpy(CUdeviceptr dst, CUdeviceptr src, std::size_t n) {
  return copy(dst, src, n, false, false);
}
CU_API cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, std::size_t n) {
  return copy(dst, address(src), n, true, false);
}
CU_API cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, std::size_t n) {
  return copy(address(dst), src, n, false, true);
}
CU_API cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, std::size_t n) {
  return copy(dst, src, n, true, true);
}
CU_API cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, std::size_t n, CUstream) {
  return copy(dst, src, n, false, false);
}
CU_API cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, std::size_t n, CUstream) {
  return copy(dst, address(src), n, true, false);
}
CU_API cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, std::size_t n, CUstream) {
  return copy(address(dst), src, n, false, true);
}
CU_API cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, std::size_t n, CUstream) {
  return copy(dst, src, n, true, true);
}
CU_API cuMemsetD8_v2(CUdeviceptr dst, unsigned char v, std::size_t n) {
  return fill(dst, v, 1, n);
}
CU_API cuMemsetD16_v2(CUdeviceptr dst, unsigned short v, std::size_t n) {
  return fill(dst, v, 2, n);
}
CU_API cuMemsetD32_v2(CUdeviceptr dst, unsigned v, std::size_t n) {
  return fill(dst, v, 4, n);
}
CU_API cuMemsetD8Async(CUdeviceptr dst, unsigned char v, std::size_t n, CUstream) {
  return fill(dst, v, 1, n);
}
CU_API cuMemsetD32Async(CUdeviceptr dst, unsigned v, std::size_t n, CUstream) {
  return fill(dst, v, 4, n);
}

namespace {

// With the lock. `data` is as large as the attribute.
template <class T>
CUresult give(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult attribute_of(void* data, int attribute, CUdeviceptr base, const Range& r, CUdeviceptr p) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return give(data, current_locked());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return give(data, r.device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return give(data, p);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return r.device ? CUDA_ERROR_INVALID_VALUE : give(data, p);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return give(data, static_cast<unsigned>(r.sync_memops));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return give(data, r.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return give(data, 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return give(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return give(data, 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return give(data, base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return give(data, r.size);
    case CU_POINTER_ATTRIBUTE_MAPPED: return give(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return give(data, 0ull);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return give(data, static_cast<unsigned>(r.device));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return give(data, 3u);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CU_API cuPointerGetAttribute(void* data, int attribute, CUdeviceptr p) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  std::lock_guard g(d.lock);
  auto it = d.find(p, 1);
  if (!data || it == d.ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(data, attribute, it->first, it->second, p);
}

// Of a pointer that is none of CUDA's, what can be said: nothing, as zeros.
CU_API cuPointerGetAttributes(unsigned n, int* attributes, void** data, CUdeviceptr p) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  if (n == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard g(d.lock);
  auto it = d.find(p, 1);
  for (unsigned i = 0; i < n; ++i) {
    if (it != d.ranges.end()) {
      CUresult r = attribute_of(data[i], attributes[i], it->first, it->second, p);
      if (r != CUDA_SUCCESS && attributes[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER) return r;
      if (r == CUDA_SUCCESS) continue;
    }
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: give(data[i], 0ull); break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: give(data[i], -2); break;
      default: give(data[i], 0u); break;
    }
  }
  return CUDA_SUCCESS;
}

CU_API cuPointerSetAttribute(const void* value, int attribute, CUdeviceptr p) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  std::lock_guard g(d.lock);
  auto it = d.find(p, 1);
  if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || it == d.ranges.end() || !it->second.device)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned on;
  std::memcpy(&on, value, sizeof on);
  it->second.sync_memops = on != 0;
  return CUDA_SUCCESS;
}

// Whole pages of the host, of one allocation of device memory.
CU_API cuMemGetHandleForAddressRange(void* handle, CUdeviceptr p, std::size_t size, int type, unsigned long long flags) {
  Driver& d = Driver::get();
  if (CUresult r = d.ready_with_context(); r != CUDA_SUCCESS) return r;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || (flags & ~CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE))
    return CUDA_ERROR_INVALID_VALUE;
  if (size == 0 || p % page != 0 || size % page != 0) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard g(d.lock);
    auto it = d.find(p, size);
    if (it == d.ranges.end() || !it->second.device) return CUDA_ERROR_INVALID_VALUE;
  }
  uhca::gpu::Export e{p, size, -1, flags & CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE ? 1u : 0u};
  switch (d.call(uhca::gpu::kIoctlExport, &e)) {
    case 0: return give(handle, static_cast<int>(e.fd));
    case EOPNOTSUPP: return CUDA_ERROR_NOT_SUPPORTED;
    case EINVAL: return CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_OPERATING_SYSTEM;
  }
}

// SPDX-License-Identifier: MIT
#include "device/pci/vfio_user_dma.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "device/pci/vfio_user_message.h"

namespace uhca::pci::vfio_user {

std::vector<DmaTable::Range>::iterator DmaTable::first_behind(DmaAddr addr) {
  return std::upper_bound(ranges_.begin(), ranges_.end(), addr, [](DmaAddr a, const Range& r) { return a < r.addr; });
}

Status DmaTable::map(DmaAddr addr, std::uint64_t size, bool readable, bool writable, int fd, std::uint64_t offset) {
  if (size == 0 || (addr | size | offset) % kPageSize != 0 || addr + (size - 1) < addr || offset + size < offset ||
      offset + size > INT64_MAX)
    return refuse(EINVAL, "DMA_MAP: {:#x} bytes at {:#x}, offset {:#x}: not a range of whole pages", size, addr, offset);
  auto next = first_behind(addr);
  bool hits_next = next != ranges_.end() && next->addr - addr < size;
  bool hits_previous = next != ranges_.begin() && addr - std::prev(next)->addr < std::prev(next)->size;
  if (hits_next || hits_previous) return refuse(EEXIST, "DMA_MAP: {:#x} bytes at {:#x} overlap another range", size, addr);
  if (ranges_.size() == kMaxDmaRegions) return refuse(ENOSPC, "DMA_MAP: {} ranges are mapped", ranges_.size());
  void* memory = nullptr;
  if (fd >= 0) {
    int prot = (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0);
    memory = mmap(nullptr, size, prot, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (memory == MAP_FAILED) return refuse(errno, "DMA_MAP: the file that came with {:#x} bytes at {:#x} cannot be mapped", size, addr);
  }
  ranges_.insert(next, {addr, size, static_cast<std::uint8_t*>(memory), readable, writable});
  return success();
}

Status DmaTable::unmap(DmaAddr addr, std::uint64_t size) {
  auto next = first_behind(addr);
  if (next == ranges_.begin() || std::prev(next)->addr != addr || std::prev(next)->size != size)
    return refuse(ENOENT, "DMA_UNMAP: no range of {:#x} bytes at {:#x}", size, addr);
  auto range = std::prev(next);
  if (range->memory != nullptr) munmap(range->memory, range->size);
  ranges_.erase(range);
  last_ = 0;
  return success();
}

void DmaTable::clear() {
  for (Range& r : ranges_)
    if (r.memory != nullptr) munmap(r.memory, r.size);
  ranges_.clear();
  last_ = 0;
}

void* DmaTable::translate(DmaAddr addr, std::size_t len, DmaDir dir, std::size_t* contiguous, const char** why) {
  if (last_ >= ranges_.size() || addr - ranges_[last_].addr >= ranges_[last_].size) {
    auto next = first_behind(addr);
    if (next == ranges_.begin() || addr - std::prev(next)->addr >= std::prev(next)->size) {
      if (why != nullptr) *why = "the client maps nothing at this bus address";
      return nullptr;
    }
    last_ = static_cast<std::size_t>(std::prev(next) - ranges_.begin());
  }
  const Range& r = ranges_[last_];
  if (r.memory == nullptr) {
    if (why != nullptr) *why = "the client mapped this range without a file";
    return nullptr;
  }
  if (!(dir == DmaDir::kToDevice ? r.readable : r.writable)) {
    if (why != nullptr)
      *why = dir == DmaDir::kToDevice ? "the client mapped this range unreadable" : "the client mapped this range read-only";
    return nullptr;
  }
  std::uint64_t offset = addr - r.addr;
  *contiguous = static_cast<std::size_t>(std::min<std::uint64_t>(len, r.size - offset));
  return r.memory + offset;
}

}  // namespace uhca::pci::vfio_user

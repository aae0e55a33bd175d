// SPDX-License-Identifier: MIT
// A dma-buf as the memory of an MR or of queues: attached, mapped, trimmed to the pages that are wanted. Linux: core/umem_dmabuf.c; the
// order of checks is as there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernel/mm/dma_buf.h"

namespace uhca::kernel::mm {

class UmemDmabuf {
 public:
  // ib_umem_dmabuf_get: an importer that follows the buffer's moves. `ops`: of() finds the way back.
  // EINVAL: offset + size wraps, no dma-buf, the buffer is smaller, no page; EBADF; what the exporter says.
  static Result<std::unique_ptr<UmemDmabuf>> get(std::uint64_t offset, std::uint64_t size, int fd, bool writable,
                                                 const DmaBufAttachOps* ops);
  // ib_umem_dmabuf_get_pinned: the buffer stays where it is, and is mapped. EOPNOTSUPP: an exporter that does not pin.
  static Result<std::unique_ptr<UmemDmabuf>> get_pinned(std::uint64_t offset, std::uint64_t size, int fd, bool writable);
  // ib_umem_dmabuf_get_pinned_revocable_and_lock, without the lock: `revoked` is called once, with resv held, when the exporter takes the
  // buffer away in spite of it, or when this is destroyed; no DMA may reach it afterwards.
  static Result<std::unique_ptr<UmemDmabuf>> get_pinned_revocable(std::uint64_t offset, std::uint64_t size, int fd, bool writable,
                                                                  void (*revoked)(void* context), void* context);
  ~UmemDmabuf();
  UmemDmabuf(const UmemDmabuf&) = delete;
  UmemDmabuf& operator=(const UmemDmabuf&) = delete;

  static UmemDmabuf& of(DmaBufAttachment& a) { return *static_cast<UmemDmabuf*>(a.importer_priv); }
  std::uint64_t offset() const { return offset_; }
  std::uint64_t length() const { return length_; }
  bool writable() const { return writable_; }
  bool pinned() const { return pinned_; }
  DmaResv& resv() { return attach_->dmabuf().resv(); }
  void* owner = nullptr;  // the importer's

  // With resv held. The pages around [offset, offset + length), once the exporter has finished its moves. EINVAL: revoked.
  Status map_pages();
  void unmap_pages();
  bool mapped() const { return sgt_ != nullptr; }
  const std::vector<SgEntry>& pages() const { return pages_; }
  void revoke();

 private:
  UmemDmabuf() = default;
  static Result<std::unique_ptr<UmemDmabuf>> pin(std::unique_ptr<UmemDmabuf> u);

  std::uint64_t offset_ = 0, length_ = 0;
  bool writable_ = false, pinned_ = false, revoked_ = false;
  DmaBufAttachment* attach_ = nullptr;
  std::unique_ptr<SgTable> sgt_;
  std::vector<SgEntry> pages_;
  void (*on_revoke_)(void*) = nullptr;
  void* on_revoke_context_ = nullptr;
};

}  // namespace uhca::kernel::mm

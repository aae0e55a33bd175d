// SPDX-License-Identifier: MIT
#include "kernel/mm/umem_dmabuf.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/types.h"

namespace uhca::kernel::mm {
namespace {

constexpr std::uint64_t kPage = 4096;

constexpr DmaBufAttachOps kPinned = {true, nullptr};
constexpr DmaBufAttachOps kPinnedRevocable = {true, [](DmaBufAttachment& a) { UmemDmabuf::of(a).revoke(); }};

}  // namespace

Result<std::unique_ptr<UmemDmabuf>> UmemDmabuf::get(std::uint64_t offset, std::uint64_t size, int fd, bool writable,
                                                    const DmaBufAttachOps* ops) {
  if (offset + size < offset) return refuse(EINVAL, "dma-buf: offset {:#x} + {:#x} wraps", offset, size);
  auto buf = UHCA_TRY(dma_buf_get(fd));
  if (buf->size() < offset + size)
    return refuse(EINVAL, "dma-buf {}: {:#x} bytes at {:#x} of {:#x}", buf->name(), size, offset, buf->size());
  std::unique_ptr<UmemDmabuf> u(new (std::nothrow) UmemDmabuf);
  if (!u) return Errno{ENOMEM};
  u->offset_ = offset;
  u->length_ = size;
  u->writable_ = writable;
  if (align_up(offset + size, kPage) == align_down(offset, kPage)) return refuse(EINVAL, "dma-buf {}: no page of it", buf->name());
  u->attach_ = UHCA_TRY(buf->attach(ops, u.get()));
  return u;
}

Result<std::unique_ptr<UmemDmabuf>> UmemDmabuf::pin(std::unique_ptr<UmemDmabuf> u) {
  std::lock_guard g(u->resv());
  UHCA_CHECK(u->attach_->dmabuf().pin(*u->attach_));
  u->pinned_ = true;
  UHCA_CHECK(u->map_pages());
  return u;
}

Result<std::unique_ptr<UmemDmabuf>> UmemDmabuf::get_pinned(std::uint64_t offset, std::uint64_t size, int fd, bool writable) {
  return pin(UHCA_TRY(get(offset, size, fd, writable, &kPinned)));
}

Result<std::unique_ptr<UmemDmabuf>> UmemDmabuf::get_pinned_revocable(std::uint64_t offset, std::uint64_t size, int fd, bool writable,
                                                                     void (*revoked)(void*), void* context) {
  auto u = UHCA_TRY(get(offset, size, fd, writable, &kPinnedRevocable));
  u->on_revoke_ = revoked;
  u->on_revoke_context_ = context;
  return pin(std::move(u));
}

UmemDmabuf::~UmemDmabuf() {
  if (attach_ == nullptr) return;
  // The buffer outlives the lock that lies in it.
  std::shared_ptr<DmaBuf> buf = attach_->dmabuf().shared_from_this();
  {
    std::lock_guard g(resv());
    revoke();
  }
  DmaBuf::detach(attach_);
}

Status UmemDmabuf::map_pages() {
  if (revoked_) return refuse(EINVAL, "dma-buf {}: it was revoked", attach_->dmabuf().name());
  if (sgt_ == nullptr) {
    sgt_ = UHCA_TRY(attach_->dmabuf().map_attachment(*attach_));
    const std::uint64_t start = align_down(offset_, kPage), end = align_up(offset_ + length_, kPage);
    pages_.clear();
    std::uint64_t at = 0;
    for (const SgEntry& e : sgt_->entries) {
      const std::uint64_t from = std::max(at, start), to = std::min(at + e.length, end);
      if (from < to) pages_.push_back({e.memory + (from - at), to - from});
      at += e.length;
    }
  }
  // The pages are known; what they hold may still be on its way.
  if (int e = resv().wait(DmaResvUsage::kKernel)) return refuse(e, "dma-buf {}: its move has failed", attach_->dmabuf().name());
  return success();
}

void UmemDmabuf::unmap_pages() {
  if (sgt_ == nullptr) return;
  pages_.clear();
  attach_->dmabuf().unmap_attachment(*attach_, std::move(sgt_));
}

void UmemDmabuf::revoke() {
  if (revoked_) return;
  if (on_revoke_ != nullptr) on_revoke_(on_revoke_context_);
  unmap_pages();
  if (std::exchange(pinned_, false)) attach_->dmabuf().unpin(*attach_);
  revoked_ = true;
}

}  // namespace uhca::kernel::mm

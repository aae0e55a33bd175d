// SPDX-License-Identifier: MIT
#include "kernel/gpu/gpu.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/trace.h"
#include "base/types.h"

namespace uhca::kernel::gpu {
namespace {

constexpr std::uint64_t kPage = Buddy::kPage;

// The copy of a move: from the old place to the new one, which hold the same number of bytes.
struct Copy {
  Vram& vram;
  std::vector<Block> from_blocks, to_blocks;
  std::shared_ptr<GttMemory> from_gtt, to_gtt;

  void run() const {
    const auto& blocks = from_gtt ? to_blocks : from_blocks;
    if (from_gtt || to_gtt) {
      std::byte* system = from_gtt ? from_gtt->memory : to_gtt->memory;
      for (const Block& b : blocks) {
        if (from_gtt)
          std::memcpy(vram.at(b.offset), system, b.size);
        else
          std::memcpy(system, vram.at(b.offset), b.size);
        system += b.size;
      }
      return;
    }
    std::size_t i = 0, j = 0;
    for (std::uint64_t i_at = 0, j_at = 0; i < from_blocks.size() && j < to_blocks.size();) {
      const std::uint64_t n = std::min(from_blocks[i].size - i_at, to_blocks[j].size - j_at);
      std::memcpy(vram.at(to_blocks[j].offset + j_at), vram.at(from_blocks[i].offset + i_at), n);
      if ((i_at += n) == from_blocks[i].size) ++i, i_at = 0;
      if ((j_at += n) == to_blocks[j].size) ++j, j_at = 0;
    }
  }
};

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::make(const uhca::gpu::Config& config) {
  std::unique_ptr<Gpu> g(new (std::nothrow) Gpu(config));
  if (!g) return Errno{ENOMEM};
  // NVIDIA's BAR 1 shows any page of the memory, so many at a time; AMD's BAR 0 shows the beginning.
  g->vram_ = UHCA_TRY(Vram::make(config.vram, config.kind == uhca::gpu::Kind::kNvidia ? config.vram : config.visible()));
  return g;
}

Result<std::shared_ptr<Bo>> Gpu::create(std::uint64_t size, unsigned preferred, unsigned allowed, std::uint64_t flags) {
  if (size == 0 || size > std::uint64_t{1} << 46) return refuse(EINVAL, "gpu: a buffer of {:#x} bytes", size);
  if ((preferred & (kDomainGtt | kDomainVram)) == 0) return refuse(EINVAL, "gpu: domains {:#x}", preferred);
  inside::Guard guard;
  std::shared_ptr<Bo> bo(new (std::nothrow) Bo(*this, align_up(size, kPage), preferred, allowed | preferred, flags, next_number_++));
  if (!bo) return Errno{ENOMEM};
  std::lock_guard g(bo->resv());
  UHCA_CHECK(validate(*bo, bo->allowed_, flags & kCpuAccessRequired));
  if (trace::on()) trace::Event("gpu", "bo_alloc").unum("bo", bo->number_).unum("size", bo->size_).str("place", place_name(bo->place_));
  return bo;
}

Result<std::shared_ptr<Bo>> Gpu::create_user(UserPtr va, std::uint64_t size) {
  if (size == 0 || va % kPage != 0 || size % kPage != 0 || va + size < va)
    return refuse(EINVAL, "gpu: user memory [{:#x}, +{:#x})", va, size);
  std::shared_ptr<Bo> bo(new (std::nothrow) Bo(*this, size, kDomainCpu, kDomainCpu, kNoCpuAccess, next_number_++));
  if (!bo) return Errno{ENOMEM};
  bo->place_ = Place::kUser;
  bo->user_ = va;
  if (trace::on()) trace::Event("gpu", "bo_alloc").unum("bo", bo->number_).unum("size", size).str("place", place_name(bo->place_));
  return bo;
}

Result<std::shared_ptr<GttMemory>> Gpu::alloc_gtt(std::uint64_t size) {
  if (gtt_used_.fetch_add(size) + size > kGttSize) {
    gtt_used_ -= size;
    return refuse(ENOMEM, "gpu: {:#x} bytes of GTT; {:#x} of {:#x} are taken", size, gtt_used_.load(), kGttSize);
  }
  auto m = std::make_shared<GttMemory>();
  m->gpu = this;
  m->size = size;
  m->fd = UHCA_TRY(fd::sealed_memfd("uhca:gtt", size));
  const long at = syscall(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, m->fd, 0L);
  if (at == -1) return refuse(ENOMEM, "gpu: {:#x} bytes of GTT: errno {}", size, errno);
  syscall(SYS_madvise, at, size, MADV_DONTFORK);
  m->memory = reinterpret_cast<std::byte*>(at);
  return m;
}

void Gpu::use(Bo& bo) {
  std::lock_guard g(lock_);
  if (bo.in_lru_) lru_.erase(bo.lru_);
  bo.in_lru_ = bo.place_ == Place::kVram;
  if (bo.in_lru_) bo.lru_ = lru_.insert(lru_.end(), &bo);
}

// A buffer whose last user is gone: its copies have ended, as each holds it.
void Gpu::forget(Bo& bo) {
  inside::Guard guard;
  {
    std::lock_guard g(lock_);
    if (bo.in_lru_) lru_.erase(bo.lru_);
    bo.in_lru_ = false;
  }
  if (!bo.blocks_.empty()) vram_->free(bo.blocks_);
}

// The buffer that has not been used for longest, of those with memory below the limit, goes to GTT. False: there is none.
bool Gpu::evict_one(Bo& for_whom, std::uint64_t limit) {
  std::shared_ptr<Bo> victim;
  std::vector<std::shared_ptr<Bo>> looked_at;  // a buffer's end takes the lock
  {
    std::lock_guard g(lock_);
    for (Bo* b : lru_) {
      if (b == &for_whom) continue;
      auto alive = b->weak_from_this().lock();
      if (alive == nullptr) continue;
      looked_at.push_back(alive);
      if (!b->resv_->try_lock()) continue;
      const bool helps = std::any_of(b->blocks_.begin(), b->blocks_.end(), [limit](const Block& x) { return x.offset < limit; });
      if (b->pins_ == 0 && helps && (b->allowed_ & kDomainGtt) && b->place_ == Place::kVram) {
        victim = std::move(alive);
        break;
      }
      b->resv_->unlock();
    }
  }
  if (victim == nullptr) return false;
  if (trace::on()) trace::Event("gpu", "evict").unum("bo", victim->number_).unum("for", for_whom.number_);
  const bool moved = to_gtt(*victim).ok();
  victim->resv_->unlock();
  if (moved) engine_.drain();  // its memory is free when the copy has ended
  return moved;
}

Result<std::vector<Block>> Gpu::alloc_vram(Bo& bo, bool visible, bool evict) {
  const std::uint64_t limit = visible ? vram_->visible() : vram_->size();
  if (bo.size_ > limit) return Errno{ENOSPC};
  // Who needs no aperture leaves it to others (TTM_PL_FLAG_TOPDOWN).
  auto blocks = vram_->alloc(bo.size_, limit, !visible);
  if (blocks.ok() || !evict) return blocks;
  engine_.drain();
  while (!(blocks = vram_->alloc(bo.size_, limit, !visible)).ok())
    if (!evict_one(bo, limit)) break;
  return blocks;
}

Status Gpu::to_gtt(Bo& bo) {
  auto gtt = UHCA_TRY(alloc_gtt(bo.size_));
  move(bo, Place::kGtt, {}, std::move(gtt));
  return success();
}

// Linux: amdgpu_bo_move. Importers let go before anything is copied; the copy's fence is what those wait for who come back.
void Gpu::move(Bo& bo, Place to, std::vector<Block> blocks, std::shared_ptr<GttMemory> gtt) {
  const Place from = bo.place_;
  auto buf = bo.exported.lock();
  if (from != Place::kNone && buf != nullptr) buf->invalidate_mappings();
  auto copy = std::make_shared<Copy>(Copy{*vram_, std::move(bo.blocks_), blocks, std::move(bo.gtt_), gtt});
  bo.blocks_ = std::move(blocks);
  bo.gtt_ = std::move(gtt);
  bo.place_ = to;
  use(bo);
  if (from == Place::kNone) return;
  if (trace::on()) {
    trace::Event e("gpu", "move");
    e.unum("bo", bo.number_).str("from", place_name(from)).str("to", place_name(to)).unum("size", bo.size_);
    if (!bo.blocks_.empty()) e.hex("vram", bo.blocks_.front().offset);
  }
  views_close(bo);
  auto fence = engine_.submit([this, copy, self = bo.shared_from_this(), there = bo.pieces()] {
    copy->run();
    views_open(*self, there);
    if (!copy->from_blocks.empty()) vram_->free(copy->from_blocks);
    copy->from_gtt.reset();
  });
  bo.resv_->add_fence(std::move(fence), mm::DmaResvUsage::kKernel);
}

Status Gpu::validate(Bo& bo, unsigned domains, bool visible) {
  const bool want_vram = domains & kDomainVram, want_gtt = domains & kDomainGtt;
  const bool fits = bo.place_ == Place::kVram  ? want_vram && (!visible || bo.visible())
                    : bo.place_ == Place::kGtt ? want_gtt
                                               : bo.place_ == Place::kUser;
  if (bo.pins_ != 0 && !fits)
    return refuse(EINVAL, "gpu: buffer {} is pinned in {}, which is not among domains {:#x}", bo.number_, place_name(bo.place_), domains);
  if (bo.pins_ != 0 || bo.place_ == Place::kUser) return success();
  // GTT is what is left when VRAM is full (TTM_PL_FLAG_FALLBACK), for buffers that prefer VRAM.
  const bool fallback = want_vram && bo.preferred_ & kDomainVram;
  if (fits && (bo.place_ == Place::kVram || !fallback)) {
    use(bo);
    return success();
  }
  if (want_vram && (bo.preferred_ & kDomainVram || !want_gtt)) {
    auto blocks = alloc_vram(bo, visible, !fits);
    if (blocks.ok()) {
      move(bo, Place::kVram, std::move(*blocks), nullptr);
      return success();
    }
    if (fits) return success();
  }
  if (want_gtt) return to_gtt(bo);
  return refuse(ENOMEM, "gpu: {:#x} bytes of {}VRAM; {:#x} are free, and nothing can be evicted", bo.size_, visible ? "visible " : "",
                vram_->free_bytes(visible ? vram_->visible() : vram_->size()));
}

Status Gpu::pin(Bo& bo, unsigned domains) {
  if (bo.pins_ != 0) {
    const unsigned here = bo.place_ == Place::kVram ? kDomainVram : bo.place_ == Place::kGtt ? kDomainGtt : kDomainCpu;
    if (!(here & domains))
      return refuse(EINVAL, "gpu: buffer {} is pinned in {}; domains {:#x} were asked for", bo.number_, place_name(bo.place_), domains);
    ++bo.pins_;
    return success();
  }
  if (bo.preferred_ & domains) domains &= bo.preferred_;
  UHCA_CHECK(validate(bo, domains, domains & kDomainVram));
  ++bo.pins_;
  if (trace::on()) trace::Event("gpu", "pin").unum("bo", bo.number_).str("place", place_name(bo.place_));
  return success();
}

void Gpu::unpin(Bo& bo) {
  --bo.pins_;
  if (trace::on()) trace::Event("gpu", "unpin").unum("bo", bo.number_).unum("left", bo.pins_);
}

bool Gpu::active() const {
  return !config_.runtime_pm || awake_.load() != 0;
}
void Gpu::power_get() {
  awake_.fetch_add(1);
}
void Gpu::power_put() {
  awake_.fetch_sub(1);
}
bool Gpu::power_get_if_active() {
  if (!config_.runtime_pm) {
    power_get();
    return true;
  }
  unsigned n = awake_.load();
  while (n != 0)
    if (awake_.compare_exchange_weak(n, n + 1)) return true;
  return false;
}

}  // namespace uhca::kernel::gpu

// SPDX-License-Identifier: MIT
#include "kernel/mm/umem.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/fault.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/trace.h"
#include "base/types.h"
#include "device/pci/shared_area.h"
#include "kernel/mm/pinned_pages.h"
#include "kernel/mm/procmap.h"
#include "kernel/mm/range_index.h"
#include "kernel/mm/unpinnable.h"

namespace uhca::kernel::mm {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kGranule = std::uint64_t{2} << 30;  // IOVA and VA agree modulo this
// An IOVA is number << 41 | offset. A range begins in the first 2 GiB of its window, so it may be 2 TiB - 2 GiB long. Numbers have
// 22 bits: bit 63 stays clear, as bus addresses with the top bit set mean other things to the device (MTT flags, peer memory).
constexpr unsigned kWindowBits = 41;
constexpr std::uint64_t kWindow = std::uint64_t{1} << kWindowBits;
constexpr std::uint32_t kSlotBits = 22;
constexpr std::uint32_t kSlotsPerChunk = 512;
constexpr std::uint32_t kChunks = (1u << kSlotBits) / kSlotsPerChunk;
// A freed number rests until that many others have been freed after it (or the space is full): a stale address then hits
// a dead range, whose reason still names the former owner, rather than somebody else's memory.
constexpr std::uint32_t kRest = 8192;

// A short text that may be read while it is replaced: readers then see a mixture of two names, never unterminated memory.
template <std::size_t kWords>
class SharedText {
 public:
  void set(std::string_view s) {
    char bytes[kWords * 8] = {};
    std::memcpy(bytes, s.data(), std::min(s.size(), sizeof bytes - 1));
    for (std::size_t i = 0; i < kWords; ++i) {
      std::uint64_t w;
      std::memcpy(&w, bytes + i * 8, 8);
      words_[i].store(w, std::memory_order_relaxed);
    }
  }
  struct Copy {
    char text[kWords * 8 + 1];
  };
  Copy get() const {
    Copy c;
    for (std::size_t i = 0; i < kWords; ++i) {
      std::uint64_t w = words_[i].load(std::memory_order_relaxed);
      std::memcpy(c.text + i * 8, &w, 8);
    }
    c.text[kWords * 8] = 0;
    return c;
  }

 private:
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

enum State : std::uint64_t { kUnused = 0, kLive = 1, kPoisoned = 2, kDead = 3 };
constexpr std::uint64_t kStateMask = 3;  // the generation sits above it

// One range. All fields are atomic because translation reads them without a lock; it believes them only if the state word is
// the same before and after. Fields are stored with release and loaded with acquire, so that whoever sees a new field sees the
// state change before it.
struct Slot {
  std::atomic<std::uint64_t> state{kUnused};
  std::atomic<std::uintptr_t> base{0};  // host address of offset 0 of the window
  std::atomic<std::uint64_t> first{0};  // offsets of the first mapped byte and behind the last
  std::atomic<std::uint64_t> end{0};
  std::atomic<bool> writable{false};
  // On demand, or moving; both nullptr: pinned.
  std::atomic<OdpPages*> odp{nullptr};
  std::atomic<IovaWindow*> window{nullptr};
  SharedText<6> who;
  SharedText<4> how;
  std::uint32_t next_free = 0;  // guarded by the domain's lock
};

thread_local constinit char fault_text[256] = "";

const char* fault(std::string_view text) {
  std::size_t n = std::min(text.size(), sizeof fault_text - 1);
  std::memcpy(fault_text, text.data(), n);
  fault_text[n] = 0;
  return fault_text;
}

template <class... A>
void* deny(const char** why, fmt::format_string<A...> f, A&&... a) {
  if (why == nullptr) return nullptr;
  char buf[sizeof fault_text];
  auto r = fmt::format_to_n(buf, sizeof buf, f, std::forward<A>(a)...);
  *why = fault({buf, std::min(r.size, sizeof buf)});
  return nullptr;
}

}  // namespace

struct IommuDomain::Impl {
  std::array<std::atomic<Slot*>, kChunks> chunks{};
  ProcMaps maps;

  std::atomic<pci::SharedArea*> area{nullptr};

  std::mutex lock;  // slots' life and the index; never held while allocating
  RangeIndex index;
  std::uint32_t fresh = 1;  // number 0 stays unused: bus address 0 is never valid
  std::size_t live = 0;
  std::uint32_t free_head = 0, free_tail = 0, free_count = 0;
  std::atomic<std::uint32_t> pinned{0};
  // Hull of what is pinned (grows; reset when nothing is): lets invalidate() of unrelated memory return without the lock.
  std::atomic<std::uint64_t> hull_begin{~std::uint64_t{0}}, hull_end{0};

  ~Impl() {
    for (auto& c : chunks) delete[] c.load(std::memory_order_relaxed);
  }

  Slot* slot(std::uint64_t number) const {
    if (number == 0 || number >= std::uint64_t{kChunks} * kSlotsPerChunk) return nullptr;
    Slot* chunk = chunks[number / kSlotsPerChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + number % kSlotsPerChunk;
  }

  // Lock held. Other functions look at their copy of the word.
  void set_state(std::uint32_t number, std::uint64_t state) {
    slot(number)->state.store(state, std::memory_order_release);
    if (pci::SharedArea* a = area.load(std::memory_order_relaxed)) a->range_states()[number].store(state, std::memory_order_release);
  }

  // Returns when nobody uses a translation any more that has been taken back: neither the device, nor another function.
  void wait_for_dma() {
    rcu::synchronize();
    if (pci::SharedArea* a = area.load(std::memory_order_relaxed)) a->wait_for_accessors();
  }

  // A number with its slot in place; 0: none left.
  std::uint32_t take() {
    for (;;) {
      std::uint32_t missing;
      {
        std::lock_guard g(lock);
        bool exhausted = fresh >= kChunks * kSlotsPerChunk;
        if (free_count > kRest || (exhausted && free_count > 0)) {
          std::uint32_t n = free_head;
          free_head = slot(n)->next_free;
          if (--free_count == 0) free_tail = 0;
          return n;
        }
        if (exhausted) return 0;
        missing = fresh / kSlotsPerChunk;
        if (chunks[missing].load(std::memory_order_relaxed) != nullptr) return fresh++;
      }
      auto* chunk = new (std::nothrow) Slot[kSlotsPerChunk];
      if (chunk == nullptr) return 0;
      Slot* none = nullptr;
      if (!chunks[missing].compare_exchange_strong(none, chunk, std::memory_order_acq_rel)) delete[] chunk;
    }
  }

  // Lock held.
  void give_back(std::uint32_t number) {
    Slot* s = slot(number);
    s->next_free = 0;
    if (free_tail != 0) {
      slot(free_tail)->next_free = number;
    } else {
      free_head = number;
    }
    free_tail = number;
    ++free_count;
  }

  // Maps whole pages around [va, va + length): the bus address of va. ENOMEM.
  Result<pci::DmaAddr> map(std::uint64_t va, std::uint64_t length, bool writable, std::string_view who, bool indexed, std::uint64_t like,
                           OdpPages* odp = nullptr, IovaWindow* window = nullptr) {
    std::uint64_t page = align_down(va, kPage), end = align_up(va + length, kPage);
    std::uint64_t base = page - align_down(like, kPage) % kGranule;
    std::uint32_t number = end - base > kWindow ? 0 : take();
    if (number == 0) return refuse(ENOMEM, "{}: no bus addresses left for {} bytes (a range holds at most 2 TiB - 2 GiB)", who, length);
    Slot* s = slot(number);
    s->who.set(who.substr(0, 47));
    s->how.set("");
    s->base.store(base, std::memory_order_release);
    s->first.store(page - base, std::memory_order_release);
    s->end.store(end - base, std::memory_order_release);
    s->writable.store(writable, std::memory_order_release);
    s->odp.store(odp, std::memory_order_release);
    s->window.store(window, std::memory_order_release);
    RangeIndex::Node node;
    if (indexed) node = RangeIndex::make_node(page, number);
    {
      std::lock_guard g(lock);
      std::uint64_t generation = (s->state.load(std::memory_order_relaxed) & ~kStateMask) + (kStateMask + 1);
      set_state(number, generation | kLive);
      if (indexed) {
        index.insert(std::move(node), end - page);
        hull_begin.store(std::min(hull_begin.load(std::memory_order_relaxed), page), std::memory_order_relaxed);
        hull_end.store(std::max(hull_end.load(std::memory_order_relaxed), end), std::memory_order_relaxed);
        pinned.fetch_add(1, std::memory_order_release);
      }
      ++live;
    }
    return (std::uint64_t{number} << kWindowBits) | (va - base);
  }

  void unmap(pci::DmaAddr dma, bool indexed) {
    auto number = static_cast<std::uint32_t>(dma >> kWindowBits);
    Slot* s = slot(number);
    RangeIndex::Node node;
    {
      std::lock_guard g(lock);
      std::uint64_t st = s->state.load(std::memory_order_relaxed);
      set_state(number, (st & ~kStateMask) | kDead);
      if (indexed) {
        std::uint64_t first = s->first.load(std::memory_order_relaxed), end = s->end.load(std::memory_order_relaxed);
        node = index.remove(s->base.load(std::memory_order_relaxed) + first, end - first, number);
        if (pinned.fetch_sub(1, std::memory_order_release) == 1) {
          hull_begin.store(~std::uint64_t{0}, std::memory_order_relaxed);
          hull_end.store(0, std::memory_order_relaxed);
        }
      }
      give_back(number);
      --live;
    }
    wait_for_dma();
  }
};

Umem::~Umem() {
  if (domain_ == nullptr) return;  // refused
  domain_->impl_->unmap(dma_, true);
  if (counted_) PinnedPages::release(align_down(va_, kPage), align_up(va_ + length_, kPage));
}

DmaBuffer::~DmaBuffer() {
  if (domain_ == nullptr) return;  // refused
  domain_->impl_->unmap(dma_, false);
  syscall(SYS_munmap, cpu_, align_up(size_, kPage));
}

UmemOdp::~UmemOdp() {
  for (pci::DmaAddr w : windows_) domain_->impl_->unmap(w, true);
}

IommuDomain::IommuDomain() : impl_(std::make_unique<Impl>()) {}
IommuDomain::~IommuDomain() = default;

Result<std::unique_ptr<Umem>> IommuDomain::pin_like(UserPtr va, std::size_t length, bool writable, std::string_view who,
                                                    std::uint64_t like) {
  if ((va ^ like) % kPage != 0) return refuse(EINVAL, "{}: {:#x} and {:#x} differ within the page", who, va, like);
  if (length == 0) return refuse(EINVAL, "{}: cannot pin 0 bytes at {:#x}", who, va);
  if (va + length < va || align_up(va + length, kPage) < va + length)
    return refuse(EINVAL, "{}: [{:#x}, +{:#x}) wraps around the address space", who, va, length);
  if (int e = fault::due(fault::Point::kPin)) return refuse(e, "{}: [{:#x}, +{:#x}): a rule makes this pinning fail", who, va, length);
  UserPtr begin = align_down(va, kPage), end = align_up(va + length, kPage);
  auto cover = UHCA_TRY(impl_->maps.check(begin, end, writable));
  switch (cover.what) {
    case Coverage::kOk: break;
    case Coverage::kHole: return refuse(EFAULT, "{}: [{:#x}, +{:#x}): nothing is mapped at {:#x}", who, va, length, cover.at);
    case Coverage::kNotReadable:
      return refuse(EFAULT, "{}: [{:#x}, +{:#x}): the mapping at {:#x} is not readable", who, va, length, cover.at);
    case Coverage::kNotWritable: return refuse(EFAULT, "{}: [{:#x}, +{:#x}): the mapping at {:#x} is read-only", who, va, length, cover.at);
  }
  if (auto without_pages = unpinnable.load(std::memory_order_acquire); without_pages != nullptr && without_pages(begin, end - begin))
    return refuse(EFAULT, "{}: [{:#x}, +{:#x}): a mapping of a device's memory has no pages to pin; export it as a dma-buf", who, va,
                  length);
  std::unique_ptr<Umem> umem(new (std::nothrow) Umem);
  if (!umem) return Errno{ENOMEM};
  const bool count = PinnedPages::enabled();
  if (count) UHCA_CHECK(PinnedPages::take(begin, end, who));
  auto dma = impl_->map(va, length, writable, who, true, like);
  if (!dma) {
    if (count) PinnedPages::release(begin, end);
    return dma.error();
  }
  umem->domain_ = this;
  umem->va_ = va;
  umem->length_ = length;
  umem->dma_ = *dma;
  umem->writable_ = writable;
  umem->counted_ = count;
  return umem;
}

Result<std::unique_ptr<UmemOdp>> IommuDomain::on_demand(UserPtr va, std::size_t length, bool writable, std::string_view who,
                                                        std::uint64_t like) {
  if ((va ^ like) % kPage != 0) return refuse(EINVAL, "{}: {:#x} and {:#x} differ within the page", who, va, like);
  if (length == 0) return refuse(EINVAL, "{}: 0 bytes at {:#x}", who, va);
  if (va + length < va || align_up(va + length, kPage) < va + length)
    return refuse(EOVERFLOW, "{}: [{:#x}, +{:#x}) wraps around the address space", who, va, length);
  std::unique_ptr<UmemOdp> umem(new (std::nothrow) UmemOdp);
  if (!umem) return Errno{ENOMEM};
  umem->domain_ = this;
  umem->va_ = va;
  umem->length_ = length;
  umem->writable_ = writable;
  umem->pages_ = std::make_unique<OdpPages>(align_down(va, kPage), align_up(va + length, kPage));
  umem->windows_.push_back(UHCA_TRY(impl_->map(va, length, writable, who, true, like, umem->pages_.get())));
  return umem;
}

Result<std::unique_ptr<UmemOdp>> IommuDomain::on_demand_everything(bool writable, std::string_view who) {
  std::unique_ptr<UmemOdp> umem(new (std::nothrow) UmemOdp);
  if (!umem) return Errno{ENOMEM};
  umem->domain_ = this;
  umem->length_ = UmemOdp::kAddressSpace;
  umem->writable_ = writable;
  umem->pages_ = std::make_unique<OdpPages>(0, UmemOdp::kAddressSpace);
  for (std::uint64_t at = 0; at < UmemOdp::kAddressSpace; at += UmemOdp::kWindow)
    umem->windows_.push_back(UHCA_TRY(impl_->map(at, UmemOdp::kWindow, writable, who, true, at, umem->pages_.get())));
  return umem;
}

IovaWindow::~IovaWindow() {
  if (domain_ != nullptr) domain_->impl_->unmap(dma_, false);  // else refused
  delete pieces_.load(std::memory_order_relaxed);
}

void IovaWindow::replace(Pieces* fresh) {
  Pieces* old = pieces_.exchange(fresh, std::memory_order_acq_rel);
  if (old == nullptr) return;
  domain_->impl_->wait_for_dma();
  delete old;
}

void IovaWindow::load(const std::vector<SgEntry>& pieces) {
  auto p = std::make_unique<Pieces>();
  std::uint64_t end = 0;
  for (const SgEntry& e : pieces) {
    p->ends.push_back(end += e.length);
    p->memory.push_back(e.memory);
  }
  if (trace::on()) trace::Event("mm", "load").hex("dma", dma_).unum("pieces", pieces.size()).unum("len", end);
  replace(p.release());
}

void IovaWindow::zap() {
  if (pieces_.load(std::memory_order_relaxed) == nullptr) return;
  invalidations_.fetch_add(1, std::memory_order_relaxed);
  if (trace::on()) trace::Event("mm", "zap").hex("dma", dma_).unum("len", length_);
  replace(nullptr);
}

Result<std::unique_ptr<IovaWindow>> IommuDomain::window(std::size_t length, bool writable, std::string_view who, std::uint64_t like,
                                                        bool (*fault)(void*), void* context) {
  if (length == 0 || length % kPage != 0 || like % kPage != 0)
    return refuse(EINVAL, "{}: a window of {:#x} bytes like {:#x}", who, length, like);
  std::unique_ptr<IovaWindow> w(new (std::nothrow) IovaWindow);
  if (!w) return Errno{ENOMEM};
  w->fault_ = fault;
  w->context_ = context;
  w->length_ = length;
  w->first_ = like % kGranule;
  // The range's own base is never used: addresses of its own are told apart by it in reasons only.
  w->dma_ = UHCA_TRY(impl_->map(w->first_, length, writable, who, false, w->first_, nullptr, w.get()));
  w->domain_ = this;
  return w;
}

void* IommuDomain::in_window(IovaWindow& w, std::uint64_t off, std::size_t len, std::size_t* contiguous, const char** why) {
  const auto* p = w.pieces_.load(std::memory_order_acquire);
  off -= w.first_;
  if (p == nullptr || p->ends.empty() || off >= p->ends.back())
    return deny(why, "bus address {:#x}: its memory has moved, or is gone", w.dma_ + off);
  const auto i = static_cast<std::size_t>(std::upper_bound(p->ends.begin(), p->ends.end(), off) - p->ends.begin());
  const std::uint64_t begin = i == 0 ? 0 : p->ends[i - 1];
  if (contiguous != nullptr) *contiguous = std::min<std::uint64_t>(len, p->ends[i] - off);
  return p->memory[i] + (off - begin);
}

// What a request needs of its window is read in a section, and the window outlives the call: its keys go first, with the lock of the lane
// held under which the device makes requests.
bool IommuDomain::page_request(pci::DmaAddr addr, pci::DmaDir dir) {
  Slot* s = impl_->slot(addr >> kWindowBits);
  if (s == nullptr || (s->state.load(std::memory_order_acquire) & kStateMask) != kLive) return false;
  if (dir == pci::DmaDir::kFromDevice && !s->writable.load(std::memory_order_acquire)) return false;  // no page helps
  IovaWindow* w = s->window.load(std::memory_order_acquire);
  const std::uint64_t off = addr & (kWindow - 1);
  if (w == nullptr || off < s->first.load(std::memory_order_acquire) || off >= s->end.load(std::memory_order_acquire)) return false;
  const bool came = w->fault_ != nullptr && w->fault_(w->context_);
  if (came) w->faults_.fetch_add(1, std::memory_order_relaxed);
  if (trace::on()) trace::Event("mm", "page_request").hex("dma", addr).flag("came", came);
  return came;
}

std::size_t IommuDomain::live_ranges() const {
  std::lock_guard g(impl_->lock);
  return impl_->live;
}

void IommuDomain::rename(pci::DmaAddr addr, std::string_view who) {
  std::lock_guard g(impl_->lock);
  impl_->slot(addr >> kWindowBits)->who.set(who.substr(0, 47));
}

Result<std::unique_ptr<DmaBuffer>> IommuDomain::alloc_coherent(std::size_t size) {
  if (size == 0) return refuse(EINVAL, "coherent buffer of 0 bytes");
  if (int e = fault::due(fault::Point::kAlloc)) return refuse(e, "coherent buffer of {} bytes: a rule makes this allocation fail", size);
  std::unique_ptr<DmaBuffer> buffer(new (std::nothrow) DmaBuffer);
  if (!buffer) return Errno{ENOMEM};
  std::size_t bytes = align_up(size, kPage);
  // Raw: the shim's own mmap wrapper has no business here. Not inherited: a child must not see (or free) the parent's queues.
  long p = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
  if (p == -1) return refuse(ENOMEM, "no memory for a coherent buffer of {} bytes", bytes);
  auto* cpu = reinterpret_cast<void*>(p);
  if (syscall(SYS_madvise, cpu, bytes, MADV_DONTFORK) != 0) {
    syscall(SYS_munmap, cpu, bytes);
    return refuse(ENOMEM, "coherent buffer: cannot be kept out of children");
  }
  const auto at = reinterpret_cast<std::uintptr_t>(cpu);
  auto dma = impl_->map(at, bytes, true, "driver memory", false, at);
  if (!dma) {
    syscall(SYS_munmap, cpu, bytes);
    return dma.error();
  }
  buffer->domain_ = this;
  buffer->cpu_ = cpu;
  buffer->dma_ = *dma;
  buffer->size_ = size;
  return buffer;
}

void* IommuDomain::translate(pci::DmaAddr addr, std::size_t len, pci::DmaDir dir, std::size_t* contiguous, const char** why) {
  const Slot* s = impl_->slot(addr >> kWindowBits);
  if (s == nullptr) return deny(why, "bus address {:#x} was never mapped", addr);
  std::uint64_t st = s->state.load(std::memory_order_acquire);
  std::uint64_t off = addr & (kWindow - 1);
  std::uint64_t base = s->base.load(std::memory_order_acquire);
  std::uint64_t first = s->first.load(std::memory_order_acquire);
  std::uint64_t end = s->end.load(std::memory_order_acquire);
  bool writable = s->writable.load(std::memory_order_acquire);
  OdpPages* odp = s->odp.load(std::memory_order_acquire);
  IovaWindow* moving = s->window.load(std::memory_order_acquire);
  bool stable = s->state.load(std::memory_order_relaxed) == st;

  switch (st & kStateMask) {
    case kUnused: return deny(why, "bus address {:#x} was never mapped", addr);
    case kLive: break;
    case kPoisoned:
      return deny(why, "{} [{:#x}, {:#x}): memory was {} while registered", s->who.get().text, base + first, base + end, s->how.get().text);
    default: return deny(why, "{} [{:#x}, {:#x}): no longer mapped for DMA", s->who.get().text, base + first, base + end);
  }
  if (!stable) return deny(why, "bus address {:#x} was unmapped during the access", addr);
  if (off < first || off >= end)
    return deny(why, "{} [{:#x}, {:#x}): {:#x} lies outside", s->who.get().text, base + first, base + end, base + off);
  if (dir == pci::DmaDir::kFromDevice && !writable)
    return deny(why, "{} [{:#x}, {:#x}): mapped read-only", s->who.get().text, base + first, base + end);
  const std::uint64_t reach = std::min<std::uint64_t>(len, end - off);
  if (moving != nullptr) return in_window(*moving, off, reach, contiguous, why);
  if (odp != nullptr) {
    if (int e = odp->access(base + off, reach, dir == pci::DmaDir::kFromDevice))
      return deny(why, "{}: page fault at [{:#x}, +{:#x}) for {}: errno {}", s->who.get().text, base + off, reach,
                  dir == pci::DmaDir::kFromDevice ? "writing" : "reading", e);
  }
  if (contiguous != nullptr) *contiguous = reach;
  return reinterpret_cast<void*>(base + off);
}

bool IommuDomain::resolve(pci::DmaAddr addr, std::size_t len, pci::DmaDir dir, pci::HostRange* out) {
  const auto number = static_cast<std::uint32_t>(addr >> kWindowBits);
  const Slot* s = impl_->slot(addr >> kWindowBits);
  if (s == nullptr) return false;
  out->state = s->state.load(std::memory_order_acquire);
  // What has to be brought in, nobody but us can bring in.
  if (s->odp.load(std::memory_order_acquire) != nullptr || s->window.load(std::memory_order_acquire) != nullptr) return false;
  std::size_t reach = 0;
  void* p = translate(addr, len, dir, &reach, nullptr);
  if (p == nullptr || reach < len) return false;
  out->address = reinterpret_cast<std::uintptr_t>(p);
  out->range = number;
  out->word = &s->state;
  return s->state.load(std::memory_order_acquire) == out->state;
}

void IommuDomain::share(pci::SharedArea* area) {
  std::lock_guard g(impl_->lock);
  static_assert(pci::SharedArea::kRanges >= std::size_t{kChunks} * kSlotsPerChunk);
  for (std::uint32_t n = 1; n < impl_->fresh; ++n)
    area->range_states()[n].store(impl_->slot(n)->state.load(std::memory_order_relaxed), std::memory_order_relaxed);
  impl_->area.store(area, std::memory_order_release);
}

void IommuDomain::invalidate(UserPtr va, std::size_t length, std::string_view how) {
  Impl& d = *impl_;
  if (length == 0 || d.pinned.load(std::memory_order_acquire) == 0) return;
  UserPtr begin = align_down(va, kPage);
  UserPtr end = va + length < va ? ~std::uint64_t{0} : va + length;
  if (end <= d.hull_begin.load(std::memory_order_relaxed) || begin >= d.hull_end.load(std::memory_order_relaxed)) return;
  unsigned poisoned = 0;
  bool hit = false;  // also where another call has just poisoned: the accesses that it waits for concern this one too
  std::uint32_t example = 0;
  {
    std::lock_guard g(d.lock);
    d.index.candidates(begin, end, [&](std::uint32_t number) {
      Slot* s = d.slot(number);
      std::uint64_t st = s->state.load(std::memory_order_relaxed);
      std::uint64_t base = s->base.load(std::memory_order_relaxed);
      if (base + s->end.load(std::memory_order_relaxed) <= begin) return;
      hit = true;
      if ((st & kStateMask) != kLive) return;
      if (OdpPages* odp = s->odp.load(std::memory_order_relaxed)) {
        const std::uint64_t from = std::max(begin, base + s->first.load(std::memory_order_relaxed));
        odp->invalidate(from, std::min(end, base + s->end.load(std::memory_order_relaxed)) - from);
        return;
      }
      s->how.set(how);
      d.set_state(number, (st & ~kStateMask) | kPoisoned);
      example = number;
      ++poisoned;
    });
  }
  if (!hit) return;
  d.wait_for_dma();
  if (poisoned == 0) return;
  log::warn("[{:#x}, {:#x}) was {} while registered: {} range(s) poisoned, among them {}", begin, end, how, poisoned,
            d.slot(example)->who.get().text);
}

}  // namespace uhca::kernel::mm

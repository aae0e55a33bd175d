// SPDX-License-Identifier: MIT
// Queue buffers and doorbell records.
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

namespace {
std::size_t page_size() {
  static const std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

bool alloc_anonymous(std::size_t bytes, Buf* buf) {
  std::size_t size = align_up(bytes ? bytes : 1, page_size());
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  if (ibv_dontfork_range(p, size)) {
    int err = errno;
    munmap(p, size);
    errno = err;
    return false;
  }
  *buf = Buf{p, size, Buf::Kind::kAnonymous};
  return true;
}
}  // namespace

namespace {

constexpr std::size_t kHugePage = 2 << 20;

// Where queue buffers come from, by resource: MLX_QP_ALLOC_TYPE and so on, as libmlx5 reads them. CONTIG asks the kernel for contiguous
// pages, which Linux offers no more: "prefer" then falls back, and without it the allocation fails.
enum class Source : std::uint8_t { kAnonymous, kHuge, kPreferHuge, kContig, kPreferContig, kAll };

Source wanted_source(std::uint64_t resource_type) {
  const char* name = nullptr;
  switch (resource_type) {
    case MLX5DV_RES_TYPE_QP: name = "MLX_QP_ALLOC_TYPE"; break;
    case MLX5DV_RES_TYPE_CQ: name = "MLX_CQ_ALLOC_TYPE"; break;
    case MLX5DV_RES_TYPE_SRQ: name = "MLX_SRQ_ALLOC_TYPE"; break;
    case MLX5DV_RES_TYPE_RWQ: name = "MLX_RWQ_ALLOC_TYPE"; break;
    case kResTypeBuf: name = "MLX_MR_ALLOC_TYPE"; break;
    default: return Source::kAnonymous;
  }
  const char* value = getenv(name);
  if (!value) return Source::kAnonymous;
  constexpr struct {
    const char* name;
    Source source;
  } kNames[] = {{"HUGE", Source::kHuge},
                {"PREFER_HUGE", Source::kPreferHuge},
                {"CONTIG", Source::kContig},
                {"PREFER_CONTIG", Source::kPreferContig},
                {"ALL", Source::kAll}};
  for (auto& n : kNames)
    if (!strcasecmp(value, n.name)) return n.source;
  return Source::kAnonymous;
}

bool alloc_huge(std::size_t bytes, Buf* buf) {
  std::size_t size = align_up(bytes, kHugePage);
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (p == MAP_FAILED) return false;
  if (ibv_dontfork_range(p, size)) {
    munmap(p, size);
    return false;
  }
  *buf = Buf{p, size, Buf::Kind::kAnonymous};
  return true;
}

}  // namespace

bool alloc_buf(Context* ctx, Pd* pd, std::size_t bytes, std::uint64_t resource_type, Buf* buf) {
  std::size_t size = align_up(bytes ? bytes : 1, page_size());
  if (pd && pd->protection && pd->alloc) {
    void* p = pd->alloc(&pd->pd, pd->pd_context, size, page_size(), resource_type);
    if (!p) {
      errno = ENOMEM;
      return false;
    }
    if (p != IBV_ALLOCATOR_USE_DEFAULT) {
      std::memset(p, 0, size);
      *buf = Buf{p, size, Buf::Kind::kParentDomain};
      return true;
    }
  }
  if (ctx->extern_alloc.alloc) {
    void* p = ctx->extern_alloc.alloc(size, ctx->extern_alloc.data);
    if (!p) {
      errno = ENOMEM;
      return false;
    }
    std::memset(p, 0, size);
    *buf = Buf{p, size, Buf::Kind::kExtern};
    return true;
  }
  Source source = wanted_source(resource_type);
  if (source == Source::kHuge || source == Source::kPreferHuge || source == Source::kAll) {
    if (alloc_huge(size, buf)) return true;
    if (source == Source::kHuge) {
      errno = refuse(ENOMEM, "queue buffer: no huge page of 2 MiB for {} bytes", size).value;
      return false;
    }
  }
  if (source == Source::kContig) {
    errno = refuse(ENOMEM, "queue buffer: the kernel offers no contiguous pages").value;
    return false;
  }
  return alloc_anonymous(size, buf);
}

void free_buf(Context* ctx, Pd* pd, std::uint64_t resource_type, Buf* buf) {
  switch (buf->kind) {
    case Buf::Kind::kNone: break;
    case Buf::Kind::kAnonymous:
      ibv_dofork_range(buf->addr, buf->size);
      munmap(buf->addr, buf->size);
      break;
    case Buf::Kind::kParentDomain: pd->free(&pd->pd, pd->pd_context, buf->addr, resource_type); break;
    case Buf::Kind::kExtern: ctx->extern_alloc.free(buf->addr, ctx->extern_alloc.data); break;
  }
  *buf = Buf{};
}

// A page of doorbell records, one per cache line of the device.
struct DbrPage {
  DbrPage* next = nullptr;
  Buf buf;
  unsigned count = 0;
  unsigned used = 0;
  std::uint64_t free_bits[16] = {};  // 1: free
};

namespace {
constexpr unsigned kMaxRecords = 16 * 64;
}

std::uint32_t* alloc_dbr(Context* ctx, Pd* pd) {
  if (pd && pd->protection && pd->alloc) {
    void* p = pd->alloc(&pd->pd, pd->pd_context, 8, 8, MLX5DV_RES_TYPE_DBR);
    if (!p) return fail(refuse(ENOMEM, "the parent domain's allocator has no doorbell record"));
    if (p != IBV_ALLOCATOR_USE_DEFAULT) {
      std::memset(p, 0, 8);
      return static_cast<std::uint32_t*>(p);
    }
  }
  MutexGuard guard(ctx->dbr_mutex);
  DbrPage* page = ctx->dbr_pages;
  while (page && page->used == page->count) page = page->next;
  if (!page) {
    page = make<DbrPage>();
    if (!page) return nullptr;
    if (!alloc_buf(ctx, nullptr, page_size(), MLX5DV_RES_TYPE_DBR, &page->buf)) {
      delete page;
      return nullptr;
    }
    page->count = static_cast<unsigned>(page_size() / ctx->cache_line_size);
    if (page->count > kMaxRecords) page->count = kMaxRecords;
    for (unsigned i = 0; i < page->count; ++i) page->free_bits[i / 64] |= std::uint64_t{1} << (i % 64);
    page->next = ctx->dbr_pages;
    ctx->dbr_pages = page;
  }
  unsigned word = 0;
  while (!page->free_bits[word]) ++word;
  unsigned bit = static_cast<unsigned>(__builtin_ctzll(page->free_bits[word]));
  page->free_bits[word] &= ~(std::uint64_t{1} << bit);
  ++page->used;
  auto* db = reinterpret_cast<std::uint32_t*>(page->buf.bytes() + std::size_t{word * 64 + bit} * ctx->cache_line_size);
  db[0] = db[1] = 0;
  return db;
}

void free_dbr(Context* ctx, Pd* pd, std::uint32_t* db) {
  if (!db) return;
  MutexGuard guard(ctx->dbr_mutex);
  auto* p = reinterpret_cast<std::uint8_t*>(db);
  for (DbrPage** link = &ctx->dbr_pages; *link; link = &(*link)->next) {
    DbrPage* page = *link;
    if (p < page->buf.bytes() || p >= page->buf.bytes() + page->buf.size) continue;
    std::size_t i = static_cast<std::size_t>(p - page->buf.bytes()) / ctx->cache_line_size;
    page->free_bits[i / 64] |= std::uint64_t{1} << (i % 64);
    if (!--page->used) {
      *link = page->next;
      free_buf(ctx, nullptr, MLX5DV_RES_TYPE_DBR, &page->buf);
      delete page;
    }
    return;
  }
  // Not of our pages: the parent domain gave it.
  if (pd && pd->free) pd->free(&pd->pd, pd->pd_context, db, MLX5DV_RES_TYPE_DBR);
}

int store_uidx(Context* ctx, Indexed* index) {
  MutexGuard guard(ctx->uidx_mutex);
  for (unsigned t = 0; t < kUidxTable; ++t) {
    if (ctx->uidx_used[t] == kUidxTable) continue;
    std::atomic<Indexed*>* table = ctx->uidx_tables[t].load(std::memory_order_relaxed);
    if (!table) {
      table = new (std::nothrow) std::atomic<Indexed*>[kUidxTable]();
      if (!table) return -1;
      ctx->uidx_tables[t].store(table, std::memory_order_release);
    }
    for (unsigned i = 0; i < kUidxTable; ++i) {
      if (table[i].load(std::memory_order_relaxed)) continue;
      index->uidx = (t << kUidxShift) | i;
      table[i].store(index, std::memory_order_release);
      ++ctx->uidx_used[t];
      return static_cast<int>(index->uidx);
    }
  }
  return -1;
}

// Tables stay until the context goes: another thread may be looking at one.
void clear_uidx(Context* ctx, std::uint32_t uidx) {
  MutexGuard guard(ctx->uidx_mutex);
  unsigned t = uidx >> kUidxShift;
  ctx->uidx_tables[t].load(std::memory_order_relaxed)[uidx & (kUidxTable - 1)].store(nullptr, std::memory_order_release);
  --ctx->uidx_used[t];
}

}  // namespace uhca::mlx5

// SPDX-License-Identifier: MIT
#include "kernel/sys/uar_map.h"

#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <new>

#include "base/inside.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/raw.h"

namespace uhca::sys {
namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr unsigned kSlots = 8192;  // power of two; open addressing, removed entries keep their place (kGone)
constexpr std::uintptr_t kFree = 0, kGone = 1;

struct Entry {
  std::atomic<std::uintptr_t> va{kFree};
  std::atomic<std::uint64_t> bar{0};
  std::uint32_t uar_index = 0;  // under the lock, as the rest
  bool watched = false;
  CmdFile* file = nullptr;
};

constinit Entry table[kSlots]{};
constinit std::mutex lock;
constinit std::atomic<unsigned> used{0};

unsigned slot_of(std::uintptr_t page) {
  return static_cast<unsigned>((page >> 12) * 0x9e3779b97f4a7c15u >> 40) & (kSlots - 1);
}

Entry* find_entry(std::uintptr_t page) {
  for (unsigned i = slot_of(page), n = 0; n < kSlots; i = (i + 1) & (kSlots - 1), ++n) {
    std::uintptr_t v = table[i].va.load(std::memory_order_acquire);
    if (v == page) return &table[i];
    if (v == kFree) return nullptr;
  }
  return nullptr;
}

// Under the lock. Several mappings may show one page: it is watched while any of them wants it.
void set_watch(Entry& e, bool on) {
  if (e.watched == on || e.uar_index == 0) return;
  e.watched = on;
  for (auto& other : table)
    if (&other != &e && other.watched && other.uar_index == e.uar_index && other.va.load() > kGone) return;
  if (Instance* i = instance()) i->device->watch_uar(e.uar_index, on);
}

}  // namespace

void uar_map_add(std::uintptr_t va, std::size_t length, std::uint64_t bar_offset, std::uint32_t uar_index, CmdFile* file) {
  inside::Guard guard;
  std::lock_guard l(lock);
  for (std::size_t at = 0; at < length; at += kPage) {
    for (auto& page : file->doorbell_pages) {
      if (page.load() == 0) page.store(bar_offset + at + 1, std::memory_order_release);
      if (page.load() == bar_offset + at + 1) break;
    }
    for (unsigned i = slot_of(va + at), n = 0; n < kSlots; i = (i + 1) & (kSlots - 1), ++n) {
      std::uintptr_t v = table[i].va.load();
      if (v > kGone && v != va + at) continue;
      if (v == va + at) set_watch(table[i], false);
      table[i].bar.store(bar_offset + at);
      table[i].uar_index = uar_index + static_cast<std::uint32_t>(at / kPage);
      table[i].watched = false;
      table[i].file = file;
      table[i].va.store(va + at, std::memory_order_release);
      if (v != va + at) used.fetch_add(1);
      set_watch(table[i], !file->attached.load());
      break;
    }
  }
}

void uar_map_remove(std::uintptr_t va, std::size_t length) {
  if (used.load(std::memory_order_relaxed) == 0) return;
  inside::Guard guard;
  std::lock_guard l(lock);
  auto drop = [](Entry& e) {
    set_watch(e, false);
    e.va.store(kGone, std::memory_order_release);
    used.fetch_sub(1);
  };
  if (length <= 64 * kPage) {
    for (std::uintptr_t page = va & ~(kPage - 1); page < va + length; page += kPage)
      if (Entry* e = find_entry(page)) drop(*e);
    return;
  }
  for (auto& e : table) {
    std::uintptr_t v = e.va.load();
    if (v > kGone && v >= va && v - va < length) drop(e);
  }
}

void uar_map_forget_file(CmdFile* file) {
  std::lock_guard l(lock);
  for (auto& e : table) {
    if (e.va.load() <= kGone || e.file != file) continue;
    set_watch(e, false);
    e.va.store(kGone, std::memory_order_release);
    e.file = nullptr;
    used.fetch_sub(1);
  }
}

void uar_map_watch(CmdFile* file, bool on) {
  std::lock_guard l(lock);
  for (auto& e : table)
    if (e.va.load() > kGone && e.file == file) set_watch(e, on);
}

void uar_map_watch_page(std::uintptr_t va, bool on) {
  inside::Guard guard;
  std::lock_guard l(lock);
  if (Entry* e = find_entry(va & ~(kPage - 1))) set_watch(*e, on);
}

std::int64_t uar_map_find(std::uintptr_t va) {
  Entry* e = find_entry(va & ~(kPage - 1));
  if (!e) return -1;
  return static_cast<std::int64_t>(e->bar.load(std::memory_order_relaxed) + (va & (kPage - 1)));
}

void uar_map_wipe() {
  new (&lock) std::mutex;
  for (auto& e : table) {
    std::uintptr_t v = e.va.load();
    if (v > kGone) raw::call(SYS_mmap, static_cast<long>(v), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    e.va.store(kFree);
    e.watched = false;
    e.file = nullptr;
  }
  used.store(0);
}

}  // namespace uhca::sys

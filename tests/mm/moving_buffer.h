// SPDX-License-Identifier: MIT
// A dma-buf of which everything can be watched and moved: what a driver of memory that migrates (a GPU's) does, in a few lines.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "kernel/mm/dma_buf.h"

namespace uhca::kernel::mm {

class MovingExporter final : public DmaBufExporter {
 public:
  struct Seen {
    int attached = 0, pinned = 0, mapped = 0, released = 0;
    std::vector<std::string> calls;
    int times(std::string_view call) const {
      int n = 0;
      for (auto& c : calls) n += c == call;
      return n;
    }
  };
  MovingExporter(std::size_t size, Seen& seen, bool can_pin) : size_(size), can_pin_(can_pin), seen_(seen) { memory_ = fresh(); }
  ~MovingExporter() override {
    for (auto* p : old_) ::munmap(p, size_);
    ::munmap(memory_, size_);
    ++seen_.released;
  }
  Status attach(DmaBufAttachment& a) override {
    if (refuse_attach) return refuse(refuse_attach, "test: attach");
    ++seen_.attached;
    seen_.calls.push_back(a.peer2peer ? "attach p2p" : "attach");
    return success();
  }
  void detach(DmaBufAttachment&) override { --seen_.attached, seen_.calls.push_back("detach"); }
  bool has_pin() const override { return can_pin_; }
  Status pin(DmaBufAttachment&) override {
    if (refuse_pin) return refuse(refuse_pin, "test: pin");
    ++seen_.pinned;
    seen_.calls.push_back("pin");
    return success();
  }
  void unpin(DmaBufAttachment&) override { --seen_.pinned, seen_.calls.push_back("unpin"); }
  Result<std::unique_ptr<SgTable>> map(DmaBufAttachment&) override {
    if (refuse_map) return refuse(refuse_map, "test: map");
    ++seen_.mapped;
    seen_.calls.push_back("map");
    auto t = std::make_unique<SgTable>();
    // In pieces of three pages: no importer may take them for one.
    for (std::size_t at = 0; at < size_; at += kPiece) t->entries.push_back({memory_ + at, std::min(kPiece, size_ - at)});
    return t;
  }
  void unmap(DmaBufAttachment&, std::unique_ptr<SgTable>) override { --seen_.mapped, seen_.calls.push_back("unmap"); }

  // With resv held: what the device sees from now on lies elsewhere; what lay there is overwritten, so that whoever still reads it shows.
  void move(DmaBuf& buf) {
    buf.invalidate_mappings();
    std::byte* to = fresh();
    std::memcpy(to, memory_, size_);
    std::memset(memory_, 0xdd, size_);
    old_.push_back(memory_);
    memory_ = to;
  }
  std::byte* memory() { return memory_; }
  std::byte* before() { return old_.back(); }
  int refuse_attach = 0, refuse_pin = 0, refuse_map = 0;

 private:
  static constexpr std::size_t kPiece = 3 * 4096;
  std::byte* fresh() { return static_cast<std::byte*>(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); }
  const std::size_t size_;
  const bool can_pin_;
  Seen& seen_;
  std::byte* memory_;
  std::vector<std::byte*> old_;
};

// A buffer, its exporter and its descriptor; the descriptor goes with this.
struct MovingBuffer {
  explicit MovingBuffer(std::size_t size, bool can_pin = true) {
    auto e = std::make_unique<MovingExporter>(size, seen, can_pin);
    exporter = e.get();
    buf = DmaBuf::make(std::move(e), size, "moving");
    fd = *dma_buf_fd(buf);
  }
  ~MovingBuffer() { close(); }
  void close() {
    buf.reset();
    if (fd >= 0) ::close(fd);
    fd = -1;
    dma_buf_reap();
  }
  void move() {
    std::lock_guard g(buf->resv());
    exporter->move(*buf);
  }
  MovingExporter::Seen seen;  // outlives the exporter
  MovingExporter* exporter = nullptr;
  std::shared_ptr<DmaBuf> buf;
  int fd = -1;
};

}  // namespace uhca::kernel::mm

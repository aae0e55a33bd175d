// SPDX-License-Identifier: MIT
#include "device/pci/write_combiner.h"

namespace uhca::pci {

void WriteCombiner::store(std::uint64_t offset, std::uint64_t value, Nanos now) {
  const std::uint64_t page = offset / 4096;
  if (held_ != 0 && offset == line_ + held_ * 8) {
    words_[held_++] = value;
    deadline_ = now + patience_;
    if (held_ < words_.size()) return;
    held_ = 0;
    device_.mmio_write_line(line_, words_);
    return;
  }
  if (held_ != 0) {
    combining_.erase(line_ / 4096);  // what began there was no copy
    flush();
  }
  if (offset == next_) combining_.insert(page);
  const bool first = offset % kLine == 0;
  next_ = first ? offset + 8 : kNowhere;
  if (first && combining_.count(page) != 0) {
    line_ = offset;
    words_[0] = value;
    held_ = 1;
    deadline_ = now + patience_;
    return;
  }
  device_.mmio_write(offset, value, 8);
}

void WriteCombiner::flush() {
  next_ = kNowhere;
  const unsigned n = held_;
  held_ = 0;
  for (unsigned i = 0; i < n; ++i) device_.mmio_write(line_ + i * 8, words_[i], 8);
}

void WriteCombiner::flush_late(Nanos now) {
  if (held_ == 0 || now < deadline_) return;
  combining_.erase(line_ / 4096);
  flush();
}

void WriteCombiner::reset() {
  held_ = 0;
  next_ = kNowhere;
  combining_.clear();
}

}  // namespace uhca::pci

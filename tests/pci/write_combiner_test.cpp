// SPDX-License-Identifier: MIT
// Eight stores become one write where they belong together, and stay doorbells where they do not.
#include "device/pci/write_combiner.h"

#include <gtest/gtest.h>

#include <vector>

using namespace uhca;
using namespace uhca::pci;

namespace {

class Recorder final : public Function {
 public:
  struct Write {
    std::uint64_t offset;
    std::vector<std::uint64_t> words;
    bool operator==(const Write&) const = default;
  };
  std::size_t bar0_size() const override { return 1 << 20; }
  std::uint64_t mmio_read(std::uint64_t, unsigned) override { return 0; }
  void mmio_write(std::uint64_t offset, std::uint64_t value, unsigned) override { writes.push_back({offset, {value}}); }
  void mmio_write_line(std::uint64_t offset, const std::array<std::uint64_t, 8>& w) override {
    writes.push_back({offset, {w.begin(), w.end()}});
  }
  void reset() override {}
  std::vector<Write> take() { return std::move(writes); }
  std::vector<Write> writes;
};
using Writes = std::vector<Recorder::Write>;

class WriteCombining : public ::testing::Test {
 protected:
  void copy(std::uint64_t at, unsigned words = 8) {
    for (unsigned i = 0; i < words; ++i) c.store(at + i * 8, 100 + i, now);
  }
  static Recorder::Write line(std::uint64_t at) { return {at, {100, 101, 102, 103, 104, 105, 106, 107}}; }
  Recorder device;
  WriteCombiner c{device, WriteCombiner::kPatience};
  Nanos now = 1;
};

TEST_F(WriteCombining, LearnsFromTheFirstCopy) {
  copy(0x10800);
  EXPECT_EQ(device.take().size(), 8u) << "each by itself: it might have been a doorbell";
  copy(0x10900);
  copy(0x10800);
  EXPECT_EQ(device.take(), (Writes{line(0x10900), line(0x10800)}));
  EXPECT_EQ(c.deadline(), kNever);
  copy(0x20800, 1);
  EXPECT_EQ(device.take(), (Writes{{0x20800, {100}}})) << "another page";
}

TEST_F(WriteCombining, DoorbellsAreNotHeldBack) {
  for (int i = 0; i < 3; ++i) {
    c.store(0x10800, 7, now);
    EXPECT_EQ(device.take(), (Writes{{0x10800, {7}}}));
    c.store(0x10900, 8, now);
    EXPECT_EQ(device.take(), (Writes{{0x10900, {8}}}));
    EXPECT_EQ(c.deadline(), kNever);
  }
}

TEST_F(WriteCombining, ADoorbellAmongCopiesWaitsOnce) {
  copy(0x10800);
  device.take();
  c.store(0x10800, 7, now);
  EXPECT_TRUE(device.take().empty());
  ASSERT_EQ(c.deadline(), now + WriteCombiner::kPatience);
  c.flush_late(now + WriteCombiner::kPatience - 1);
  EXPECT_TRUE(device.take().empty());
  c.flush_late(now + WriteCombiner::kPatience);
  EXPECT_EQ(device.take(), (Writes{{0x10800, {7}}}));
  EXPECT_EQ(c.deadline(), kNever);
  c.store(0x10800, 8, now);
  EXPECT_EQ(device.take(), (Writes{{0x10800, {8}}})) << "not a second time";
}

TEST_F(WriteCombining, NothingOvertakesAndNothingIsLost) {
  copy(0x10800);
  device.take();
  copy(0x10800, 3);
  EXPECT_TRUE(device.take().empty());
  c.flush();  // an access of another kind
  EXPECT_EQ(device.take(), (Writes{{0x10800, {100}}, {0x10808, {101}}, {0x10810, {102}}}));
  copy(0x10800, 2);
  c.store(0x20020, 9, now);  // in the midst of it
  EXPECT_EQ(device.take(), (Writes{{0x10800, {100}}, {0x10808, {101}}, {0x20020, {9}}}));
  c.store(0x10810, 102, now);  // the rest of what was taken apart
  EXPECT_EQ(device.take(), (Writes{{0x10810, {102}}}));
  // After all of that the next copy has to show itself again.
  copy(0x10800);
  EXPECT_EQ(device.take().size(), 8u);
  copy(0x10800);
  EXPECT_EQ(device.take(), (Writes{line(0x10800)}));
  copy(0x10800, 2);
  c.reset();
  EXPECT_EQ(c.deadline(), kNever);
  EXPECT_TRUE(device.take().empty());
}

}  // namespace

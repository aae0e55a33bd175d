// SPDX-License-Identifier: MIT
// Every message of the protocol, right and wrong. A wrong one gets an error reply or ends the connection; the next client is served.
#include <sys/resource.h>

#include <random>

#include "pci/vfio_user_client.h"

using namespace uhca;
using namespace uhca::pci;
using namespace uhca::pci::vfio_user;
using namespace uhca::pci::vfio_user::test;

namespace {

constexpr std::uint32_t kErr = kIrqDataNone | kIrqActionTrigger;

DmaMap map_of(std::uint64_t address, std::uint64_t size, std::uint64_t offset = 0, std::uint32_t flags = kDmaReadable | kDmaWritable) {
  return {sizeof(DmaMap), flags, offset, address, size};
}
DmaUnmap unmap_of(std::uint64_t address, std::uint64_t size, std::uint32_t flags = 0) {
  return {sizeof(DmaUnmap), flags, address, size};
}
SetIrqs irqs_of(std::uint32_t flags, std::uint32_t start, std::uint32_t count, std::uint32_t index = kIrqMsix) {
  return {sizeof(SetIrqs), flags, index, start, count};
}

struct Irq {
  Irq() : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Irq() { close(fd); }
  // Interrupts since the last look.
  std::uint64_t count() {
    std::uint64_t n = 0;
    return read(fd, &n, sizeof n) == 8 ? n : 0;
  }
  int fd;
};

TEST(VfioUser, NegotiatesAndDescribesItself) {
  Rig rig;
  Client c(rig, false);
  Client::Reply v = c.version();
  EXPECT_EQ(v.error, 0u);
  EXPECT_EQ(v.as<Version>().major, kMajor);
  std::string caps(v.payload.begin() + sizeof(Version), v.payload.end());
  EXPECT_NE(caps.find("\"max_msg_fds\":16"), std::string::npos) << caps;
  EXPECT_EQ(caps.back(), '\0');

  auto info = c.call(Command::kGetInfo, DeviceInfo{sizeof(DeviceInfo), 0, 0, 0}).as<DeviceInfo>();
  EXPECT_EQ(info.flags, kDeviceReset | kDevicePci);
  EXPECT_EQ(info.num_regions, 9u);
  EXPECT_EQ(info.num_irqs, 5u);
  for (std::uint32_t i = 0; i < kRegions; ++i) {
    auto region = c.call(Command::kGetRegionInfo, RegionInfo{sizeof(RegionInfo), 0, i, 0, 0, 0}).as<RegionInfo>();
    EXPECT_EQ(region.index, i);
    EXPECT_EQ(region.size, i == 0 ? RecordingEngine::kBar : i == 7 ? 4096u : 0u) << i;
    EXPECT_EQ(region.flags, region.size != 0 ? kRegionReadable | kRegionWritable : 0u);
  }
  for (std::uint32_t i = 0; i < kIrqs; ++i) {
    auto irq = c.call(Command::kGetIrqInfo, IrqInfo{sizeof(IrqInfo), 0, i, 0}).as<IrqInfo>();
    EXPECT_EQ(irq.count, i == kIrqMsix ? 64u : 0u) << i;
  }
  EXPECT_EQ(c.call(Command::kGetRegionInfo, RegionInfo{sizeof(RegionInfo), 0, 9, 0, 0, 0}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kGetIrqInfo, IrqInfo{sizeof(IrqInfo), 0, 5, 0}).error, static_cast<unsigned>(EINVAL));
}

TEST(VfioUser, ConfigSpaceOfAConnectX) {
  Rig rig;
  Client c(rig);
  EXPECT_EQ(c.read<std::uint32_t>(kRegionConfig, 0), 0x101d15b3u);
  EXPECT_EQ(c.read<std::uint32_t>(kRegionConfig, 8) >> 8, 0x020000u);
  // Sizing.
  c.write<std::uint32_t>(kRegionConfig, 0x10, 0xffffffff);
  c.write<std::uint32_t>(kRegionConfig, 0x14, 0xffffffff);
  EXPECT_EQ(c.read<std::uint64_t>(kRegionConfig, 0x10), ~std::uint64_t{RecordingEngine::kBar - 1} | 0xc);
  // The list of capabilities: each once, and it ends.
  std::vector<std::uint8_t> ids;
  for (auto at = c.read<std::uint8_t>(kRegionConfig, 0x34); at != 0; at = c.read<std::uint8_t>(kRegionConfig, at + 1u)) {
    ids.push_back(c.read<std::uint8_t>(kRegionConfig, at));
    ASSERT_LE(ids.size(), 8u);
  }
  EXPECT_EQ(ids, (std::vector<std::uint8_t>{0x10, 0x11, 0x01}));
  EXPECT_TRUE(c.read<std::uint32_t>(kRegionConfig, 0x64) >> 28 & 1) << "FLR";
  EXPECT_EQ(c.read<std::uint16_t>(kRegionConfig, 0x9e) & 0x7ff, 63);
  EXPECT_EQ(c.read<std::uint32_t>(kRegionConfig, 0xa0), kMsixTable);
  EXPECT_EQ(c.read<std::uint32_t>(kRegionConfig, 0xa4), kMsixPba);
  // Read-only fields stay.
  c.write<std::uint32_t>(kRegionConfig, 0, 0);
  EXPECT_EQ(c.read<std::uint32_t>(kRegionConfig, 0), 0x101d15b3u);
  c.write<std::uint16_t>(kRegionConfig, 4, 6);
  EXPECT_EQ(c.read<std::uint16_t>(kRegionConfig, 4), 6);
  std::uint8_t all[4096];
  EXPECT_EQ(c.write(kRegionConfig, 0, all, sizeof all).error, 0u);
}

TEST(VfioUser, EveryResetResets) {
  Rig rig;
  int before = rig.engine.resets;
  {
    Client c(rig);
    c.write<std::uint16_t>(kRegionConfig, 4, 6);
    EXPECT_EQ(c.call(Command::kReset).error, 0u);
    EXPECT_EQ(rig.engine.resets, before + 1);
    EXPECT_EQ(c.read<std::uint16_t>(kRegionConfig, 4), 0);
    auto control = c.read<std::uint16_t>(kRegionConfig, 0x68);
    EXPECT_EQ(c.write<std::uint16_t>(kRegionConfig, 0x68, control | 0x8000).error, 0u);
    EXPECT_EQ(rig.engine.resets, before + 2);
    EXPECT_EQ(c.read<std::uint16_t>(kRegionConfig, 0x68), control) << "FLR reads as 0";
  }
  Client next(rig);  // served when the one before is gone
  EXPECT_EQ(rig.engine.resets, before + 3);
}

TEST(VfioUser, BarAccessesReachTheDeviceInTheirSize) {
  Rig rig;
  Client c(rig);
  c.write<std::uint64_t>(0, 0x10800, 0x1122334455667788);
  c.write<std::uint32_t>(0, 0x14, 0xabcdef01);
  EXPECT_EQ(rig.engine.take_writes(), (std::vector<RecordingEngine::Write>{{0x10800, 0x1122334455667788, 8}, {0x14, 0xabcdef01, 4}}));
  std::uint8_t copy[24] = {1, 2, 3};  // a write-combined copy, not aligned to its size
  EXPECT_EQ(c.write(0, 0x10804, copy, 24).error, 0u);
  auto w = rig.engine.take_writes();
  ASSERT_EQ(w.size(), 4u);
  EXPECT_EQ(w[0], (RecordingEngine::Write{0x10804, 0x030201, 4}));
  EXPECT_EQ(w[1].size, 8u);
  EXPECT_EQ(w[3], (RecordingEngine::Write{0x10818, 0, 4}));
  EXPECT_EQ(c.read<std::uint16_t>(0, 0x10), 0x1010);
  // Outside, too long, no such region.
  EXPECT_EQ(c.write<std::uint32_t>(0, RecordingEngine::kBar - 2, 0).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.write<std::uint32_t>(0, ~0ull, 0).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.write<std::uint32_t>(1, 0, 0).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kRegionRead, RegionAccess{0, 0, kMaxTransfer + 1}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kRegionRead, RegionAccess{4095, kRegionConfig, 2}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kRegionWrite, RegionAccess{0x20000, 0, 8}).error, static_cast<unsigned>(EINVAL)) << "without its data";
  EXPECT_TRUE(rig.engine.take_writes().empty());
}

TEST(VfioUser, PostedAndCombinedWrites) {
  Rig rig;
  Client c(rig);
  std::uint8_t body[sizeof(RegionAccess) + 8];
  RegionAccess a{0x10800, 0, 8};
  std::memcpy(body, &a, sizeof a);
  std::memset(body + sizeof a, 7, 8);
  auto m = c.message(static_cast<std::uint16_t>(Command::kRegionWrite), body, sizeof body, kFlagNoReply);
  ASSERT_TRUE(c.send_raw(m.data(), m.size()));
  struct {
    WriteMulti head{2};
    WriteOne one[2] = {{0x10808, 0, 8, {1}}, {0x10820, 0, 4, {2}}};
  } multi;
  EXPECT_EQ(c.call(Command::kRegionWriteMulti, multi).as<WriteMulti>().count, 2u) << "the reply to it is the first reply";
  EXPECT_EQ(rig.engine.take_writes(),
            (std::vector<RecordingEngine::Write>{{0x10800, 0x0707070707070707, 8}, {0x10808, 1, 8}, {0x10820, 2, 4}}));
  multi.one[1].count = 9;
  EXPECT_EQ(c.call(Command::kRegionWriteMulti, multi).error, static_cast<unsigned>(EINVAL));
  multi.head.count = 201;
  EXPECT_EQ(c.call(Command::kRegionWriteMulti, multi).error, static_cast<unsigned>(EINVAL));
  multi.head.count = 3;
  EXPECT_EQ(c.call(Command::kRegionWriteMulti, multi).error, static_cast<unsigned>(EINVAL));
}

TEST(VfioUser, CopiesThatATrapTookApartAreWholeAgain) {
  Rig rig(Nanos{3600} * 1'000'000'000);
  Client c(rig);
  for (std::uint64_t copy = 0; copy < 2; ++copy)
    for (std::uint64_t i = 0; i < 8; ++i) c.write<std::uint64_t>(0, 0x10800 + i * 8, copy << 8 | i);
  auto w = rig.engine.take_writes();
  ASSERT_EQ(w.size(), 9u);  // the first copy showed what the page is for
  EXPECT_EQ(w[8], (RecordingEngine::Write{0x10800, 1 << 8, 64}));
  // A read does not overtake what was written before it.
  c.write<std::uint64_t>(0, 0x10800, 6);
  EXPECT_TRUE(rig.engine.take_writes().empty());
  c.read<std::uint32_t>(0, 0x10);
  EXPECT_EQ(rig.engine.take_writes(), (std::vector<RecordingEngine::Write>{{0x10800, 6, 8}}));
}

TEST(VfioUser, ADoorbellAmongCopiesArrivesByItself) {
  Rig rig(1);
  Client c(rig);
  for (std::uint64_t i = 0; i < 8; ++i) c.write<std::uint64_t>(0, 0x10800 + i * 8, i);
  EXPECT_EQ(rig.engine.take_writes().size(), 8u);
  c.write<std::uint64_t>(0, 0x10800, 5);
  std::vector<RecordingEngine::Write> w;
  while ((w = rig.engine.take_writes()).empty()) usleep(100);
  EXPECT_EQ(w, (std::vector<RecordingEngine::Write>{{0x10800, 5, 8}}));
}

// More posted writes in one piece than the server looks at in one turn: the read behind them must not wait for a wake-up that the
// socket, already empty, cannot give.
TEST(VfioUser, ManyPostedWritesAtOnce) {
  Rig rig;
  Client c(rig);
  timeval patience{5, 0};
  setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::uint8_t body[sizeof(RegionAccess) + 8] = {};
  RegionAccess a{0x10800, 0, 8};
  std::memcpy(body, &a, sizeof a);
  std::vector<std::uint8_t> all;
  for (unsigned i = 0; i < 500; ++i) {
    auto m = c.message(static_cast<std::uint16_t>(Command::kRegionWrite), body, sizeof body, kFlagNoReply);
    all.insert(all.end(), m.begin(), m.end());
  }
  a.count = 4;
  auto read = c.message(static_cast<std::uint16_t>(Command::kRegionRead), &a, sizeof a);
  all.insert(all.end(), read.begin(), read.end());
  ASSERT_TRUE(c.send_raw(all.data(), all.size()));
  EXPECT_FALSE(c.receive().closed) << "no answer";
  EXPECT_EQ(rig.engine.take_writes().size(), 500u);
}

TEST(VfioUser, DmaReachesWhatIsMapped) {
  Rig rig;
  Client c(rig);
  Memory ram(0x10000);
  auto copy_at = [&](std::uint64_t address) {
    c.write<std::uint64_t>(0, RecordingEngine::kCopy, address);
    return rig.engine.copied();
  };
  EXPECT_FALSE(copy_at(0x100000));
  ASSERT_EQ(c.call(Command::kDmaMap, map_of(0x100000, 0x4000, 0x2000), {ram.fd}).error, 0u);
  ASSERT_EQ(c.call(Command::kDmaMap, map_of(0x104000, 0x1000, 0), {ram.fd}).error, 0u);
  ram.bytes[0x2100] = 41;
  EXPECT_TRUE(copy_at(0x100100));
  EXPECT_EQ(ram.bytes[0x2108], 42);
  EXPECT_TRUE(copy_at(0x103ff8)) << "from one range into its neighbour";
  EXPECT_EQ(ram.bytes[0], 1);
  EXPECT_FALSE(copy_at(0x104ff8));
  // What is not a range, or is there already.
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(0x103000, 0x2000), {ram.fd}).error, static_cast<unsigned>(EEXIST));
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(0xff000, 0x2000), {ram.fd}).error, static_cast<unsigned>(EEXIST));
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(0x200000, 0), {ram.fd}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(0x200010, 0x1000), {ram.fd}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(~0xfffull, 0x2000), {ram.fd}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(0x200000, 0x1000, 0, 8), {ram.fd}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(0x200000, 0x1000), {ram.fd, ram.fd}).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kDmaMap, map_of(0x200000, 0x1000), {rig.stop}).error, static_cast<unsigned>(ENODEV)) << "an eventfd";
  // Read-only, and without a file.
  ASSERT_EQ(c.call(Command::kDmaMap, map_of(0x200000, 0x1000, 0, kDmaReadable), {ram.fd}).error, 0u);
  EXPECT_FALSE(copy_at(0x200000));
  ASSERT_EQ(c.call(Command::kDmaMap, map_of(0x300000, 0x1000)).error, 0u);
  EXPECT_FALSE(copy_at(0x300000));
  // Unmapping: exactly what was mapped.
  EXPECT_EQ(c.call(Command::kDmaUnmap, unmap_of(0x100000, 0x1000)).error, static_cast<unsigned>(ENOENT));
  EXPECT_EQ(c.call(Command::kDmaUnmap, unmap_of(0x100000, 0x4000, kUnmapDirtyBitmap)).error, static_cast<unsigned>(EINVAL));
  auto gone = c.call(Command::kDmaUnmap, unmap_of(0x100000, 0x4000));
  EXPECT_EQ(gone.as<DmaUnmap>().size, 0x4000u);
  EXPECT_FALSE(copy_at(0x100100));
  EXPECT_TRUE(copy_at(0x104000));
  EXPECT_EQ(c.call(Command::kDmaUnmap, unmap_of(0x1000, 0, kUnmapAll)).error, static_cast<unsigned>(EINVAL));
  EXPECT_EQ(c.call(Command::kDmaUnmap, unmap_of(0, 0, kUnmapAll)).error, 0u);
  EXPECT_FALSE(copy_at(0x104000));
}

TEST(VfioUser, MemoryThatVanishesIsAFault) {
  Rig rig;
  Client c(rig);
  Memory ram(0x4000);
  ASSERT_EQ(c.call(Command::kDmaMap, map_of(0, 0x4000), {ram.fd}).error, 0u);
  ASSERT_EQ(c.call(Command::kDmaMap, map_of(0x10000, 0x4000, 0x100000), {ram.fd}).error, 0u) << "beyond the end of the file";
  c.write<std::uint64_t>(0, RecordingEngine::kCopy, std::uint64_t{0x1000});
  EXPECT_TRUE(rig.engine.copied());
  ASSERT_EQ(ftruncate(ram.fd, 0x1000), 0);
  c.write<std::uint64_t>(0, RecordingEngine::kCopy, std::uint64_t{0x1000});
  EXPECT_FALSE(rig.engine.copied());
  c.write<std::uint64_t>(0, RecordingEngine::kCopy, std::uint64_t{0x10000});
  EXPECT_FALSE(rig.engine.copied());
}

TEST(VfioUser, InterruptsMasksAndPendingBits) {
  Rig rig;
  Client c(rig);
  Irq a, b;
  auto raise = [&](std::uint64_t vector) { c.write<std::uint64_t>(0, RecordingEngine::kRaise, vector); };
  auto pending = [&] { return c.read<std::uint64_t>(0, kMsixPba); };
  ASSERT_EQ(c.call(Command::kSetIrqs, irqs_of(kIrqDataEventfd | kIrqActionTrigger, 0, 2), {a.fd, b.fd}).error, 0u);
  raise(0);
  raise(1);
  raise(5);                     // not connected: lost
  raise(99);                    // no such vector
  c.read<std::uint32_t>(0, 0);  // everything before is done
  EXPECT_EQ(a.count(), 1u);
  EXPECT_EQ(b.count(), 1u);
  EXPECT_EQ(pending(), 0u);
  // The client's mask.
  EXPECT_EQ(c.call(Command::kSetIrqs, irqs_of(kIrqDataNone | kIrqActionMask, 1, 1)).error, 0u);
  raise(1);
  raise(1);
  EXPECT_EQ(pending(), 2u);
  EXPECT_EQ(b.count(), 0u);
  EXPECT_EQ(c.call(Command::kSetIrqs, irqs_of(kIrqDataNone | kIrqActionUnmask, 0, 2)).error, 0u);
  EXPECT_EQ(pending(), 0u);
  EXPECT_EQ(b.count(), 1u) << "however often it fired while masked";
  // The table's mask, as a driver without an emulated table sets it.
  c.write<std::uint64_t>(0, kMsixTable + 16, 0xfee00000);
  c.write<std::uint64_t>(0, kMsixTable + 24, std::uint64_t{1} << 32 | 0x41);
  EXPECT_EQ(c.read<std::uint32_t>(0, kMsixTable + 16), 0xfee00000u);
  EXPECT_EQ(c.read<std::uint64_t>(0, kMsixTable + 24), std::uint64_t{1} << 32 | 0x41);
  raise(1);
  EXPECT_EQ(pending(), 2u);
  c.write<std::uint32_t>(0, kMsixTable + 28, 0);
  EXPECT_EQ(pending(), 0u);
  EXPECT_EQ(b.count(), 1u);
  // The function's mask.
  c.write<std::uint16_t>(kRegionConfig, 0x9e, 0xc000);
  raise(0);
  EXPECT_EQ(pending(), 1u);
  EXPECT_EQ(a.count(), 0u);
  c.write<std::uint16_t>(kRegionConfig, 0x9e, 0x8000);
  EXPECT_EQ(pending(), 0u);
  EXPECT_EQ(a.count(), 1u);
  // The client fires by itself.
  struct {
    SetIrqs head = irqs_of(kIrqDataBool | kIrqActionTrigger, 0, 2);
    std::uint8_t fire[2] = {0, 1};
  } bools;
  EXPECT_EQ(c.call_raw(static_cast<std::uint16_t>(Command::kSetIrqs), &bools, sizeof(SetIrqs) + 2).error, 0u);
  c.read<std::uint32_t>(0, 0);
  EXPECT_EQ(a.count(), 0u);
  EXPECT_EQ(b.count(), 1u);
  // Disconnecting: one, then all.
  EXPECT_EQ(c.call(Command::kSetIrqs, irqs_of(kIrqDataEventfd | kIrqActionTrigger, 0, 1)).error, 0u);
  EXPECT_EQ(c.call(Command::kSetIrqs, irqs_of(kIrqDataNone | kIrqActionTrigger, 0, 0)).error, 0u);
  raise(0);
  raise(1);
  c.read<std::uint32_t>(0, 0);
  EXPECT_EQ(a.count() + b.count(), 0u);
}

TEST(VfioUser, InterruptRequestsThatAreWrong) {
  Rig rig;
  Client c(rig);
  Irq a;
  Memory m(4096);
  constexpr auto kInval = static_cast<unsigned>(EINVAL);
  auto set = [&](SetIrqs s, const std::vector<int>& fds = {}) { return c.call(Command::kSetIrqs, s, fds).error; };
  constexpr std::uint32_t kConnect = kIrqDataEventfd | kIrqActionTrigger;
  EXPECT_EQ(set(irqs_of(0, 0, 1)), kInval);
  EXPECT_EQ(set(irqs_of(kIrqDataNone | kIrqDataBool | kIrqActionMask, 0, 1)), kInval);
  EXPECT_EQ(set(irqs_of(kIrqDataNone | kIrqActionMask | kIrqActionUnmask, 0, 1)), kInval);
  EXPECT_EQ(set(irqs_of(kConnect | 0x100, 0, 1), {a.fd}), kInval);
  EXPECT_EQ(set(irqs_of(kConnect, 64, 1), {a.fd}), kInval);
  EXPECT_EQ(set(irqs_of(kConnect, 1, 0xffffffff), {a.fd}), kInval);
  EXPECT_EQ(set(irqs_of(kConnect, 0xffffffff, 2), {a.fd}), kInval);
  EXPECT_EQ(set(irqs_of(kConnect, 0, 2), {a.fd}), kInval);
  EXPECT_EQ(set(irqs_of(kConnect, 0, 1, 0), {a.fd}), kInval) << "no INTx";
  EXPECT_EQ(set(irqs_of(kErr, 0, 0, 5)), kInval);
  EXPECT_EQ(set(irqs_of(kErr, 0, 0, 0)), 0u) << "turning off what is not there";
  EXPECT_EQ(set(irqs_of(kIrqDataEventfd | kIrqActionUnmask, 0, 1), {a.fd}), kInval);
  EXPECT_EQ(set(irqs_of(kIrqDataBool | kIrqActionTrigger, 0, 1)), kInval) << "without its data";
  EXPECT_EQ(set(irqs_of(kConnect, 0, 1), {m.fd}), kInval) << "not an eventfd";
}

TEST(VfioUser, AnEventfdAtItsLimitDoesNotBlockTheDevice) {
  Rig rig;
  Client c(rig);
  int fd = eventfd(0, EFD_CLOEXEC);  // blocking
  ASSERT_EQ(c.call(Command::kSetIrqs, irqs_of(kIrqDataEventfd | kIrqActionTrigger, 3, 1), {fd}).error, 0u);
  std::uint64_t full = 0xfffffffffffffffe;
  ASSERT_EQ(write(fd, &full, sizeof full), 8);
  c.write<std::uint64_t>(0, RecordingEngine::kRaise, std::uint64_t{3});
  EXPECT_EQ(c.read<std::uint32_t>(0, 0), 0u);
  close(fd);
}

TEST(VfioUser, WhatIsNoMessageEndsTheConnection) {
  Rig rig;
  auto ends = [&](const Header& h) {
    Client c(rig);
    EXPECT_TRUE(c.send_raw(&h, sizeof h));
    return c.receive().closed;
  };
  EXPECT_TRUE(ends({1, 4, 0, 0, 0})) << "shorter than its header";
  EXPECT_TRUE(ends({1, 4, 15, 0, 0}));
  EXPECT_TRUE(ends({1, 4, 0xffffffff, 0, 0}));
  EXPECT_TRUE(ends({1, 4, 16, kTypeReply, 0})) << "a reply to nothing";
  EXPECT_TRUE(ends({1, 4, 16, 7, 0}));
  Client c(rig);
  std::vector<int> fds(kMaxFds + 1, rig.stop);
  Header h{1, 4, 16, 0, 0};
  EXPECT_TRUE(c.send_raw(&h, sizeof h, fds));
  EXPECT_TRUE(c.receive().closed) << "more descriptors than announced";
}

TEST(VfioUser, FirstThingsFirst) {
  Rig rig;
  {
    Client c(rig, false);
    EXPECT_EQ(c.call(Command::kGetInfo, DeviceInfo{}).error, static_cast<unsigned>(EINVAL));
    EXPECT_TRUE(c.receive().closed);
  }
  {
    Client c(rig, false);
    EXPECT_EQ(c.version(1).error, static_cast<unsigned>(EINVAL));
    EXPECT_TRUE(c.receive().closed);
  }
  {
    Client c(rig, false);
    struct {
      Version v{0, 0};
      char text[4] = {'{', '}', '}', '}'};
    } endless;
    EXPECT_EQ(c.call(Command::kVersion, endless).error, static_cast<unsigned>(EINVAL));
  }
  Client c(rig);
  EXPECT_EQ(c.version().error, static_cast<unsigned>(EINVAL)) << "twice";
}

TEST(VfioUser, CommandsThatAreNotOffered) {
  Rig rig;
  Client c(rig);
  for (std::uint16_t command : {0, 6, 11, 12, 14, 16, 17, 18, 99, 0xffff})
    EXPECT_EQ(c.call_raw(command, nullptr, 0).error, static_cast<unsigned>(ENOTSUP)) << command;
  for (std::uint16_t command : {2, 3, 4, 5, 7, 8, 9, 10, 15})
    EXPECT_EQ(c.call_raw(command, "abc", 3).error, static_cast<unsigned>(EINVAL)) << command;
}

TEST(VfioUser, ASlowReaderStallsOnlyItself) {
  Rig rig;
  {
    Client c(rig);
    // Far more answers than the socket holds, none of them read.
    auto m = c.message(static_cast<std::uint16_t>(Command::kRegionRead), nullptr, 0);
    RegionAccess a{0x20000, 0, kMaxTransfer};
    auto request = c.message(static_cast<std::uint16_t>(Command::kRegionRead), &a, sizeof a);
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(c.send_raw(request.data(), request.size()));
    for (int i = 0; i < 64; ++i) {
      Client::Reply r = c.receive();
      ASSERT_FALSE(r.closed);
      ASSERT_EQ(r.payload.size(), sizeof a + kMaxTransfer);
    }
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(c.send_raw(request.data(), request.size()));
  }
  Client next(rig);  // the one before left without reading
  EXPECT_EQ(next.read<std::uint16_t>(kRegionConfig, 0), 0x15b3);
}

TEST(VfioUser, MessagesInPiecesAndInOneGo) {
  Rig rig;
  Client c(rig);
  Memory ram(0x2000);
  DmaMap map = map_of(0, 0x1000);
  auto first = c.message(static_cast<std::uint16_t>(Command::kDmaMap), &map, sizeof map);
  // The descriptor comes with the first byte, the rest one by one.
  ASSERT_TRUE(c.send_raw(first.data(), 1, {ram.fd}));
  for (std::size_t i = 1; i < first.size(); ++i) ASSERT_TRUE(c.send_raw(first.data() + i, 1));
  EXPECT_EQ(c.receive().error, 0u);
  c.write<std::uint64_t>(0, RecordingEngine::kCopy, std::uint64_t{0});
  EXPECT_TRUE(rig.engine.copied());
  // Three messages in one write.
  std::vector<std::uint8_t> all;
  for (int i = 0; i < 3; ++i) {
    DeviceInfo info{};
    auto m = c.message(static_cast<std::uint16_t>(Command::kGetInfo), &info, sizeof info);
    all.insert(all.end(), m.begin(), m.end());
  }
  ASSERT_TRUE(c.send_raw(all.data(), all.size()));
  for (int i = 2; i >= 0; --i) EXPECT_EQ(c.receive().header.id, c.id - i);
}

TEST(VfioUser, TheSocketOfADeadServerIsReplacedAndALiveOneIsNot) {
  std::string path;
  {
    Rig rig;
    path = rig.path;
    GuestBus bus;
    RecordingEngine engine(bus);
    NoPort port;
    Device device({1, 2}, bus, engine);
    Server second(device, engine, port);
    EXPECT_EQ(second.listen(path).code(), EADDRINUSE);
    EXPECT_EQ(Server(device, engine, port).listen(std::string(200, 'x')).code(), ENAMETOOLONG);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "removed at the end";
  sockaddr_un sa{};
  sa.sun_family = AF_UNIX;
  std::strcpy(sa.sun_path, path.c_str());
  int dead = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&sa), sizeof sa), 0);
  close(dead);
  Rig rig;
  Client c(rig);
  EXPECT_EQ(c.read<std::uint16_t>(kRegionConfig, 0), 0x15b3);
}

// Without descriptors the waiting client keeps the socket readable: the server must neither spin nor forget it.
TEST(VfioUser, AClientIsAcceptedWhenDescriptorsAreThereAgain) {
  Rig rig;
  Client c(rig, false, false);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const unsigned start = rig.port.turns;
  c.dial(rig);
  while (rig.port.turns < start + 2) std::this_thread::yield();  // it has looked, failed, and looked again
  const unsigned failing = rig.port.turns;
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  EXPECT_LT(rig.port.turns - failing, 50u);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(c.version().error, 0u);
  EXPECT_EQ(c.read<std::uint16_t>(kRegionConfig, 0), 0x15b3);
}

// Messages that are nearly right: the server must answer or hang up, and be there for the next client.
TEST(VfioUser, Fuzz) {
  Rig rig;
  const char* text = std::getenv("UHCA_FUZZ_SECONDS");
  double seconds = text != nullptr ? std::atof(text) : 3;
  const char* seed_text = std::getenv("UHCA_FUZZ_SEED");
  unsigned seed = seed_text != nullptr ? static_cast<unsigned>(std::atoi(seed_text)) : std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("UHCA_FUZZ_SEED=" + std::to_string(seed));
  std::mt19937 rng(seed);
  auto pick = [&](std::uint32_t n) { return static_cast<std::uint32_t>(rng() % n); };
  Memory ram(0x10000);
  Irq irq;
  const std::uint32_t sizes[] = {0, 12, 16, 20, 24, 32, 32, 40, 64, 300};
  const std::uint64_t words[] = {0,
                                 1,
                                 2,
                                 4,
                                 7,
                                 8,
                                 16,
                                 0x1000,
                                 0x2000,
                                 0x3000,
                                 0x8000,
                                 0x10000,
                                 0xfffff,
                                 0x100000,
                                 0x7fffffff,
                                 0xffffffff,
                                 0x7fffffffffffffff,
                                 0xfffffffffffff000,
                                 ~0ull};
  std::uint64_t messages = 0, clients = 0, closed = 0;
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    ++clients;
    Client c(rig, pick(20) != 0);
    timeval patience{5, 0};
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (int i = 0; i < 200; ++i) {
      std::vector<std::uint8_t> body(sizes[pick(10)]);
      for (std::size_t at = 0; at + 4 <= body.size(); at += 4) {
        auto w = static_cast<std::uint32_t>(pick(4) == 0 ? rng() : words[pick(19)] >> (pick(2) * 32));
        std::memcpy(body.data() + at, &w, 4);
      }
      auto command = static_cast<std::uint16_t>(pick(30) == 0 ? rng() : pick(19));
      auto m = c.message(command, body.data(), body.size(), pick(50) == 0 ? static_cast<std::uint32_t>(rng()) : 0);
      if (pick(200) == 0) {
        auto size = static_cast<std::uint32_t>(words[pick(19)]);
        std::memcpy(m.data() + 4, &size, 4);
      }
      std::vector<int> fds;
      for (std::uint32_t n = pick(4) == 0 ? pick(3) : 0; n > 0; --n) fds.push_back(pick(2) ? ram.fd : irq.fd);
      Header h;
      std::memcpy(&h, m.data(), sizeof h);
      bool sent = c.send_raw(m.data(), m.size(), fds);
      ++messages;
      if (!sent) {
        ++closed;
        break;
      }
      if (h.size != m.size()) break;  // either side would wait for the other
      if ((h.flags & kFlagNoReply) != 0) continue;
      if (c.receive().closed) {
        ++closed;
        break;
      }
    }
  }
  Client c(rig);
  EXPECT_EQ(c.read<std::uint16_t>(kRegionConfig, 0), 0x15b3);
  EXPECT_GT(messages, 1000u);
  std::printf("%lu messages, %lu clients, %lu hang-ups\n", static_cast<unsigned long>(messages), static_cast<unsigned long>(clients),
              static_cast<unsigned long>(closed));
}

}  // namespace

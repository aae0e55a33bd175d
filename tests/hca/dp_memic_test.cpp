// SPDX-License-Identifier: MIT
// Device memory: commands, keys that lie in it, traffic with it, and addresses whose accesses are operations.
#include "device/hca/memic.h"
#include "hca/dp_harness.h"
#include "prm/hca_cap.h"
#include "prm/memic.h"
#include "prm/other_caps.h"

namespace uhca::hcatest {
namespace {

using Op = prm::Opcode;
using S = prm::CmdStatus;
using hca::Hca;
using prm::WqeOpcode;
using Syndromes = std::vector<unsigned>;

constexpr std::uint64_t kWindow = Hca::kMemicStart, kPage = 4096;

class DpMemic : public DpTest {
 protected:
  std::size_t live = 0;
  void SetUp() override {
    DpTest::SetUp();
    live = bench.hca.live_objects();
  }

  static Request<prm::alloc_memic_in> alloc_request(std::uint64_t size, std::uint64_t first = kWindow, std::uint64_t range = kPage,
                                                    unsigned align = 0) {
    return Request<prm::alloc_memic_in>(Op::ALLOC_MEMIC)
        .set<prm::alloc_memic_in::range_start_addr>(first)
        .set<prm::alloc_memic_in::range_size>(range)
        .set<prm::alloc_memic_in::memic_size>(size)
        .set<prm::alloc_memic_in::log_memic_addr_alignment>(align);
  }
  std::uint64_t alloc(std::uint64_t size, std::uint64_t first = kWindow, std::uint64_t range = kPage, unsigned align = 0) {
    Reply r = bench.cmd.exec(alloc_request(size, first, range, align));
    EXPECT_TRUE(r.ok());
    return r.get<prm::alloc_memic_out::memic_start_addr>();
  }
  S refused(std::uint64_t size, std::uint64_t first = kWindow, std::uint64_t range = kPage, unsigned align = 0) {
    return bench.cmd.exec(alloc_request(size, first, range, align)).status();
  }
  S dealloc(std::uint64_t start, std::uint64_t size) {
    return bench.cmd
        .exec(Request<prm::dealloc_memic_in>(Op::DEALLOC_MEMIC)
                  .set<prm::dealloc_memic_in::memic_start_addr>(start)
                  .set<prm::dealloc_memic_in::memic_size>(size))
        .status();
  }
  Reply modify(std::uint16_t op_mod, std::uint64_t start, std::uint8_t op) {
    return bench.cmd.exec(Request<prm::modify_memic_in>(Op::MODIFY_MEMIC, op_mod)
                              .set<prm::modify_memic_in::memic_start_addr>(start)
                              .set<prm::modify_memic_in::memic_operation_type>(op),
                          prm::modify_memic_out::kBytes);
  }
  Reply key_reply(std::uint64_t at, std::uint64_t len, Bench::Access acc = {}) {
    Request<prm::create_mkey_in> r(Op::CREATE_MKEY);
    void* c = r.at<prm::create_mkey_in::memory_key_mkey_entry>();
    prm::set<prm::mkc::access_mode_1_0>(c, 1);
    prm::set<prm::mkc::access_mode_4_2>(c, 1);  // 5: MEMIC
    Bench::put_key(c, bench.pd, at, len, acc);
    return bench.cmd.exec(r);
  }
  std::uint32_t key(std::uint64_t at, std::uint64_t len, Bench::Access acc = {}) {
    Reply r = key_reply(at, len, acc);
    EXPECT_TRUE(r.ok());
    return r.get<prm::create_mkey_out::mkey_index>() << 8;
  }
  std::uint8_t* memory(std::uint64_t at, std::uint64_t n) { return bench.hca.objects().memic->memory(at, n); }
};

TEST_F(DpMemic, IsTakenAndGivenBack) {
  std::uint64_t first = alloc(64), second = alloc(128);
  EXPECT_EQ(kWindow, first);
  EXPECT_EQ(kWindow + 64, second);
  std::uint64_t third = alloc(64, kWindow, kPage, 2);
  EXPECT_EQ(0u, third % 256);
  EXPECT_EQ(live + 3, bench.hca.live_objects());
  EXPECT_EQ(S::NO_RES, refused(4096)) << "not in that page any more";
  EXPECT_EQ(kWindow + kPage, alloc(4096, kWindow + kPage));
  EXPECT_EQ(S::BAD_RES, dealloc(first + 64 * 40, 64));
  EXPECT_EQ(S::BAD_PARAM, dealloc(second, 64));
  EXPECT_EQ(S::OK, dealloc(second, 128));
  EXPECT_EQ(S::BAD_RES, dealloc(second, 128));
  EXPECT_EQ(kWindow + 64, alloc(128)) << "the gap is used again";
}

TEST_F(DpMemic, Refusals) {
  EXPECT_EQ(S::BAD_PARAM, refused(0));
  EXPECT_EQ(S::BAD_PARAM, refused(63));
  EXPECT_EQ(S::BAD_PARAM, refused(Hca::kMemicBytes / 8 + 64, kWindow, Hca::kMemicBytes));
  EXPECT_EQ(S::BAD_PARAM, refused(64, kWindow - kPage));
  EXPECT_EQ(S::BAD_PARAM, refused(64, kWindow + Hca::kMemicBytes - kPage, 2 * kPage));
  EXPECT_EQ(S::BAD_PARAM, refused(64, ~std::uint64_t{0} - 100, kPage));
  EXPECT_EQ(S::BAD_PARAM, refused(64, kWindow, kPage, 7)) << "alignment above at page";
  std::uint64_t at = alloc(128);
  EXPECT_EQ(S::BAD_RES, modify(prm::kMemicOpAlloc, at + 64, 0).status());
  EXPECT_EQ(S::BAD_PARAM, modify(prm::kMemicOpAlloc, at, prm::kMemicOperations).status());
  EXPECT_EQ(S::BAD_PARAM, modify(7, at, 0).status());
  EXPECT_EQ(S::BAD_RES_STATE, modify(prm::kMemicOpDealloc, at, 0).status());
  EXPECT_EQ(S::BAD_PARAM, key_reply(at, 129).status());
  EXPECT_EQ(S::BAD_PARAM, key_reply(at - 64, 64).status());
  EXPECT_EQ(S::BAD_PARAM, key_reply(kWindow + kPage, 64).status()) << "not allocated";
  std::uint32_t k = key(at + 64, 64);
  EXPECT_EQ(S::BAD_RES_STATE, dealloc(at, 128)) << "at key lies in it";
  EXPECT_TRUE(bench.simple(Op::DESTROY_MKEY, k >> 8).ok());
  EXPECT_EQ(S::OK, dealloc(at, 128));
}

TEST_F(DpMemic, AUserContextHasNoWayToIt) {
  Reply u = bench.cmd.exec(Request<prm::create_uctx_in>(Op::CREATE_UCTX));
  ASSERT_TRUE(u.ok());
  auto as_user = [&](auto r) {
    prm::set<prm::general_obj_in_cmd_hdr::uid>(r.bytes.data(), u.template get<prm::create_uctx_out::uid>());
    return bench.cmd.exec(r, prm::modify_memic_out::kBytes).status();
  };
  EXPECT_EQ(S::BAD_PARAM, as_user(alloc_request(64)));
  std::uint64_t at = alloc(64);
  EXPECT_EQ(S::BAD_PARAM, as_user(Request<prm::dealloc_memic_in>(Op::DEALLOC_MEMIC).set<prm::dealloc_memic_in::memic_start_addr>(at)));
  EXPECT_EQ(S::BAD_PARAM, as_user(Request<prm::modify_memic_in>(Op::MODIFY_MEMIC).set<prm::modify_memic_in::memic_start_addr>(at)));
}

TEST_F(DpMemic, TrafficGoesThroughIt) {
  connect();
  std::uint64_t near = alloc(4096, kWindow, kPage), far = alloc(4096, kWindow + kPage, kPage);
  std::uint32_t ka = key(near, 4096), kb = key(far + 64, 4096 - 64);
  for (unsigned i = 0; i < 4096; ++i) memory(near, 4096)[i] = static_cast<std::uint8_t>(i * 7);
  Region host = region(8192);

  // Device memory to device memory, at address 0 of each key; then to the host, and back from it.
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {{0, 2000, ka}}, .raddr = 0, .rkey = kb});
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {{96, 4000, ka}}, .raddr = host.va, .rkey = host.key});
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {{32, 1000, ka}}, .raddr = 500, .rkey = kb});
  run();
  EXPECT_EQ(Syndromes({0, 0, 0}), syndromes(sends(a)));
  EXPECT_EQ(0, std::memcmp(memory(far + 64, 500), memory(near, 0) + 0, 32));
  for (unsigned i = 0; i < 4000; ++i) ASSERT_EQ(static_cast<std::uint8_t>((96 + i) * 7), bench.bus.host(host.mem)[i]) << i;
  for (unsigned i = 0; i < 1000; ++i) ASSERT_EQ(static_cast<std::uint8_t>((500 + i) * 7), memory(near + 32, 1000)[i]) << i;

  // A SEND into it, in two scatter entries.
  post_recv(b, {{0, 100, kb}, {1000, 100, kb}});
  post(a, {.op = WqeOpcode::SEND, .sges = {{1500, 200, ka}}});
  run();
  EXPECT_EQ(Syndromes({0}), syndromes(sends(a)));
  auto got = recvs(b);
  ASSERT_EQ(1u, got.size());
  EXPECT_EQ(200u, got[0].byte_cnt);
  EXPECT_EQ(0, std::memcmp(memory(far + 64, 100), memory(near + 1500, 100), 100));
  EXPECT_EQ(0, std::memcmp(memory(far + 64 + 1000, 100), memory(near + 1600, 100), 100));
}

TEST_F(DpMemic, AtomicsOnIt) {
  connect();
  std::uint64_t at = alloc(64);
  std::uint32_t k = key(at, 64);
  Region host = region(64);
  auto* word = reinterpret_cast<std::uint64_t*>(memory(at, 64) + 8);
  *word = 40;
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(host, 8)}, .raddr = 8, .rkey = k, .swap_add = 2});
  run();
  EXPECT_EQ(Syndromes({0}), syndromes(sends(a)));
  EXPECT_EQ(42u, *word);
  post(a, {.op = WqeOpcode::ATOMIC_CS, .sges = {sge(host, 8)}, .raddr = 8, .rkey = k, .swap_add = 7, .compare = 42});
  post(a, {.op = WqeOpcode::ATOMIC_CS, .sges = {sge(host, 8)}, .raddr = 8, .rkey = k, .swap_add = 9, .compare = 42});
  run();
  EXPECT_EQ(Syndromes({0, 0}), syndromes(sends(a)));
  EXPECT_EQ(7u, *word);
}

TEST_F(DpMemic, OutsideOfTheKeyIsRefused) {
  connect();
  std::uint64_t at = alloc(128);
  std::uint32_t k = key(at, 64);
  Region host = region(128);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(host, 64)}, .raddr = 1, .rkey = k});
  run();
  EXPECT_EQ(Syndromes({0x13}), syndromes(sends(a))) << "one byte past its end";
  EXPECT_EQ(0, memory(at, 64)[1]);
}

TEST_F(DpMemic, OperationsByAddress) {
  std::uint64_t at = alloc(4096, kWindow + 3 * kPage);
  Reply inc = modify(prm::kMemicOpAlloc, at, prm::kMemicIncrement);
  ASSERT_TRUE(inc.ok());
  auto add = inc.get<prm::modify_memic_out::memic_operation_addr>();
  auto* m = memory(at, 4096);
  Hca& hca = bench.hca;
  for (unsigned size : {1u, 2u, 4u, 8u}) {
    std::memset(m, 0, 64);
    m[0] = 0xff;
    hca.mmio_write(add, 2, size);
    std::uint64_t v = 0;
    std::memcpy(&v, m, size);
    EXPECT_EQ(size == 1 ? 1u : 0x101u, v) << size;
  }
  EXPECT_EQ(~std::uint64_t{0}, hca.mmio_read(add, 4)) << "nothing is read there";
  const std::uint64_t tas = hca::Memic::operation_address(at, prm::kMemicTestAndSet);
  EXPECT_EQ(~std::uint64_t{0}, hca.mmio_read(tas, 1)) << "not asked for yet";
  ASSERT_TRUE(modify(prm::kMemicOpAlloc, at, prm::kMemicTestAndSet).ok());
  m[5] = 9;
  EXPECT_EQ(9u, hca.mmio_read(tas + 5, 1));
  EXPECT_EQ(0xffu, hca.mmio_read(tas + 5, 1));
  EXPECT_EQ(0xff, m[5]);
  hca.mmio_write(tas + 5, 77, 1);
  EXPECT_EQ(0xff, m[5]) << "a store there is no operation";
  // The memory itself, and what is none.
  hca.mmio_write(at + 8, 0x1122334455667788, 8);
  EXPECT_EQ(0x1122334455667788u, hca.mmio_read(at + 8, 8));
  EXPECT_EQ(0x88u, m[8]);
  EXPECT_EQ(~std::uint64_t{0}, hca.mmio_read(at + 4096, 8));
  EXPECT_EQ(~std::uint64_t{0}, hca.mmio_read(at + 1, 2)) << "crooked";
  ASSERT_TRUE(modify(prm::kMemicOpDealloc, at, prm::kMemicIncrement).ok());
  hca.mmio_write(add, 2, 1);
  EXPECT_EQ(1u, hca.mmio_read(at, 1)) << "no longer an address";
}

TEST_F(DpMemic, AResetForgetsIt) {
  alloc(64);
  bench.hca.reset();
  EXPECT_EQ(0u, bench.hca.live_objects());
}

TEST(DpMemicOff, ADeviceWithoutItSaysSo) {
  auto config = Bench::make_config(0x50);
  config.offer_memic = false;
  FakeBus bus;
  FakePort port;
  VirtualClock clock;
  FakeLease lease(0x1000, 1);
  Hca hca(config, bus, port, clock, lease);
  CommandDriver cmd(hca, bus);
  ASSERT_TRUE(cmd.exec(Request<prm::enable_hca_in>(Op::ENABLE_HCA), 12).ok());
  Reply r = cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, 1), prm::query_hca_cap_out::kBytes);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(0u, prm::get<prm::cmd_hca_cap::device_memory>(r.out.data() + prm::byte_of<prm::query_hca_cap_out::capability>));
}

}  // namespace
}  // namespace uhca::hcatest

// SPDX-License-Identifier: MIT
// The life of objects: created, queried, refused while in use, gone. Numbers are reused last.
#include "device/hca/caps.h"
#include "hca/harness.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/reg.h"

namespace uhca::hcatest {
namespace {

using Op = prm::Opcode;
using S = prm::CmdStatus;

class CmdObject : public ::testing::Test {
 protected:
  Bench bench;
  std::size_t base = 0;
  void SetUp() override {
    bench.bring_up();
    base = bench.hca.live_objects();
  }
  std::uint32_t alloc(Op op) {
    Reply r = bench.cmd.exec(Request<prm::alloc_pd_in>(op));
    EXPECT_TRUE(r.ok());
    return r.get<prm::alloc_pd_out::pd>();
  }
  S gone(Op op, std::uint32_t n) { return bench.simple(op, n).status(); }
};

TEST_F(CmdObject, PdIsHeldByItsKeysAndQps) {
  CqHandle cq = bench.create_cq(4);
  std::uint32_t key = bench.create_mkey(0x10000, 100, bench.bus.alloc(4096));
  EXPECT_EQ(gone(Op::DEALLOC_PD, bench.pd), S::BAD_RES_STATE);
  EXPECT_EQ(gone(Op::DESTROY_MKEY, key >> 8), S::OK);
  QpHandle qp = bench.create_qp({.send_cqn = cq.cqn, .recv_cqn = cq.cqn});
  EXPECT_EQ(gone(Op::DEALLOC_PD, bench.pd), S::BAD_RES_STATE);
  EXPECT_EQ(gone(Op::DESTROY_CQ, cq.cqn), S::BAD_RES_STATE);
  EXPECT_EQ(gone(Op::DESTROY_EQ, bench.comp_eq.eqn), S::BAD_RES_STATE);
  EXPECT_EQ(gone(Op::DESTROY_QP, qp.qpn), S::OK);
  EXPECT_EQ(gone(Op::DESTROY_QP, qp.qpn), S::BAD_RES);
  EXPECT_EQ(gone(Op::DESTROY_CQ, cq.cqn), S::OK);
  EXPECT_EQ(gone(Op::DESTROY_CQ, cq.cqn), S::BAD_RES);
  EXPECT_EQ(bench.hca.live_objects(), base);
  EXPECT_EQ(gone(Op::DEALLOC_PD, bench.pd), S::OK);
  EXPECT_EQ(gone(Op::DEALLOC_PD, bench.pd), S::BAD_RES);
}

TEST_F(CmdObject, UarIsFreedBeforeItsQueues) {
  std::uint32_t uar = alloc(Op::ALLOC_UAR);
  auto cq_there = [&](CqHandle& h) {
    Request<prm::create_cq_in> r = bench.cq_request(4, h);
    prm::set<prm::cqc::uar_page>(r.at<prm::create_cq_in::cq_context>(), uar);
    Reply out = bench.cmd.exec(r);
    h.cqn = out.get<prm::create_cq_out::cqn>();
    return out.status();
  };
  CqHandle a, b;
  ASSERT_EQ(cq_there(a), S::OK);
  EXPECT_EQ(gone(Op::DEALLOC_UAR, uar), S::OK);
  EXPECT_EQ(gone(Op::DEALLOC_UAR, uar), S::BAD_RES);
  EXPECT_EQ(cq_there(b), S::BAD_RES);
  EXPECT_EQ(bench.hca.live_objects(), base + 2) << "the CQ, and the number that nobody else may get";
  EXPECT_EQ(gone(Op::DESTROY_CQ, a.cqn), S::OK);
  EXPECT_EQ(bench.hca.live_objects(), base);
}

TEST_F(CmdObject, NumbersComeBackLast) {
  std::uint32_t pd = alloc(Op::ALLOC_PD);
  ASSERT_EQ(gone(Op::DEALLOC_PD, pd), S::OK);
  EXPECT_NE(alloc(Op::ALLOC_PD), pd);
  std::uint32_t key = bench.create_mkey(0, 4096, bench.bus.alloc(4096));
  ASSERT_EQ(gone(Op::DESTROY_MKEY, key >> 8), S::OK);
  EXPECT_NE(bench.create_mkey(0, 4096, bench.bus.alloc(4096)) >> 8, key >> 8);
  CqHandle cq = bench.create_cq(4);
  QpHandle a = bench.create_qp({.send_cqn = cq.cqn, .recv_cqn = cq.cqn});
  ASSERT_EQ(gone(Op::DESTROY_QP, a.qpn), S::OK);
  EXPECT_NE(bench.create_qp({.send_cqn = cq.cqn, .recv_cqn = cq.cqn}).qpn, a.qpn);
}

TEST(CmdQpn, BlocksAreLeasedAndThenTheOldestFreedNumberIsUsed) {
  Bench bench(0x1000, 1);
  bench.bring_up();
  CqHandle cq = bench.create_cq(4);
  QpSpec spec{.send_cqn = cq.cqn, .recv_cqn = cq.cqn};
  QpHandle h;
  Request<prm::create_qp_in> r = bench.qp_request(spec, h);
  std::vector<std::uint32_t> qpns;
  for (unsigned i = 0; i < hca::kQpnBlock; ++i) {
    Reply out = bench.cmd.exec(r);
    ASSERT_TRUE(out.ok()) << i;
    qpns.push_back(out.get<prm::create_qp_out::qpn>());
    ASSERT_EQ(qpns.back(), 0x1000 + i);
  }
  EXPECT_EQ(bench.cmd.exec(r).status(), S::NO_RES);
  ASSERT_TRUE(bench.simple(Op::DESTROY_QP, qpns[7]).ok());
  ASSERT_TRUE(bench.simple(Op::DESTROY_QP, qpns[3]).ok());
  EXPECT_EQ(bench.cmd.exec(r).get<prm::create_qp_out::qpn>(), qpns[7]);
  EXPECT_EQ(bench.cmd.exec(r).get<prm::create_qp_out::qpn>(), qpns[3]);
  EXPECT_EQ(bench.lease.leased, 1u);
}

TEST_F(CmdObject, MkeyRefusals) {
  auto with = [&](auto change) {
    Request<prm::create_mkey_in> r(Op::CREATE_MKEY, 0, 32);
    void* c = r.at<prm::create_mkey_in::memory_key_mkey_entry>();
    prm::set<prm::mkc::pd>(c, bench.pd);
    prm::set<prm::mkc::qpn>(c, 0xffffff);
    prm::set<prm::mkc::access_mode_1_0>(c, 1);
    prm::set<prm::mkc::log_page_size>(c, 12);
    prm::set<prm::mkc::start_addr>(c, 0x10800);
    prm::set<prm::mkc::len>(c, 8192);
    r.set<prm::create_mkey_in::translations_octword_actual_size>(2);
    for (int i = 0; i < 3; ++i) store_be<std::uint64_t>(r.bytes.data() + 272 + i * 8, FakeBus::kBase + (i + 1) * 4096 + 3);
    change(r, c);
    return bench.cmd.exec(r).status();
  };
  using R = Request<prm::create_mkey_in>;
  EXPECT_EQ(with([](R&, void*) {}), S::OK);  // 3 pages: 0x800 into the first
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::pd>(c, 0xfff); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::qpn>(c, 0x1234); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::len>(c, 4096 * 4); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::start_addr>(c, ~0ull - 4096); }), S::BAD_PARAM) << "wraps around";
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::log_page_size>(c, 20); }), S::BAD_PARAM) << "misaligned large page";
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::log_page_size>(c, 6); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::length64>(c, 1); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::mkc::access_mode_4_2>(c, 1); }), S::BAD_PARAM) << "device memory";
  EXPECT_EQ(with([](R& r, void*) { r.set<prm::create_mkey_in::translations_octword_actual_size>(0x10000000); }), S::BAD_INP_LEN);
  EXPECT_EQ(with([](R& r, void*) { r.set<prm::create_mkey_in::pg_access>(1); }), S::OK) << "every page is there, as in libmlx5's VFIO mode";
  for (unsigned rights : {0, 1, 2}) {  // on-demand paging
    EXPECT_EQ(with([=](R& r, void*) {
                r.set<prm::create_mkey_in::pg_access>(1);
                store_be<std::uint64_t>(r.bytes.data() + 272 + 8, FakeBus::kBase + 2 * 4096 + rights);
              }),
              S::BAD_PARAM)
        << rights;
  }
  EXPECT_EQ(with([](R& r, void* c) {
              r.set<prm::create_mkey_in::pg_access>(1).set<prm::create_mkey_in::translations_octword_actual_size>(0);
              prm::set<prm::mkc::free>(c, 1);
            }),
            S::BAD_PARAM);
  EXPECT_EQ(with([](R& r, void* c) {
              r.set<prm::create_mkey_in::pg_access>(1);
              prm::set<prm::mkc::access_mode_1_0>(c, 3);
            }),
            S::BAD_PARAM)
      << "KSMs";
  auto with_klms = [&](unsigned octwords, unsigned room) {
    return with([=](R& r, void* c) {
      prm::set<prm::mkc::access_mode_1_0>(c, 2);
      prm::set<prm::mkc::translations_octword_size>(c, room);
      r.set<prm::create_mkey_in::translations_octword_actual_size>(octwords);
    });
  };
  EXPECT_EQ(with_klms(2, 4), S::OK);
  EXPECT_EQ(with_klms(0, 1u << hca::kLogMaxKlmList), S::OK);
  EXPECT_EQ(with_klms(0, (1u << hca::kLogMaxKlmList) + 1), S::BAD_PARAM) << "room for more KLMs than QUERY_HCA_CAP offers";
  EXPECT_EQ(with_klms((1u << hca::kLogMaxKlmList) + 1, 4), S::BAD_PARAM);
}

TEST_F(CmdObject, MkeyCanBeQueried) {
  pci::DmaAddr mem = bench.bus.alloc(8192);
  std::uint32_t key = bench.create_mkey(0x40000, 5000, mem, {.lw = true, .rr = false, .rw = true, .a = false});
  Reply r = bench.cmd.exec(Request<prm::query_mkey_in>(Op::QUERY_MKEY).set<prm::query_mkey_in::mkey_index>(key >> 8),
                           prm::query_mkey_out::kBytes);
  ASSERT_TRUE(r.ok());
  const void* c = r.at<prm::query_mkey_out::memory_key_mkey_entry>();
  EXPECT_EQ(prm::get<prm::mkc::start_addr>(c), 0x40000u);
  EXPECT_EQ(prm::get<prm::mkc::len>(c), 5000u);
  EXPECT_EQ(prm::get<prm::mkc::mkey_7_0>(c), key & 0xff);
  EXPECT_EQ(prm::get<prm::mkc::rr>(c), 0u);
  EXPECT_EQ(prm::get<prm::mkc::rw>(c), 1u);
  EXPECT_EQ(load_be<std::uint64_t>(r.out.data() + 272), mem | 3);
}

TEST_F(CmdObject, CqRefusals) {
  auto with = [&](auto change) {
    CqHandle h;
    Request<prm::create_cq_in> r = bench.cq_request(8, h);
    change(r, r.at<prm::create_cq_in::cq_context>());
    return bench.cmd.exec(r).status();
  };
  using R = Request<prm::create_cq_in>;
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::c_eqn_or_apu_element>(c, 77); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::uar_page>(c, 5); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::dbr_addr>(c, 0); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::cqe_sz>(c, 3); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::cq_period_mode>(c, 2); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::log_cq_size>(c, 23); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::log_cq_size>(c, 9); }), S::BAD_INP_LEN) << "half of the pages are missing";
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::cqc::page_offset>(c, 1); }), S::BAD_INP_LEN) << "ends behind the last page";
  EXPECT_EQ(with([](R& r, void*) { r.set<prm::create_cq_in::pas>(FakeBus::kBase + 512); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) {
              prm::set<prm::cqc::cqe_comp_en>(c, 1);
              prm::set<prm::cqc::mini_cqe_res_format>(c, 2);
            }),
            S::BAD_PARAM);
  EXPECT_EQ(bench.hca.live_objects(), base);
}

TEST_F(CmdObject, CqModerationAndResize) {
  CqHandle cq = bench.create_cq(4);
  Request<prm::modify_cq_in> m(Op::MODIFY_CQ);
  m.set<prm::modify_cq_in::cqn>(cq.cqn).set<prm::modify_cq_in::modify_field_select_resize_field_select>(3);
  prm::set<prm::cqc::cq_period>(m.at<prm::modify_cq_in::cq_context>(), 100);
  prm::set<prm::cqc::cq_max_count>(m.at<prm::modify_cq_in::cq_context>(), 32);
  prm::set<prm::cqc::cq_period_mode>(m.at<prm::modify_cq_in::cq_context>(), 1);
  ASSERT_TRUE(bench.cmd.exec(m).ok());
  auto mode = [&] {
    Reply q = bench.cmd.exec(Request<prm::query_cq_in>(Op::QUERY_CQ).set<prm::query_cq_in::cqn>(cq.cqn), 272 + 32);
    return prm::get<prm::cqc::cq_period_mode>(q.at<prm::query_cq_out::cq_context>());
  };
  EXPECT_EQ(mode(), 0u) << "not selected";
  m.set<prm::modify_cq_in::modify_field_select_resize_field_select>(prm::kCqModifyPeriodMode);
  ASSERT_TRUE(bench.cmd.exec(m).ok());
  EXPECT_EQ(mode(), 1u);
  prm::set<prm::cqc::cq_period_mode>(m.at<prm::modify_cq_in::cq_context>(), 2);
  EXPECT_EQ(bench.cmd.exec(m).status(), S::BAD_PARAM);
  m.set<prm::modify_cq_in::modify_field_select_resize_field_select>(1 << 3);
  EXPECT_EQ(bench.cmd.exec(m).status(), S::BAD_PARAM);
  CqHandle bigger;
  Request<prm::create_cq_in> shape = bench.cq_request(8, bigger);
  Request<prm::modify_cq_in> r(Op::MODIFY_CQ, 1, shape.bytes.size() - prm::create_cq_in::kBytes);
  r.set<prm::modify_cq_in::cqn>(cq.cqn).set<prm::modify_cq_in::modify_field_select_resize_field_select>(7);
  std::memcpy(r.at<prm::modify_cq_in::cq_context>(), shape.at<prm::create_cq_in::cq_context>(), 64);
  std::copy(shape.bytes.begin() + 272, shape.bytes.end(), r.bytes.begin() + 272);
  ASSERT_TRUE(bench.cmd.exec(r).ok());
  const std::uint8_t* first = bench.bus.host(cq.buf);  // the old buffer ends with a CQE that says so, owner bit of the first round
  EXPECT_EQ(prm::get<prm::cqe64::opcode>(first), static_cast<unsigned>(prm::CqeOpcode::RESIZE_CQ));
  EXPECT_EQ(prm::get<prm::cqe64::owner>(first), 0u);
  Reply q = bench.cmd.exec(Request<prm::query_cq_in>(Op::QUERY_CQ).set<prm::query_cq_in::cqn>(cq.cqn), 272 + 32);
  const void* c = q.at<prm::query_cq_out::cq_context>();
  EXPECT_EQ(prm::get<prm::cqc::log_cq_size>(c), 8u);
  EXPECT_EQ(prm::get<prm::cqc::producer_counter>(c), 1u);
  EXPECT_EQ(prm::get<prm::cqc::cq_period>(c), 100u);
  EXPECT_EQ(prm::get<prm::cqc::cq_max_count>(c), 32u);
  EXPECT_EQ(q.get<prm::query_cq_out::pas>(3), bigger.buf + 3 * 4096);
  r.set<prm::modify_cq_in::modify_field_select_resize_field_select>(0x10);
  EXPECT_EQ(bench.cmd.exec(r).status(), S::BAD_PARAM);
}

TEST_F(CmdObject, EqRefusals) {
  Request<prm::create_eq_in> r(Op::CREATE_EQ, 0, 8);
  void* c = r.at<prm::create_eq_in::eq_context_entry>();
  prm::set<prm::eqc::log_eq_size>(c, 4);
  prm::set<prm::eqc::uar_page>(c, bench.uar);
  r.set<prm::create_eq_in::pas>(bench.bus.alloc(4096));
  prm::set<prm::eqc::intr>(c, 4);
  EXPECT_EQ(bench.cmd.exec(r).status(), S::BAD_PARAM) << "vector 4 of 4";
  prm::set<prm::eqc::intr>(c, 3);
  EXPECT_EQ(bench.cmd.exec(r).status(), S::OK);
  prm::set<prm::eqc::uar_page>(c, 0);
  EXPECT_EQ(bench.cmd.exec(r).status(), S::BAD_RES);
}

TEST_F(CmdObject, SharedReceiveQueues) {
  auto rmp = [&](unsigned log_size) {
    Request<prm::create_rmp_in> r(Op::CREATE_RMP, 0, 8);
    void* c = r.at<prm::create_rmp_in::ctx>();
    prm::set<prm::rmpc::state>(c, 1);
    void* wq = prm::at<prm::rmpc::wq>(c);
    prm::set<prm::wq::log_wq_sz>(wq, log_size);
    prm::set<prm::wq::log_wq_stride>(wq, 5);
    prm::set<prm::wq::pd>(wq, bench.pd);
    pci::DmaAddr dbr = bench.bus.alloc(64);
    bench.bus.put_be32(dbr, 8);  // posted; a limit above what is there would fire at once
    prm::set<prm::wq::dbr_addr>(wq, dbr);
    store_be<std::uint64_t>(r.bytes.data() + 272, bench.bus.alloc(4096));
    return bench.cmd.exec(r);
  };
  EXPECT_EQ(rmp(16).status(), S::BAD_PARAM);
  Reply made = rmp(4);
  ASSERT_TRUE(made.ok());
  std::uint32_t n = made.get<prm::create_rmp_out::rmpn>();
  EXPECT_EQ(bench.simple(Op::DESTROY_XRC_SRQ, n).status(), S::BAD_RES) << "one number space, but the kinds are not confused";
  Request<prm::modify_rmp_in> arm(Op::MODIFY_RMP);
  arm.set<prm::modify_rmp_in::rmpn>(n).set<prm::modify_rmp_in::rmp_state>(1);
  prm::set<prm::rmpc::state>(arm.at<prm::modify_rmp_in::ctx>(), 1);
  prm::set<prm::rmp_bitmask::lwm>(arm.at<prm::modify_rmp_in::bitmask>(), 1);
  void* wq = prm::at<prm::rmpc::wq>(arm.at<prm::modify_rmp_in::ctx>());
  prm::set<prm::wq::lwm>(wq, 16);
  EXPECT_EQ(bench.cmd.exec(arm).status(), S::BAD_PARAM) << "a limit of all 16";
  prm::set<prm::wq::lwm>(wq, 5);
  EXPECT_TRUE(bench.cmd.exec(arm).ok());
  Reply q = bench.cmd.exec(Request<prm::query_rmp_in>(Op::QUERY_RMP).set<prm::query_rmp_in::rmpn>(n), 272);
  EXPECT_EQ(prm::get<prm::wq::lwm>(prm::at<prm::rmpc::wq>(q.at<prm::query_rmp_out::rmp_context>())), 5u);
  CqHandle cq = bench.create_cq(4);
  QpHandle qp = bench.create_qp({.send_cqn = cq.cqn, .recv_cqn = cq.cqn, .srqn = n, .rq_type = 1});
  EXPECT_EQ(bench.simple(Op::DESTROY_RMP, n).status(), S::BAD_RES_STATE);
  EXPECT_TRUE(bench.simple(Op::DESTROY_QP, qp.qpn).ok());
  EXPECT_TRUE(bench.simple(Op::DESTROY_RMP, n).ok());
  EXPECT_EQ(bench.cmd.exec(Request<prm::create_srq_in>(Op::CREATE_SRQ)).status(), S::BAD_OP) << "with ISSI 1";
}

TEST_F(CmdObject, DctsNeedTheirObjects) {
  EXPECT_EQ(bench.cmd.exec(Request<prm::create_dct_in>(Op::CREATE_DCT)).status(), S::BAD_RES);
  EXPECT_EQ(bench.simple(Op::DRAIN_DCT, 1).status(), S::BAD_RES);
}

TEST_F(CmdObject, VportAndRoceAddresses) {
  Request<prm::set_roce_address_in> r(Op::SET_ROCE_ADDRESS);
  r.set<prm::set_roce_address_in::roce_address_index>(256);
  EXPECT_EQ(bench.cmd.exec(r).status(), S::BAD_PARAM);
  r.set<prm::set_roce_address_in::roce_address_index>(4);
  void* one = r.at<prm::set_roce_address_in::roce_address>();
  static_cast<std::uint8_t*>(one)[15] = 1;
  prm::set<prm::roce_addr_layout::roce_version>(one, 1);  // RoCE v1.5, which nobody has
  EXPECT_EQ(bench.cmd.exec(r).status(), S::BAD_PARAM);
  bench.set_roce_address(4, Bench::ipv4_gid(10, 0, 0, 1), false, 0);  // RoCE v1
  bench.set_roce_address(3, Bench::ipv4_gid(10, 0, 0, 1));
  Reply q =
      bench.cmd.exec(Request<prm::query_roce_address_in>(Op::QUERY_ROCE_ADDRESS).set<prm::query_roce_address_in::roce_address_index>(3),
                     prm::query_roce_address_out::kBytes);
  wire::Gid gid = Bench::ipv4_gid(10, 0, 0, 1);
  EXPECT_EQ(std::memcmp(q.at<prm::query_roce_address_out::roce_address>(), gid.data(), 16), 0);
  Request<prm::modify_nic_vport_context_in> m(Op::MODIFY_NIC_VPORT_CONTEXT, 0, 8);
  m.set<prm::modify_nic_vport_context_in::field_select>(1 << 2);
  void* c = m.at<prm::modify_nic_vport_context_in::nic_vport_context>();
  prm::set<prm::nic_vport_context::allowed_list_size>(c, 2);
  EXPECT_EQ(bench.cmd.exec(m).status(), S::BAD_INP_LEN);
  prm::set<prm::nic_vport_context::allowed_list_size>(c, 1);
  store_be<std::uint64_t>(m.bytes.data() + 512, 0x021122334455);
  EXPECT_TRUE(bench.cmd.exec(m).ok());
  Reply v = bench.cmd.exec(Request<prm::query_nic_vport_context_in>(Op::QUERY_NIC_VPORT_CONTEXT), 272 + 8);
  EXPECT_EQ(load_be<std::uint64_t>(v.out.data() + 272), 0x021122334455u);
  Request<prm::query_nic_vport_context_in> other(Op::QUERY_NIC_VPORT_CONTEXT);
  EXPECT_EQ(bench.cmd.exec(other.set<prm::query_nic_vport_context_in::other_vport>(1), 272).status(), S::BAD_PARAM);
}

TEST_F(CmdObject, RegistersAndThePortEvent) {
  auto reg = [&](std::uint32_t id, std::uint16_t op_mod, std::size_t len, auto fill) {
    Request<prm::access_register_in> r(Op::ACCESS_REG, op_mod, len);
    r.set<prm::access_register_in::register_id>(id);
    fill(r.bytes.data() + 16);
    return bench.cmd.exec(r, 16 + len);
  };
  auto none = [](void*) {};
  Reply module = reg(0x9014, 1, prm::mcia_reg::kBytes, none);
  EXPECT_EQ(prm::get<prm::mcia_reg::status>(module.out.data() + 16), 1u) << "no EEPROM";
  EXPECT_EQ(reg(0x9014, 0, prm::mcia_reg::kBytes, none).status(), S::BAD_PARAM) << "MCIA";
  EXPECT_EQ(reg(0x507f, 1, 80, none).status(), S::BAD_PARAM) << "PCAM";
  EXPECT_EQ(reg(0x5006, 1, 16, none).status(), S::BAD_PARAM) << "port 0";
  // Flow control: global and per priority are set apart from each other.
  using pfcc = prm::pfcc_reg;
  auto flow_control = [&](std::uint16_t op_mod, unsigned tx, unsigned keep, unsigned priorities) {
    return reg(0x5007, op_mod, pfcc::kBytes, [&](void* d) {
      prm::set<pfcc::local_port>(d, 1);
      prm::set<pfcc::pptx>(d, tx);
      prm::set<pfcc::pptx_mask_n>(d, keep);
      prm::set<pfcc::prio_mask_tx>(d, priorities);
      prm::set<pfcc::pfctx>(d, 0x0f);
    });
  };
  EXPECT_TRUE(flow_control(0, 1, 0, 0).ok());
  EXPECT_TRUE(flow_control(0, 0, 1, 0xfc).ok());
  Reply paused = flow_control(1, 0, 0, 0);
  EXPECT_EQ(prm::get<pfcc::pptx>(paused.out.data() + 16), 1u);
  EXPECT_EQ(prm::get<pfcc::pfctx>(paused.out.data() + 16), 0x0cu);
  EXPECT_EQ(reg(0x5006, 1, 4, none).status(), S::BAD_INP_LEN);
  Reply down = reg(0x5006, 0, 16, [](void* d) {
    prm::set<prm::paos_reg::local_port>(d, 1);
    prm::set<prm::paos_reg::ase>(d, 1);
    prm::set<prm::paos_reg::admin_status>(d, 2);
  });
  ASSERT_TRUE(down.ok());
  EXPECT_EQ(prm::get<prm::paos_reg::oper_status>(down.out.data() + 16), 2u);
  const std::uint8_t* e = bench.bus.host(bench.async_eq.buf);
  EXPECT_EQ(prm::get<prm::eqe::event_type>(e), 0x09u);
  EXPECT_EQ(prm::get<prm::eqe::event_sub_type>(e), 1u);
  EXPECT_EQ(e[32 + 8] >> 4, 1) << "port number";
  Reply state = bench.cmd.exec(Request<prm::query_vport_state_in>(Op::QUERY_VPORT_STATE));
  EXPECT_EQ(state.get<prm::query_vport_state_out::state>(), 0u);
}

TEST_F(CmdObject, FlowObjectsHoldEachOther) {
  auto table = [&](unsigned level, std::uint32_t miss) {
    Request<prm::create_flow_table_in> r(Op::CREATE_FLOW_TABLE);
    void* c = r.at<prm::create_flow_table_in::flow_table_context>();
    prm::set<prm::flow_table_context::level>(c, level);
    prm::set<prm::flow_table_context::log_size>(c, 4);
    prm::set<prm::flow_table_context::table_miss_action>(c, miss != 0);
    prm::set<prm::flow_table_context::table_miss_id>(c, miss);
    return bench.cmd.exec(r);
  };
  auto group = [&](std::uint32_t t, unsigned from, unsigned to) {
    Request<prm::create_flow_group_in> r(Op::CREATE_FLOW_GROUP);
    r.set<prm::create_flow_group_in::table_id>(t).set<prm::create_flow_group_in::start_flow_index>(from);
    return bench.cmd.exec(r.set<prm::create_flow_group_in::end_flow_index>(to));
  };
  auto entry = [&](std::uint32_t t, unsigned index, std::uint32_t g, std::uint32_t dest) {
    Request<prm::set_fte_in> r(Op::SET_FLOW_TABLE_ENTRY, 0, 8);
    r.set<prm::set_fte_in::table_id>(t).set<prm::set_fte_in::flow_index>(index);
    void* c = r.at<prm::set_fte_in::flow_context>();
    prm::set<prm::flow_context::group_id>(c, g);
    prm::set<prm::flow_context::action>(c, 4);
    prm::set<prm::flow_context::destination_list_size>(c, 1);
    prm::set<prm::dest_format_struct::destination_type>(r.bytes.data() + 832, 1);
    prm::set<prm::dest_format_struct::destination_id>(r.bytes.data() + 832, dest);
    return bench.cmd.exec(r).status();
  };
  auto drop_table = [&](std::uint32_t t) {
    return bench.cmd.exec(Request<prm::destroy_flow_table_in>(Op::DESTROY_FLOW_TABLE).set<prm::destroy_flow_table_in::table_id>(t))
        .status();
  };
  EXPECT_EQ(table(1, 99).status(), S::BAD_RES);
  std::uint32_t high = table(5, 0).get<prm::create_flow_table_out::table_id>();
  std::uint32_t low = table(2, high).get<prm::create_flow_table_out::table_id>();
  EXPECT_EQ(drop_table(high), S::BAD_RES_STATE) << "missed to";
  Reply g = group(low, 0, 7);
  ASSERT_TRUE(g.ok());
  std::uint32_t gid = g.get<prm::create_flow_group_out::group_id>();
  EXPECT_EQ(group(low, 7, 9).status(), S::BAD_PARAM) << "overlaps";
  EXPECT_EQ(group(low, 0, 0).status(), S::BAD_PARAM) << "overlaps";
  EXPECT_EQ(group(low, 3, 3).status(), S::BAD_PARAM) << "overlaps";
  EXPECT_EQ(group(low, 8, 16).status(), S::BAD_PARAM) << "beyond the table";
  EXPECT_EQ(entry(low, 8, gid, high), S::BAD_PARAM) << "outside of the group";
  EXPECT_EQ(entry(low, 1, gid, low), S::BAD_PARAM) << "to itself";
  EXPECT_EQ(entry(low, 1, gid, 77), S::BAD_RES);
  EXPECT_EQ(entry(low, 1, gid, high), S::OK);
  EXPECT_EQ(entry(low, 1, gid, high), S::BAD_RES_STATE) << "there already";
  Request<prm::destroy_flow_group_in> dg(Op::DESTROY_FLOW_GROUP);
  dg.set<prm::destroy_flow_group_in::table_id>(low).set<prm::destroy_flow_group_in::group_id>(gid);
  EXPECT_EQ(bench.cmd.exec(dg).status(), S::BAD_RES_STATE);
  EXPECT_EQ(drop_table(low), S::BAD_RES_STATE);
  Request<prm::delete_fte_in> de(Op::DELETE_FLOW_TABLE_ENTRY);
  de.set<prm::delete_fte_in::table_id>(low).set<prm::delete_fte_in::flow_index>(1);
  EXPECT_TRUE(bench.cmd.exec(de).ok());
  EXPECT_EQ(bench.cmd.exec(de).status(), S::BAD_RES);
  EXPECT_TRUE(bench.cmd.exec(dg).ok());
  EXPECT_EQ(drop_table(low), S::OK);
  EXPECT_EQ(drop_table(high), S::OK);
  EXPECT_EQ(bench.hca.live_objects(), base);
}

}  // namespace
}  // namespace uhca::hcatest

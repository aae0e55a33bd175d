// SPDX-License-Identifier: MIT
// User contexts: who may name what; queues and keys in user memory.
#include "device/hca/cmd_if.h"
#include "device/hca/ownership.h"
#include "hca/harness.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/hca_cap.h"
#include "prm/umem_ref.h"

namespace uhca::hcatest {
namespace {

using Op = prm::Opcode;
using S = prm::CmdStatus;

class UserContext : public ::testing::Test {
 protected:
  Bench bench;
  void SetUp() override { bench.bring_up(); }

  std::uint32_t user(std::uint32_t caps = prm::kUctxCapRawTx) {
    Request<prm::create_uctx_in> wants(Op::CREATE_UCTX);
    prm::set<prm::uctx::cap>(wants.at<prm::create_uctx_in::uctx>(), caps);
    Reply r = bench.cmd.exec(wants);
    EXPECT_TRUE(r.ok());
    return r.get<prm::create_uctx_out::uid>();
  }
  S destroy_user(std::uint32_t uid) {
    return bench.cmd.exec(Request<prm::destroy_uctx_in>(Op::DESTROY_UCTX).set<prm::destroy_uctx_in::uid>(uid)).status();
  }
  // `bytes` of fresh memory from `offset` in its first page on.
  Request<prm::create_umem_in> umem_request(std::uint32_t uid, std::size_t pages, std::uint32_t offset, pci::DmaAddr* at = nullptr) {
    Request<prm::create_umem_in> r(Op::CREATE_UMEM, 0, pages * 8);
    r.set<prm::create_umem_in::uid>(uid);
    void* u = r.at<prm::create_umem_in::umem>();
    prm::set<prm::umem::num_of_mtt>(u, pages);
    prm::set<prm::umem::page_offset>(u, offset);
    pci::DmaAddr mem = bench.bus.alloc(pages * 4096);
    if (at) *at = mem;
    for (std::size_t i = 0; i < pages; ++i) prm::set<prm::umem::mtt>(u, (mem + i * 4096) | 3, i);
    return r;
  }
  std::uint32_t umem(std::uint32_t uid, std::size_t pages, std::uint32_t offset = 0, pci::DmaAddr* at = nullptr) {
    Reply r = bench.cmd.exec(umem_request(uid, pages, offset, at));
    EXPECT_TRUE(r.ok());
    return r.get<prm::create_umem_out::umem_id>();
  }
  template <class R>
  Reply exec_as(std::uint32_t uid, R r) {
    prm::set<prm::general_obj_in_cmd_hdr::uid>(r.bytes.data(), uid);
    return bench.cmd.exec(r);
  }
  template <class R>
  S as(std::uint32_t uid, R r) {
    return exec_as(uid, std::move(r)).status();
  }
  // The number of a new object; they all lie at the same place.
  template <class R>
  std::uint32_t made(std::uint32_t uid, R r) {
    Reply out = exec_as(uid, std::move(r));
    EXPECT_TRUE(out.ok()) << static_cast<int>(out.status());
    return out.get<prm::create_cq_out::cqn>();
  }
  std::uint32_t pd_of(std::uint32_t uid) { return made(uid, Request<prm::alloc_pd_in>(Op::ALLOC_PD)); }
  std::uint32_t cq_of(std::uint32_t uid) {
    CqHandle h;
    return made(uid, bench.cq_request(4, h));
  }
  template <class In>
  Request<In> queue_request(Op op, std::uint32_t cqn, std::uint32_t pd) {  // RQ or SQ
    Request<In> r(op, 0, 8);
    void* c = r.template at<In::ctx>();
    prm::set<prm::rqc::cqn>(c, cqn);
    void* wq = prm::at<prm::rqc::wq>(c);
    prm::set<prm::wq::wq_type>(wq, 1);
    prm::set<prm::wq::pd>(wq, pd);
    prm::set<prm::wq::uar_page>(wq, bench.uar);
    prm::set<prm::wq::dbr_addr>(wq, bench.bus.alloc(64));
    prm::set<prm::wq::log_wq_stride>(wq, 6);
    prm::set<prm::wq::log_wq_sz>(wq, 4);
    store_be<std::uint64_t>(r.bytes.data() + In::kBytes, bench.bus.alloc(4096));
    return r;
  }
  Request<prm::create_rmp_in> rmp_request(std::uint32_t pd) {
    Request<prm::create_rmp_in> r(Op::CREATE_RMP, 0, 8);
    void* c = r.at<prm::create_rmp_in::ctx>();
    prm::set<prm::rmpc::state>(c, 1);
    void* wq = prm::at<prm::rmpc::wq>(c);
    prm::set<prm::wq::pd>(wq, pd);
    prm::set<prm::wq::dbr_addr>(wq, bench.bus.alloc(64));
    prm::set<prm::wq::log_wq_stride>(wq, 6);
    prm::set<prm::wq::log_wq_sz>(wq, 4);
    store_be<std::uint64_t>(r.bytes.data() + prm::create_rmp_in::kBytes, bench.bus.alloc(4096));
    return r;
  }
  Request<prm::create_xrc_srq_in> xrc_srq_request(std::uint32_t pd, std::uint32_t xrcd, std::uint32_t cqn) {
    Request<prm::create_xrc_srq_in> r(Op::CREATE_XRC_SRQ, 0, 8);
    void* c = r.at<prm::create_xrc_srq_in::xrc_srq_context_entry>();
    prm::set<prm::xrc_srqc::log_xrc_srq_size>(c, 4);
    prm::set<prm::xrc_srqc::log_rq_stride>(c, 2);
    prm::set<prm::xrc_srqc::pd>(c, pd);
    prm::set<prm::xrc_srqc::xrcd>(c, xrcd);
    prm::set<prm::xrc_srqc::cqn>(c, cqn);
    pci::DmaAddr dbr = bench.bus.alloc(64);
    prm::set<prm::xrc_srqc::db_record_addr_h>(c, dbr >> 32);
    prm::set<prm::xrc_srqc::db_record_addr_l>(c, (dbr & 0xffffffff) >> 2);
    store_be<std::uint64_t>(r.bytes.data() + prm::create_xrc_srq_in::kBytes, bench.bus.alloc(4096));
    return r;
  }
  static Request<prm::create_dct_in> dct_request(std::uint32_t pd, std::uint32_t cqn, std::uint32_t srqn, std::uint32_t counter_set = 0) {
    Request<prm::create_dct_in> r(Op::CREATE_DCT);
    void* c = r.at<prm::create_dct_in::dct_context_entry>();
    prm::set<prm::dctc::pd>(c, pd);
    prm::set<prm::dctc::cqn>(c, cqn);
    prm::set<prm::dctc::srqn_xrqn>(c, srqn);
    prm::set<prm::dctc::counter_set_id>(c, counter_set);
    prm::set<prm::dctc::mtu>(c, 3);
    return r;
  }
  static Request<prm::create_tis_in> tis_request(std::uint32_t td, std::uint32_t pd) {
    Request<prm::create_tis_in> r(Op::CREATE_TIS);
    prm::set<prm::tisc::transport_domain>(r.at<prm::create_tis_in::ctx>(), td);
    prm::set<prm::tisc::pd>(r.at<prm::create_tis_in::ctx>(), pd);
    return r;
  }
  static Request<prm::create_tir_in> tir_request(std::uint32_t td, std::uint32_t rqn, std::uint32_t rqtn) {
    Request<prm::create_tir_in> r(Op::CREATE_TIR);
    void* c = r.at<prm::create_tir_in::ctx>();
    prm::set<prm::tirc::transport_domain>(c, td);
    prm::set<prm::tirc::disp_type>(c, rqtn != 0);
    prm::set<prm::tirc::inline_rqn>(c, rqn);
    prm::set<prm::tirc::indirect_table>(c, rqtn);
    return r;
  }
  static Request<prm::create_rqt_in> rqt_request(std::uint32_t rqn) {
    Request<prm::create_rqt_in> r(Op::CREATE_RQT, 0, 4);
    void* c = r.at<prm::create_rqt_in::rqt_context>();
    prm::set<prm::rqtc::rqt_max_size>(c, 1);
    prm::set<prm::rqtc::rqt_actual_size>(c, 1);
    store_be<std::uint32_t>(r.bytes.data() + prm::create_rqt_in::kBytes, rqn);
    return r;
  }
  static Request<prm::create_flow_table_in> table_request(std::uint32_t miss, unsigned level = 0) {
    Request<prm::create_flow_table_in> r(Op::CREATE_FLOW_TABLE);
    void* c = r.at<prm::create_flow_table_in::flow_table_context>();
    prm::set<prm::flow_table_context::log_size>(c, 4);
    prm::set<prm::flow_table_context::level>(c, level);
    prm::set<prm::flow_table_context::table_miss_action>(c, miss != 0);
    prm::set<prm::flow_table_context::table_miss_id>(c, miss);
    return r;
  }
  static Request<prm::create_flow_group_in> group_request(std::uint32_t table) {
    Request<prm::create_flow_group_in> r(Op::CREATE_FLOW_GROUP);
    r.set<prm::create_flow_group_in::table_id>(table).set<prm::create_flow_group_in::end_flow_index>(3);
    return r;
  }
  // Forward to one destination, and count.
  static Request<prm::set_fte_in> entry_request(std::uint32_t table, std::uint32_t group, unsigned type, std::uint32_t to,
                                                std::uint32_t counter) {
    Request<prm::set_fte_in> r(Op::SET_FLOW_TABLE_ENTRY, 0, 16);
    r.set<prm::set_fte_in::table_id>(table);
    void* c = r.at<prm::set_fte_in::flow_context>();
    prm::set<prm::flow_context::group_id>(c, group);
    prm::set<prm::flow_context::action>(c, 4 | 8);
    prm::set<prm::flow_context::destination_list_size>(c, 1);
    prm::set<prm::flow_context::flow_counter_list_size>(c, 1);
    std::uint8_t* list = r.bytes.data() + prm::set_fte_in::kBytes;
    prm::set<prm::dest_format_struct::destination_type>(list, type);
    prm::set<prm::dest_format_struct::destination_id>(list, to);
    prm::set<prm::flow_counter_list::flow_counter_id>(list + prm::dest_format_struct::kBytes, counter);
    return r;
  }
  S destroy_umem(std::uint32_t uid, std::uint32_t id) {
    return bench.cmd
        .exec(Request<prm::destroy_umem_in>(Op::DESTROY_UMEM).set<prm::destroy_umem_in::uid>(uid).set<prm::destroy_umem_in::umem_id>(id))
        .status();
  }
  // A CQ of 64 entries in one umem, its doorbell record in another.
  Request<prm::create_cq_in> cq_request(std::uint32_t uid, std::uint32_t buf, std::uint32_t dbr, std::uint64_t dbr_at = 0) {
    Request<prm::create_cq_in> r(Op::CREATE_CQ);
    r.set<prm::create_cq_in::uid>(uid);
    r.set<prm::create_cq_in::cq_umem_valid>(1);
    prm::set(r.bytes.data(), prm::umem_ref::cq_umem_id, buf);
    void* c = r.at<prm::create_cq_in::cq_context>();
    prm::set<prm::cqc::log_cq_size>(c, 6);
    prm::set<prm::cqc::uar_page>(c, bench.uar);
    prm::set<prm::cqc::c_eqn_or_apu_element>(c, bench.comp_eq.eqn);
    prm::set<prm::cqc::dbr_umem_valid>(c, 1);
    prm::set(c, prm::umem_ref::cqc_dbr_umem_id, dbr);
    prm::set<prm::cqc::dbr_addr>(c, dbr_at);
    return r;
  }
};

TEST_F(UserContext, CapabilitiesAndLife) {
  Request<prm::query_hca_cap_in> q(Op::QUERY_HCA_CAP, 1);
  Reply caps = bench.cmd.exec(q, 16 + 2048);  // as much as the caller knows
  ASSERT_TRUE(caps.ok());
  const void* c = caps.at<prm::query_hca_cap_out::capability>();
  EXPECT_GT(prm::get<prm::cmd_hca_cap::log_max_uctx>(c), 0u);
  EXPECT_GT(prm::get<prm::cmd_hca_cap::log_max_umem>(c), 0u);
  EXPECT_EQ(bench.cmd.exec(q, 12).status(), S::BAD_OUTP_LEN);

  std::uint32_t a = user(), b = user();
  EXPECT_NE(a, 0u);
  EXPECT_NE(a, b);
  EXPECT_EQ(destroy_user(a), S::OK);
  EXPECT_EQ(destroy_user(a), S::BAD_RES);
  EXPECT_EQ(destroy_user(0), S::BAD_RES);
  Request<prm::create_uctx_in> wants(Op::CREATE_UCTX);
  prm::set<prm::uctx::cap>(wants.at<prm::create_uctx_in::uctx>(), 2);  // internal device resources: nobody is given that
  EXPECT_EQ(bench.cmd.exec(wants).status(), S::BAD_PARAM);
  // A uid that does not live may issue nothing.
  EXPECT_EQ(bench.cmd.exec(Request<prm::alloc_pd_in>(Op::ALLOC_PD).set<prm::alloc_pd_in::uid>(a)).status(), S::BAD_PARAM);
  EXPECT_EQ(destroy_user(b), S::OK);
}

// Only who has the right to raw packets makes SQs.
TEST_F(UserContext, RawTransmissionIsACapability) {
  std::uint32_t with = user(), without = user(0);
  CqHandle cq = bench.create_cq(4);
  auto sq = queue_request<prm::create_sq_in>(Op::CREATE_SQ, cq.cqn, bench.pd);
  EXPECT_EQ(as(without, sq), S::BAD_OP);
  EXPECT_EQ(as(with, sq), S::OK);
  EXPECT_EQ(as(0, sq), S::OK);
  EXPECT_EQ(as(without, queue_request<prm::create_rq_in>(Op::CREATE_RQ, cq.cqn, bench.pd)), S::OK);
}

// As libmlx5 and Linux end a program that closes its context before its queues.
TEST_F(UserContext, UarIsFreedFirst) {
  std::uint32_t a = user(), uar = made(a, Request<prm::alloc_uar_in>(Op::ALLOC_UAR));
  CqHandle h;
  auto r = bench.cq_request(4, h);
  prm::set<prm::cqc::uar_page>(r.at<prm::create_cq_in::cq_context>(), uar);
  std::uint32_t cqn = made(a, r);
  EXPECT_EQ(as(a, Request<prm::dealloc_uar_in>(Op::DEALLOC_UAR).set<prm::dealloc_uar_in::uar>(uar)), S::OK);
  EXPECT_EQ(destroy_user(a), S::BAD_RES_STATE) << "its CQ lives";
  EXPECT_EQ(as(a, Request<prm::destroy_cq_in>(Op::DESTROY_CQ).set<prm::destroy_cq_in::cqn>(cqn)), S::OK);
  EXPECT_EQ(destroy_user(a), S::OK);
}

TEST_F(UserContext, ForeignObjectsAreOutOfReach) {
  std::uint32_t a = user(), b = user();
  Reply r = bench.cmd.exec(Request<prm::alloc_pd_in>(Op::ALLOC_PD).set<prm::alloc_pd_in::uid>(a));
  ASSERT_TRUE(r.ok());
  std::uint32_t pd = r.get<prm::alloc_pd_out::pd>();
  auto dealloc = [&](std::uint32_t uid) {
    return bench.cmd.exec(Request<prm::dealloc_pd_in>(Op::DEALLOC_PD).set<prm::dealloc_pd_in::uid>(uid).set<prm::dealloc_pd_in::pd>(pd))
        .status();
  };
  EXPECT_EQ(dealloc(b), S::BAD_RES);
  EXPECT_EQ(destroy_user(a), S::BAD_RES_STATE);  // it owns something
  // A key in a foreign PD, and physical addressing, are refused; in one's own, and in the driver's, not.
  auto key = [&](std::uint32_t uid, std::uint32_t in_pd, unsigned mode) {
    Request<prm::create_mkey_in> k(Op::CREATE_MKEY);
    k.set<prm::create_mkey_in::uid>(uid);
    void* m = k.at<prm::create_mkey_in::memory_key_mkey_entry>();
    prm::set<prm::mkc::access_mode_1_0>(m, mode);
    prm::set<prm::mkc::pd>(m, in_pd);
    prm::set<prm::mkc::qpn>(m, 0xffffff);
    return bench.cmd.exec(k).status();
  };
  EXPECT_EQ(key(b, pd, 2), S::BAD_RES);
  EXPECT_EQ(key(b, bench.pd, 2), S::OK);
  EXPECT_EQ(key(a, pd, 0), S::BAD_PARAM);
  EXPECT_EQ(key(a, bench.pd, 2), S::OK);
  EXPECT_EQ(dealloc(0), S::OK);  // the driver may
}

constexpr std::uint32_t kSharedUid = 0xffff;  // Linux's MLX5_SHARED_RESOURCE_UID

// Reserved lkey, fast registration, UMR QPs and physical keys reach any bus address; QP1 speaks for the port.
TEST_F(UserContext, PrivilegesAreTheDriversOnly) {
  std::uint32_t a = user();
  CqHandle cq = bench.create_cq(6);
  QpSpec plain;
  plain.send_cqn = plain.recv_cqn = cq.cqn;
  std::vector<std::pair<const char*, QpSpec>> specs(4, {"", plain});
  specs[0].first = "rlky", specs[0].second.rlky = true;
  specs[1].first = "fre", specs[1].second.fre = true;
  specs[2].first = "REG_UMR", specs[2].second.type = hca::QpType::kRegUmr;
  specs[3].first = "QP1", specs[3].second.type = hca::QpType::kQp1;
  QpHandle h;
  EXPECT_EQ(as(a, bench.qp_request(plain, h)), S::OK);
  for (auto& [name, spec] : specs) {
    SCOPED_TRACE(name);
    EXPECT_EQ(as(a, bench.qp_request(spec, h)), S::BAD_PARAM);
    for (std::uint32_t uid : {0u, kSharedUid}) {
      Reply r = exec_as(uid, bench.qp_request(spec, h));
      ASSERT_TRUE(r.ok()) << uid;
      EXPECT_TRUE(bench.simple(Op::DESTROY_QP, r.get<prm::create_qp_out::qpn>()).ok());
    }
  }
  auto check = [&](const char* name, auto request, auto turn_on) {
    SCOPED_TRACE(name);
    EXPECT_EQ(as(a, request), S::OK);
    turn_on(request);
    EXPECT_EQ(as(a, request), S::BAD_PARAM);
    EXPECT_EQ(as(0, request), S::OK);
    EXPECT_EQ(as(kSharedUid, request), S::OK);
  };
  check("RQ", queue_request<prm::create_rq_in>(Op::CREATE_RQ, cq.cqn, bench.pd),
        [](auto& r) { prm::set<prm::rqc::rlky>(r.template at<prm::create_rq_in::ctx>(), 1); });
  check("SQ", queue_request<prm::create_sq_in>(Op::CREATE_SQ, cq.cqn, bench.pd),
        [](auto& r) { prm::set<prm::sqc::rlky>(r.template at<prm::create_sq_in::ctx>(), 1); });
  std::uint32_t xrcd = made(0, Request<prm::alloc_xrcd_in>(Op::ALLOC_XRCD)), rmp = made(0, rmp_request(bench.pd));
  check("XRC SRQ", xrc_srq_request(bench.pd, xrcd, cq.cqn),
        [](auto& r) { prm::set<prm::xrc_srqc::rlky>(r.template at<prm::create_xrc_srq_in::xrc_srq_context_entry>(), 1); });
  check("DCT", dct_request(bench.pd, cq.cqn, rmp),
        [](auto& r) { prm::set<prm::dctc::rlky>(r.template at<prm::create_dct_in::dct_context_entry>(), 1); });
}

TEST_F(UserContext, TheSharedUidIsTheDrivers) {
  std::uint32_t a = user();
  std::uint32_t pd = pd_of(kSharedUid);
  EXPECT_EQ(as(a, rmp_request(pd)), S::OK);  // as everything of the driver's
  EXPECT_EQ(as(kSharedUid, rmp_request(pd_of(a))), S::OK);
  EXPECT_EQ(as(kSharedUid - 1, Request<prm::alloc_pd_in>(Op::ALLOC_PD)), S::BAD_PARAM);
}

// Objects that name others: one's own and the driver's, never those of another user.
TEST_F(UserContext, ForeignObjectsAreNotNamed) {
  std::uint32_t a = user(), b = user();
  std::uint32_t pd = pd_of(a), cqn = cq_of(a), own_cqn = cq_of(b);
  std::uint32_t xrcd = made(a, Request<prm::alloc_xrcd_in>(Op::ALLOC_XRCD)),
                free_xrcd = made(0, Request<prm::alloc_xrcd_in>(Op::ALLOC_XRCD));
  std::uint32_t set = made(a, Request<prm::alloc_q_counter_in>(Op::ALLOC_Q_COUNTER)) & 0xff;
  auto check = [&](const char* name, auto request) {
    SCOPED_TRACE(name);
    EXPECT_EQ(as(b, request), S::BAD_RES);
    return made(a, request);
  };
  std::uint32_t rmp = check("RMP's PD", rmp_request(pd)), free_rmp = made(b, rmp_request(bench.pd));
  check("XRC SRQ's PD", xrc_srq_request(pd, free_xrcd, bench.create_cq(4).cqn));
  check("XRC SRQ's XRCD", xrc_srq_request(bench.pd, xrcd, bench.create_cq(4).cqn));
  check("XRC SRQ's CQ", xrc_srq_request(bench.pd, free_xrcd, cqn));
  EXPECT_EQ(as(b, xrc_srq_request(bench.pd, free_xrcd, own_cqn)), S::OK);
  std::uint32_t cq = bench.create_cq(4).cqn;
  check("DCT's PD", dct_request(pd, cq, made(0, rmp_request(bench.pd))));
  check("DCT's CQ", dct_request(bench.pd, cqn, made(0, rmp_request(bench.pd))));
  check("DCT's SRQ", dct_request(bench.pd, cq, rmp));
  check("DCT's counter set", dct_request(bench.pd, cq, made(0, rmp_request(bench.pd)), set));
  EXPECT_EQ(as(b, dct_request(bench.pd, own_cqn, free_rmp)), S::OK);

  std::uint32_t td = made(a, Request<prm::alloc_transport_domain_in>(Op::ALLOC_TRANSPORT_DOMAIN));
  std::uint32_t free_td = made(0, Request<prm::alloc_transport_domain_in>(Op::ALLOC_TRANSPORT_DOMAIN));
  std::uint32_t tisn = check("TIS's TD", tis_request(td, bench.pd));
  check("TIS's PD", tis_request(free_td, pd));
  auto sq = queue_request<prm::create_sq_in>(Op::CREATE_SQ, cq, bench.pd);
  prm::set<prm::sqc::tis_lst_sz>(sq.at<prm::create_sq_in::ctx>(), 1);
  prm::set<prm::sqc::tis_num_0>(sq.at<prm::create_sq_in::ctx>(), tisn);
  check("SQ's TIS", sq);
  auto rq = queue_request<prm::create_rq_in>(Op::CREATE_RQ, cq, bench.pd);
  std::uint32_t free_rqn = made(b, rq);
  prm::set<prm::rqc::counter_set_id>(rq.at<prm::create_rq_in::ctx>(), set);
  std::uint32_t rqn = check("RQ's counter set", rq);
  Request<prm::modify_rq_in> m(Op::MODIFY_RQ);
  m.set<prm::modify_rq_in::rqn>(free_rqn).set<prm::modify_rq_in::modify_bitmask>(1 << 3);
  prm::set<prm::rqc::counter_set_id>(m.at<prm::modify_rq_in::ctx>(), set);
  EXPECT_EQ(as(b, m), S::BAD_RES);
  EXPECT_EQ(as(0, m), S::OK);
  std::uint32_t rqtn = check("RQT's RQ", rqt_request(rqn));
  std::uint32_t tirn = check("TIR's RQ", tir_request(free_td, rqn, 0));
  check("TIR's RQT", tir_request(free_td, 0, rqtn));
  check("TIR's TD", tir_request(td, made(0, queue_request<prm::create_rq_in>(Op::CREATE_RQ, cq, bench.pd)), 0));

  QpSpec spec;
  spec.send_cqn = spec.recv_cqn = own_cqn;
  spec.rq_type = 1;
  spec.srqn = free_rmp;
  QpHandle h;
  std::uint32_t qpn = made(b, bench.qp_request(spec, h));
  auto optional = [&](std::uint32_t mask, std::uint32_t counters) {
    Request<prm::rst2init_qp_in> r(Op::RST2INIT_QP);
    r.set<prm::rst2init_qp_in::qpn>(qpn).set<prm::rst2init_qp_in::opt_param_mask>(mask);
    void* c = r.at<prm::rst2init_qp_in::qpc>();
    prm::set<prm::qpc::cqn_rcv>(c, cqn);
    prm::set<prm::qpc::srqn_rmpn_xrqn>(c, rmp);
    prm::set<prm::qpc::counter_set_id>(c, counters);
    return as(b, r);
  };
  for (unsigned bit : {18u, 19u, 25u}) EXPECT_EQ(optional(1u << bit, set), S::BAD_RES) << bit;  // SRQN, CQN_RCV, COUNTER_SET
  EXPECT_EQ(optional(0, set), S::BAD_RES) << "here the counter set is no optional parameter";
  EXPECT_EQ(optional(0, 0), S::OK);

  // A key that is bound to one QP.
  Request<prm::create_mkey_in> k(Op::CREATE_MKEY);
  prm::set<prm::mkc::access_mode_1_0>(k.at<prm::create_mkey_in::memory_key_mkey_entry>(), 2);
  prm::set<prm::mkc::pd>(k.at<prm::create_mkey_in::memory_key_mkey_entry>(), bench.pd);
  prm::set<prm::mkc::qpn>(k.at<prm::create_mkey_in::memory_key_mkey_entry>(), qpn);
  EXPECT_EQ(as(a, k), S::BAD_RES);
  EXPECT_EQ(as(b, k), S::OK);

  std::uint32_t table = made(a, table_request(0, 1)), own = made(b, table_request(0));
  check("miss table", table_request(table));
  Request<prm::modify_flow_table_in> miss(Op::MODIFY_FLOW_TABLE);
  miss.set<prm::modify_flow_table_in::table_id>(own).set<prm::modify_flow_table_in::modify_field_select>(1);
  prm::set<prm::flow_table_context::table_miss_action>(miss.at<prm::modify_flow_table_in::flow_table_context>(), 1);
  prm::set<prm::flow_table_context::table_miss_id>(miss.at<prm::modify_flow_table_in::flow_table_context>(), table);
  EXPECT_EQ(as(b, miss), S::BAD_RES);
  Request<prm::set_flow_table_root_in> root(Op::SET_FLOW_TABLE_ROOT);
  EXPECT_EQ(as(b, root.set<prm::set_flow_table_root_in::table_id>(table)), S::BAD_RES);
  check("group's table", group_request(table));
  std::uint32_t group = made(b, group_request(own));
  std::uint32_t counter = made(a, Request<prm::alloc_flow_counter_in>(Op::ALLOC_FLOW_COUNTER));
  std::uint32_t free_counter = made(0, Request<prm::alloc_flow_counter_in>(Op::ALLOC_FLOW_COUNTER));
  std::uint32_t free_table = made(0, table_request(0, 1));
  EXPECT_EQ(as(b, entry_request(own, group, 1, table, free_counter)), S::BAD_RES);
  EXPECT_EQ(as(b, entry_request(own, group, 2, tirn, free_counter)), S::BAD_RES);
  EXPECT_EQ(as(b, entry_request(own, group, 1, free_table, counter)), S::BAD_RES);
  EXPECT_EQ(as(b, entry_request(own, group, 1, free_table, free_counter)), S::OK);
}

// As libmlx5 does that drives the device itself, by vfio-pci: there is nobody else whose commands need a user context.
TEST_F(UserContext, TheDriverMayHaveUmemsToo) {
  Reply caps = bench.cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, 1), 16 + 2048);
  EXPECT_EQ(prm::get<prm::cmd_hca_cap::umem_uid_0>(caps.at<prm::query_hca_cap_out::capability>()), 1u);
  std::uint32_t a = user();
  std::uint32_t buf = umem(0, 1), dbr = umem(0, 1), users = umem(a, 1);
  Reply cq = bench.cmd.exec(cq_request(0, buf, dbr));
  ASSERT_TRUE(cq.ok());
  EXPECT_EQ(destroy_umem(0, buf), S::BAD_RES_STATE) << "in use";
  EXPECT_EQ(bench.cmd.exec(cq_request(a, buf, dbr)).status(), S::BAD_RES) << "the driver's";
  EXPECT_EQ(bench.cmd.exec(cq_request(0, users, dbr)).status(), S::BAD_RES) << "a user's";
  EXPECT_EQ(
      bench.cmd.exec(Request<prm::destroy_cq_in>(Op::DESTROY_CQ).set<prm::destroy_cq_in::cqn>(cq.get<prm::create_cq_out::cqn>())).status(),
      S::OK);
  EXPECT_EQ(destroy_umem(0, buf), S::OK);
  EXPECT_EQ(destroy_umem(0, dbr), S::OK);
  EXPECT_EQ(destroy_umem(a, users), S::OK);
}

TEST_F(UserContext, UmemRefusals) {
  std::uint32_t a = user(), b = user();
  EXPECT_EQ(bench.cmd.exec(umem_request(a, 1, 4096)).status(), S::BAD_PARAM);
  auto many = umem_request(a, 2, 0);
  prm::set<prm::umem::num_of_mtt>(many.at<prm::create_umem_in::umem>(), 3);
  EXPECT_EQ(bench.cmd.exec(many).status(), S::BAD_INP_LEN);
  auto none = umem_request(a, 1, 0);
  prm::set<prm::umem::num_of_mtt>(none.at<prm::create_umem_in::umem>(), 0);
  EXPECT_EQ(bench.cmd.exec(none).status(), S::BAD_INP_LEN);
  auto crooked = umem_request(a, 1, 0);
  prm::set<prm::umem::log_page_size>(crooked.at<prm::create_umem_in::umem>(), 4);
  prm::set<prm::umem::mtt>(crooked.at<prm::create_umem_in::umem>(), 0x1003, 0);
  EXPECT_EQ(bench.cmd.exec(crooked).status(), S::BAD_PARAM);
  auto ats = umem_request(a, 1, 0);
  prm::set<prm::umem::ats>(ats.at<prm::create_umem_in::umem>(), 1);
  EXPECT_EQ(bench.cmd.exec(ats).status(), S::BAD_PARAM);

  std::uint32_t u = umem(a, 1);
  EXPECT_EQ(destroy_umem(b, u), S::BAD_RES);
  EXPECT_EQ(destroy_umem(a, u + 1), S::BAD_RES);
  EXPECT_EQ(destroy_umem(a, u), S::OK);
}

TEST_F(UserContext, CqInUserMemory) {
  std::uint32_t a = user(), b = user();
  std::uint32_t buf = umem(a, 2, 64), dbr = umem(a, 1, 0x38), small = umem(a, 1, 64);
  EXPECT_EQ(bench.cmd.exec(cq_request(0, buf, dbr)).status(), S::BAD_RES);  // nobody vouches for it
  EXPECT_EQ(bench.cmd.exec(cq_request(b, buf, dbr)).status(), S::BAD_RES);
  EXPECT_EQ(bench.cmd.exec(cq_request(a, buf + 100, dbr)).status(), S::BAD_RES);
  EXPECT_EQ(bench.cmd.exec(cq_request(a, small, dbr)).status(), S::BAD_PARAM);      // 4096 bytes do not fit behind the offset
  EXPECT_EQ(bench.cmd.exec(cq_request(a, buf, dbr, 4)).status(), S::BAD_PARAM);     // not aligned
  EXPECT_EQ(bench.cmd.exec(cq_request(a, buf, dbr, 4096)).status(), S::BAD_PARAM);  // beyond the end
  auto crooked = cq_request(a, buf, dbr);
  prm::set(crooked.bytes.data(), prm::umem_ref::cq_umem_offset, 32);
  EXPECT_EQ(bench.cmd.exec(crooked).status(), S::BAD_PARAM) << "entries across the border of two pages";
  Reply r = bench.cmd.exec(cq_request(a, buf, dbr));
  ASSERT_TRUE(r.ok());
  std::uint32_t cqn = r.get<prm::create_cq_out::cqn>();
  EXPECT_EQ(destroy_umem(a, buf), S::BAD_RES_STATE);
  EXPECT_EQ(destroy_umem(a, dbr), S::BAD_RES_STATE);
  auto query = [&](std::uint32_t uid) {
    Request<prm::query_cq_in> q(Op::QUERY_CQ);
    prm::set<prm::general_obj_in_cmd_hdr::uid>(q.bytes.data(), uid);
    return bench.cmd.exec(q.set<prm::query_cq_in::cqn>(cqn), prm::query_cq_out::kBytes).status();
  };
  EXPECT_EQ(query(b), S::BAD_RES);
  EXPECT_EQ(query(a), S::OK);
  Request<prm::destroy_cq_in> d(Op::DESTROY_CQ);
  d.set<prm::destroy_cq_in::cqn>(cqn);
  EXPECT_EQ(bench.cmd.exec(d.set<prm::destroy_cq_in::uid>(b)).status(), S::BAD_RES);
  EXPECT_EQ(bench.cmd.exec(d.set<prm::destroy_cq_in::uid>(a)).status(), S::OK);
  for (std::uint32_t u : {buf, dbr, small}) EXPECT_EQ(destroy_umem(a, u), S::OK);
  EXPECT_EQ(destroy_user(a), S::OK);
}

TEST_F(UserContext, KeyOverUserMemory) {
  std::uint32_t a = user();
  pci::DmaAddr mem;
  std::uint32_t u = umem(a, 3, 0, &mem);
  auto key = [&](std::uint64_t start, std::uint64_t len, std::uint64_t offset, unsigned log_page = 12) {
    Request<prm::create_mkey_in> k(Op::CREATE_MKEY);
    k.set<prm::create_mkey_in::uid>(a);
    k.set<prm::create_mkey_in::mkey_umem_valid>(1);
    prm::set(k.bytes.data(), prm::umem_ref::mkey_umem_id, u);
    prm::set(k.bytes.data(), prm::umem_ref::mkey_umem_offset, offset);
    void* m = k.at<prm::create_mkey_in::memory_key_mkey_entry>();
    prm::set<prm::mkc::access_mode_1_0>(m, 1);
    prm::set<prm::mkc::pd>(m, bench.pd);
    prm::set<prm::mkc::qpn>(m, 0xffffff);
    prm::set<prm::mkc::start_addr>(m, start);
    prm::set<prm::mkc::len>(m, len);
    prm::set<prm::mkc::log_page_size>(m, log_page);
    return bench.cmd.exec(k);
  };
  EXPECT_EQ(key(0x10000, 4 * 4096, 0).status(), S::BAD_PARAM);
  EXPECT_EQ(key(0x10010, 3 * 4096, 0).status(), S::BAD_PARAM);  // touches four pages
  EXPECT_EQ(key(0x10000, 4096, 64).status(), S::BAD_PARAM);     // not aligned
  EXPECT_EQ(key(0x10000, 4096, 0, 13).status(), S::BAD_PARAM);  // larger pages than the umem's
  EXPECT_EQ(key(~std::uint64_t{0} - 4095, 4096, ~std::uint64_t{0} - 4095).status(), S::BAD_PARAM);
  Reply r = key(0x10010, 4096, 4096);
  ASSERT_TRUE(r.ok());
  Reply q = bench.cmd.exec(
      Request<prm::query_mkey_in>(Op::QUERY_MKEY).set<prm::query_mkey_in::mkey_index>(r.get<prm::create_mkey_out::mkey_index>()),
      prm::query_mkey_out::kBytes);
  EXPECT_EQ(load_be<std::uint64_t>(static_cast<const std::uint8_t*>(q.at<prm::query_mkey_out::bsf0_klm0_pas_mtt0_1>())), (mem + 4096) | 3);
  EXPECT_EQ(destroy_umem(a, u), S::BAD_RES_STATE);
}

// Every command that creates, destroys or names one object has a row.
TEST(Ownership, RolesPairUp) {
  unsigned created = 0;
  for (const hca::CommandInfo& info : hca::all_commands()) {
    const hca::ObjectRole* role = hca::role_of(static_cast<std::uint16_t>(info.opcode));
    std::string name = prm::opcode_name(static_cast<std::uint16_t>(info.opcode));
    bool creates = name.rfind("CREATE_", 0) == 0 || name.rfind("ALLOC_", 0) == 0;
    bool destroys = name.rfind("DESTROY_", 0) == 0 || name.rfind("DEALLOC_", 0) == 0;
    if (name == "CREATE_UCTX" || name == "DESTROY_UCTX") continue;
    if (name == "ALLOC_MEMIC" || name == "DEALLOC_MEMIC") continue;  // the driver's only; addresses, not numbers
    if (!creates && !destroys) continue;
    ASSERT_NE(role, nullptr) << name;
    EXPECT_EQ(role->role, creates ? hca::Role::kCreate : hca::Role::kDestroy) << name;
    created += creates;
  }
  EXPECT_GT(created, 15u);
}

}  // namespace
}  // namespace uhca::hcatest

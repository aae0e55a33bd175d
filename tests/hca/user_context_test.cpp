// SPDX-License-Identifier: MIT
// User contexts: who may name what; queues and keys in user memory.
#include "device/hca/cmd_if.h"
#include "device/hca/ownership.h"
#include "hca/harness.h"
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

  std::uint32_t user() {
    Reply r = bench.cmd.exec(Request<prm::create_uctx_in>(Op::CREATE_UCTX));
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
  prm::set<prm::uctx::cap>(wants.at<prm::create_uctx_in::uctx>(), 1);  // raw packets: nobody is given that
  EXPECT_EQ(bench.cmd.exec(wants).status(), S::BAD_PARAM);
  // A uid that does not live may issue nothing.
  EXPECT_EQ(bench.cmd.exec(Request<prm::alloc_pd_in>(Op::ALLOC_PD).set<prm::alloc_pd_in::uid>(a)).status(), S::BAD_PARAM);
  EXPECT_EQ(destroy_user(b), S::OK);
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

TEST_F(UserContext, UmemRefusals) {
  std::uint32_t a = user(), b = user();
  EXPECT_EQ(bench.cmd.exec(umem_request(0, 1, 0)).status(), S::BAD_PARAM);
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
  EXPECT_EQ(bench.cmd.exec(cq_request(0, buf, dbr)).status(), S::BAD_PARAM);  // nobody vouches for it
  EXPECT_EQ(bench.cmd.exec(cq_request(b, buf, dbr)).status(), S::BAD_RES);
  EXPECT_EQ(bench.cmd.exec(cq_request(a, buf + 100, dbr)).status(), S::BAD_RES);
  EXPECT_EQ(bench.cmd.exec(cq_request(a, small, dbr)).status(), S::BAD_PARAM);      // 4096 bytes do not fit behind the offset
  EXPECT_EQ(bench.cmd.exec(cq_request(a, buf, dbr, 4)).status(), S::BAD_PARAM);     // not aligned
  EXPECT_EQ(bench.cmd.exec(cq_request(a, buf, dbr, 4096)).status(), S::BAD_PARAM);  // beyond the end
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
    if (!creates && !destroys) continue;
    ASSERT_NE(role, nullptr) << name;
    EXPECT_EQ(role->role, creates ? hca::Role::kCreate : hca::Role::kDestroy) << name;
    created += creates;
  }
  EXPECT_GT(created, 15u);
}

}  // namespace
}  // namespace uhca::hcatest

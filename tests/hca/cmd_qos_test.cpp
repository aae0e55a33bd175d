// SPDX-License-Identifier: MIT
// Scheduling elements, packet pacing rates, and QPs that refer to them.
#include "device/hca/qos.h"
#include "hca/harness.h"
#include "prm/cmd_object.h"
#include "prm/context.h"
#include "prm/hca_cap.h"
#include "prm/other_caps.h"
#include "prm/qos.h"

namespace uhca::hcatest {
namespace {

using Op = prm::Opcode;
using S = prm::CmdStatus;
namespace q = prm::qos;
using Hdr = prm::general_obj_in_cmd_hdr;

class CmdQos : public ::testing::Test {
 protected:
  Bench bench;
  void SetUp() override { bench.bring_up(); }

  Request<Hdr> element(Op op, std::uint32_t type, std::uint32_t parent) {
    Request<Hdr> r(op, 0, q::kElemInBytes - Hdr::kBytes);
    r.set<Hdr::obj_type>(q::kObjSchedulingElement);
    prm::set(r.bytes.data(), q::elem_hierarchy, q::kHierarchyNic);
    prm::set(r.bytes.data(), q::elem_type, type);
    prm::set(r.bytes.data(), q::elem_parent, parent);
    return r;
  }
  S create(std::uint32_t type, std::uint32_t parent, std::uint32_t* id = nullptr) {
    Reply r = bench.cmd.exec(element(Op::CREATE_GENERAL_OBJECT, type, parent));
    if (id) *id = r.get<prm::general_obj_out_cmd_hdr::obj_id>();
    return r.status();
  }
  S destroy(std::uint32_t id) {
    return bench.cmd.exec(Request<Hdr>(Op::DESTROY_GENERAL_OBJECT).set<Hdr::obj_type>(q::kObjSchedulingElement).set<Hdr::obj_id>(id))
        .status();
  }
  S rate(std::uint32_t index, std::uint32_t kbps) {
    Request<prm::set_pp_rate_limit_in> r(Op::SET_PP_RATE_LIMIT);
    r.set<prm::set_pp_rate_limit_in::rate_limit_index>(index);
    prm::set<prm::set_pp_rate_limit_context::rate_limit>(r.at<prm::set_pp_rate_limit_in::ctx>(), kbps);
    return bench.cmd.exec(r).status();
  }
};

TEST_F(CmdQos, AddressesMappedToQps) {
  bench.set_roce_address(0, Bench::ipv4_gid(10, 0, 0, 1));
  CqHandle cq = bench.create_cq(4);
  QpHandle qp = bench.create_qp({.send_cqn = cq.cqn, .recv_cqn = cq.cqn});
  std::size_t before = bench.hca.live_objects();
  auto mapping = [&](std::uint32_t qpn, std::uint32_t address) {
    Request<Hdr> r(Op::CREATE_GENERAL_OBJECT, 0, q::kAvMapInBytes - Hdr::kBytes);
    r.set<Hdr::obj_type>(q::kObjAvQpMapping);
    prm::set(r.bytes.data(), q::avmap_qpn, qpn);
    prm::set(r.bytes.data(), q::avmap_src_addr_index, address);
    prm::set(r.bytes.data(), q::avmap_rgid, 0x77, 15);
    return bench.cmd.exec(r);
  };
  auto about = [](Op op, std::uint32_t id) { return Request<Hdr>(op).set<Hdr::obj_type>(q::kObjAvQpMapping).set<Hdr::obj_id>(id); };
  EXPECT_EQ(mapping(qp.qpn + 1, 0).status(), S::BAD_RES);
  EXPECT_EQ(mapping(qp.qpn, 9).status(), S::BAD_PARAM) << "no such source address";
  EXPECT_EQ(bench.cmd.exec(about(Op::CREATE_GENERAL_OBJECT, 0)).status(), S::BAD_INP_LEN);
  Reply made = mapping(qp.qpn, 0);
  ASSERT_TRUE(made.ok());
  std::uint32_t id = made.get<prm::general_obj_out_cmd_hdr::obj_id>();
  Reply got = bench.cmd.exec(about(Op::QUERY_GENERAL_OBJECT, id), q::kAvMapInBytes);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(prm::get(got.out.data(), q::avmap_qpn), qp.qpn);
  EXPECT_EQ(prm::get(got.out.data(), q::avmap_rgid, 15), 0x77u);
  EXPECT_EQ(bench.cmd.exec(about(Op::MODIFY_GENERAL_OBJECT, id)).status(), S::BAD_PARAM);
  EXPECT_EQ(destroy(id), S::BAD_RES) << "it is no scheduling element";
  EXPECT_TRUE(bench.cmd.exec(about(Op::DESTROY_GENERAL_OBJECT, id)).ok());
  EXPECT_EQ(bench.cmd.exec(about(Op::DESTROY_GENERAL_OBJECT, id)).status(), S::BAD_RES);
  EXPECT_EQ(bench.hca.live_objects(), before);
}

TEST_F(CmdQos, ElementsFormATree) {
  std::size_t before = bench.hca.live_objects();
  std::uint32_t root, node, leaf;
  EXPECT_EQ(create(q::kTypeQueueGroup, 0), S::BAD_PARAM) << "a leaf needs an arbiter";
  EXPECT_EQ(create(1, 0), S::BAD_PARAM) << "a vport element";
  ASSERT_EQ(create(q::kTypeTsar, 0, &root), S::OK);
  EXPECT_EQ(create(q::kTypeTsar, root + 1), S::BAD_RES);
  ASSERT_EQ(create(q::kTypeTsar, root, &node), S::OK);
  ASSERT_EQ(create(q::kTypeQueueGroup, node, &leaf), S::OK);
  EXPECT_EQ(create(q::kTypeTsar, leaf), S::BAD_PARAM) << "under a leaf";
  EXPECT_EQ(destroy(root), S::BAD_RES_STATE);
  EXPECT_EQ(destroy(node), S::BAD_RES_STATE);

  Request<Hdr> change = element(Op::MODIFY_GENERAL_OBJECT, q::kTypeTsar, 0);
  change.set<Hdr::obj_id>(node);
  prm::set(change.bytes.data(), q::elem_select, q::kSelectShare);
  prm::set(change.bytes.data(), q::elem_bw_share, 7);
  prm::set(change.bytes.data(), q::elem_max_bw, 9);
  EXPECT_EQ(bench.cmd.exec(change).status(), S::OK);
  Reply got = bench.cmd.exec(Request<Hdr>(Op::QUERY_GENERAL_OBJECT).set<Hdr::obj_type>(q::kObjSchedulingElement).set<Hdr::obj_id>(node),
                             q::kElemInBytes);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(prm::get(got.out.data(), q::elem_bw_share), 7u);
  EXPECT_EQ(prm::get(got.out.data(), q::elem_max_bw), 0u) << "not selected";
  EXPECT_EQ(prm::get(got.out.data(), q::elem_parent), root);

  EXPECT_EQ(destroy(leaf), S::OK);
  EXPECT_EQ(destroy(leaf), S::BAD_RES);
  EXPECT_EQ(destroy(node), S::OK);
  EXPECT_EQ(destroy(root), S::OK);
  EXPECT_EQ(bench.hca.live_objects(), before);
}

TEST_F(CmdQos, OtherGeneralObjectsAreNotOffered) {
  Request<Hdr> r(Op::CREATE_GENERAL_OBJECT);
  r.set<Hdr::obj_type>(0x0d);  // a virtio queue
  EXPECT_EQ(bench.cmd.exec(r).status(), S::BAD_PARAM);
  EXPECT_EQ(bench.cmd.exec(Request<Hdr>(Op::CREATE_GENERAL_OBJECT).set<Hdr::obj_type>(q::kObjSchedulingElement)).status(), S::BAD_INP_LEN);
}

TEST_F(CmdQos, QpsHoldTheirGroups) {
  std::uint32_t root, leaf;
  ASSERT_EQ(create(q::kTypeTsar, 0, &root), S::OK);
  ASSERT_EQ(create(q::kTypeQueueGroup, root, &leaf), S::OK);
  CqHandle cq = bench.create_cq(4);
  QpHandle qp = bench.create_qp({.send_cqn = cq.cqn, .recv_cqn = cq.cqn});
  auto move = [&](std::uint64_t mask, std::uint32_t group, bool extended) {
    Request<prm::init2init_qp_in> r(Op::INIT2INIT_QP, 0, extended ? q::kExtendedQpInBytes - prm::init2init_qp_in::kBytes : 0);
    r.set<prm::init2init_qp_in::qpn>(qp.qpn);
    prm::set(r.bytes.data(), q::qp_has_ext, extended);
    prm::set(r.bytes.data(), q::qp_opt_mask_95_32, mask);
    if (extended) prm::set(r.bytes.data(), q::qp_group_requester, group);
    return bench.cmd.exec(r).status();
  };
  ASSERT_TRUE(bench.cmd.exec(Request<prm::rst2init_qp_in>(Op::RST2INIT_QP).set<prm::rst2init_qp_in::qpn>(qp.qpn)).ok());
  EXPECT_EQ(move(q::kOptQueueGroup, leaf, false), S::BAD_INP_LEN);
  EXPECT_EQ(move(q::kOptQueueGroup, root, true), S::BAD_PARAM) << "an arbiter takes no queues";
  EXPECT_EQ(move(q::kOptQueueGroup, leaf + 1, true), S::BAD_RES);
  EXPECT_EQ(move(1 << 3, leaf, true), S::BAD_PARAM) << "memory to memory offload";
  EXPECT_EQ(destroy(leaf), S::OK) << "nothing refers to it yet";
  ASSERT_EQ(create(q::kTypeQueueGroup, root, &leaf), S::OK);
  EXPECT_EQ(move(q::kOptQueueGroup, leaf, true), S::OK);
  EXPECT_EQ(destroy(leaf), S::BAD_RES_STATE);
  EXPECT_EQ(move(q::kOptQueueGroup, 0, true), S::OK);
  EXPECT_EQ(move(q::kOptQueueGroup, leaf, true), S::OK);
  EXPECT_TRUE(bench.cmd.exec(Request<prm::qp_2rst_in>(Op::TO_2RST_QP).set<prm::qp_2rst_in::qpn>(qp.qpn)).ok());
  EXPECT_EQ(destroy(leaf), S::OK) << "a QP in RESET has left";
  EXPECT_EQ(destroy(root), S::OK);
}

TEST_F(CmdQos, RatesHaveARange) {
  EXPECT_EQ(rate(0, 100), S::BAD_PARAM);
  EXPECT_EQ(rate(hca::kRateTableSize + 1, 100), S::BAD_PARAM);
  EXPECT_EQ(rate(1, hca::kMaxRate + 1), S::BAD_PARAM);
  EXPECT_EQ(rate(hca::kRateTableSize, hca::kMaxRate), S::OK);
  EXPECT_EQ(rate(hca::kRateTableSize, 0), S::OK);
}

}  // namespace
}  // namespace uhca::hcatest

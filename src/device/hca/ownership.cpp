// SPDX-License-Identifier: MIT
#include "device/hca/ownership.h"

#include <iterator>

#include "prm/cmd_core.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"

namespace uhca::hca {
namespace {

using Op = prm::Opcode;

constexpr ObjectRole kRoles[] = {
    {Op::ALLOC_PD, Kind::kPd, Role::kCreate, prm::alloc_pd_out::pd},
    {Op::DEALLOC_PD, Kind::kPd, Role::kDestroy, prm::dealloc_pd_in::pd},
    {Op::ALLOC_UAR, Kind::kUar, Role::kCreate, prm::alloc_uar_out::uar},
    {Op::DEALLOC_UAR, Kind::kUar, Role::kDestroy, prm::dealloc_uar_in::uar},
    {Op::ALLOC_TRANSPORT_DOMAIN, Kind::kTransportDomain, Role::kCreate, prm::alloc_transport_domain_out::transport_domain},
    {Op::DEALLOC_TRANSPORT_DOMAIN, Kind::kTransportDomain, Role::kDestroy, prm::dealloc_transport_domain_in::transport_domain},
    {Op::ALLOC_XRCD, Kind::kXrcd, Role::kCreate, prm::alloc_xrcd_out::xrcd},
    {Op::DEALLOC_XRCD, Kind::kXrcd, Role::kDestroy, prm::dealloc_xrcd_in::xrcd},
    {Op::CREATE_MKEY, Kind::kMkey, Role::kCreate, prm::create_mkey_out::mkey_index},
    {Op::QUERY_MKEY, Kind::kMkey, Role::kUse, prm::query_mkey_in::mkey_index},
    {Op::DESTROY_MKEY, Kind::kMkey, Role::kDestroy, prm::destroy_mkey_in::mkey_index},
    {Op::CREATE_EQ, Kind::kEq, Role::kCreate, prm::create_eq_out::eq_number},
    {Op::DESTROY_EQ, Kind::kEq, Role::kDestroy, prm::destroy_eq_in::eq_number},
    {Op::CREATE_CQ, Kind::kCq, Role::kCreate, prm::create_cq_out::cqn},
    {Op::QUERY_CQ, Kind::kCq, Role::kUse, prm::query_cq_in::cqn},
    {Op::MODIFY_CQ, Kind::kCq, Role::kUse, prm::modify_cq_in::cqn},
    {Op::DESTROY_CQ, Kind::kCq, Role::kDestroy, prm::destroy_cq_in::cqn},
    {Op::CREATE_QP, Kind::kQp, Role::kCreate, prm::create_qp_out::qpn},
    {Op::QUERY_QP, Kind::kQp, Role::kUse, prm::query_qp_in::qpn},
    {Op::RST2INIT_QP, Kind::kQp, Role::kUse, prm::rst2init_qp_in::qpn},
    {Op::INIT2INIT_QP, Kind::kQp, Role::kUse, prm::init2init_qp_in::qpn},
    {Op::INIT2RTR_QP, Kind::kQp, Role::kUse, prm::init2rtr_qp_in::qpn},
    {Op::RTR2RTS_QP, Kind::kQp, Role::kUse, prm::rtr2rts_qp_in::qpn},
    {Op::RTS2RTS_QP, Kind::kQp, Role::kUse, prm::rts2rts_qp_in::qpn},
    {Op::SQERR2RTS_QP, Kind::kQp, Role::kUse, prm::sqerr2rts_qp_in::qpn},
    {Op::SQD_RTS_QP, Kind::kQp, Role::kUse, prm::sqd2rts_qp_in::qpn},
    {Op::TO_2ERR_QP, Kind::kQp, Role::kUse, prm::qp_2err_in::qpn},
    {Op::TO_2RST_QP, Kind::kQp, Role::kUse, prm::qp_2rst_in::qpn},
    {Op::ATTACH_TO_MCG, Kind::kQp, Role::kUse, prm::attach_to_mcg_in::qpn},
    {Op::DETACH_FROM_MCG, Kind::kQp, Role::kUse, prm::detach_from_mcg_in::qpn},
    {Op::DESTROY_QP, Kind::kQp, Role::kDestroy, prm::destroy_qp_in::qpn},
    {Op::CREATE_SRQ, Kind::kSrq, Role::kCreate, prm::create_srq_out::srqn},
    {Op::QUERY_SRQ, Kind::kSrq, Role::kUse, prm::query_srq_in::srqn},
    {Op::ARM_RQ, Kind::kSrq, Role::kUse, prm::arm_rq_in::srq_number},
    {Op::DESTROY_SRQ, Kind::kSrq, Role::kDestroy, prm::destroy_srq_in::srqn},
    {Op::CREATE_XRC_SRQ, Kind::kSrq, Role::kCreate, prm::create_xrc_srq_out::xrc_srqn},
    {Op::QUERY_XRC_SRQ, Kind::kSrq, Role::kUse, prm::query_xrc_srq_in::xrc_srqn},
    {Op::ARM_XRC_SRQ, Kind::kSrq, Role::kUse, prm::arm_xrc_srq_in::xrc_srqn},
    {Op::DESTROY_XRC_SRQ, Kind::kSrq, Role::kDestroy, prm::destroy_xrc_srq_in::xrc_srqn},
    {Op::CREATE_RMP, Kind::kSrq, Role::kCreate, prm::create_rmp_out::rmpn},
    {Op::QUERY_RMP, Kind::kSrq, Role::kUse, prm::query_rmp_in::rmpn},
    {Op::MODIFY_RMP, Kind::kSrq, Role::kUse, prm::modify_rmp_in::rmpn},
    {Op::DESTROY_RMP, Kind::kSrq, Role::kDestroy, prm::destroy_rmp_in::rmpn},
    {Op::CREATE_DCT, Kind::kDct, Role::kCreate, prm::create_dct_out::dctn},
    {Op::QUERY_DCT, Kind::kDct, Role::kUse, prm::query_dct_in::dctn},
    {Op::DRAIN_DCT, Kind::kDct, Role::kUse, prm::drain_dct_in::dctn},
    {Op::DESTROY_DCT, Kind::kDct, Role::kDestroy, prm::destroy_dct_in::dctn},
    {Op::CREATE_TIS, Kind::kTis, Role::kCreate, prm::create_tis_out::tisn},
    {Op::QUERY_TIS, Kind::kTis, Role::kUse, prm::query_tis_in::tisn},
    {Op::MODIFY_TIS, Kind::kTis, Role::kUse, prm::modify_tis_in::tisn},
    {Op::DESTROY_TIS, Kind::kTis, Role::kDestroy, prm::destroy_tis_in::tisn},
    {Op::CREATE_TIR, Kind::kTir, Role::kCreate, prm::create_tir_out::tirn},
    {Op::QUERY_TIR, Kind::kTir, Role::kUse, prm::query_tir_in::tirn},
    {Op::MODIFY_TIR, Kind::kTir, Role::kUse, prm::modify_tir_in::tirn},
    {Op::DESTROY_TIR, Kind::kTir, Role::kDestroy, prm::destroy_tir_in::tirn},
    {Op::CREATE_RQT, Kind::kRqt, Role::kCreate, prm::create_rqt_out::rqtn},
    {Op::QUERY_RQT, Kind::kRqt, Role::kUse, prm::query_rqt_in::rqtn},
    {Op::MODIFY_RQT, Kind::kRqt, Role::kUse, prm::modify_rqt_in::rqtn},
    {Op::DESTROY_RQT, Kind::kRqt, Role::kDestroy, prm::destroy_rqt_in::rqtn},
    {Op::CREATE_SQ, Kind::kRawQueue, Role::kCreate, prm::create_sq_out::sqn},
    {Op::QUERY_SQ, Kind::kRawQueue, Role::kUse, prm::query_sq_in::sqn},
    {Op::MODIFY_SQ, Kind::kRawQueue, Role::kUse, prm::modify_sq_in::sqn},
    {Op::DESTROY_SQ, Kind::kRawQueue, Role::kDestroy, prm::destroy_sq_in::sqn},
    {Op::CREATE_RQ, Kind::kRawQueue, Role::kCreate, prm::create_rq_out::rqn},
    {Op::QUERY_RQ, Kind::kRawQueue, Role::kUse, prm::query_rq_in::rqn},
    {Op::MODIFY_RQ, Kind::kRawQueue, Role::kUse, prm::modify_rq_in::rqn},
    {Op::DESTROY_RQ, Kind::kRawQueue, Role::kDestroy, prm::destroy_rq_in::rqn},
    {Op::ALLOC_Q_COUNTER, Kind::kCounterSet, Role::kCreate, prm::alloc_q_counter_out::counter_set_id},
    {Op::QUERY_Q_COUNTER, Kind::kCounterSet, Role::kUse, prm::query_q_counter_in::counter_set_id},
    {Op::DEALLOC_Q_COUNTER, Kind::kCounterSet, Role::kDestroy, prm::dealloc_q_counter_in::counter_set_id},
    {Op::CREATE_FLOW_TABLE, Kind::kFlowTable, Role::kCreate, prm::create_flow_table_out::table_id},
    {Op::QUERY_FLOW_TABLE, Kind::kFlowTable, Role::kUse, prm::query_flow_table_in::table_id},
    {Op::MODIFY_FLOW_TABLE, Kind::kFlowTable, Role::kUse, prm::modify_flow_table_in::table_id},
    {Op::SET_FLOW_TABLE_ENTRY, Kind::kFlowTable, Role::kUse, prm::set_fte_in::table_id},
    {Op::QUERY_FLOW_TABLE_ENTRY, Kind::kFlowTable, Role::kUse, prm::query_fte_in::table_id},
    {Op::DELETE_FLOW_TABLE_ENTRY, Kind::kFlowTable, Role::kUse, prm::delete_fte_in::table_id},
    {Op::DESTROY_FLOW_TABLE, Kind::kFlowTable, Role::kDestroy, prm::destroy_flow_table_in::table_id},
    {Op::CREATE_FLOW_GROUP, Kind::kFlowGroup, Role::kCreate, prm::create_flow_group_out::group_id},
    {Op::QUERY_FLOW_GROUP, Kind::kFlowGroup, Role::kUse, prm::query_flow_group_in::group_id},
    {Op::DESTROY_FLOW_GROUP, Kind::kFlowGroup, Role::kDestroy, prm::destroy_flow_group_in::group_id},
    {Op::ALLOC_FLOW_COUNTER, Kind::kFlowCounter, Role::kCreate, prm::alloc_flow_counter_out::flow_counter_id},
    {Op::QUERY_FLOW_COUNTER, Kind::kFlowCounter, Role::kUse, prm::query_flow_counter_in::flow_counter_id},
    {Op::DEALLOC_FLOW_COUNTER, Kind::kFlowCounter, Role::kDestroy, prm::dealloc_flow_counter_in::flow_counter_id},
    {Op::CREATE_UMEM, Kind::kUmem, Role::kCreate, prm::create_umem_out::umem_id},
    {Op::CREATE_GENERAL_OBJECT, Kind::kGeneralObject, Role::kCreate, prm::general_obj_out_cmd_hdr::obj_id},
    {Op::QUERY_GENERAL_OBJECT, Kind::kGeneralObject, Role::kUse, prm::general_obj_in_cmd_hdr::obj_id},
    {Op::MODIFY_GENERAL_OBJECT, Kind::kGeneralObject, Role::kUse, prm::general_obj_in_cmd_hdr::obj_id},
    {Op::DESTROY_GENERAL_OBJECT, Kind::kGeneralObject, Role::kDestroy, prm::general_obj_in_cmd_hdr::obj_id},
    {Op::DESTROY_UMEM, Kind::kUmem, Role::kDestroy, prm::destroy_umem_in::umem_id},
};

}  // namespace

const char* kind_name(Kind k) {
  static constexpr const char* kNames[] = {"PD",
                                           "UAR",
                                           "transport domain",
                                           "XRCD",
                                           "MKey",
                                           "EQ",
                                           "CQ",
                                           "QP",
                                           "SRQ",
                                           "DCT",
                                           "TIS",
                                           "TIR",
                                           "RQT",
                                           "SQ/RQ",
                                           "counter set",
                                           "flow table",
                                           "flow group",
                                           "flow counter",
                                           "umem",
                                           "general object"};
  return kNames[static_cast<std::size_t>(k)];
}

const ObjectRole* role_of(std::uint16_t opcode) {
  for (const ObjectRole& r : kRoles)
    if (static_cast<std::uint16_t>(r.opcode) == opcode) return &r;
  return nullptr;
}

bool Ownership::has_cap(std::uint16_t uid, std::uint32_t cap) const {
  if (uid == 0 || uid == kSharedUid) return true;
  auto it = users_.find(uid);
  return it != users_.end() && (it->second.caps & cap) != 0;
}

bool Ownership::create_user(std::uint16_t* uid, std::uint32_t caps) {
  if (users_.size() == kSharedUid - 1) return false;
  // Numbers go round, so that a stale uid hits nobody for long.
  do ++last_uid_;
  while (last_uid_ == 0 || last_uid_ == kSharedUid || users_.contains(last_uid_));
  users_[last_uid_] = {caps, 0};
  *uid = last_uid_;
  return true;
}

unsigned Ownership::objects_of(std::uint16_t uid) const {
  auto it = users_.find(uid);
  return it == users_.end() ? 0 : it->second.objects;
}

bool Ownership::may_use(Kind k, std::uint32_t number, std::uint16_t uid) const {
  if (uid == 0) return true;
  auto it = records_.find(key(k, number));
  return it == records_.end() || it->second.uid == 0 || it->second.uid == uid;
}

void Ownership::created(Kind k, std::uint32_t number, std::uint16_t uid, std::vector<std::uint32_t> umems) {
  if (uid == 0 && umems.empty()) return;
  records_[key(k, number)] = {uid, std::move(umems)};
  if (auto it = users_.find(uid); it != users_.end()) ++it->second.objects;
}

std::vector<std::uint32_t> Ownership::destroyed(Kind k, std::uint32_t number) {
  auto it = records_.find(key(k, number));
  if (it == records_.end()) return {};
  if (auto u = users_.find(it->second.uid); u != users_.end()) --u->second.objects;
  std::vector<std::uint32_t> umems = std::move(it->second.umems);
  records_.erase(it);
  return umems;
}

void Ownership::forget_objects() {
  records_.clear();
  users_.clear();
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
// Plain objects. Linux: core/uar.c, pd.c, mr.c, qp commands of mlx5_ib/qpc.c.
#include "base/log.h"
#include "kernel/mlx5_core/mlx5_core.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

// Every one of these commands has its 24-bit number at the same place.
using Out = prm::alloc_pd_out;
using In = prm::dealloc_pd_in;

}  // namespace

Result<std::uint32_t> mlx5_core_dev::alloc_number(prm::Opcode op, std::uint16_t uid) {
  std::uint8_t in[prm::alloc_pd_in::kBytes] = {}, out[Out::kBytes] = {};
  prm::set<prm::alloc_pd_in::opcode>(in, static_cast<std::uint16_t>(op));
  prm::set<prm::alloc_pd_in::uid>(in, uid);
  UHCA_CHECK(cmd_.exec(in, sizeof in, out, sizeof out));
  return std::uint32_t{prm::get<Out::pd>(out)};
}

Status mlx5_core_dev::dealloc_number(prm::Opcode op, std::uint32_t number) {
  std::uint8_t in[In::kBytes] = {}, out[prm::dealloc_pd_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(op));
  prm::set<In::pd>(in, number);
  return cmd_.exec(in, sizeof in, out, sizeof out);
}

Result<std::uint32_t> mlx5_core_dev::alloc_uar(std::uint16_t uid) {
  return alloc_number(prm::Opcode::ALLOC_UAR, uid);
}
Status mlx5_core_dev::dealloc_uar(std::uint32_t uar) {
  return dealloc_number(prm::Opcode::DEALLOC_UAR, uar);
}
Result<std::uint32_t> mlx5_core_dev::alloc_pd(std::uint16_t uid) {
  return alloc_number(prm::Opcode::ALLOC_PD, uid);
}
Status mlx5_core_dev::dealloc_pd(std::uint32_t pdn) {
  return dealloc_number(prm::Opcode::DEALLOC_PD, pdn);
}
Result<std::uint32_t> mlx5_core_dev::alloc_transport_domain(std::uint16_t uid) {
  return alloc_number(prm::Opcode::ALLOC_TRANSPORT_DOMAIN, uid);
}
Status mlx5_core_dev::dealloc_transport_domain(std::uint32_t td) {
  return dealloc_number(prm::Opcode::DEALLOC_TRANSPORT_DOMAIN, td);
}
Result<std::uint32_t> mlx5_core_dev::alloc_xrcd() {
  return alloc_number(prm::Opcode::ALLOC_XRCD);
}
Status mlx5_core_dev::dealloc_xrcd(std::uint32_t xrcdn) {
  return dealloc_number(prm::Opcode::DEALLOC_XRCD, xrcdn);
}

Status mlx5_core_dev::add_srq(mlx5_core_srq& srq) {
  if (srqs_.insert(srq.srqn, &srq)) return success();
  return refuse(ENOMEM, "SRQ {:#x}: no place in the table", srq.srqn);
}

Result<std::uint16_t> mlx5_core_dev::create_uctx(std::uint32_t caps) {
  std::uint8_t in[prm::create_uctx_in::kBytes] = {}, out[prm::create_uctx_out::kBytes] = {};
  prm::set<prm::create_uctx_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::CREATE_UCTX));
  prm::set<prm::uctx::cap>(prm::at<prm::create_uctx_in::uctx>(in), caps);
  UHCA_CHECK(cmd_.exec(in, sizeof in, out, sizeof out));
  return static_cast<std::uint16_t>(prm::get<prm::create_uctx_out::uid>(out));
}

Status mlx5_core_dev::destroy_uctx(std::uint16_t uid) {
  std::uint8_t in[prm::destroy_uctx_in::kBytes] = {}, out[prm::destroy_uctx_out::kBytes] = {};
  prm::set<prm::destroy_uctx_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::DESTROY_UCTX));
  prm::set<prm::destroy_uctx_in::uid>(in, uid);
  return cmd_.exec(in, sizeof in, out, sizeof out);
}

Result<std::uint32_t> mlx5_core_dev::create_mkey(std::vector<std::uint8_t>& in) {
  std::uint8_t out[prm::create_mkey_out::kBytes] = {};
  // The variant makes a key of a reused index differ from its predecessor's (Linux: assign_mkey_variant).
  std::uint8_t variant = mkey_variant_.fetch_add(1, std::memory_order_relaxed);
  void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(in.data());
  prm::set<prm::mkc::mkey_7_0>(mkc, variant);
  prm::set<prm::create_mkey_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::CREATE_MKEY));
  UHCA_CHECK(cmd_.exec(in.data(), in.size(), out, sizeof out));
  return std::uint32_t{prm::get<prm::create_mkey_out::mkey_index>(out)} << 8 | variant;
}

Status mlx5_core_dev::destroy_mkey(std::uint32_t key) {
  return dealloc_number(prm::Opcode::DESTROY_MKEY, key >> 8);
}

Result<std::uint32_t> mlx5_core_dev::create_pa_mkey(std::uint32_t pdn) {
  std::vector<std::uint8_t> in(prm::create_mkey_in::kBytes);
  void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(in.data());
  prm::set<prm::mkc::access_mode_1_0>(mkc, prm::kMkeyModePa);
  prm::set<prm::mkc::lw>(mkc, 1);
  prm::set<prm::mkc::lr>(mkc, 1);
  prm::set<prm::mkc::pd>(mkc, pdn);
  prm::set<prm::mkc::length64>(mkc, 1);
  prm::set<prm::mkc::qpn>(mkc, 0xffffff);
  return create_mkey(in);
}

Result<mlx5_core_dev::SpecialContexts> mlx5_core_dev::query_special_contexts() {
  std::uint8_t in[prm::query_special_contexts_in::kBytes] = {}, out[prm::query_special_contexts_out::kBytes] = {};
  prm::set<prm::query_special_contexts_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_SPECIAL_CONTEXTS));
  UHCA_CHECK(cmd_.exec(in, sizeof in, out, sizeof out));
  SpecialContexts c;
  c.null_mkey = prm::get<prm::query_special_contexts_out::null_mkey>(out);
  c.dump_fill_mkey = prm::get<prm::query_special_contexts_out::dump_fill_mkey>(out);
  c.resd_lkey = prm::get<prm::query_special_contexts_out::resd_lkey>(out);
  return c;
}

Status mlx5_core_dev::create_qp(mlx5_core_qp& qp, std::vector<std::uint8_t>& in) {
  std::uint8_t out[prm::create_qp_out::kBytes] = {};
  prm::set<prm::create_qp_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::CREATE_QP));
  UHCA_CHECK(cmd_.exec(in.data(), in.size(), out, sizeof out));
  qp.qpn = prm::get<prm::create_qp_out::qpn>(out);
  qp.ece = prm::get<prm::create_qp_out::ece>(out);
  if (qps_.insert(qp.qpn, &qp)) return success();
  if (Status s = dealloc_number(prm::Opcode::DESTROY_QP, qp.qpn); !s) log::error("QP {:#x} could not be destroyed", qp.qpn);
  return refuse(ENOMEM, "QP {:#x}: no place in the table", qp.qpn);
}

Status mlx5_core_dev::destroy_qp(mlx5_core_qp& qp) {
  qps_.remove(qp.qpn, &qp);
  Status s = dealloc_number(prm::Opcode::DESTROY_QP, qp.qpn);
  if (!s) qps_.insert(qp.qpn, &qp);
  return s;
}

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/srq_cmd.h"

#include <vector>

#include "prm/cmd_qp.h"
#include "prm/queue_context.h"

namespace uhca::kernel::mlx5 {
namespace {

using prm::Opcode;

constexpr std::uint32_t kRmpReady = 1;  // rmpc.state (MLX5_RMPC_STATE_RDY)

template <class In>
void put_pages(std::vector<std::uint8_t>& in, const QueuePages& pages) {
  for (std::size_t i = 0; i < pages.pas.size(); ++i) store_be<std::uint64_t>(in.data() + In::kBytes + i * 8, pages.pas[i]);
}

Result<std::uint32_t> create_rmp(mlx5_core_dev& m, const SrqSpec& s) {
  using In = prm::create_rmp_in;
  std::vector<std::uint8_t> in(In::kBytes + s.pages.pas.size() * 8);
  std::uint8_t out[prm::create_rmp_out::kBytes] = {};
  prm::set<In::opcode>(in.data(), static_cast<std::uint16_t>(Opcode::CREATE_RMP));
  void* rmpc = prm::at<In::ctx>(in.data());
  prm::set<prm::rmpc::state>(rmpc, kRmpReady);
  void* wq = prm::at<prm::rmpc::wq>(rmpc);
  prm::set<prm::wq::wq_signature>(wq, s.signature);
  prm::set<prm::wq::pd>(wq, s.pdn);
  prm::set<prm::wq::dbr_addr>(wq, s.doorbell);
  prm::set<prm::wq::log_wq_stride>(wq, s.log_stride);
  prm::set<prm::wq::log_wq_sz>(wq, s.log_size);
  prm::set<prm::wq::log_wq_pg_sz>(wq, s.pages.log_page_size);
  prm::set<prm::wq::page_offset>(wq, s.pages.page_offset);
  put_pages<In>(in, s.pages);
  UHCA_CHECK(m.cmd().exec(in.data(), in.size(), out, sizeof out));
  return std::uint32_t{prm::get<prm::create_rmp_out::rmpn>(out)};
}

Result<std::uint32_t> create_xrc_srq(mlx5_core_dev& m, const SrqSpec& s) {
  using In = prm::create_xrc_srq_in;
  std::vector<std::uint8_t> in(In::kBytes + s.pages.pas.size() * 8);
  std::uint8_t out[prm::create_xrc_srq_out::kBytes] = {};
  prm::set<In::opcode>(in.data(), static_cast<std::uint16_t>(Opcode::CREATE_XRC_SRQ));
  void* c = prm::at<In::xrc_srq_context_entry>(in.data());
  using C = prm::xrc_srqc;
  prm::set<C::log_xrc_srq_size>(c, s.log_size);
  prm::set<C::wq_signature>(c, s.signature);
  prm::set<C::log_rq_stride>(c, s.log_stride - 4);
  prm::set<C::xrcd>(c, s.xrcdn);
  prm::set<C::page_offset>(c, s.pages.page_offset);
  prm::set<C::log_page_size>(c, s.pages.log_page_size);
  prm::set<C::cqn>(c, s.cqn);
  prm::set<C::user_index>(c, s.user_index);
  prm::set<C::pd>(c, s.pdn);
  prm::set<C::db_record_addr_h>(c, s.doorbell >> 32);
  prm::set<C::db_record_addr_l>(c, (s.doorbell & 0xffffffff) >> 2);
  put_pages<In>(in, s.pages);
  UHCA_CHECK(m.cmd().exec(in.data(), in.size(), out, sizeof out));
  return std::uint32_t{prm::get<prm::create_xrc_srq_out::xrc_srqn>(out)};
}

}  // namespace

Result<std::uint32_t> cmd_create_srq(mlx5_core_dev& m, const SrqSpec& spec) {
  return spec.kind == SrqKind::kRmp ? create_rmp(m, spec) : create_xrc_srq(m, spec);
}

Status cmd_destroy_srq(mlx5_core_dev& m, SrqKind kind, std::uint32_t srqn) {
  using In = prm::destroy_rmp_in;  // DESTROY_XRC_SRQ has the number at the same place
  static_assert(In::rmpn.offset == prm::destroy_xrc_srq_in::xrc_srqn.offset && In::kBytes == prm::destroy_xrc_srq_in::kBytes);
  std::uint8_t in[In::kBytes] = {}, out[prm::destroy_rmp_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(kind == SrqKind::kRmp ? Opcode::DESTROY_RMP : Opcode::DESTROY_XRC_SRQ));
  prm::set<In::rmpn>(in, srqn);
  return m.cmd().exec(in, sizeof in, out, sizeof out);
}

Status cmd_arm_srq(mlx5_core_dev& m, SrqKind kind, std::uint32_t srqn, std::uint16_t lwm) {
  if (kind == SrqKind::kXrc) {
    using In = prm::arm_xrc_srq_in;
    std::uint8_t in[In::kBytes] = {}, out[prm::arm_xrc_srq_out::kBytes] = {};
    prm::set<In::opcode>(in, static_cast<std::uint16_t>(Opcode::ARM_XRC_SRQ));
    prm::set<In::op_mod>(in, 1);  // MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ
    prm::set<In::xrc_srqn>(in, srqn);
    prm::set<In::lwm>(in, lwm);
    return m.cmd().exec(in, sizeof in, out, sizeof out);
  }
  using In = prm::modify_rmp_in;
  std::vector<std::uint8_t> in(In::kBytes);
  std::uint8_t out[prm::modify_rmp_out::kBytes] = {};
  prm::set<In::opcode>(in.data(), static_cast<std::uint16_t>(Opcode::MODIFY_RMP));
  prm::set<In::rmp_state>(in.data(), kRmpReady);
  prm::set<In::rmpn>(in.data(), srqn);
  prm::set<prm::rmp_bitmask::lwm>(prm::at<In::bitmask>(in.data()), 1);
  void* rmpc = prm::at<In::ctx>(in.data());
  prm::set<prm::rmpc::state>(rmpc, kRmpReady);
  prm::set<prm::wq::lwm>(prm::at<prm::rmpc::wq>(rmpc), lwm);
  return m.cmd().exec(in.data(), in.size(), out, sizeof out);
}

Result<std::uint16_t> cmd_query_srq_limit(mlx5_core_dev& m, SrqKind kind, std::uint32_t srqn) {
  using In = prm::query_rmp_in;
  static_assert(In::rmpn.offset == prm::query_xrc_srq_in::xrc_srqn.offset && In::kBytes == prm::query_xrc_srq_in::kBytes);
  std::uint8_t in[In::kBytes] = {};
  bool rmp = kind == SrqKind::kRmp;
  std::vector<std::uint8_t> out(rmp ? prm::query_rmp_out::kBytes : prm::query_xrc_srq_out::kBytes);
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(rmp ? Opcode::QUERY_RMP : Opcode::QUERY_XRC_SRQ));
  prm::set<In::rmpn>(in, srqn);
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out.data(), out.size()));
  const void* o = out.data();
  if (!rmp) return static_cast<std::uint16_t>(prm::get<prm::xrc_srqc::lwm>(prm::at<prm::query_xrc_srq_out::xrc_srq_context_entry>(o)));
  return static_cast<std::uint16_t>(prm::get<prm::wq::lwm>(prm::at<prm::rmpc::wq>(prm::at<prm::query_rmp_out::rmp_context>(o))));
}

}  // namespace uhca::kernel::mlx5

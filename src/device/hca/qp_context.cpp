// SPDX-License-Identifier: MIT
#include "device/hca/qp_context.h"

#include <cstring>

namespace uhca::hca {
namespace {

using Status = prm::CmdStatus;
using qpc_ = prm::qpc;

template <prm::Field F>
void keep(Qp& qp, const std::uint8_t* from) {
  prm::set<F>(qp.qpc.data(), prm::get<F>(from));
}

const std::uint8_t* path_of(const std::uint8_t* qpc) {
  return static_cast<const std::uint8_t*>(prm::at<prm::qpc::primary_address_path>(static_cast<const void*>(qpc)));
}
std::uint8_t* path_of(Qp& qp) {
  return static_cast<std::uint8_t*>(prm::at<prm::qpc::primary_address_path>(static_cast<void*>(qp.qpc.data())));
}

bool has_mtu(QpType t) {
  return t != QpType::kRegUmr;
}

// A QP that may talk to the world needs an address of ours; REG_UMR QPs and force-loopback paths do not.
Status check_path(Command& c, const std::uint8_t* ads) {
  if (prm::get<prm::ads::fl>(ads)) return Status::OK;
  std::uint32_t index = prm::get<prm::ads::src_addr_index>(ads);
  const auto& table = c.objects().roce_addresses;
  if (index >= table.size() || !table[index].valid) return c.refuse(Status::BAD_PARAM, "RoCE address {} is not set", index);
  return Status::OK;
}

void apply_path(Command& c, Qp& qp, const std::uint8_t* ads) {
  const RoceAddress& own = c.objects().roce_addresses[prm::get<prm::ads::src_addr_index>(ads)];
  wire::NetHeader& n = qp.path;
  n.smac = own.mac;
  n.sgid = own.gid;
  n.roce_v1 = own.version == kRoceV1;
  n.ipv6 = own.ipv6 && !n.roce_v1;
  n.vlan = own.vlan;
  if (own.vlan != 0xffff) n.vlan = static_cast<std::uint16_t>(own.vlan | prm::get<prm::ads::eth_prio>(ads) << 13);
  std::memcpy(n.dgid.data(), prm::at<prm::ads::rgid_rip>(static_cast<const void*>(ads)), 16);
  store_be<std::uint16_t>(n.dmac.data(), static_cast<std::uint16_t>(prm::get<prm::ads::rmac_47_32>(ads)));
  store_be<std::uint32_t>(n.dmac.data() + 2, prm::get<prm::ads::rmac_31_0>(ads));
  std::uint32_t tclass = prm::get<prm::ads::tclass>(ads);
  if (tclass == 0) tclass = prm::get<prm::ads::dscp>(ads) << 2 | prm::get<prm::ads::ecn>(ads);
  n.traffic_class = static_cast<std::uint8_t>(tclass);
  n.hop_limit = static_cast<std::uint8_t>(prm::get<prm::ads::hop_limit>(ads));
  n.flow_label = prm::get<prm::ads::flow_label>(ads);
  n.udp_sport = static_cast<std::uint16_t>(prm::get<prm::ads::udp_sport>(ads));
  if (n.udp_sport == 0) n.udp_sport = udp_source_port(n.flow_label, qp.qpn, qp.remote_qpn);
  qp.pkey_index = static_cast<std::uint16_t>(prm::get<prm::ads::pkey_index>(ads));
}

}  // namespace

std::uint16_t udp_source_port(std::uint32_t flow_label, std::uint32_t local_qpn, std::uint32_t remote_qpn) {
  std::uint64_t v = flow_label;
  if (v == 0) {
    v = std::uint64_t{local_qpn} * remote_qpn;
    v ^= v >> 20;
    v ^= v >> 40;
  }
  auto low = static_cast<std::uint32_t>(v & 0x3fff), high = static_cast<std::uint32_t>(v & 0xfc000);
  return static_cast<std::uint16_t>(0xc000 | ((low ^ high >> 14) & 0x3fff));
}

Status check_rtr(Command& c, const Qp& qp, const std::uint8_t* qpc) {
  unsigned mtu = prm::get<qpc_::mtu>(qpc);
  if (has_mtu(qp.type) && (mtu < 1 || mtu > 5)) return c.refuse(Status::BAD_PARAM, "MTU code {}", mtu);
  if (prm::get<qpc_::log_msg_max>(qpc) > kLogMaxMsg)
    return c.refuse(Status::BAD_PARAM, "messages of 2^{} bytes", prm::get<qpc_::log_msg_max>(qpc));
  if (is_connected(qp.type)) return check_path(c, path_of(qpc));
  return Status::OK;
}

Status check_optional(Command& c, std::uint32_t mask, const std::uint8_t* qpc) {
  if (mask & kOptAltPath) return c.refuse(Status::BAD_PARAM, "path migration is not offered");
  if (mask & kOptPrimaryPath) {
    if (Status s = check_path(c, path_of(qpc)); s != Status::OK) return s;
  }
  if (mask & kOptCqnRcv && c.objects().cq(prm::get<qpc_::cqn_rcv>(qpc)) == nullptr) return c.no_such("CQ", prm::get<qpc_::cqn_rcv>(qpc));
  if (mask & kOptSrqn && c.objects().srq(prm::get<qpc_::srqn_rmpn_xrqn>(qpc)) == nullptr)
    return c.no_such("SRQ", prm::get<qpc_::srqn_rmpn_xrqn>(qpc));
  std::uint32_t set = prm::get<qpc_::counter_set_id>(qpc);
  if (mask & kOptCounterSet && set != 0 && c.objects().counter_set(set) == nullptr) return c.no_such("counter set", set);
  return c.may_use_all({{Kind::kCq, mask & kOptCqnRcv ? prm::get<qpc_::cqn_rcv>(qpc) : 0},
                        {Kind::kSrq, mask & kOptSrqn ? prm::get<qpc_::srqn_rmpn_xrqn>(qpc) : 0},
                        {Kind::kCounterSet, mask & kOptCounterSet ? set : 0}});
}

void apply_init(Qp& qp, const std::uint8_t* qpc) {
  qp.rre = prm::get<qpc_::rre>(qpc);
  qp.rwe = prm::get<qpc_::rwe>(qpc);
  qp.rae = prm::get<qpc_::rae>(qpc);
  qp.qkey = prm::get<qpc_::q_key>(qpc);
  keep<qpc_::rre>(qp, qpc);
  keep<qpc_::rwe>(qp, qpc);
  keep<qpc_::rae>(qp, qpc);
  keep<qpc_::atomic_mode>(qp, qpc);
  keep<qpc_::q_key>(qp, qpc);
  keep<qpc_::pm_state>(qp, qpc);
  const std::uint8_t* ads = path_of(qpc);
  qp.pkey_index = static_cast<std::uint16_t>(prm::get<prm::ads::pkey_index>(ads));
  prm::set<prm::ads::pkey_index>(path_of(qp), qp.pkey_index);
  prm::set<prm::ads::vhca_port_num>(path_of(qp), prm::get<prm::ads::vhca_port_num>(ads));
}

void apply_rtr(Command& c, Qp& qp, const std::uint8_t* qpc) {
  qp.mtu_bytes = has_mtu(qp.type) ? 128u << prm::get<qpc_::mtu>(qpc) : 4096;
  qp.log_msg_max = prm::get<qpc_::log_msg_max>(qpc);
  qp.remote_qpn = prm::get<qpc_::remote_qpn>(qpc);
  qp.next_rcv_psn = prm::get<qpc_::next_rcv_psn>(qpc);
  qp.max_dest_rd_atomic = 1u << prm::get<qpc_::log_rra_max>(qpc);
  qp.min_rnr_nak = prm::get<qpc_::min_rnr_nak>(qpc);
  keep<qpc_::mtu>(qp, qpc);
  keep<qpc_::log_msg_max>(qp, qpc);
  keep<qpc_::remote_qpn>(qp, qpc);
  keep<qpc_::next_rcv_psn>(qp, qpc);
  keep<qpc_::log_rra_max>(qp, qpc);
  keep<qpc_::min_rnr_nak>(qp, qpc);
  if (is_connected(qp.type)) {
    std::uint32_t pkey_index = qp.pkey_index;  // set at INIT; here only with its mask bit
    std::memcpy(path_of(qp), path_of(qpc), prm::ads::kBytes);
    apply_path(c, qp, path_of(qpc));
    qp.pkey_index = static_cast<std::uint16_t>(pkey_index);
    prm::set<prm::ads::pkey_index>(path_of(qp), pkey_index);
    qp.ack_timeout = prm::get<prm::ads::ack_timeout>(path_of(qpc));
  }
}

void apply_rts(Qp& qp, const std::uint8_t* qpc) {
  qp.next_send_psn = prm::get<qpc_::next_send_psn>(qpc);
  qp.retry_count = prm::get<qpc_::retry_count>(qpc);
  qp.rnr_retry = prm::get<qpc_::rnr_retry>(qpc);
  qp.max_rd_atomic = 1u << prm::get<qpc_::log_sra_max>(qpc);
  qp.ack_timeout = prm::get<prm::ads::ack_timeout>(path_of(qpc));
  keep<qpc_::next_send_psn>(qp, qpc);
  keep<qpc_::retry_count>(qp, qpc);
  keep<qpc_::rnr_retry>(qp, qpc);
  keep<qpc_::log_sra_max>(qp, qpc);
  keep<qpc_::log_ack_req_freq>(qp, qpc);
  prm::set<prm::ads::ack_timeout>(path_of(qp), qp.ack_timeout);
}

void apply_optional(Command& c, Qp& qp, std::uint32_t mask, const std::uint8_t* qpc) {
  if (mask & kOptRre) {
    qp.rre = prm::get<qpc_::rre>(qpc);
    keep<qpc_::rre>(qp, qpc);
  }
  if (mask & kOptRwe) {
    qp.rwe = prm::get<qpc_::rwe>(qpc);
    keep<qpc_::rwe>(qp, qpc);
  }
  if (mask & kOptRae) {
    qp.rae = prm::get<qpc_::rae>(qpc);
    keep<qpc_::rae>(qp, qpc);
    keep<qpc_::atomic_mode>(qp, qpc);
  }
  if (mask & kOptPrimaryPath) {
    std::memcpy(path_of(qp), path_of(qpc), prm::ads::kBytes);
    apply_path(c, qp, path_of(qpc));
  }
  if (mask & kOptPkeyIndex) {
    qp.pkey_index = static_cast<std::uint16_t>(prm::get<prm::ads::pkey_index>(path_of(qpc)));
    prm::set<prm::ads::pkey_index>(path_of(qp), qp.pkey_index);
  }
  if (mask & kOptQkey) {
    qp.qkey = prm::get<qpc_::q_key>(qpc);
    keep<qpc_::q_key>(qp, qpc);
  }
  if (mask & kOptRnrTimeout) {
    qp.min_rnr_nak = prm::get<qpc_::min_rnr_nak>(qpc);
    keep<qpc_::min_rnr_nak>(qp, qpc);
  }
  if (mask & kOptSraMax) {
    qp.max_rd_atomic = 1u << prm::get<qpc_::log_sra_max>(qpc);
    keep<qpc_::log_sra_max>(qp, qpc);
  }
  if (mask & kOptRraMax) {
    qp.max_dest_rd_atomic = 1u << prm::get<qpc_::log_rra_max>(qpc);
    keep<qpc_::log_rra_max>(qp, qpc);
  }
  if (mask & kOptPmState) keep<qpc_::pm_state>(qp, qpc);
  if (mask & kOptRetryCount) {
    qp.retry_count = prm::get<qpc_::retry_count>(qpc);
    keep<qpc_::retry_count>(qp, qpc);
  }
  if (mask & kOptRnrRetry) {
    qp.rnr_retry = prm::get<qpc_::rnr_retry>(qpc);
    keep<qpc_::rnr_retry>(qp, qpc);
  }
  if (mask & kOptAckTimeout) {
    qp.ack_timeout = prm::get<prm::ads::ack_timeout>(path_of(qpc));
    prm::set<prm::ads::ack_timeout>(path_of(qp), qp.ack_timeout);
  }
  if (mask & kOptCounterSet) {
    qp.counter_set = static_cast<std::uint8_t>(prm::get<qpc_::counter_set_id>(qpc));
    keep<qpc_::counter_set_id>(qp, qpc);
  }
  if (mask & kOptCqnRcv) {
    Cq* cq = c.objects().cq(prm::get<qpc_::cqn_rcv>(qpc));
    ++cq->users;
    if (qp.recv_cq != nullptr) --qp.recv_cq->users;
    qp.recv_cq = cq;
    keep<qpc_::cqn_rcv>(qp, qpc);
  }
  if (mask & kOptSrqn && qp.srq != nullptr) {
    Srq* srq = c.objects().srq(prm::get<qpc_::srqn_rmpn_xrqn>(qpc));
    ++srq->users;
    --qp.srq->users;
    qp.srq = srq;
    qp.srqn = srq->srqn;
    keep<qpc_::srqn_rmpn_xrqn>(qp, qpc);
  }
}

void apply_reset(Qp& qp) {
  qp.remote_qpn = 0;
  qp.mtu_bytes = 1024;
  qp.qkey = 0;
  qp.rre = qp.rwe = qp.rae = false;
  qp.retry_count = qp.rnr_retry = qp.ack_timeout = qp.min_rnr_nak = 0;
  qp.max_rd_atomic = qp.max_dest_rd_atomic = 0;
  qp.next_send_psn = qp.next_rcv_psn = 0;
  qp.path = wire::NetHeader{};
  qp.pkey_index = 0;
  std::uint8_t* q = qp.qpc.data();
  std::memset(path_of(qp), 0, prm::ads::kBytes);
  prm::set<qpc_::mtu>(q, 0);
  prm::set<qpc_::log_msg_max>(q, 0);
  prm::set<qpc_::remote_qpn>(q, 0);
  prm::set<qpc_::log_sra_max>(q, 0);
  prm::set<qpc_::log_rra_max>(q, 0);
  prm::set<qpc_::retry_count>(q, 0);
  prm::set<qpc_::rnr_retry>(q, 0);
  prm::set<qpc_::next_send_psn>(q, 0);
  prm::set<qpc_::next_rcv_psn>(q, 0);
  prm::set<qpc_::min_rnr_nak>(q, 0);
  prm::set<qpc_::rre>(q, 0);
  prm::set<qpc_::rwe>(q, 0);
  prm::set<qpc_::rae>(q, 0);
  prm::set<qpc_::q_key>(q, 0);
}

}  // namespace uhca::hca

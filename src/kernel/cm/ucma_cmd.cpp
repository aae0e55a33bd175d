// SPDX-License-Identifier: MIT
#include "kernel/cm/ucma_cmd.h"

#include <algorithm>
#include <cstring>

// clang-format off
#define UHCA_PRM_sa_path_rec(F) \
  F(service_id, 0x0, 0x40, 1) \
  F(dgid, 0x40, 0x8, 16) \
  F(sgid, 0xc0, 0x8, 16) \
  F(dlid, 0x140, 0x10, 1) \
  F(slid, 0x150, 0x10, 1) \
  F(raw_traffic, 0x160, 0x1, 1) \
  F(flow_label, 0x164, 0x14, 1) \
  F(hop_limit, 0x178, 0x8, 1) \
  F(traffic_class, 0x180, 0x8, 1) \
  F(reversible, 0x188, 0x1, 1) \
  F(numb_path, 0x189, 0x7, 1) \
  F(pkey, 0x190, 0x10, 1) \
  F(qos_class, 0x1a0, 0xc, 1) \
  F(sl, 0x1ac, 0x4, 1) \
  F(mtu_selector, 0x1b0, 0x2, 1) \
  F(mtu, 0x1b2, 0x6, 1) \
  F(rate_selector, 0x1b8, 0x2, 1) \
  F(rate, 0x1ba, 0x6, 1) \
  F(packet_life_time_selector, 0x1c0, 0x2, 1) \
  F(packet_life_time, 0x1c2, 0x6, 1) \
  F(preference, 0x1c8, 0x8, 1)
UHCA_PRM_LAYOUT(sa_path_rec, 0x200)
// clang-format on

namespace uhca::kernel::cm {
namespace {
constexpr std::uint8_t kSaEqual = 2;  // IB_SA_EQ
using Rec = prm::sa_path_rec;
}  // namespace

void copy_ah_attr(::ib_uverbs_ah_attr& to, const rdma_ah_attr& from) {
  to = {};
  std::copy(from.dgid.begin(), from.dgid.end(), to.grh.dgid);
  to.grh.flow_label = from.flow_label;
  to.grh.sgid_index = from.sgid_index;
  to.grh.hop_limit = from.hop_limit;
  to.grh.traffic_class = from.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
}

void copy_qp_attr(::ib_uverbs_qp_attr& to, const ib_qp_attr& from, std::uint32_t mask) {
  to = {};
  to.qp_attr_mask = mask;
  to.qp_state = static_cast<std::uint32_t>(from.qp_state);
  to.cur_qp_state = static_cast<std::uint32_t>(from.cur_qp_state);
  to.path_mtu = from.path_mtu;
  to.path_mig_state = from.path_mig_state;
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qp_num;
  to.qp_access_flags = from.qp_access_flags;
  copy_ah_attr(to.ah_attr, from.ah_attr);
  copy_ah_attr(to.alt_ah_attr, from.alt_ah_attr);
  to.pkey_index = from.pkey_index;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port_num;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
}

void copy_path(::ib_user_path_rec& to, const PathRec& from) {
  to = {};
  std::copy(from.dgid.begin(), from.dgid.end(), to.dgid);
  std::copy(from.sgid.begin(), from.sgid.end(), to.sgid);
  to.flow_label = byteswap(from.flow_label);
  to.reversible = 1;
  to.mtu = from.mtu;
  to.pkey = byteswap(from.pkey);
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  to.sl = from.sl;
  to.mtu_selector = to.rate_selector = to.packet_life_time_selector = kSaEqual;
  to.rate = from.rate;
  to.packet_life_time = from.packet_life_time;
}

void pack_path(void* to, const PathRec& from) {
  std::memset(to, 0, Rec::kBytes);
  std::memcpy(prm::at<Rec::dgid>(to), from.dgid.data(), 16);
  std::memcpy(prm::at<Rec::sgid>(to), from.sgid.data(), 16);
  prm::set<Rec::flow_label>(to, from.flow_label);
  prm::set<Rec::hop_limit>(to, from.hop_limit);
  prm::set<Rec::traffic_class>(to, from.traffic_class);
  prm::set<Rec::reversible>(to, 1);
  prm::set<Rec::pkey>(to, from.pkey);
  prm::set<Rec::sl>(to, from.sl);
  prm::set<Rec::mtu_selector>(to, kSaEqual);
  prm::set<Rec::mtu>(to, from.mtu);
  prm::set<Rec::rate_selector>(to, kSaEqual);
  prm::set<Rec::rate>(to, from.rate);
  prm::set<Rec::packet_life_time_selector>(to, kSaEqual);
  prm::set<Rec::packet_life_time>(to, from.packet_life_time);
}

PathRec unpack_path(const void* from) {
  PathRec p;
  std::memcpy(p.dgid.data(), prm::at<Rec::dgid>(from), 16);
  std::memcpy(p.sgid.data(), prm::at<Rec::sgid>(from), 16);
  p.flow_label = prm::get<Rec::flow_label>(from);
  p.hop_limit = static_cast<std::uint8_t>(prm::get<Rec::hop_limit>(from));
  p.traffic_class = static_cast<std::uint8_t>(prm::get<Rec::traffic_class>(from));
  p.pkey = static_cast<std::uint16_t>(prm::get<Rec::pkey>(from));
  p.sl = static_cast<std::uint8_t>(prm::get<Rec::sl>(from));
  p.mtu = static_cast<std::uint8_t>(prm::get<Rec::mtu>(from));
  p.rate = static_cast<std::uint8_t>(prm::get<Rec::rate>(from));
  p.packet_life_time = static_cast<std::uint8_t>(prm::get<Rec::packet_life_time>(from));
  return p;
}

Sockaddr sockaddr_of(const void* p, std::size_t room) {
  Sockaddr a;
  std::memcpy(&a.ss, p, std::min(room, sizeof a.ss));
  if (a.size() > room) a.sa.sa_family = AF_UNSPEC;
  return a;
}

}  // namespace uhca::kernel::cm

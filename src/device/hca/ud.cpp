// SPDX-License-Identifier: MIT
#include "device/hca/ud.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/address_vector.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/hca.h"
#include "device/hca/qp_error.h"
#include "device/hca/rc_packet.h"
#include "device/hca/recv_queue.h"

namespace uhca::hca {
namespace {

// What of an Ethernet payload is not data: GRH, UDP, BTH, the largest extensions (XRCETH, AtomicETH), ICRC (Linux rdma/ib_addr.h:
// iboe_get_mtu).
constexpr unsigned kOverhead = 40 + 8 + 12 + 4 + 28 + 4;

// cqe.flags_rqpn (Linux device.h: MLX5_CQE_ROCE_L3_HEADER_TYPE_*; mlx5_ib cq.c for where it lies).
constexpr std::uint32_t kL3Ipv6 = 1u << 24, kL3Ipv4 = 2u << 24;
constexpr std::uint32_t kGrhInBuffer = 1u << 28;
constexpr std::uint32_t kControlledQkey = 1u << 31;  // IBTA 10.2.5: the QP's own Q_Key is sent instead

// The path MTU of the port: datagrams are not cut.
std::size_t port_mtu(const Lane& lane) {
  unsigned room = lane.hca.config().netdev_mtu;
  for (unsigned mtu = 4096; mtu > 256; mtu /= 2)
    if (room >= mtu + kOverhead) return mtu;
  return 256;
}

std::size_t max_payload(const Lane& lane, const Qp& qp) {
  return std::min<std::size_t>(qp.mtu_bytes, port_mtu(lane));
}

// The held WQE fails, and with it the queue (IBTA 9.9.3: a local error of the receive queue).
void fail_receive(Lane& lane, Qp& qp, const WcError& error) {
  fail_held_recv(lane, qp, error);
  enter_error(lane, qp);
}

}  // namespace

WcError check_datagram(const Lane& lane, const Qp& qp, const SendWqe& w) {
  if (w.av_at == 0) return {};  // NOP
  wire::NetHeader path;
  if (!resolve_path(lane, qp, w, path)) return kLocalQpOp;
  if (w.length > max_payload(lane, qp)) {
    static_cast<void>(refuse(EMSGSIZE, "QP {:#x}: datagram of {} bytes, at most {} (QP {}, port {})", qp.qpn, w.length,
                             max_payload(lane, qp), qp.mtu_bytes, port_mtu(lane)));
    return kLocalLength;
  }
  return {};
}

std::byte* begin_datagram(Lane& lane, const Qp& qp, const SendWqe& w, wire::Packet& p, bool imm, std::uint32_t psn, std::size_t payload) {
  const std::uint8_t* av = av_of(w);
  p.bth.dest_qp = prm::get<prm::wqe_av::dqp_dct>(av);
  // An address that was removed since the check leaves zeros: nobody answers to them.
  resolve_path(lane, qp, w, p.net);
  if (qp.type == QpType::kQp1) p.net.udp_sport = detour(p.net.udp_sport, psn);  // MADs that are sent again go another way
  p.net.identification = static_cast<std::uint16_t>(psn);
  std::uint32_t qkey = prm::get<prm::wqe_av::qkey>(av);
  p.deth.qkey = (qkey & kControlledQkey) != 0 ? qp.qkey : qkey;
  p.deth.src_qp = qp.type == QpType::kQp1 ? kGsiQpn : qp.deth_sqpn != 0 ? qp.deth_sqpn : qp.qpn;
  p.bth.opcode = wire::make_opcode(wire::Service::kUD, imm ? wire::Op::kSendOnlyImm : wire::Op::kSendOnly);
  p.bth.psn = psn;
  return begin_headers(lane, p, payload);
}

void loop_back_multicast(Lane& lane, const Qp& qp, const wire::Packet& p) {
  if (!lane.objects.multicast.contains(p.net.dgid)) return;
  const std::byte* frame = lane.tx_frame.data();
  lane.multicast_loopback.push_back({std::vector<std::byte>(frame, frame + wire::frame_size(p)), qp.block_lb_mc ? qp.qpn : 0});
}

bool deliver_loopback(Lane& lane) {
  if (lane.multicast_loopback.empty()) return false;
  for (const LoopbackCopy& copy : std::exchange(lane.multicast_loopback, {})) {
    wire::Packet p;
    if (wire::parse(copy.frame, p) == wire::ParseError::kNone) receive_multicast(lane, p, copy.except_qpn);
  }
  lane.settle();
  return true;
}

const char* wrong_datagram(Lane& lane, const Qp& qp, const wire::Packet& p) {
  if (wire::service_of(p.bth.opcode) != wire::Service::kUD) return "service: the QP's is UD";
  if ((p.bth.pkey & 0x7fff) != 0x7fff) return "P_Key";
  if (p.bth.dest_qp != kMulticastQpn && !own_address(lane, p.net.dgid)) return "destination address: none of this port";
  if (p.deth.qkey != qp.qkey) {
    ++lane.counters.rx_bad_qkey;
    return "Q_Key";
  }
  return nullptr;
}

void receive_datagram(Lane& lane, Qp& qp, const wire::Packet& p) {
  switch (take_recv_wqe(lane, qp, qp.srq)) {
    case TakeWqe::kTaken: break;
    case TakeWqe::kNone: count<Qc::out_of_buffer>(lane, qp); return;
    case TakeWqe::kUnreadable: fail_receive(lane, qp, kLocalProtScatter); return;
  }
  const RecvWqe& w = qp.transport->resp.recv_wqe;
  std::size_t total = kGrhBytes + p.payload.size();
  if (total > w.length) {
    count<Qc::resp_local_length_error>(lane, qp);
    static_cast<void>(refuse(EMSGSIZE, "QP {:#x}: datagram of {} bytes and a GRH of 40 for receive WQE {} with room for {}", qp.qpn,
                             p.payload.size(), w.index, w.length));
    fail_receive(lane, qp, kLocalLength);
    return;
  }
  std::array<std::byte, kGrhBytes> grh;
  wire::emit_grh(p, grh);
  if (!scatter_recv(lane, qp, 0, grh.data(), grh.size(), false) ||
      !scatter_recv(lane, qp, grh.size(), p.payload.data(), p.payload.size(), true)) {
    count<Qc::resp_local_protection>(lane, qp);
    fail_receive(lane, qp, kLocalProtScatter);
    return;
  }
  bool imm = wire::has(wire::info(p.bth.opcode).props, wire::Prop::kImm);
  Cqe c;
  c.opcode = imm ? prm::CqeOpcode::RESP_SEND_IMM : prm::CqeOpcode::RESP_SEND;
  c.byte_cnt = static_cast<std::uint32_t>(total);
  c.imm = imm ? p.imm : qp.type == QpType::kQp1 ? p.bth.pkey : 0;
  c.flags_rqpn = p.deth.src_qp | kGrhInBuffer | (p.net.ipv6 ? kL3Ipv6 : kL3Ipv4);
  c.vlan = p.net.vlan;
  c.solicited = p.bth.solicited;
  complete_recv(lane, qp, c);
}

void receive_multicast(Lane& lane, const wire::Packet& p, std::uint32_t except_qpn) {
  auto group = lane.objects.multicast.find(p.net.dgid);
  if (group == lane.objects.multicast.end()) {
    ++lane.counters.rx_no_qp;
    return;
  }
  for (std::uint32_t qpn : group->second) {
    Qp* qp = lane.objects.qp(qpn);
    if (qp == nullptr || qpn == except_qpn || !takes_frames(qp->state)) continue;
    if (const char* why = wrong_datagram(lane, *qp, p)) {
      ++lane.counters.rx_wrong_path;
      static_cast<void>(refuse(EADDRNOTAVAIL, "multicast from QPN {:#x} for QPN {:#x} dropped: wrong {}", p.deth.src_qp, qpn, why));
      continue;
    }
    receive_datagram(lane, *qp, p);
  }
}

}  // namespace uhca::hca

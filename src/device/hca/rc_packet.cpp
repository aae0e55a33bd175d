// SPDX-License-Identifier: MIT
#include "device/hca/rc_packet.h"

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/host_packet.h"

namespace uhca::hca {

wire::Service service_of(QpType t) {
  switch (t) {
    case QpType::kUc: return wire::Service::kUC;
    case QpType::kXrc: return wire::Service::kXRC;
    case QpType::kDci:
    case QpType::kDctSession: return wire::Service::kDC;
    case QpType::kUd:
    case QpType::kQp1: return wire::Service::kUD;
    default: return wire::Service::kRC;
  }
}

std::uint16_t detour(std::uint16_t udp_sport, unsigned n) {
  return static_cast<std::uint16_t>(0xc000 | (udp_sport + n * 0x100));  // eight in a row are the eight sockets of wire/net/udp.h
}

void address_packet(const Qp& qp, wire::Packet& p, wire::Op op, std::uint32_t psn) {
  p.net = qp.path;
  if (unsigned n = qp.transport->detours) p.net.udp_sport = detour(p.net.udp_sport, n);
  p.net.identification = static_cast<std::uint16_t>(psn);
  p.bth.opcode = wire::make_opcode(service_of(qp.type), op);
  p.bth.dest_qp = qp.remote_qpn;
  p.bth.psn = psn & wire::kPsnMask;
  p.dc_eth = {qp.dc_key, qp.dc_session, qp.qpn, qp.dc_start_psn};  // a DCI's requests carry it
}

std::byte* begin_packet(Lane& lane, const Qp& qp, wire::PeerFunction* peer, wire::Packet& p, wire::Op op, std::uint32_t psn,
                        std::size_t payload) {
  address_packet(qp, p, op, psn);
  if (peer != nullptr) {
    lane.host_out = peer;
    p.payload = std::span<const std::byte>(lane.tx_frame.data(), payload);  // only its size counts
    return begin_host_packet(lane, *peer, qp, p, static_cast<std::uint32_t>(payload));
  }
  if (payload > 0) p.net.traffic_class = data_traffic_class(lane, qp.path);
  return begin_headers(lane, p, payload);
}

std::byte* begin_headers(Lane& lane, wire::Packet& p, std::size_t payload) {
  lane.host_out = nullptr;
  p.bth.pkey = 0xffff;  // the one entry of a RoCE port's table
  p.bth.pad_count = static_cast<std::uint8_t>(-payload & 3);
  p.payload = std::span<const std::byte>(lane.tx_frame.data(), payload);  // only its size counts
  return lane.tx_frame.data() + wire::emit_headers(p, lane.tx_frame);
}

Tx finish_packet(Lane& lane, const Qp& qp, const wire::Packet& p) {
  if (lane.host_out == nullptr) return finish_packet(lane, qp.qpn, p);
  commit_host_packet(lane, qp, p);
  return Tx::kSent;
}

Tx finish_packet(Lane& lane, std::uint32_t qpn, const wire::Packet& p) {
  std::size_t size = wire::seal(p, lane.tx_frame);
  wire::Frame frame(lane.tx_frame.data(), size);
  wire::Send sent = lane.port.send(frame);
  if (sent == wire::Send::kBusy) {
    ++lane.counters.tx_busy;
    return Tx::kBusy;
  }
  lane.frames_wait = true;
  if (wire::has(wire::info(p.bth.opcode).props, wire::Prop::kRequest)) lane.requests_wait = true;
  ++lane.counters.tx_frames;
  lane.counters.rdma_tx.add(frame);
  lane.counters.port_tx.add(frame);
  if (trace::on()) {
    trace::Event("frame", "tx")
        .str("opcode", wire::info(p.bth.opcode).name)
        .hex("qpn", qpn)
        .hex("dest_qpn", p.bth.dest_qp)
        .unum("psn", p.bth.psn)
        .unum("len", p.payload.size())
        .flag("ack_req", p.bth.ack_req)
        .flag("unreachable", sent == wire::Send::kUnreachable);
  }
  if (trace::capturing()) trace::capture(frame);
  if (sent == wire::Send::kUnreachable) {
    static_cast<void>(
        refuse(EHOSTUNREACH, "QP {:#x}: packet PSN {} to QPN {:#x}: the port knows no way to its address", qpn, p.bth.psn, p.bth.dest_qp));
  }
  return Tx::kSent;
}

}  // namespace uhca::hca

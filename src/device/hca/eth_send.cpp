// SPDX-License-Identifier: MIT
#include "device/hca/eth_send.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/eth_packet.h"
#include "device/hca/eth_recv.h"
#include "device/hca/hca.h"
#include "device/hca/raw_queue.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

constexpr unsigned kFramesPerTurn = 64;

std::uint32_t transport_domain(Lane& lane, const RawQueue& sq) {
  auto it = lane.objects.tises.find(sq.tisn);
  return it == lane.objects.tises.end() ? 0 : prm::get<prm::tisc::transport_domain>(it->second.context.data());
}

// A station's own addresses: the vport's, and what its driver put into the unicast list.
bool is_own_address(const VportState& v, wire::Frame f) {
  std::uint64_t mac = load_be<std::uint64_t>(f.data()) >> 16;
  const auto& list = v.lists[0];
  return mac == v.mac || std::find(list.begin(), list.end(), mac) != list.end();
}

// What the vport's part of the switch does with a frame: out of the port, to this vport's own receivers (local loopback), or both.
wire::Send transmit(Lane& lane, const RawQueue& sq, wire::Frame f) {
  const VportState& v = lane.objects.vport;
  if (lane.objects.port.admin_status != 1) {
    ++lane.counters.tx_discards;
    return wire::Send::kSent;
  }
  bool group = is_group_address(f);
  bool own = !group && !v.disable_uc_lb && is_own_address(v, f);
  if (!own || lane.hca.config().shares_mac) {
    wire::Send s = lane.port.send_ethernet(f);
    if (s == wire::Send::kBusy) {
      ++lane.counters.tx_busy;
      return s;
    }
    lane.counters.port_tx.add(f);
    lane.frames_wait = lane.requests_wait = true;
  }
  lane.counters.vport_tx.add(f);
  if (trace::on()) trace::Event("frame", "tx").hex("sqn", sq.number).str("opcode", "ETHERNET").unum("len", f.size()).flag("own", own);
  if (trace::capturing()) trace::capture(f);
  if (own || (group && !v.disable_mc_lb)) receive_ethernet(lane, f, transport_domain(lane, sq));
  return wire::Send::kSent;
}

void complete(Lane& lane, RawQueue& sq, const SendWqe& w) {
  if (w.fm_ce_se & prm::kWqeCtrlCqUpdate) {
    std::uint8_t e[prm::cqe64::kBytes] = {};
    write_raw_cqe(lane, sq, prm::CqeOpcode::REQ, w.opcode, e);
  }
  sq.hw_counter = static_cast<std::uint16_t>(sq.hw_counter + w.bbs);
  sq.segments_sent = 0;
}

void fail(Lane& lane, RawQueue& sq, const SendWqe& w, prm::CqeSyndrome syndrome, const char* why) {
  static_cast<void>(refuse(EINVAL, "SQ {:#x}: WQE {}: {}", sq.number, sq.hw_counter, why));
  fail_raw_queue(lane, sq, w.opcode, syndrome);
}

enum class Progress : std::uint8_t { kDone, kBusy, kFailed };

// Sends the packets of the WQE that have not been sent yet.
Progress send_packets(Lane& lane, RawQueue& sq, const EthSendWqe& w, unsigned& budget) {
  for (std::uint32_t n = packets_of(w); sq.segments_sent < n; ++sq.segments_sent) {
    if (budget == 0) return Progress::kBusy;
    --budget;
    std::size_t size = 0;
    switch (build_packet(lane, sq, w, sq.segments_sent, lane.tx_frame, &size)) {
      case BuildFault::kNone: break;
      case BuildFault::kMemory: fail(lane, sq, w.wqe, prm::CqeSyndrome::LOCAL_PROT, "its data is not readable"); return Progress::kFailed;
      case BuildFault::kTooLong:
        // As an adapter does: the packet is lost, the WQE completes.
        ++lane.counters.tx_discards;
        static_cast<void>(refuse(EMSGSIZE, "SQ {:#x}: WQE {}: a frame of {} bytes dropped", sq.number, sq.hw_counter, w.length()));
        continue;
    }
    if (transmit(lane, sq, {lane.tx_frame.data(), size}) == wire::Send::kBusy) return Progress::kBusy;
  }
  return Progress::kDone;
}

}  // namespace

bool run_send_queue(Lane& lane, RawQueue& sq) {
  if (sq.state != RawQueue::State::kReady || sq.sending) return false;
  sq.sending = true;
  bool did = false;
  unsigned budget = kFramesPerTurn;
  EthSendWqe& w = lane.eth.send_wqe;
  while (sq.hw_counter != sq.sw_counter) {
    const char* why = nullptr;
    WqeFault fault = fetch_eth_wqe(lane.bus, sq, sq.hw_counter, static_cast<std::uint16_t>(sq.sw_counter - sq.hw_counter), w, &why);
    bool nop = static_cast<prm::WqeOpcode>(w.wqe.opcode) == prm::WqeOpcode::NOP;
    if (fault == WqeFault::kNone && !nop && sq.tisn == 0) {
      fault = WqeFault::kMalformed;
      why = "a packet on a queue without a TIS";
    }
    if (fault != WqeFault::kNone) {
      fail(lane, sq, w.wqe, fault == WqeFault::kUnreadable ? prm::CqeSyndrome::LOCAL_PROT : prm::CqeSyndrome::LOCAL_QP_OP, why);
      did = true;
      break;
    }
    Progress p = nop ? Progress::kDone : send_packets(lane, sq, w, budget);
    did = did || budget < kFramesPerTurn;
    if (p == Progress::kBusy) {
      lane.eth.schedule(sq);
      break;
    }
    did = true;
    if (p == Progress::kFailed) break;
    complete(lane, sq, w.wqe);
  }
  sq.sending = false;
  return did;
}

bool run_send_queues(Lane& lane) {
  bool did = false;
  for (std::size_t n = lane.eth.work.size(); n > 0 && !lane.eth.work.empty(); --n) {
    RawQueue& sq = *lane.eth.work.front();
    lane.eth.work.pop_front();
    if (run_send_queue(lane, sq)) did = true;
  }
  return did;
}

}  // namespace uhca::hca

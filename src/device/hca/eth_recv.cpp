// SPDX-License-Identifier: MIT
#include "device/hca/eth_recv.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/eth_headers.h"
#include "device/hca/hca.h"
#include "device/hca/inet_sum.h"
#include "device/hca/raw_queue.h"
#include "device/hca/rss.h"
#include "device/hca/segments.h"
#include "device/hca/ud.h"
#include "wire/net/peek.h"

namespace uhca::hca {
namespace {

constexpr std::size_t kFcs = 4;
constexpr std::size_t kAddresses = 12;
// tirc.disp_type (Linux mlx5_ifc.h: MLX5_TIRC_DISP_TYPE_*).
constexpr unsigned kIndirect = 1;
// tirc.self_lb_block. Its name and MLX5_TIRC_SELF_LB_BLOCK_* notwithstanding, drivers set a bit to allow what comes from the TIR's own
// transport domain (mlx5_ib: MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_*; mlx5e's loopback self-test), and leave it 0 to block.
enum SelfLoopback : unsigned { kAllowUnicast = 1, kAllowMulticast = 2 };
// cqe64.hds_ip_ext and .l4_hdr_type_etc (Linux device.h: CQE_L*_OK, CQE_L3_HDR_TYPE_*, CQE_L4_HDR_TYPE_*).
enum HeaderOk : unsigned { kL2Ok = 1 << 0, kL3Ok = 1 << 1, kL4Ok = 1 << 2 };
enum HeaderType : unsigned {
  kVlanStripped = 1 << 0,
  kL3Ipv6 = 1 << 2,
  kL3Ipv4 = 2 << 2,
  kTcpNoAck = 1 << 4,
  kUdp = 2 << 4,
  kTcpAckNoData = 3 << 4,
  kTcpAckData = 4 << 4
};

bool ip_header_ok(const std::uint8_t* p, const EthHeaders& h) {
  if (h.cut) return false;
  if (h.l3 == L3::kIpv4) return InetSum().add(p + h.l3_at, (p[h.l3_at] & 0xfu) * 4).value() == 0xffff;
  return h.l3 == L3::kIpv6;
}

bool l4_ok(wire::Frame f, const std::uint8_t* p, const EthHeaders& h) {
  if (h.l4 == L4::kNone || h.cut) return false;
  if (h.l4 == L4::kUdp && h.l3 == L3::kIpv4 && load_be<std::uint16_t>(p + h.l4_at + 6) == 0) return true;
  return l4_sum(f, h, h.l3_end) == 0xffff;
}

unsigned header_type(const std::uint8_t* p, const EthHeaders& h) {
  unsigned t = h.l3 == L3::kIpv4 ? kL3Ipv4 : h.l3 == L3::kIpv6 ? kL3Ipv6 : 0u;
  if (h.l4 == L4::kUdp) return t | kUdp;
  if (h.l4 != L4::kTcp) return t;
  bool ack = (p[h.l4_at + 13] & 0x10) != 0;
  if (!ack) return t | kTcpNoAck;
  return t | (h.payload < h.l3_end ? kTcpAckData : kTcpAckNoData);
}

// The parsed frame, once for all of its receivers.
struct Received {
  wire::Frame frame;
  EthHeaders h;
  unsigned ok = 0;
  std::uint16_t sum = 0;  // ones' complement sum of the IP packet (without IP: of everything behind the Ethernet header and its tags)
};

Received look_at(wire::Frame f, const EthHeaders& h) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(f.data());
  Received r{f, h};
  r.ok = kL2Ok | (ip_header_ok(p, h) ? kL3Ok : 0u) | (l4_ok(f, p, h) ? kL4Ok : 0u);
  r.sum = InetSum().add(p + h.l3_at, h.l3_end - h.l3_at).value();
  return r;
}

void no_buffer(Lane& lane, RawQueue& rq) {
  lane.counters.totals.add<Qc::out_of_buffer>();
  if (CounterSet* set = lane.objects.counter_set(prm::get<prm::rqc::counter_set_id>(rq.context.data()))) set->add<Qc::out_of_buffer>();
}

void fill_cqe(std::uint8_t* e, const Received& r, const RssHash& hash, std::size_t bytes, bool stripped, std::uint32_t tag) {
  using c = prm::cqe64;
  const auto* p = reinterpret_cast<const std::uint8_t*>(r.frame.data());
  prm::set<c::rss_hash_result>(e, hash.value);
  prm::set<c::rss_hash_type>(e, hash.type);
  prm::set<c::check_sum>(e, r.sum);
  prm::set<c::hds_ip_ext>(e, r.ok);
  prm::set<c::l4_hdr_type_etc>(e, header_type(p, r.h) | (stripped ? kVlanStripped : 0u));
  if (stripped) prm::set<c::vlan_info>(e, r.h.tags[0].tci);
  prm::set<c::byte_cnt>(e, bytes);
  prm::set<c::qpn>(e, tag);
}

void receive_into(Lane& lane, RawQueue& rq, const Received& r, const RssHash& hash, std::uint32_t tag) {
  if (rq.state != RawQueue::State::kReady) {
    ++lane.counters.rx_discards;
    return;
  }
  if (rq.hw_counter == rq.sw_counter && (!refresh_posted(lane, rq) || rq.hw_counter == rq.sw_counter)) {
    no_buffer(lane, rq);
    return;
  }
  RecvWqe& w = lane.eth.recv_wqe;
  const char* why = nullptr;
  if (fetch_rq_wqe(lane.bus, rq, rq.hw_counter, w, &why) != WqeFault::kNone) {
    static_cast<void>(refuse(EFAULT, "RQ {:#x}: WQE {}: {}", rq.number, rq.hw_counter, why));
    fail_raw_queue(lane, rq, 0, prm::CqeSyndrome::LOCAL_PROT);
    return;
  }
  bool strip = !prm::get<prm::rqc::vsd>(rq.context.data()) && r.h.ntags > 0 && r.h.tags[0].type == kEtherCvlan;
  std::size_t skip = strip ? kVlanTag : 0, bytes = r.frame.size() - skip;
  if (bytes > w.length) {
    static_cast<void>(refuse(EMSGSIZE, "RQ {:#x}: a frame of {} bytes for a WQE of {}", rq.number, bytes, w.length));
    fail_raw_queue(lane, rq, 0, prm::CqeSyndrome::LOCAL_LENGTH);
    return;
  }
  auto put = [&](std::uint64_t off, const std::byte* from, std::size_t len) {
    return scatter(lane, key_user(rq), "Ethernet receive", {w.segs.data(), w.nsegs}, off, from, len, false);
  };
  bool placed = strip ? put(0, r.frame.data(), kAddresses) && put(kAddresses, r.frame.data() + kAddresses + skip, bytes - kAddresses)
                      : put(0, r.frame.data(), bytes);
  if (!placed) {
    fail_raw_queue(lane, rq, 0, prm::CqeSyndrome::LOCAL_PROT);
    return;
  }
  std::uint8_t e[prm::cqe64::kBytes] = {};
  fill_cqe(e, r, hash, bytes, strip, tag);
  write_raw_cqe(lane, rq, prm::CqeOpcode::RESP_SEND, 0, e);
  ++rq.hw_counter;
}

bool blocked(const void* tirc, wire::Frame f, std::uint32_t sender) {
  if (prm::get<prm::tirc::transport_domain>(tirc) != sender) return false;
  unsigned allowed = prm::get<prm::tirc::self_lb_block>(tirc);
  return (allowed & (is_group_address(f) ? kAllowMulticast : kAllowUnicast)) == 0;
}

void deliver(Lane& lane, const Received& r, const Steering::Delivery& to, std::optional<std::uint32_t> sender) {
  auto tir = lane.objects.tirs.find(to.tirn);
  if (tir == lane.objects.tirs.end()) return;
  const void* tirc = tir->second.context.data();
  if (sender && blocked(tirc, r.frame, *sender)) return;
  RssHash hash = rss_hash(tirc, r.frame, r.h);
  std::uint32_t rqn = prm::get<prm::tirc::inline_rqn>(tirc);
  if (prm::get<prm::tirc::disp_type>(tirc) == kIndirect) {
    auto rqt = lane.objects.rqts.find(prm::get<prm::tirc::indirect_table>(tirc));
    if (rqt == lane.objects.rqts.end() || rqt->second.rqns.empty()) return;
    rqn = rqt->second.rqns[hash.value % rqt->second.rqns.size()];
  }
  if (RawQueue* rq = lane.objects.raw_queue(rqn); rq != nullptr && !rq->send) receive_into(lane, *rq, r, hash, to.flow_tag);
}

bool for_this_station(Lane& lane, wire::Frame f) {
  if (is_group_address(f)) return true;
  wire::Mac mac;
  std::memcpy(mac.data(), f.data(), mac.size());
  if (load_be<std::uint64_t>(f.data()) >> 16 == lane.objects.vport.mac) return true;
  return std::any_of(lane.objects.roce_addresses.begin(), lane.objects.roce_addresses.end(),
                     [&](const RoceAddress& a) { return a.valid && a.mac == mac; });
}

}  // namespace

bool is_for_rdma(Lane& lane, wire::Frame f) {
  if (!lane.objects.steering.has_root(kFlowNicReceive)) return true;
  wire::Route route;
  if (!lane.objects.vport.roce_en || !wire::peek_route(f, route)) return false;
  // Where functions share an address, a RoCE frame is for whoever has the QP: its sender need not even know the address.
  if (!lane.hca.config().shares_mac && !for_this_station(lane, f)) return false;
  if (route.dest_qp == kGsiQpn) return lane.objects.gsi != nullptr;
  if (route.dest_qp == kMulticastQpn) return true;
  return lane.objects.qp(route.dest_qp) != nullptr || lane.objects.dct(route.dest_qp) != nullptr;
}

void receive_ethernet(Lane& lane, wire::Frame f, std::optional<std::uint32_t> sender) {
  bool oversize = f.size() + kFcs > lane.objects.port.admin_mtu;
  if (f.size() < kMacHeader || oversize || lane.objects.port.admin_status != 1) {
    ++lane.counters.rx_discards;
    return;
  }
  lane.counters.vport_rx.add(f);
  if (trace::on()) trace::Event("frame", "rx").str("opcode", "ETHERNET").unum("len", f.size()).flag("own", sender.has_value());
  EthHeaders h = parse_ethernet(f);
  Steering::Deliveries& to = lane.eth.deliveries;
  lane.objects.steering.walk(kFlowNicReceive, match_words(f, h), f.size(), to);
  if (to.n == 0) return;
  Received r = look_at(f, h);
  for (unsigned i = 0; i < to.n; ++i) deliver(lane, r, to.to[i], sender);
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
// ACCESS_REG: port and device registers. Numbers: Linux mlx5/driver.h (MLX5_REG_*).
#include <algorithm>
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "prm/event.h"
#include "prm/reg.h"

namespace uhca::hca::cmd {
namespace {

constexpr std::uint8_t kEventPortChange = 0x09, kSubtypeDown = 1, kSubtypeActive = 4;
constexpr std::uint32_t kEthernet = 4;           // ptys_reg.proto_mask
constexpr std::uint32_t k100GbaseCr4 = 1 << 20;  // ptys_reg.eth_proto_*: bit MLX5E_100GBASE_CR4
constexpr std::uint8_t kUp = 1, kDown = 2;       // paos_reg

constexpr std::uint64_t kFcs = 4;

// One access: `data` is the register as the driver sent it, and what is answered.
struct Access {
  Command& c;
  bool write;
  std::uint8_t* data;
  std::size_t len;

  template <prm::Field F>
  auto get() const {
    return prm::get<F>(data);
  }
  template <prm::Field F>
  void set(std::uint64_t v) {
    prm::set<F>(data, v);
  }
};

std::uint16_t max_mtu() {
  return static_cast<std::uint16_t>(wire::kMaxFrame);
}

Status host_endianness(Access& a) {
  if (a.write) a.c.st.port.host_endianness = a.get<prm::register_host_endianness::he>();
  a.set<prm::register_host_endianness::he>(a.c.st.port.host_endianness);
  return Status::OK;
}

Status ptys(Access& a) {
  PortState& p = a.c.st.port;
  using f = prm::ptys_reg;
  std::uint32_t mask = a.get<f::proto_mask>();
  if (a.write) {
    if (!(mask & kEthernet)) return a.c.refuse(Status::BAD_PARAM, "PTYS: protocol mask {:#x}", mask);
    std::uint32_t admin = a.get<f::eth_proto_admin>();
    if (admin & ~k100GbaseCr4) return a.c.refuse(Status::BAD_PARAM, "PTYS: speeds {:#x} are not supported", admin);
    p.eth_proto_admin = admin;
    p.an_disable_admin = a.get<f::an_disable_admin>();
  }
  std::memset(a.data, 0, a.len);
  a.set<f::local_port>(1);
  a.set<f::proto_mask>(mask);
  a.set<f::an_disable_cap>(1);
  a.set<f::an_disable_admin>(p.an_disable_admin);
  a.set<f::eth_proto_capability>(k100GbaseCr4);
  a.set<f::eth_proto_admin>(p.eth_proto_admin != 0 ? p.eth_proto_admin : k100GbaseCr4);
  a.set<f::eth_proto_oper>(p.admin_status == kUp ? k100GbaseCr4 : 0);
  return Status::OK;
}

Status paos(Access& a) {
  PortState& p = a.c.st.port;
  using f = prm::paos_reg;
  if (a.write && a.get<f::ase>()) {
    unsigned admin = a.get<f::admin_status>();
    if (admin != kUp && admin != kDown) return a.c.refuse(Status::BAD_PARAM, "PAOS: admin status {}", admin);
    bool changed = p.admin_status != admin;
    p.admin_status = static_cast<std::uint8_t>(admin);
    if (changed) port_change_event(a.c.hca, admin == kUp);
  }
  a.set<f::admin_status>(p.admin_status);
  a.set<f::oper_status>(p.admin_status);
  return Status::OK;
}

Status pmtu(Access& a) {
  PortState& p = a.c.st.port;
  using f = prm::pmtu_reg;
  if (a.write) {
    std::uint32_t mtu = a.get<f::admin_mtu>();
    if (mtu < 64 || mtu > max_mtu()) return a.c.refuse(Status::BAD_PARAM, "PMTU: {} bytes of at most {}", mtu, max_mtu());
    p.admin_mtu = static_cast<std::uint16_t>(mtu);
  }
  a.set<f::max_mtu>(max_mtu());
  a.set<f::admin_mtu>(p.admin_mtu);
  a.set<f::oper_mtu>(std::min(p.admin_mtu, max_mtu()));
  return Status::OK;
}

// Flow control is kept as set; this wire has no pause frames, so nothing ever pauses.
Status pfcc(Access& a) {
  PortState& p = a.c.st.port;
  using f = prm::pfcc_reg;
  if (a.write) {
    auto tx = static_cast<std::uint8_t>(a.get<f::prio_mask_tx>()), rx = static_cast<std::uint8_t>(a.get<f::prio_mask_rx>());
    p.priority_pause_tx = static_cast<std::uint8_t>((p.priority_pause_tx & ~tx) | (a.get<f::pfctx>() & tx));
    p.priority_pause_rx = static_cast<std::uint8_t>((p.priority_pause_rx & ~rx) | (a.get<f::pfcrx>() & rx));
    if (!a.get<f::pptx_mask_n>()) p.pause_tx = a.get<f::pptx>();
    if (!a.get<f::pprx_mask_n>()) p.pause_rx = a.get<f::pprx>();
  }
  std::memset(a.data, 0, a.len);
  a.set<f::local_port>(1);
  a.set<f::pptx>(p.pause_tx);
  a.set<f::pprx>(p.pause_rx);
  a.set<f::pfctx>(p.priority_pause_tx);
  a.set<f::pfcrx>(p.priority_pause_rx);
  return Status::OK;
}

Status mcia(Access& a) {
  constexpr unsigned kNoEeprom = 1;
  if (a.write) return a.c.refuse(Status::BAD_PARAM, "MCIA: there is no module to write to");
  a.set<prm::mcia_reg::status>(kNoEeprom);
  return Status::OK;
}

Status pmlp(Access& a) {
  if (a.write) return a.c.refuse(Status::BAD_PARAM, "PMLP: the module mapping is fixed");
  a.set<prm::pmlp_reg::width>(4);
  for (unsigned lane = 0; lane < 4; ++lane) store_be<std::uint32_t>(a.data + 4 + lane * 4, lane << 16);  // module 0, lane `lane`
  return Status::OK;
}

template <prm::Field High>
void put64(std::uint8_t* set, std::uint64_t v) {
  store_be<std::uint64_t>(set + High.offset / 8, v);
}

Status ppcnt(Access& a) {
  const Counters& now = a.c.hca.data_path().counters();
  Counters& base = a.c.st.port_counters_base;
  using f = prm::ppcnt_reg;
  if (a.get<f::clr>()) base = now;
  unsigned group = a.get<f::grp>();
  auto* set = static_cast<std::uint8_t*>(prm::at<f::counter_set>(static_cast<void*>(a.data)));
  std::memset(set, 0, f::counter_set.width / 8);
  Traffic tx = now.port_tx.since(base.port_tx), rx = now.port_rx.since(base.port_rx);
  std::uint64_t errors = now.rx_malformed + now.rx_bad_icrc - base.rx_malformed - base.rx_bad_icrc;
  std::uint64_t rx_discards = now.rx_discards - base.rx_discards, tx_discards = now.tx_discards - base.tx_discards;
  // Management counters include the FCS.
  std::uint64_t tx_octets = tx.all_octets() + tx.all_packets() * kFcs, rx_octets = rx.all_octets() + rx.all_packets() * kFcs;
  switch (group) {
    case 0x0: {
      using g = prm::eth_802_3_cntrs_grp_data_layout;
      put64<g::a_frames_transmitted_ok_high>(set, tx.all_packets());
      put64<g::a_frames_received_ok_high>(set, rx.all_packets());
      put64<g::a_octets_transmitted_ok_high>(set, tx_octets);
      put64<g::a_octets_received_ok_high>(set, rx_octets);
      put64<g::a_multicast_frames_xmitted_ok_high>(set, tx.packets[Traffic::kMulticast]);
      put64<g::a_broadcast_frames_xmitted_ok_high>(set, tx.packets[Traffic::kBroadcast]);
      put64<g::a_multicast_frames_received_ok_high>(set, rx.packets[Traffic::kMulticast]);
      put64<g::a_broadcast_frames_received_ok_high>(set, rx.packets[Traffic::kBroadcast]);
      return Status::OK;
    }
    case 0x1: {
      using g = prm::eth_2863_cntrs_grp_data_layout;
      put64<g::if_in_octets_high>(set, rx_octets);
      put64<g::if_in_ucast_pkts_high>(set, rx.packets[Traffic::kUnicast]);
      put64<g::if_in_multicast_pkts_high>(set, rx.packets[Traffic::kMulticast]);
      put64<g::if_in_broadcast_pkts_high>(set, rx.packets[Traffic::kBroadcast]);
      put64<g::if_in_discards_high>(set, rx_discards);
      put64<g::if_in_errors_high>(set, errors);
      put64<g::if_out_octets_high>(set, tx_octets);
      put64<g::if_out_ucast_pkts_high>(set, tx.packets[Traffic::kUnicast]);
      put64<g::if_out_multicast_pkts_high>(set, tx.packets[Traffic::kMulticast]);
      put64<g::if_out_broadcast_pkts_high>(set, tx.packets[Traffic::kBroadcast]);
      put64<g::if_out_discards_high>(set, tx_discards);
      return Status::OK;
    }
    case 0x2: {
      using g = prm::eth_2819_cntrs_grp_data_layout;
      put64<g::ether_stats_drop_events_high>(set, rx_discards);
      put64<g::ether_stats_octets_high>(set, rx_octets);
      put64<g::ether_stats_pkts_high>(set, rx.all_packets());
      put64<g::ether_stats_broadcast_pkts_high>(set, rx.packets[Traffic::kBroadcast]);
      put64<g::ether_stats_multicast_pkts_high>(set, rx.packets[Traffic::kMulticast]);
      // Ten counters in a row, from 64 octets to 8192 and more.
      for (std::size_t i = 0; i < rx.by_size.size(); ++i)
        store_be<std::uint64_t>(set + g::ether_stats_pkts64octets_high.offset / 8 + i * 8, rx.by_size[i]);
      return Status::OK;
    }
    // Everything is of priority 0.
    case 0x10: {
      using g = prm::eth_per_prio_grp_data_layout;
      if (a.get<f::prio_tc>() != 0) return Status::OK;
      put64<g::rx_octets_high>(set, rx_octets);
      put64<g::rx_frames_high>(set, rx.all_packets());
      put64<g::tx_octets_high>(set, tx_octets);
      put64<g::tx_frames_high>(set, tx.all_packets());
      return Status::OK;
    }
    // What this port has nothing to count for: RFC 3635, extended, per traffic class, physical layer, InfiniBand.
    case 0x3:
    case 0x5:
    case 0x11:
    case 0x12:
    case 0x16:
    case 0x20: return Status::OK;
    default: return a.c.refuse(Status::BAD_PARAM, "PPCNT: group {:#x}", group);
  }
}

Status node_desc(Access& a) {
  if (a.write) std::memcpy(a.c.st.port.node_desc.data(), a.data, 64);
  std::memcpy(a.data, a.c.st.port.node_desc.data(), 64);
  return Status::OK;
}

struct Register {
  std::uint16_t id;
  const char* name;
  std::size_t bytes;
  bool per_port;  // local_port in bits 8..15
  Status (*access)(Access&);
};
// PCAM, MCAM and QCAM are absent as the capabilities pcam_reg, mcam_reg and qcam_reg say.
constexpr Register kRegisters[] = {
    {0x7004, "HOST_ENDIANNESS", prm::register_host_endianness::kBytes, false, host_endianness},
    {0x5004, "PTYS", prm::ptys_reg::kBytes, true, ptys},
    {0x5006, "PAOS", prm::paos_reg::kBytes, true, paos},
    {0x5003, "PMTU", prm::pmtu_reg::kBytes, true, pmtu},
    {0x5002, "PMLP", prm::pmlp_reg::kBytes, true, pmlp},
    {0x5007, "PFCC", prm::pfcc_reg::kBytes, true, pfcc},
    {0x5008, "PPCNT", prm::ppcnt_reg::kBytes, true, ppcnt},
    {0x6001, "NODE_DESC", 64, false, node_desc},
    {0x9014, "MCIA", prm::mcia_reg::kBytes, false, mcia},
};

}  // namespace

void port_change_event(Hca& hca, bool up) {
  std::uint8_t data[prm::port_state_change_event::kBytes]{};
  prm::set<prm::port_state_change_event::port_num>(data, 1);
  hca.data_path().async_event(kEventPortChange, up ? kSubtypeActive : kSubtypeDown, data, sizeof data);
}

Status access_reg(Command& c) {
  std::uint32_t id = c.get<prm::access_register_in::register_id>();
  if (c.op_mod() > 1) return c.refuse(Status::BAD_PARAM, "op_mod {}", c.op_mod());
  for (const Register& r : kRegisters) {
    if (r.id != id) continue;
    constexpr std::size_t kHead = prm::access_register_in::kBytes;
    if (c.in_bytes.size() < kHead + r.bytes) return c.refuse(Status::BAD_INP_LEN, "{}: {} bytes of input", r.name, c.in_bytes.size());
    if (c.out_bytes.size() < kHead + r.bytes)
      return c.refuse(Status::BAD_OUTP_LEN, "{}: room for {} bytes of output", r.name, c.out_bytes.size());
    std::memcpy(c.out() + kHead, c.in() + kHead, r.bytes);
    Access a{c, c.op_mod() == 0, c.out() + kHead, r.bytes};
    if (r.per_port && prm::get<prm::paos_reg::local_port>(a.data) != 1)
      return c.refuse(Status::BAD_PARAM, "{}: no port {}", r.name, prm::get<prm::paos_reg::local_port>(a.data));
    return r.access(a);
  }
  return c.refuse(Status::BAD_PARAM, "no register {:#x}", id);
}

}  // namespace uhca::hca::cmd

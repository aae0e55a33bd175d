// SPDX-License-Identifier: MIT
#include "device/hca/control.h"

#include <algorithm>
#include <cstring>

namespace uhca::hca {

Control::Control(const HcaConfig& c, Objects& objects) : config(c), vport(objects.vport), port(objects.port), caps(c) {
  reset();
}

void Control::forget_objects() {
  pds.reset();
  uars.reset();
  transport_domains.reset();
  xrcds.reset();
  for (NumberPool* p : {&counter_ids, &mkey_indexes, &eqns, &cqns, &srqns, &raw_queue_numbers, &tisns, &tirns, &rqtns, &table_ids,
                        &group_ids, &flow_counter_ids, &umem_ids})
    p->reset();
  next_block = 0;
  next_qpn = end_qpn = 0;
  freed_qpns.clear();
  l2_table.clear();
  umems.clear();
  qos.reset();
  ownership.forget_objects();
}

void Control::reset() {
  forget_objects();
  enabled = initialized = false;
  issi = 0;
  caps = Caps(config);
  pages.clear();
  page_set.clear();
  driver_version.clear();
  std::uint64_t mac = 0;
  for (std::uint8_t b : config.mac) mac = mac << 8 | b;
  vport = VportState{};
  vport.mac = mac;
  // What Linux calls the hardware MTU: Ethernet header, one VLAN tag, FCS.
  vport.mtu = static_cast<std::uint16_t>(std::min<unsigned>(config.netdev_mtu + 22, 0xffff));
  vport.node_guid = vport.system_image_guid = vport.port_guid = config.node_guid;
  port = PortState{};
  port_counters_base = Counters{};
  port.admin_mtu = vport.mtu;
  static constexpr char kDesc[] = "uhca ConnectX-class HCA";
  std::memcpy(port.node_desc.data(), kDesc, sizeof kDesc);
}

std::size_t Control::live() const {
  return pds.size() + uars.size() + transport_domains.size() + xrcds.size() + umems.size() + qos.elements.size() + qos.av_mappings.size() +
         ownership.users();
}

std::optional<std::uint32_t> Control::take_qpn(QpnLease& lease) {
  if (next_qpn == end_qpn && next_block == qpn_blocks.size()) {
    // Prefer a further block to a number that was in use a moment ago, but not without bound.
    bool room = qpn_blocks.size() < (std::size_t{1} << kLogMaxQp) / kQpnBlock;
    if (room && (freed_qpns.size() < kQpnBlock / 2)) {
      if (std::uint32_t first = lease.lease_block(); first != 0) qpn_blocks.push_back(first);
    }
  }
  if (next_qpn == end_qpn && next_block < qpn_blocks.size()) {
    next_qpn = qpn_blocks[next_block++];
    end_qpn = next_qpn + kQpnBlock;
  }
  if (next_qpn != end_qpn) return next_qpn++;
  if (freed_qpns.empty()) return std::nullopt;
  std::uint32_t n = freed_qpns.front();
  freed_qpns.pop_front();
  return n;
}

}  // namespace uhca::hca

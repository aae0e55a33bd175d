// SPDX-License-Identifier: MIT
// The vport: MAC, MTU, GUIDs, RoCE on and off, address lists, state, counters; the RoCE address table.
#include <algorithm>
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"

namespace uhca::hca::cmd {
namespace {

constexpr std::uint8_t kEventNicVportChange = 0x0d;
constexpr unsigned kMinInlineL2 = 1;  // Linux mlx5/vport.h: MLX5_INLINE_MODE_L2
constexpr std::size_t kListMax[3] = {1u << 7, 1u << 11, 1u << 12};

// other_vport and vport_number lie at the same place in all of them.
Status other_vport(Command& c) {
  if (!c.get<prm::query_nic_vport_context_in::other_vport>()) return Status::OK;
  return c.refuse(Status::BAD_PARAM, "no vport {}", c.get<prm::query_nic_vport_context_in::vport_number>());
}

void put_mac(void* layout, std::uint64_t mac) {
  prm::set<prm::mac_address_layout::mac_addr_47_32>(layout, mac >> 32 & 0xffff);
  prm::set<prm::mac_address_layout::mac_addr_31_0>(layout, mac & 0xffffffff);
}
std::uint64_t get_mac(const void* layout) {
  return std::uint64_t{prm::get<prm::mac_address_layout::mac_addr_47_32>(layout)} << 32 |
         prm::get<prm::mac_address_layout::mac_addr_31_0>(layout);
}

Status take_list(Command& c, const std::uint8_t* ctx, std::vector<std::uint64_t>& list, unsigned& type) {
  type = prm::get<prm::nic_vport_context::allowed_list_type>(ctx);
  if (type > 2) return c.refuse(Status::BAD_PARAM, "list type {}", type);
  std::uint32_t n = prm::get<prm::nic_vport_context::allowed_list_size>(ctx);
  auto raw = c.tail(prm::modify_nic_vport_context_in::kBytes);
  if (n > kListMax[type]) return c.refuse(Status::LIM, "{} entries in list {}", n, type);
  if (n > raw.size() / 8) return c.refuse(Status::BAD_INP_LEN, "{} entries announced, {} in the list", n, raw.size() / 8);
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint8_t* p = raw.data() + i * 8;
    list.push_back(type == 2 ? prm::get<prm::vlan_layout::vlan>(p) : get_mac(p));
  }
  return Status::OK;
}

// Datagrams dropped for their Q_Key, as far as 16 bits go (IBTA 14.2.5.6: PortInfo.Q_KeyViolations).
std::uint16_t qkey_violations(Command& c) {
  return static_cast<std::uint16_t>(std::min<std::uint64_t>(c.hca.data_path().counters().rx_bad_qkey, 0xffff));
}

}  // namespace

Status query_nic_vport_context(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  unsigned type = c.get<prm::query_nic_vport_context_in::allowed_list_type>();
  if (type > 2) return c.refuse(Status::BAD_PARAM, "list type {}", type);
  const VportState& v = c.st.vport;
  void* ctx = c.out_at<prm::query_nic_vport_context_out::nic_vport_context>();
  using f = prm::nic_vport_context;
  prm::set<f::min_wqe_inline_mode>(ctx, kMinInlineL2);
  prm::set<f::roce_en>(ctx, v.roce_en);
  prm::set<f::disable_uc_local_lb>(ctx, v.disable_uc_lb);
  prm::set<f::disable_mc_local_lb>(ctx, v.disable_mc_lb);
  prm::set<f::mtu>(ctx, v.mtu);
  prm::set<f::system_image_guid>(ctx, v.system_image_guid);
  prm::set<f::port_guid>(ctx, v.port_guid);
  prm::set<f::node_guid>(ctx, v.node_guid);
  prm::set<f::qkey_violation_counter>(ctx, qkey_violations(c));
  prm::set<f::promisc_uc>(ctx, v.promisc_uc);
  prm::set<f::promisc_mc>(ctx, v.promisc_mc);
  prm::set<f::promisc_all>(ctx, v.promisc_all);
  put_mac(prm::at<f::permanent_address>(ctx), v.mac);
  prm::set<f::allowed_list_type>(ctx, type);
  prm::set<f::allowed_list_size>(ctx, v.lists[type].size());
  std::size_t at = prm::query_nic_vport_context_out::kBytes;
  for (std::uint64_t e : v.lists[type]) {
    if (at + 8 > c.out_bytes.size()) break;
    if (type == 2) {
      prm::set<prm::vlan_layout::vlan>(c.out() + at, e);
    } else {
      put_mac(c.out() + at, e);
    }
    at += 8;
  }
  return Status::OK;
}

Status modify_nic_vport_context(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  std::uint8_t select[4];
  store_be<std::uint32_t>(select, c.get<prm::modify_nic_vport_context_in::field_select>());
  using sel = prm::modify_nic_vport_field_select;
  using f = prm::nic_vport_context;
  const std::uint8_t* ctx = c.at<prm::modify_nic_vport_context_in::nic_vport_context>();
  if (prm::get<sel::affiliation>(select)) return c.refuse(Status::BAD_PARAM, "multi-port RoCE is not offered");
  if (prm::get<sel::min_inline>(select)) return c.refuse(Status::BAD_PARAM, "the inline mode is fixed");
  std::vector<std::uint64_t> list;
  unsigned type = 0;
  if (prm::get<sel::addresses_list>(select)) {
    if (Status s = take_list(c, ctx, list, type); s != Status::OK) return s;
  }
  if (prm::get<sel::mtu>(select)) {
    unsigned mtu = prm::get<f::mtu>(ctx);
    if (mtu < 64) return c.refuse(Status::BAD_PARAM, "MTU {}", mtu);
    c.st.vport.mtu = static_cast<std::uint16_t>(mtu);
  }
  VportState& v = c.st.vport;
  if (prm::get<sel::addresses_list>(select)) v.lists[type] = std::move(list);
  if (prm::get<sel::roce_en>(select)) v.roce_en = prm::get<f::roce_en>(ctx);
  if (prm::get<sel::permanent_address>(select)) v.mac = get_mac(prm::at<f::permanent_address>(static_cast<const void*>(ctx)));
  if (prm::get<sel::node_guid>(select)) v.node_guid = prm::get<f::node_guid>(ctx);
  if (prm::get<sel::port_guid>(select)) v.port_guid = prm::get<f::port_guid>(ctx);
  if (prm::get<sel::disable_uc_local_lb>(select)) v.disable_uc_lb = prm::get<f::disable_uc_local_lb>(ctx);
  if (prm::get<sel::disable_mc_local_lb>(select)) v.disable_mc_lb = prm::get<f::disable_mc_local_lb>(ctx);
  if (prm::get<sel::promisc>(select)) {
    v.promisc_uc = prm::get<f::promisc_uc>(ctx);
    v.promisc_mc = prm::get<f::promisc_mc>(ctx);
    v.promisc_all = prm::get<f::promisc_all>(ctx);
  }
  // An armed change event tells the manager of the eswitch: once, then it must be armed again.
  bool changed = prm::get<sel::addresses_list>(select) || prm::get<sel::promisc>(select) || prm::get<sel::mtu>(select);
  if (changed && v.change_events != 0) {
    v.change_events = 0;
    std::uint8_t data[28]{};
    c.hca.data_path().async_event(kEventNicVportChange, 0, data, sizeof data);
  }
  if (prm::get<sel::change_event>(select))
    v.change_events = prm::get<f::arm_change_event>(ctx) ? load_be<std::uint32_t>(ctx + 4) & 0x1f : 0;
  return Status::OK;
}

Status query_vport_state(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  bool up = c.st.port.admin_status == 1 && c.st.vport.admin_state != 0;
  c.set<prm::query_vport_state_out::admin_state>(c.st.vport.admin_state);
  c.set<prm::query_vport_state_out::state>(up);
  return Status::OK;
}

Status modify_vport_state(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  std::uint32_t state = c.get<prm::modify_vport_state_in::admin_state>();
  if (state > 2) return c.refuse(Status::BAD_PARAM, "admin state {}", state);
  bool was_up = c.st.vport.admin_state != 0;
  c.st.vport.admin_state = static_cast<std::uint8_t>(state);
  if (was_up != (state != 0)) port_change_event(c.hca, state != 0);
  return Status::OK;
}

Status query_vport_counter(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  const Counters& now = c.hca.data_path().counters();
  Counters& base = c.st.port_counters_base;
  auto put = [](void* at, std::uint64_t packets, std::uint64_t octets) {
    prm::set<prm::traffic_counter::packets>(at, packets);
    prm::set<prm::traffic_counter::octets>(at, octets);
  };
  using o = prm::query_vport_counter_out;
  put(c.out_at<o::received_errors>(), now.rx_malformed + now.rx_bad_icrc - base.rx_malformed - base.rx_bad_icrc, 0);
  put(c.out_at<o::transmit_errors>(), now.tx_discards - base.tx_discards, 0);
  Traffic rx = now.rdma_rx.since(base.rdma_rx), tx = now.rdma_tx.since(base.rdma_tx);
  put(c.out_at<o::received_ib_unicast>(), rx.packets[Traffic::kUnicast], rx.octets[Traffic::kUnicast]);
  put(c.out_at<o::received_ib_multicast>(), rx.packets[Traffic::kMulticast], rx.octets[Traffic::kMulticast]);
  put(c.out_at<o::transmitted_ib_unicast>(), tx.packets[Traffic::kUnicast], tx.octets[Traffic::kUnicast]);
  put(c.out_at<o::transmitted_ib_multicast>(), tx.packets[Traffic::kMulticast], tx.octets[Traffic::kMulticast]);
  rx = now.vport_rx.since(base.vport_rx);
  tx = now.vport_tx.since(base.vport_tx);
  put(c.out_at<o::received_eth_unicast>(), rx.packets[Traffic::kUnicast], rx.octets[Traffic::kUnicast]);
  put(c.out_at<o::received_eth_multicast>(), rx.packets[Traffic::kMulticast], rx.octets[Traffic::kMulticast]);
  put(c.out_at<o::received_eth_broadcast>(), rx.packets[Traffic::kBroadcast], rx.octets[Traffic::kBroadcast]);
  put(c.out_at<o::transmitted_eth_unicast>(), tx.packets[Traffic::kUnicast], tx.octets[Traffic::kUnicast]);
  put(c.out_at<o::transmitted_eth_multicast>(), tx.packets[Traffic::kMulticast], tx.octets[Traffic::kMulticast]);
  put(c.out_at<o::transmitted_eth_broadcast>(), tx.packets[Traffic::kBroadcast], tx.octets[Traffic::kBroadcast]);
  if (c.get<prm::query_vport_counter_in::clear>()) base = now;
  return Status::OK;
}

Status query_hca_vport_context(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  void* ctx = c.out_at<prm::query_hca_vport_context_out::hca_vport_context>();
  using f = prm::hca_vport_context;
  bool up = c.st.port.admin_status == 1;
  prm::set<f::grh_required>(ctx, 1);
  prm::set<f::port_physical_state>(ctx, up ? 5 : 3);  // IBTA: LinkUp, Disabled
  prm::set<f::port_state>(ctx, up ? 4 : 1);           // Active, Down
  prm::set<f::vport_state>(ctx, up ? 4 : 1);
  prm::set<f::system_image_guid>(ctx, c.st.vport.system_image_guid);
  prm::set<f::port_guid>(ctx, c.st.vport.port_guid);
  prm::set<f::node_guid>(ctx, c.st.vport.node_guid);
  prm::set<f::qkey_violation_counter>(ctx, qkey_violations(c));
  return Status::OK;
}

// Index 0xffff: the whole table.
Status query_hca_vport_gid(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  const auto& table = c.objects().roce_addresses;
  std::size_t first = c.get<prm::query_hca_vport_gid_in::gid_index>(), n = 1;
  if (first == 0xffff) {
    first = 0;
    n = table.size();
  }
  if (first >= table.size()) return c.refuse(Status::BAD_PARAM, "GID index {}", first);
  n = std::min(n, (c.out_bytes.size() - prm::query_hca_vport_gid_out::kBytes) / 16);
  for (std::size_t i = 0; i < n; ++i) std::memcpy(c.out() + prm::query_hca_vport_gid_out::kBytes + i * 16, table[first + i].gid.data(), 16);
  c.set<prm::query_hca_vport_gid_out::gids_num>(n);
  return Status::OK;
}

// RoCE has one partition: index 0 is 0xffff, the rest of the table is empty.
Status query_hca_vport_pkey(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  std::uint32_t index = c.get<prm::query_hca_vport_pkey_in::pkey_index>();
  if (index != 0xffff && index >= 128) return c.refuse(Status::BAD_PARAM, "P_Key index {}", index);
  if (c.out_bytes.size() < prm::query_hca_vport_pkey_out::kBytes + 4)
    return c.refuse(Status::BAD_OUTP_LEN, "room for {} bytes of output", c.out_bytes.size());
  if (index == 0 || index == 0xffff) prm::set<prm::pkey::pkey_>(c.out() + prm::query_hca_vport_pkey_out::kBytes, 0xffff);
  return Status::OK;
}

Status set_roce_address(Command& c) {
  std::uint32_t index = c.get<prm::set_roce_address_in::roce_address_index>();
  auto& table = c.objects().roce_addresses;
  if (index >= table.size()) return c.refuse(Status::BAD_PARAM, "RoCE address index {} of {}", index, table.size());
  const std::uint8_t* a = c.at<prm::set_roce_address_in::roce_address>();
  RoceAddress r;
  std::memcpy(r.gid.data(), a, r.gid.size());
  r.valid = r.gid != wire::Gid{};  // drivers clear an entry by writing zeros
  r.version = static_cast<std::uint8_t>(prm::get<prm::roce_addr_layout::roce_version>(a));
  unsigned l3 = prm::get<prm::roce_addr_layout::roce_l3_type>(a);
  if (r.valid && r.version != kRoceV1 && r.version != kRoceV2)
    return c.refuse(Status::BAD_PARAM, "RoCE version code {} is not offered", r.version);
  if (l3 > 1) return c.refuse(Status::BAD_PARAM, "roce_l3_type {}", l3);
  r.ipv6 = l3 == 1;
  store_be<std::uint16_t>(r.mac.data(), static_cast<std::uint16_t>(prm::get<prm::roce_addr_layout::source_mac_47_32>(a)));
  store_be<std::uint32_t>(r.mac.data() + 2, prm::get<prm::roce_addr_layout::source_mac_31_0>(a));
  if (prm::get<prm::roce_addr_layout::vlan_valid>(a)) r.vlan = static_cast<std::uint16_t>(prm::get<prm::roce_addr_layout::vlan_id>(a));
  table[index] = r;
  return Status::OK;
}

Status query_roce_address(Command& c) {
  std::uint32_t index = c.get<prm::query_roce_address_in::roce_address_index>();
  const auto& table = c.objects().roce_addresses;
  if (index >= table.size()) return c.refuse(Status::BAD_PARAM, "RoCE address index {} of {}", index, table.size());
  const RoceAddress& r = table[index];
  std::uint8_t* a = c.out_at<prm::query_roce_address_out::roce_address>();
  std::memcpy(a, r.gid.data(), r.gid.size());
  prm::set<prm::roce_addr_layout::roce_version>(a, r.version);
  prm::set<prm::roce_addr_layout::roce_l3_type>(a, r.ipv6);
  prm::set<prm::roce_addr_layout::source_mac_47_32>(a, load_be<std::uint16_t>(r.mac.data()));
  prm::set<prm::roce_addr_layout::source_mac_31_0>(a, load_be<std::uint32_t>(r.mac.data() + 2));
  prm::set<prm::roce_addr_layout::vlan_valid>(a, r.vlan != 0xffff);
  if (r.vlan != 0xffff) prm::set<prm::roce_addr_layout::vlan_id>(a, r.vlan);
  return Status::OK;
}

Status set_l2_table_entry(Command& c) {
  std::uint32_t index = c.get<prm::set_l2_table_entry_in::table_index>();
  if (index >= 1u << kLogMaxL2Table) return c.refuse(Status::BAD_PARAM, "L2 table index {}", index);
  c.st.l2_table[index] = get_mac(c.at<prm::set_l2_table_entry_in::mac_address>());
  return Status::OK;
}

Status delete_l2_table_entry(Command& c) {
  std::uint32_t index = c.get<prm::delete_l2_table_entry_in::table_index>();
  if (c.st.l2_table.erase(index) == 0) return c.refuse(Status::BAD_RES, "no L2 table entry {}", index);
  return Status::OK;
}

}  // namespace uhca::hca::cmd

// SPDX-License-Identifier: MIT
// Port registers, vport context, RoCE addresses. Linux: core/port.c, vport.c, lib/gid.c.
#include <cstring>
#include <vector>

#include "kernel/mlx5_core/mlx5_core.h"
#include "prm/cmd_vport.h"
#include "prm/reg.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint16_t kRegPmtu = 0x5003, kRegPtys = 0x5004;
constexpr std::uint32_t kProtoEthernet = 1 << 2;  // ptys.proto_mask
constexpr std::uint16_t kRegWrite = 0, kRegRead = 1;
constexpr std::uint32_t kL3Ipv4 = 0, kL3Ipv6 = 1;  // roce_l3_type
constexpr std::uint32_t kRoceV1 = 0, kRoceV2 = 2;  // roce_version

}  // namespace

Status mlx5_core_dev::access_reg(std::uint16_t id, bool write, void* data, std::size_t len) {
  std::vector<std::uint8_t> in(prm::access_register_in::kBytes + len), out(prm::access_register_out::kBytes + len);
  prm::set<prm::access_register_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::ACCESS_REG));
  prm::set<prm::access_register_in::op_mod>(in.data(), write ? kRegWrite : kRegRead);
  prm::set<prm::access_register_in::register_id>(in.data(), id);
  std::memcpy(in.data() + prm::access_register_in::kBytes, data, len);
  UHCA_CHECK(cmd_.exec(in.data(), in.size(), out.data(), out.size()));
  std::memcpy(data, out.data() + prm::access_register_out::kBytes, len);
  return success();
}

Result<mlx5_core_dev::PortSpeed> mlx5_core_dev::query_port_speed() {
  std::uint8_t reg[prm::ptys_reg::kBytes] = {};
  prm::set<prm::ptys_reg::local_port>(reg, 1);
  prm::set<prm::ptys_reg::proto_mask>(reg, kProtoEthernet);
  UHCA_CHECK(access_reg(kRegPtys, false, reg, sizeof reg));
  PortSpeed s;
  s.eth_proto_oper = prm::get<prm::ptys_reg::eth_proto_oper>(reg);
  s.ext_eth_proto_oper = prm::get<prm::ptys_reg::ext_eth_proto_oper>(reg);
  s.data_rate_oper = static_cast<std::uint16_t>(prm::get<prm::ptys_reg::data_rate_oper>(reg));
  return s;
}

Result<std::uint16_t> mlx5_core_dev::query_port_mtu() {
  std::uint8_t reg[prm::pmtu_reg::kBytes] = {};
  prm::set<prm::pmtu_reg::local_port>(reg, 1);
  UHCA_CHECK(access_reg(kRegPmtu, false, reg, sizeof reg));
  return static_cast<std::uint16_t>(prm::get<prm::pmtu_reg::oper_mtu>(reg));
}

Result<mlx5_core_dev::VportState> mlx5_core_dev::query_vport_state() {
  std::uint8_t in[prm::query_vport_state_in::kBytes] = {}, out[prm::query_vport_state_out::kBytes] = {};
  prm::set<prm::query_vport_state_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_VPORT_STATE));
  UHCA_CHECK(cmd_.exec(in, sizeof in, out, sizeof out));
  return VportState{prm::get<prm::query_vport_state_out::admin_state>(out) == 1, prm::get<prm::query_vport_state_out::state>(out) == 1};
}

Result<NicVportContext> mlx5_core_dev::query_nic_vport() {
  std::uint8_t in[prm::query_nic_vport_context_in::kBytes] = {}, out[prm::query_nic_vport_context_out::kBytes] = {};
  prm::set<prm::query_nic_vport_context_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_NIC_VPORT_CONTEXT));
  UHCA_CHECK(cmd_.exec(in, sizeof in, out, sizeof out));
  const void* ctx = prm::at<prm::query_nic_vport_context_out::nic_vport_context>(static_cast<const void*>(out));
  NicVportContext v;
  v.system_image_guid = prm::get<prm::nic_vport_context::system_image_guid>(ctx);
  v.node_guid = prm::get<prm::nic_vport_context::node_guid>(ctx);
  v.mtu = static_cast<std::uint16_t>(prm::get<prm::nic_vport_context::mtu>(ctx));
  v.min_inline = static_cast<std::uint8_t>(prm::get<prm::nic_vport_context::min_wqe_inline_mode>(ctx));
  v.roce_en = prm::get<prm::nic_vport_context::roce_en>(ctx) != 0;
  // mac_address_layout: two reserved bytes, then the address.
  std::memcpy(v.mac.data(), static_cast<const std::uint8_t*>(prm::at<prm::nic_vport_context::permanent_address>(ctx)) + 2, 6);
  return v;
}

Status mlx5_core_dev::set_roce(bool on) {
  std::vector<std::uint8_t> in(prm::modify_nic_vport_context_in::kBytes);
  std::uint8_t out[prm::modify_nic_vport_context_out::kBytes] = {};
  prm::set<prm::modify_nic_vport_context_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::MODIFY_NIC_VPORT_CONTEXT));
  prm::set<prm::modify_nic_vport_field_select::roce_en>(prm::at<prm::modify_nic_vport_context_in::field_select>(in.data()), 1);
  prm::set<prm::nic_vport_context::roce_en>(prm::at<prm::modify_nic_vport_context_in::nic_vport_context>(in.data()), on);
  return cmd_.exec(in.data(), in.size(), out, sizeof out);
}

Status mlx5_core_dev::set_roce_address(std::uint16_t index, const RoceAddressEntry& e) {
  std::uint8_t in[prm::set_roce_address_in::kBytes] = {}, out[prm::set_roce_address_out::kBytes] = {};
  prm::set<prm::set_roce_address_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::SET_ROCE_ADDRESS));
  prm::set<prm::set_roce_address_in::roce_address_index>(in, index);
  if (e.valid) {
    void* a = prm::at<prm::set_roce_address_in::roce_address>(in);
    prm::set<prm::roce_addr_layout::roce_l3_type>(a, e.ipv6 ? kL3Ipv6 : kL3Ipv4);
    prm::set<prm::roce_addr_layout::roce_version>(a, e.v2 ? kRoceV2 : kRoceV1);
    prm::set<prm::roce_addr_layout::source_mac_47_32>(a, e.mac[0] << 8 | e.mac[1]);
    std::memcpy(static_cast<std::uint8_t*>(a) + prm::byte_of<prm::roce_addr_layout::source_mac_31_0>, e.mac.data() + 2, 4);
    std::memcpy(prm::at<prm::roce_addr_layout::source_l3_address>(a), e.gid.data(), 16);
  }
  return cmd_.exec(in, sizeof in, out, sizeof out);
}

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
// Commands of the port and the vport: RoCE addresses, vport contexts, counters.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_mac_address_layout(F) \
  F(mac_addr_47_32, 0x10, 0x10, 1) \
  F(mac_addr_31_0, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(mac_address_layout, 0x40)

#define UHCA_PRM_vlan_layout(F) \
  F(vlan, 0x14, 0xc, 1)
UHCA_PRM_LAYOUT(vlan_layout, 0x40)

#define UHCA_PRM_roce_addr_layout(F) \
  F(source_l3_address, 0x0, 0x8, 16) \
  F(vlan_valid, 0x83, 0x1, 1) \
  F(vlan_id, 0x84, 0xc, 1) \
  F(source_mac_47_32, 0x90, 0x10, 1) \
  F(source_mac_31_0, 0xa0, 0x20, 1) \
  F(roce_l3_type, 0xd4, 0x4, 1) \
  F(roce_version, 0xd8, 0x8, 1)
UHCA_PRM_LAYOUT(roce_addr_layout, 0x100)

#define UHCA_PRM_set_roce_address_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(roce_address_index, 0x40, 0x10, 1) \
  F(vhca_port_num, 0x5c, 0x4, 1) \
  F(roce_address, 0x80, 0x100, 1)
UHCA_PRM_LAYOUT(set_roce_address_in, 0x180)

#define UHCA_PRM_set_roce_address_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_roce_address_out, 0x80)

#define UHCA_PRM_query_roce_address_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(roce_address_index, 0x40, 0x10, 1) \
  F(vhca_port_num, 0x5c, 0x4, 1)
UHCA_PRM_LAYOUT(query_roce_address_in, 0x80)

#define UHCA_PRM_query_roce_address_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(roce_address, 0x80, 0x100, 1)
UHCA_PRM_LAYOUT(query_roce_address_out, 0x180)

#define UHCA_PRM_nic_vport_context(F) \
  F(min_wqe_inline_mode, 0x5, 0x3, 1) \
  F(disable_mc_local_lb, 0x1d, 0x1, 1) \
  F(disable_uc_local_lb, 0x1e, 0x1, 1) \
  F(roce_en, 0x1f, 0x1, 1) \
  F(arm_change_event, 0x20, 0x1, 1) \
  F(event_on_mtu, 0x3b, 0x1, 1) \
  F(event_on_promisc_change, 0x3c, 0x1, 1) \
  F(event_on_vlan_change, 0x3d, 0x1, 1) \
  F(event_on_mc_address_change, 0x3e, 0x1, 1) \
  F(event_on_uc_address_change, 0x3f, 0x1, 1) \
  F(vhca_id_type, 0x40, 0x1, 1) \
  F(affiliation_criteria, 0x4c, 0x4, 1) \
  F(affiliated_vhca_id, 0x50, 0x10, 1) \
  F(mtu, 0x130, 0x10, 1) \
  F(system_image_guid, 0x140, 0x40, 1) \
  F(port_guid, 0x180, 0x40, 1) \
  F(node_guid, 0x1c0, 0x40, 1) \
  F(qkey_violation_counter, 0x340, 0x10, 1) \
  F(promisc_uc, 0x780, 0x1, 1) \
  F(promisc_mc, 0x781, 0x1, 1) \
  F(promisc_all, 0x782, 0x1, 1) \
  F(allowed_list_type, 0x785, 0x3, 1) \
  F(allowed_list_size, 0x794, 0xc, 1) \
  F(permanent_address, 0x7a0, 0x40, 1) \
  F(current_uc_mac_address, 0x800, 0x40, 0)
UHCA_PRM_LAYOUT(nic_vport_context, 0x800)

#define UHCA_PRM_modify_nic_vport_field_select(F) \
  F(affiliation, 0x12, 0x1, 1) \
  F(disable_uc_local_lb, 0x14, 0x1, 1) \
  F(disable_mc_local_lb, 0x15, 0x1, 1) \
  F(node_guid, 0x16, 0x1, 1) \
  F(port_guid, 0x17, 0x1, 1) \
  F(min_inline, 0x18, 0x1, 1) \
  F(mtu, 0x19, 0x1, 1) \
  F(change_event, 0x1a, 0x1, 1) \
  F(promisc, 0x1b, 0x1, 1) \
  F(permanent_address, 0x1c, 0x1, 1) \
  F(addresses_list, 0x1d, 0x1, 1) \
  F(roce_en, 0x1e, 0x1, 1)
UHCA_PRM_LAYOUT(modify_nic_vport_field_select, 0x20)

#define UHCA_PRM_query_nic_vport_context_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(allowed_list_type, 0x65, 0x3, 1)
UHCA_PRM_LAYOUT(query_nic_vport_context_in, 0x80)

#define UHCA_PRM_query_nic_vport_context_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(nic_vport_context, 0x80, 0x800, 1)
UHCA_PRM_LAYOUT(query_nic_vport_context_out, 0x880)

#define UHCA_PRM_modify_nic_vport_context_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(field_select, 0x60, 0x20, 1) \
  F(nic_vport_context, 0x800, 0x800, 1)
UHCA_PRM_LAYOUT(modify_nic_vport_context_in, 0x1000)

#define UHCA_PRM_modify_nic_vport_context_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_nic_vport_context_out, 0x80)

#define UHCA_PRM_query_vport_state_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(query_vport_state_in, 0x80)

#define UHCA_PRM_query_vport_state_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(admin_state, 0x78, 0x4, 1) \
  F(state, 0x7c, 0x4, 1)
UHCA_PRM_LAYOUT(query_vport_state_out, 0x80)

#define UHCA_PRM_modify_vport_state_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(admin_state, 0x78, 0x4, 1)
UHCA_PRM_LAYOUT(modify_vport_state_in, 0x80)

#define UHCA_PRM_modify_vport_state_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_vport_state_out, 0x80)

#define UHCA_PRM_traffic_counter(F) \
  F(packets, 0x0, 0x40, 1) \
  F(octets, 0x40, 0x40, 1)
UHCA_PRM_LAYOUT(traffic_counter, 0x80)

#define UHCA_PRM_query_vport_counter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(port_num, 0x4c, 0x4, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(clear, 0xc0, 0x1, 1)
UHCA_PRM_LAYOUT(query_vport_counter_in, 0x100)

#define UHCA_PRM_query_vport_counter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(received_errors, 0x80, 0x80, 1) \
  F(transmit_errors, 0x100, 0x80, 1) \
  F(received_ib_unicast, 0x180, 0x80, 1) \
  F(transmitted_ib_unicast, 0x200, 0x80, 1) \
  F(received_ib_multicast, 0x280, 0x80, 1) \
  F(transmitted_ib_multicast, 0x300, 0x80, 1) \
  F(received_eth_broadcast, 0x380, 0x80, 1) \
  F(transmitted_eth_broadcast, 0x400, 0x80, 1) \
  F(received_eth_unicast, 0x480, 0x80, 1) \
  F(transmitted_eth_unicast, 0x500, 0x80, 1) \
  F(received_eth_multicast, 0x580, 0x80, 1) \
  F(transmitted_eth_multicast, 0x600, 0x80, 1)
UHCA_PRM_LAYOUT(query_vport_counter_out, 0x1080)

#define UHCA_PRM_pkey(F) \
  F(pkey_, 0x10, 0x10, 1)
UHCA_PRM_LAYOUT(pkey, 0x20)

#define UHCA_PRM_query_hca_vport_pkey_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(port_num, 0x4c, 0x4, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(pkey_index, 0x70, 0x10, 1)
UHCA_PRM_LAYOUT(query_hca_vport_pkey_in, 0x80)

#define UHCA_PRM_query_hca_vport_pkey_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(pkey, 0x80, 0x20, 0)
UHCA_PRM_LAYOUT(query_hca_vport_pkey_out, 0x80)

#define UHCA_PRM_query_hca_vport_gid_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(port_num, 0x4c, 0x4, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(gid_index, 0x70, 0x10, 1)
UHCA_PRM_LAYOUT(query_hca_vport_gid_in, 0x80)

#define UHCA_PRM_query_hca_vport_gid_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(gids_num, 0x60, 0x10, 1) \
  F(gid, 0x80, 0x80, 0)
UHCA_PRM_LAYOUT(query_hca_vport_gid_out, 0x80)

#define UHCA_PRM_hca_vport_context(F) \
  F(field_select, 0x0, 0x20, 1) \
  F(sm_virt_aware, 0x100, 0x1, 1) \
  F(has_smi, 0x101, 0x1, 1) \
  F(has_raw, 0x102, 0x1, 1) \
  F(grh_required, 0x103, 0x1, 1) \
  F(port_physical_state, 0x110, 0x4, 1) \
  F(vport_state_policy, 0x114, 0x4, 1) \
  F(port_state, 0x118, 0x4, 1) \
  F(vport_state, 0x11c, 0x4, 1) \
  F(system_image_guid, 0x140, 0x40, 1) \
  F(port_guid, 0x180, 0x40, 1) \
  F(node_guid, 0x1c0, 0x40, 1) \
  F(cap_mask1, 0x200, 0x20, 1) \
  F(cap_mask1_field_select, 0x220, 0x20, 1) \
  F(cap_mask2, 0x240, 0x20, 1) \
  F(cap_mask2_field_select, 0x260, 0x20, 1) \
  F(lid, 0x300, 0x10, 1) \
  F(init_type_reply, 0x314, 0x4, 1) \
  F(lmc, 0x318, 0x3, 1) \
  F(subnet_timeout, 0x31b, 0x5, 1) \
  F(sm_lid, 0x320, 0x10, 1) \
  F(sm_sl, 0x330, 0x4, 1) \
  F(qkey_violation_counter, 0x340, 0x10, 1) \
  F(pkey_violation_counter, 0x350, 0x10, 1)
UHCA_PRM_LAYOUT(hca_vport_context, 0x1000)

#define UHCA_PRM_query_hca_vport_context_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(port_num, 0x4c, 0x4, 1) \
  F(vport_number, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(query_hca_vport_context_in, 0x80)

#define UHCA_PRM_query_hca_vport_context_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(hca_vport_context, 0x80, 0x1000, 1)
UHCA_PRM_LAYOUT(query_hca_vport_context_out, 0x1080)

#define UHCA_PRM_query_vnic_env_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(query_vnic_env_in, 0x80)

#define UHCA_PRM_query_vnic_env_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(vport_env, 0x80, 0x1000, 1)
UHCA_PRM_LAYOUT(query_vnic_env_out, 0x1080)

#define UHCA_PRM_vnic_diagnostic_statistics(F) \
  F(counter_error_queues, 0x0, 0x20, 1) \
  F(total_error_queues, 0x20, 0x20, 1) \
  F(send_queue_priority_update_flow, 0x40, 0x20, 1) \
  F(nic_receive_steering_discard, 0x80, 0x40, 1) \
  F(receive_discard_vport_down, 0xc0, 0x40, 1) \
  F(transmit_discard_vport_down, 0x100, 0x40, 1) \
  F(async_eq_overrun, 0x140, 0x20, 1) \
  F(comp_eq_overrun, 0x160, 0x20, 1) \
  F(invalid_command, 0x1a0, 0x20, 1) \
  F(quota_exceeded_command, 0x1c0, 0x20, 1) \
  F(internal_rq_out_of_buffer, 0x1e0, 0x20, 1) \
  F(cq_overrun, 0x200, 0x20, 1) \
  F(eth_wqe_too_small, 0x220, 0x20, 1)
UHCA_PRM_LAYOUT(vnic_diagnostic_statistics, 0x1000)

#define UHCA_PRM_set_l2_table_entry_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(table_index, 0xa8, 0x18, 1) \
  F(vlan_valid, 0xf3, 0x1, 1) \
  F(vlan, 0xf4, 0xc, 1) \
  F(mac_address, 0x100, 0x40, 1)
UHCA_PRM_LAYOUT(set_l2_table_entry_in, 0x200)

#define UHCA_PRM_set_l2_table_entry_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_l2_table_entry_out, 0x80)

#define UHCA_PRM_delete_l2_table_entry_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(table_index, 0xa8, 0x18, 1)
UHCA_PRM_LAYOUT(delete_l2_table_entry_in, 0x200)

#define UHCA_PRM_delete_l2_table_entry_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(delete_l2_table_entry_out, 0x80)

#define UHCA_PRM_query_cong_params_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(cong_protocol, 0x5c, 0x4, 1)
UHCA_PRM_LAYOUT(query_cong_params_in, 0x80)

#define UHCA_PRM_query_cong_params_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(congestion_parameters, 0x80, 0x800, 1)
UHCA_PRM_LAYOUT(query_cong_params_out, 0x880)

#define UHCA_PRM_modify_cong_params_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(cong_protocol, 0x5c, 0x4, 1) \
  F(field_select, 0x60, 0x20, 1) \
  F(congestion_parameters, 0x100, 0x800, 1)
UHCA_PRM_LAYOUT(modify_cong_params_in, 0x900)

#define UHCA_PRM_modify_cong_params_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_cong_params_out, 0x80)

#define UHCA_PRM_query_cong_status_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(priority, 0x58, 0x4, 1) \
  F(cong_protocol, 0x5c, 0x4, 1)
UHCA_PRM_LAYOUT(query_cong_status_in, 0x80)

#define UHCA_PRM_query_cong_status_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(enable, 0x60, 0x1, 1) \
  F(tag_enable, 0x61, 0x1, 1)
UHCA_PRM_LAYOUT(query_cong_status_out, 0x80)

// clang-format on

#define UHCA_PRM_LAYOUTS_cmd_vport(L) \
  L(mac_address_layout) \
  L(vlan_layout) \
  L(roce_addr_layout) \
  L(set_roce_address_in) \
  L(set_roce_address_out) \
  L(query_roce_address_in) \
  L(query_roce_address_out) \
  L(nic_vport_context) \
  L(modify_nic_vport_field_select) \
  L(query_nic_vport_context_in) \
  L(query_nic_vport_context_out) \
  L(modify_nic_vport_context_in) \
  L(modify_nic_vport_context_out) \
  L(query_vport_state_in) \
  L(query_vport_state_out) \
  L(modify_vport_state_in) \
  L(modify_vport_state_out) \
  L(traffic_counter) \
  L(query_vport_counter_in) \
  L(query_vport_counter_out) \
  L(pkey) \
  L(query_hca_vport_pkey_in) \
  L(query_hca_vport_pkey_out) \
  L(query_hca_vport_gid_in) \
  L(query_hca_vport_gid_out) \
  L(hca_vport_context) \
  L(query_hca_vport_context_in) \
  L(query_hca_vport_context_out) \
  L(query_vnic_env_in) \
  L(query_vnic_env_out) \
  L(vnic_diagnostic_statistics) \
  L(set_l2_table_entry_in) \
  L(set_l2_table_entry_out) \
  L(delete_l2_table_entry_in) \
  L(delete_l2_table_entry_out) \
  L(query_cong_params_in) \
  L(query_cong_params_out) \
  L(modify_cong_params_in) \
  L(modify_cong_params_out) \
  L(query_cong_status_in) \
  L(query_cong_status_out)

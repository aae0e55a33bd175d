// SPDX-License-Identifier: MIT
// Commands of flow steering.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_flow_table_context(F) \
  F(reformat_en, 0x0, 0x1, 1) \
  F(decap_en, 0x1, 0x1, 1) \
  F(sw_owner, 0x2, 0x1, 1) \
  F(termination_table, 0x3, 0x1, 1) \
  F(table_miss_action, 0x4, 0x4, 1) \
  F(level, 0x8, 0x8, 1) \
  F(log_size, 0x18, 0x8, 1) \
  F(table_miss_id, 0x28, 0x18, 1) \
  F(lag_master_next_table_id, 0x48, 0x18, 1) \
  F(sw_owner_icm_root_1, 0xc0, 0x40, 1) \
  F(sw_owner_icm_root_0, 0x100, 0x40, 1)
UHCA_PRM_LAYOUT(flow_table_context, 0x140)

#define UHCA_PRM_dest_format_struct(F) \
  F(destination_type, 0x0, 0x8, 1) \
  F(destination_id, 0x8, 0x18, 1) \
  F(destination_eswitch_owner_vhca_id_valid, 0x20, 0x1, 1) \
  F(packet_reformat, 0x21, 0x1, 1) \
  F(destination_eswitch_owner_vhca_id, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(dest_format_struct, 0x40)

#define UHCA_PRM_flow_counter_list(F) \
  F(flow_counter_id, 0x0, 0x20, 1)
UHCA_PRM_LAYOUT(flow_counter_list, 0x40)

#define UHCA_PRM_extended_dest_format(F) \
  F(destination_entry, 0x0, 0x40, 1) \
  F(packet_reformat_id, 0x40, 0x20, 1)
UHCA_PRM_LAYOUT(extended_dest_format, 0x80)

#define UHCA_PRM_flow_context(F) \
  F(push_vlan, 0x0, 0x20, 1) \
  F(group_id, 0x20, 0x20, 1) \
  F(flow_tag, 0x48, 0x18, 1) \
  F(action, 0x70, 0x10, 1) \
  F(extended_destination, 0x80, 0x1, 1) \
  F(flow_source, 0x82, 0x2, 1) \
  F(encrypt_decrypt_type, 0x84, 0x4, 1) \
  F(destination_list_size, 0x88, 0x18, 1) \
  F(flow_counter_list_size, 0xa8, 0x18, 1) \
  F(packet_reformat_id, 0xc0, 0x20, 1) \
  F(modify_header_id, 0xe0, 0x20, 1) \
  F(push_vlan_2, 0x100, 0x20, 1) \
  F(encrypt_decrypt_obj_id, 0x120, 0x20, 1) \
  F(match_value, 0x200, 0x1000, 1) \
  F(execute_aso, 0x1200, 0x40, 4) \
  F(destination, 0x1800, 0x80, 0)
UHCA_PRM_LAYOUT(flow_context, 0x1800)

#define UHCA_PRM_vlan(F) \
  F(ethtype, 0x0, 0x10, 1) \
  F(prio, 0x10, 0x3, 1) \
  F(cfi, 0x13, 0x1, 1) \
  F(vid, 0x14, 0xc, 1)
UHCA_PRM_LAYOUT(vlan, 0x20)

#define UHCA_PRM_fte_match_set_lyr_2_4(F) \
  F(smac_47_16, 0x0, 0x20, 1) \
  F(smac_15_0, 0x20, 0x10, 1) \
  F(ethertype, 0x30, 0x10, 1) \
  F(dmac_47_16, 0x40, 0x20, 1) \
  F(dmac_15_0, 0x60, 0x10, 1) \
  F(first_prio, 0x70, 0x3, 1) \
  F(first_cfi, 0x73, 0x1, 1) \
  F(first_vid, 0x74, 0xc, 1) \
  F(ip_protocol, 0x80, 0x8, 1) \
  F(ip_dscp, 0x88, 0x6, 1) \
  F(ip_ecn, 0x8e, 0x2, 1) \
  F(cvlan_tag, 0x90, 0x1, 1) \
  F(svlan_tag, 0x91, 0x1, 1) \
  F(frag, 0x92, 0x1, 1) \
  F(ip_version, 0x93, 0x4, 1) \
  F(tcp_flags, 0x97, 0x9, 1) \
  F(tcp_sport, 0xa0, 0x10, 1) \
  F(tcp_dport, 0xb0, 0x10, 1) \
  F(ipv4_ihl, 0xd0, 0x4, 1) \
  F(ttl_hoplimit, 0xd8, 0x8, 1) \
  F(udp_sport, 0xe0, 0x10, 1) \
  F(udp_dport, 0xf0, 0x10, 1) \
  F(src_ipv4_src_ipv6, 0x100, 0x80, 1) \
  F(dst_ipv4_dst_ipv6, 0x180, 0x80, 1)
UHCA_PRM_LAYOUT(fte_match_set_lyr_2_4, 0x200)

#define UHCA_PRM_fte_match_set_misc(F) \
  F(gre_c_present, 0x0, 0x1, 1) \
  F(gre_k_present, 0x2, 0x1, 1) \
  F(gre_s_present, 0x3, 0x1, 1) \
  F(source_vhca_port, 0x4, 0x4, 1) \
  F(source_sqn, 0x8, 0x18, 1) \
  F(source_eswitch_owner_vhca_id, 0x20, 0x10, 1) \
  F(source_port, 0x30, 0x10, 1) \
  F(outer_second_prio, 0x40, 0x3, 1) \
  F(outer_second_cfi, 0x43, 0x1, 1) \
  F(outer_second_vid, 0x44, 0xc, 1) \
  F(inner_second_prio, 0x50, 0x3, 1) \
  F(inner_second_cfi, 0x53, 0x1, 1) \
  F(inner_second_vid, 0x54, 0xc, 1) \
  F(outer_second_cvlan_tag, 0x60, 0x1, 1) \
  F(inner_second_cvlan_tag, 0x61, 0x1, 1) \
  F(outer_second_svlan_tag, 0x62, 0x1, 1) \
  F(inner_second_svlan_tag, 0x63, 0x1, 1) \
  F(gre_protocol, 0x70, 0x10, 1) \
  F(gre_key, 0x80, 0x20, 1) \
  F(vxlan_vni, 0xa0, 0x18, 1) \
  F(bth_opcode, 0xb8, 0x8, 1) \
  F(geneve_vni, 0xc0, 0x18, 1) \
  F(geneve_tlv_option_0_exist, 0xde, 0x1, 1) \
  F(geneve_oam, 0xdf, 0x1, 1) \
  F(outer_ipv6_flow_label, 0xec, 0x14, 1) \
  F(inner_ipv6_flow_label, 0x10c, 0x14, 1) \
  F(geneve_opt_len, 0x12a, 0x6, 1) \
  F(geneve_protocol_type, 0x130, 0x10, 1) \
  F(bth_dst_qp, 0x148, 0x18, 1) \
  F(outer_esp_spi, 0x180, 0x20, 1)
UHCA_PRM_LAYOUT(fte_match_set_misc, 0x200)

#define UHCA_PRM_fte_match_param(F) \
  F(outer_headers, 0x0, 0x200, 1) \
  F(misc_parameters, 0x200, 0x200, 1) \
  F(inner_headers, 0x400, 0x200, 1) \
  F(misc_parameters_2, 0x600, 0x200, 1) \
  F(misc_parameters_3, 0x800, 0x200, 1) \
  F(misc_parameters_4, 0xa00, 0x200, 1) \
  F(misc_parameters_5, 0xc00, 0x200, 1)
UHCA_PRM_LAYOUT(fte_match_param, 0x1000)

#define UHCA_PRM_create_flow_table_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(flow_table_context, 0xc0, 0x140, 1)
UHCA_PRM_LAYOUT(create_flow_table_in, 0x200)

#define UHCA_PRM_create_flow_table_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(icm_address_63_40, 0x8, 0x18, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(icm_address_39_32, 0x40, 0x8, 1) \
  F(table_id, 0x48, 0x18, 1) \
  F(icm_address_31_0, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(create_flow_table_out, 0x80)

#define UHCA_PRM_modify_flow_table_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(modify_field_select, 0x70, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(flow_table_context, 0xc0, 0x140, 1)
UHCA_PRM_LAYOUT(modify_flow_table_in, 0x200)

#define UHCA_PRM_modify_flow_table_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_flow_table_out, 0x80)

#define UHCA_PRM_query_flow_table_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1)
UHCA_PRM_LAYOUT(query_flow_table_in, 0x200)

#define UHCA_PRM_query_flow_table_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(flow_table_context, 0xc0, 0x140, 1)
UHCA_PRM_LAYOUT(query_flow_table_out, 0x200)

#define UHCA_PRM_destroy_flow_table_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_flow_table_in, 0x200)

#define UHCA_PRM_destroy_flow_table_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_flow_table_out, 0x80)

#define UHCA_PRM_set_flow_table_root_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_of_other_vport, 0x8f, 0x1, 1) \
  F(table_vport_number, 0x90, 0x10, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(underlay_qpn, 0xc8, 0x18, 1) \
  F(table_eswitch_owner_vhca_id_valid, 0xe0, 0x1, 1) \
  F(table_eswitch_owner_vhca_id, 0xf0, 0x10, 1)
UHCA_PRM_LAYOUT(set_flow_table_root_in, 0x200)

#define UHCA_PRM_set_flow_table_root_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_flow_table_root_out, 0x80)

#define UHCA_PRM_create_flow_group_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(group_type, 0x8c, 0x4, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(source_eswitch_owner_vhca_id_valid, 0xc0, 0x1, 1) \
  F(start_flow_index, 0xe0, 0x20, 1) \
  F(end_flow_index, 0x120, 0x20, 1) \
  F(match_definer_id, 0x150, 0x10, 1) \
  F(match_criteria_enable, 0x1f8, 0x8, 1) \
  F(match_criteria, 0x200, 0x1000, 1)
UHCA_PRM_LAYOUT(create_flow_group_in, 0x2000)

#define UHCA_PRM_create_flow_group_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(group_id, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_flow_group_out, 0x80)

#define UHCA_PRM_query_flow_group_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(group_id, 0xc0, 0x20, 1)
UHCA_PRM_LAYOUT(query_flow_group_in, 0x200)

#define UHCA_PRM_query_flow_group_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(start_flow_index, 0xe0, 0x20, 1) \
  F(end_flow_index, 0x120, 0x20, 1) \
  F(match_criteria_enable, 0x1f8, 0x8, 1) \
  F(match_criteria, 0x200, 0x1000, 1)
UHCA_PRM_LAYOUT(query_flow_group_out, 0x2000)

#define UHCA_PRM_destroy_flow_group_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(group_id, 0xc0, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_flow_group_in, 0x200)

#define UHCA_PRM_destroy_flow_group_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_flow_group_out, 0x80)

#define UHCA_PRM_set_fte_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(ignore_flow_level, 0xc0, 0x1, 1) \
  F(modify_enable_mask, 0xd8, 0x8, 1) \
  F(flow_index, 0x100, 0x20, 1) \
  F(flow_context, 0x200, 0x1800, 1)
UHCA_PRM_LAYOUT(set_fte_in, 0x1a00)

#define UHCA_PRM_set_fte_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_fte_out, 0x80)

#define UHCA_PRM_query_fte_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(flow_index, 0x100, 0x20, 1)
UHCA_PRM_LAYOUT(query_fte_in, 0x200)

#define UHCA_PRM_query_fte_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(flow_context, 0x200, 0x1800, 1)
UHCA_PRM_LAYOUT(query_fte_out, 0x1a00)

#define UHCA_PRM_delete_fte_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_vport, 0x40, 0x1, 1) \
  F(vport_number, 0x50, 0x10, 1) \
  F(table_type, 0x80, 0x8, 1) \
  F(table_id, 0xa8, 0x18, 1) \
  F(flow_index, 0x100, 0x20, 1)
UHCA_PRM_LAYOUT(delete_fte_in, 0x200)

#define UHCA_PRM_delete_fte_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(delete_fte_out, 0x80)

#define UHCA_PRM_alloc_flow_counter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(flow_counter_bulk_log_size, 0x73, 0x5, 1) \
  F(flow_counter_bulk, 0x78, 0x8, 1)
UHCA_PRM_LAYOUT(alloc_flow_counter_in, 0x80)

#define UHCA_PRM_alloc_flow_counter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(flow_counter_id, 0x40, 0x20, 1)
UHCA_PRM_LAYOUT(alloc_flow_counter_out, 0x80)

#define UHCA_PRM_dealloc_flow_counter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(flow_counter_id, 0x40, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_flow_counter_in, 0x80)

#define UHCA_PRM_dealloc_flow_counter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_flow_counter_out, 0x80)

#define UHCA_PRM_query_flow_counter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(clear, 0xc0, 0x1, 1) \
  F(num_of_counters, 0xd0, 0x10, 1) \
  F(flow_counter_id, 0xe0, 0x20, 1)
UHCA_PRM_LAYOUT(query_flow_counter_in, 0x100)

#define UHCA_PRM_query_flow_counter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(flow_statistics, 0x80, 0x80, 0)
UHCA_PRM_LAYOUT(query_flow_counter_out, 0x80)

// clang-format on

#define UHCA_PRM_LAYOUTS_cmd_flow(L) \
  L(flow_table_context) \
  L(dest_format_struct) \
  L(flow_counter_list) \
  L(extended_dest_format) \
  L(flow_context) \
  L(vlan) \
  L(fte_match_set_lyr_2_4) \
  L(fte_match_set_misc) \
  L(fte_match_param) \
  L(create_flow_table_in) \
  L(create_flow_table_out) \
  L(modify_flow_table_in) \
  L(modify_flow_table_out) \
  L(query_flow_table_in) \
  L(query_flow_table_out) \
  L(destroy_flow_table_in) \
  L(destroy_flow_table_out) \
  L(set_flow_table_root_in) \
  L(set_flow_table_root_out) \
  L(create_flow_group_in) \
  L(create_flow_group_out) \
  L(query_flow_group_in) \
  L(query_flow_group_out) \
  L(destroy_flow_group_in) \
  L(destroy_flow_group_out) \
  L(set_fte_in) \
  L(set_fte_out) \
  L(query_fte_in) \
  L(query_fte_out) \
  L(delete_fte_in) \
  L(delete_fte_out) \
  L(alloc_flow_counter_in) \
  L(alloc_flow_counter_out) \
  L(dealloc_flow_counter_in) \
  L(dealloc_flow_counter_out) \
  L(query_flow_counter_in) \
  L(query_flow_counter_out)

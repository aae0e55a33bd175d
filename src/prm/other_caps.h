// SPDX-License-Identifier: MIT
// The other capability groups of QUERY_HCA_CAP.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_per_protocol_networking_offload_caps(F) \
  F(csum_cap, 0x0, 0x1, 1) \
  F(vlan_cap, 0x1, 0x1, 1) \
  F(lro_cap, 0x2, 0x1, 1) \
  F(lro_psh_flag, 0x3, 0x1, 1) \
  F(lro_time_stamp, 0x4, 0x1, 1) \
  F(wqe_vlan_insert, 0x7, 0x1, 1) \
  F(self_lb_en_modifiable, 0x8, 0x1, 1) \
  F(max_lso_cap, 0xb, 0x5, 1) \
  F(multi_pkt_send_wqe, 0x10, 0x2, 1) \
  F(wqe_inline_mode, 0x12, 0x2, 1) \
  F(rss_ind_tbl_cap, 0x14, 0x4, 1) \
  F(reg_umr_sq, 0x18, 0x1, 1) \
  F(scatter_fcs, 0x19, 0x1, 1) \
  F(enhanced_multi_pkt_send_wqe, 0x1a, 0x1, 1) \
  F(tunnel_lso_const_out_ip_id, 0x1b, 0x1, 1) \
  F(tunnel_lro_gre, 0x1c, 0x1, 1) \
  F(tunnel_lro_vxlan, 0x1d, 0x1, 1) \
  F(tunnel_stateless_gre, 0x1e, 0x1, 1) \
  F(tunnel_stateless_vxlan, 0x1f, 0x1, 1) \
  F(swp, 0x20, 0x1, 1) \
  F(swp_csum, 0x21, 0x1, 1) \
  F(swp_lso, 0x22, 0x1, 1) \
  F(cqe_checksum_full, 0x23, 0x1, 1) \
  F(tunnel_stateless_geneve_tx, 0x24, 0x1, 1) \
  F(tunnel_stateless_mpls_over_udp, 0x25, 0x1, 1) \
  F(tunnel_stateless_mpls_over_gre, 0x26, 0x1, 1) \
  F(tunnel_stateless_vxlan_gpe, 0x27, 0x1, 1) \
  F(tunnel_stateless_ipv4_over_vxlan, 0x28, 0x1, 1) \
  F(tunnel_stateless_ip_over_ip, 0x29, 0x1, 1) \
  F(insert_trailer, 0x2a, 0x1, 1) \
  F(tunnel_stateless_ip_over_ip_rx, 0x2c, 0x1, 1) \
  F(tunnel_stateless_ip_over_ip_tx, 0x2d, 0x1, 1) \
  F(max_vxlan_udp_ports, 0x30, 0x8, 1) \
  F(max_geneve_opt_len, 0x3e, 0x1, 1) \
  F(tunnel_stateless_geneve_rx, 0x3f, 0x1, 1) \
  F(lro_min_mss_size, 0x50, 0x10, 1) \
  F(lro_timer_supported_periods, 0x180, 0x20, 4)
UHCA_PRM_LAYOUT(per_protocol_networking_offload_caps, 0x800)

#define UHCA_PRM_roce_cap(F) \
  F(roce_apm, 0x0, 0x1, 1) \
  F(sw_r_roce_src_udp_port, 0x4, 0x1, 1) \
  F(fl_rc_qp_when_roce_disabled, 0x5, 0x1, 1) \
  F(fl_rc_qp_when_roce_enabled, 0x6, 0x1, 1) \
  F(qp_ts_format, 0x1e, 0x2, 1) \
  F(l3_type, 0x8c, 0x4, 1) \
  F(roce_version, 0x98, 0x8, 1) \
  F(r_roce_dest_udp_port, 0xb0, 0x10, 1) \
  F(r_roce_max_src_udp_port, 0xc0, 0x10, 1) \
  F(r_roce_min_src_udp_port, 0xd0, 0x10, 1) \
  F(roce_address_table_size, 0xf0, 0x10, 1)
UHCA_PRM_LAYOUT(roce_cap, 0x800)

#define UHCA_PRM_atomic_caps(F) \
  F(atomic_req_8B_endianness_mode, 0x40, 0x2, 1) \
  F(supported_atomic_req_8B_endianness_mode_1, 0x46, 0x1, 1) \
  F(atomic_operations, 0x90, 0x10, 1) \
  F(atomic_size_qp, 0xb0, 0x10, 1) \
  F(atomic_size_dc, 0xd0, 0x10, 1)
UHCA_PRM_LAYOUT(atomic_caps, 0x800)

#define UHCA_PRM_odp_per_transport_service_cap(F) \
  F(send, 0x0, 0x1, 1) \
  F(receive, 0x1, 0x1, 1) \
  F(write, 0x2, 0x1, 1) \
  F(read, 0x3, 0x1, 1) \
  F(atomic, 0x4, 0x1, 1) \
  F(srq_receive, 0x5, 0x1, 1)
UHCA_PRM_LAYOUT(odp_per_transport_service_cap, 0x20)

#define UHCA_PRM_odp_cap(F) \
  F(sig, 0x40, 0x1, 1) \
  F(rc_odp_caps, 0x80, 0x20, 1) \
  F(uc_odp_caps, 0xa0, 0x20, 1) \
  F(ud_odp_caps, 0xc0, 0x20, 1) \
  F(xrc_odp_caps, 0xe0, 0x20, 1) \
  F(dc_odp_caps, 0x100, 0x20, 1)
UHCA_PRM_LAYOUT(odp_cap, 0x800)

#define UHCA_PRM_flow_table_fields_supported(F) \
  F(outer_dmac, 0x0, 0x1, 1) \
  F(outer_smac, 0x1, 0x1, 1) \
  F(outer_ether_type, 0x2, 0x1, 1) \
  F(outer_ip_version, 0x3, 0x1, 1) \
  F(outer_first_prio, 0x4, 0x1, 1) \
  F(outer_first_cfi, 0x5, 0x1, 1) \
  F(outer_first_vid, 0x6, 0x1, 1) \
  F(outer_ipv4_ttl, 0x7, 0x1, 1) \
  F(outer_second_prio, 0x8, 0x1, 1) \
  F(outer_second_cfi, 0x9, 0x1, 1) \
  F(outer_second_vid, 0xa, 0x1, 1) \
  F(outer_sip, 0xc, 0x1, 1) \
  F(outer_dip, 0xd, 0x1, 1) \
  F(outer_frag, 0xe, 0x1, 1) \
  F(outer_ip_protocol, 0xf, 0x1, 1) \
  F(outer_ip_ecn, 0x10, 0x1, 1) \
  F(outer_ip_dscp, 0x11, 0x1, 1) \
  F(outer_udp_sport, 0x12, 0x1, 1) \
  F(outer_udp_dport, 0x13, 0x1, 1) \
  F(outer_tcp_sport, 0x14, 0x1, 1) \
  F(outer_tcp_dport, 0x15, 0x1, 1) \
  F(outer_tcp_flags, 0x16, 0x1, 1) \
  F(outer_gre_protocol, 0x17, 0x1, 1) \
  F(outer_gre_key, 0x18, 0x1, 1) \
  F(outer_vxlan_vni, 0x19, 0x1, 1) \
  F(outer_geneve_vni, 0x1a, 0x1, 1) \
  F(outer_geneve_oam, 0x1b, 0x1, 1) \
  F(outer_geneve_protocol_type, 0x1c, 0x1, 1) \
  F(outer_geneve_opt_len, 0x1d, 0x1, 1) \
  F(source_vhca_port, 0x1e, 0x1, 1) \
  F(source_eswitch_port, 0x1f, 0x1, 1) \
  F(inner_dmac, 0x20, 0x1, 1) \
  F(inner_smac, 0x21, 0x1, 1) \
  F(inner_ether_type, 0x22, 0x1, 1) \
  F(inner_ip_version, 0x23, 0x1, 1) \
  F(inner_first_prio, 0x24, 0x1, 1) \
  F(inner_first_cfi, 0x25, 0x1, 1) \
  F(inner_first_vid, 0x26, 0x1, 1) \
  F(inner_second_prio, 0x28, 0x1, 1) \
  F(inner_second_cfi, 0x29, 0x1, 1) \
  F(inner_second_vid, 0x2a, 0x1, 1) \
  F(inner_sip, 0x2c, 0x1, 1) \
  F(inner_dip, 0x2d, 0x1, 1) \
  F(inner_frag, 0x2e, 0x1, 1) \
  F(inner_ip_protocol, 0x2f, 0x1, 1) \
  F(inner_ip_ecn, 0x30, 0x1, 1) \
  F(inner_ip_dscp, 0x31, 0x1, 1) \
  F(inner_udp_sport, 0x32, 0x1, 1) \
  F(inner_udp_dport, 0x33, 0x1, 1) \
  F(inner_tcp_sport, 0x34, 0x1, 1) \
  F(inner_tcp_dport, 0x35, 0x1, 1) \
  F(inner_tcp_flags, 0x36, 0x1, 1) \
  F(geneve_tlv_option_0_data, 0x40, 0x1, 1) \
  F(geneve_tlv_option_0_exist, 0x41, 0x1, 1) \
  F(outer_first_mpls_over_udp, 0x45, 0x4, 1) \
  F(outer_first_mpls_over_gre, 0x49, 0x4, 1) \
  F(inner_first_mpls, 0x4d, 0x4, 1) \
  F(outer_first_mpls, 0x51, 0x4, 1) \
  F(outer_esp_spi, 0x57, 0x1, 1) \
  F(bth_dst_qp, 0x5a, 0x1, 1) \
  F(metadata_reg_c_7, 0x78, 0x1, 1) \
  F(metadata_reg_c_6, 0x79, 0x1, 1) \
  F(metadata_reg_c_5, 0x7a, 0x1, 1) \
  F(metadata_reg_c_4, 0x7b, 0x1, 1) \
  F(metadata_reg_c_3, 0x7c, 0x1, 1) \
  F(metadata_reg_c_2, 0x7d, 0x1, 1) \
  F(metadata_reg_c_1, 0x7e, 0x1, 1) \
  F(metadata_reg_c_0, 0x7f, 0x1, 1)
UHCA_PRM_LAYOUT(flow_table_fields_supported, 0x80)

#define UHCA_PRM_flow_table_prop_layout(F) \
  F(ft_support, 0x0, 0x1, 1) \
  F(flow_counter, 0x2, 0x1, 1) \
  F(flow_modify_en, 0x3, 0x1, 1) \
  F(modify_root, 0x4, 0x1, 1) \
  F(identified_miss_table_mode, 0x5, 0x1, 1) \
  F(flow_table_modify, 0x6, 0x1, 1) \
  F(reformat, 0x7, 0x1, 1) \
  F(decap, 0x8, 0x1, 1) \
  F(pop_vlan, 0xa, 0x1, 1) \
  F(push_vlan, 0xb, 0x1, 1) \
  F(pop_vlan_2, 0xd, 0x1, 1) \
  F(push_vlan_2, 0xe, 0x1, 1) \
  F(reformat_and_vlan_action, 0xf, 0x1, 1) \
  F(sw_owner, 0x11, 0x1, 1) \
  F(reformat_l3_tunnel_to_l2, 0x12, 0x1, 1) \
  F(reformat_l2_to_l3_tunnel, 0x13, 0x1, 1) \
  F(reformat_and_modify_action, 0x14, 0x1, 1) \
  F(ignore_flow_level, 0x15, 0x1, 1) \
  F(table_miss_action_domain, 0x17, 0x1, 1) \
  F(termination_table, 0x18, 0x1, 1) \
  F(reformat_and_fwd_to_table, 0x19, 0x1, 1) \
  F(ipsec_encrypt, 0x1c, 0x1, 1) \
  F(ipsec_decrypt, 0x1d, 0x1, 1) \
  F(sw_owner_v2, 0x1e, 0x1, 1) \
  F(termination_table_raw_traffic, 0x20, 0x1, 1) \
  F(log_max_ft_size, 0x22, 0x6, 1) \
  F(log_max_modify_header_context, 0x28, 0x8, 1) \
  F(max_modify_header_actions, 0x30, 0x8, 1) \
  F(max_ft_level, 0x38, 0x8, 1) \
  F(execute_aso, 0x46, 0x1, 1) \
  F(reformat_insert, 0x62, 0x1, 1) \
  F(reformat_remove, 0x63, 0x1, 1) \
  F(macsec_encrypt, 0x64, 0x1, 1) \
  F(macsec_decrypt, 0x65, 0x1, 1) \
  F(reformat_add_macsec, 0x68, 0x1, 1) \
  F(reformat_remove_macsec, 0x69, 0x1, 1) \
  F(log_max_ft_num, 0x78, 0x8, 1) \
  F(log_max_flow_counter, 0x90, 0x8, 1) \
  F(log_max_destination, 0x98, 0x8, 1) \
  F(log_max_flow, 0xb8, 0x8, 1) \
  F(ft_field_support, 0x100, 0x80, 1) \
  F(ft_field_bitmask_support, 0x180, 0x80, 1)
UHCA_PRM_LAYOUT(flow_table_prop_layout, 0x200)

#define UHCA_PRM_flow_table_nic_cap(F) \
  F(nic_rx_multi_path_tirs, 0x0, 0x1, 1) \
  F(nic_rx_multi_path_tirs_fts, 0x1, 0x1, 1) \
  F(allow_sniffer_and_nic_rx_shared_tir, 0x2, 0x1, 1) \
  F(sw_owner_reformat_supported, 0x7, 0x1, 1) \
  F(encap_general_header, 0x20, 0x1, 1) \
  F(log_max_packet_reformat_context, 0x2b, 0x5, 1) \
  F(max_encap_header_size, 0x36, 0xa, 1) \
  F(flow_table_properties_nic_receive, 0x200, 0x200, 1) \
  F(flow_table_properties_nic_receive_rdma, 0x400, 0x200, 1) \
  F(flow_table_properties_nic_receive_sniffer, 0x600, 0x200, 1) \
  F(flow_table_properties_nic_transmit, 0x800, 0x200, 1) \
  F(flow_table_properties_nic_transmit_rdma, 0xa00, 0x200, 1) \
  F(flow_table_properties_nic_transmit_sniffer, 0xc00, 0x200, 1) \
  F(ft_field_support_2_nic_receive_rdma, 0x1500, 0x80, 1) \
  F(ft_field_support_2_nic_transmit_rdma, 0x1800, 0x80, 1) \
  F(sw_steering_nic_rx_action_drop_icm_address, 0x2000, 0x40, 1) \
  F(sw_steering_nic_tx_action_drop_icm_address, 0x2040, 0x40, 1) \
  F(sw_steering_nic_tx_action_allow_icm_address, 0x2080, 0x40, 1)
UHCA_PRM_LAYOUT(flow_table_nic_cap, 0x8000)

#define UHCA_PRM_flow_table_eswitch_cap(F) \
  F(fdb_to_vport_reg_c_id, 0x0, 0x8, 1) \
  F(fdb_modify_header_fwd_to_table, 0x15, 0x1, 1) \
  F(fdb_ipv4_ttl_modify, 0x16, 0x1, 1) \
  F(flow_source, 0x17, 0x1, 1) \
  F(multi_fdb_encap, 0x1a, 0x1, 1) \
  F(egress_acl_forward_to_vport, 0x1b, 0x1, 1) \
  F(fdb_multi_path_to_table, 0x1c, 0x1, 1) \
  F(flow_table_properties_nic_esw_fdb, 0x200, 0x200, 1) \
  F(flow_table_properties_esw_acl_ingress, 0x400, 0x200, 1) \
  F(flow_table_properties_esw_acl_egress, 0x600, 0x200, 1) \
  F(sw_steering_fdb_action_drop_icm_address_rx, 0x1800, 0x40, 1) \
  F(sw_steering_fdb_action_drop_icm_address_tx, 0x1840, 0x40, 1) \
  F(sw_steering_uplink_icm_address_rx, 0x1880, 0x40, 1) \
  F(sw_steering_uplink_icm_address_tx, 0x18c0, 0x40, 1)
UHCA_PRM_LAYOUT(flow_table_eswitch_cap, 0x8000)

#define UHCA_PRM_e_switch_cap(F) \
  F(vport_svlan_strip, 0x0, 0x1, 1) \
  F(vport_cvlan_strip, 0x1, 0x1, 1) \
  F(vport_svlan_insert, 0x2, 0x1, 1) \
  F(vport_cvlan_insert_if_not_exist, 0x3, 0x1, 1) \
  F(vport_cvlan_insert_overwrite, 0x4, 0x1, 1) \
  F(vport_cvlan_insert_always, 0x6, 0x1, 1) \
  F(esw_shared_ingress_acl, 0x7, 0x1, 1) \
  F(esw_uplink_ingress_acl, 0x8, 0x1, 1) \
  F(root_ft_on_other_esw, 0x9, 0x1, 1) \
  F(esw_functions_changed, 0x19, 0x1, 1) \
  F(ecpf_vport_exists, 0x1b, 0x1, 1) \
  F(counter_eswitch_affinity, 0x1c, 0x1, 1) \
  F(merged_eswitch, 0x1d, 0x1, 1) \
  F(nic_vport_node_guid_modify, 0x1e, 0x1, 1) \
  F(nic_vport_port_guid_modify, 0x1f, 0x1, 1) \
  F(vxlan_encap_decap, 0x20, 0x1, 1) \
  F(nvgre_encap_decap, 0x21, 0x1, 1) \
  F(log_max_fdb_encap_uplink, 0x23, 0x5, 1) \
  F(log_max_packet_reformat_context, 0x2b, 0x5, 1) \
  F(max_encap_header_size, 0x36, 0xa, 1) \
  F(log_max_esw_sf, 0x4b, 0x5, 1) \
  F(esw_sf_base_id, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(e_switch_cap, 0x800)

#define UHCA_PRM_qos_cap(F) \
  F(packet_pacing, 0x0, 0x1, 1) \
  F(esw_scheduling, 0x1, 0x1, 1) \
  F(esw_bw_share, 0x2, 0x1, 1) \
  F(esw_rate_limit, 0x3, 0x1, 1) \
  F(packet_pacing_burst_bound, 0x5, 0x1, 1) \
  F(packet_pacing_typical_size, 0x6, 0x1, 1) \
  F(nic_sq_scheduling, 0x8, 0x1, 1) \
  F(nic_bw_share, 0x9, 0x1, 1) \
  F(nic_rate_limit, 0xa, 0x1, 1) \
  F(packet_pacing_uid, 0xb, 0x1, 1) \
  F(log_esw_max_sched_depth, 0xc, 0x4, 1) \
  F(log_max_qos_nic_queue_group, 0x2b, 0x5, 1) \
  F(packet_pacing_max_rate, 0x40, 0x20, 1) \
  F(packet_pacing_min_rate, 0x60, 0x20, 1) \
  F(packet_pacing_rate_table_size, 0x90, 0x10, 1) \
  F(esw_element_type, 0xa0, 0x10, 1) \
  F(esw_tsar_type, 0xb0, 0x10, 1) \
  F(max_qos_para_vport, 0xd0, 0x10, 1) \
  F(max_tsar_bw_share, 0xe0, 0x20, 1) \
  F(nic_element_type, 0x100, 0x10, 1) \
  F(nic_tsar_type, 0x110, 0x10, 1) \
  F(log_meter_aso_granularity, 0x123, 0x5, 1) \
  F(log_meter_aso_max_alloc, 0x12b, 0x5, 1) \
  F(log_max_num_meter_aso, 0x133, 0x5, 1)
UHCA_PRM_LAYOUT(qos_cap, 0x800)

#define UHCA_PRM_device_mem_cap(F) \
  F(memic, 0x0, 0x1, 1) \
  F(log_min_memic_alloc_size, 0x2b, 0x5, 1) \
  F(log_max_memic_addr_alignment, 0x38, 0x8, 1) \
  F(memic_bar_start_addr, 0x40, 0x40, 1) \
  F(memic_bar_size, 0x80, 0x20, 1) \
  F(max_memic_size, 0xa0, 0x20, 1) \
  F(steering_sw_icm_start_address, 0xc0, 0x40, 1) \
  F(log_header_modify_sw_icm_size, 0x108, 0x8, 1) \
  F(log_sw_icm_alloc_granularity, 0x112, 0x6, 1) \
  F(log_steering_sw_icm_size, 0x118, 0x8, 1) \
  F(log_header_modify_pattern_sw_icm_size, 0x138, 0x8, 1) \
  F(header_modify_sw_icm_start_address, 0x140, 0x40, 1) \
  F(header_modify_pattern_sw_icm_start_address, 0x1c0, 0x40, 1) \
  F(memic_operations, 0x200, 0x20, 1)
UHCA_PRM_LAYOUT(device_mem_cap, 0x800)

#define UHCA_PRM_device_event_cap(F) \
  F(user_affiliated_events, 0x0, 0x40, 4) \
  F(user_unaffiliated_events, 0x100, 0x40, 4)
UHCA_PRM_LAYOUT(device_event_cap, 0x200)

#define UHCA_PRM_debug_cap(F) \
  F(core_dump_general, 0x0, 0x1, 1) \
  F(core_dump_qp, 0x1, 0x1, 1) \
  F(resource_dump, 0x9, 0x1, 1) \
  F(stall_detect, 0x22, 0x1, 1)
UHCA_PRM_LAYOUT(debug_cap, 0x800)

// clang-format on

#define UHCA_PRM_LAYOUTS_other_caps(L) \
  L(per_protocol_networking_offload_caps) \
  L(roce_cap) \
  L(atomic_caps) \
  L(odp_per_transport_service_cap) \
  L(odp_cap) \
  L(flow_table_fields_supported) \
  L(flow_table_prop_layout) \
  L(flow_table_nic_cap) \
  L(flow_table_eswitch_cap) \
  L(e_switch_cap) \
  L(qos_cap) \
  L(device_mem_cap) \
  L(device_event_cap) \
  L(debug_cap)

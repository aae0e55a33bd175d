// SPDX-License-Identifier: MIT
// Port and device registers that ACCESS_REG reaches.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_access_register_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(register_id, 0x50, 0x10, 1) \
  F(argument, 0x60, 0x20, 1) \
  F(register_data, 0x80, 0x20, 0)
UHCA_PRM_LAYOUT(access_register_in, 0x80)

#define UHCA_PRM_access_register_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(register_data, 0x80, 0x20, 0)
UHCA_PRM_LAYOUT(access_register_out, 0x80)

#define UHCA_PRM_register_host_endianness(F) \
  F(he, 0x0, 0x1, 1)
UHCA_PRM_LAYOUT(register_host_endianness, 0x80)

#define UHCA_PRM_ptys_reg(F) \
  F(an_disable_admin, 0x1, 0x1, 1) \
  F(an_disable_cap, 0x2, 0x1, 1) \
  F(local_port, 0x8, 0x8, 1) \
  F(proto_mask, 0x1d, 0x3, 1) \
  F(an_status, 0x20, 0x4, 1) \
  F(data_rate_oper, 0x30, 0x10, 1) \
  F(ext_eth_proto_capability, 0x40, 0x20, 1) \
  F(eth_proto_capability, 0x60, 0x20, 1) \
  F(ib_link_width_capability, 0x80, 0x10, 1) \
  F(ib_proto_capability, 0x90, 0x10, 1) \
  F(ext_eth_proto_admin, 0xa0, 0x20, 1) \
  F(eth_proto_admin, 0xc0, 0x20, 1) \
  F(ib_link_width_admin, 0xe0, 0x10, 1) \
  F(ib_proto_admin, 0xf0, 0x10, 1) \
  F(ext_eth_proto_oper, 0x100, 0x20, 1) \
  F(eth_proto_oper, 0x120, 0x20, 1) \
  F(ib_link_width_oper, 0x140, 0x10, 1) \
  F(ib_proto_oper, 0x150, 0x10, 1) \
  F(connector_type, 0x17c, 0x4, 1) \
  F(eth_proto_lp_advertise, 0x180, 0x20, 1)
UHCA_PRM_LAYOUT(ptys_reg, 0x200)

#define UHCA_PRM_paos_reg(F) \
  F(swid, 0x0, 0x8, 1) \
  F(local_port, 0x8, 0x8, 1) \
  F(admin_status, 0x14, 0x4, 1) \
  F(oper_status, 0x1c, 0x4, 1) \
  F(ase, 0x20, 0x1, 1) \
  F(ee, 0x21, 0x1, 1) \
  F(e, 0x3e, 0x2, 1)
UHCA_PRM_LAYOUT(paos_reg, 0x80)

#define UHCA_PRM_mcia_reg(F) \
  F(l, 0x0, 0x1, 1) \
  F(module, 0x8, 0x8, 1) \
  F(status, 0x18, 0x8, 1) \
  F(i2c_device_address, 0x20, 0x8, 1) \
  F(page_number, 0x28, 0x8, 1) \
  F(device_address, 0x30, 0x10, 1) \
  F(size, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(mcia_reg, 0x480)

#define UHCA_PRM_pmtu_reg(F) \
  F(local_port, 0x8, 0x8, 1) \
  F(max_mtu, 0x20, 0x10, 1) \
  F(admin_mtu, 0x40, 0x10, 1) \
  F(oper_mtu, 0x60, 0x10, 1)
UHCA_PRM_LAYOUT(pmtu_reg, 0x80)

#define UHCA_PRM_pmlp_reg(F) \
  F(rxtx, 0x0, 0x1, 1) \
  F(local_port, 0x8, 0x8, 1) \
  F(width, 0x18, 0x8, 1) \
  F(lane0_module_mapping, 0x20, 0x20, 1) \
  F(lane1_module_mapping, 0x40, 0x20, 1) \
  F(lane2_module_mapping, 0x60, 0x20, 1) \
  F(lane3_module_mapping, 0x80, 0x20, 1)
UHCA_PRM_LAYOUT(pmlp_reg, 0x200)

#define UHCA_PRM_pplm_reg(F) \
  F(local_port, 0x8, 0x8, 1) \
  F(port_profile_mode, 0x40, 0x8, 1) \
  F(static_port_profile, 0x48, 0x8, 1) \
  F(active_port_profile, 0x50, 0x8, 1) \
  F(retransmission_active, 0x60, 0x8, 1) \
  F(fec_mode_active, 0x68, 0x18, 1) \
  F(rs_fec_correction_bypass_cap, 0x80, 0x4, 1) \
  F(fec_override_cap_56g, 0x8c, 0x4, 1) \
  F(fec_override_cap_100g, 0x90, 0x4, 1) \
  F(fec_override_cap_50g, 0x94, 0x4, 1) \
  F(fec_override_cap_25g, 0x98, 0x4, 1) \
  F(fec_override_cap_10g_40g, 0x9c, 0x4, 1) \
  F(rs_fec_correction_bypass_admin, 0xa0, 0x4, 1) \
  F(fec_override_admin_56g, 0xac, 0x4, 1) \
  F(fec_override_admin_100g, 0xb0, 0x4, 1) \
  F(fec_override_admin_50g, 0xb4, 0x4, 1) \
  F(fec_override_admin_25g, 0xb8, 0x4, 1) \
  F(fec_override_admin_10g_40g, 0xbc, 0x4, 1) \
  F(fec_override_cap_400g_8x, 0xc0, 0x10, 1) \
  F(fec_override_cap_200g_4x, 0xd0, 0x10, 1) \
  F(fec_override_cap_100g_2x, 0xe0, 0x10, 1) \
  F(fec_override_cap_50g_1x, 0xf0, 0x10, 1) \
  F(fec_override_admin_400g_8x, 0x100, 0x10, 1) \
  F(fec_override_admin_200g_4x, 0x110, 0x10, 1) \
  F(fec_override_admin_100g_2x, 0x120, 0x10, 1) \
  F(fec_override_admin_50g_1x, 0x130, 0x10, 1)
UHCA_PRM_LAYOUT(pplm_reg, 0x280)

#define UHCA_PRM_pfcc_reg(F) \
  F(local_port, 0x8, 0x8, 1) \
  F(ppan_mask_n, 0x1b, 0x1, 1) \
  F(minor_stall_mask, 0x1c, 0x1, 1) \
  F(critical_stall_mask, 0x1d, 0x1, 1) \
  F(ppan, 0x20, 0x4, 1) \
  F(prio_mask_tx, 0x28, 0x8, 1) \
  F(prio_mask_rx, 0x38, 0x8, 1) \
  F(pptx, 0x40, 0x1, 1) \
  F(aptx, 0x41, 0x1, 1) \
  F(pptx_mask_n, 0x42, 0x1, 1) \
  F(pfctx, 0x48, 0x8, 1) \
  F(pprx, 0x60, 0x1, 1) \
  F(aprx, 0x61, 0x1, 1) \
  F(pprx_mask_n, 0x62, 0x1, 1) \
  F(pfcrx, 0x68, 0x8, 1) \
  F(device_stall_minor_watermark, 0x80, 0x10, 1) \
  F(device_stall_critical_watermark, 0x90, 0x10, 1)
UHCA_PRM_LAYOUT(pfcc_reg, 0x100)

#define UHCA_PRM_ppcnt_reg(F) \
  F(swid, 0x0, 0x8, 1) \
  F(local_port, 0x8, 0x8, 1) \
  F(pnat, 0x10, 0x2, 1) \
  F(grp, 0x1a, 0x6, 1) \
  F(clr, 0x20, 0x1, 1) \
  F(prio_tc, 0x3d, 0x3, 1) \
  F(counter_set, 0x40, 0x7c0, 1)
UHCA_PRM_LAYOUT(ppcnt_reg, 0x800)

#define UHCA_PRM_pude_reg(F) \
  F(swid, 0x0, 0x8, 1) \
  F(local_port, 0x8, 0x8, 1) \
  F(admin_status, 0x14, 0x4, 1) \
  F(oper_status, 0x1c, 0x4, 1)
UHCA_PRM_LAYOUT(pude_reg, 0x80)

#define UHCA_PRM_pvlc_reg(F) \
  F(local_port, 0x8, 0x8, 1) \
  F(vl_hw_cap, 0x3c, 0x4, 1) \
  F(vl_admin, 0x5c, 0x4, 1) \
  F(vl_operational, 0x7c, 0x4, 1)
UHCA_PRM_LAYOUT(pvlc_reg, 0x80)

#define UHCA_PRM_pcap_reg(F) \
  F(local_port, 0x8, 0x8, 1) \
  F(port_capability_mask, 0x20, 0x20, 4)
UHCA_PRM_LAYOUT(pcap_reg, 0xa0)

#define UHCA_PRM_pcam_reg(F) \
  F(feature_group, 0x8, 0x8, 1) \
  F(access_reg_group, 0x18, 0x8, 1) \
  F(regs_5000_to_507f, 0x40, 0x80, 1) \
  F(enhanced_features, 0x140, 0x80, 1)
UHCA_PRM_LAYOUT(pcam_reg, 0x280)

#define UHCA_PRM_mcam_reg(F) \
  F(feature_group, 0x8, 0x8, 1) \
  F(access_reg_group, 0x18, 0x8, 1) \
  F(access_regs, 0x40, 0x80, 1) \
  F(access_regs1, 0x40, 0x80, 1) \
  F(access_regs2, 0x40, 0x80, 1) \
  F(enhanced_features, 0x140, 0x80, 1)
UHCA_PRM_LAYOUT(mcam_reg, 0x240)

#define UHCA_PRM_qcam_reg(F) \
  F(feature_group, 0x8, 0x8, 1) \
  F(access_reg_group, 0x18, 0x8, 1) \
  F(reg_cap, 0x40, 0x80, 1) \
  F(feature_cap, 0x140, 0x80, 1)
UHCA_PRM_LAYOUT(qcam_reg, 0x240)

#define UHCA_PRM_pbmc_reg(F) \
  F(local_port, 0x8, 0x8, 1) \
  F(xoff_timer_value, 0x20, 0x10, 1) \
  F(xoff_refresh, 0x30, 0x10, 1) \
  F(fullness_threshold, 0x49, 0x7, 1) \
  F(port_buffer_size, 0x50, 0x10, 1) \
  F(buffer, 0x60, 0x40, 10)
UHCA_PRM_LAYOUT(pbmc_reg, 0x360)

#define UHCA_PRM_pptb_reg(F) \
  F(mm, 0x2, 0x2, 1) \
  F(local_port, 0x8, 0x8, 1) \
  F(cm, 0x16, 0x1, 1) \
  F(um, 0x17, 0x1, 1) \
  F(pm, 0x18, 0x8, 1) \
  F(prio_x_buff, 0x20, 0x20, 1) \
  F(pm_msb, 0x40, 0x8, 1) \
  F(ctrl_buff, 0x58, 0x4, 1) \
  F(untagged_buff, 0x5c, 0x4, 1)
UHCA_PRM_LAYOUT(pptb_reg, 0x60)

#define UHCA_PRM_qetc_reg(F) \
  F(port_number, 0x8, 0x8, 1) \
  F(tc_configuration, 0x40, 0x40, 8) \
  F(global_configuration, 0x240, 0x40, 1)
UHCA_PRM_LAYOUT(qetc_reg, 0x280)

#define UHCA_PRM_ib_port_cntrs_grp_data_layout(F) \
  F(symbol_error_counter, 0x0, 0x10, 1) \
  F(link_error_recovery_counter, 0x10, 0x8, 1) \
  F(link_downed_counter, 0x18, 0x8, 1) \
  F(port_rcv_errors, 0x20, 0x10, 1) \
  F(port_rcv_remote_physical_errors, 0x30, 0x10, 1) \
  F(port_rcv_switch_relay_errors, 0x40, 0x10, 1) \
  F(port_xmit_discards, 0x50, 0x10, 1) \
  F(port_xmit_constraint_errors, 0x60, 0x8, 1) \
  F(port_rcv_constraint_errors, 0x68, 0x8, 1) \
  F(link_overrun_errors, 0x78, 0x8, 1) \
  F(vl_15_dropped, 0x90, 0x10, 1) \
  F(port_xmit_wait, 0x120, 0x20, 1)
UHCA_PRM_LAYOUT(ib_port_cntrs_grp_data_layout, 0x140)

#define UHCA_PRM_eth_802_3_cntrs_grp_data_layout(F) \
  F(a_frames_transmitted_ok_high, 0x0, 0x20, 1) \
  F(a_frames_transmitted_ok_low, 0x20, 0x20, 1) \
  F(a_frames_received_ok_high, 0x40, 0x20, 1) \
  F(a_frames_received_ok_low, 0x60, 0x20, 1) \
  F(a_frame_check_sequence_errors_high, 0x80, 0x20, 1) \
  F(a_frame_check_sequence_errors_low, 0xa0, 0x20, 1) \
  F(a_alignment_errors_high, 0xc0, 0x20, 1) \
  F(a_alignment_errors_low, 0xe0, 0x20, 1) \
  F(a_octets_transmitted_ok_high, 0x100, 0x20, 1) \
  F(a_octets_transmitted_ok_low, 0x120, 0x20, 1) \
  F(a_octets_received_ok_high, 0x140, 0x20, 1) \
  F(a_octets_received_ok_low, 0x160, 0x20, 1) \
  F(a_multicast_frames_xmitted_ok_high, 0x180, 0x20, 1) \
  F(a_multicast_frames_xmitted_ok_low, 0x1a0, 0x20, 1) \
  F(a_broadcast_frames_xmitted_ok_high, 0x1c0, 0x20, 1) \
  F(a_broadcast_frames_xmitted_ok_low, 0x1e0, 0x20, 1) \
  F(a_multicast_frames_received_ok_high, 0x200, 0x20, 1) \
  F(a_multicast_frames_received_ok_low, 0x220, 0x20, 1) \
  F(a_broadcast_frames_received_ok_high, 0x240, 0x20, 1) \
  F(a_broadcast_frames_received_ok_low, 0x260, 0x20, 1) \
  F(a_in_range_length_errors_high, 0x280, 0x20, 1) \
  F(a_in_range_length_errors_low, 0x2a0, 0x20, 1) \
  F(a_out_of_range_length_field_high, 0x2c0, 0x20, 1) \
  F(a_out_of_range_length_field_low, 0x2e0, 0x20, 1) \
  F(a_frame_too_long_errors_high, 0x300, 0x20, 1) \
  F(a_frame_too_long_errors_low, 0x320, 0x20, 1) \
  F(a_symbol_error_during_carrier_high, 0x340, 0x20, 1) \
  F(a_symbol_error_during_carrier_low, 0x360, 0x20, 1) \
  F(a_mac_control_frames_transmitted_high, 0x380, 0x20, 1) \
  F(a_mac_control_frames_transmitted_low, 0x3a0, 0x20, 1) \
  F(a_mac_control_frames_received_high, 0x3c0, 0x20, 1) \
  F(a_mac_control_frames_received_low, 0x3e0, 0x20, 1) \
  F(a_unsupported_opcodes_received_high, 0x400, 0x20, 1) \
  F(a_unsupported_opcodes_received_low, 0x420, 0x20, 1) \
  F(a_pause_mac_ctrl_frames_received_high, 0x440, 0x20, 1) \
  F(a_pause_mac_ctrl_frames_received_low, 0x460, 0x20, 1) \
  F(a_pause_mac_ctrl_frames_transmitted_high, 0x480, 0x20, 1) \
  F(a_pause_mac_ctrl_frames_transmitted_low, 0x4a0, 0x20, 1)
UHCA_PRM_LAYOUT(eth_802_3_cntrs_grp_data_layout, 0x7c0)

#define UHCA_PRM_eth_2863_cntrs_grp_data_layout(F) \
  F(if_in_octets_high, 0x0, 0x20, 1) \
  F(if_in_octets_low, 0x20, 0x20, 1) \
  F(if_in_ucast_pkts_high, 0x40, 0x20, 1) \
  F(if_in_ucast_pkts_low, 0x60, 0x20, 1) \
  F(if_in_discards_high, 0x80, 0x20, 1) \
  F(if_in_discards_low, 0xa0, 0x20, 1) \
  F(if_in_errors_high, 0xc0, 0x20, 1) \
  F(if_in_errors_low, 0xe0, 0x20, 1) \
  F(if_in_unknown_protos_high, 0x100, 0x20, 1) \
  F(if_in_unknown_protos_low, 0x120, 0x20, 1) \
  F(if_out_octets_high, 0x140, 0x20, 1) \
  F(if_out_octets_low, 0x160, 0x20, 1) \
  F(if_out_ucast_pkts_high, 0x180, 0x20, 1) \
  F(if_out_ucast_pkts_low, 0x1a0, 0x20, 1) \
  F(if_out_discards_high, 0x1c0, 0x20, 1) \
  F(if_out_discards_low, 0x1e0, 0x20, 1) \
  F(if_out_errors_high, 0x200, 0x20, 1) \
  F(if_out_errors_low, 0x220, 0x20, 1) \
  F(if_in_multicast_pkts_high, 0x240, 0x20, 1) \
  F(if_in_multicast_pkts_low, 0x260, 0x20, 1) \
  F(if_in_broadcast_pkts_high, 0x280, 0x20, 1) \
  F(if_in_broadcast_pkts_low, 0x2a0, 0x20, 1) \
  F(if_out_multicast_pkts_high, 0x2c0, 0x20, 1) \
  F(if_out_multicast_pkts_low, 0x2e0, 0x20, 1) \
  F(if_out_broadcast_pkts_high, 0x300, 0x20, 1) \
  F(if_out_broadcast_pkts_low, 0x320, 0x20, 1)
UHCA_PRM_LAYOUT(eth_2863_cntrs_grp_data_layout, 0x7c0)

#define UHCA_PRM_eth_2819_cntrs_grp_data_layout(F) \
  F(ether_stats_drop_events_high, 0x0, 0x20, 1) \
  F(ether_stats_drop_events_low, 0x20, 0x20, 1) \
  F(ether_stats_octets_high, 0x40, 0x20, 1) \
  F(ether_stats_octets_low, 0x60, 0x20, 1) \
  F(ether_stats_pkts_high, 0x80, 0x20, 1) \
  F(ether_stats_pkts_low, 0xa0, 0x20, 1) \
  F(ether_stats_broadcast_pkts_high, 0xc0, 0x20, 1) \
  F(ether_stats_broadcast_pkts_low, 0xe0, 0x20, 1) \
  F(ether_stats_multicast_pkts_high, 0x100, 0x20, 1) \
  F(ether_stats_multicast_pkts_low, 0x120, 0x20, 1) \
  F(ether_stats_crc_align_errors_high, 0x140, 0x20, 1) \
  F(ether_stats_crc_align_errors_low, 0x160, 0x20, 1) \
  F(ether_stats_undersize_pkts_high, 0x180, 0x20, 1) \
  F(ether_stats_undersize_pkts_low, 0x1a0, 0x20, 1) \
  F(ether_stats_oversize_pkts_high, 0x1c0, 0x20, 1) \
  F(ether_stats_oversize_pkts_low, 0x1e0, 0x20, 1) \
  F(ether_stats_fragments_high, 0x200, 0x20, 1) \
  F(ether_stats_fragments_low, 0x220, 0x20, 1) \
  F(ether_stats_jabbers_high, 0x240, 0x20, 1) \
  F(ether_stats_jabbers_low, 0x260, 0x20, 1) \
  F(ether_stats_collisions_high, 0x280, 0x20, 1) \
  F(ether_stats_collisions_low, 0x2a0, 0x20, 1) \
  F(ether_stats_pkts64octets_high, 0x2c0, 0x20, 1) \
  F(ether_stats_pkts64octets_low, 0x2e0, 0x20, 1) \
  F(ether_stats_pkts65to127octets_high, 0x300, 0x20, 1) \
  F(ether_stats_pkts65to127octets_low, 0x320, 0x20, 1) \
  F(ether_stats_pkts128to255octets_high, 0x340, 0x20, 1) \
  F(ether_stats_pkts128to255octets_low, 0x360, 0x20, 1) \
  F(ether_stats_pkts256to511octets_high, 0x380, 0x20, 1) \
  F(ether_stats_pkts256to511octets_low, 0x3a0, 0x20, 1) \
  F(ether_stats_pkts512to1023octets_high, 0x3c0, 0x20, 1) \
  F(ether_stats_pkts512to1023octets_low, 0x3e0, 0x20, 1) \
  F(ether_stats_pkts1024to1518octets_high, 0x400, 0x20, 1) \
  F(ether_stats_pkts1024to1518octets_low, 0x420, 0x20, 1) \
  F(ether_stats_pkts1519to2047octets_high, 0x440, 0x20, 1) \
  F(ether_stats_pkts1519to2047octets_low, 0x460, 0x20, 1) \
  F(ether_stats_pkts2048to4095octets_high, 0x480, 0x20, 1) \
  F(ether_stats_pkts2048to4095octets_low, 0x4a0, 0x20, 1) \
  F(ether_stats_pkts4096to8191octets_high, 0x4c0, 0x20, 1) \
  F(ether_stats_pkts4096to8191octets_low, 0x4e0, 0x20, 1) \
  F(ether_stats_pkts8192to10239octets_high, 0x500, 0x20, 1) \
  F(ether_stats_pkts8192to10239octets_low, 0x520, 0x20, 1)
UHCA_PRM_LAYOUT(eth_2819_cntrs_grp_data_layout, 0x7c0)

#define UHCA_PRM_phys_layer_cntrs(F) \
  F(time_since_last_clear_high, 0x0, 0x20, 1) \
  F(time_since_last_clear_low, 0x20, 0x20, 1) \
  F(symbol_errors_high, 0x40, 0x20, 1) \
  F(symbol_errors_low, 0x60, 0x20, 1) \
  F(sync_headers_errors_high, 0x80, 0x20, 1) \
  F(sync_headers_errors_low, 0xa0, 0x20, 1) \
  F(edpl_bip_errors_lane0_high, 0xc0, 0x20, 1) \
  F(edpl_bip_errors_lane0_low, 0xe0, 0x20, 1) \
  F(edpl_bip_errors_lane1_high, 0x100, 0x20, 1) \
  F(edpl_bip_errors_lane1_low, 0x120, 0x20, 1) \
  F(edpl_bip_errors_lane2_high, 0x140, 0x20, 1) \
  F(edpl_bip_errors_lane2_low, 0x160, 0x20, 1) \
  F(edpl_bip_errors_lane3_high, 0x180, 0x20, 1) \
  F(edpl_bip_errors_lane3_low, 0x1a0, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane0_high, 0x1c0, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane0_low, 0x1e0, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane1_high, 0x200, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane1_low, 0x220, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane2_high, 0x240, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane2_low, 0x260, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane3_high, 0x280, 0x20, 1) \
  F(fc_fec_corrected_blocks_lane3_low, 0x2a0, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane0_high, 0x2c0, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane0_low, 0x2e0, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane1_high, 0x300, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane1_low, 0x320, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane2_high, 0x340, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane2_low, 0x360, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane3_high, 0x380, 0x20, 1) \
  F(fc_fec_uncorrectable_blocks_lane3_low, 0x3a0, 0x20, 1) \
  F(rs_fec_corrected_blocks_high, 0x3c0, 0x20, 1) \
  F(rs_fec_corrected_blocks_low, 0x3e0, 0x20, 1) \
  F(rs_fec_uncorrectable_blocks_high, 0x400, 0x20, 1) \
  F(rs_fec_uncorrectable_blocks_low, 0x420, 0x20, 1) \
  F(rs_fec_no_errors_blocks_high, 0x440, 0x20, 1) \
  F(rs_fec_no_errors_blocks_low, 0x460, 0x20, 1) \
  F(rs_fec_single_error_blocks_high, 0x480, 0x20, 1) \
  F(rs_fec_single_error_blocks_low, 0x4a0, 0x20, 1) \
  F(rs_fec_corrected_symbols_total_high, 0x4c0, 0x20, 1) \
  F(rs_fec_corrected_symbols_total_low, 0x4e0, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane0_high, 0x500, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane0_low, 0x520, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane1_high, 0x540, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane1_low, 0x560, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane2_high, 0x580, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane2_low, 0x5a0, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane3_high, 0x5c0, 0x20, 1) \
  F(rs_fec_corrected_symbols_lane3_low, 0x5e0, 0x20, 1) \
  F(link_down_events, 0x600, 0x20, 1) \
  F(successful_recovery_events, 0x620, 0x20, 1)
UHCA_PRM_LAYOUT(phys_layer_cntrs, 0x7c0)

#define UHCA_PRM_phys_layer_statistical_cntrs(F) \
  F(time_since_last_clear_high, 0x0, 0x20, 1) \
  F(time_since_last_clear_low, 0x20, 0x20, 1) \
  F(phy_received_bits_high, 0x40, 0x20, 1) \
  F(phy_received_bits_low, 0x60, 0x20, 1) \
  F(phy_symbol_errors_high, 0x80, 0x20, 1) \
  F(phy_symbol_errors_low, 0xa0, 0x20, 1) \
  F(phy_corrected_bits_high, 0xc0, 0x20, 1) \
  F(phy_corrected_bits_low, 0xe0, 0x20, 1) \
  F(phy_corrected_bits_lane0_high, 0x100, 0x20, 1) \
  F(phy_corrected_bits_lane0_low, 0x120, 0x20, 1) \
  F(phy_corrected_bits_lane1_high, 0x140, 0x20, 1) \
  F(phy_corrected_bits_lane1_low, 0x160, 0x20, 1) \
  F(phy_corrected_bits_lane2_high, 0x180, 0x20, 1) \
  F(phy_corrected_bits_lane2_low, 0x1a0, 0x20, 1) \
  F(phy_corrected_bits_lane3_high, 0x1c0, 0x20, 1) \
  F(phy_corrected_bits_lane3_low, 0x1e0, 0x20, 1)
UHCA_PRM_LAYOUT(phys_layer_statistical_cntrs, 0x7c0)

#define UHCA_PRM_eth_per_prio_grp_data_layout(F) \
  F(rx_octets_high, 0x0, 0x20, 1) \
  F(rx_octets_low, 0x20, 0x20, 1) \
  F(rx_frames_high, 0x100, 0x20, 1) \
  F(rx_frames_low, 0x120, 0x20, 1) \
  F(tx_octets_high, 0x140, 0x20, 1) \
  F(tx_octets_low, 0x160, 0x20, 1) \
  F(tx_frames_high, 0x240, 0x20, 1) \
  F(tx_frames_low, 0x260, 0x20, 1) \
  F(rx_pause_high, 0x280, 0x20, 1) \
  F(rx_pause_low, 0x2a0, 0x20, 1) \
  F(rx_pause_duration_high, 0x2c0, 0x20, 1) \
  F(rx_pause_duration_low, 0x2e0, 0x20, 1) \
  F(tx_pause_high, 0x300, 0x20, 1) \
  F(tx_pause_low, 0x320, 0x20, 1) \
  F(tx_pause_duration_high, 0x340, 0x20, 1) \
  F(tx_pause_duration_low, 0x360, 0x20, 1) \
  F(rx_pause_transition_high, 0x380, 0x20, 1) \
  F(rx_pause_transition_low, 0x3a0, 0x20, 1) \
  F(rx_discards_high, 0x3c0, 0x20, 1) \
  F(rx_discards_low, 0x3e0, 0x20, 1) \
  F(device_stall_minor_watermark_cnt_high, 0x400, 0x20, 1) \
  F(device_stall_minor_watermark_cnt_low, 0x420, 0x20, 1) \
  F(device_stall_critical_watermark_cnt_high, 0x440, 0x20, 1) \
  F(device_stall_critical_watermark_cnt_low, 0x460, 0x20, 1)
UHCA_PRM_LAYOUT(eth_per_prio_grp_data_layout, 0x7c0)

// clang-format on

#define UHCA_PRM_LAYOUTS_reg(L) \
  L(access_register_in) \
  L(access_register_out) \
  L(register_host_endianness) \
  L(ptys_reg) \
  L(paos_reg) \
  L(pmtu_reg) \
  L(pmlp_reg) \
  L(mcia_reg) \
  L(pplm_reg) \
  L(pfcc_reg) \
  L(ppcnt_reg) \
  L(pude_reg) \
  L(pvlc_reg) \
  L(pcap_reg) \
  L(pcam_reg) \
  L(mcam_reg) \
  L(qcam_reg) \
  L(pbmc_reg) \
  L(pptb_reg) \
  L(qetc_reg) \
  L(ib_port_cntrs_grp_data_layout) \
  L(eth_802_3_cntrs_grp_data_layout) \
  L(eth_2863_cntrs_grp_data_layout) \
  L(eth_2819_cntrs_grp_data_layout) \
  L(phys_layer_cntrs) \
  L(phys_layer_statistical_cntrs) \
  L(eth_per_prio_grp_data_layout)

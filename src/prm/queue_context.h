// SPDX-License-Identifier: MIT
// Contexts of the Ethernet and shared receive objects: WQ, RQ, SQ, TIR, TIS, RQT, RMP, SRQ, XRQ, DCT.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_wq(F) \
  F(wq_type, 0x0, 0x4, 1) \
  F(wq_signature, 0x4, 0x1, 1) \
  F(end_padding_mode, 0x5, 0x2, 1) \
  F(cd_slave, 0x7, 0x1, 1) \
  F(hds_skip_first_sge, 0x20, 0x1, 1) \
  F(log2_hds_buf_size, 0x21, 0x3, 1) \
  F(page_offset, 0x2b, 0x5, 1) \
  F(lwm, 0x30, 0x10, 1) \
  F(pd, 0x48, 0x18, 1) \
  F(uar_page, 0x68, 0x18, 1) \
  F(dbr_addr, 0x80, 0x40, 1) \
  F(hw_counter, 0xc0, 0x20, 1) \
  F(sw_counter, 0xe0, 0x20, 1) \
  F(log_wq_stride, 0x10c, 0x4, 1) \
  F(log_wq_pg_sz, 0x113, 0x5, 1) \
  F(log_wq_sz, 0x11b, 0x5, 1) \
  F(dbr_umem_valid, 0x120, 0x1, 1) \
  F(wq_umem_valid, 0x121, 0x1, 1) \
  F(log_hairpin_num_packets, 0x123, 0x5, 1) \
  F(log_hairpin_data_sz, 0x12b, 0x5, 1) \
  F(log_wqe_num_of_strides, 0x134, 0x4, 1) \
  F(two_byte_shift_en, 0x138, 0x1, 1) \
  F(log_wqe_stride_size, 0x13d, 0x3, 1) \
  F(headers_mkey, 0x1c0, 0x20, 1) \
  F(shampo_enable, 0x1e0, 0x1, 1) \
  F(log_reservation_size, 0x1e5, 0x3, 1) \
  F(log_max_num_of_packets_per_reservation, 0x1ed, 0x3, 1) \
  F(log_headers_entry_size, 0x1f6, 0x2, 1) \
  F(log_headers_buffer_entry_num, 0x1fc, 0x4, 1) \
  F(pas, 0x600, 0x40, 0)
UHCA_PRM_LAYOUT(wq, 0x600)

#define UHCA_PRM_rqc(F) \
  F(rlky, 0x0, 0x1, 1) \
  F(delay_drop_en, 0x1, 0x1, 1) \
  F(scatter_fcs, 0x2, 0x1, 1) \
  F(vsd, 0x3, 0x1, 1) \
  F(mem_rq_type, 0x4, 0x4, 1) \
  F(state, 0x8, 0x4, 1) \
  F(flush_in_error_en, 0xd, 0x1, 1) \
  F(hairpin, 0xe, 0x1, 1) \
  F(ts_format, 0x1a, 0x2, 1) \
  F(user_index, 0x28, 0x18, 1) \
  F(cqn, 0x48, 0x18, 1) \
  F(counter_set_id, 0x60, 0x8, 1) \
  F(rmpn, 0x88, 0x18, 1) \
  F(hairpin_peer_sq, 0xa8, 0x18, 1) \
  F(hairpin_peer_vhca, 0xd0, 0x10, 1) \
  F(shampo_no_match_alignment_granularity, 0x126, 0x2, 1) \
  F(shampo_match_criteria_type, 0x12e, 0x2, 1) \
  F(reservation_timeout, 0x130, 0x10, 1) \
  F(wq, 0x180, 0x600, 1)
UHCA_PRM_LAYOUT(rqc, 0x780)

#define UHCA_PRM_sqc(F) \
  F(rlky, 0x0, 0x1, 1) \
  F(cd_master, 0x1, 0x1, 1) \
  F(fre, 0x2, 0x1, 1) \
  F(flush_in_error_en, 0x3, 0x1, 1) \
  F(allow_multi_pkt_send_wqe, 0x4, 0x1, 1) \
  F(min_wqe_inline_mode, 0x5, 0x3, 1) \
  F(state, 0x8, 0x4, 1) \
  F(reg_umr, 0xc, 0x1, 1) \
  F(allow_swp, 0xd, 0x1, 1) \
  F(hairpin, 0xe, 0x1, 1) \
  F(ts_format, 0x1a, 0x2, 1) \
  F(user_index, 0x28, 0x18, 1) \
  F(cqn, 0x48, 0x18, 1) \
  F(hairpin_peer_rq, 0x68, 0x18, 1) \
  F(hairpin_peer_vhca, 0x90, 0x10, 1) \
  F(ts_cqe_to_dest_cqn, 0xc8, 0x18, 1) \
  F(packet_pacing_rate_limit_index, 0xf0, 0x10, 1) \
  F(tis_lst_sz, 0x100, 0x10, 1) \
  F(qos_queue_group_id, 0x110, 0x10, 1) \
  F(tis_num_0, 0x168, 0x18, 1) \
  F(wq, 0x180, 0x600, 1)
UHCA_PRM_LAYOUT(sqc, 0x780)

#define UHCA_PRM_rmpc(F) \
  F(state, 0x8, 0x4, 1) \
  F(basic_cyclic_rcv_wqe, 0x20, 0x1, 1) \
  F(wq, 0x180, 0x600, 1)
UHCA_PRM_LAYOUT(rmpc, 0x780)

#define UHCA_PRM_tisc(F) \
  F(strict_lag_tx_port_affinity, 0x0, 0x1, 1) \
  F(tls_en, 0x1, 0x1, 1) \
  F(lag_tx_port_affinity, 0x4, 0x4, 1) \
  F(prio, 0xc, 0x4, 1) \
  F(transport_domain, 0x128, 0x18, 1) \
  F(underlay_qpn, 0x148, 0x18, 1) \
  F(pd, 0x168, 0x18, 1)
UHCA_PRM_LAYOUT(tisc, 0x500)

#define UHCA_PRM_tirc(F) \
  F(disp_type, 0x20, 0x4, 1) \
  F(tls_en, 0x24, 0x1, 1) \
  F(lro_timeout_period_usecs, 0x84, 0x10, 1) \
  F(packet_merge_mask, 0x94, 0x4, 1) \
  F(lro_max_ip_payload_size, 0x98, 0x8, 1) \
  F(inline_rqn, 0xe8, 0x18, 1) \
  F(rx_hash_symmetric, 0x100, 0x1, 1) \
  F(tunneled_offload_en, 0x102, 0x1, 1) \
  F(indirect_table, 0x108, 0x18, 1) \
  F(rx_hash_fn, 0x120, 0x4, 1) \
  F(self_lb_block, 0x126, 0x2, 1) \
  F(transport_domain, 0x128, 0x18, 1) \
  F(rx_hash_toeplitz_key, 0x140, 0x20, 10) \
  F(rx_hash_field_selector_outer, 0x280, 0x20, 1) \
  F(rx_hash_field_selector_inner, 0x2a0, 0x20, 1)
UHCA_PRM_LAYOUT(tirc, 0x780)

#define UHCA_PRM_rx_hash_field_select(F) \
  F(l3_prot_type, 0x0, 0x1, 1) \
  F(l4_prot_type, 0x1, 0x1, 1) \
  F(selected_fields, 0x2, 0x1e, 1)
UHCA_PRM_LAYOUT(rx_hash_field_select, 0x20)

#define UHCA_PRM_rq_num(F) \
  F(rq_num_, 0x8, 0x18, 1)
UHCA_PRM_LAYOUT(rq_num, 0x20)

#define UHCA_PRM_rqtc(F) \
  F(list_q_type, 0xa5, 0x3, 1) \
  F(rqt_max_size, 0xb0, 0x10, 1) \
  F(rq_vhca_id_format, 0xc0, 0x1, 1) \
  F(rqt_actual_size, 0xd0, 0x10, 1) \
  F(rq_num, 0x780, 0x20, 0)
UHCA_PRM_LAYOUT(rqtc, 0x780)

#define UHCA_PRM_srqc(F) \
  F(state, 0x0, 0x4, 1) \
  F(log_srq_size, 0x4, 0x4, 1) \
  F(wq_signature, 0x20, 0x1, 1) \
  F(cont_srq, 0x21, 0x1, 1) \
  F(rlky, 0x23, 0x1, 1) \
  F(log_rq_stride, 0x25, 0x3, 1) \
  F(xrcd, 0x28, 0x18, 1) \
  F(page_offset, 0x40, 0x6, 1) \
  F(cqn, 0x48, 0x18, 1) \
  F(log_page_size, 0x82, 0x6, 1) \
  F(pd, 0xc8, 0x18, 1) \
  F(lwm, 0xe0, 0x10, 1) \
  F(wqe_cnt, 0xf0, 0x10, 1) \
  F(dbr_addr, 0x140, 0x40, 1)
UHCA_PRM_LAYOUT(srqc, 0x200)

#define UHCA_PRM_xrc_srqc(F) \
  F(state, 0x0, 0x4, 1) \
  F(log_xrc_srq_size, 0x4, 0x4, 1) \
  F(wq_signature, 0x20, 0x1, 1) \
  F(cont_srq, 0x21, 0x1, 1) \
  F(rlky, 0x23, 0x1, 1) \
  F(basic_cyclic_rcv_wqe, 0x24, 0x1, 1) \
  F(log_rq_stride, 0x25, 0x3, 1) \
  F(xrcd, 0x28, 0x18, 1) \
  F(page_offset, 0x40, 0x6, 1) \
  F(dbr_umem_valid, 0x47, 0x1, 1) \
  F(cqn, 0x48, 0x18, 1) \
  F(user_index_equal_xrc_srqn, 0x80, 0x1, 1) \
  F(log_page_size, 0x82, 0x6, 1) \
  F(user_index, 0x88, 0x18, 1) \
  F(pd, 0xc8, 0x18, 1) \
  F(lwm, 0xe0, 0x10, 1) \
  F(wqe_cnt, 0xf0, 0x10, 1) \
  F(db_record_addr_h, 0x140, 0x20, 1) \
  F(db_record_addr_l, 0x160, 0x1e, 1)
UHCA_PRM_LAYOUT(xrc_srqc, 0x200)

#define UHCA_PRM_dctc(F) \
  F(state, 0x4, 0x4, 1) \
  F(user_index, 0x28, 0x18, 1) \
  F(cqn, 0x48, 0x18, 1) \
  F(counter_set_id, 0x60, 0x8, 1) \
  F(atomic_mode, 0x68, 0x4, 1) \
  F(rre, 0x6c, 0x1, 1) \
  F(rwe, 0x6d, 0x1, 1) \
  F(rae, 0x6e, 0x1, 1) \
  F(atomic_like_write_en, 0x6f, 0x1, 1) \
  F(latency_sensitive, 0x70, 0x1, 1) \
  F(rlky, 0x71, 0x1, 1) \
  F(free_ar, 0x72, 0x1, 1) \
  F(cs_res, 0x88, 0x8, 1) \
  F(min_rnr_nak, 0x93, 0x5, 1) \
  F(srqn_xrqn, 0xa8, 0x18, 1) \
  F(pd, 0xc8, 0x18, 1) \
  F(tclass, 0xe0, 0x8, 1) \
  F(flow_label, 0xec, 0x14, 1) \
  F(dc_access_key, 0x100, 0x40, 1) \
  F(mtu, 0x145, 0x3, 1) \
  F(port, 0x148, 0x8, 1) \
  F(pkey_index, 0x150, 0x10, 1) \
  F(my_addr_index, 0x168, 0x8, 1) \
  F(hop_limit, 0x178, 0x8, 1) \
  F(dc_access_key_violation_count, 0x180, 0x20, 1) \
  F(dei_cfi, 0x1b4, 0x1, 1) \
  F(eth_prio, 0x1b5, 0x3, 1) \
  F(ecn, 0x1b8, 0x2, 1) \
  F(dscp, 0x1ba, 0x6, 1) \
  F(ece, 0x1e0, 0x20, 1)
UHCA_PRM_LAYOUT(dctc, 0x200)

#define UHCA_PRM_tag_matching_topology_context(F) \
  F(log_matching_list_sz, 0x0, 0x4, 1) \
  F(append_next_index, 0x10, 0x10, 1) \
  F(sw_phase_cnt, 0x20, 0x10, 1) \
  F(hw_phase_cnt, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(tag_matching_topology_context, 0x80)

#define UHCA_PRM_xrqc(F) \
  F(state, 0x0, 0x4, 1) \
  F(rlkey, 0x4, 0x1, 1) \
  F(topology, 0x14, 0x4, 1) \
  F(offload, 0x1c, 0x4, 1) \
  F(user_index, 0x28, 0x18, 1) \
  F(cqn, 0x48, 0x18, 1) \
  F(tag_matching_topology_context, 0x100, 0x80, 1) \
  F(wq, 0x400, 0x600, 1)
UHCA_PRM_LAYOUT(xrqc, 0xa00)

// clang-format on

#define UHCA_PRM_LAYOUTS_queue_context(L) \
  L(wq) \
  L(rqc) \
  L(sqc) \
  L(rmpc) \
  L(tisc) \
  L(tirc) \
  L(rx_hash_field_select) \
  L(rq_num) \
  L(rqtc) \
  L(srqc) \
  L(xrc_srqc) \
  L(dctc) \
  L(tag_matching_topology_context) \
  L(xrqc)

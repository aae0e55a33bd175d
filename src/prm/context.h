// SPDX-License-Identifier: MIT
// Contexts of the transport objects: QP, CQ, EQ, MKey and the address path.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_ads(F) \
  F(fl, 0x0, 0x1, 1) \
  F(free_ar, 0x1, 0x1, 1) \
  F(pkey_index, 0x10, 0x10, 1) \
  F(grh, 0x28, 0x1, 1) \
  F(mlid, 0x29, 0x7, 1) \
  F(rlid, 0x30, 0x10, 1) \
  F(ack_timeout, 0x40, 0x5, 1) \
  F(src_addr_index, 0x48, 0x8, 1) \
  F(stat_rate, 0x54, 0x4, 1) \
  F(hop_limit, 0x58, 0x8, 1) \
  F(tclass, 0x64, 0x8, 1) \
  F(flow_label, 0x6c, 0x14, 1) \
  F(rgid_rip, 0x80, 0x8, 16) \
  F(f_dscp, 0x104, 0x1, 1) \
  F(f_ecn, 0x105, 0x1, 1) \
  F(f_eth_prio, 0x107, 0x1, 1) \
  F(ecn, 0x108, 0x2, 1) \
  F(dscp, 0x10a, 0x6, 1) \
  F(udp_sport, 0x110, 0x10, 1) \
  F(dei_cfi, 0x120, 0x1, 1) \
  F(eth_prio, 0x121, 0x3, 1) \
  F(sl, 0x124, 0x4, 1) \
  F(vhca_port_num, 0x128, 0x8, 1) \
  F(rmac_47_32, 0x130, 0x10, 1) \
  F(rmac_31_0, 0x140, 0x20, 1)
UHCA_PRM_LAYOUT(ads, 0x160)

#define UHCA_PRM_qpc(F) \
  F(state, 0x0, 0x4, 1) \
  F(lag_tx_port_affinity, 0x4, 0x4, 1) \
  F(st, 0x8, 0x8, 1) \
  F(isolate_vl_tc, 0x12, 0x1, 1) \
  F(pm_state, 0x13, 0x2, 1) \
  F(req_e2e_credit_mode, 0x16, 0x2, 1) \
  F(offload_type, 0x18, 0x4, 1) \
  F(end_padding_mode, 0x1c, 0x2, 1) \
  F(wq_signature, 0x20, 0x1, 1) \
  F(block_lb_mc, 0x21, 0x1, 1) \
  F(atomic_like_write_en, 0x22, 0x1, 1) \
  F(latency_sensitive, 0x23, 0x1, 1) \
  F(drain_sigerr, 0x25, 0x1, 1) \
  F(pd, 0x28, 0x18, 1) \
  F(mtu, 0x40, 0x3, 1) \
  F(log_msg_max, 0x43, 0x5, 1) \
  F(log_rq_size, 0x49, 0x4, 1) \
  F(log_rq_stride, 0x4d, 0x3, 1) \
  F(no_sq, 0x50, 0x1, 1) \
  F(log_sq_size, 0x51, 0x4, 1) \
  F(ts_format, 0x58, 0x2, 1) \
  F(rlky, 0x5b, 0x1, 1) \
  F(ulp_stateless_offload_mode, 0x5c, 0x4, 1) \
  F(counter_set_id, 0x60, 0x8, 1) \
  F(uar_page, 0x68, 0x18, 1) \
  F(user_index, 0x88, 0x18, 1) \
  F(log_page_size, 0xa3, 0x5, 1) \
  F(remote_qpn, 0xa8, 0x18, 1) \
  F(primary_address_path, 0xc0, 0x160, 1) \
  F(secondary_address_path, 0x220, 0x160, 1) \
  F(log_ack_req_freq, 0x380, 0x4, 1) \
  F(log_sra_max, 0x388, 0x3, 1) \
  F(retry_count, 0x38d, 0x3, 1) \
  F(rnr_retry, 0x390, 0x3, 1) \
  F(fre, 0x394, 0x1, 1) \
  F(cur_rnr_retry, 0x395, 0x3, 1) \
  F(cur_retry_count, 0x398, 0x3, 1) \
  F(next_send_psn, 0x3c8, 0x18, 1) \
  F(log_num_dci_stream_channels, 0x3e3, 0x5, 1) \
  F(cqn_snd, 0x3e8, 0x18, 1) \
  F(log_num_dci_errored_streams, 0x403, 0x5, 1) \
  F(deth_sqpn, 0x408, 0x18, 1) \
  F(last_acked_psn, 0x448, 0x18, 1) \
  F(ssn, 0x468, 0x18, 1) \
  F(log_rra_max, 0x488, 0x3, 1) \
  F(atomic_mode, 0x48c, 0x4, 1) \
  F(rre, 0x490, 0x1, 1) \
  F(rwe, 0x491, 0x1, 1) \
  F(rae, 0x492, 0x1, 1) \
  F(page_offset, 0x494, 0x6, 1) \
  F(cd_slave_receive, 0x49d, 0x1, 1) \
  F(cd_slave_send, 0x49e, 0x1, 1) \
  F(cd_master, 0x49f, 0x1, 1) \
  F(min_rnr_nak, 0x4a3, 0x5, 1) \
  F(next_rcv_psn, 0x4a8, 0x18, 1) \
  F(xrcd, 0x4c8, 0x18, 1) \
  F(cqn_rcv, 0x4e8, 0x18, 1) \
  F(dbr_addr, 0x500, 0x40, 1) \
  F(q_key, 0x540, 0x20, 1) \
  F(rq_type, 0x565, 0x3, 1) \
  F(srqn_rmpn_xrqn, 0x568, 0x18, 1) \
  F(rmsn, 0x588, 0x18, 1) \
  F(hw_sq_wqebb_counter, 0x5a0, 0x10, 1) \
  F(sw_sq_wqebb_counter, 0x5b0, 0x10, 1) \
  F(hw_rq_counter, 0x5c0, 0x20, 1) \
  F(sw_rq_counter, 0x5e0, 0x20, 1) \
  F(cgs, 0x62f, 0x1, 1) \
  F(cs_req, 0x630, 0x8, 1) \
  F(cs_res, 0x638, 0x8, 1) \
  F(dc_access_key, 0x640, 0x40, 1) \
  F(dbr_umem_valid, 0x683, 0x1, 1)
UHCA_PRM_LAYOUT(qpc, 0x740)

#define UHCA_PRM_cqc(F) \
  F(status, 0x0, 0x4, 1) \
  F(dbr_umem_valid, 0x6, 0x1, 1) \
  F(apu_cq, 0x7, 0x1, 1) \
  F(cqe_sz, 0x8, 0x3, 1) \
  F(cc, 0xb, 0x1, 1) \
  F(scqe_break_moderation_en, 0xd, 0x1, 1) \
  F(oi, 0xe, 0x1, 1) \
  F(cq_period_mode, 0xf, 0x2, 1) \
  F(cqe_comp_en, 0x11, 0x1, 1) \
  F(mini_cqe_res_format, 0x12, 0x2, 1) \
  F(st, 0x14, 0x4, 1) \
  F(cqe_compression_layout, 0x1e, 0x2, 1) \
  F(page_offset, 0x54, 0x6, 1) \
  F(log_cq_size, 0x63, 0x5, 1) \
  F(uar_page, 0x68, 0x18, 1) \
  F(cq_period, 0x84, 0xc, 1) \
  F(cq_max_count, 0x90, 0x10, 1) \
  F(c_eqn_or_apu_element, 0xa0, 0x20, 1) \
  F(log_page_size, 0xc3, 0x5, 1) \
  F(last_notified_index, 0x108, 0x18, 1) \
  F(last_solicit_index, 0x128, 0x18, 1) \
  F(consumer_counter, 0x148, 0x18, 1) \
  F(producer_counter, 0x168, 0x18, 1) \
  F(dbr_addr, 0x1c0, 0x40, 1)
UHCA_PRM_LAYOUT(cqc, 0x200)

#define UHCA_PRM_eqc(F) \
  F(status, 0x0, 0x4, 1) \
  F(ec, 0xd, 0x1, 1) \
  F(oi, 0xe, 0x1, 1) \
  F(st, 0x14, 0x4, 1) \
  F(page_offset, 0x54, 0x6, 1) \
  F(log_eq_size, 0x63, 0x5, 1) \
  F(uar_page, 0x68, 0x18, 1) \
  F(intr, 0xb4, 0xc, 1) \
  F(log_page_size, 0xc3, 0x5, 1) \
  F(consumer_counter, 0x148, 0x18, 1) \
  F(producer_counter, 0x168, 0x18, 1)
UHCA_PRM_LAYOUT(eqc, 0x200)

#define UHCA_PRM_mkc(F) \
  F(free, 0x1, 0x1, 1) \
  F(access_mode_4_2, 0x3, 0x3, 1) \
  F(relaxed_ordering_write, 0xd, 0x1, 1) \
  F(small_fence_on_rdma_read_response, 0xf, 0x1, 1) \
  F(umr_en, 0x10, 0x1, 1) \
  F(a, 0x11, 0x1, 1) \
  F(rw, 0x12, 0x1, 1) \
  F(rr, 0x13, 0x1, 1) \
  F(lw, 0x14, 0x1, 1) \
  F(lr, 0x15, 0x1, 1) \
  F(access_mode_1_0, 0x16, 0x2, 1) \
  F(ma_translation_mode, 0x1a, 0x2, 1) \
  F(qpn, 0x20, 0x18, 1) \
  F(mkey_7_0, 0x38, 0x8, 1) \
  F(length64, 0x60, 0x1, 1) \
  F(bsf_en, 0x61, 0x1, 1) \
  F(sync_umr, 0x62, 0x1, 1) \
  F(expected_sigerr_count, 0x65, 0x1, 1) \
  F(en_rinval, 0x67, 0x1, 1) \
  F(pd, 0x68, 0x18, 1) \
  F(start_addr, 0x80, 0x40, 1) \
  F(len, 0xc0, 0x40, 1) \
  F(bsf_octword_size, 0x100, 0x20, 1) \
  F(translations_octword_size, 0x1a0, 0x20, 1) \
  F(relaxed_ordering_read, 0x1d9, 0x1, 1) \
  F(log_page_size, 0x1db, 0x5, 1)
UHCA_PRM_LAYOUT(mkc, 0x200)

#define UHCA_PRM_mtt(F) \
  F(ptag_63_32, 0x0, 0x20, 1) \
  F(ptag_31_8, 0x20, 0x18, 1) \
  F(wr_en, 0x3e, 0x1, 1) \
  F(rd_en, 0x3f, 0x1, 1)
UHCA_PRM_LAYOUT(mtt, 0x40)

#define UHCA_PRM_resize_field_select(F) \
  F(resize_field_select_, 0x0, 0x20, 1)
UHCA_PRM_LAYOUT(resize_field_select, 0x20)

#define UHCA_PRM_modify_field_select(F) \
  F(modify_field_select_, 0x0, 0x20, 1)
UHCA_PRM_LAYOUT(modify_field_select, 0x20)

// clang-format on

namespace uhca::prm {
// mkc.access_mode_1_0 (MLX5_MKC_ACCESS_MODE_*).
inline constexpr std::uint32_t kMkeyModePa = 0, kMkeyModeMtt = 1, kMkeyModeKlms = 2, kMkeyModeKsm = 3;
}  // namespace uhca::prm

#define UHCA_PRM_LAYOUTS_context(L) \
  L(ads)                            \
  L(qpc)                            \
  L(cqc)                            \
  L(eqc)                            \
  L(mkc)                            \
  L(mtt)                            \
  L(resize_field_select)            \
  L(modify_field_select)

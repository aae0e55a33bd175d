// SPDX-License-Identifier: MIT
// Commands of the plain objects: UAR, PD, transport domain, XRCD, MKey, EQ, CQ, counters.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_alloc_uar_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(alloc_uar_in, 0x80)

#define UHCA_PRM_alloc_uar_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(uar, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(alloc_uar_out, 0x80)

#define UHCA_PRM_dealloc_uar_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(uar, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(dealloc_uar_in, 0x80)

#define UHCA_PRM_dealloc_uar_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_uar_out, 0x80)

#define UHCA_PRM_alloc_pd_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(alloc_pd_in, 0x80)

#define UHCA_PRM_alloc_pd_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(pd, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(alloc_pd_out, 0x80)

#define UHCA_PRM_dealloc_pd_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(pd, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(dealloc_pd_in, 0x80)

#define UHCA_PRM_dealloc_pd_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_pd_out, 0x80)

#define UHCA_PRM_alloc_transport_domain_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(alloc_transport_domain_in, 0x80)

#define UHCA_PRM_alloc_transport_domain_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(transport_domain, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(alloc_transport_domain_out, 0x80)

#define UHCA_PRM_dealloc_transport_domain_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(transport_domain, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(dealloc_transport_domain_in, 0x80)

#define UHCA_PRM_dealloc_transport_domain_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_transport_domain_out, 0x80)

#define UHCA_PRM_alloc_xrcd_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(alloc_xrcd_in, 0x80)

#define UHCA_PRM_alloc_xrcd_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(xrcd, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(alloc_xrcd_out, 0x80)

#define UHCA_PRM_dealloc_xrcd_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(xrcd, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(dealloc_xrcd_in, 0x80)

#define UHCA_PRM_dealloc_xrcd_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_xrcd_out, 0x80)

#define UHCA_PRM_create_mkey_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(pg_access, 0x60, 0x1, 1) \
  F(mkey_umem_valid, 0x61, 0x1, 1) \
  F(memory_key_mkey_entry, 0x80, 0x200, 1) \
  F(translations_octword_actual_size, 0x300, 0x20, 1) \
  F(klm_pas_mtt, 0x880, 0x20, 0)
UHCA_PRM_LAYOUT(create_mkey_in, 0x880)

#define UHCA_PRM_create_mkey_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(mkey_index, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_mkey_out, 0x80)

#define UHCA_PRM_query_mkey_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(mkey_index, 0x48, 0x18, 1) \
  F(pg_access, 0x60, 0x1, 1)
UHCA_PRM_LAYOUT(query_mkey_in, 0x80)

#define UHCA_PRM_query_mkey_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(memory_key_mkey_entry, 0x80, 0x200, 1) \
  F(bsf0_klm0_pas_mtt0_1, 0x880, 0x8, 16) \
  F(bsf1_klm1_pas_mtt2_3, 0x900, 0x8, 16)
UHCA_PRM_LAYOUT(query_mkey_out, 0x980)

#define UHCA_PRM_destroy_mkey_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(mkey_index, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_mkey_in, 0x80)

#define UHCA_PRM_destroy_mkey_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_mkey_out, 0x80)

#define UHCA_PRM_create_eq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(eq_context_entry, 0x80, 0x200, 1) \
  F(event_bitmask, 0x2c0, 0x40, 4) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(create_eq_in, 0x880)

#define UHCA_PRM_create_eq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(eq_number, 0x58, 0x8, 1)
UHCA_PRM_LAYOUT(create_eq_out, 0x80)

#define UHCA_PRM_query_eq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(eq_number, 0x58, 0x8, 1)
UHCA_PRM_LAYOUT(query_eq_in, 0x80)

#define UHCA_PRM_query_eq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(eq_context_entry, 0x80, 0x200, 1) \
  F(event_bitmask, 0x2c0, 0x40, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(query_eq_out, 0x880)

#define UHCA_PRM_destroy_eq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(eq_number, 0x58, 0x8, 1)
UHCA_PRM_LAYOUT(destroy_eq_in, 0x80)

#define UHCA_PRM_destroy_eq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_eq_out, 0x80)

#define UHCA_PRM_create_cq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(cq_context, 0x80, 0x200, 1) \
  F(cq_umem_valid, 0x2e0, 0x1, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(create_cq_in, 0x880)

#define UHCA_PRM_create_cq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(cqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_cq_out, 0x80)

#define UHCA_PRM_modify_cq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(cqn, 0x48, 0x18, 1) \
  F(modify_field_select_resize_field_select, 0x60, 0x20, 1) \
  F(cq_context, 0x80, 0x200, 1) \
  F(cq_umem_valid, 0x2e0, 0x1, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(modify_cq_in, 0x880)

#define UHCA_PRM_modify_cq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_cq_out, 0x80)

#define UHCA_PRM_query_cq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(cqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_cq_in, 0x80)

#define UHCA_PRM_query_cq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(cq_context, 0x80, 0x200, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(query_cq_out, 0x880)

#define UHCA_PRM_destroy_cq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(cqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_cq_in, 0x80)

#define UHCA_PRM_destroy_cq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_cq_out, 0x80)

#define UHCA_PRM_alloc_q_counter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(alloc_q_counter_in, 0x80)

#define UHCA_PRM_alloc_q_counter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(counter_set_id, 0x58, 0x8, 1)
UHCA_PRM_LAYOUT(alloc_q_counter_out, 0x80)

#define UHCA_PRM_dealloc_q_counter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(counter_set_id, 0x58, 0x8, 1)
UHCA_PRM_LAYOUT(dealloc_q_counter_in, 0x80)

#define UHCA_PRM_dealloc_q_counter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_q_counter_out, 0x80)

#define UHCA_PRM_query_q_counter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(clear, 0xc0, 0x1, 1) \
  F(counter_set_id, 0xf8, 0x8, 1)
UHCA_PRM_LAYOUT(query_q_counter_in, 0x100)

#define UHCA_PRM_query_q_counter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rx_write_requests, 0x80, 0x20, 1) \
  F(rx_read_requests, 0xc0, 0x20, 1) \
  F(rx_atomic_requests, 0x100, 0x20, 1) \
  F(rx_dct_connect, 0x140, 0x20, 1) \
  F(out_of_buffer, 0x180, 0x20, 1) \
  F(out_of_sequence, 0x1c0, 0x20, 1) \
  F(duplicate_request, 0x200, 0x20, 1) \
  F(rnr_nak_retry_err, 0x240, 0x20, 1) \
  F(packet_seq_err, 0x280, 0x20, 1) \
  F(implied_nak_seq_err, 0x2c0, 0x20, 1) \
  F(local_ack_timeout_err, 0x300, 0x20, 1) \
  F(resp_local_length_error, 0x3c0, 0x20, 1) \
  F(req_local_length_error, 0x3e0, 0x20, 1) \
  F(resp_local_qp_error, 0x400, 0x20, 1) \
  F(local_operation_error, 0x420, 0x20, 1) \
  F(resp_local_protection, 0x440, 0x20, 1) \
  F(req_local_protection, 0x460, 0x20, 1) \
  F(resp_cqe_error, 0x480, 0x20, 1) \
  F(req_cqe_error, 0x4a0, 0x20, 1) \
  F(req_mw_binding, 0x4c0, 0x20, 1) \
  F(req_bad_response, 0x4e0, 0x20, 1) \
  F(req_remote_invalid_request, 0x500, 0x20, 1) \
  F(resp_remote_invalid_request, 0x520, 0x20, 1) \
  F(req_remote_access_errors, 0x540, 0x20, 1) \
  F(resp_remote_access_errors, 0x560, 0x20, 1) \
  F(req_remote_operation_errors, 0x580, 0x20, 1) \
  F(req_transport_retries_exceeded, 0x5a0, 0x20, 1) \
  F(cq_overflow, 0x5c0, 0x20, 1) \
  F(resp_cqe_flush_error, 0x5e0, 0x20, 1) \
  F(req_cqe_flush_error, 0x600, 0x20, 1) \
  F(roce_adp_retrans, 0x640, 0x20, 1) \
  F(roce_adp_retrans_to, 0x660, 0x20, 1) \
  F(roce_slow_restart, 0x680, 0x20, 1) \
  F(roce_slow_restart_cnps, 0x6a0, 0x20, 1) \
  F(roce_slow_restart_trans, 0x6c0, 0x20, 1)
UHCA_PRM_LAYOUT(query_q_counter_out, 0x800)

#define UHCA_PRM_create_psv_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(num_psv, 0x40, 0x4, 1) \
  F(pd, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_psv_in, 0x80)

#define UHCA_PRM_create_psv_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(psv0_index, 0x88, 0x18, 1) \
  F(psv1_index, 0xa8, 0x18, 1) \
  F(psv2_index, 0xc8, 0x18, 1) \
  F(psv3_index, 0xe8, 0x18, 1)
UHCA_PRM_LAYOUT(create_psv_out, 0x100)

#define UHCA_PRM_destroy_psv_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(psvn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_psv_in, 0x80)

#define UHCA_PRM_destroy_psv_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_psv_out, 0x80)

#define UHCA_PRM_general_obj_in_cmd_hdr(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(vhca_tunnel_id, 0x20, 0x10, 1) \
  F(obj_type, 0x30, 0x10, 1) \
  F(obj_id, 0x40, 0x20, 1) \
  F(log_obj_range, 0x63, 0x5, 1)
UHCA_PRM_LAYOUT(general_obj_in_cmd_hdr, 0x80)

#define UHCA_PRM_general_obj_out_cmd_hdr(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(obj_id, 0x40, 0x20, 1)
UHCA_PRM_LAYOUT(general_obj_out_cmd_hdr, 0x80)

#define UHCA_PRM_set_pp_rate_limit_context(F) \
  F(rate_limit, 0x0, 0x20, 1) \
  F(burst_upper_bound, 0x20, 0x20, 1) \
  F(typical_packet_size, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(set_pp_rate_limit_context, 0x180)

#define UHCA_PRM_set_pp_rate_limit_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rate_limit_index, 0x50, 0x10, 1) \
  F(ctx, 0x80, 0x180, 1)
UHCA_PRM_LAYOUT(set_pp_rate_limit_in, 0x200)

#define UHCA_PRM_set_pp_rate_limit_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_pp_rate_limit_out, 0x80)

#define UHCA_PRM_create_umem_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(umem, 0x80, 0x100, 1)
UHCA_PRM_LAYOUT(create_umem_in, 0x180)

#define UHCA_PRM_create_umem_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(umem_id, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_umem_out, 0x80)

#define UHCA_PRM_destroy_umem_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(umem_id, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_umem_in, 0x80)

#define UHCA_PRM_destroy_umem_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_umem_out, 0x80)

#define UHCA_PRM_umem(F) \
  F(ats, 0x80, 0x1, 1) \
  F(log_page_size, 0x9b, 0x5, 1) \
  F(page_offset, 0xa0, 0x20, 1) \
  F(num_of_mtt, 0xc0, 0x40, 1) \
  F(mtt, 0x100, 0x40, 0)
UHCA_PRM_LAYOUT(umem, 0x100)

#define UHCA_PRM_create_uctx_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(uctx, 0x80, 0x180, 1)
UHCA_PRM_LAYOUT(create_uctx_in, 0x200)

#define UHCA_PRM_create_uctx_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(uid, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(create_uctx_out, 0x80)

#define UHCA_PRM_destroy_uctx_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(uid, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(destroy_uctx_in, 0x80)

#define UHCA_PRM_destroy_uctx_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_uctx_out, 0x80)

#define UHCA_PRM_uctx(F) \
  F(cap, 0x0, 0x20, 1)
UHCA_PRM_LAYOUT(uctx, 0x180)

// clang-format on

namespace uhca::prm {
// uctx.cap and cmd_hca_cap.uctx_cap: Ethernet SQs (Linux mlx5_ifc.h: MLX5_UCTX_CAP_RAW_TX).
inline constexpr std::uint32_t kUctxCapRawTx = 1;
}  // namespace uhca::prm

#define UHCA_PRM_LAYOUTS_cmd_object(L) \
  L(alloc_uar_in)                      \
  L(alloc_uar_out)                     \
  L(dealloc_uar_in)                    \
  L(dealloc_uar_out)                   \
  L(alloc_pd_in)                       \
  L(alloc_pd_out)                      \
  L(dealloc_pd_in)                     \
  L(dealloc_pd_out)                    \
  L(alloc_transport_domain_in)         \
  L(alloc_transport_domain_out)        \
  L(dealloc_transport_domain_in)       \
  L(dealloc_transport_domain_out)      \
  L(alloc_xrcd_in)                     \
  L(alloc_xrcd_out)                    \
  L(dealloc_xrcd_in)                   \
  L(dealloc_xrcd_out)                  \
  L(create_mkey_in)                    \
  L(create_mkey_out)                   \
  L(query_mkey_in)                     \
  L(query_mkey_out)                    \
  L(destroy_mkey_in)                   \
  L(destroy_mkey_out)                  \
  L(create_eq_in)                      \
  L(create_eq_out)                     \
  L(query_eq_in)                       \
  L(query_eq_out)                      \
  L(destroy_eq_in)                     \
  L(destroy_eq_out)                    \
  L(create_cq_in)                      \
  L(create_cq_out)                     \
  L(modify_cq_in)                      \
  L(modify_cq_out)                     \
  L(query_cq_in)                       \
  L(query_cq_out)                      \
  L(destroy_cq_in)                     \
  L(destroy_cq_out)                    \
  L(alloc_q_counter_in)                \
  L(alloc_q_counter_out)               \
  L(dealloc_q_counter_in)              \
  L(dealloc_q_counter_out)             \
  L(query_q_counter_in)                \
  L(query_q_counter_out)               \
  L(create_psv_in)                     \
  L(create_psv_out)                    \
  L(destroy_psv_in)                    \
  L(destroy_psv_out)                   \
  L(general_obj_in_cmd_hdr)            \
  L(general_obj_out_cmd_hdr)           \
  L(set_pp_rate_limit_context)         \
  L(set_pp_rate_limit_in)              \
  L(set_pp_rate_limit_out)             \
  L(create_umem_in)                    \
  L(create_umem_out)                   \
  L(destroy_umem_in)                   \
  L(destroy_umem_out)                  \
  L(umem)                              \
  L(create_uctx_in)                    \
  L(create_uctx_out)                   \
  L(destroy_uctx_in)                   \
  L(destroy_uctx_out)                  \
  L(uctx)

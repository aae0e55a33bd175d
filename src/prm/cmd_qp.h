// SPDX-License-Identifier: MIT
// Commands of queue pairs, their state changes, SRQ, RMP, DCT, multicast attachment, MAD.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_create_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(input_qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(ece, 0xa0, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1) \
  F(wq_umem_valid, 0x860, 0x1, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(create_qp_in, 0x880)

#define UHCA_PRM_create_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(ece, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(create_qp_out, 0x80)

#define UHCA_PRM_destroy_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_qp_in, 0x80)

#define UHCA_PRM_destroy_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_qp_out, 0x80)

#define UHCA_PRM_rst2init_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(ece, 0xa0, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1)
UHCA_PRM_LAYOUT(rst2init_qp_in, 0x880)

#define UHCA_PRM_rst2init_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(ece, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(rst2init_qp_out, 0x80)

#define UHCA_PRM_init2init_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(ece, 0xa0, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1)
UHCA_PRM_LAYOUT(init2init_qp_in, 0x880)

#define UHCA_PRM_init2init_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(ece, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(init2init_qp_out, 0x80)

#define UHCA_PRM_init2rtr_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(ece, 0xa0, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1)
UHCA_PRM_LAYOUT(init2rtr_qp_in, 0x880)

#define UHCA_PRM_init2rtr_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(ece, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(init2rtr_qp_out, 0x80)

#define UHCA_PRM_rtr2rts_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(ece, 0xa0, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1)
UHCA_PRM_LAYOUT(rtr2rts_qp_in, 0x880)

#define UHCA_PRM_rtr2rts_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(ece, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(rtr2rts_qp_out, 0x80)

#define UHCA_PRM_rts2rts_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(ece, 0xa0, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1)
UHCA_PRM_LAYOUT(rts2rts_qp_in, 0x880)

#define UHCA_PRM_rts2rts_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(ece, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(rts2rts_qp_out, 0x80)

#define UHCA_PRM_sqerr2rts_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1)
UHCA_PRM_LAYOUT(sqerr2rts_qp_in, 0x880)

#define UHCA_PRM_sqerr2rts_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(sqerr2rts_qp_out, 0x80)

#define UHCA_PRM_sqd2rts_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1)
UHCA_PRM_LAYOUT(sqd2rts_qp_in, 0x880)

#define UHCA_PRM_sqd2rts_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(sqd2rts_qp_out, 0x80)

#define UHCA_PRM_qp_2err_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(qp_2err_in, 0x80)

#define UHCA_PRM_qp_2err_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(qp_2err_out, 0x80)

#define UHCA_PRM_qp_2rst_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(qp_2rst_in, 0x80)

#define UHCA_PRM_qp_2rst_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(qp_2rst_out, 0x80)

#define UHCA_PRM_query_qp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_qp_in, 0x80)

#define UHCA_PRM_query_qp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(opt_param_mask, 0x80, 0x20, 1) \
  F(ece, 0xa0, 0x20, 1) \
  F(qpc, 0xc0, 0x740, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(query_qp_out, 0x880)

#define UHCA_PRM_create_srq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(srq_context_entry, 0x80, 0x200, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(create_srq_in, 0x880)

#define UHCA_PRM_create_srq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(srqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_srq_out, 0x80)

#define UHCA_PRM_query_srq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(srqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_srq_in, 0x80)

#define UHCA_PRM_query_srq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(srq_context_entry, 0x80, 0x200, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(query_srq_out, 0x880)

#define UHCA_PRM_destroy_srq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(srqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_srq_in, 0x80)

#define UHCA_PRM_destroy_srq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_srq_out, 0x80)

#define UHCA_PRM_arm_rq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(srq_number, 0x48, 0x18, 1) \
  F(lwm, 0x70, 0x10, 1)
UHCA_PRM_LAYOUT(arm_rq_in, 0x80)

#define UHCA_PRM_arm_rq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(arm_rq_out, 0x80)

#define UHCA_PRM_create_xrc_srq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(xrc_srq_context_entry, 0x80, 0x200, 1) \
  F(xrc_srq_umem_valid, 0x2e0, 0x1, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(create_xrc_srq_in, 0x880)

#define UHCA_PRM_create_xrc_srq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(xrc_srqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_xrc_srq_out, 0x80)

#define UHCA_PRM_query_xrc_srq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(xrc_srqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_xrc_srq_in, 0x80)

#define UHCA_PRM_query_xrc_srq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(xrc_srq_context_entry, 0x80, 0x200, 1) \
  F(pas, 0x880, 0x40, 0)
UHCA_PRM_LAYOUT(query_xrc_srq_out, 0x880)

#define UHCA_PRM_destroy_xrc_srq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(xrc_srqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_xrc_srq_in, 0x80)

#define UHCA_PRM_destroy_xrc_srq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_xrc_srq_out, 0x80)

#define UHCA_PRM_arm_xrc_srq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(xrc_srqn, 0x48, 0x18, 1) \
  F(lwm, 0x70, 0x10, 1)
UHCA_PRM_LAYOUT(arm_xrc_srq_in, 0x80)

#define UHCA_PRM_arm_xrc_srq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(arm_xrc_srq_out, 0x80)

#define UHCA_PRM_create_rmp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(create_rmp_in, 0x880)

#define UHCA_PRM_create_rmp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rmpn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_rmp_out, 0x80)

#define UHCA_PRM_modify_rmp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rmp_state, 0x40, 0x4, 1) \
  F(rmpn, 0x48, 0x18, 1) \
  F(bitmask, 0x80, 0x40, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(modify_rmp_in, 0x880)

#define UHCA_PRM_modify_rmp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_rmp_out, 0x80)

#define UHCA_PRM_rmp_bitmask(F) \
  F(lwm, 0x3f, 0x1, 1)
UHCA_PRM_LAYOUT(rmp_bitmask, 0x40)

#define UHCA_PRM_query_rmp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rmpn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_rmp_in, 0x80)

#define UHCA_PRM_query_rmp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rmp_context, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(query_rmp_out, 0x880)

#define UHCA_PRM_destroy_rmp_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rmpn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_rmp_in, 0x80)

#define UHCA_PRM_destroy_rmp_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_rmp_out, 0x80)

#define UHCA_PRM_create_dct_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(dct_context_entry, 0x80, 0x200, 1)
UHCA_PRM_LAYOUT(create_dct_in, 0x400)

#define UHCA_PRM_create_dct_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(dctn, 0x48, 0x18, 1) \
  F(ece, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(create_dct_out, 0x80)

#define UHCA_PRM_drain_dct_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(dctn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(drain_dct_in, 0x80)

#define UHCA_PRM_drain_dct_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(drain_dct_out, 0x80)

#define UHCA_PRM_query_dct_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(dctn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_dct_in, 0x80)

#define UHCA_PRM_query_dct_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(dct_context_entry, 0x80, 0x200, 1)
UHCA_PRM_LAYOUT(query_dct_out, 0x400)

#define UHCA_PRM_destroy_dct_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(dctn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_dct_in, 0x80)

#define UHCA_PRM_destroy_dct_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_dct_out, 0x80)

#define UHCA_PRM_attach_to_mcg_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(multicast_gid, 0x80, 0x8, 16)
UHCA_PRM_LAYOUT(attach_to_mcg_in, 0x100)

#define UHCA_PRM_attach_to_mcg_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(attach_to_mcg_out, 0x80)

#define UHCA_PRM_detach_from_mcg_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(qpn, 0x48, 0x18, 1) \
  F(multicast_gid, 0x80, 0x8, 16)
UHCA_PRM_LAYOUT(detach_from_mcg_in, 0x100)

#define UHCA_PRM_detach_from_mcg_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(detach_from_mcg_out, 0x80)

#define UHCA_PRM_mad_ifc_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(remote_lid, 0x40, 0x10, 1) \
  F(port, 0x58, 0x8, 1) \
  F(mad, 0x80, 0x8, 256)
UHCA_PRM_LAYOUT(mad_ifc_in, 0x880)

#define UHCA_PRM_mad_ifc_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(response_mad_packet, 0x80, 0x8, 256)
UHCA_PRM_LAYOUT(mad_ifc_out, 0x880)

// clang-format on

#define UHCA_PRM_LAYOUTS_cmd_qp(L) \
  L(create_qp_in) \
  L(create_qp_out) \
  L(destroy_qp_in) \
  L(destroy_qp_out) \
  L(rst2init_qp_in) \
  L(rst2init_qp_out) \
  L(init2init_qp_in) \
  L(init2init_qp_out) \
  L(init2rtr_qp_in) \
  L(init2rtr_qp_out) \
  L(rtr2rts_qp_in) \
  L(rtr2rts_qp_out) \
  L(rts2rts_qp_in) \
  L(rts2rts_qp_out) \
  L(sqerr2rts_qp_in) \
  L(sqerr2rts_qp_out) \
  L(sqd2rts_qp_in) \
  L(sqd2rts_qp_out) \
  L(qp_2err_in) \
  L(qp_2err_out) \
  L(qp_2rst_in) \
  L(qp_2rst_out) \
  L(query_qp_in) \
  L(query_qp_out) \
  L(create_srq_in) \
  L(create_srq_out) \
  L(query_srq_in) \
  L(query_srq_out) \
  L(destroy_srq_in) \
  L(destroy_srq_out) \
  L(arm_rq_in) \
  L(arm_rq_out) \
  L(create_xrc_srq_in) \
  L(create_xrc_srq_out) \
  L(query_xrc_srq_in) \
  L(query_xrc_srq_out) \
  L(destroy_xrc_srq_in) \
  L(destroy_xrc_srq_out) \
  L(arm_xrc_srq_in) \
  L(arm_xrc_srq_out) \
  L(create_rmp_in) \
  L(create_rmp_out) \
  L(modify_rmp_in) \
  L(modify_rmp_out) \
  L(rmp_bitmask) \
  L(query_rmp_in) \
  L(query_rmp_out) \
  L(destroy_rmp_in) \
  L(destroy_rmp_out) \
  L(create_dct_in) \
  L(create_dct_out) \
  L(drain_dct_in) \
  L(drain_dct_out) \
  L(query_dct_in) \
  L(query_dct_out) \
  L(destroy_dct_in) \
  L(destroy_dct_out) \
  L(attach_to_mcg_in) \
  L(attach_to_mcg_out) \
  L(detach_from_mcg_in) \
  L(detach_from_mcg_out) \
  L(mad_ifc_in) \
  L(mad_ifc_out)

// SPDX-License-Identifier: MIT
// Commands of the Ethernet objects: TIR, TIS, RQT, RQ, SQ.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_create_tis_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(ctx, 0x100, 0x500, 1)
UHCA_PRM_LAYOUT(create_tis_in, 0x600)

#define UHCA_PRM_create_tis_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(tisn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_tis_out, 0x80)

#define UHCA_PRM_modify_tis_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(tisn, 0x48, 0x18, 1) \
  F(bitmask, 0x80, 0x40, 1) \
  F(ctx, 0x100, 0x500, 1)
UHCA_PRM_LAYOUT(modify_tis_in, 0x600)

#define UHCA_PRM_modify_tis_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_tis_out, 0x80)

#define UHCA_PRM_modify_tis_bitmask(F) \
  F(lag_tx_port_affinity, 0x3d, 0x1, 1) \
  F(strict_lag_tx_port_affinity, 0x3e, 0x1, 1) \
  F(prio, 0x3f, 0x1, 1)
UHCA_PRM_LAYOUT(modify_tis_bitmask, 0x40)

#define UHCA_PRM_query_tis_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(tisn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_tis_in, 0x80)

#define UHCA_PRM_query_tis_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(tis_context, 0x80, 0x500, 1)
UHCA_PRM_LAYOUT(query_tis_out, 0x580)

#define UHCA_PRM_destroy_tis_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(tisn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_tis_in, 0x80)

#define UHCA_PRM_destroy_tis_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_tis_out, 0x80)

#define UHCA_PRM_create_tir_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(create_tir_in, 0x880)

#define UHCA_PRM_create_tir_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(icm_address_63_40, 0x8, 0x18, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(icm_address_39_32, 0x40, 0x8, 1) \
  F(tirn, 0x48, 0x18, 1) \
  F(icm_address_31_0, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(create_tir_out, 0x80)

#define UHCA_PRM_modify_tir_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(tirn, 0x48, 0x18, 1) \
  F(bitmask, 0x80, 0x40, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(modify_tir_in, 0x880)

#define UHCA_PRM_modify_tir_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_tir_out, 0x80)

#define UHCA_PRM_modify_tir_bitmask(F) \
  F(self_lb_en, 0x3b, 0x1, 1) \
  F(hash, 0x3d, 0x1, 1) \
  F(packet_merge, 0x3f, 0x1, 1)
UHCA_PRM_LAYOUT(modify_tir_bitmask, 0x40)

#define UHCA_PRM_query_tir_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(tirn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_tir_in, 0x80)

#define UHCA_PRM_query_tir_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(tir_context, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(query_tir_out, 0x880)

#define UHCA_PRM_destroy_tir_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(tirn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_tir_in, 0x80)

#define UHCA_PRM_destroy_tir_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_tir_out, 0x80)

#define UHCA_PRM_create_rqt_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rqt_context, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(create_rqt_in, 0x880)

#define UHCA_PRM_create_rqt_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rqtn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_rqt_out, 0x80)

#define UHCA_PRM_modify_rqt_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rqtn, 0x48, 0x18, 1) \
  F(bitmask, 0x80, 0x40, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(modify_rqt_in, 0x880)

#define UHCA_PRM_modify_rqt_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_rqt_out, 0x80)

#define UHCA_PRM_rqt_bitmask(F) \
  F(rqn_list, 0x3f, 0x1, 1)
UHCA_PRM_LAYOUT(rqt_bitmask, 0x40)

#define UHCA_PRM_query_rqt_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rqtn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_rqt_in, 0x80)

#define UHCA_PRM_query_rqt_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rqt_context, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(query_rqt_out, 0x880)

#define UHCA_PRM_destroy_rqt_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rqtn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_rqt_in, 0x80)

#define UHCA_PRM_destroy_rqt_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_rqt_out, 0x80)

#define UHCA_PRM_create_rq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(create_rq_in, 0x880)

#define UHCA_PRM_create_rq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_rq_out, 0x80)

#define UHCA_PRM_modify_rq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rq_state, 0x40, 0x4, 1) \
  F(rqn, 0x48, 0x18, 1) \
  F(modify_bitmask, 0x80, 0x40, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(modify_rq_in, 0x880)

#define UHCA_PRM_modify_rq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_rq_out, 0x80)

#define UHCA_PRM_query_rq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_rq_in, 0x80)

#define UHCA_PRM_query_rq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rq_context, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(query_rq_out, 0x880)

#define UHCA_PRM_destroy_rq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(rqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_rq_in, 0x80)

#define UHCA_PRM_destroy_rq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_rq_out, 0x80)

#define UHCA_PRM_create_sq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(create_sq_in, 0x880)

#define UHCA_PRM_create_sq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(sqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(create_sq_out, 0x80)

#define UHCA_PRM_modify_sq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(sq_state, 0x40, 0x4, 1) \
  F(sqn, 0x48, 0x18, 1) \
  F(modify_bitmask, 0x80, 0x40, 1) \
  F(ctx, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(modify_sq_in, 0x880)

#define UHCA_PRM_modify_sq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_sq_out, 0x80)

#define UHCA_PRM_query_sq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(sqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(query_sq_in, 0x80)

#define UHCA_PRM_query_sq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(sq_context, 0x100, 0x780, 1)
UHCA_PRM_LAYOUT(query_sq_out, 0x880)

#define UHCA_PRM_destroy_sq_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(sqn, 0x48, 0x18, 1)
UHCA_PRM_LAYOUT(destroy_sq_in, 0x80)

#define UHCA_PRM_destroy_sq_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(destroy_sq_out, 0x80)

// clang-format on

#define UHCA_PRM_LAYOUTS_cmd_eth(L) \
  L(create_tis_in) \
  L(create_tis_out) \
  L(modify_tis_in) \
  L(modify_tis_out) \
  L(modify_tis_bitmask) \
  L(query_tis_in) \
  L(query_tis_out) \
  L(destroy_tis_in) \
  L(destroy_tis_out) \
  L(create_tir_in) \
  L(create_tir_out) \
  L(modify_tir_in) \
  L(modify_tir_out) \
  L(modify_tir_bitmask) \
  L(query_tir_in) \
  L(query_tir_out) \
  L(destroy_tir_in) \
  L(destroy_tir_out) \
  L(create_rqt_in) \
  L(create_rqt_out) \
  L(modify_rqt_in) \
  L(modify_rqt_out) \
  L(rqt_bitmask) \
  L(query_rqt_in) \
  L(query_rqt_out) \
  L(destroy_rqt_in) \
  L(destroy_rqt_out) \
  L(create_rq_in) \
  L(create_rq_out) \
  L(modify_rq_in) \
  L(modify_rq_out) \
  L(query_rq_in) \
  L(query_rq_out) \
  L(destroy_rq_in) \
  L(destroy_rq_out) \
  L(create_sq_in) \
  L(create_sq_out) \
  L(modify_sq_in) \
  L(modify_sq_out) \
  L(query_sq_in) \
  L(query_sq_out) \
  L(destroy_sq_in) \
  L(destroy_sq_out)

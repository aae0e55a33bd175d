// SPDX-License-Identifier: MIT
// Completion queue entries. Offsets and widths in bits from the start of the 64-byte CQE, most significant bit first.
// Sources: mlx5dv.h (mlx5_cqe64, mlx5_err_cqe) and Linux include/linux/mlx5/device.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_cqe64(F) \
  F(wqe_id, 0x10, 0x10, 1) \
  F(rss_hash_result, 0x60, 0x20, 1) \
  F(rss_hash_type, 0x80, 0x8, 1) \
  F(ml_path, 0x88, 0x8, 1) \
  F(check_sum, 0xa0, 0x10, 1) \
  F(slid, 0xb0, 0x10, 1) \
  F(flags_rqpn, 0xc0, 0x20, 1) \
  F(hds_ip_ext, 0xe0, 0x8, 1) \
  F(l4_hdr_type_etc, 0xe8, 0x8, 1) \
  F(vlan_info, 0xf0, 0x10, 1) \
  F(srqn_uidx, 0x100, 0x20, 1) \
  F(imm_inval_pkey, 0x120, 0x20, 1) \
  F(byte_cnt, 0x160, 0x20, 1) \
  F(timestamp, 0x180, 0x40, 1) \
  F(sop_drop_qpn, 0x1c0, 0x20, 1) \
  F(sop, 0x1c0, 0x8, 1) \
  F(qpn, 0x1c8, 0x18, 1) \
  F(wqe_counter, 0x1e0, 0x10, 1) \
  F(signature, 0x1f0, 0x8, 1) \
  F(opcode, 0x1f8, 0x4, 1) \
  F(format, 0x1fc, 0x2, 1) \
  F(se, 0x1fe, 0x1, 1) \
  F(owner, 0x1ff, 0x1, 1) \
  F(op_own, 0x1f8, 0x8, 1)
UHCA_PRM_LAYOUT(cqe64, 0x200)

#define UHCA_PRM_err_cqe(F) \
  F(srqn, 0x100, 0x20, 1) \
  F(hw_error_syndrome, 0x1a0, 0x8, 1) \
  F(hw_synd_type, 0x1a8, 0x8, 1) \
  F(vendor_err_synd, 0x1b0, 0x8, 1) \
  F(syndrome, 0x1b8, 0x8, 1) \
  F(s_wqe_opcode, 0x1c0, 0x8, 1) \
  F(qpn, 0x1c8, 0x18, 1) \
  F(wqe_counter, 0x1e0, 0x10, 1) \
  F(signature, 0x1f0, 0x8, 1) \
  F(op_own, 0x1f8, 0x8, 1)
UHCA_PRM_LAYOUT(err_cqe, 0x200)
// clang-format on

#define UHCA_PRM_LAYOUTS_cqe(L) L(cqe64) L(err_cqe)

namespace uhca::prm {

// <signal.h> has a macro of the name of one opcode.
#pragma push_macro("SIG_ERR")
#undef SIG_ERR
// cqe64.opcode (mlx5dv.h: MLX5_CQE_*).
enum class CqeOpcode : std::uint8_t {
  REQ = 0,
  RESP_WR_IMM = 1,
  RESP_SEND = 2,
  RESP_SEND_IMM = 3,
  RESP_SEND_INV = 4,
  RESIZE_CQ = 5,
  NO_PACKET = 6,
  SIG_ERR = 12,
  REQ_ERR = 13,
  RESP_ERR = 14,
  INVALID = 15,
};
#pragma pop_macro("SIG_ERR")

// err_cqe.syndrome (mlx5dv.h: MLX5_CQE_SYNDROME_*).
enum class CqeSyndrome : std::uint8_t {
  LOCAL_LENGTH = 0x01,
  LOCAL_QP_OP = 0x02,
  LOCAL_PROT = 0x04,
  WR_FLUSH = 0x05,
  MW_BIND = 0x06,
  BAD_RESP = 0x10,
  LOCAL_ACCESS = 0x11,
  REMOTE_INVAL_REQ = 0x12,
  REMOTE_ACCESS = 0x13,
  REMOTE_OP = 0x14,
  TRANSPORT_RETRY_EXC = 0x15,
  RNR_RETRY_EXC = 0x16,
  REMOTE_ABORTED = 0x22,
};

// cqe64.format: data was scattered into the CQE itself (mlx5dv.h: MLX5_INLINE_SCATTER_32/64 are 4/8 in op_own).
inline constexpr std::uint8_t kCqeInlineScatter32 = 0x4;
inline constexpr std::uint8_t kCqeInlineScatter64 = 0x8;
inline constexpr std::uint8_t kCqeOwnerInitial = 0xf0;  // opcode INVALID: how software initialises op_own

}  // namespace uhca::prm

// SPDX-License-Identifier: MIT
// Work queue entries: the segments of send and receive WQEs, doorbell records, UAR registers.
// Offsets and widths are in bits from the start of the segment, most significant bit first. Source: mlx5dv.h (mlx5_wqe_*_seg).
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_wqe_ctrl_seg(F) \
  F(opmod, 0x0, 0x8, 1) \
  F(wqe_index, 0x8, 0x10, 1) \
  F(opcode, 0x18, 0x8, 1) \
  F(qpn, 0x20, 0x18, 1) \
  F(ds, 0x3a, 0x6, 1) \
  F(signature, 0x40, 0x8, 1) \
  F(dci_stream_channel_id, 0x48, 0x10, 1) \
  F(fm_ce_se, 0x58, 0x8, 1) \
  F(imm, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(wqe_ctrl_seg, 0x80)

#define UHCA_PRM_wqe_raddr_seg(F) \
  F(raddr, 0x0, 0x40, 1) \
  F(rkey, 0x40, 0x20, 1)
UHCA_PRM_LAYOUT(wqe_raddr_seg, 0x80)

#define UHCA_PRM_wqe_atomic_seg(F) \
  F(swap_add, 0x0, 0x40, 1) \
  F(compare, 0x40, 0x40, 1)
UHCA_PRM_LAYOUT(wqe_atomic_seg, 0x80)

#define UHCA_PRM_wqe_data_seg(F) \
  F(byte_count, 0x0, 0x20, 1) \
  F(lkey, 0x20, 0x20, 1) \
  F(addr, 0x40, 0x40, 1)
UHCA_PRM_LAYOUT(wqe_data_seg, 0x80)

// The header of inline data; the data follows at once and is padded so that the next segment starts at 16 bytes.
#define UHCA_PRM_wqe_inline_seg(F) \
  F(is_inline, 0x0, 0x1, 1) \
  F(byte_count, 0x1, 0x1f, 1)
UHCA_PRM_LAYOUT(wqe_inline_seg, 0x20)

#define UHCA_PRM_wqe_av(F) \
  F(qkey_or_dc_key, 0x0, 0x40, 1) \
  F(qkey, 0x0, 0x20, 1) \
  F(ext, 0x40, 0x1, 1) \
  F(dqp_dct, 0x48, 0x18, 1) \
  F(stat_rate_sl, 0x60, 0x8, 1) \
  F(fl_mlid, 0x68, 0x8, 1) \
  F(rlid, 0x70, 0x10, 1) \
  F(rmac_47_16, 0xa0, 0x20, 1) \
  F(rmac_15_0, 0xc0, 0x10, 1) \
  F(tclass, 0xd0, 0x8, 1) \
  F(hop_limit, 0xd8, 0x8, 1) \
  F(grh_gid_fl, 0xe0, 0x20, 1) \
  F(rgid, 0x100, 0x8, 16)
UHCA_PRM_LAYOUT(wqe_av, 0x180)

// Ethernet: checksum flags, TSO's mss, and inlined headers (their first two bytes, the rest follows) or a VLAN tag to insert.
#define UHCA_PRM_wqe_eth_seg(F) \
  F(cs_flags, 0x20, 0x8, 1) \
  F(swp_flags, 0x28, 0x8, 1) \
  F(mss, 0x30, 0x10, 1) \
  F(flow_table_metadata, 0x40, 0x20, 1) \
  F(inline_hdr_sz, 0x60, 0x10, 1) \
  F(inline_hdr_start, 0x70, 0x10, 1) \
  F(vlan_tci, 0x70, 0x10, 1)
UHCA_PRM_LAYOUT(wqe_eth_seg, 0x80)

#define UHCA_PRM_wqe_srq_next_seg(F) \
  F(next_wqe_index, 0x10, 0x10, 1) \
  F(signature, 0x20, 0x8, 1)
UHCA_PRM_LAYOUT(wqe_srq_next_seg, 0x80)

#define UHCA_PRM_wqe_xrc_seg(F) \
  F(xrc_srqn, 0x0, 0x20, 1)
UHCA_PRM_LAYOUT(wqe_xrc_seg, 0x80)

// UMR work requests (memory window bind, local invalidate): control segment, then a memory key context segment, then KLMs
// (a wqe_data_seg each: byte_count, mkey in `lkey`, address).
#define UHCA_PRM_wqe_umr_ctrl_seg(F) \
  F(flags, 0x0, 0x8, 1) \
  F(klm_octowords, 0x20, 0x10, 1) \
  F(translation_offset, 0x30, 0x10, 1) \
  F(mkey_mask, 0x40, 0x40, 1)
UHCA_PRM_LAYOUT(wqe_umr_ctrl_seg, 0x180)

#define UHCA_PRM_wqe_mkey_context_seg(F) \
  F(free, 0x0, 0x8, 1) \
  F(access_flags, 0x10, 0x8, 1) \
  F(sf, 0x18, 0x8, 1) \
  F(qpn_mkey, 0x20, 0x20, 1) \
  F(flags_pd, 0x60, 0x20, 1) \
  F(start_addr, 0x80, 0x40, 1) \
  F(len, 0xc0, 0x40, 1) \
  F(bsf_octword_size, 0x100, 0x20, 1) \
  F(translations_octword_size, 0x1a0, 0x20, 1) \
  F(log_page_size, 0x1d8, 0x8, 1)
UHCA_PRM_LAYOUT(wqe_mkey_context_seg, 0x200)
// clang-format on

#define UHCA_PRM_LAYOUTS_wqe(L) \
  L(wqe_ctrl_seg) L(wqe_raddr_seg) L(wqe_atomic_seg) L(wqe_data_seg) L(wqe_inline_seg) L(wqe_av) L(wqe_eth_seg) L(wqe_srq_next_seg) \
  L(wqe_xrc_seg) L(wqe_umr_ctrl_seg) L(wqe_mkey_context_seg)

namespace uhca::prm {

// The opcode byte of a send WQE (mlx5dv.h: MLX5_OPCODE_*).
enum class WqeOpcode : std::uint8_t {
  NOP = 0x00,
  SEND_INVAL = 0x01,
  RDMA_WRITE = 0x08,
  RDMA_WRITE_IMM = 0x09,
  SEND = 0x0a,
  SEND_IMM = 0x0b,
  TSO = 0x0e,
  RDMA_READ = 0x10,
  ATOMIC_CS = 0x11,
  ATOMIC_FA = 0x12,
  ATOMIC_MASKED_CS = 0x14,
  ATOMIC_MASKED_FA = 0x15,
  FMR = 0x19,
  LOCAL_INVAL = 0x1b,
  SET_PSV = 0x20,
  UMR = 0x25,
};

// Bits of wqe_ctrl_seg.fm_ce_se (mlx5dv.h: MLX5_WQE_CTRL_*).
inline constexpr std::uint8_t kWqeCtrlSolicited = 1 << 1;
inline constexpr std::uint8_t kWqeCtrlCqUpdate = 2 << 2;
inline constexpr std::uint8_t kWqeCtrlInitiatorSmallFence = 1 << 5;
inline constexpr std::uint8_t kWqeCtrlFence = 4 << 5;

// wqe_eth_seg.cs_flags and .inline_hdr_sz (Linux qp.h: MLX5_ETH_WQE_*).
inline constexpr std::uint8_t kEthWqeL3InnerCsum = 1 << 4;
inline constexpr std::uint8_t kEthWqeL4InnerCsum = 1 << 5;
inline constexpr std::uint8_t kEthWqeL3Csum = 1 << 6;
inline constexpr std::uint8_t kEthWqeL4Csum = 1 << 7;
inline constexpr std::uint16_t kEthWqeInsertVlan = 1 << 15;
inline constexpr std::uint16_t kEthWqeSvlan = 1 << 0;

// wqe_umr_ctrl_seg.flags and .mkey_mask, wqe_mkey_context_seg.free and .access_flags (mlx5dv.h: MLX5_WQE_UMR_CTRL_*,
// MLX5_WQE_MKEY_CONTEXT_*).
inline constexpr std::uint8_t kUmrInline = 1 << 7;
inline constexpr std::uint8_t kUmrCheckFree = 1 << 5;
inline constexpr std::uint8_t kUmrTranslationOffset = 1 << 4;
inline constexpr std::uint8_t kUmrCheckQpn = 1 << 3;
inline constexpr std::uint64_t kUmrMaskLen = 1 << 0;
inline constexpr std::uint64_t kUmrMaskStartAddr = 1 << 6;
inline constexpr std::uint64_t kUmrMaskMkey = 1 << 13;
inline constexpr std::uint64_t kUmrMaskQpn = 1 << 14;
inline constexpr std::uint64_t kUmrMaskLocalWrite = 1 << 18;
inline constexpr std::uint64_t kUmrMaskRemoteRead = 1 << 19;
inline constexpr std::uint64_t kUmrMaskRemoteWrite = 1 << 20;
inline constexpr std::uint64_t kUmrMaskAtomic = 1 << 21;
inline constexpr std::uint64_t kUmrMaskFree = 1 << 29;
inline constexpr std::uint8_t kMkeySegFree = 1 << 6;
inline constexpr std::uint8_t kMkeySegAtomic = 1 << 6;
inline constexpr std::uint8_t kMkeySegRemoteWrite = 1 << 5;
inline constexpr std::uint8_t kMkeySegRemoteRead = 1 << 4;
inline constexpr std::uint8_t kMkeySegLocalWrite = 1 << 3;
inline constexpr std::uint8_t kMkeySegLocalRead = 1 << 2;

inline constexpr std::size_t kSendWqeBb = 64;      // bytes of a send basic block (MLX5_SEND_WQE_BB)
inline constexpr std::size_t kWqeDsUnit = 16;      // bytes of one `ds` unit
inline constexpr std::uint32_t kInvalidLkey = 0x100;  // ends the scatter list of a receive WQE (MLX5_INVALID_LKEY)

// Doorbell records: a pair of big-endian 32-bit words (mlx5dv.h: MLX5_RCV_DBR, MLX5_SND_DBR; CQ: MLX5_CQ_SET_CI, MLX5_CQ_ARM_DB).
inline constexpr std::size_t kRcvDbr = 0;  // word index: receive counter, 16 bits (SRQ: full counter)
inline constexpr std::size_t kSndDbr = 1;  // word index: send counter in basic blocks, 16 bits
inline constexpr std::size_t kDoorbellRecord = 8;  // bytes
inline constexpr std::size_t kCqSetCi = 0;   // word index: consumer index, 24 bits
inline constexpr std::size_t kCqArmDb = 1;   // word index: sn << 28 | cmd | ci
inline constexpr std::uint32_t kCqDbReqNot = 0u << 24;     // any completion
inline constexpr std::uint32_t kCqDbReqNotSol = 1u << 24;  // solicited completions and errors only
// What drivers that have not armed a CQ yet write there (Linux cq.c: MLX5_CQ_INIT_CMD_SN), after its creation: no arm.
inline constexpr std::uint32_t kCqInitCmdSn = 2u << 28;

// Inside a UAR page of 4 KiB.
inline constexpr std::size_t kUarPageSize = 4096;
inline constexpr std::size_t kUarCqDoorbell = 0x20;   // 64 bits: arm word, cqn
inline constexpr std::size_t kUarEqArm = 0x40;        // eqn << 24 | ci, arms
inline constexpr std::size_t kUarEqNoArm = 0x48;      // eqn << 24 | ci
inline constexpr std::size_t kBlueFlameBytes = 256;    // of one buffer of a register: half of 2^cmd_hca_cap.log_bf_reg_size
inline constexpr std::size_t kUarBlueFlame = 0x800;   // first BlueFlame register; 2 per bfreg, alternating

}  // namespace uhca::prm

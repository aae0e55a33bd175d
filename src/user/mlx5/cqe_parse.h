// SPDX-License-Identifier: MIT
// Completion queue entries, decoded: ownership, opcode and status mapping, and the copy of payload that the device scattered into a
// CQE. Formats: prm/cqe.h.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/types.h"
#include "prm/cqe.h"
#include "prm/wqe.h"

namespace uhca::mlx5 {

using prm::CqeOpcode;

// A CQE of 64 bytes, or the second half of one of 128.
class CqeView {
 public:
  CqeView() = default;
  explicit CqeView(const std::uint8_t* p) : p_(p) {}
  const std::uint8_t* bytes() const { return p_; }

  CqeOpcode opcode() const { return static_cast<CqeOpcode>(p_[63] >> 4); }
  bool scatter32() const { return p_[63] & prm::kCqeInlineScatter32; }
  bool scatter64() const { return p_[63] & prm::kCqeInlineScatter64; }
  // Where scattered payload lies: at the CQE's start, or in the 64 bytes before it (CQEs of 128 bytes).
  const std::uint8_t* inline_data() const { return scatter32() ? p_ : p_ - 64; }
  bool has_inline_data() const { return p_[63] & (prm::kCqeInlineScatter32 | prm::kCqeInlineScatter64); }
  std::uint32_t qpn() const { return prm::get<prm::cqe64::qpn>(p_); }
  std::uint8_t wqe_opcode() const { return static_cast<std::uint8_t>(prm::get<prm::cqe64::sop>(p_)); }
  std::uint32_t uidx() const { return prm::get<prm::cqe64::srqn_uidx>(p_) & 0xffffff; }
  std::uint16_t wqe_counter() const { return static_cast<std::uint16_t>(prm::get<prm::cqe64::wqe_counter>(p_)); }
  std::uint32_t byte_cnt() const { return prm::get<prm::cqe64::byte_cnt>(p_); }
  std::uint32_t imm_inval() const { return prm::get<prm::cqe64::imm_inval_pkey>(p_); }
  // As it lies in memory: ibv_wc.imm_data is big-endian.
  std::uint32_t imm_be() const {
    std::uint32_t v;
    std::memcpy(&v, p_ + prm::byte_of<prm::cqe64::imm_inval_pkey>, sizeof v);
    return v;
  }
  std::uint32_t flags_rqpn() const { return prm::get<prm::cqe64::flags_rqpn>(p_); }
  std::uint32_t src_qp() const { return flags_rqpn() & 0xffffff; }
  std::uint8_t sl() const { return (flags_rqpn() >> 24) & 0xf; }
  bool grh() const { return (flags_rqpn() >> 28) & 3; }
  std::uint16_t slid() const { return static_cast<std::uint16_t>(prm::get<prm::cqe64::slid>(p_)); }
  std::uint8_t dlid_path_bits() const { return prm::get<prm::cqe64::ml_path>(p_) & 0x7f; }
  std::uint64_t timestamp() const { return prm::get<prm::cqe64::timestamp>(p_); }
  std::uint16_t cvlan() const { return static_cast<std::uint16_t>(prm::get<prm::cqe64::vlan_info>(p_)); }
  // Checksums of an IPv4 packet and of what it carries are right.
  bool checksums_ok() const {
    constexpr unsigned l3_and_l4 = 1 << 1 | 1 << 2, l3_type = 3 << 2, ipv4 = 2 << 2;  // mlx5dv.h: MLX5_CQE_L3_OK, _L4_OK, _L3_HDR_TYPE_*
    return (prm::get<prm::cqe64::hds_ip_ext>(p_) & l3_and_l4) == l3_and_l4 && (prm::get<prm::cqe64::l4_hdr_type_etc>(p_) & l3_type) == ipv4;
  }
  std::uint32_t flow_tag() const { return prm::get<prm::cqe64::sop_drop_qpn>(p_) & 0xfffff; }
  std::uint8_t vendor_err() const { return static_cast<std::uint8_t>(prm::get<prm::err_cqe::vendor_err_synd>(p_)); }
  std::uint8_t syndrome() const { return static_cast<std::uint8_t>(prm::get<prm::err_cqe::syndrome>(p_)); }

 private:
  const std::uint8_t* p_ = nullptr;
};

// Software owns entry `n` of a queue of ncqe entries (a power of two) when it was written in the current pass: the owner bit changes
// with each pass, and opcode INVALID marks an entry that was never written.
inline bool cqe_owned_by_sw(std::uint8_t op_own, std::uint32_t n, std::uint32_t ncqe) {
  return (op_own >> 4) != static_cast<std::uint8_t>(CqeOpcode::INVALID) && (op_own & 1) == ((n & ncqe) ? 1 : 0);
}

inline ibv_wc_status wc_status(std::uint8_t syndrome) {
  switch (static_cast<prm::CqeSyndrome>(syndrome)) {
    case prm::CqeSyndrome::LOCAL_LENGTH: return IBV_WC_LOC_LEN_ERR;
    case prm::CqeSyndrome::LOCAL_QP_OP: return IBV_WC_LOC_QP_OP_ERR;
    case prm::CqeSyndrome::LOCAL_PROT: return IBV_WC_LOC_PROT_ERR;
    case prm::CqeSyndrome::WR_FLUSH: return IBV_WC_WR_FLUSH_ERR;
    case prm::CqeSyndrome::MW_BIND: return IBV_WC_MW_BIND_ERR;
    case prm::CqeSyndrome::BAD_RESP: return IBV_WC_BAD_RESP_ERR;
    case prm::CqeSyndrome::LOCAL_ACCESS: return IBV_WC_LOC_ACCESS_ERR;
    case prm::CqeSyndrome::REMOTE_INVAL_REQ: return IBV_WC_REM_INV_REQ_ERR;
    case prm::CqeSyndrome::REMOTE_ACCESS: return IBV_WC_REM_ACCESS_ERR;
    case prm::CqeSyndrome::REMOTE_OP: return IBV_WC_REM_OP_ERR;
    case prm::CqeSyndrome::TRANSPORT_RETRY_EXC: return IBV_WC_RETRY_EXC_ERR;
    case prm::CqeSyndrome::RNR_RETRY_EXC: return IBV_WC_RNR_RETRY_EXC_ERR;
    case prm::CqeSyndrome::REMOTE_ABORTED: return IBV_WC_REM_ABORT_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

// The work completion's opcode for a requester CQE; `umr_opcode` is what was posted when the WQE is an UMR (bind, invalidate).
inline ibv_wc_opcode wc_opcode_request(std::uint8_t wqe_opcode, std::uint8_t umr_opcode) {
  // A raw WQE: the program knows what it posted.
  if (umr_opcode == IBV_WC_DRIVER2) return IBV_WC_DRIVER2;
  switch (static_cast<prm::WqeOpcode>(wqe_opcode)) {
    case prm::WqeOpcode::RDMA_WRITE:
    case prm::WqeOpcode::RDMA_WRITE_IMM: return IBV_WC_RDMA_WRITE;
    case prm::WqeOpcode::SEND:
    case prm::WqeOpcode::SEND_IMM:
    case prm::WqeOpcode::SEND_INVAL: return IBV_WC_SEND;
    case prm::WqeOpcode::RDMA_READ: return IBV_WC_RDMA_READ;
    case prm::WqeOpcode::ATOMIC_CS: return IBV_WC_COMP_SWAP;
    case prm::WqeOpcode::ATOMIC_FA: return IBV_WC_FETCH_ADD;
    case prm::WqeOpcode::TSO: return IBV_WC_TSO;
    default: return static_cast<ibv_wc_opcode>(umr_opcode);
  }
}

inline ibv_wc_opcode wc_opcode_response(CqeOpcode op) {
  return op == CqeOpcode::RESP_WR_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
}

// IBV_WC_* flags of a responder CQE that come from its opcode.
inline unsigned wc_flags_response(CqeOpcode op) {
  if (op == CqeOpcode::RESP_WR_IMM || op == CqeOpcode::RESP_SEND_IMM) return IBV_WC_WITH_IMM;
  if (op == CqeOpcode::RESP_SEND_INV) return IBV_WC_WITH_INV;
  return 0;
}

// Copies `size` bytes from a CQE into the memory that `segs` data segments (as the device reads them) describe. Advances src and size, so
// that a list which wraps can be continued. The key `null_lkey` (big-endian) swallows data. True when all was placed.
inline bool scatter_from_cqe(const std::uint8_t* seg, unsigned segs, const std::uint8_t*& src, std::uint32_t& size,
                             std::uint32_t null_lkey) {
  for (unsigned i = 0; i < segs && size; ++i, seg += prm::wqe_data_seg::kBytes) {
    std::uint32_t n = std::min(size, prm::get<prm::wqe_data_seg::byte_count>(seg));
    if (n && prm::get<prm::wqe_data_seg::lkey>(seg) != null_lkey)
      std::memcpy(reinterpret_cast<void*>(prm::get<prm::wqe_data_seg::addr>(seg)), src, n);
    src += n;
    size -= n;
  }
  return size == 0;
}

}  // namespace uhca::mlx5

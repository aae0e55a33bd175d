// SPDX-License-Identifier: MIT
#include "prm/cqe_names.h"

namespace uhca::prm {

const char* cqe_opcode_name(CqeOpcode opcode) {
  switch (static_cast<unsigned>(opcode)) {
    case 0: return "REQ";
    case 1: return "RESP_WR_IMM";
    case 2: return "RESP_SEND";
    case 3: return "RESP_SEND_IMM";
    case 4: return "RESP_SEND_INV";
    case 5: return "RESIZE_CQ";
    case 6: return "NO_PACKET";
    case 12: return "SIG_ERR";
    case 13: return "REQ_ERR";
    case 14: return "RESP_ERR";
    case 15: return "INVALID";
  }
  return nullptr;
}

const char* wqe_opcode_name(WqeOpcode opcode) {
  switch (opcode) {
    case WqeOpcode::NOP: return "NOP";
    case WqeOpcode::SEND_INVAL: return "SEND_INVAL";
    case WqeOpcode::RDMA_WRITE: return "RDMA_WRITE";
    case WqeOpcode::RDMA_WRITE_IMM: return "RDMA_WRITE_IMM";
    case WqeOpcode::SEND: return "SEND";
    case WqeOpcode::SEND_IMM: return "SEND_IMM";
    case WqeOpcode::TSO: return "TSO";
    case WqeOpcode::RDMA_READ: return "RDMA_READ";
    case WqeOpcode::ATOMIC_CS: return "ATOMIC_CS";
    case WqeOpcode::ATOMIC_FA: return "ATOMIC_FA";
    case WqeOpcode::ATOMIC_MASKED_CS: return "ATOMIC_MASKED_CS";
    case WqeOpcode::ATOMIC_MASKED_FA: return "ATOMIC_MASKED_FA";
    case WqeOpcode::FMR: return "FMR";
    case WqeOpcode::LOCAL_INVAL: return "LOCAL_INVAL";
    case WqeOpcode::SET_PSV: return "SET_PSV";
    case WqeOpcode::UMR: return "UMR";
  }
  return nullptr;
}

const SyndromeName* syndrome_name(CqeSyndrome syndrome) {
  static constexpr struct {
    CqeSyndrome syndrome;
    SyndromeName name;
  } kNames[] = {
      {CqeSyndrome::LOCAL_LENGTH, {"local length error", "IBV_WC_LOC_LEN_ERR"}},
      {CqeSyndrome::LOCAL_QP_OP, {"local QP operation error", "IBV_WC_LOC_QP_OP_ERR"}},
      {CqeSyndrome::LOCAL_PROT, {"local protection error", "IBV_WC_LOC_PROT_ERR"}},
      {CqeSyndrome::WR_FLUSH, {"flushed", "IBV_WC_WR_FLUSH_ERR"}},
      {CqeSyndrome::MW_BIND, {"memory window bind error", "IBV_WC_MW_BIND_ERR"}},
      {CqeSyndrome::BAD_RESP, {"bad response", "IBV_WC_BAD_RESP_ERR"}},
      {CqeSyndrome::LOCAL_ACCESS, {"local access error", "IBV_WC_LOC_ACCESS_ERR"}},
      {CqeSyndrome::REMOTE_INVAL_REQ, {"remote invalid request", "IBV_WC_REM_INV_REQ_ERR"}},
      {CqeSyndrome::REMOTE_ACCESS, {"remote access error", "IBV_WC_REM_ACCESS_ERR"}},
      {CqeSyndrome::REMOTE_OP, {"remote operation error", "IBV_WC_REM_OP_ERR"}},
      {CqeSyndrome::TRANSPORT_RETRY_EXC, {"transport retries exceeded", "IBV_WC_RETRY_EXC_ERR"}},
      {CqeSyndrome::RNR_RETRY_EXC, {"RNR retries exceeded", "IBV_WC_RNR_RETRY_EXC_ERR"}},
      {CqeSyndrome::REMOTE_ABORTED, {"remote aborted", "IBV_WC_REM_ABORT_ERR"}},
  };
  for (const auto& n : kNames)
    if (n.syndrome == syndrome) return &n.name;
  return nullptr;
}

}  // namespace uhca::prm

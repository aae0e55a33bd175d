// SPDX-License-Identifier: MIT
#include "kernel/sys/api_trace.h"

#include <fmt/format.h>

#include "base/trace.h"

namespace uhca::sys {
namespace {

const char* send_opcode(int op) {
  static constexpr const char* kNames[] = {
      "RDMA_WRITE",           "RDMA_WRITE_WITH_IMM", "SEND",    "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
      "ATOMIC_FETCH_AND_ADD", "LOCAL_INV",           "BIND_MW", "SEND_WITH_INV", "TSO",       "DRIVER1"};
  return op >= 0 && op < 12 ? kNames[op] : op == 14 ? "FLUSH" : op == 15 ? "ATOMIC_WRITE" : "?";
}

const char* wc_opcode(int op) {
  switch (op) {
    case IBV_WC_SEND: return "SEND";
    case IBV_WC_RDMA_WRITE: return "RDMA_WRITE";
    case IBV_WC_RDMA_READ: return "RDMA_READ";
    case IBV_WC_COMP_SWAP: return "COMP_SWAP";
    case IBV_WC_FETCH_ADD: return "FETCH_ADD";
    case IBV_WC_BIND_MW: return "BIND_MW";
    case IBV_WC_LOCAL_INV: return "LOCAL_INV";
    case IBV_WC_TSO: return "TSO";
    case IBV_WC_RECV: return "RECV";
    case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_RDMA_WITH_IMM";
    default: return "?";
  }
}

const char* status_name(int s) {
  static constexpr const char* kNames[] = {
      "SUCCESS",           "LOC_LEN_ERR",       "LOC_QP_OP_ERR",    "LOC_EEC_OP_ERR",     "LOC_PROT_ERR",   "WR_FLUSH_ERR",
      "MW_BIND_ERR",       "BAD_RESP_ERR",      "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",    "REM_ACCESS_ERR", "REM_OP_ERR",
      "RETRY_EXC_ERR",     "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",  "INV_EECN_ERR",
      "INV_EEC_STATE_ERR", "FATAL_ERR",         "RESP_TIMEOUT_ERR", "GENERAL_ERR",        "TM_ERR",         "TM_RNDV_INCOMPLETE"};
  return s >= 0 && s < 24 ? kNames[s] : "?";
}

// "addr+length:lkey ..." as far as it fits.
std::string_view sge_text(char (&buf)[256], const ibv_sge* sge, int n) {
  std::size_t at = 0;
  for (int i = 0; i < n && at + 64 < sizeof buf; ++i) {
    auto r = fmt::format_to_n(buf + at, sizeof buf - at, "{}{:#x}+{}:{:#x}", i ? " " : "", sge[i].addr, sge[i].length, sge[i].lkey);
    at += r.size;
  }
  return {buf, at < sizeof buf ? at : sizeof buf};
}

}  // namespace

const char* qp_type_name(int type) {
  switch (type) {
    case IBV_QPT_RC: return "RC";
    case IBV_QPT_UC: return "UC";
    case IBV_QPT_UD: return "UD";
    case IBV_QPT_RAW_PACKET: return "RAW_PACKET";
    case IBV_QPT_XRC_SEND: return "XRC_SEND";
    case IBV_QPT_XRC_RECV: return "XRC_RECV";
    case IBV_QPT_DRIVER: return "DRIVER";
    default: return "?";
  }
}

void trace_post_send(const ibv_qp* qp, const ibv_send_wr* wr, int ret) {
  for (int n = 0; wr && n < 64; wr = wr->next, ++n) {
    char buf[256];
    trace::Event e("api", "ibv_post_send");
    e.hex("qpn", qp->qp_num)
        .hex("wr_id", wr->wr_id)
        .str("opcode", send_opcode(wr->opcode))
        .hex("send_flags", wr->send_flags)
        .str("sge", sge_text(buf, wr->sg_list, wr->num_sge));
    if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_RDMA_READ)
      e.hex("remote_addr", wr->wr.rdma.remote_addr).hex("rkey", wr->wr.rdma.rkey);
    e.num("ret", ret);
  }
}

void trace_post_recv(const char* name, std::uint32_t number, const ibv_recv_wr* wr, int ret) {
  for (int n = 0; wr && n < 64; wr = wr->next, ++n) {
    char buf[256];
    trace::Event("api", name)
        .hex("qpn", number)
        .hex("wr_id", wr->wr_id)
        .str("sge", sge_text(buf, wr->sg_list, wr->num_sge))
        .num("ret", ret);
  }
}

void trace_completions(std::uint32_t cqn, const ibv_wc* wc, int n) {
  for (int i = 0; i < n; ++i) {
    trace::Event e("api", "ibv_poll_cq");
    e.hex("cqn", cqn).hex("wr_id", wc[i].wr_id).str("status", status_name(wc[i].status)).hex("qpn", wc[i].qp_num);
    if (wc[i].status == IBV_WC_SUCCESS) {
      e.str("opcode", wc_opcode(wc[i].opcode)).unum("byte_len", wc[i].byte_len);
    } else {
      e.hex("vendor_err", wc[i].vendor_err);
    }
  }
}

void trace_completion_ex(std::uint32_t cqn, ibv_cq_ex* cq) {
  trace::Event("api", "ibv_poll_cq_ex").hex("cqn", cqn).hex("wr_id", cq->wr_id).str("status", status_name(cq->status));
}

void trace_create_qp(const char* name, const ibv_qp* qp, ibv_qp_type type, const ibv_cq* send, const ibv_cq* recv, const ibv_qp_cap& cap) {
  trace::Event e("api", name);
  e.str("type", qp_type_name(type)).num("send_cq", send ? send->handle : -1).num("recv_cq", recv ? recv->handle : -1);
  e.unum("max_send_wr", cap.max_send_wr).unum("max_recv_wr", cap.max_recv_wr);
  if (qp) {
    e.hex("qpn", qp->qp_num);
  } else {
    e.num("errno", errno);
  }
}

}  // namespace uhca::sys

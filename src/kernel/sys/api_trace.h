// SPDX-License-Identifier: MIT
// Trace events of layer "api" for the data path.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uhca::sys {

void trace_post_send(const ibv_qp* qp, const ibv_send_wr* wr, int ret);
void trace_post_recv(const char* name, std::uint32_t number, const ibv_recv_wr* wr, int ret);
void trace_completions(std::uint32_t cqn, const ibv_wc* wc, int n);
void trace_completion_ex(std::uint32_t cqn, ibv_cq_ex* cq);
void trace_create_qp(const char* name, const ibv_qp* qp, ibv_qp_type type, const ibv_cq* send, const ibv_cq* recv, const ibv_qp_cap& cap);
const char* qp_type_name(int type);

}  // namespace uhca::sys

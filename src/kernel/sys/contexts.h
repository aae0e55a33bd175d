// SPDX-License-Identifier: MIT
// Contexts of a libibverbs in this process (see contexts.cpp).
#pragma once

struct ibv_context;
struct ibv_qp;
struct ibv_cq;
struct ibv_cq_ex;

namespace uhca::sys {

// After a context was opened, before the program sees it.
void contexts_wrap(ibv_context* c);
// Before it is closed or destroyed: the original operations are back. After a failed destruction, wrap it again.
void contexts_forget(ibv_context* c);
// Objects whose operations lie in themselves: ibv_qp_ex, ibv_cq_ex. Ones of foreign contexts are left alone.
void contexts_wrap_qp(ibv_qp* qp);
void contexts_wrap_cq(ibv_cq_ex* cq);
bool contexts_forget_qp(ibv_qp* qp);
bool contexts_forget_cq(ibv_cq* cq);

// A uverbs call may have made or destroyed objects: remembered hardware numbers are looked up again.
void contexts_handles_changed();

}  // namespace uhca::sys

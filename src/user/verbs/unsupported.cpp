// SPDX-License-Identifier: MIT
// Verbs that no provider of this project supplies yet. They hand on to the provider's operation; without one the answer is "not supported"
// in the form that support.inc states, as rdma-core's is.
#include "user/verbs/internal.h"

using namespace uhca::verbs;

// UHCA_PASS(result, name, (parameters), context expression, operation(arguments))
#define UHCA_PASS(result, name, params, context, call) \
  UHCA_EXPORT result name params {                     \
    return get_ops(context)->call;                     \
  }

UHCA_PASS(ibv_dmah*, ibv_alloc_dmah, (ibv_context * context, ibv_dmah_init_attr* attr), context, alloc_dmah(context, attr))
UHCA_PASS(int, ibv_dealloc_dmah, (ibv_dmah * dmah), dmah->context, dealloc_dmah(dmah))

UHCA_PASS(ibv_comp_cntr*, ibv_create_comp_cntr, (ibv_context * context, ibv_comp_cntr_init_attr* attr), context,
          create_comp_cntr(context, attr))
UHCA_PASS(int, ibv_destroy_comp_cntr, (ibv_comp_cntr * cntr), cntr->context, destroy_comp_cntr(cntr))
UHCA_PASS(int, ibv_set_comp_cntr, (ibv_comp_cntr * cntr, std::uint64_t value), cntr->context, set_comp_cntr(cntr, value))
UHCA_PASS(int, ibv_set_err_comp_cntr, (ibv_comp_cntr * cntr, std::uint64_t value), cntr->context, set_err_comp_cntr(cntr, value))
UHCA_PASS(int, ibv_inc_comp_cntr, (ibv_comp_cntr * cntr, std::uint64_t amount), cntr->context, inc_comp_cntr(cntr, amount))
UHCA_PASS(int, ibv_inc_err_comp_cntr, (ibv_comp_cntr * cntr, std::uint64_t amount), cntr->context, inc_err_comp_cntr(cntr, amount))
UHCA_PASS(int, ibv_read_comp_cntr, (ibv_comp_cntr * cntr, std::uint64_t* value), cntr->context, read_comp_cntr(cntr, value))
UHCA_PASS(int, ibv_read_err_comp_cntr, (ibv_comp_cntr * cntr, std::uint64_t* value), cntr->context, read_err_comp_cntr(cntr, value))
UHCA_PASS(int, ibv_qp_attach_comp_cntr, (ibv_qp * qp, ibv_comp_cntr* cntr, ibv_qp_attach_comp_cntr_attr* attr), qp->context,
          qp_attach_comp_cntr(qp, cntr, attr))

UHCA_EXPORT int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, std::size_t caps_size) {
  std::memset(static_cast<void*>(caps), 0, caps_size);
  return get_ops(context)->query_comp_cntr_caps(context, caps, caps_size);
}

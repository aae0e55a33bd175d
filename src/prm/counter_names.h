// SPDX-License-Identifier: MIT
// The counters of query_q_counter_out under the names that Linux shows in hw_counters (mlx5_ib counters.c: basic_q_cnts,
// out_of_seq_q_cnts, retrans_q_cnts, extended_err_cnts).
#pragma once

#include "prm/cmd_object.h"

namespace uhca::prm {

#define UHCA_Q(name) \
  { #name, query_q_counter_out::name }
inline constexpr FieldInfo kQCounterNames[] = {UHCA_Q(rx_write_requests),
                                                 UHCA_Q(rx_read_requests),
                                                 UHCA_Q(rx_atomic_requests),
                                                 UHCA_Q(rx_dct_connect),
                                                 UHCA_Q(out_of_buffer),
                                                 UHCA_Q(out_of_sequence),
                                                 UHCA_Q(duplicate_request),
                                                 UHCA_Q(rnr_nak_retry_err),
                                                 UHCA_Q(packet_seq_err),
                                                 UHCA_Q(implied_nak_seq_err),
                                                 UHCA_Q(local_ack_timeout_err),
                                                 UHCA_Q(resp_local_length_error),
                                                 UHCA_Q(resp_cqe_error),
                                                 UHCA_Q(req_cqe_error),
                                                 UHCA_Q(req_remote_invalid_request),
                                                 UHCA_Q(req_remote_access_errors),
                                                 UHCA_Q(resp_remote_access_errors),
                                                 UHCA_Q(resp_cqe_flush_error),
                                                 UHCA_Q(req_cqe_flush_error)};
#undef UHCA_Q

}  // namespace uhca::prm

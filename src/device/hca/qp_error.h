// SPDX-License-Identifier: MIT
// Error states: failing work requests and flushing what is behind them. IBTA vol. 1 10.3.1, 10.8.2.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

// Completion errors with the vendor_err values that users of mlx5 know (cases.md).
inline constexpr WcError kLocalLength{0x01, 0xd5, 0};
inline constexpr WcError kLocalQpOp{0x02, 0x68, 0x96};
inline constexpr WcError kLocalProtSend{0x04, 0x52, 0x93};
inline constexpr WcError kLocalProtScatter{0x04, 0x51, 0x9b};
inline constexpr WcError kFlush{0x05, 0xf9, 0};
inline constexpr WcError kMwBind{0x06, 0x78, 0x08};
inline constexpr WcError kBadResponse{0x10, 0x80, 0};
inline constexpr WcError kRemoteInvalidRequest{0x12, 0x8a, 0};
inline constexpr WcError kRemoteAccess{0x13, 0x88, 0};
inline constexpr WcError kRemoteOperation{0x14, 0x89, 0};
inline constexpr WcError kRetryExceeded{0x15, 0x81, 0};
inline constexpr WcError kRnrRetryExceeded{0x16, 0x87, 0};

// The producer index of the send queue from the doorbell record. False: no send queue, record unreadable, or more than the queue holds
// (refused).
bool refresh_send_posted(Lane& lane, Qp& qp);
// Likewise of the receive queue.
bool refresh_recv_posted(Lane& lane, Qp& qp);

// The oldest message of the send queue completes with this error; the QP goes to the error state, of an unreliable service to SQE.
void fail_oldest_send(Lane& lane, Qp& qp, const WcError& error);
// The receive WQE that the current message holds completes with this error (the QP's state does not change).
void fail_held_recv(Lane& lane, Qp& qp, const WcError& error);

// Into the error state (or already there by command): stops sending, answering and timers; a NAK that waits is still sent. Flushes both
// queues.
void enter_error(Lane& lane, Qp& qp);
// Into the send queue error state: the send queue is flushed, the receive queue goes on.
void enter_send_error(Lane& lane, Qp& qp);
// Flushes what has been posted since, in order per queue. True: there was something.
bool flush_posts(Lane& lane, Qp& qp);

// QPs whose CQ overran: QP_FATAL event and error state.
void fail_users_of_bad_cqs(Lane& lane);

}  // namespace uhca::hca

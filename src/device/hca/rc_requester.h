// SPDX-License-Identifier: MIT
// The requester of an RC QP: WQEs become messages, messages become packets (IBTA vol. 1 9.7.2, 9.7.3). Stages: fetch, fence, window, build,
// send.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

// Request packets in flight per QP: enough to fill a path on one host, few enough that rings do not overflow.
inline constexpr std::uint32_t kSendWindow = 128;
// Of them, as host packets (host_packet.h): the rings bound what is carried, and what is fetched has to be ready behind what is being
// fetched.
inline constexpr std::uint32_t kHostWindow = 8192;
// An acknowledge is asked for at the end of every message and at least this often.
inline constexpr std::uint32_t kAckEvery = 32;

SendMessage& message_at(Requester& r, std::uint16_t wqe);
bool is_read_or_atomic(const SendMessage& m);
// Whether the answer of this READ or atomic goes into its CQE (Requester::in_cqe), from where software copies it (libmlx5:
// mlx5_copy_to_send_wqe), instead of to its data segments.
bool answers_in_cqe(const Qp& qp, const SendMessage& m);
bool answers_in_cqe(const Qp& qp, std::uint8_t fm_ce_se, std::uint32_t length);  // of one that is a READ or atomic
// The CQE of a send WQE that has succeeded.
void complete_send(Lane& lane, Qp& qp, std::uint16_t wqe, std::uint8_t opcode, std::uint32_t bytes, bool in_cqe);

// Sends what may be sent now. True: something went out or completed. Reschedules the QP when the port was busy.
bool run_requester(Lane& lane, Qp& qp);

// Something has been acknowledged: the counts of what may still be tried start over.
void note_progress(Qp& qp);
// Back to the oldest unacknowledged PSN: everything from there is sent again.
void go_back(Qp& qp);
// Completes messages from the oldest on, as far as they are done; reports a failed one when it is the oldest.
bool complete_messages(Lane& lane, Qp& qp);
// (Re)starts the acknowledge timer when something is outstanding, else stops it.
void restart_ack_timer(Lane& lane, Qp& qp);

}  // namespace uhca::hca

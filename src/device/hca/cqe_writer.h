// SPDX-License-Identifier: MIT
// Completion queue entries, overrun, and the arm rule of mlx5's CQs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/hca/lane.h"
#include "prm/cqe.h"

namespace uhca::hca {

struct Cqe {
  prm::CqeOpcode opcode = prm::CqeOpcode::REQ;
  std::uint8_t wqe_opcode = 0;    // of the send WQE (sop); 0 for receives
  std::uint16_t wqe_counter = 0;  // index of the WQE: basic blocks for sends, WQEs for receives
  std::uint32_t byte_cnt = 0;
  std::uint32_t imm = 0;  // immediate data or invalidated rkey, host order
  bool solicited = false;
  WcError error;                     // with REQ_ERR, RESP_ERR
  std::uint32_t user_index = kOfQp;  // srqn_uidx
  std::uint32_t flags_rqpn = 0;      // datagrams: source QPN, kind of network header
  std::uint16_t vlan = 0xffff;       // datagrams: TCI; 0xffff: untagged
  std::span<const std::byte> data;   // goes into the CQE itself: at most inline_scatter_limit() bytes

  static constexpr std::uint32_t kOfQp = ~0u;
};

// How many bytes a CQE of this CQ may carry, given what the QP asks for (qpc.cs_req, cs_res as bytes).
std::size_t inline_scatter_limit(const Cq& cq, unsigned wanted);

// Writes one entry for this QP into `cq` (body first, ownership last) and fires its event when it is armed. In a CQ that is full the entry
// is refused: CQ_ERROR event, and every QP that completes here goes to the error state at the next settle(); with overrun_ignore the oldest
// entry is lost instead. Does nothing for nullptr or a CQ in error.
void write_cqe(Lane& lane, Cq* cq, const Qp& qp, const Cqe& c);

// The same for a CQE64 that is complete but for its ownership, of the queue with this number.
void post_cqe(Lane& lane, Cq& cq, std::uint32_t number, std::uint8_t (&e)[prm::cqe64::kBytes], bool wakes_solicited,
              std::span<const std::byte> data = {});

// Reads the doorbell record of the CQ: consumer index, arm word. `doorbell`: the arm doorbell was rung for this CQ, so the word counts even
// if it equals what a fresh record holds.
void look_at_cq_record(Lane& lane, Cq& cq, bool doorbell);

void disarm(Lane& lane, Cq& cq);

// Fires the events that were held back and whose time has come, or whose CQ is no longer moderated so.
void release_events(Lane& lane);

}  // namespace uhca::hca

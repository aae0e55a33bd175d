// SPDX-License-Identifier: MIT
// The engine's part of a QP: where its send queue, receive queue, requester and responder stand. Guarded by the lane's lock.
// Names follow IBTA vol. 1 chapter 9; all PSNs are 24-bit values in 32-bit words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "device/hca/congestion.h"
#include "device/hca/objects.h"
#include "device/hca/wqe_fetch.h"

namespace uhca::hca {

// How a failed work request is reported.
struct WcError {
  std::uint8_t syndrome = 0;     // prm::CqeSyndrome; 0: none
  std::uint8_t vendor = 0;       // vendor_err_synd
  std::uint8_t hw_syndrome = 0;  // hw_error_syndrome
  explicit operator bool() const { return syndrome != 0; }
};

// One message of the send queue from its first packet until its completion. Lives in slot (WQE index mod queue size).
struct SendMessage {
  std::uint16_t wqe = 0;      // index of its first basic block, 16 bits as the driver counts
  std::uint8_t opcode = 0;    // prm::WqeOpcode
  std::uint8_t fm_ce_se = 0;  // prm::kWqeCtrl*
  std::uint8_t bbs = 1;       // basic blocks
  WcError error;              // set: nothing of it goes out any more; reported when everything before it has completed
  std::uint32_t first_psn = 0;
  std::uint32_t psns = 1;       // PSNs that it uses (READ: its responses)
  std::uint32_t packets = 1;    // request packets (READ, atomic: 1)
  std::uint32_t first_seq = 0;  // running number of its first request packet
  std::uint32_t length = 0;     // bytes
  std::uint32_t got = 0;        // READ, atomic: response packets that arrived in order
  bool by_reference = false;    // some of it was left for the receiver to fetch (host_packet.h), and it has not refused yet
  bool executed = false;        // local operation: done, not to be done again when sending starts over
  std::uint16_t stream = 0;     // of a DCI with streams
};

// A READ whose responses are (being) generated, or an executed atomic whose acknowledge waits to be sent.
struct ResponseJob {
  enum class Kind : std::uint8_t { kRead, kAtomic } kind = Kind::kRead;
  std::uint32_t psn = 0;   // of the next packet
  std::uint32_t left = 0;  // packets still to be sent
  bool first = true;       // the next packet begins the answer (FIRST or ONLY)
  bool repeat = false;     // for a duplicate request: does not count against max_dest_rd_atomic
  std::uint32_t msn = 0;
  std::uint32_t pd = 0;  // whose key that is
  std::uint32_t rkey = 0;
  std::uint64_t va = 0;     // of the next packet's data
  std::uint64_t bytes = 0;  // still to be sent
  std::uint64_t value = 0;  // atomic: what was found
};

// Executed atomics, for duplicates that must not be executed again (IBTA 9.4.5, 9.7.5.1.3).
struct AtomicResult {
  bool valid = false;
  std::uint32_t psn = 0;
  std::uint32_t msn = 0;
  std::uint64_t value = 0;
};

struct Requester {
  // Send queue indexes in basic blocks, 16 bits: done <= cursor <= fetched <= posted.
  std::uint16_t done = 0;     // oldest incomplete message
  std::uint16_t cursor = 0;   // message that is being sent (or sent again)
  std::uint16_t fetched = 0;  // next WQE that has never been looked at
  std::uint16_t posted = 0;   // producer index as last read from the doorbell record
  std::uint32_t packet = 0;   // packets of the cursor's message that were sent (READ: 0 or 1)

  std::uint32_t next_psn = 0;  // for the next new message
  std::uint32_t una_psn = 0;   // oldest unacknowledged
  std::uint32_t max_psn = 0;   // one behind the last PSN that was ever asked for or sent
  std::uint32_t next_seq = 0;  // running number of request packets, for the window
  unsigned reads = 0;          // READs and atomics sent and not complete

  unsigned retries_left = 0;
  unsigned rnr_left = 0;
  bool rnr_wait = false;              // the timer is the RNR timer
  bool gap_reported = false;          // went back because of missing READ responses; not again before progress
  bool fatal = false;                 // sending has stopped at a message with an error
  std::uint16_t again_until = 0;      // DCI: messages up to here were read before a stream failed; local ones may have been executed
  std::array<std::byte, 64> in_cqe;   // READ or atomic response on its way into the CQE
  std::uint16_t stream = 0;           // DCI with streams: whose the session is
  std::vector<SendMessage> messages;  // one slot per basic block
  std::vector<std::uint16_t> failed_streams;
};

struct Responder {
  std::uint32_t epsn = 0;  // expected PSN
  std::uint32_t msn = 0;
  enum class Message : std::uint8_t { kNone, kSend, kWrite } message = Message::kNone;  // that is being received
  enum class Held : std::uint8_t { kNo, kSequence, kRnr } held = Held::kNo;  // NAK was sent, waits for epsn (IBTA 9.7.5.2.8: once)
  std::uint32_t dropped_psn = 0;                                             // while held for a gap: the last packet behind it
  std::uint64_t received = 0;                                                // bytes of the current message
  std::uint64_t write_va = 0;
  std::uint32_t write_rkey = 0;
  std::uint32_t write_length = 0;

  // Receive queue.
  std::uint16_t rq_ci = 0;      // next WQE to consume
  std::uint16_t rq_posted = 0;  // as last read
  bool wqe_held = false;        // recv_wqe belongs to the current message
  RecvWqe recv_wqe;

  // Answers that wait to be sent, in PSN order; the acknowledge goes behind them.
  enum class Answer : std::uint8_t { kNone, kAck, kNak } answer = Answer::kNone;
  std::uint8_t nak_syndrome = 0;
  std::uint32_t nak_psn = 0;
  std::vector<ResponseJob> jobs;  // fixed capacity
  unsigned njobs = 0;
  std::vector<AtomicResult> atomics;  // ring
  unsigned next_atomic = 0;
  std::uint64_t loaded = 0;                       // PublishedQp::progress as last seen or stored
  std::uint32_t writes_seen = 0, reads_seen = 0;  // PublishedQp::writes, reads
  bool comm_est = false;                          // the first packet in RTR was reported
  std::uint16_t peer_sport = 0;                   // of the last request
};

struct PublishedQp;  // published.h

struct QpTransport {
  Requester req;
  Responder resp;

  PublishedQp* shared = nullptr;  // the responder's published half; not owned
  std::uint64_t peer_path = 0;    // path_hash() as the peer's responder publishes it
  std::uint64_t own_path = 0;     // ... and as ours does
  bool peer_reaches_us = false;   // a host packet has come from the peer (host_packet.h): it can access our memory

  FlowRate flow;
  unsigned detours = 0;  // how often the way to the peer was changed after a loss (rc_packet.h)

  // Membership in the lane's lists.
  Nanos deadline = kNever;      // of the timer; may lie later than the heap's key
  std::uint32_t heap_slot = 0;  // 1-based position in the lane's timer heap; 0: not there
  bool queued = false;          // in the lane's work list
  bool in_error_list = false;
  Qp* prev = nullptr;
  Qp* next = nullptr;
};

}  // namespace uhca::hca

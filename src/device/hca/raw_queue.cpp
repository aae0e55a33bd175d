// SPDX-License-Identifier: MIT
#include "device/hca/raw_queue.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/eth_send.h"
#include "device/hca/wqe_fetch.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

using State = RawQueue::State;

const char* kind(const RawQueue& q) {
  return q.send ? "SQ" : "RQ";
}

void write_error_cqe(Lane& lane, RawQueue& q, std::uint8_t opcode, prm::CqeSyndrome syndrome) {
  std::uint8_t e[prm::cqe64::kBytes] = {};
  prm::set<prm::err_cqe::syndrome>(e, static_cast<std::uint8_t>(syndrome));
  write_raw_cqe(lane, q, q.send ? prm::CqeOpcode::REQ_ERR : prm::CqeOpcode::RESP_ERR, opcode, e);
}

// One error CQE per WQE that is still posted.
bool flush(Lane& lane, RawQueue& q) {
  refresh_posted(lane, q);
  bool any = false;
  while (q.hw_counter != q.sw_counter) {
    std::uint8_t opcode = 0;
    unsigned blocks = 1;
    if (q.send) {
      blocks = send_wqe_blocks(lane.bus, ring_of(q), q.hw_counter, &opcode);
      blocks = std::min<unsigned>(blocks, static_cast<std::uint16_t>(q.sw_counter - q.hw_counter));
    }
    if (q.flush_in_error) write_error_cqe(lane, q, opcode, prm::CqeSyndrome::WR_FLUSH);
    q.hw_counter = static_cast<std::uint16_t>(q.hw_counter + blocks);
    any = true;
  }
  return any;
}

void enter_error(Lane& lane, RawQueue& q) {
  q.state = State::kError;
  lane.eth.forget(q);
  if (trace::on()) trace::Event("state", kind(q)).hex("number", q.number).str("to", "ERR");
  flush(lane, q);
  if (!q.send) lane.eth.error_rqs.push_back(&q);
}

}  // namespace

bool refresh_posted(Lane& lane, RawQueue& q) {
  std::uint32_t v;
  if (!lane.bus.dma_load32(q.dbr + (q.send ? prm::kSndDbr : prm::kRcvDbr) * 4, &v)) return false;
  auto posted = static_cast<std::uint16_t>(byteswap(v));
  if (static_cast<std::uint16_t>(posted - q.hw_counter) > 1u << q.log_size) {
    static_cast<void>(refuse(EINVAL, "{} {:#x}: the doorbell record says {}, but the queue of {} entries was last read up to {}: ignored",
                             kind(q), q.number, posted, 1u << q.log_size, q.hw_counter));
    return false;
  }
  q.sw_counter = posted;
  return true;
}

void raw_queue_state_changed(Lane& lane, RawQueue& q, State from) {
  if (q.state == State::kReset || from == State::kReset) {
    q.hw_counter = q.sw_counter = 0;
    q.segments_sent = 0;
  }
  if (q.state == from) return;
  lane.eth.forget(q);
  if (q.state == State::kError) enter_error(lane, q);
  if (q.state == State::kReady) look_at_raw_queue(lane, q);
  lane.settle();
}

void raw_queue_destroyed(Lane& lane, RawQueue& q) {
  lane.eth.forget(q);
}

void look_at_raw_queue(Lane& lane, RawQueue& q) {
  if (q.state == State::kError) {
    flush(lane, q);
  } else if (q.state == State::kReady && q.send && refresh_posted(lane, q)) {
    if (trace::on()) trace::Event("doorbell", "RAW_SQ").hex("sqn", q.number).num("posted", q.sw_counter).num("done", q.hw_counter);
    run_send_queue(lane, q);
  }
  lane.settle();
}

void fail_raw_queue(Lane& lane, RawQueue& q, std::uint8_t opcode, prm::CqeSyndrome syndrome) {
  write_error_cqe(lane, q, opcode, syndrome);
  unsigned blocks = 1;
  if (q.send)
    blocks = std::min<unsigned>(send_wqe_blocks(lane.bus, ring_of(q), q.hw_counter, &opcode),
                                static_cast<std::uint16_t>(q.sw_counter - q.hw_counter));
  q.hw_counter = static_cast<std::uint16_t>(q.hw_counter + std::max(1u, blocks));
  prm::set<prm::rqc::state>(q.context.data(), static_cast<unsigned>(State::kError));
  raw_queue_event(lane, EventType::kWqCatastrophic, q);
  enter_error(lane, q);
}

void fail_raw_queues_of_bad_cqs(Lane& lane) {
  for (auto& [n, q] : lane.objects.raw_queues) {
    if (!q->cq->error || q->state != State::kReady) continue;
    raw_queue_event(lane, EventType::kWqCatastrophic, *q);
    prm::set<prm::rqc::state>(q->context.data(), static_cast<unsigned>(State::kError));
    enter_error(lane, *q);
  }
}

bool flush_raw_queues_in_error(Lane& lane) {
  bool any = false;
  for (RawQueue* q : lane.eth.error_rqs) any = flush(lane, *q) || any;
  return any;
}

void write_raw_cqe(Lane& lane, RawQueue& q, prm::CqeOpcode opcode, std::uint8_t wqe_opcode, std::uint8_t (&e)[prm::cqe64::kBytes]) {
  prm::set<prm::cqe64::srqn_uidx>(e, q.user_index);
  prm::set<prm::cqe64::sop>(e, wqe_opcode);
  bool received = opcode == prm::CqeOpcode::RESP_SEND;
  if (!received) prm::set<prm::cqe64::qpn>(e, q.number);  // there, it is the flow tag's place
  prm::set<prm::cqe64::wqe_counter>(e, q.hw_counter);
  bool error = opcode == prm::CqeOpcode::REQ_ERR || opcode == prm::CqeOpcode::RESP_ERR;
  if (!error) prm::set<prm::cqe64::timestamp>(e, lane.now);
  prm::set<prm::cqe64::opcode>(e, static_cast<unsigned>(opcode));
  post_cqe(lane, *q.cq, q.number, e, error);
}

}  // namespace uhca::hca

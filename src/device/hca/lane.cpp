// SPDX-License-Identifier: MIT
#include "device/hca/lane.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/dc.h"
#include "device/hca/eth_recv.h"
#include "device/hca/eth_send.h"
#include "device/hca/hca.h"
#include "device/hca/host_packet.h"
#include "device/hca/qp_error.h"
#include "device/hca/qp_states.h"
#include "device/hca/raw_queue.h"
#include "device/hca/rc_completer.h"
#include "device/hca/rc_packet.h"
#include "device/hca/rc_requester.h"
#include "device/hca/rc_responder.h"
#include "device/hca/ud.h"

namespace uhca::hca {
namespace {

constexpr unsigned kPollBudget = 64;     // frames per poll
constexpr unsigned kRoundsPerDrive = 8;  // of polls and sends
constexpr unsigned kErrorQpsPerDrive = 8;
constexpr Nanos kBusyRetry = 20'000;  // when the port had no room
constexpr Nanos kMaxErrorCheck = 1'000'000'000;

// Whether the frame comes from the QP's peer and is for it; nullptr: yes.
const char* wrong_path(const Qp& qp, const wire::Packet& p) {
  if (wire::service_of(p.bth.opcode) != service_of(qp.type)) return "service: the QP's is another one";
  if ((p.bth.pkey & 0x7fff) != 0x7fff) return "P_Key";
  if (p.net.roce_v1 != qp.path.roce_v1)
    return p.net.roce_v1 ? "RoCE version: the QP's source GID is RoCE v2" : "RoCE version: the QP's source GID is RoCE v1";
  if (p.net.dgid != qp.path.sgid) return "destination address is not the QP's source GID";
  if (p.net.sgid != qp.path.dgid) return "source address is not the QP's destination GID";
  return nullptr;
}

// Since the last poll, as far as that can be seen without another one (which the program will ask for if it still waits).
bool more_has_come(wire::Port& port) {
  const std::uint32_t* words[pci::IdleWatch::kWords];
  const unsigned n = port.quiet_words(words);
  if (n == wire::Port::kMustPoll) return false;
  return std::any_of(words, words + n, [](const std::uint32_t* w) { return __atomic_load_n(w, __ATOMIC_RELAXED) != 0; });
}

void trace_rx(const wire::Packet& p) {
  trace::Event("frame", "rx")
      .str("opcode", wire::info(p.bth.opcode).name)
      .hex("qpn", p.bth.dest_qp)
      .unum("psn", p.bth.psn)
      .unum("len", p.payload.size())
      .flag("ack_req", p.bth.ack_req)
      .hex("syndrome", p.aeth.syndrome);
}

}  // namespace

Lane::Lane(Hca& h)
    : hca(h),
      bus(h.bus()),
      port(h.port()),
      clock(h.clock()),
      objects(h.objects()),
      publisher(static_cast<PublishedTables*>(h.config().published)) {
  reset_congestion();
}

void Lane::reset_congestion() {
  congestion = {};
  if (!hca.config().congestion_control) congestion.notify = congestion.react = 0;
}

void Lane::receive(wire::Frame frame, bool icrc_known) {
  need_time();
  counters.port_rx.add(frame);
  if (!is_for_rdma(*this, frame)) {
    receive_ethernet(*this, frame, std::nullopt);
    return;
  }
  ++counters.rx_frames;
  counters.rdma_rx.add(frame);
  wire::Packet p;
  wire::ParseError e = wire::parse(frame, p, icrc_known);
  if (e == wire::ParseError::kNotRoce) {
    ++counters.rx_discards;  // plain Ethernet, and no driver of that half
    return;
  }
  if (e != wire::ParseError::kNone) {
    ++(e == wire::ParseError::kBadIcrc ? counters.rx_bad_icrc : counters.rx_malformed);
    static_cast<void>(refuse(EBADMSG, "frame of {} bytes dropped: {}", frame.size(), wire::parse_error_name(e)));
    return;
  }
  if (trace::on()) trace_rx(p);
  if (p.bth.dest_qp == kMulticastQpn) {
    receive_multicast(*this, p, 0);
    return;
  }
  if (wire::has(wire::info(p.bth.opcode).props, wire::Prop::kDcEth)) {
    receive_dc_request(*this, p);
    return;
  }
  Qp* qp = receiver_of(p);
  if (qp == nullptr) return;
  if (p.bth.opcode == wire::kCnp) return receive_cnp(*this, *qp, p);
  if (const char* why = is_datagram(qp->type) ? wrong_datagram(*this, *qp, p) : wrong_path(*qp, p)) return drop_wrong_path(*qp, p, why);
  note_mark(*this, *qp, p);
  if (is_datagram(qp->type)) {
    receive_datagram(*this, *qp, p);
  } else if (wire::has(wire::info(p.bth.opcode).props, wire::Prop::kRequest)) {
    load_progress(*this, *qp);
    respond(*this, *qp, p, nullptr);
    store_progress(*qp);
  } else {
    complete_response(*this, *qp, p);
  }
}

Qp* Lane::receiver_of(const wire::Packet& p) {
  Qp* qp = p.bth.dest_qp == kGsiQpn ? objects.gsi : objects.qp(p.bth.dest_qp);
  if (qp == nullptr || qp->transport == nullptr) {
    ++counters.rx_no_qp;
    static_cast<void>(
        refuse(ENOENT, "frame {} with PSN {} for QPN {:#x} dropped: no such QP", wire::info(p.bth.opcode).name, p.bth.psn, p.bth.dest_qp));
    return nullptr;
  }
  if (!takes_frames(qp->state)) {
    ++counters.rx_no_qp;
    static_cast<void>(refuse(ENOTCONN, "frame {} with PSN {} for QPN {:#x} dropped: the QP is in {}", wire::info(p.bth.opcode).name,
                             p.bth.psn, qp->qpn, qp_state_name(qp->state)));
    return nullptr;
  }
  return qp;
}

void Lane::drop_wrong_path(const Qp& qp, const wire::Packet& p, const char* why) {
  ++counters.rx_wrong_path;
  static_cast<void>(
      refuse(EADDRNOTAVAIL, "frame {} with PSN {} for QPN {:#x} dropped: wrong {}", wire::info(p.bth.opcode).name, p.bth.psn, qp.qpn, why));
}

void Lane::receive_record(std::span<const std::byte> record) {
  need_time();
  wire::Packet p;
  HostBody body;
  std::uint64_t path;
  if (!parse_host_packet(record, p, body, &path)) {
    ++counters.rx_frames;
    ++counters.rx_malformed;
    static_cast<void>(refuse(EBADMSG, "host packet of {} bytes dropped: malformed", record.size()));
    return;
  }
  counters.rx_frames += body.packets;
  Qp* qp = receiver_of(p);
  if (qp == nullptr) return;
  if (qp->type != QpType::kRc) return drop_wrong_path(*qp, p, "service: the QP's is another one");
  if (path != qp->transport->own_path) return drop_wrong_path(*qp, p, "path: the addresses are not the QP's");
  p.net = qp->path;
  count_host_packet(*qp, p, body.length, counters.port_rx, counters.rdma_rx);
  qp->transport->peer_reaches_us = true;
  if (wire::has(wire::info(p.bth.opcode).props, wire::Prop::kRequest)) {
    load_progress(*this, *qp);
    respond(*this, *qp, p, &body);
    store_progress(*qp);
  } else {
    complete_response(*this, *qp, p);
  }
}

bool Lane::drive(bool thorough) {
  // An empty poll may go without the time: timers are late by a few polls at most.
  fresh = false;
  if (thorough || pace_at != kNever || event_at != kNever || ++stale_drives >= hca.config().drives_per_clock) stamp();
  if (answered) posts_after = 0;
  answered = false;
  flush(false);
  bool did = deliver_loopback(*this);
  for (unsigned round = 0; round < kRoundsPerDrive; ++round) {
    unsigned n = port.poll(*this, kPollBudget, thorough && round == 0);
    settle();
    bool sent = run_work();
    did = did || n > 0 || sent;
    if (n == 0 || (!thorough && n < kPollBudget && !more_has_come(port))) break;
  }
  if (pace_at <= now) {
    release_paced(*this);
    did = run_work() || did;
  }
  if (event_at <= now) {
    release_events(*this);
    did = true;
  }
  if (timers.earliest() <= now) {
    while (Qp* qp = timers.pop_due(now)) {
      requester_timer(*this, *qp);
      did = true;
    }
    settle();
    run_work();
  }
  if (!error_qps.empty() && (thorough || now >= error_check)) {
    bool flushed = false;
    std::size_t n = thorough ? error_qps.size() : std::min<std::size_t>(kErrorQpsPerDrive, error_qps.size());
    for (std::size_t i = 0; i < n; ++i) {
      error_next = (error_next + 1) % error_qps.size();
      if (flush_posts(*this, *error_qps[error_next])) flushed = true;
    }
    settle();
    did = did || flushed;
    if (now >= error_check) {
      error_interval = flushed ? error_interval : std::min(error_interval * 2, kMaxErrorCheck);
      error_check = now + error_interval;
    }
  }
  if (thorough && flush_raw_queues_in_error(*this)) did = true;
  answered = frames_wait && !requests_wait;
  flush(posts_after == kTrusted && attended());
  if (idle != nullptr) publish_idle();
  return did;
}

void Lane::publish_idle() {
  const std::uint32_t* words[pci::IdleWatch::kWords];
  const unsigned n = work_waits() ? wire::Port::kMustPoll : port.quiet_words(words);
  n == wire::Port::kMustPoll ? idle->close() : idle->publish({words, n}, timers.earliest());
  idle->set_eager(frames_wait || port.wants_polls());
}

void Lane::note_work() {
  if (idle == nullptr) return;
  if (work_waits()) idle->close();
  if (frames_wait) idle->set_eager(true);
  if (timers.earliest() != idle->deadline()) idle->set_deadline(timers.earliest());
}

bool Lane::work_waits() const {
  return work_head != nullptr || !eth.work.empty() || !multicast_loopback.empty() || pace_at != kNever || event_at != kNever ||
         !error_qps.empty();
}

Nanos Lane::next_deadline() const {
  Nanos t = std::min({timers.earliest(), pace_at, event_at});
  if (!error_qps.empty()) t = std::min(t, error_check);
  if (!multicast_loopback.empty() || port.holds_frames()) t = std::min(t, clock.now());
  if (work_head != nullptr || !eth.work.empty()) t = std::min(t, clock.now() + kBusyRetry);
  return t;
}

void Lane::schedule(Qp& qp) {
  QpTransport& t = *qp.transport;
  if (t.queued) return;
  t.queued = true;
  t.prev = work_tail;
  t.next = nullptr;
  (work_tail != nullptr ? work_tail->transport->next : work_head) = &qp;
  work_tail = &qp;
  ++work_count;
}

void Lane::unschedule(Qp& qp) {
  QpTransport& t = *qp.transport;
  if (!t.queued) return;
  t.queued = false;
  (t.prev != nullptr ? t.prev->transport->next : work_head) = t.next;
  (t.next != nullptr ? t.next->transport->prev : work_tail) = t.prev;
  t.prev = t.next = nullptr;
  --work_count;
}

bool Lane::run_work() {
  if (work_head != nullptr || !eth.work.empty()) need_time();
  bool did = false;
  for (unsigned n = work_count; n > 0 && work_head != nullptr; --n) {
    Qp& qp = *work_head;
    unschedule(qp);
    if (send_answers(*this, qp)) {
      did = true;
      store_progress(qp);  // READs and atomics that have been answered in full
    }
    if (run_requester(*this, qp)) did = true;
  }
  if (run_send_queues(*this)) did = true;
  settle();
  return did;
}

bool Lane::attended() const {
  return idle != nullptr && idle->attended();
}

void Lane::flush(bool answers_may_wait) {
  if (!frames_wait || (answers_may_wait && !requests_wait)) return;
  frames_wait = requests_wait = false;
  port.flush();
}

void Lane::settle() {
  while (cq_failed) {
    cq_failed = false;
    fail_users_of_bad_cqs(*this);
  }
}

void Lane::leave_error_list(Qp& qp) {
  QpTransport& t = *qp.transport;
  if (!t.in_error_list) return;
  error_qps.erase(std::find(error_qps.begin(), error_qps.end(), &qp));
  t.in_error_list = false;
  error_next = 0;
  if (error_qps.empty()) error_check = kNever;
}

void Lane::forget(Qp& qp) {
  publisher.withdraw_qp(qp);
  unschedule(qp);
  timers.forget(qp);
  forget_pace(*this, qp);
  leave_error_list(qp);
  if (tx_wqe.qpn == qp.qpn) tx_wqe.valid = false;
  if (rx_wqe.qpn == qp.qpn) rx_wqe.valid = false;
}

}  // namespace uhca::hca

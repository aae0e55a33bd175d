// SPDX-License-Identifier: MIT
// A lane: the part of the data path that runs under one lock (decision 2). It owns what all QPs of the lane share: the frame buffer,
// decoded WQEs, the work list, timers, counters. The files of the data path are functions on it:
//   doorbell.h   what a doorbell makes it look at        wqe_fetch.h   WQEs
//   rc_requester.h  WQEs -> request packets              rc_responder.h  request packets -> memory, receive completions, answers
//   rc_completer.h  answers -> send completions          qp_error.h   error states and flushing
//   cqe_writer.h, eqe_writer.h  completions and events   mkey_access.h  keys
//   eth_send.h  Ethernet SQs -> frames                   eth_recv.h  frames -> steering, RSS -> Ethernet RQs
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "device/hca/counters.h"
#include "device/hca/eth_path.h"
#include "device/hca/published.h"
#include "device/hca/qp_transport.h"
#include "device/hca/timers.h"
#include "device/pci/idle_watch.h"
#include "wire/net/port.h"
#include "wire/roce/roce.h"

namespace uhca::hca {

class Hca;

struct LoopbackCopy {
  std::vector<std::byte> frame;
  std::uint32_t except_qpn = 0;  // sender that does not want its own; 0: none
};

struct Lane final : wire::FrameSink {
  explicit Lane(Hca& h);

  Hca& hca;
  pci::Bus& bus;
  wire::Port& port;
  const Clock& clock;
  Objects& objects;
  Counters counters;
  Publisher publisher;

  Nanos now = 0;  // read at most once per entry into the engine
  bool fresh = false;
  unsigned stale_drives = 0;  // since the clock was read
  TimerHeap timers;
  unsigned armed = 0;            // CQs that are armed
  bool cq_failed = false;        // a CQ overran since fail_users_of_bad_cqs() last ran
  std::vector<Cq*> held_events;  // CQs whose event is held back (cq_moderation.h)
  Nanos event_at = kNever;       // not later than the first of them

  // FIFO of QPs that have something to send: answers, requests, or both.
  Qp* work_head = nullptr;
  Qp* work_tail = nullptr;
  unsigned work_count = 0;

  // QPs in the error state: receive posts ring no doorbell, so their records are looked at now and then.
  std::vector<Qp*> error_qps;
  std::size_t error_next = 0;  // round robin
  Nanos error_check = kNever;  // next look, with growing distance
  Nanos error_interval = 0;

  // Copies of multicasts for QPs of this device, in the order sent (ud.h).
  std::vector<LoopbackCopy> multicast_loopback;

  CongestionSettings congestion;
  void reset_congestion();  // as after power-on
  std::vector<Qp*> paced;   // wait until they may send again
  Nanos pace_at = kNever;   // the first of them

  EthPath eth;  // Ethernet queues

  SendWqe tx_wqe;  // of the message that is being sent
  SendWqe rx_wqe;  // of the READ or atomic whose response arrives
  std::array<std::byte, wire::kMaxFrame> tx_frame;
  wire::PeerFunction* host_out = nullptr;  // whom the packet that is being built goes to, as a host packet; nullptr: it is a frame

  // wire::FrameSink: parses, finds the QP, hands over to responder or completer.
  void receive(wire::Frame frame) override { receive(frame, false); }
  void receive_checked(wire::Frame frame) override { receive(frame, true); }
  void receive(wire::Frame frame, bool icrc_known);
  // The same for host packets (host_packet.h).
  void receive_record(std::span<const std::byte> record) override;

  // The QP that takes a packet for this number; nullptr: dropped, with a reason.
  Qp* receiver_of(const wire::Packet& p);
  void drop_wrong_path(const Qp& qp, const wire::Packet& p, const char* why);

  bool drive(bool thorough);
  pci::IdleWatch* idle = nullptr;
  // Says in `idle` what a poll would have to look at. note_work(): what may have changed since the last drive().
  void publish_idle();
  void note_work();
  bool work_waits() const;
  Nanos next_deadline() const;

  // Puts the QP at the end of the work list unless it is there.
  void schedule(Qp& qp);
  void unschedule(Qp& qp);
  // Frames have been given to the port that may wait there, as long as the program polls again and again (attended): its next poll lets
  // them leave. Answers wait for what the program may post now that it has a completion, if it has done so the last few times. Requests
  // wait for those that are posted next, while others of their QP are under way (as Nagle's algorithm has it).
  bool frames_wait = false, requests_wait = false;
  bool answered = false;     // the last drive() made answers
  unsigned posts_after = 0;  // how often in a row a post came next, up to kTrusted
  static constexpr unsigned kTrusted = 4;
  bool attended() const;
  void flush(bool answers_may_wait);
  void note_post() {
    if (answered) posts_after = std::min(posts_after + 1, kTrusted);
    answered = false;
  }

  // Lets every QP of the work list send once. True: something was sent.
  bool run_work();
  // Errors that came up while something else was going on (CQ overruns).
  void settle();
  // No longer looked at for posts that are to be flushed.
  void leave_error_list(Qp& qp);
  // Forgets the QP: lists, timer, decoded WQEs.
  void forget(Qp& qp);
  void stamp() {
    now = std::max(now, clock.recent());
    fresh = true;
    stale_drives = 0;
  }
  // Before anything that starts a timer or tells the time.
  void need_time() {
    if (!fresh) stamp();
  }
};

template <prm::Field F>
void count(Lane& lane, const Qp& qp, std::uint32_t n = 1) {
  count<F>(lane.counters, lane.objects, qp, n);
}

}  // namespace uhca::hca

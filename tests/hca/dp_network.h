// SPDX-License-Identifier: MIT
// Frames on their way between A and B one by one, in the hands of a test: what arrives, when, how often.
#pragma once

#include <deque>
#include <utility>

#include "device/hca/qp_transport.h"
#include "hca/dp_harness.h"

namespace uhca::hcatest {

class NetworkTest : public DpTest {
 protected:
  struct Flying {
    FakePort::Bytes bytes;
    bool request = false;  // A to B, else B's answer to A
  };
  std::deque<Flying> network;  // in the order sent
  unsigned requests = 0, responses = 0;

  // Frames no longer arrive by themselves.
  void take_over() {
    bench.port.on_send = [this](FakePort::Bytes& bytes) {
      wire::Packet p;
      if (wire::parse(bytes, p) != wire::ParseError::kNone) return FakePort::Verdict::kDrop;
      bool request = wire::has(wire::info(p.bth.opcode).props, wire::Prop::kRequest);
      ++(request ? requests : responses);
      sent({bytes, request});
      return FakePort::Verdict::kDrop;
    };
  }
  virtual void sent(Flying f) { network.push_back(std::move(f)); }
  void deliver(const FakePort::Bytes& bytes) {
    bench.port.inject(bytes);
    run();
  }
  hca::QpTransport& transport(const End& e) { return *bench.hca.objects().qp(e.qp.qpn)->transport; }
  bool timer_runs() { return transport(a).deadline != kNever; }
  // The requester's timer runs out, whatever is on its way.
  void fire_timer() {
    bench.clock.set(std::max(transport(a).deadline, bench.clock.now()));
    run();
  }
  // The frame at this place arrives.
  void deliver_at(std::size_t i) {
    FakePort::Bytes bytes = std::move(network[i].bytes);
    network.erase(network.begin() + static_cast<std::ptrdiff_t>(i));
    deliver(bytes);
  }
};

}  // namespace uhca::hcatest

// SPDX-License-Identifier: MIT
// Trace events: what each layer really did, one JSON object a line, written to the descriptor that `uhca trace` passes down.
//
//   if (trace::on()) trace::Event("cmd", "CREATE_QP").hex("qpn", qpn).num("log_sq", n);
//
// Off, an event costs one predictable branch. On, every line carries: t (ns, CLOCK_MONOTONIC), pid, tid, layer, name.
// The vocabulary of layers, in the order of a request's life:
//   api       a call of the Verbs API (interposed by kernel/sys only while tracing)
//   syscall   open/ioctl/write/mmap/close on a device file, attributes decoded
//   cmd       a firmware command, fields by name
//   wqe       a work queue entry that the HCA fetched
//   doorbell  a doorbell that the HCA saw
//   frame     a frame, tx or rx
//   state     a QP/transport state change (stage names of requester, responder, completer)
//   cqe, eqe  entries that the HCA wrote
//   irq       an interrupt vector dispatched
//   wake      an event put into a completion channel or async file
//   mad, cm   management datagrams and states of connection management (kernel/cm)
//   pci       what a virtual machine does on the bus (uhca pci)
//   refuse    a refusal with its reason (see base/log.h)
// Field names shared by all layers, so that one request can be followed: qpn, wqe (send or receive WQE counter),
// psn, cqn, wr_id, mkey.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace uhca::trace {

namespace detail {
extern constinit std::atomic<bool> enabled;
}

inline bool on() {
  return __builtin_expect(detail::enabled.load(std::memory_order_relaxed), 0);
}

// Reads UHCA_TRACE_FD (an open descriptor) and UHCA_PCAP (a file opened for append); called once by kernel/sys. After
// relocating a descriptor (programs call closefrom), use set_fd.
void init_from_environment();
void set_fd(int fd);
int fd();

// Builds one line in a fixed buffer on the stack (1.5 KiB) and writes it when destroyed. Longer lines are cut, and say so
// ("cut":true). Values are escaped.
class Event {
 public:
  Event(std::string_view layer, std::string_view name);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Event& num(std::string_view key, std::int64_t v);
  Event& unum(std::string_view key, std::uint64_t v);
  Event& hex(std::string_view key, std::uint64_t v);  // as the string "0x.."
  Event& str(std::string_view key, std::string_view v);
  Event& flag(std::string_view key, bool v);
  Event& bytes(std::string_view key, std::span<const std::byte> v);  // hex digits, at most 256 bytes

 private:
  void key(std::string_view k);
  void raw(std::string_view s);
  void quoted(std::string_view s);

  static constexpr std::size_t kSize = 1536;
  char buf_[kSize];
  std::size_t len_ = 0;
  bool cut_ = false;
};

// Appends one Ethernet frame to the capture that UHCA_PCAP names (pcap, nanosecond, link type Ethernet), if any. `tx` frames
// only: every frame is captured once, where it is sent. Frames that came over the UDP port are captured on receive as well.
void capture(std::span<const std::byte> frame);
bool capturing();

}  // namespace uhca::trace

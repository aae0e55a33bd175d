// SPDX-License-Identifier: MIT
// The thread that drives the device when no program thread does (DESIGN, decision 2): timers, frames for a sleeping program,
// programs that ring doorbells themselves. Never spins: it sleeps on descriptors and deadlines.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "device/pci/function.h"
#include "device/pci/idle_watch.h"
#include "device/pci/irq.h"
#include "wire/net/port.h"

namespace uhca::pci {

// "Attended" means: a program thread polls an empty CQ again and again and thereby runs the engine; peers need not wake
// anybody. While attended the thread only checks once a millisecond that the polls go on.
class ServiceThread {
 public:
  ServiceThread(Engine& engine, wire::Port& port, IrqTable& irqs, IdleWatch& idle);
  ~ServiceThread();
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  void start();  // idempotent

  // A program thread polled an empty CQ (and has just driven the engine).
  void polled();
  // A program thread is about to sleep, or armed a CQ: frames must wake this thread from now on.
  void unattend();
  // After work was posted while unattended: makes sure that this thread wakes early enough for the engine's deadline.
  void check_deadline();
  // "Drive the engine now": something was left undone.
  void poke();

  void watch_uar(std::uint32_t uar_index, bool on);
  // Calls `handler` whenever fd is readable. -1 takes it back (no call runs any more when that returns).
  void serve(int fd, Endpoint::IrqHandler handler, void* context);

 private:
  static void* entry(void* self);
  void run();
  void attend(bool on);
  bool work();  // drives until nothing is left or a bound is reached
  void sleep_until(Nanos deadline, bool with_port);
  void look_at_served();
  Nanos look_at_watched(Nanos now);

  Engine& engine_;
  wire::Port& port_;
  IrqTable& irqs_;
  IdleWatch& idle_;
  int control_ = -1;  // eventfd
  std::atomic<bool> started_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> attended_{false};
  std::atomic<unsigned> polls_{0};
  std::atomic<unsigned> empty_in_a_row_{0};
  std::atomic<Nanos> sleeping_until_{0};
  std::mutex mutex_;  // started, watched_
  std::vector<std::uint32_t> watched_;
  std::atomic<bool> watching_{false};
  Nanos watch_period_ = 0;  // decays while the watched doorbells are silent
  Nanos next_watch_ = 0;
  std::mutex serving_;  // held while the handler runs
  std::atomic<int> served_fd_{-1};
  Endpoint::IrqHandler served_handler_ = nullptr;
  void* served_context_ = nullptr;
  pthread_t thread_{};
};

}  // namespace uhca::pci

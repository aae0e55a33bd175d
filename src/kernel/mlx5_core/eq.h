// SPDX-License-Identifier: MIT
// Event queues: what the device reports, and to whom it goes. Linux: core/eq.c.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/pci/bus.h"
#include "kernel/mlx5_core/cmd.h"
#include "kernel/mm/umem.h"

namespace uhca::kernel::mlx5 {

// eqe.event_type (Linux device.h: MLX5_EVENT_TYPE_*).
enum class EventType : std::uint8_t {
  COMP = 0x0,
  PATH_MIG = 0x1,
  COMM_EST = 0x2,
  SQ_DRAINED = 0x3,
  CQ_ERROR = 0x4,
  WQ_CATAS_ERROR = 0x5,
  PATH_MIG_FAILED = 0x7,
  PORT_CHANGE = 0x9,
  CMD = 0xa,
  PAGE_REQUEST = 0xb,
  WQ_INVAL_REQ_ERROR = 0x10,
  WQ_ACCESS_ERROR = 0x11,
  SRQ_CATAS_ERROR = 0x12,
  SRQ_LAST_WQE = 0x13,
  SRQ_RQ_LIMIT = 0x14,
  XRQ_ERROR = 0x18,
  DCT_DRAINED = 0x1c,
  DCT_KEY_VIOLATION = 0x1d,
};

// One queue. poll() is called by one thread at a time (an interrupt vector is never handled twice at once).
class EventQueue {
 public:
  // Called for each EQE, with its 64 bytes.
  using Handler = void (*)(void* context, const std::uint8_t* eqe);

  // entries: a power of two. ENOMEM, and what CREATE_EQ answers.
  static Result<std::unique_ptr<EventQueue>> create(CommandQueue& cmd, mm::IommuDomain& domain, pci::Endpoint& endpoint,
                                                    unsigned log_entries, unsigned vector, std::uint32_t uar, std::uint64_t event_mask,
                                                    Handler handler, void* context);
  // DESTROY_EQ; the memory goes in any case.
  Status destroy();

  // Handles what is there and arms the queue again.
  void poll();
  // Arms without looking (after the interrupt handler is in place).
  void arm() { doorbell(true); }
  std::uint32_t eqn() const { return eqn_; }

 private:
  EventQueue(CommandQueue& cmd, pci::Endpoint& endpoint) : cmd_(cmd), endpoint_(endpoint) {}
  void doorbell(bool arm);

  CommandQueue& cmd_;
  pci::Endpoint& endpoint_;
  std::unique_ptr<mm::DmaBuffer> buffer_;
  unsigned log_entries_ = 0;
  std::uint32_t uar_ = 0;
  std::uint32_t eqn_ = 0;
  std::atomic<std::uint32_t> ci_{0};
  Handler handler_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
// The command queue: how the driver talks to the firmware. Linux: drivers/net/ethernet/mellanox/mlx5/core/cmd.c.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "device/pci/bus.h"
#include "kernel/mm/umem.h"
#include "prm/opcode.h"

namespace uhca::kernel::mlx5 {

// The errno of a firmware status (Linux: cmd_status_to_err); 0 for OK.
int cmd_status_to_err(std::uint8_t status);

// Makes commands fail by a rule (DESIGN, decision 12), for tests of unwinding: after `skip` further commands that match, one fails
// as if the firmware had refused it with `status`; it does not reach the device.
struct CommandFault {
  std::uint64_t skip = 0;
  std::uint16_t opcode = 0;  // 0: any
  prm::CmdStatus status = prm::CmdStatus::NO_RES;
};

// Thread-safe. All memory that the firmware sees comes from the domain.
class CommandQueue {
 public:
  CommandQueue(pci::Endpoint& endpoint, mm::IommuDomain& domain) : endpoint_(endpoint), domain_(domain) {}
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  // Checks the interface revision, reads size and stride from the init segment and tells the device the queue's address.
  // Completions are polled until use_events(true). EINVAL: a revision or geometry that this driver does not know; ENOMEM.
  Status start();

  // Executes one command; lengths in bytes, at least 16 each, whole structures of src/prm. The command's own status becomes the
  // errno of cmd_status_to_err, with opcode and syndrome in the reason. EIO: not delivered; ETIMEDOUT: no completion within 60 s
  // (the slot is then lost, as in Linux); EAGAIN as the firmware's "no resources".
  Status exec(const void* in, std::size_t inlen, void* out, std::size_t outlen);

  // The same, but a bad status is not an error: it stays in `out` for the caller (DEVX).
  Status exec_raw(const void* in, std::size_t inlen, void* out, std::size_t outlen);

  // Whether completion EQEs are expected to arrive (after the command EQ was created, before it is destroyed).
  void use_events(bool on) { events_.store(on, std::memory_order_release); }
  // From the command EQ: these slots completed.
  void completion(std::uint32_t vector);

  // Runs before each command, outside all locks (pending page requests). nullptr: none.
  void set_before(void (*hook)(void*), void* context) {
    before_context_ = context;
    before_.store(hook, std::memory_order_release);
  }

  void inject(const CommandFault& fault);
  void clear_fault();
  // Commands issued so far, injected ones included.
  std::uint64_t issued() const { return issued_.load(std::memory_order_relaxed); }

 private:
  struct Mailbox {
    std::uint8_t* cpu;
    pci::DmaAddr dma;
  };
  static constexpr unsigned kMaxSlots = 32;

  Status submit(const void* in, std::size_t inlen, void* out, std::size_t outlen);
  bool injected(std::uint16_t opcode, void* out);
  Result<std::vector<Mailbox>> take_mailboxes(std::size_t bytes);
  void give_mailboxes(const std::vector<Mailbox>& boxes);
  unsigned take_slot();
  void give_slot(unsigned slot);
  bool wait(unsigned slot);

  pci::Endpoint& endpoint_;
  mm::IommuDomain& domain_;
  std::unique_ptr<mm::DmaBuffer> queue_;
  unsigned log_stride_ = 6;
  unsigned slots_ = 0;

  std::mutex lock_;  // slots and mailboxes; never held across a device access
  std::condition_variable slot_free_, completed_;
  std::uint32_t free_slots_ = 0;
  std::uint64_t completions_ = 0;  // counts calls of completion(): what waiters wait on
  std::uint8_t next_token_ = 1;
  std::vector<std::unique_ptr<mm::DmaBuffer>> pool_;
  std::vector<Mailbox> free_mailboxes_;

  std::atomic<bool> events_{false};
  std::atomic<void (*)(void*)> before_{nullptr};
  void* before_context_ = nullptr;

  std::mutex fault_lock_;
  std::atomic<bool> fault_armed_{false};
  CommandFault fault_;
  std::atomic<std::uint64_t> issued_{0};
};

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
#include "kernel/mlx5_core/cmd.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "base/types.h"
#include "prm/cmd_core.h"

namespace uhca::kernel::mlx5 {
namespace {

using prm::at;
using prm::get;
using prm::set;

constexpr std::uint32_t kInterfaceRevision = 5;  // Linux cmd.c: CMD_IF_REV
constexpr std::uint8_t kTransportPci = 7;        // MLX5_PCI_CMD_XPORT
constexpr std::size_t kInline = 16;              // bytes of input and output in the entry itself
constexpr std::size_t kBlock = 512;              // bytes of data in a mailbox
constexpr std::size_t kMailboxStride = 1024;     // mailbox pointers have no low 10 bits
constexpr std::size_t kPoolBytes = 64 * kMailboxStride;
constexpr auto kTimeout = std::chrono::seconds(60);  // MLX5_CMD_TIMEOUT_MSEC

// Registers of the init segment, bytes.
constexpr std::uint64_t kRegRevision = 0x4, kRegQueueHigh = 0x10, kRegQueueLow = 0x14, kRegDoorbell = 0x18;

const char* opcode_name(std::uint16_t op) {
  const char* n = prm::opcode_name(op);
  return n != nullptr ? n : "unknown command";
}

// The owner bit and the delivery status share the last byte of the entry.
std::uint8_t load_status(const std::uint8_t* entry) {
  return __atomic_load_n(entry + prm::cmd_queue_entry::kBytes - 1, __ATOMIC_ACQUIRE);
}

}  // namespace

int cmd_status_to_err(std::uint8_t status) {
  switch (static_cast<prm::CmdStatus>(status)) {
    case prm::CmdStatus::OK: return 0;
    case prm::CmdStatus::INT_ERR: return EIO;
    case prm::CmdStatus::BAD_OP: return EINVAL;
    case prm::CmdStatus::BAD_PARAM: return EINVAL;
    case prm::CmdStatus::BAD_SYS_STATE: return EIO;
    case prm::CmdStatus::BAD_RES: return EINVAL;
    case prm::CmdStatus::RES_BUSY: return EBUSY;
    case prm::CmdStatus::LIM: return ENOMEM;
    case prm::CmdStatus::BAD_RES_STATE: return EINVAL;
    case prm::CmdStatus::IX: return EINVAL;
    case prm::CmdStatus::NO_RES: return EAGAIN;
    case prm::CmdStatus::BAD_QP_STATE: return EINVAL;
    case prm::CmdStatus::BAD_PKT: return EINVAL;
    case prm::CmdStatus::BAD_SIZE_OUTS_CQES: return EINVAL;
    case prm::CmdStatus::BAD_INP_LEN: return EIO;
    case prm::CmdStatus::BAD_OUTP_LEN: return EIO;
  }
  return EIO;
}

CommandQueue::~CommandQueue() = default;

Status CommandQueue::start() {
  std::uint32_t rev = byteswap(endpoint_.read32(kRegRevision)) >> 16;
  if (rev != kInterfaceRevision) return refuse(EINVAL, "command interface revision {} of the device; {} is known", rev, kInterfaceRevision);
  std::uint32_t geometry = byteswap(endpoint_.read32(kRegQueueLow)) & 0xff;
  unsigned log_size = geometry >> 4;
  log_stride_ = geometry & 0xf;
  if (log_size > 5 || log_stride_ < 6 || log_size + log_stride_ > 12)
    return refuse(EINVAL, "command queue of 2^{} entries of 2^{} bytes does not fit into a page", log_size, log_stride_);
  slots_ = std::min(1u << log_size, kMaxSlots);
  free_slots_ = slots_ == 32 ? ~0u : (1u << slots_) - 1;
  queue_ = UHCA_TRY(domain_.alloc_coherent(4096));
  endpoint_.write32(kRegQueueHigh, byteswap(static_cast<std::uint32_t>(queue_->dma() >> 32)));
  endpoint_.write32(kRegQueueLow, byteswap(static_cast<std::uint32_t>(queue_->dma())));
  return success();
}

Result<std::vector<CommandQueue::Mailbox>> CommandQueue::take_mailboxes(std::size_t bytes) {
  std::size_t n = bytes > kInline ? (bytes - kInline + kBlock - 1) / kBlock : 0;
  std::vector<Mailbox> boxes;
  boxes.reserve(n);
  for (;;) {
    {
      std::lock_guard g(lock_);
      while (boxes.size() < n && !free_mailboxes_.empty()) {
        boxes.push_back(free_mailboxes_.back());
        free_mailboxes_.pop_back();
      }
    }
    if (boxes.size() == n) return boxes;
    auto chunk = domain_.alloc_coherent(kPoolBytes);
    if (!chunk) {
      give_mailboxes(boxes);
      return chunk.error();
    }
    std::lock_guard g(lock_);
    for (std::size_t off = 0; off < kPoolBytes; off += kMailboxStride)
      free_mailboxes_.push_back({static_cast<std::uint8_t*>((*chunk)->cpu()) + off, (*chunk)->dma() + off});
    pool_.push_back(std::move(chunk).value());
  }
}

void CommandQueue::give_mailboxes(const std::vector<Mailbox>& boxes) {
  std::lock_guard g(lock_);
  free_mailboxes_.insert(free_mailboxes_.end(), boxes.begin(), boxes.end());
}

unsigned CommandQueue::take_slot() {
  std::unique_lock g(lock_);
  slot_free_.wait(g, [this] { return free_slots_ != 0; });
  auto slot = static_cast<unsigned>(std::countr_zero(free_slots_));
  free_slots_ &= free_slots_ - 1;
  return slot;
}

void CommandQueue::give_slot(unsigned slot) {
  {
    std::lock_guard g(lock_);
    free_slots_ |= 1u << slot;
  }
  slot_free_.notify_one();
}

void CommandQueue::completion(std::uint32_t) {
  {
    std::lock_guard g(lock_);
    ++completions_;
  }
  completed_.notify_all();
}

bool CommandQueue::wait(unsigned slot) {
  const auto* entry = static_cast<const std::uint8_t*>(queue_->cpu()) + (std::size_t{slot} << log_stride_);
  auto done = [entry] { return (load_status(entry) & 1) == 0; };
  // The slot in this process executes the command inside the doorbell's write: usually there is nothing to wait for.
  if (done()) return true;
  auto deadline = std::chrono::steady_clock::now() + kTimeout;
  if (events_.load(std::memory_order_acquire)) {
    std::unique_lock g(lock_);
    return completed_.wait_until(g, deadline, done);
  }
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    sched_yield();
  }
  return true;
}

Status CommandQueue::submit(const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  const auto* src = static_cast<const std::uint8_t*>(in);
  auto* dst = static_cast<std::uint8_t*>(out);
  auto in_boxes = UHCA_TRY(take_mailboxes(inlen));
  auto out_result = take_mailboxes(outlen);
  if (!out_result) {
    give_mailboxes(in_boxes);
    return out_result.error();
  }
  auto out_boxes = std::move(out_result).value();

  unsigned slot = take_slot();
  std::uint8_t token;
  {
    std::lock_guard g(lock_);
    token = next_token_;
    if (++next_token_ == 0) next_token_ = 1;
  }
  auto chain = [token](const std::vector<Mailbox>& boxes) {
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      std::uint8_t* b = boxes[i].cpu;
      std::memset(b, 0, prm::cmd_if_box::kBytes);
      pci::DmaAddr next = i + 1 < boxes.size() ? boxes[i + 1].dma : 0;
      set<prm::cmd_if_box::next_pointer_63_32>(b, next >> 32);
      set<prm::cmd_if_box::next_pointer_31_10>(b, (next & 0xffffffff) >> 10);
      set<prm::cmd_if_box::block_number>(b, i);
      set<prm::cmd_if_box::token>(b, token);
    }
  };
  chain(in_boxes);
  chain(out_boxes);
  for (std::size_t i = 0; i < in_boxes.size(); ++i) {
    std::size_t off = kInline + i * kBlock;
    std::memcpy(in_boxes[i].cpu, src + off, std::min(kBlock, inlen - off));
  }

  auto* entry = static_cast<std::uint8_t*>(queue_->cpu()) + (std::size_t{slot} << log_stride_);
  std::uint8_t image[prm::cmd_queue_entry::kBytes] = {};
  set<prm::cmd_queue_entry::type>(image, kTransportPci);
  set<prm::cmd_queue_entry::input_length>(image, inlen);
  set<prm::cmd_queue_entry::output_length>(image, outlen);
  set<prm::cmd_queue_entry::token>(image, token);
  auto pointer = [&image](prm::Field high, prm::Field low, const std::vector<Mailbox>& boxes) {
    if (boxes.empty()) return;
    set(image, high, boxes[0].dma >> 32);
    set(image, low, (boxes[0].dma & 0xffffffff) >> 9);
  };
  pointer(prm::cmd_queue_entry::input_mailbox_pointer_63_32, prm::cmd_queue_entry::input_mailbox_pointer_31_9, in_boxes);
  pointer(prm::cmd_queue_entry::output_mailbox_pointer_63_32, prm::cmd_queue_entry::output_mailbox_pointer_31_9, out_boxes);
  std::memcpy(at<prm::cmd_queue_entry::command_input_inline_data>(image), src, std::min(inlen, kInline));
  set<prm::cmd_queue_entry::ownership>(image, 1);
  std::uint8_t parity = 0;
  for (std::uint8_t b : image) parity ^= b;
  set<prm::cmd_queue_entry::signature>(image, static_cast<std::uint8_t>(~parity));
  std::memcpy(entry, image, sizeof image - 1);
  __atomic_store_n(entry + sizeof image - 1, image[sizeof image - 1], __ATOMIC_RELEASE);

  endpoint_.write32(kRegDoorbell, byteswap(std::uint32_t{1} << slot));

  std::uint16_t op = get<prm::cmd_in::opcode>(in);
  if (!wait(slot)) {
    // The device may still write: slot and mailboxes stay with it until the queue goes.
    return refuse(ETIMEDOUT, "{} ({:#x}): no completion", opcode_name(op), op);
  }
  std::uint8_t delivery = load_status(entry) >> 1;
  std::memcpy(dst, entry + prm::byte_of<prm::cmd_queue_entry::command_output_inline_data>, std::min(outlen, kInline));
  for (std::size_t i = 0; i < out_boxes.size(); ++i) {
    std::size_t off = kInline + i * kBlock;
    std::memcpy(dst + off, out_boxes[i].cpu, std::min(kBlock, outlen - off));
  }
  give_slot(slot);
  give_mailboxes(in_boxes);
  give_mailboxes(out_boxes);
  if (delivery != 0) return refuse(EIO, "{} ({:#x}): not delivered, delivery status {:#x}", opcode_name(op), op, delivery);
  return success();
}

void CommandQueue::inject(const CommandFault& fault) {
  std::lock_guard g(fault_lock_);
  fault_ = fault;
  fault_armed_.store(true, std::memory_order_release);
}

void CommandQueue::clear_fault() {
  std::lock_guard g(fault_lock_);
  fault_armed_.store(false, std::memory_order_release);
}

bool CommandQueue::injected(std::uint16_t opcode, void* out) {
  if (!fault_armed_.load(std::memory_order_acquire)) return false;
  std::lock_guard g(fault_lock_);
  if (!fault_armed_.load(std::memory_order_relaxed)) return false;
  if (fault_.opcode != 0 && fault_.opcode != opcode) return false;
  if (fault_.skip > 0) {
    --fault_.skip;
    return false;
  }
  fault_armed_.store(false, std::memory_order_release);
  set<prm::cmd_out::status>(out, static_cast<std::uint8_t>(fault_.status));
  return true;
}

Status CommandQueue::exec_raw(const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  if (inlen < 8 || outlen < 8) return refuse(EINVAL, "a command has at least 8 bytes of input and output, not {} and {}", inlen, outlen);
  if (auto before = before_.load(std::memory_order_acquire)) before(before_context_);
  issued_.fetch_add(1, std::memory_order_relaxed);
  if (injected(get<prm::cmd_in::opcode>(in), out)) return success();
  return submit(in, inlen, out, outlen);
}

Status CommandQueue::exec(const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  UHCA_CHECK(exec_raw(in, inlen, out, outlen));
  std::uint8_t status = static_cast<std::uint8_t>(get<prm::cmd_out::status>(out));
  int err = cmd_status_to_err(status);
  if (err == 0) return success();
  std::uint16_t op = get<prm::cmd_in::opcode>(in);
  const char* name = prm::cmd_status_name(static_cast<prm::CmdStatus>(status));
  return refuse(err, "{} ({:#x}) op_mod {:#x}: firmware status {} ({:#x}), syndrome {:#x}", opcode_name(op), op,
                get<prm::cmd_in::op_mod>(in), name != nullptr ? name : "?", status, get<prm::cmd_out::syndrome>(out));
}

}  // namespace uhca::kernel::mlx5

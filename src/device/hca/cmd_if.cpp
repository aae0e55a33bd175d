// SPDX-License-Identifier: MIT
#include "device/hca/cmd_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/data_path.h"
#include "prm/event.h"

namespace uhca::hca {
namespace {

constexpr unsigned kLogSlots = 5, kLogStride = 6;  // 32 entries of 64 bytes
constexpr std::size_t kInline = 16, kMailboxData = 512;
constexpr std::size_t kMaxInput = std::size_t{16} << 20, kMaxOutput = std::size_t{1} << 20;
constexpr std::uint8_t kPciTransport = 7;  // cmd_queue_entry.type (Linux driver.h: MLX5_PCI_CMD_XPORT)
constexpr std::uint8_t kEventCommand = 0x0a;

using Entry = prm::cmd_queue_entry;
using Box = prm::cmd_if_box;

// What Linux's cmd_status_to_err makes of a status.
int to_errno(prm::CmdStatus s) {
  switch (s) {
    case prm::CmdStatus::RES_BUSY: return EBUSY;
    case prm::CmdStatus::LIM: return ENOMEM;
    case prm::CmdStatus::NO_RES: return EAGAIN;
    case prm::CmdStatus::INT_ERR:
    case prm::CmdStatus::BAD_SYS_STATE:
    case prm::CmdStatus::BAD_INP_LEN:
    case prm::CmdStatus::BAD_OUTP_LEN: return EIO;
    default: return EINVAL;
  }
}

}  // namespace

void Command::refuse_v(prm::CmdStatus s, fmt::string_view f, fmt::format_args args) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (char ch : std::string_view(f.data(), f.size())) hash = (hash ^ static_cast<std::uint8_t>(ch)) * 16777619u;
  syndrome = hash & 0xffffff;
  if (!log::enabled(log::Level::kWarn) && !trace::on()) return;
  fmt::memory_buffer text;
  fmt::vformat_to(std::back_inserter(text), f, args);
  std::string_view reason(text.data(), text.size());
  log::vrefuse(to_errno(s), "{}: {}: {}", fmt::make_format_args(name, prm::cmd_status_name(s), reason));
}

CommandInterface::CommandInterface(Hca& hca) : hca_(hca), control_(hca.config(), hca.objects()), faults_(hca.config().command_faults) {}

void CommandInterface::set_queue_low(std::uint32_t v) {
  std::uint32_t state = v >> 8 & 7;
  if (state == 7) {
    reset_request_ = true;
    return;
  }
  // A driver that only sets the state repeats the address that it reads back.
  nic_interface_ = state;
  queue_ = (queue_ & ~std::uint64_t{0xffffffff}) | (v & 0xfffff000);
}

std::uint32_t CommandInterface::queue_low() const {
  return (static_cast<std::uint32_t>(queue_) & 0xfffff000) | nic_interface_ << 8 | kLogSlots << 4 | kLogStride;
}

bool CommandInterface::take_reset_request() {
  if (!reset_request_) return false;
  reset_request_ = false;
  return true;
}

void CommandInterface::reset() {
  bool by_software = std::exchange(reset_request_, false);
  control_.reset();
  queue_ = 0;
  nic_interface_ = by_software ? 1 : 0;
}

void CommandInterface::forget_objects() {
  hca_.data_path().reset();
  hca_.clear_objects();
  control_.forget_objects();
}

void CommandInterface::ring(std::uint32_t mask) {
  if (nic_interface_ != 0) return;
  for (unsigned slot = 0; slot < 1u << kLogSlots; ++slot)
    if (mask >> slot & 1) execute(slot);
}

prm::DeliveryStatus CommandInterface::read_input(const std::uint8_t* entry, std::vector<std::uint8_t>& in) {
  using D = prm::DeliveryStatus;
  std::size_t len = prm::get<Entry::input_length>(entry);
  if (len < kInline || len > kMaxInput) return D::IN_LENGTH_ERR;
  in.assign(entry + prm::byte_of<Entry::command_input_inline_data>, entry + prm::byte_of<Entry::command_input_inline_data> + kInline);
  pci::DmaAddr box = load_be<std::uint64_t>(entry + prm::byte_of<Entry::input_mailbox_pointer_63_32>);
  if (len > kInline && box % 512 != 0) return D::IN_PTR_ALIGN_ERR;
  // A chain cannot be longer than the length says, so a loop ends too (at the first repeated block number).
  for (std::uint32_t block = 0; in.size() < len; ++block) {
    std::uint8_t b[Box::kBytes];
    if (box == 0) return D::IN_LENGTH_ERR;
    if (block > 0 && box % 1024 != 0) return D::IN_PTR_ALIGN_ERR;
    if (!hca_.bus().dma_read(b, box, sizeof b)) return D::CMD_DESCR_ERR;
    if (prm::get<Box::token>(b) != prm::get<Entry::token>(entry)) return D::TOK_ERR;
    if (prm::get<Box::block_number>(b) != block) return D::BAD_BLK_NUM;
    in.insert(in.end(), b, b + std::min(kMailboxData, len - in.size()));
    box = load_be<std::uint64_t>(b + prm::byte_of<Box::next_pointer_63_32>);
  }
  return D::OK;
}

prm::DeliveryStatus CommandInterface::walk_output(const std::uint8_t* entry, std::size_t len, std::vector<pci::DmaAddr>& boxes) {
  using D = prm::DeliveryStatus;
  if (len < prm::cmd_out::kBytes - 4 || len > kMaxOutput) return D::OUT_LENGTH_ERR;
  pci::DmaAddr box = load_be<std::uint64_t>(entry + prm::byte_of<Entry::output_mailbox_pointer_63_32>);
  if (len > kInline && box % 512 != 0) return D::OUT_PTR_ALIGN_ERR;
  for (std::size_t done = kInline; done < len; done += kMailboxData) {
    std::uint8_t b[Box::kBytes];
    if (box == 0) return D::OUT_LENGTH_ERR;
    if (!boxes.empty() && box % 1024 != 0) return D::OUT_PTR_ALIGN_ERR;
    if (!hca_.bus().dma_read(b, box, sizeof b)) return D::CMD_DESCR_ERR;
    if (prm::get<Box::token>(b) != prm::get<Entry::token>(entry)) return D::TOK_ERR;
    if (prm::get<Box::block_number>(b) != boxes.size()) return D::BAD_BLK_NUM;
    boxes.push_back(box);
    box = load_be<std::uint64_t>(b + prm::byte_of<Box::next_pointer_63_32>);
  }
  return D::OK;
}

bool CommandInterface::planned_failure(prm::Opcode op, prm::CmdStatus* status) {
  bool fires = false;
  for (auto it = faults_.begin(); it != faults_.end();) {
    if ((it->opcode != op && it->opcode != prm::Opcode{}) || --it->nth > 0) {
      ++it;
      continue;
    }
    if (!fires) *status = it->status;
    fires = true;
    it = faults_.erase(it);
  }
  return fires;
}

prm::CmdStatus CommandInterface::dispatch(Command& c, const CommandInfo*& info) {
  using S = prm::CmdStatus;
  auto opcode = static_cast<std::uint16_t>(prm::get<prm::cmd_in::opcode>(c.in()));
  info = find_command(opcode);
  if (const char* n = prm::opcode_name(opcode)) c.name = n;
  S planned;
  if (planned_failure(static_cast<prm::Opcode>(opcode), &planned)) return c.refuse(planned, "a rule makes this command fail");
  if (info == nullptr) return c.refuse(S::BAD_OP, "opcode {:#x} is not offered", opcode);
  if (c.in_bytes.size() < info->min_in) return c.refuse(S::BAD_INP_LEN, "{} bytes of input, {} needed", c.in_bytes.size(), info->min_in);
  if (c.out_bytes.size() < info->min_out)
    return c.refuse(S::BAD_OUTP_LEN, "room for {} bytes of output, {} needed", c.out_bytes.size(), info->min_out);
  if (info->needs != Needs::kNothing && !control_.enabled) return c.refuse(S::BAD_SYS_STATE, "before ENABLE_HCA");
  if (info->needs == Needs::kInitialized && !control_.initialized) return c.refuse(S::BAD_SYS_STATE, "before INIT_HCA");
  return perform(c, *info);
}

prm::CmdStatus CommandInterface::perform(Command& c, const CommandInfo& info) {
  using S = prm::CmdStatus;
  // The uid lies at the same place in every command that has one.
  c.uid = static_cast<std::uint16_t>(prm::get<prm::general_obj_in_cmd_hdr::uid>(c.in()));
  if (c.uid == kSharedUid) c.uid = 0;
  if (!control_.ownership.user_exists(c.uid)) return c.refuse(S::BAD_PARAM, "no user context {}", c.uid);
  const ObjectRole* role = role_of(static_cast<std::uint16_t>(info.opcode));
  if (role == nullptr) return info.handler(c);
  auto number = static_cast<std::uint32_t>(role->role == Role::kCreate ? 0 : prm::get(c.in(), role->number));
  if (role->role != Role::kCreate) {
    if (S s = c.may_use(role->kind, number); s != S::OK) return s;
  }
  S s = info.handler(c);
  if (s != S::OK) return s;
  if (role->role == Role::kCreate) {
    for (std::uint32_t id : c.umems) ++control_.umems.at(id).users;
    control_.ownership.created(role->kind, static_cast<std::uint32_t>(prm::get(c.out(), role->number)), c.uid, std::move(c.umems));
  } else if (role->role == Role::kDestroy) {
    for (std::uint32_t id : control_.ownership.destroyed(role->kind, number)) --control_.umems.at(id).users;
  }
  return s;
}

void CommandInterface::execute(unsigned slot) {
  using D = prm::DeliveryStatus;
  pci::DmaAddr at = queue_ + (std::uint64_t{slot} << kLogStride);
  std::uint8_t entry[Entry::kBytes];
  if (!hca_.bus().dma_read(entry, at, sizeof entry)) {
    log::error("command queue at {:#x} is not readable: {}", at, hca_.bus().last_fault());
    return;
  }
  if (!prm::get<Entry::ownership>(entry)) return;  // not ours: rung without a command

  std::vector<std::uint8_t> in, out;
  std::vector<pci::DmaAddr> boxes;
  D delivery = prm::get<Entry::type>(entry) == kPciTransport ? D::OK : D::CMD_DESCR_ERR;
  std::size_t out_len = prm::get<Entry::output_length>(entry);
  if (delivery == D::OK) delivery = read_input(entry, in);
  if (delivery == D::OK) delivery = walk_output(entry, out_len, boxes);

  // Nobody can wait for the event of the command that creates the queue for such events.
  bool event_wanted =
      std::any_of(hca_.objects().eqs.begin(), hca_.objects().eqs.end(), [](auto& e) { return e.second->event_mask >> kEventCommand & 1; });

  if (delivery == D::OK) {
    out.assign(std::max(out_len, kInline), 0);
    const CommandInfo* info = nullptr;
    Command c{.hca = hca_, .st = control_, .name = "?", .in_bytes = in, .out_bytes = std::span(out).first(std::max(out_len, kInline))};
    c.out_bytes = std::span(out).first(out_len);
    prm::CmdStatus status = dispatch(c, info);
    if (status != prm::CmdStatus::OK) std::fill(out.begin(), out.end(), 0);
    prm::set<prm::cmd_out::status>(out.data(), static_cast<std::uint8_t>(status));
    if (status != prm::CmdStatus::OK) prm::set<prm::cmd_out::syndrome>(out.data(), c.syndrome);
    if (trace::on()) trace_command(info, c, status);
    std::memcpy(entry + prm::byte_of<Entry::command_output_inline_data>, out.data(), kInline);
    for (std::size_t i = 0, done = kInline; done < out_len; ++i, done += kMailboxData) {
      if (!hca_.bus().dma_write(boxes[i], out.data() + done, std::min(kMailboxData, out_len - done))) delivery = D::CMD_DESCR_ERR;
    }
  } else {
    log::warn("command entry {}: delivery status {:#x}", slot, static_cast<unsigned>(delivery));
  }

  prm::set<Entry::status>(entry, static_cast<std::uint8_t>(delivery));
  prm::set<Entry::ownership>(entry, 0);
  constexpr std::size_t kBack = prm::byte_of<Entry::command_output_inline_data>;
  if (!hca_.bus().dma_write_last_byte_last(at + kBack, entry + kBack, sizeof entry - kBack)) {
    log::error("command queue at {:#x} is not writable: {}", at, hca_.bus().last_fault());
    return;
  }
  if (event_wanted) {
    std::uint8_t data[prm::cmd_inter_comp_event::kBytes]{};
    prm::set<prm::cmd_inter_comp_event::command_completion_vector>(data, std::uint32_t{1} << slot);
    hca_.data_path().async_event(kEventCommand, 0, data, sizeof data);
  }
}

}  // namespace uhca::hca

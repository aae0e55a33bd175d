// SPDX-License-Identifier: MIT
// The command interface: a queue of 32 entries in host memory, mailboxes, a doorbell. Linux counterpart: what
// drivers/net/ethernet/mellanox/mlx5/core/cmd.c talks to. Runs with the lane's lock held.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "device/hca/control.h"
#include "device/hca/hca.h"
#include "prm/cmd_core.h"
#include "prm/layout.h"
#include "prm/opcode.h"

namespace uhca::hca {

// One command in execution. `in` holds the whole input (at least the layout's size), `out` is zeroed and as long as the driver asked
// for (at least the layout's size); status and syndrome are filled in by the dispatcher.
struct Command {
  Hca& hca;
  Control& st;
  const char* name;
  std::span<const std::uint8_t> in_bytes;
  std::span<std::uint8_t> out_bytes;
  std::uint32_t syndrome = 0;
  std::uint16_t uid = 0;             // the user context that issues it; 0: the driver
  std::vector<std::uint32_t> umems;  // what the object that it creates will hold (take_umem_buffer)

  const std::uint8_t* in() const { return in_bytes.data(); }
  std::uint8_t* out() const { return out_bytes.data(); }
  std::uint16_t op_mod() const { return static_cast<std::uint16_t>(prm::get<prm::cmd_in::op_mod>(in())); }
  Objects& objects() const { return hca.objects(); }

  template <prm::Field F>
  auto get(std::size_t i = 0) const {
    return prm::get<F>(in(), i);
  }
  template <prm::Field F>
  const std::uint8_t* at() const {
    return static_cast<const std::uint8_t*>(prm::at<F>(static_cast<const void*>(in())));
  }
  template <prm::Field F>
  void set(std::uint64_t v, std::size_t i = 0) {
    prm::set<F>(out(), v, i);
  }
  template <prm::Field F>
  std::uint8_t* out_at() {
    return static_cast<std::uint8_t*>(prm::at<F>(static_cast<void*>(out())));
  }
  // Input behind the fixed part of a layout (pas, MTTs, lists).
  std::span<const std::uint8_t> tail(std::size_t from) const {
    return from >= in_bytes.size() ? std::span<const std::uint8_t>{} : in_bytes.subspan(from);
  }

  // A refusal: the status that firmware answers, and the reason that it does not give (decision 11). The syndrome is a number that
  // stands for the reason's text.
  template <class... A>
  prm::CmdStatus refuse(prm::CmdStatus s, fmt::format_string<A...> f, A&&... a) {
    refuse_v(s, f, fmt::make_format_args(a...));
    return s;
  }
  // The shared ways to say no.
  prm::CmdStatus no_such(const char* what, std::uint32_t number) { return refuse(prm::CmdStatus::BAD_RES, "no {} {:#x}", what, number); }
  prm::CmdStatus in_use(const char* what, std::uint32_t number, unsigned users) {
    return refuse(prm::CmdStatus::BAD_RES_STATE, "{} {:#x} has {} users", what, number, users);
  }
  // Whether this command's user may name the object (ownership.h).
  prm::CmdStatus may_use(Kind k, std::uint32_t number) {
    if (st.ownership.may_use(k, number, uid)) return prm::CmdStatus::OK;
    return refuse(prm::CmdStatus::BAD_RES, "{} {:#x} belongs to another user context than {}", kind_name(k), number, uid);
  }
  // ... every one of these.
  prm::CmdStatus may_use_all(std::initializer_list<std::pair<Kind, std::uint32_t>> objects) {
    for (auto [k, number] : objects)
      if (prm::CmdStatus s = may_use(k, number); s != prm::CmdStatus::OK) return s;
    return prm::CmdStatus::OK;
  }
  // What reaches any bus address, or speaks for the port, is not for user contexts.
  prm::CmdStatus drivers_only(bool asked, const char* what) {
    if (!asked || uid == 0) return prm::CmdStatus::OK;
    return refuse(prm::CmdStatus::BAD_PARAM, "{} is the driver's only, not for user context {}", what, uid);
  }
  prm::CmdStatus exhausted(const char* what) { return refuse(prm::CmdStatus::NO_RES, "no {} left", what); }

 private:
  void refuse_v(prm::CmdStatus s, fmt::string_view f, fmt::format_args args);
};

using Handler = prm::CmdStatus (*)(Command&);

// When a command may run.
enum class Needs : std::uint8_t { kNothing, kEnabled, kInitialized };

struct CommandInfo {
  prm::Opcode opcode;
  Handler handler;
  std::uint16_t min_in, min_out;  // bytes
  Needs needs;
  const prm::LayoutInfo* in;
  const prm::LayoutInfo* out;
};

// nullptr: unknown, or not offered by this device.
const CommandInfo* find_command(std::uint16_t opcode);
std::span<const CommandInfo> all_commands();

// A "cmd" trace event: name, status, syndrome, non-zero fields of the input and the created numbers, by name.
void trace_command(const CommandInfo* info, const Command& c, prm::CmdStatus status);

class CommandInterface {
 public:
  explicit CommandInterface(Hca& hca);

  Control& control() { return control_; }

  // Registers 0x10 and 0x14 (values in host order).
  void set_queue_high(std::uint32_t v) { queue_ = (queue_ & 0xffffffff) | std::uint64_t{v} << 32; }
  void set_queue_low(std::uint32_t v);
  std::uint32_t queue_high() const { return static_cast<std::uint32_t>(queue_ >> 32); }
  std::uint32_t queue_low() const;
  // True once when the driver asked for a software reset through the NIC interface state; the caller resets the HCA.
  bool take_reset_request();

  // Register 0x18: executes the commands whose bits are set.
  void ring(std::uint32_t mask);
  void fail(const CommandFault& fault) { faults_.push_back(fault); }
  // As after power-on. Rules for failures stay.
  void reset();
  // Every object of every kind, here and in the engine.
  void forget_objects();

 private:
  void execute(unsigned slot);
  prm::DeliveryStatus read_input(const std::uint8_t* entry, std::vector<std::uint8_t>& in);
  prm::DeliveryStatus walk_output(const std::uint8_t* entry, std::size_t len, std::vector<pci::DmaAddr>& boxes);
  prm::CmdStatus dispatch(Command& c, const CommandInfo*& info);
  // The command itself, with who owns what before and after.
  prm::CmdStatus perform(Command& c, const CommandInfo& info);
  bool planned_failure(prm::Opcode op, prm::CmdStatus* status);

  Hca& hca_;
  Control control_;
  std::uint64_t queue_ = 0;
  std::uint32_t nic_interface_ = 0;  // 0 full driver, 1 disabled, 2 no DRAM, 7 software reset
  bool reset_request_ = false;
  std::vector<CommandFault> faults_;
};

}  // namespace uhca::hca

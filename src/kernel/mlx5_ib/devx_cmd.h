// SPDX-License-Identifier: MIT
// What the driver must know of the commands that programs issue through DEVX: which ones it passes on, which object they are about, how
// an object that they made is destroyed. Linux: the tables in hw/mlx5/devx.c.
#pragma once

#include <cstdint>
#include <vector>

#include "prm/opcode.h"

namespace uhca::kernel::mlx5::devx {

// All take a command of at least general_obj_in_cmd_hdr's size; fields beyond its end read as 0.
struct Input {
  const std::uint8_t* data;
  std::size_t size;  // bytes
};

prm::Opcode opcode_of(const Input& in);
// Queries that a context without a uid may issue, under a uid that the driver keeps for them (devx_is_whitelist_cmd).
bool is_whitelisted(prm::Opcode op);
// Commands about no object (devx_is_general_cmd).
bool is_general(prm::Opcode op);
bool is_create(const Input& in);
bool is_modify(const Input& in);
bool is_query(const Input& in);

// Objects are known by who made them: the creating opcode (for general objects with their type above it) << 32 | number.
constexpr std::uint64_t encode(std::uint32_t create_opcode, std::uint32_t number) {
  return std::uint64_t{create_opcode} << 32 | number;
}
constexpr std::uint64_t encode(prm::Opcode create, std::uint32_t number) {
  return encode(static_cast<std::uint32_t>(create), number);
}
constexpr prm::Opcode creator_of(std::uint64_t id) {
  return static_cast<prm::Opcode>(id >> 32 & 0xffff);
}
// Of what a create command made; `out` is its answer.
std::uint64_t created_id(const Input& in, const std::uint8_t* out);
// Of what a modify or query command is about; 0: no such command.
std::uint64_t named_id(const Input& in);
// The command that undoes a create command.
std::vector<std::uint8_t> destroy_command(const Input& in, const std::uint8_t* out);
// Programs' buffers are umems, never addresses: says so in every context that the command holds (devx_set_umem_valid).
void set_umem_valid(std::vector<std::uint8_t>& in);

// The type of an object in events of this number (get_dec_obj_type).
std::uint16_t event_object_type(std::uint64_t id, std::uint16_t event);
// Events that programs may subscribe to, of an object or of the device (is_valid_events_legacy).
bool is_object_event(std::uint16_t event);
bool is_device_event(std::uint16_t event);

}  // namespace uhca::kernel::mlx5::devx

// SPDX-License-Identifier: MIT
// Commands on the device's own memory. Sources: Linux hw/mlx5/dm.c (what the driver asks for), mlx5_ifc.h.
#include <algorithm>

#include "base/types.h"
#include "device/hca/cmd_handlers.h"
#include "device/hca/memic.h"
#include "prm/other_caps.h"

namespace uhca::hca::cmd {
namespace {

constexpr std::uint64_t kUnit = std::uint64_t{1} << prm::kLogMemicUnit;

// The block that begins at the address of the command; nullptr: *s says why.
Memic::Block* find_block(Command& c, std::uint64_t start, Status* s) {
  Memic* m = c.objects().memic;
  Memic::Block* b = m == nullptr ? nullptr : m->at(start);
  *s = b == nullptr ? c.refuse(Status::BAD_RES, "no device memory was allocated at {:#x}", start) : Status::OK;
  return b;
}

}  // namespace

Status alloc_memic(Command& c) {
  if (Status s = c.drivers_only(true, "device memory"); s != Status::OK) return s;
  Memic* m = c.objects().memic;
  if (m == nullptr) return c.refuse(Status::BAD_OP, "the device has no memory of its own");
  const std::uint64_t first = c.get<prm::alloc_memic_in::range_start_addr>(), range = c.get<prm::alloc_memic_in::range_size>();
  const std::uint64_t size = c.get<prm::alloc_memic_in::memic_size>();
  const unsigned log_align = c.get<prm::alloc_memic_in::log_memic_addr_alignment>();
  const void* caps = c.st.caps.current(static_cast<unsigned>(CapType::kDeviceMemory))->data();
  if (log_align > prm::get<prm::device_mem_cap::log_max_memic_addr_alignment>(caps))
    return c.refuse(Status::BAD_PARAM, "alignment to {} << {} bytes", kUnit, log_align);
  if (size == 0 || size % kUnit != 0 || size > prm::get<prm::device_mem_cap::max_memic_size>(caps))
    return c.refuse(Status::BAD_PARAM, "{} bytes of device memory", size);
  if (m->memory(first, range) == nullptr) return c.refuse(Status::BAD_PARAM, "{:#x} bytes at {:#x} are not in the window", range, first);
  auto start = m->allocate(first, range, size, kUnit << log_align);
  if (!start) return c.refuse(Status::NO_RES, "no {} bytes are free in [{:#x}, +{:#x})", size, first, range);
  c.set<prm::alloc_memic_out::memic_start_addr>(*start);
  return Status::OK;
}

Status dealloc_memic(Command& c) {
  if (Status s = c.drivers_only(true, "device memory"); s != Status::OK) return s;
  const std::uint64_t start = c.get<prm::dealloc_memic_in::memic_start_addr>(), size = c.get<prm::dealloc_memic_in::memic_size>();
  Status s;
  Memic::Block* b = find_block(c, start, &s);
  if (b == nullptr) return s;
  if (size != b->bytes) return c.refuse(Status::BAD_PARAM, "{} bytes of the {} at {:#x}", size, b->bytes, start);
  auto keys = std::count_if(c.objects().mkeys.begin(), c.objects().mkeys.end(), [&](const auto& k) {
    return k.second->mode == MkeyMode::kMemic && k.second->memic >= start && k.second->memic - start < size;
  });
  if (keys != 0) return c.refuse(Status::BAD_RES_STATE, "{} keys lie in the device memory at {:#x}", keys, start);
  c.objects().memic->free(start);
  return Status::OK;
}

Status modify_memic(Command& c) {
  if (Status s = c.drivers_only(true, "device memory"); s != Status::OK) return s;
  const std::uint64_t start = c.get<prm::modify_memic_in::memic_start_addr>();
  const auto op = static_cast<std::uint8_t>(c.get<prm::modify_memic_in::memic_operation_type>());
  Status s;
  Memic::Block* b = find_block(c, start, &s);
  if (b == nullptr) return s;
  if (op >= prm::kMemicOperations) return c.refuse(Status::BAD_PARAM, "operation {} on device memory", op);
  switch (c.op_mod()) {
    case prm::kMemicOpAlloc:
      b->operations |= 1u << op;
      c.set<prm::modify_memic_out::memic_operation_addr>(Memic::operation_address(start, op));
      return Status::OK;
    case prm::kMemicOpDealloc:
      if ((b->operations >> op & 1) == 0) return c.refuse(Status::BAD_RES_STATE, "operation {} at {:#x} has no address", op, start);
      b->operations &= ~(1u << op);
      return Status::OK;
    default: return c.refuse(Status::BAD_PARAM, "op_mod {}", c.op_mod());
  }
}

}  // namespace uhca::hca::cmd

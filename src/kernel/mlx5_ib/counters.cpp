// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/counters.h"

#include <algorithm>

#include "base/log.h"
#include "prm/cmd_flow.h"
#include "prm/cmd_vport.h"

namespace uhca::kernel::mlx5 {
namespace {

using prm::Opcode;

constexpr std::uint32_t kBytes = 1;                  // description: IB_COUNTER_PACKETS 0, IB_COUNTER_BYTES 1
constexpr std::uint32_t kMaxDescribed = 0xffff / 8;  // MAX_COUNTERS_NUM
// An answer is an attribute of less than 64 KiB. Linux lets an index of 2^32 - 1 through, and then writes behind the answer.
constexpr std::uint32_t kMaxIndex = 0xffff / 8;

Result<std::uint32_t> alloc_counter(mlx5_core_dev& m) {
  std::uint8_t in[prm::alloc_flow_counter_in::kBytes] = {}, out[prm::alloc_flow_counter_out::kBytes] = {};
  prm::set<prm::alloc_flow_counter_in::opcode>(in, static_cast<std::uint16_t>(Opcode::ALLOC_FLOW_COUNTER));
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
  return std::uint32_t{prm::get<prm::alloc_flow_counter_out::flow_counter_id>(out)};
}

Status dealloc_counter(mlx5_core_dev& m, std::uint32_t id) {
  std::uint8_t in[prm::dealloc_flow_counter_in::kBytes] = {}, out[prm::dealloc_flow_counter_out::kBytes] = {};
  prm::set<prm::dealloc_flow_counter_in::opcode>(in, static_cast<std::uint16_t>(Opcode::DEALLOC_FLOW_COUNTER));
  prm::set<prm::dealloc_flow_counter_in::flow_counter_id>(in, id);
  return m.cmd().exec(in, sizeof in, out, sizeof out);
}

Status describe(mlx5_ib_counters& c, const ::mlx5_ib_flow_counters_data* data) {
  if (data == nullptr) return c.max_index != 0 ? success() : refuse(EINVAL, "create_flow: the counters are not described");
  if (data->ncounters > kMaxDescribed) return refuse(EINVAL, "create_flow: {} counters", data->ncounters);
  std::vector<::mlx5_ib_flow_counters_desc> list(data->ncounters);
  UHCA_CHECK(copy_from_user(list.data(), static_cast<UserPtr>(data->counters_data), list.size() * sizeof list[0]));
  if (c.max_index != 0) return refuse(EINVAL, "create_flow: the counters have been described by another rule");
  std::uint32_t max = 0;
  for (const auto& d : list) {
    if (d.description > kBytes) return refuse(EINVAL, "create_flow: counter kind {}", d.description);
    if (d.index >= kMaxIndex) return refuse(EINVAL, "create_flow: counter index {:#x}", d.index);
    max = std::max(max, d.index + 1);
  }
  c.counters = std::move(list);
  c.max_index = max;
  return success();
}

}  // namespace

Status counters_set_data(mlx5_ib_counters& c, const ::mlx5_ib_flow_counters_data* data) {
  auto& m = *to_mdev(*c.device).mdev;
  std::lock_guard g(c.lock);
  bool fresh = !c.id;
  if (fresh) c.id = UHCA_TRY(alloc_counter(m));
  Status s = describe(c, data);
  if (s.ok() || !fresh) return s;
  if (Status f = dealloc_counter(m, *c.id); !f) log::error("flow counter {:#x} could not be freed", *c.id);
  c.id.reset();
  return s;
}

void counters_clear_description(mlx5_ib_counters& c) {
  if (c.usecnt.load() != 1) return;
  std::lock_guard g(c.lock);
  c.counters.clear();
  c.max_index = 0;
}

Result<std::unique_ptr<ib_counters>> create_counters(ib_device&) {
  return std::unique_ptr<ib_counters>(std::make_unique<mlx5_ib_counters>());
}

Status destroy_counters(ib_counters& ib) {
  auto& c = static_cast<mlx5_ib_counters&>(ib);
  if (c.id) UHCA_CHECK(dealloc_counter(*to_mdev(*c.device).mdev, *c.id));
  return success();
}

Status read_counters(ib_counters& ib, std::uint64_t* values, std::uint32_t n, std::uint32_t) {
  auto& c = static_cast<mlx5_ib_counters&>(ib);
  std::lock_guard g(c.lock);
  if (c.max_index > n) return refuse(EINVAL, "read_counters: room for {} values, {} are counted", n, c.max_index);
  if (!c.id) return refuse(EINVAL, "read_counters: no rule counts in them");
  std::uint8_t in[prm::query_flow_counter_in::kBytes] = {};
  std::uint8_t out[prm::query_flow_counter_out::kBytes + prm::traffic_counter::kBytes] = {};
  prm::set<prm::query_flow_counter_in::opcode>(in, static_cast<std::uint16_t>(Opcode::QUERY_FLOW_COUNTER));
  prm::set<prm::query_flow_counter_in::flow_counter_id>(in, *c.id);
  UHCA_CHECK(to_mdev(*c.device).mdev->cmd().exec(in, sizeof in, out, sizeof out));
  const void* stats = out + prm::query_flow_counter_out::kBytes;
  std::uint64_t packets = prm::get<prm::traffic_counter::packets>(stats), bytes = prm::get<prm::traffic_counter::octets>(stats);
  for (const auto& d : c.counters) values[d.index] += d.description == kBytes ? bytes : packets;
  return success();
}

}  // namespace uhca::kernel::mlx5

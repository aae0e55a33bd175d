// SPDX-License-Identifier: MIT
// The flow tables of NIC receive: one per priority, linked so that what misses in one goes on to the next. Linux: the part of
// drivers/net/ethernet/mellanox/mlx5/core/fs_core.c that mlx5_ib sees (mlx5_add_flow_rules, automatic groups).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/result.h"
#include "kernel/mlx5_core/mlx5_core.h"
#include "prm/cmd_flow.h"

namespace uhca::kernel::mlx5 {

// flow_context.action (MLX5_FLOW_CONTEXT_ACTION_*).
inline constexpr std::uint32_t kFlowAllow = 1, kFlowDrop = 2, kFlowForward = 4, kFlowCount = 8;
// Tables in the order in which a packet meets them. Even: rules that do not trap; odd: those that do; both by the program's priority.
inline constexpr unsigned kFlowPriorities = 16, kFlowMulticast = 2 * kFlowPriorities, kFlowLeftovers = kFlowMulticast + 1;

struct FlowSpec {
  using Param = std::array<std::uint8_t, prm::fte_match_param::kBytes>;
  Param criteria{}, value{};
  std::uint8_t enable = 0;  // match_criteria_enable
  std::uint32_t tag = 0;
  bool has_tag = false;
};
// match_criteria_enable of a mask: which of its parts are not zero.
std::uint8_t match_criteria_of(const FlowSpec::Param& criteria);

struct FlowAct {
  bool drop = false;
  std::optional<std::uint32_t> tirn;
  std::optional<std::uint32_t> counter;  // flow_counter_id
  bool next = false;                     // also on to the next table
};

class FlowTables {
 public:
  // One rule of one caller. Rules with the same match share an entry.
  struct Rule;

  explicit FlowTables(mlx5_core_dev& m);
  ~FlowTables();
  FlowTables(const FlowTables&) = delete;
  FlowTables& operator=(const FlowTables&) = delete;

  // EEXIST: there is a rule with this match that drops where this one does not (or the other way), or with another tag. ENOSPC: the table
  // is full. EINVAL: the device cannot match this.
  Result<Rule*> add(unsigned priority, const FlowSpec& spec, const FlowAct& act);
  // The rule is gone when this succeeds.
  Status remove(Rule* rule);

 private:
  struct Entry;
  struct Group;
  struct Table;
  Result<Table*> get_table(unsigned priority);
  void put_table(unsigned priority);
  Status set_root();
  Status set_miss(const Table& table, std::uint32_t next);
  Status relink(unsigned priority, std::uint32_t to);
  std::uint32_t next_of(unsigned priority) const;
  Result<Group*> find_group(Table& table, const FlowSpec& spec);
  Result<Group*> create_group(Table& table, const FlowSpec& spec);
  void put_group(Table& table, Group* group);
  Status write_entry(unsigned priority, const Entry& entry, bool fresh);
  Status delete_entry(const Table& table, std::uint32_t index);

  mlx5_core_dev& m_;
  std::mutex lock_;
  std::map<unsigned, std::unique_ptr<Table>> tables_;  // by priority
};

}  // namespace uhca::kernel::mlx5

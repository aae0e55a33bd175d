// SPDX-License-Identifier: MIT
// Flow tables at work: tables of groups (a mask each) of entries (a value and what to do), and the walk of a frame through them.
// Linux counterpart: what drivers/net/ethernet/mellanox/mlx5/core/fs_core.c drives. Guarded by the lane's lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/hca/flow_match.h"
#include "prm/cmd_flow.h"

namespace uhca::hca {

// flow_context.action (Linux mlx5_ifc.h: MLX5_FLOW_CONTEXT_ACTION_*).
enum FlowAction : std::uint32_t { kFlowAllow = 1, kFlowDrop = 2, kFlowForward = 4, kFlowCount = 8 };
// dest_format_struct.destination_type (MLX5_IFC_FLOW_DESTINATION_TYPE_*).
enum FlowDestination : std::uint32_t { kFlowToTable = 1, kFlowToTir = 2 };
// table_type (Linux fs_core.h: FS_FT_*).
inline constexpr std::uint32_t kFlowNicReceive = 0;

struct FlowEntry {
  std::uint32_t group = 0;
  std::uint32_t index = 0;
  std::vector<std::uint8_t> context;  // flow_context and its lists of destinations and counters
  MatchWords value{};                 // under the group's mask
};

struct FlowGroup {
  std::uint32_t table = 0;
  std::uint32_t start = 0, end = 0;  // entries
  std::uint8_t criteria = 0;
  std::array<std::uint8_t, prm::fte_match_param::kBytes> mask{};
  MatchWords mask_words{};                                             // what of it counts
  unsigned users = 0;                                                  // entries
  std::unordered_map<std::uint64_t, std::vector<FlowEntry*>> by_hash;  // of the masked value
};

struct FlowTable {
  std::uint8_t type = 0;
  std::array<std::uint8_t, prm::flow_table_context::kBytes> context{};
  unsigned users = 0;                          // groups, entries elsewhere that forward here, tables that miss to here
  std::map<std::uint32_t, FlowGroup*> groups;  // by first entry: lower entries win
  std::uint32_t miss_table() const;            // 0: none, what misses is dropped
};

struct FlowCounter {
  unsigned users = 0;
  std::uint64_t packets = 0, octets = 0;
};

class Steering {
 public:
  std::unordered_map<std::uint32_t, FlowTable> tables;
  std::unordered_map<std::uint32_t, FlowGroup> groups;
  std::map<std::pair<std::uint32_t, std::uint32_t>, FlowEntry> entries;  // by table and index
  std::map<std::uint8_t, std::uint32_t> roots;                           // by table type
  std::unordered_map<std::uint32_t, FlowCounter> counters;
  bool port_knows = false;  // that there is a root

  FlowTable* table(std::uint32_t id) {
    auto it = tables.find(id);
    return it == tables.end() ? nullptr : &it->second;
  }

  // A new entry, or what an existing one does (its value stays). The group must exist.
  void put_entry(std::uint32_t table, std::uint32_t index, std::uint32_t group, std::vector<std::uint8_t> context);
  void erase_entry(std::uint32_t table, std::uint32_t index);

  struct Delivery {
    std::uint32_t tirn = 0;
    std::uint32_t flow_tag = 0;
  };
  static constexpr unsigned kMaxDeliveries = 64;
  struct Deliveries {
    std::array<Delivery, kMaxDeliveries> to;
    unsigned n = 0;
  };
  // Walks a frame from the root table of the type and counts it in the counters that it meets. Nowhere to deliver: dropped.
  void walk(std::uint32_t type, const MatchWords& words, std::size_t octets, Deliveries& out);

  bool has_root(std::uint32_t type) const { return roots.contains(static_cast<std::uint8_t>(type)); }
  void clear();
  std::size_t size() const { return tables.size() + groups.size() + entries.size() + counters.size(); }

 private:
  FlowEntry* match(FlowTable& t, const MatchWords& words);
};

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/fs.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/log.h"

namespace uhca::kernel::mlx5 {
namespace {

using prm::Opcode;

constexpr std::uint32_t kNicReceive = 0;           // table_type (FS_FT_NIC_RX)
constexpr std::uint32_t kToTable = 1, kToTir = 2;  // destination_type
constexpr unsigned kLogEntries = 16;               // Linux: MLX5_FS_MAX_ENTRIES
constexpr unsigned kLargeGroups = 6;               // Linux: MLX5_FS_MAX_TYPES
constexpr std::uint32_t kEntries = 1u << kLogEntries, kGroupEntries = kEntries / (kLargeGroups + 1);
constexpr std::uint32_t kModifyAll = 1 | 2 | 4 | 8;  // action, tag, destinations, counters
constexpr unsigned kOuterBytes = 0x200 / 8;          // each part of a fte_match_param
constexpr std::uint8_t kParts = prm::fte_match_param::kBytes / kOuterBytes;

}  // namespace

std::uint8_t match_criteria_of(const FlowSpec::Param& criteria) {
  std::uint8_t enable = 0;
  for (unsigned part = 0; part < std::min<unsigned>(kParts, 7); ++part) {
    auto from = criteria.begin() + part * kOuterBytes;
    if (std::any_of(from, from + kOuterBytes, [](std::uint8_t b) { return b != 0; }))
      enable = static_cast<std::uint8_t>(enable | 1u << part);
  }
  return enable;
}

struct FlowTables::Entry {
  std::uint32_t index = 0;
  Group* group = nullptr;
  FlowSpec spec;
  std::vector<Rule*> rules;
};
struct FlowTables::Rule {
  unsigned priority = 0;
  Entry* entry = nullptr;
  FlowAct act;
};
struct FlowTables::Group {
  std::uint32_t id = 0, start = 0, end = 0;
  bool large = false;
  std::uint8_t enable = 0;
  FlowSpec::Param criteria{};
  std::set<std::uint32_t> used;
};
struct FlowTables::Table {
  std::uint32_t id = 0;
  unsigned large_groups = 0;
  std::vector<std::unique_ptr<Group>> groups;
  std::map<std::uint32_t, std::unique_ptr<Entry>> entries;
};

FlowTables::FlowTables(mlx5_core_dev& m) : m_(m) {}
FlowTables::~FlowTables() = default;

std::uint32_t FlowTables::next_of(unsigned priority) const {
  auto next = tables_.upper_bound(priority);
  return next == tables_.end() ? 0 : next->second->id;
}

Status FlowTables::set_root() {
  using In = prm::set_flow_table_root_in;
  std::uint8_t in[In::kBytes] = {}, out[prm::set_flow_table_root_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(Opcode::SET_FLOW_TABLE_ROOT));
  prm::set<In::table_type>(in, kNicReceive);
  if (tables_.empty()) {
    prm::set<In::op_mod>(in, 1);  // disconnect
  } else {
    prm::set<In::table_id>(in, tables_.begin()->second->id);
  }
  return m_.cmd().exec(in, sizeof in, out, sizeof out);
}

Status FlowTables::set_miss(const Table& table, std::uint32_t next) {
  using In = prm::modify_flow_table_in;
  std::uint8_t in[In::kBytes] = {}, out[prm::modify_flow_table_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(Opcode::MODIFY_FLOW_TABLE));
  prm::set<In::modify_field_select>(in, 1);  // the miss table
  prm::set<In::table_type>(in, kNicReceive);
  prm::set<In::table_id>(in, table.id);
  void* ctx = prm::at<In::flow_table_context>(static_cast<void*>(in));
  prm::set<prm::flow_table_context::table_miss_action>(ctx, next != 0 ? 1 : 0);
  prm::set<prm::flow_table_context::table_miss_id>(ctx, next);
  return m_.cmd().exec(in, sizeof in, out, sizeof out);
}

// What comes before `priority` goes on to the table `to` from now on: misses, entries that do not trap, the root.
Status FlowTables::relink(unsigned priority, std::uint32_t to) {
  auto at = tables_.lower_bound(priority);
  if (at == tables_.begin()) return set_root();
  auto& [before, table] = *std::prev(at);
  UHCA_CHECK(set_miss(*table, to));
  for (auto& [index, entry] : table->entries)
    if (std::any_of(entry->rules.begin(), entry->rules.end(), [](Rule* r) { return r->act.next; }))
      UHCA_CHECK(write_entry(before, *entry, false));
  return success();
}

Result<FlowTables::Table*> FlowTables::get_table(unsigned priority) {
  if (auto it = tables_.find(priority); it != tables_.end()) return it->second.get();
  using In = prm::create_flow_table_in;
  std::uint8_t in[In::kBytes] = {}, out[prm::create_flow_table_out::kBytes] = {};
  std::uint32_t next = next_of(priority);
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(Opcode::CREATE_FLOW_TABLE));
  prm::set<In::table_type>(in, kNicReceive);
  void* ctx = prm::at<In::flow_table_context>(static_cast<void*>(in));
  prm::set<prm::flow_table_context::level>(ctx, priority + 1);
  prm::set<prm::flow_table_context::log_size>(ctx, kLogEntries);
  prm::set<prm::flow_table_context::table_miss_action>(ctx, next != 0 ? 1 : 0);
  prm::set<prm::flow_table_context::table_miss_id>(ctx, next);
  UHCA_CHECK(m_.cmd().exec(in, sizeof in, out, sizeof out));
  auto table = std::make_unique<Table>();
  table->id = prm::get<prm::create_flow_table_out::table_id>(out);
  Table* t = tables_.emplace(priority, std::move(table)).first->second.get();
  if (Status s = relink(priority, t->id); !s.ok()) {
    put_table(priority);
    return s.error();
  }
  return t;
}

// Destroys the table when nothing is in it any more.
void FlowTables::put_table(unsigned priority) {
  auto it = tables_.find(priority);
  if (it == tables_.end() || !it->second->entries.empty()) return;
  std::unique_ptr<Table> table = std::move(it->second);
  tables_.erase(it);
  Status s = relink(priority, next_of(priority));
  using In = prm::destroy_flow_table_in;
  std::uint8_t in[In::kBytes] = {}, out[prm::destroy_flow_table_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(Opcode::DESTROY_FLOW_TABLE));
  prm::set<In::table_type>(in, kNicReceive);
  prm::set<In::table_id>(in, table->id);
  if (s.ok()) s = m_.cmd().exec(in, sizeof in, out, sizeof out);
  if (!s.ok()) log::error("flow table {:#x} could not be destroyed ({})", table->id, s.code());
}

Result<FlowTables::Group*> FlowTables::create_group(Table& table, const FlowSpec& spec) {
  bool large = table.large_groups < kLargeGroups;
  std::uint32_t size = large ? kGroupEntries : 1;
  std::uint32_t start = 0;
  for (auto& g : table.groups) {  // sorted by first entry
    if (g->start - start >= size) break;
    start = g->end + 1;
  }
  if (start + size > kEntries) return refuse(ENOSPC, "flow table {:#x} has no place for another kind of match", table.id);
  using In = prm::create_flow_group_in;
  std::vector<std::uint8_t> in(In::kBytes);
  std::uint8_t out[prm::create_flow_group_out::kBytes] = {};
  prm::set<In::opcode>(in.data(), static_cast<std::uint16_t>(Opcode::CREATE_FLOW_GROUP));
  prm::set<In::table_type>(in.data(), kNicReceive);
  prm::set<In::table_id>(in.data(), table.id);
  prm::set<In::start_flow_index>(in.data(), start);
  prm::set<In::end_flow_index>(in.data(), start + size - 1);
  prm::set<In::match_criteria_enable>(in.data(), spec.enable);
  std::memcpy(prm::at<In::match_criteria>(static_cast<void*>(in.data())), spec.criteria.data(), spec.criteria.size());
  UHCA_CHECK(m_.cmd().exec(in.data(), in.size(), out, sizeof out));
  auto g = std::make_unique<Group>();
  g->id = prm::get<prm::create_flow_group_out::group_id>(out);
  g->start = start;
  g->end = start + size - 1;
  g->large = large;
  g->enable = spec.enable;
  g->criteria = spec.criteria;
  table.large_groups += large;
  auto at = std::find_if(table.groups.begin(), table.groups.end(), [start](auto& other) { return other->start > start; });
  return table.groups.insert(at, std::move(g))->get();
}

Result<FlowTables::Group*> FlowTables::find_group(Table& table, const FlowSpec& spec) {
  for (auto& g : table.groups)
    if (g->enable == spec.enable && g->criteria == spec.criteria && g->used.size() <= g->end - g->start) return g.get();
  return create_group(table, spec);
}

void FlowTables::put_group(Table& table, Group* group) {
  if (!group->used.empty()) return;
  using In = prm::destroy_flow_group_in;
  std::uint8_t in[In::kBytes] = {}, out[prm::destroy_flow_group_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(Opcode::DESTROY_FLOW_GROUP));
  prm::set<In::table_type>(in, kNicReceive);
  prm::set<In::table_id>(in, table.id);
  prm::set<In::group_id>(in, group->id);
  if (Status s = m_.cmd().exec(in, sizeof in, out, sizeof out); !s.ok())
    log::error("flow group {:#x} could not be destroyed ({})", group->id, s.code());
  table.large_groups -= group->large;
  std::erase_if(table.groups, [group](auto& g) { return g.get() == group; });
}

Status FlowTables::write_entry(unsigned priority, const Entry& entry, bool fresh) {
  struct Destination {
    std::uint32_t type, id;
    bool operator==(const Destination&) const = default;
  };
  std::vector<Destination> dests;
  std::vector<std::uint32_t> counters;
  auto once = [](auto& list, auto v) {
    if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
  };
  bool drop = false;
  for (const Rule* r : entry.rules) {
    drop = drop || r->act.drop;
    if (r->act.tirn) once(dests, Destination{kToTir, *r->act.tirn});
    if (r->act.counter) once(counters, *r->act.counter);
    if (r->act.next && next_of(priority) != 0) once(dests, Destination{kToTable, next_of(priority)});
  }
  using In = prm::set_fte_in;
  std::vector<std::uint8_t> in(In::kBytes + (dests.size() + counters.size()) * prm::dest_format_struct::kBytes);
  std::uint8_t out[prm::set_fte_out::kBytes] = {};
  prm::set<In::opcode>(in.data(), static_cast<std::uint16_t>(Opcode::SET_FLOW_TABLE_ENTRY));
  prm::set<In::op_mod>(in.data(), fresh ? 0 : 1);
  if (!fresh) prm::set<In::modify_enable_mask>(in.data(), kModifyAll);
  prm::set<In::table_type>(in.data(), kNicReceive);
  prm::set<In::table_id>(in.data(), tables_.at(priority)->id);
  prm::set<In::flow_index>(in.data(), entry.index);
  // A program's own table may be on any level.
  prm::set<In::ignore_flow_level>(in.data(), 1);
  void* ctx = prm::at<In::flow_context>(static_cast<void*>(in.data()));
  using c = prm::flow_context;
  std::uint32_t action = drop ? kFlowDrop : dests.empty() ? kFlowAllow : kFlowForward;
  prm::set<c::group_id>(ctx, entry.group->id);
  prm::set<c::flow_tag>(ctx, entry.spec.tag);
  prm::set<c::action>(ctx, action | (counters.empty() ? 0 : kFlowCount));
  prm::set<c::destination_list_size>(ctx, dests.size());
  prm::set<c::flow_counter_list_size>(ctx, counters.size());
  std::memcpy(prm::at<c::match_value>(ctx), entry.spec.value.data(), entry.spec.value.size());
  std::uint8_t* list = in.data() + In::kBytes;
  for (const Destination& d : dests) {
    prm::set<prm::dest_format_struct::destination_type>(list, d.type);
    prm::set<prm::dest_format_struct::destination_id>(list, d.id);
    list += prm::dest_format_struct::kBytes;
  }
  for (std::uint32_t id : counters) {
    prm::set<prm::flow_counter_list::flow_counter_id>(list, id);
    list += prm::flow_counter_list::kBytes;
  }
  return m_.cmd().exec(in.data(), in.size(), out, sizeof out);
}

Status FlowTables::delete_entry(const Table& table, std::uint32_t index) {
  using In = prm::delete_fte_in;
  std::uint8_t in[In::kBytes] = {}, out[prm::delete_fte_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(Opcode::DELETE_FLOW_TABLE_ENTRY));
  prm::set<In::table_type>(in, kNicReceive);
  prm::set<In::table_id>(in, table.id);
  prm::set<In::flow_index>(in, index);
  return m_.cmd().exec(in, sizeof in, out, sizeof out);
}

Result<FlowTables::Rule*> FlowTables::add(unsigned priority, const FlowSpec& spec, const FlowAct& act) {
  std::lock_guard g(lock_);
  Table* t = UHCA_TRY(get_table(priority));
  auto rule = std::make_unique<Rule>();
  rule->priority = priority;
  rule->act = act;
  for (auto& [index, entry] : t->entries) {
    const Group& group = *entry->group;
    if (group.enable != spec.enable || group.criteria != spec.criteria || entry->spec.value != spec.value) continue;
    const Rule& other = *entry->rules.front();
    if (other.act.drop != act.drop) return refuse(EEXIST, "create_flow: another rule with this match does otherwise (drop)");
    if (spec.has_tag && entry->spec.tag != spec.tag)
      return refuse(EEXIST, "create_flow: another rule with this match has the tag {:#x}", entry->spec.tag);
    rule->entry = entry.get();
    entry->rules.push_back(rule.get());
    if (Status s = write_entry(priority, *entry, false); !s.ok()) {
      entry->rules.pop_back();
      return s.error();
    }
    return rule.release();
  }
  auto group = find_group(*t, spec);
  if (!group.ok()) {
    put_table(priority);
    return group.error();
  }
  auto entry = std::make_unique<Entry>();
  entry->group = *group;
  entry->spec = spec;
  entry->index = (*group)->start;
  for (std::uint32_t used : (*group)->used) {
    if (used != entry->index) break;
    ++entry->index;
  }
  entry->rules.push_back(rule.get());
  if (Status s = write_entry(priority, *entry, true); !s.ok()) {
    put_group(*t, *group);
    put_table(priority);
    return s.error();
  }
  (*group)->used.insert(entry->index);
  rule->entry = entry.get();
  t->entries.emplace(entry->index, std::move(entry));
  return rule.release();
}

Status FlowTables::remove(Rule* rule) {
  std::lock_guard g(lock_);
  unsigned priority = rule->priority;
  Table& t = *tables_.at(priority);
  Entry& entry = *rule->entry;
  if (entry.rules.size() > 1) {
    auto at = std::find(entry.rules.begin(), entry.rules.end(), rule);
    auto place = at - entry.rules.begin();
    entry.rules.erase(at);
    if (Status s = write_entry(priority, entry, false); !s.ok()) {
      entry.rules.insert(entry.rules.begin() + place, rule);
      return s;
    }
    delete rule;
    return success();
  }
  UHCA_CHECK(delete_entry(t, entry.index));
  Group* group = entry.group;
  group->used.erase(entry.index);
  t.entries.erase(entry.index);
  put_group(t, group);
  put_table(priority);
  delete rule;
  return success();
}

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
// Flow steering: tables, groups, entries, roots, counters. Linux counterpart: drivers/net/ethernet/mellanox/mlx5/core/fs_cmd.c.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "device/hca/cmd_handlers.h"

namespace uhca::hca::cmd {
namespace {

// SET_FLOW_TABLE_ENTRY op_mod and modify_enable_mask (MLX5_SET_FTE_MODIFY_ENABLE_MASK_*).
enum SetFte : std::uint16_t { kNewEntry = 0, kModifyEntry = 1 };
enum ModifyMask : std::uint32_t { kModAction = 1, kModTag = 2, kModDestinations = 4, kModCounters = 8 };
// MODIFY_FLOW_TABLE modify_field_select.
constexpr std::uint32_t kModMissTable = 1;

Steering& steering(Command& c) {
  return c.objects().steering;
}
FlowTable* find_table(Command& c, std::uint32_t id) {
  return steering(c).table(id);
}

Status check_type(Command& c, std::uint32_t type) {
  return type == kFlowNicReceive ? Status::OK : c.refuse(Status::BAD_PARAM, "flow table type {:#x} is not offered", type);
}

// Without a root, frames that are not RoCE's have nowhere to go.
void tell_port(Command& c) {
  bool wanted = steering(c).has_root(kFlowNicReceive);
  if (wanted == steering(c).port_knows) return;
  steering(c).port_knows = wanted;
  c.hca.port().want_ethernet(wanted);
}

Status other_vport(Command& c) {
  // other_vport and vport_number lie at the same place in all of them.
  if (!c.get<prm::create_flow_table_in::other_vport>()) return Status::OK;
  return c.refuse(Status::BAD_PARAM, "no vport {}", c.get<prm::create_flow_table_in::vport_number>());
}

// Users of whatever an entry points at: `d` more or fewer.
void hold_targets(Command& c, const std::vector<std::uint8_t>& ctx, int d) {
  auto add = [d](unsigned& users) { users = static_cast<unsigned>(static_cast<int>(users) + d); };
  std::uint32_t dests = prm::get<prm::flow_context::destination_list_size>(ctx.data());
  std::uint32_t counters = prm::get<prm::flow_context::flow_counter_list_size>(ctx.data());
  const std::uint8_t* p = ctx.data() + prm::flow_context::kBytes;
  for (std::uint32_t i = 0; i < dests + counters; ++i, p += prm::dest_format_struct::kBytes) {
    if (i >= dests) {
      if (auto it = steering(c).counters.find(prm::get<prm::flow_counter_list::flow_counter_id>(p)); it != steering(c).counters.end())
        add(it->second.users);
      continue;
    }
    std::uint32_t id = prm::get<prm::dest_format_struct::destination_id>(p);
    if (prm::get<prm::dest_format_struct::destination_type>(p) == kFlowToTable) {
      if (FlowTable* t = find_table(c, id)) add(t->users);
    } else if (auto it = c.objects().tirs.find(id); it != c.objects().tirs.end()) {
      add(it->second.users);
    }
  }
}

// Checks action and destination lists of the entry in the input and copies the context.
Status take_entry(Command& c, std::uint32_t table, std::vector<std::uint8_t>& out) {
  const std::uint8_t* ctx = c.at<prm::set_fte_in::flow_context>();
  std::uint32_t action = prm::get<prm::flow_context::action>(ctx);
  std::uint32_t dests = prm::get<prm::flow_context::destination_list_size>(ctx);
  std::uint32_t counters = prm::get<prm::flow_context::flow_counter_list_size>(ctx);
  if (action & ~(kFlowAllow | kFlowDrop | kFlowForward | kFlowCount))
    return c.refuse(Status::BAD_PARAM, "action {:#x} is not offered", action);
  if (prm::get<prm::flow_context::extended_destination>(ctx)) return c.refuse(Status::BAD_PARAM, "extended destinations");
  if (!(action & kFlowForward)) dests = 0;
  if (!(action & kFlowCount)) counters = 0;
  if ((action & kFlowForward) && dests == 0) return c.refuse(Status::BAD_PARAM, "forward to nowhere");
  if (dests > 1u << 6 || counters > 1) return c.refuse(Status::BAD_PARAM, "{} destinations, {} counters", dests, counters);
  auto list = c.tail(prm::set_fte_in::kBytes);
  std::size_t bytes = std::size_t{dests + counters} * prm::dest_format_struct::kBytes;
  if (list.size() < bytes) return c.refuse(Status::BAD_INP_LEN, "{} destinations announced, {} bytes in the list", dests, list.size());
  for (std::uint32_t i = 0; i < dests + counters; ++i) {
    const std::uint8_t* p = list.data() + i * prm::dest_format_struct::kBytes;
    if (i >= dests) {
      std::uint32_t id = prm::get<prm::flow_counter_list::flow_counter_id>(p);
      if (!steering(c).counters.contains(id)) return c.no_such("flow counter", id);
      if (Status s = c.may_use(Kind::kFlowCounter, id); s != Status::OK) return s;
      continue;
    }
    std::uint32_t type = prm::get<prm::dest_format_struct::destination_type>(p);
    std::uint32_t id = prm::get<prm::dest_format_struct::destination_id>(p);
    if (type == kFlowToTable) {
      FlowTable* to = find_table(c, id);
      if (to == nullptr) return c.no_such("flow table", id);
      if (Status s = c.may_use(Kind::kFlowTable, id); s != Status::OK) return s;
      // Levels grow along a chain, unless the driver takes it upon itself that packets do not go round (walk() ends all the same).
      if (!c.get<prm::set_fte_in::ignore_flow_level>() &&
          prm::get<prm::flow_table_context::level>(to->context.data()) <=
              prm::get<prm::flow_table_context::level>(find_table(c, table)->context.data()))
        return c.refuse(Status::BAD_PARAM, "flow table {:#x} is not on a higher level than {:#x}", id, table);
    } else if (type == kFlowToTir) {
      if (!c.objects().tirs.contains(id)) return c.no_such("TIR", id);
      if (Status s = c.may_use(Kind::kTir, id); s != Status::OK) return s;
    } else {
      return c.refuse(Status::BAD_PARAM, "destination type {:#x} is not offered", type);
    }
  }
  out.assign(ctx, ctx + prm::flow_context::kBytes);
  prm::set<prm::flow_context::destination_list_size>(out.data(), dests);
  prm::set<prm::flow_context::flow_counter_list_size>(out.data(), counters);
  out.insert(out.end(), list.begin(), list.begin() + static_cast<std::ptrdiff_t>(bytes));
  return Status::OK;
}

}  // namespace

Status create_flow_table(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  std::uint32_t type = c.get<prm::create_flow_table_in::table_type>();
  if (Status s = check_type(c, type); s != Status::OK) return s;
  const std::uint8_t* ctx = c.at<prm::create_flow_table_in::flow_table_context>();
  FlowTable t;
  t.type = static_cast<std::uint8_t>(type);
  std::memcpy(t.context.data(), ctx, t.context.size());
  unsigned log_size = prm::get<prm::flow_table_context::log_size>(ctx);
  if (log_size > 22) return c.refuse(Status::BAD_PARAM, "2^{} entries", log_size);
  if (prm::get<prm::flow_table_context::sw_owner>(ctx)) return c.refuse(Status::BAD_PARAM, "software-owned tables are not offered");
  if (prm::get<prm::flow_table_context::reformat_en>(ctx) || prm::get<prm::flow_table_context::decap_en>(ctx))
    return c.refuse(Status::BAD_PARAM, "encapsulation is not offered");
  if (prm::get<prm::flow_table_context::table_miss_action>(ctx) > 1)
    return c.refuse(Status::BAD_PARAM, "miss action {}", prm::get<prm::flow_table_context::table_miss_action>(ctx));
  std::uint32_t miss = t.miss_table();
  if (miss != 0 && find_table(c, miss) == nullptr) return c.no_such("flow table", miss);
  if (Status s = c.may_use(Kind::kFlowTable, miss); s != Status::OK) return s;
  auto n = c.st.table_ids.take();
  if (!n) return c.exhausted("flow table");
  if (miss != 0) ++find_table(c, miss)->users;
  steering(c).tables.emplace(*n, std::move(t));
  c.set<prm::create_flow_table_out::table_id>(*n);
  return Status::OK;
}

Status modify_flow_table(Command& c) {
  std::uint32_t id = c.get<prm::modify_flow_table_in::table_id>();
  FlowTable* t = find_table(c, id);
  if (t == nullptr) return c.no_such("flow table", id);
  std::uint32_t select = c.get<prm::modify_flow_table_in::modify_field_select>();
  if (select != kModMissTable) return c.refuse(Status::BAD_PARAM, "field select {:#x}", select);
  const std::uint8_t* ctx = c.at<prm::modify_flow_table_in::flow_table_context>();
  FlowTable changed;
  changed.context = t->context;
  prm::set<prm::flow_table_context::table_miss_action>(changed.context.data(), prm::get<prm::flow_table_context::table_miss_action>(ctx));
  prm::set<prm::flow_table_context::table_miss_id>(changed.context.data(), prm::get<prm::flow_table_context::table_miss_id>(ctx));
  std::uint32_t miss = changed.miss_table(), before = t->miss_table();
  if (miss == id) return c.refuse(Status::BAD_PARAM, "flow table {:#x} misses to itself", id);
  if (miss != 0 && find_table(c, miss) == nullptr) return c.no_such("flow table", miss);
  if (Status s = c.may_use(Kind::kFlowTable, miss); s != Status::OK) return s;
  if (miss != 0) ++find_table(c, miss)->users;
  if (before != 0) --find_table(c, before)->users;
  t->context = changed.context;
  return Status::OK;
}

Status query_flow_table(Command& c) {
  std::uint32_t id = c.get<prm::query_flow_table_in::table_id>();
  FlowTable* t = find_table(c, id);
  if (t == nullptr) return c.no_such("flow table", id);
  std::memcpy(c.out_at<prm::query_flow_table_out::flow_table_context>(), t->context.data(), t->context.size());
  return Status::OK;
}

// The root table may go: then there is no root, and packets meet no steering.
Status destroy_flow_table(Command& c) {
  std::uint32_t id = c.get<prm::destroy_flow_table_in::table_id>();
  FlowTable* t = find_table(c, id);
  if (t == nullptr) return c.no_such("flow table", id);
  if (t->users != 0) return c.in_use("flow table", id, t->users);
  if (std::uint32_t miss = t->miss_table(); miss != 0) --find_table(c, miss)->users;
  std::erase_if(steering(c).roots, [id](auto& r) { return r.second == id; });
  tell_port(c);
  steering(c).tables.erase(id);
  c.st.table_ids.give_back(id);
  return Status::OK;
}

Status set_flow_table_root(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  std::uint32_t type = c.get<prm::set_flow_table_root_in::table_type>(), id = c.get<prm::set_flow_table_root_in::table_id>();
  if (Status s = check_type(c, type); s != Status::OK) return s;
  if (c.op_mod() == 1) {  // disconnect
    steering(c).roots.erase(static_cast<std::uint8_t>(type));
    tell_port(c);
    return Status::OK;
  }
  FlowTable* t = find_table(c, id);
  if (t == nullptr || t->type != type) return c.no_such("flow table", id);
  if (Status s = c.may_use(Kind::kFlowTable, id); s != Status::OK) return s;
  steering(c).roots[static_cast<std::uint8_t>(type)] = id;
  tell_port(c);
  return Status::OK;
}

Status create_flow_group(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  FlowGroup g;
  g.table = c.get<prm::create_flow_group_in::table_id>();
  g.start = c.get<prm::create_flow_group_in::start_flow_index>();
  g.end = c.get<prm::create_flow_group_in::end_flow_index>();
  g.criteria = static_cast<std::uint8_t>(c.get<prm::create_flow_group_in::match_criteria_enable>());
  FlowTable* t = find_table(c, g.table);
  if (t == nullptr) return c.no_such("flow table", g.table);
  if (Status s = c.may_use(Kind::kFlowTable, g.table); s != Status::OK) return s;
  std::uint32_t size = 1u << prm::get<prm::flow_table_context::log_size>(t->context.data());
  if (g.start > g.end || g.end >= size) return c.refuse(Status::BAD_PARAM, "entries {}..{} of {}", g.start, g.end, size);
  auto behind = t->groups.upper_bound(g.end);  // groups of a table do not overlap, so only the last one that starts before can
  if (behind != t->groups.begin() && std::prev(behind)->second->end >= g.start)
    return c.refuse(Status::BAD_PARAM, "entries {}..{} overlap {}..{} of another group", g.start, g.end, std::prev(behind)->first,
                    std::prev(behind)->second->end);
  const std::uint8_t* mask = c.at<prm::create_flow_group_in::match_criteria>();
  if (asks_for_more(mask, g.criteria))
    return c.refuse(Status::BAD_PARAM, "match criteria {:#x} with fields that are not parsed", g.criteria);
  auto n = c.st.group_ids.take();
  if (!n) return c.exhausted("flow group");
  std::memcpy(g.mask.data(), mask, g.mask.size());
  g.mask_words = enabled_words(mask, g.criteria);
  ++t->users;
  std::uint32_t start = g.start;
  auto it = steering(c).groups.emplace(*n, std::move(g)).first;
  t->groups.emplace(start, &it->second);
  c.set<prm::create_flow_group_out::group_id>(*n);
  return Status::OK;
}

Status query_flow_group(Command& c) {
  std::uint32_t id = c.get<prm::query_flow_group_in::group_id>();
  auto it = steering(c).groups.find(id);
  if (it == steering(c).groups.end() || it->second.table != c.get<prm::query_flow_group_in::table_id>()) return c.no_such("flow group", id);
  c.set<prm::query_flow_group_out::start_flow_index>(it->second.start);
  c.set<prm::query_flow_group_out::end_flow_index>(it->second.end);
  c.set<prm::query_flow_group_out::match_criteria_enable>(it->second.criteria);
  std::memcpy(c.out_at<prm::query_flow_group_out::match_criteria>(), it->second.mask.data(), it->second.mask.size());
  return Status::OK;
}

Status destroy_flow_group(Command& c) {
  std::uint32_t id = c.get<prm::destroy_flow_group_in::group_id>();
  auto it = steering(c).groups.find(id);
  if (it == steering(c).groups.end() || it->second.table != c.get<prm::destroy_flow_group_in::table_id>())
    return c.no_such("flow group", id);
  if (it->second.users != 0) return c.in_use("flow group", id, it->second.users);
  FlowTable* t = find_table(c, it->second.table);
  --t->users;
  t->groups.erase(it->second.start);
  steering(c).groups.erase(it);
  c.st.group_ids.give_back(id);
  return Status::OK;
}

Status set_fte(Command& c) {
  if (Status s = other_vport(c); s != Status::OK) return s;
  std::uint32_t table = c.get<prm::set_fte_in::table_id>(), index = c.get<prm::set_fte_in::flow_index>();
  if (find_table(c, table) == nullptr) return c.no_such("flow table", table);
  std::vector<std::uint8_t> ctx;
  if (Status s = take_entry(c, table, ctx); s != Status::OK) return s;
  auto existing = steering(c).entries.find({table, index});
  if (c.op_mod() == kModifyEntry) {
    if (existing == steering(c).entries.end()) return c.refuse(Status::BAD_RES, "flow table {:#x} has no entry {}", table, index);
    std::uint32_t mask = c.get<prm::set_fte_in::modify_enable_mask>();
    if (mask & ~(kModAction | kModTag | kModDestinations | kModCounters)) return c.refuse(Status::BAD_PARAM, "modify mask {:#x}", mask);
    // What an entry matches stays; what it does is replaced as a whole, as drivers always send it.
    std::uint8_t* match = static_cast<std::uint8_t*>(prm::at<prm::flow_context::match_value>(static_cast<void*>(ctx.data())));
    std::memcpy(match, existing->second.context.data() + prm::flow_context::match_value.offset / 8, prm::fte_match_param::kBytes);
    hold_targets(c, ctx, 1);
    hold_targets(c, existing->second.context, -1);
    steering(c).put_entry(table, index, existing->second.group, std::move(ctx));
    return Status::OK;
  }
  if (c.op_mod() != kNewEntry) return c.refuse(Status::BAD_PARAM, "op_mod {}", c.op_mod());
  std::uint32_t group = prm::get<prm::flow_context::group_id>(ctx.data());
  auto g = steering(c).groups.find(group);
  if (g == steering(c).groups.end() || g->second.table != table) return c.no_such("flow group", group);
  if (index < g->second.start || index > g->second.end)
    return c.refuse(Status::BAD_PARAM, "entry {} is outside of group {:#x}", index, group);
  if (existing != steering(c).entries.end()) return c.refuse(Status::BAD_RES_STATE, "flow table {:#x} has entry {}", table, index);
  hold_targets(c, ctx, 1);
  steering(c).put_entry(table, index, group, std::move(ctx));
  return Status::OK;
}

Status query_fte(Command& c) {
  std::uint32_t table = c.get<prm::query_fte_in::table_id>(), index = c.get<prm::query_fte_in::flow_index>();
  auto it = steering(c).entries.find({table, index});
  if (it == steering(c).entries.end()) return c.refuse(Status::BAD_RES, "flow table {:#x} has no entry {}", table, index);
  std::size_t room = c.out_bytes.size() - prm::query_fte_out::flow_context.offset / 8;
  std::memcpy(c.out_at<prm::query_fte_out::flow_context>(), it->second.context.data(), std::min(room, it->second.context.size()));
  return Status::OK;
}

Status delete_fte(Command& c) {
  std::uint32_t table = c.get<prm::delete_fte_in::table_id>(), index = c.get<prm::delete_fte_in::flow_index>();
  auto it = steering(c).entries.find({table, index});
  if (it == steering(c).entries.end()) return c.refuse(Status::BAD_RES, "flow table {:#x} has no entry {}", table, index);
  hold_targets(c, it->second.context, -1);
  steering(c).erase_entry(table, index);
  return Status::OK;
}

Status alloc_flow_counter(Command& c) {
  if (c.get<prm::alloc_flow_counter_in::flow_counter_bulk>() || c.get<prm::alloc_flow_counter_in::flow_counter_bulk_log_size>())
    return c.refuse(Status::BAD_PARAM, "counters in bulk are not offered");
  auto n = c.st.flow_counter_ids.take();
  if (!n) return c.exhausted("flow counter");
  steering(c).counters[*n] = {};
  c.set<prm::alloc_flow_counter_out::flow_counter_id>(*n);
  return Status::OK;
}

Status dealloc_flow_counter(Command& c) {
  std::uint32_t id = c.get<prm::dealloc_flow_counter_in::flow_counter_id>();
  auto it = steering(c).counters.find(id);
  if (it == steering(c).counters.end()) return c.no_such("flow counter", id);
  if (it->second.users != 0) return c.in_use("flow counter", id, it->second.users);
  steering(c).counters.erase(it);
  c.st.flow_counter_ids.give_back(id);
  return Status::OK;
}

Status query_flow_counter(Command& c) {
  std::uint32_t id = c.get<prm::query_flow_counter_in::flow_counter_id>();
  auto it = steering(c).counters.find(id);
  if (it == steering(c).counters.end()) return c.no_such("flow counter", id);
  if (c.out_bytes.size() < prm::query_flow_counter_out::kBytes + prm::traffic_counter::kBytes)
    return c.refuse(Status::BAD_OUTP_LEN, "room for {} bytes of output", c.out_bytes.size());
  if (c.get<prm::query_flow_counter_in::num_of_counters>() > 1) return c.refuse(Status::BAD_PARAM, "counters in bulk are not offered");
  void* at = c.out() + prm::query_flow_counter_out::kBytes;
  prm::set<prm::traffic_counter::packets>(at, it->second.packets);
  prm::set<prm::traffic_counter::octets>(at, it->second.octets);
  if (c.get<prm::query_flow_counter_in::clear>()) it->second.packets = it->second.octets = 0;
  return Status::OK;
}

}  // namespace uhca::hca::cmd

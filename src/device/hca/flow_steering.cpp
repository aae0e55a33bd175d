// SPDX-License-Identifier: MIT
#include "device/hca/flow_steering.h"

#include <algorithm>

namespace uhca::hca {
namespace {

// Tables that one frame may visit. Entries with many destinations multiply, and misses and entries that ignore levels may be set up in a
// ring.
constexpr unsigned kMaxVisits = 256;

MatchWords masked(const MatchWords& v, const MatchWords& mask) {
  MatchWords m;
  for (std::size_t i = 0; i < m.size(); ++i) m[i] = v[i] & mask[i];
  return m;
}

std::uint64_t hash(const MatchWords& v) {
  std::uint64_t h = 0;
  for (std::uint64_t w : v) {
    h = (h ^ w) * 0x9e3779b97f4a7c15;
    h ^= h >> 29;
  }
  return h;
}

}  // namespace

std::uint32_t FlowTable::miss_table() const {
  bool identified = prm::get<prm::flow_table_context::table_miss_action>(context.data()) == 1;
  return identified ? prm::get<prm::flow_table_context::table_miss_id>(context.data()) : 0;
}

void Steering::put_entry(std::uint32_t table, std::uint32_t index, std::uint32_t group, std::vector<std::uint8_t> context) {
  auto [it, fresh] = entries.try_emplace({table, index});
  FlowEntry& e = it->second;
  e.context = std::move(context);
  if (!fresh) return;
  FlowGroup& g = groups.at(group);
  e.group = group;
  e.index = index;
  const void* value = prm::at<prm::flow_context::match_value>(static_cast<const void*>(e.context.data()));
  e.value = masked(enabled_words(value, g.criteria), g.mask_words);
  g.by_hash[hash(e.value)].push_back(&e);
  ++g.users;
}

void Steering::erase_entry(std::uint32_t table, std::uint32_t index) {
  auto it = entries.find({table, index});
  if (it == entries.end()) return;
  FlowGroup& g = groups.at(it->second.group);
  auto bucket = g.by_hash.find(hash(it->second.value));
  std::erase(bucket->second, &it->second);
  if (bucket->second.empty()) g.by_hash.erase(bucket);
  --g.users;
  entries.erase(it);
}

FlowEntry* Steering::match(FlowTable& t, const MatchWords& words) {
  for (auto& [start, g] : t.groups) {
    MatchWords value = masked(words, g->mask_words);
    auto bucket = g->by_hash.find(hash(value));
    if (bucket == g->by_hash.end()) continue;
    FlowEntry* best = nullptr;
    for (FlowEntry* e : bucket->second)
      if (e->value == value && (best == nullptr || e->index < best->index)) best = e;
    if (best != nullptr) return best;
  }
  return nullptr;
}

void Steering::walk(std::uint32_t type, const MatchWords& words, std::size_t octets, Deliveries& out) {
  out.n = 0;
  auto root = roots.find(static_cast<std::uint8_t>(type));
  if (root == roots.end()) return;
  // Tables that are still to be visited, and the tag that the frame carries there.
  struct Visit {
    std::uint32_t table, tag;
  };
  std::array<Visit, kMaxVisits> visits;
  unsigned nvisits = 0;
  visits[nvisits++] = {root->second, 0};
  for (unsigned i = 0; i < nvisits; ++i) {
    FlowTable* t = table(visits[i].table);
    if (t == nullptr) continue;
    FlowEntry* e = match(*t, words);
    if (e == nullptr) {
      std::uint32_t miss = t->miss_table();
      if (miss != 0 && nvisits < kMaxVisits) visits[nvisits++] = {miss, visits[i].tag};
      continue;
    }
    const std::uint8_t* c = e->context.data();
    std::uint32_t action = prm::get<prm::flow_context::action>(c), tag = prm::get<prm::flow_context::flow_tag>(c);
    std::uint32_t dests = prm::get<prm::flow_context::destination_list_size>(c);
    if (tag == 0) tag = visits[i].tag;
    const std::uint8_t* list = c + prm::flow_context::kBytes;
    if (action & kFlowCount) {
      for (std::uint32_t k = 0; k < prm::get<prm::flow_context::flow_counter_list_size>(c); ++k) {
        const std::uint8_t* at = list + (dests + k) * prm::flow_counter_list::kBytes;
        if (auto n = counters.find(prm::get<prm::flow_counter_list::flow_counter_id>(at)); n != counters.end()) {
          ++n->second.packets;
          n->second.octets += octets;
        }
      }
    }
    if (action & kFlowDrop) continue;
    for (std::uint32_t k = 0; k < dests; ++k) {
      const std::uint8_t* at = list + k * prm::dest_format_struct::kBytes;
      std::uint32_t id = prm::get<prm::dest_format_struct::destination_id>(at);
      if (prm::get<prm::dest_format_struct::destination_type>(at) == kFlowToTable) {
        if (nvisits < kMaxVisits) visits[nvisits++] = {id, tag};
      } else if (out.n < kMaxDeliveries) {
        out.to[out.n++] = {id, tag};
      }
    }
  }
}

void Steering::clear() {
  tables.clear();
  groups.clear();
  entries.clear();
  roots.clear();
  counters.clear();
  port_knows = false;
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
// What the command interface knows beyond the objects that the engine uses (objects.h): protection domains, UARs, numbers, capabilities,
// pages. Guarded by the lane's lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "device/hca/caps.h"
#include "device/hca/counters.h"
#include "device/hca/hca.h"
#include "device/hca/number_pool.h"
#include "device/hca/ownership.h"
#include "device/hca/qos.h"
#include "prm/cmd_object.h"
#include "prm/cmd_vport.h"
#include "prm/queue_context.h"

namespace uhca::hca {

// Objects that are nothing but a number with users: PD, UAR, transport domain, XRC domain.
class NumberedObjects {
 public:
  NumberedObjects(std::uint32_t first, std::uint32_t count) : pool_(first, count) {}
  std::optional<std::uint32_t> create() {
    auto n = pool_.take();
    if (n) objects_[*n] = {};
    return n;
  }
  bool exists(std::uint32_t n) const {
    auto it = objects_.find(n);
    return it != objects_.end() && !it->second.retired;
  }
  unsigned users(std::uint32_t n) const { return objects_.at(n).users; }
  // Of existing numbers only; others (0: "none" in a context) are ignored.
  void hold(std::uint32_t n) {
    if (auto it = objects_.find(n); it != objects_.end()) ++it->second.users;
  }
  void drop(std::uint32_t n) {
    auto it = objects_.find(n);
    if (it != objects_.end() && --it->second.users == 0 && it->second.retired) destroy(n);
  }
  void destroy(std::uint32_t n) {
    objects_.erase(n);
    pool_.give_back(n);
  }
  // Nobody else may use it; its number is free when those who do are gone.
  void retire(std::uint32_t n) {
    objects_.at(n).retired = true;
    if (users(n) == 0) destroy(n);
  }
  std::size_t size() const { return objects_.size(); }
  void reset() {
    objects_.clear();
    pool_.reset();
  }

 private:
  struct State {
    unsigned users = 0;
    bool retired = false;
  };
  NumberPool pool_;
  std::unordered_map<std::uint32_t, State> objects_;
};

// Memory that a program registered, for its queues (CREATE_UMEM).
struct Umem {
  std::uint16_t uid = 0;  // the only one whose commands may name it: nobody vouches for a user's to the driver
  QueueBuffer buf;
  unsigned users = 0;  // objects in it
};

struct Control {
  Control(const HcaConfig& config, Objects& objects);
  // As after power-on. QPN blocks stay leased.
  void reset();
  // All objects gone (TEARDOWN_HCA, reset); pages and capabilities stay.
  void forget_objects();
  std::size_t live() const;

  const HcaConfig& config;
  VportState& vport;  // of the engine's objects, like the port
  PortState& port;
  bool enabled = false;
  bool initialized = false;
  std::uint16_t issi = 0;
  Caps caps;
  std::vector<pci::DmaAddr> pages;  // in the order given
  std::unordered_set<pci::DmaAddr> page_set;
  std::string driver_version;

  NumberedObjects pds{0x10, (1u << 24) - 0x10};
  NumberedObjects uars{Hca::kFirstUar, static_cast<std::uint32_t>(Hca::kMemicStart / 4096) - Hca::kFirstUar};
  NumberedObjects transport_domains{1, 1u << 16};
  NumberedObjects xrcds{0x10, (1u << 24) - 0x10};

  Ownership ownership;
  Qos qos;
  std::unordered_map<std::uint32_t, Umem> umems;
  NumberPool umem_ids{1, 1u << kLogMaxUmem};

  NumberPool counter_ids{1, 255};
  NumberPool mkey_indexes{0x100, (1u << 24) - 0x100};
  NumberPool eqns{1, 128};
  NumberPool cqns{0x40, (1u << 24) - 0x40};
  NumberPool srqns{0x10, 1u << 16};
  NumberPool raw_queue_numbers{0x10, kQpnBlock - 0x10};  // below the first leased block, so disjoint from every QPN
  NumberPool tisns{0x10, 1u << 10}, tirns{0x10, 1u << 12}, rqtns{0x10, 1u << 12};
  NumberPool table_ids{1, 1u << 16}, group_ids{0x10, 1u << 20}, flow_counter_ids{1, 1u << 20};

  // QPNs: from leased blocks, freed ones reused last.
  std::optional<std::uint32_t> take_qpn(QpnLease& lease);
  std::vector<std::uint32_t> qpn_blocks;
  std::uint32_t next_qpn = 0, end_qpn = 0;
  std::size_t next_block = 0;  // of qpn_blocks, not started since the last reset
  std::deque<std::uint32_t> freed_qpns;

  std::map<std::uint32_t, std::uint64_t> l2_table;  // MAC by index
  Counters port_counters_base;                      // when the port's counters were cleared: queries answer the difference
};

}  // namespace uhca::hca

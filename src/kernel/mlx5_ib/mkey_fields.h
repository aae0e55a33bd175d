// SPDX-License-Identifier: MIT
// What every key of an MR says of access, protection domain and start. Linux: set_mkc_access_pd_addr_fields (hw/mlx5/mr.c).
#pragma once

#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {

// The uid under which a context's objects are made; 0: the driver's.
inline std::uint16_t uid_of(ib_ucontext* c) {
  return c != nullptr ? to_mucontext(*c).devx_uid : std::uint16_t{0};
}

inline void set_mkc_access_pd_addr_fields(const mlx5_core_dev& m, void* mkc, std::uint32_t access, std::uint64_t start_addr, ib_pd& pd) {
  prm::set<prm::mkc::lr>(mkc, 1);
  prm::set<prm::mkc::lw>(mkc, access & kAccessLocalWrite ? 1 : 0);
  prm::set<prm::mkc::rr>(mkc, access & kAccessRemoteRead ? 1 : 0);
  prm::set<prm::mkc::rw>(mkc, access & kAccessRemoteWrite ? 1 : 0);
  prm::set<prm::mkc::a>(mkc, access & kAccessRemoteAtomic ? 1 : 0);
  if (access & kAccessRelaxedOrdering) {
    if (m.cap_gen<prm::cmd_hca_cap::relaxed_ordering_write>()) prm::set<prm::mkc::relaxed_ordering_write>(mkc, 1);
    if (m.cap_gen<prm::cmd_hca_cap::relaxed_ordering_read>()) prm::set<prm::mkc::relaxed_ordering_read>(mkc, 1);
  }
  prm::set<prm::mkc::qpn>(mkc, 0xffffff);
  prm::set<prm::mkc::pd>(mkc, to_mpd(pd).pdn);
  prm::set<prm::mkc::start_addr>(mkc, start_addr);
}

}  // namespace uhca::kernel::mlx5

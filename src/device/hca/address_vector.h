// SPDX-License-Identifier: MIT
// The address vector in the WQEs of datagrams and DC initiators (rdma-core mlx5dv.h: mlx5_wqe_av).
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

inline const std::uint8_t* av_of(const SendWqe& w) {
  return w.raw.data() + w.av_at;
}

// Addresses, traffic class, ports of packets to where the WQE's address vector says. False: it names a source address that is not set, or
// has no global address (refused).
bool resolve_path(const Lane& lane, const Qp& qp, const SendWqe& w, wire::NetHeader& path);

// Whether this port has that address.
bool own_address(const Lane& lane, const wire::Gid& gid);

}  // namespace uhca::hca

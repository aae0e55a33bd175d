// SPDX-License-Identifier: MIT
// Conversions between the structures of the ABI and the core's.
#pragma once

#include <rdma/ib_user_sa.h>
#include <rdma/rdma_user_cm.h>

#include "kernel/cm/rdma_cm.h"

namespace uhca::kernel::cm {

void copy_ah_attr(::ib_uverbs_ah_attr& to, const rdma_ah_attr& from);
void copy_qp_attr(::ib_uverbs_qp_attr& to, const ib_qp_attr& from, std::uint32_t mask);
void copy_path(::ib_user_path_rec& to, const PathRec& from);
// The 64 bytes of a path record as a subnet administrator sends it (IBTA vol. 1, 15.2.5.16).
void pack_path(void* to, const PathRec& from);
PathRec unpack_path(const void* from);

// An address in a structure of the ABI; an unknown family, or one that does not fit into `room` bytes, has size 0.
Sockaddr sockaddr_of(const void* p, std::size_t room);

}  // namespace uhca::kernel::cm

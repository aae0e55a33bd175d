// SPDX-License-Identifier: MIT
// Objects of DEVX: commands that the program builds itself, and what they made.
#pragma once

#include <vector>

#include "user/mlx5/objects.h"

// Opaque in <infiniband/mlx5dv.h>.
struct mlx5dv_devx_obj {
  ibv_context* context = nullptr;
  std::uint32_t handle = 0;
  std::uint32_t type = 0;       // general objects: their kind
  std::uint32_t object_id = 0;  // what the device called it
  std::uint8_t log_range = 0;   // general objects made in bulk
};

namespace uhca::mlx5 {

bool is_ours(const ibv_device* device);
inline bool ours(const ibv_context* c) {
  return c && is_ours(c->device);
}

// The errno of a command that was executed: where the firmware refused it (EREMOTEIO), what its status means. `out`: the answer.
int command_error(int err, const void* out);
// The device's present capabilities of one group (QUERY_HCA_CAP, the group's number); all zero where it does not tell.
std::vector<std::uint8_t> current_caps(ibv_context* context, unsigned group);
// What an exported object or umem takes, bytes.
std::uint32_t devx_obj_attrs_size();
std::uint32_t devx_umem_attrs_size();

}  // namespace uhca::mlx5

// SPDX-License-Identifier: MIT
// Packet pacing: the table of rates in the device. Linux: mlx5_core/rl.c.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "prm/cmd_object.h"

namespace uhca::kernel::mlx5 {

class mlx5_core_dev;

class RateTable {
 public:
  explicit RateTable(mlx5_core_dev& m) : m_(m) {}
  using Context = std::array<std::uint8_t, prm::set_pp_rate_limit_context::kBytes>;  // as the device takes it

  // The index under which queues may name this rate. Equal rates of one `uid` share an entry unless `dedicated`. EINVAL: out of the
  // device's range; ENOSPC: the table is full.
  Result<std::uint16_t> add(const Context& rate, std::uint16_t uid, bool dedicated);
  void remove(std::uint16_t index);

 private:
  struct Entry {
    Context rate{};
    std::uint16_t uid = 0;
    bool dedicated = false;
    unsigned users = 0;
  };
  Status set(std::uint16_t index, const Context& rate, std::uint16_t uid);

  mlx5_core_dev& m_;
  std::mutex lock_;
  std::vector<Entry> entries_;  // [i] is index i + 1
};

}  // namespace uhca::kernel::mlx5

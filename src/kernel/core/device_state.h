// SPDX-License-Identifier: MIT
// What the core keeps beside each registered device.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {

struct DeviceState {
  ib_device* dev = nullptr;

  std::mutex gid_update;  // held across add_gid/del_gid: one refresh at a time
  std::mutex gid_lock;    // protects the entries; never held across a driver call
  std::array<ib_gid_attr, kGidTableLen> gids{};

  std::shared_mutex handlers_lock;
  std::vector<ib_event_handler*> handlers;
};

// nullptr: not registered. The pointer stays valid for the life of the process.
DeviceState* device_state(const ib_device& dev);
// Deletes every GID of a device that goes away.
void gid_table_cleanup(DeviceState& st);

}  // namespace uhca::kernel

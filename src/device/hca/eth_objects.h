// SPDX-License-Identifier: MIT
// The Ethernet objects and the port's and vport's settings, as commands set them and the engine follows them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "prm/queue_context.h"

namespace uhca::hca {

// An object that is its context. Decoded when it is used.
template <std::size_t kBytes>
struct Tracked {
  std::array<std::uint8_t, kBytes> context{};
  unsigned users = 0;
};
using Tis = Tracked<prm::tisc::kBytes>;
using Tir = Tracked<prm::tirc::kBytes>;

struct Rqt {
  std::array<std::uint8_t, prm::rqtc::kBytes> context{};
  std::vector<std::uint32_t> rqns;
  unsigned users = 0;
};

struct VportState {
  std::uint64_t mac = 0;  // host order, 48 bits
  std::uint16_t mtu = 0;  // bytes of a frame
  std::uint64_t system_image_guid = 0, port_guid = 0, node_guid = 0;
  bool roce_en = false;
  bool promisc_uc = false, promisc_mc = false, promisc_all = false;
  std::uint8_t admin_state = 1;  // 0 down, 1 up, 2 follow
  std::uint32_t change_events = 0;
  bool disable_uc_lb = false, disable_mc_lb = false;
  std::array<std::vector<std::uint64_t>, 3> lists;  // 0 unicast MACs, 1 multicast MACs, 2 VLANs
};

struct PortState {
  std::uint8_t admin_status = 1;  // 1 up, 2 down
  std::uint16_t admin_mtu = 0;
  std::uint32_t eth_proto_admin = 0;
  bool an_disable_admin = false;
  bool pause_tx = false, pause_rx = false;                    // 802.3x flow control, as set
  std::uint8_t priority_pause_tx = 0, priority_pause_rx = 0;  // per priority, as set
  std::array<std::uint8_t, 64> node_desc{};
  bool host_endianness = false;
};

}  // namespace uhca::hca

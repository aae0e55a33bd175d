// SPDX-License-Identifier: MIT
// What the homes of an HCA (plug.cpp, serve.cpp) have in common.
#pragma once

#include <utility>

#include "base/types.h"
#include "device/hca/hca.h"
#include "wire/net/uplink.h"

namespace uhca::hca {

// Further blocks of QPNs come from the host, like the first.
class UplinkLease final : public QpnLease {
 public:
  explicit UplinkLease(wire::Uplink& uplink) : uplink_(uplink) {}
  std::uint32_t lease_block() override {
    if (first_) return std::exchange(first_, 0);
    return uplink_.lease_block();
  }

 private:
  wire::Uplink& uplink_;
  std::uint32_t first_ = uplink_.function_id() << 12;
};

// EUI-64 of a MAC address, host order.
inline std::uint64_t eui64(const wire::Mac& mac) {
  std::uint8_t g[8] = {static_cast<std::uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  return load_be<std::uint64_t>(g);
}

}  // namespace uhca::hca

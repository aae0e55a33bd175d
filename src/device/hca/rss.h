// SPDX-License-Identifier: MIT
// Receive side scaling: the hash of a TIR over the headers of a packet.
#pragma once

#include <cstdint>

#include "device/hca/eth_headers.h"
#include "wire/net/port.h"

namespace uhca::hca {

struct RssHash {
  std::uint32_t value = 0;
  std::uint8_t type = 0;  // cqe64.rss_hash_type (Linux device.h: CQE_RSS_HTYPE_*)
};

// `tirc`: the TIR's context (function, key, fields, symmetry). A packet of another kind than the TIR's fields select hashes to 0, and
// hashes its addresses only where it has no ports of that kind.
RssHash rss_hash(const void* tirc, wire::Frame frame, const EthHeaders& h);

// The Toeplitz hash with mlx5's 40-byte key ("Scalable Networking: Eliminating the Receive Processing Bottleneck", RSS 1.0).
std::uint32_t toeplitz(const std::uint8_t* key, const std::uint8_t* data, std::size_t len);

}  // namespace uhca::hca

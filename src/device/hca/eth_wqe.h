// SPDX-License-Identifier: MIT
// Send WQEs of Ethernet queues: control segment, Ethernet segment with inlined headers, data segments.
// Source: Linux include/linux/mlx5/qp.h (mlx5_wqe_eth_seg), rdma-core providers/mlx5/qp.c (set_eth_seg).
#pragma once

#include <cstdint>

#include "device/hca/wqe_fetch.h"

namespace uhca::hca {

struct EthSendWqe {
  SendWqe wqe;                    // control and data segments; inlined headers are not among its segments
  std::uint8_t checksums = 0;     // prm::kEthWqeL3Csum, kEthWqeL4Csum
  std::uint16_t mss = 0;          // TSO: payload bytes of a packet
  std::uint16_t inline_at = 0;    // headers in wqe.raw
  std::uint16_t inline_len = 0;   // bytes
  std::uint16_t insert_type = 0;  // ethertype of a VLAN tag that the device inserts; 0: none
  std::uint16_t insert_tci = 0;

  std::uint64_t length() const { return inline_len + wqe.length; }
};

// Like fetch_send_wqe(), for SEND, TSO and NOP on an SQ.
WqeFault fetch_eth_wqe(pci::Bus& bus, const RawQueue& sq, std::uint16_t index, unsigned posted, EthSendWqe& w, const char** why);

}  // namespace uhca::hca

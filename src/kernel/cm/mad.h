// SPDX-License-Identifier: MIT
// Management datagrams: 256 bytes, sent to QP1 of a port. IBTA vol. 1, 13.4.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/core/ib_verbs.h"
#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_mad_hdr(F) \
  F(base_version, 0x0, 0x8, 1) \
  F(mgmt_class, 0x8, 0x8, 1) \
  F(class_version, 0x10, 0x8, 1) \
  F(method, 0x18, 0x8, 1) \
  F(status, 0x20, 0x10, 1) \
  F(tid, 0x40, 0x40, 1) \
  F(attr_id, 0x80, 0x10, 1) \
  F(attr_mod, 0xa0, 0x20, 1)
UHCA_PRM_LAYOUT(mad_hdr, 0xc0)
// clang-format on

namespace uhca::kernel::cm {

inline constexpr std::size_t kMadSize = 256;
inline constexpr std::size_t kMadHeader = prm::mad_hdr::kBytes;
inline constexpr std::uint32_t kGsiQkey = 0x80010000;  // IBTA vol. 1, 10.2.5: IB_QP1_QKEY

inline constexpr std::uint8_t kMgmtBaseVersion = 1;
inline constexpr std::uint8_t kMgmtClassCm = 0x07;
inline constexpr std::uint8_t kMgmtMethodSend = 0x03;

struct Mad {
  std::array<std::uint8_t, kMadSize> bytes{};

  void* hdr() { return bytes.data(); }
  const void* hdr() const { return bytes.data(); }
  // What follows the common header: the message of the class.
  void* body() { return bytes.data() + kMadHeader; }
  const void* body() const { return bytes.data() + kMadHeader; }
};

// What a receiver learns of a MAD beside its bytes, from the packet's headers.
struct MadInfo {
  ib_gid sgid{}, dgid{};
  bool roce_v2 = true;
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0, hop_limit = 0, sl = 0;
  std::uint32_t src_qp = 1;
};

// Sends MADs from QP1. Thread-safe; never calls back into the caller; a lost MAD is no error.
class MadTransport {
 public:
  virtual ~MadTransport() = default;
  // `av.sgid_attr` is filled. EINVAL, ENOMEM, ... as posting a send answers.
  virtual Status send(const Mad& mad, const rdma_ah_attr& av) = 0;
};

}  // namespace uhca::kernel::cm

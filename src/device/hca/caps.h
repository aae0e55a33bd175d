// SPDX-License-Identifier: MIT
// The capabilities that QUERY_HCA_CAP answers: what this device can do (max) and what the driver turned on (current).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace uhca::hca {

struct HcaConfig;

// op_mod >> 1 of QUERY_HCA_CAP and SET_HCA_CAP (Linux device.h: enum mlx5_cap_type).
enum class CapType : std::uint8_t {
  kGeneral = 0,
  kEthernet = 1,
  kOdp = 2,
  kAtomic = 3,
  kRoce = 4,
  kFlowTable = 7,
  kQos = 0xc,
  kDeviceMemory = 0xf,
  kVdpaEmulation = 0x13
};

inline constexpr std::size_t kCapBytes = 4096;  // query_hca_cap_out.capability

// Limits that handlers enforce, named once.
inline constexpr unsigned kLogMaxQp = 18, kLogMaxQpSize = 15, kLogMaxCqSize = 22, kLogMaxEqSize = 22, kLogMaxSrqSize = 15;
inline constexpr unsigned kLogMaxWqSize = 16, kLogMaxRqtSize = 11, kMaxQpPerMulticast = 240, kLogMaxL2Table = 7;
inline constexpr unsigned kLogMaxMsg = 30, kLogMaxKlmList = 16;
inline constexpr unsigned kLogMaxUctx = 12, kLogMaxUmem = 16, kLogMaxDciStreams = 6;

class Caps {
 public:
  explicit Caps(const HcaConfig& config);
  using Group = std::array<std::uint8_t, kCapBytes>;
  // nullptr: a group that this device does not have.
  const Group* max(unsigned type) const;
  Group* current(unsigned type);
  const Group* current(unsigned type) const { return const_cast<Caps*>(this)->current(type); }
  // The name of the first field of `wanted` that exceeds what the device can do; nullptr: all fine.
  const char* exceeds(unsigned type, const std::uint8_t* wanted) const;

 private:
  static constexpr unsigned kTypes[] = {0, 1, 3, 4, 7, 0xc, 0x13, 0xf, 2};
  int index(unsigned type) const;
  bool has_odp_, has_memic_;
  std::array<Group, std::size(kTypes)> max_{};
  std::array<Group, std::size(kTypes)> current_{};
};

}  // namespace uhca::hca

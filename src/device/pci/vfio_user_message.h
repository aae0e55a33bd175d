// SPDX-License-Identifier: MIT
// The vfio-user protocol on the wire: little-endian messages on a unix stream socket, descriptors as SCM_RIGHTS.
// Source: the vfio-user specification (QEMU, docs/interop/vfio-user), the VFIO uapi (linux/vfio.h) for what the messages carry.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uhca::pci::vfio_user {

enum class Command : std::uint16_t {
  kVersion = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kGetInfo = 4,
  kGetRegionInfo = 5,
  kGetRegionIoFds = 6,
  kGetIrqInfo = 7,
  kSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kDmaRead = 11,   // server to client only
  kDmaWrite = 12,  // server to client only
  kReset = 13,
  kRegionWriteMulti = 15,
  kFeature = 16,
};

// For log and trace; "?" for others.
const char* command_name(std::uint16_t command);

struct Header {
  std::uint16_t id;  // chosen by the sender, repeated in the reply
  std::uint16_t command;
  std::uint32_t size;  // of the whole message, this header included
  std::uint32_t flags;
  std::uint32_t error;  // errno, in replies that carry kFlagError
};
static_assert(sizeof(Header) == 16);

inline constexpr std::uint32_t kTypeMask = 0xf, kTypeCommand = 0, kTypeReply = 1;
inline constexpr std::uint32_t kFlagNoReply = 0x10, kFlagError = 0x20;

inline constexpr std::uint16_t kMajor = 0, kMinor = 0;
struct Version {
  std::uint16_t major, minor;  // then a JSON text, NUL-terminated
};

// Limits that the server announces.
inline constexpr std::size_t kMaxFds = 16;
inline constexpr std::size_t kMaxTransfer = 64 * 1024;  // bytes of one region access
inline constexpr std::size_t kMaxDmaRegions = 65535;
inline constexpr std::size_t kPageSize = 4096;

inline constexpr std::uint32_t kDmaReadable = 1, kDmaWritable = 2;
struct DmaMap {
  std::uint32_t argsz, flags;
  std::uint64_t offset;  // in the file that comes with the message
  std::uint64_t address, size;
};
static_assert(sizeof(DmaMap) == 32);

inline constexpr std::uint32_t kUnmapDirtyBitmap = 1, kUnmapAll = 2;
struct DmaUnmap {
  std::uint32_t argsz, flags;
  std::uint64_t address, size;
};
static_assert(sizeof(DmaUnmap) == 24);

inline constexpr std::uint32_t kDeviceReset = 1, kDevicePci = 2;
struct DeviceInfo {
  std::uint32_t argsz, flags, num_regions, num_irqs;
};

// VFIO's region and interrupt indexes of a PCI device.
inline constexpr std::uint32_t kRegionBar0 = 0, kRegionConfig = 7, kRegions = 9;
inline constexpr std::uint32_t kIrqMsix = 2, kIrqs = 5;

inline constexpr std::uint32_t kRegionReadable = 1, kRegionWritable = 2;
struct RegionInfo {
  std::uint32_t argsz, flags, index, cap_offset;
  std::uint64_t size, offset;
};
static_assert(sizeof(RegionInfo) == 32);

inline constexpr std::uint32_t kIrqEventfd = 1, kIrqMaskable = 2, kIrqNoResize = 8;
struct IrqInfo {
  std::uint32_t argsz, flags, index, count;
};

inline constexpr std::uint32_t kIrqDataNone = 1, kIrqDataBool = 2, kIrqDataEventfd = 4;
inline constexpr std::uint32_t kIrqActionMask = 8, kIrqActionUnmask = 16, kIrqActionTrigger = 32;
struct SetIrqs {
  std::uint32_t argsz, flags, index, start, count;  // then `count` bytes with kIrqDataBool
};
static_assert(sizeof(SetIrqs) == 20);

struct RegionAccess {
  std::uint64_t offset;
  std::uint32_t region, count;  // then `count` bytes
};
static_assert(sizeof(RegionAccess) == 16);

struct WriteMulti {
  std::uint64_t count;  // of WriteOne that follow
};
inline constexpr std::size_t kMaxWrites = 200;
struct WriteOne {
  std::uint64_t offset;
  std::uint32_t region, count;  // at most 8 bytes
  std::uint8_t data[8];
};
static_assert(sizeof(WriteOne) == 24);

// What no message exceeds: the largest region write.
inline constexpr std::size_t kMaxMessage = sizeof(Header) + sizeof(RegionAccess) + kMaxTransfer;

}  // namespace uhca::pci::vfio_user

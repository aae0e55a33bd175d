// SPDX-License-Identifier: MIT
#include "device/pci/vfio_user_message.h"

namespace uhca::pci::vfio_user {

const char* command_name(std::uint16_t command) {
  switch (static_cast<Command>(command)) {
    case Command::kVersion: return "VERSION";
    case Command::kDmaMap: return "DMA_MAP";
    case Command::kDmaUnmap: return "DMA_UNMAP";
    case Command::kGetInfo: return "DEVICE_GET_INFO";
    case Command::kGetRegionInfo: return "DEVICE_GET_REGION_INFO";
    case Command::kGetRegionIoFds: return "DEVICE_GET_REGION_IO_FDS";
    case Command::kGetIrqInfo: return "DEVICE_GET_IRQ_INFO";
    case Command::kSetIrqs: return "DEVICE_SET_IRQS";
    case Command::kRegionRead: return "REGION_READ";
    case Command::kRegionWrite: return "REGION_WRITE";
    case Command::kDmaRead: return "DMA_READ";
    case Command::kDmaWrite: return "DMA_WRITE";
    case Command::kReset: return "DEVICE_RESET";
    case Command::kRegionWriteMulti: return "REGION_WRITE_MULTI";
    case Command::kFeature: return "DEVICE_FEATURE";
  }
  return "?";
}

}  // namespace uhca::pci::vfio_user

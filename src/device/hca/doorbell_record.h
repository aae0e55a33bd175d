// SPDX-License-Identifier: MIT
// Doorbell records: two big-endian words in the driver's memory, the truth about a queue (decision 4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rcu.h"
#include "base/safecopy.h"
#include "base/types.h"
#include "device/pci/host_window.h"

namespace uhca::hca {

// Word `word` of the record at `dbr`, in host byte order. False: its memory cannot be read.
inline bool load_record(pci::Bus& bus, const pci::HostWindow& window, pci::DmaAddr dbr, std::size_t word, std::uint32_t* v) {
  bool read = false;
  {
    rcu::ReadSection section;
    const std::byte* p = window.at(word * 4);
    read = p != nullptr && safecopy::load32(p, v);
  }
  if (!read && !bus.dma_load32(dbr + word * 4, v)) return false;
  *v = byteswap(*v);
  return true;
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
// Memory that the firmware asks of its host and gives back. Linux: core/pagealloc.c.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/result.h"
#include "kernel/mlx5_core/cmd.h"
#include "kernel/mm/umem.h"

namespace uhca::kernel::mlx5 {

class FirmwarePages {
 public:
  FirmwarePages(CommandQueue& cmd, mm::IommuDomain& domain) : cmd_(cmd), domain_(domain) {}

  // QUERY_PAGES for boot or init, then gives what was asked for.
  Status satisfy_startup(bool boot);
  // MANAGE_PAGES(take) until every page is back. EIO: the firmware keeps pages.
  Status reclaim_all();
  // Pages that the firmware has.
  std::size_t outstanding() const;

  // From the pages EQ: remembers the request; commands cannot be issued from an event handler. Positive: give, negative: take.
  void request(std::int32_t npages);
  // Serves remembered requests.
  void serve();

 private:
  Status give(std::size_t npages);
  // Up to `npages`; the number that came back.
  Result<std::size_t> take(std::size_t npages);

  CommandQueue& cmd_;
  mm::IommuDomain& domain_;
  mutable std::mutex lock_;                                                  // the map; never held across a command
  std::unordered_map<std::uint64_t, std::shared_ptr<mm::DmaBuffer>> pages_;  // by bus address; pages of one gift share a buffer
  std::atomic<std::int32_t> requested_{0};
};

}  // namespace uhca::kernel::mlx5

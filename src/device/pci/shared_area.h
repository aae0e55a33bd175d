// SPDX-License-Identifier: MIT
// What a function shows to the other functions of its host and user, so that they can execute one-sided operations on its memory without
// its processor (DESIGN, decision 5): one memfd that they map, with
//   the holds       who is accessing this function's memory right now (decision 6)
//   range states    of the software IOMMU: which mappings are alive (written by kernel/mm, under the same rules as its own table)
//   device part     what the device model publishes (device/hca/published.h)
// The area is given to processes of the same user only: they could reach this process's memory anyway, the checks protect against
// mistakes (DESIGN, "Trust").
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace uhca::pci {

// One accessor, that is one other function. The accessor makes `seq` odd (then a full fence, then it looks at the tables) and even again
// when its access has ended.
struct alignas(64) Hold {
  std::atomic<std::uint32_t> seq;
  std::atomic<pid_t> pid;  // of the accessor; written by the owner of the area. 0: nobody
};

class SharedArea {
 public:
  static constexpr std::size_t kHolds = 512;
  static constexpr std::size_t kRanges = std::size_t{1} << 22;
  static constexpr std::size_t kDeviceBytes = std::size_t{8} << 20;

  // Mapped and empty; nullptr and errno when there is no memory for it. Only touched pages cost anything.
  static std::unique_ptr<SharedArea> create();
  ~SharedArea();
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  static constexpr std::size_t bytes() { return kDeviceAt + kDeviceBytes; }
  int fd() const { return fd_; }  // sealed against resizing

  // Indexed by range number; a range is usable while its word is what whoever refers to it has noted.
  std::atomic<std::uint64_t>* range_states() { return range_states_of(base_); }
  void* device_part() { return device_part_of(base_); }

  // A hold for the process `pid`; kHolds when all are taken. release_hold() makes it void, whatever its owner was doing.
  unsigned take_hold(pid_t pid);
  void release_hold(unsigned index);

  // Returns when every access that may have begun before this call has ended. The caller has withdrawn what must not be used any more.
  // Never waits for the dead; says who it waits for when it takes long.
  void wait_for_accessors();

  // ---- the view of an accessor, on its own mapping of the memfd
  static std::atomic<std::uint64_t>* range_states_of(void* mapped) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(static_cast<std::byte*>(mapped) + kRangesAt);
  }
  static void* device_part_of(void* mapped) { return static_cast<std::byte*>(mapped) + kDeviceAt; }
  static Hold& hold_of(void* mapped, unsigned index) { return reinterpret_cast<Hold*>(static_cast<std::byte*>(mapped) + kHoldsAt)[index]; }
  // Whether the memory of process `pid` can be accessed and `mapped` is the area of that very process (process namespaces, Yama and seccomp
  // may all forbid it).
  static bool reachable(const void* mapped, pid_t pid);

 private:
  static constexpr std::size_t kHoldsAt = 4096;
  static constexpr std::size_t kRangesAt = kHoldsAt + kHolds * sizeof(Hold);
  static constexpr std::size_t kDeviceAt = kRangesAt + kRanges * sizeof(std::uint64_t);

  struct Header {
    std::uint64_t self;  // where the owner has mapped this header
    std::uint64_t nonce[2];
  };

  SharedArea() = default;
  int fd_ = -1;
  void* base_ = nullptr;
  std::atomic<unsigned> used_{0};  // holds below this index have been in use
};

}  // namespace uhca::pci

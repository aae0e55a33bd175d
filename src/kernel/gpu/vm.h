// SPDX-License-Identifier: MIT
// The GPU's address space of one process: which buffer shows where. Addresses outside of it are the program's own memory. Linux: struct
// amdgpu_vm.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/result.h"
#include "kernel/gpu/bo.h"

namespace uhca::kernel::gpu {

class Vm {
 public:
  struct Place {
    std::shared_ptr<Bo> bo;
    std::uint64_t offset = 0, left = 0;  // in the buffer; bytes from there to the end of the mapping
  };
  // The whole buffer at va. EINVAL: something is there.
  Status map(std::uint64_t va, std::shared_ptr<Bo> bo);
  // What begins there. EINVAL: nothing does.
  Result<std::shared_ptr<Bo>> unmap(std::uint64_t va);
  // bo == nullptr: nothing of the GPU's is there; `left`: bytes until something is.
  Place at(std::uint64_t va) const;

  // The copy engine moves n bytes; either end in this space or the program's memory. In order of addresses; ranges must not overlap.
  // EFAULT: the program's memory is not there; bytes before it have been copied.
  Status copy(std::uint64_t dst, std::uint64_t src, std::uint64_t n);
  // n bytes of the pattern, of `width` bytes (1, 2, 4, 8).
  Status fill(std::uint64_t dst, std::uint64_t pattern, unsigned width, std::uint64_t n);
  // Between the space and memory of the kernel. EFAULT as above.
  Status read(std::uint64_t va, void* to, std::uint64_t n) const;
  Status write(std::uint64_t va, const void* from, std::uint64_t n) const;
  // One access, also towards the CPU. EFAULT; EINVAL: not aligned.
  Status atomic_add64(std::uint64_t va, std::uint64_t value) const;

 private:
  mutable std::mutex lock_;
  std::map<std::uint64_t, std::shared_ptr<Bo>> mappings_;
};

}  // namespace uhca::kernel::gpu

// SPDX-License-Identifier: MIT
#include "kernel/gpu/nv_file.h"

#include <utility>

#include "base/log.h"
#include "kernel/gpu/export.h"
#include "kernel/gpu/ioctl_arg.h"

namespace uhca::kernel::gpu {
namespace {
constexpr std::uint64_t kGranule = 64 << 10;  // the GPU's page
}

Result<int> NvFile::ioctl(unsigned long request, UserPtr arg) {
  using namespace uhca::gpu;  // NOLINT: the vocabulary of the ioctls
  switch (request) {
    case kIoctlInfo:
      return with_arg<Info>(request, arg, [this](Info& i) -> Status {
        i.vram = gpu_.vram().size();
        i.vram_free = gpu_.vram().free_bytes(i.vram);
        i.bar1 = gpu_.config().visible();
        i.p2p = gpu_.peers_reach();
        return success();
      });
    case kIoctlAlloc:
      return with_arg<Alloc>(request, arg, [this](Alloc& a) -> Status {
        if (a.va % kGranule != 0 || a.size == 0 || a.size % kGranule != 0)
          return refuse(EINVAL, "gpu: {:#x} bytes at {:#x} of its address space", a.size, a.va);
        auto bo = UHCA_TRY(gpu_.create(a.size, kDomainVram, kDomainVram, 0));
        return vm_.map(a.va, std::move(bo));
      });
    case kIoctlFree:
      return with_arg<Free>(request, arg, [this](Free& f) -> Status {
        UHCA_TRY(vm_.unmap(f.va));
        return success();
      });
    case kIoctlCopy: return with_arg<Copy>(request, arg, [this](Copy& c) { return vm_.copy(c.dst, c.src, c.size); });
    case kIoctlFill:
      return with_arg<Fill>(request, arg, [this](Fill& f) -> Status {
        if ((f.width != 1 && f.width != 2 && f.width != 4) || f.count > ~std::uint64_t{0} / 4)
          return refuse(EINVAL, "gpu: {} values of {} bytes", f.count, f.width);
        return vm_.fill(f.dst, f.value, f.width, f.count * f.width);
      });
    case kIoctlExport:
      return with_arg<Export>(request, arg, [this](Export& e) -> Status {
        Vm::Place p = vm_.at(e.va);
        if (p.bo == nullptr) return refuse(EINVAL, "gpu: {:#x} is no memory of the GPU", e.va);
        auto buf = UHCA_TRY(nv_export(p.bo, p.offset, e.size, e.pcie != 0));
        e.fd = UHCA_TRY(mm::dma_buf_fd(std::move(buf)));
        return success();
      });
    default: return refuse(ENOTTY, "gpu: ioctl {:#x}", request);
  }
}

Result<std::uintptr_t> NvFile::mmap(const mm::UserMapping&) {
  return refuse(ENODEV, "mmap: this file of the GPU shows no memory");
}

}  // namespace uhca::kernel::gpu

// SPDX-License-Identifier: MIT
#include "kernel/gpu/render.h"

#include <drm/amdgpu_drm.h>
#include <drm/drm.h>
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <string_view>

#include "base/inside.h"
#include "base/log.h"
#include "base/types.h"
#include "kernel/gpu/export.h"
#include "kernel/gpu/ioctl_arg.h"

namespace uhca::kernel::gpu {
namespace {

// Linux: DRM_FILE_PAGE_OFFSET_START.
constinit std::atomic<std::uint64_t> next_offset{std::uint64_t{0x100000} << 12};

Status text_out(UserPtr to, __kernel_size_t* room, std::string_view text) {
  const std::size_t n = std::min<std::size_t>(*room, text.size());
  *room = text.size();
  return n && to ? copy_to_user(to, text.data(), n) : success();
}

Status version(drm_version& v) {
  v.version_major = 3;
  v.version_minor = 54;
  v.version_patchlevel = 0;
  UHCA_CHECK(text_out(reinterpret_cast<UserPtr>(v.name), &v.name_len, "amdgpu"));
  UHCA_CHECK(text_out(reinterpret_cast<UserPtr>(v.date), &v.date_len, "20150101"));
  return text_out(reinterpret_cast<UserPtr>(v.desc), &v.desc_len, "AMD GPU");
}

}  // namespace

std::uint32_t RenderFile::add(std::shared_ptr<Bo> bo) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  handles_.emplace(next_handle_, std::move(bo));
  return next_handle_++;
}

Result<std::shared_ptr<Bo>> RenderFile::find(std::uint32_t handle) const {
  inside::Guard guard;
  std::lock_guard g(lock_);
  auto it = handles_.find(handle);
  if (it == handles_.end()) return refuse(ENOENT, "drm: handle {} is no buffer", handle);
  return it->second;
}

std::uint64_t RenderFile::allow_mmap(const std::shared_ptr<Bo>& bo) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  for (auto& [offset, known] : offsets_)
    if (known.lock() == bo) return offset;
  std::erase_if(offsets_, [](auto& e) { return e.second.expired(); });
  const std::uint64_t at = next_offset.fetch_add(bo->size());
  offsets_[at] = bo;
  return at;
}

void RenderFile::revoke_mmap(const Bo& bo) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  std::erase_if(offsets_, [&bo](auto& e) {
    auto known = e.second.lock();
    return known == nullptr || known.get() == &bo;
  });
}

// Linux: drm_gem_mmap: the object at the offset, as long as somebody holds it.
Result<std::uintptr_t> RenderFile::mmap(const mm::UserMapping& m) {
  std::shared_ptr<Bo> bo;
  mm::UserMapping in_bo = m;
  {
    inside::Guard guard;
    std::lock_guard g(lock_);
    auto next = offsets_.upper_bound(m.offset);
    if (next != offsets_.begin()) {
      auto& [start, known] = *std::prev(next);
      bo = known.lock();
      in_bo.offset = m.offset - start;
    }
  }
  if (bo == nullptr || in_bo.offset >= bo->size() || align_up(m.length, 4096) > bo->size() - in_bo.offset)
    return refuse(EINVAL, "mmap: {:#x} bytes at offset {:#x} of the render node are no buffer of this file", m.length, m.offset);
  return bo->mmap(in_bo);
}

Result<int> RenderFile::ioctl(unsigned long request, UserPtr arg) {
  if (_IOC_TYPE(request) != DRM_IOCTL_BASE) return refuse(ENOTTY, "render node: ioctl {:#x}", request);
  const unsigned number = _IOC_NR(request);
  if (number >= DRM_COMMAND_BASE && number < DRM_COMMAND_END) return amdgpu(number - DRM_COMMAND_BASE, request, arg);
  switch (number) {
    case _IOC_NR(DRM_IOCTL_VERSION): return with_arg<drm_version>(request, arg, version);
    case _IOC_NR(DRM_IOCTL_GET_CAP):
      return with_arg<drm_get_cap>(request, arg, [](drm_get_cap& c) -> Status {
        c.value = 0;
        if (c.capability == DRM_CAP_PRIME) c.value = DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT;
        if (c.capability == DRM_CAP_TIMESTAMP_MONOTONIC) c.value = 1;
        return success();
      });
    case _IOC_NR(DRM_IOCTL_GEM_CLOSE):
      return with_arg<drm_gem_close>(request, arg, [this](drm_gem_close& c) -> Status {
        inside::Guard guard;
        std::shared_ptr<Bo> gone;
        std::lock_guard g(lock_);
        auto it = handles_.find(c.handle);
        if (it == handles_.end()) return refuse(EINVAL, "drm: handle {} is no buffer", c.handle);
        gone = std::move(it->second);
        handles_.erase(it);
        return success();
      });
    case _IOC_NR(DRM_IOCTL_PRIME_HANDLE_TO_FD): return prime_export(request, arg);
    case _IOC_NR(DRM_IOCTL_PRIME_FD_TO_HANDLE): return prime_import(request, arg);
    default: return refuse(EINVAL, "render node: DRM ioctl {:#x}", number);
  }
}

Result<int> RenderFile::prime_export(unsigned long request, UserPtr arg) {
  return with_arg<drm_prime_handle>(request, arg, [this](drm_prime_handle& p) -> Status {
    if (p.flags & ~static_cast<unsigned>(DRM_CLOEXEC | DRM_RDWR)) return refuse(EINVAL, "drm: prime flags {:#x}", p.flags);
    auto bo = UHCA_TRY(find(p.handle));
    auto buf = UHCA_TRY(amdgpu_export(bo));
    p.fd = UHCA_TRY(mm::dma_buf_fd(std::move(buf)));
    return success();
  });
}

Result<int> RenderFile::prime_import(unsigned long request, UserPtr arg) {
  return with_arg<drm_prime_handle>(request, arg, [this](drm_prime_handle& p) -> Status {
    auto buf = UHCA_TRY(mm::dma_buf_get(p.fd));
    auto bo = amdgpu_own(*buf);
    if (bo == nullptr) return refuse(EOPNOTSUPP, "drm: dma-buf {} is another driver's", buf->name());
    inside::Guard guard;
    std::lock_guard g(lock_);
    for (auto& [handle, known] : handles_)
      if (known == bo) {
        p.handle = handle;
        return success();
      }
    p.handle = next_handle_++;
    handles_.emplace(p.handle, std::move(bo));
    return success();
  });
}

// Linux: amdgpu_gem_create_ioctl. Buffers in VRAM may always be moved out.
Result<int> RenderFile::gem_create(unsigned long request, UserPtr arg) {
  return with_arg<drm_amdgpu_gem_create>(request, arg, [this](drm_amdgpu_gem_create& c) -> Status {
    constexpr std::uint64_t kKnown = AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_NO_CPU_ACCESS |
                                     AMDGPU_GEM_CREATE_CPU_GTT_USWC | AMDGPU_GEM_CREATE_VRAM_CLEARED | AMDGPU_GEM_CREATE_VM_ALWAYS_VALID |
                                     AMDGPU_GEM_CREATE_EXPLICIT_SYNC;
    const auto domains = static_cast<unsigned>(c.in.domains), domain_flags = static_cast<unsigned>(c.in.domain_flags);
    if (c.in.domain_flags & ~kKnown) return refuse(EINVAL, "drm: GEM_CREATE flags {:#x}", std::uint64_t{c.in.domain_flags});
    if (c.in.domains & ~std::uint64_t{AMDGPU_GEM_DOMAIN_MASK} || domains == 0)
      return refuse(EINVAL, "drm: GEM_CREATE domains {:#x}", domains);
    if (domains & (AMDGPU_GEM_DOMAIN_GDS | AMDGPU_GEM_DOMAIN_GWS | AMDGPU_GEM_DOMAIN_OA))
      return refuse(EOPNOTSUPP, "drm: on-chip domains {:#x} hold no memory for others", domains);
    const unsigned preferred = domains & (kDomainGtt | kDomainVram) ? domains & (kDomainGtt | kDomainVram) : kDomainGtt;
    const unsigned allowed = preferred | (preferred & kDomainVram ? kDomainGtt : 0);
    auto bo = UHCA_TRY(gpu_.create(c.in.bo_size, preferred, allowed, domain_flags));
    c.out = {};
    c.out.handle = add(std::move(bo));
    return success();
  });
}

Result<int> RenderFile::gem_va(unsigned long request, UserPtr arg) {
  return with_arg<drm_amdgpu_gem_va>(request, arg, [this](drm_amdgpu_gem_va& v) -> Status {
    if (v.operation == AMDGPU_VA_OP_UNMAP || v.operation == AMDGPU_VA_OP_CLEAR)
      return vm_->unmap(v.va_address).ok() ? success() : Errno{ENOENT};
    auto bo = UHCA_TRY(find(v.handle));
    if (v.operation != AMDGPU_VA_OP_MAP || v.offset_in_bo != 0 || v.map_size != bo->size())
      return refuse(EOPNOTSUPP, "drm: GEM_VA operation {} of a part of a buffer", v.operation);
    return vm_->map(v.va_address, std::move(bo));
  });
}

Result<int> RenderFile::gem_userptr(unsigned long request, UserPtr arg) {
  return with_arg<drm_amdgpu_gem_userptr>(request, arg, [this](drm_amdgpu_gem_userptr& u) -> Status {
    auto bo = UHCA_TRY(gpu_.create_user(u.addr, u.size));
    u.handle = add(std::move(bo));
    return success();
  });
}

Result<int> RenderFile::amdgpu(unsigned number, unsigned long request, UserPtr arg) {
  switch (number) {
    case DRM_AMDGPU_GEM_CREATE: return gem_create(request, arg);
    case DRM_AMDGPU_GEM_MMAP:
      return with_arg<drm_amdgpu_gem_mmap>(request, arg, [this](drm_amdgpu_gem_mmap& m) -> Status {
        auto bo = UHCA_TRY(find(m.in.handle));
        if (bo->flags() & kNoCpuAccess) return refuse(EPERM, "drm: buffer {} is not for the CPU", m.in.handle);
        m.out.addr_ptr = allow_mmap(bo);
        return success();
      });
    case DRM_AMDGPU_GEM_VA: return gem_va(request, arg);
    case DRM_AMDGPU_GEM_USERPTR: return gem_userptr(request, arg);
    case DRM_AMDGPU_GEM_WAIT_IDLE:
      return with_arg<drm_amdgpu_gem_wait_idle>(request, arg, [this](drm_amdgpu_gem_wait_idle& w) -> Status {
        auto bo = UHCA_TRY(find(w.in.handle));
        std::lock_guard g(bo->resv());
        bo->resv().wait(mm::DmaResvUsage::kRead);
        w.out = {};
        return success();
      });
    case DRM_AMDGPU_INFO: {
      UHCA_CHECK(amdgpu_info(gpu_, arg));
      return 0;
    }
    default: return refuse(EOPNOTSUPP, "render node: amdgpu command {:#x}: the GPU executes no command streams", number);
  }
}

}  // namespace uhca::kernel::gpu

// SPDX-License-Identifier: MIT
// /dev/kfd: memory, address spaces and events of HSA programs. Linux: drivers/gpu/drm/amd/amdkfd/kfd_chardev.c,
// amdgpu_amdkfd_gpuvm.c; checks and errnos as there. Queues of copies (sdma.h), but none of kernels.
#include "kernel/gpu/kfd.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/types.h"
#include "kernel/gpu/card.h"
#include "kernel/gpu/export.h"
#include "kernel/gpu/ioctl_arg.h"

namespace uhca::kernel::gpu {
namespace {

// Newer than the headers of Linux 6.1: include/uapi/linux/kfd_ioctl.h.
struct ExportDmabufArgs {
  __u64 handle;
  __u32 flags;
  __u32 dmabuf_fd;
};
constexpr unsigned kExportDmabuf = 0x24;

// Linux: KFD_MMAP_TYPE_*: what a program maps of /dev/kfd itself.
constexpr std::uint64_t kMmapMmio = std::uint64_t{1} << 62;
constexpr std::uint64_t kMmapDoorbell = std::uint64_t{3} << 62;
constexpr std::uint64_t kDoorbellPage = 8192;  // 1024 doorbells of 8 bytes

Status right_gpu(std::uint32_t id) {
  if (id != kGpuId) return refuse(EINVAL, "kfd: no GPU with id {:#x}", id);
  return success();
}

}  // namespace

KfdFile::~KfdFile() {
  if (acquired_) gpu_.power_put();
  for (auto& [handle, m] : memory_)
    if (m.mapped) (void)vm_->unmap(m.va);
}

Result<KfdFile::Memory*> KfdFile::find(std::uint64_t handle) {
  auto it = memory_.find(handle);
  if (it == memory_.end()) return refuse(EINVAL, "kfd: handle {:#x} is of no memory", handle);
  return &it->second;
}

Status KfdFile::acquire_vm(kfd_ioctl_acquire_vm_args& a) {
  UHCA_CHECK(right_gpu(a.gpu_id));
  auto file = file_of_fd ? file_of_fd(static_cast<int>(a.drm_fd)) : nullptr;
  if (file == nullptr || file->device() != Device::kRender) return refuse(EINVAL, "kfd: descriptor {} is not of the render node", a.drm_fd);
  auto render = std::static_pointer_cast<RenderFile>(file);
  inside::Guard guard;
  std::lock_guard g(lock_);
  if (acquired_) return render_ == render ? success() : refuse(EBUSY, "kfd: this process has acquired another VM");
  render_ = std::move(render);
  vm_ = render_->vm();
  acquired_ = true;
  gpu_.power_get();  // kfd_bind_process_to_device: awake as long as somebody may compute
  return success();
}

Status KfdFile::create_queue(kfd_ioctl_create_queue_args& a) {
  UHCA_CHECK(right_gpu(a.gpu_id));
  if (a.queue_type != KFD_IOC_QUEUE_TYPE_SDMA)
    return refuse(EOPNOTSUPP, "kfd: queues of type {}: the GPU executes no kernels", a.queue_type);
  if (!acquired_) return refuse(EINVAL, "kfd: a queue before a VM has been acquired");
  a.queue_id = UHCA_TRY(sdma_.create(vm_, {a.ring_base_address, a.ring_size, a.read_pointer_address, a.write_pointer_address}));
  a.doorbell_offset = kMmapDoorbell | std::uint64_t{kGpuId} << 46 | a.queue_id % (kDoorbellPage / 8) * 8;
  return success();
}

Status KfdFile::apertures_of(kfd_process_device_apertures& p) const {
  p.lds_base = std::uint64_t{1} << 48;
  p.lds_limit = p.lds_base + 0xffffffff;
  p.scratch_base = std::uint64_t{2} << 48;
  p.scratch_limit = p.scratch_base + 0xffffffff;
  p.gpuvm_base = 0x10000;  // the CPU's addresses are its own: SVM_USER_BASE
  p.gpuvm_limit = (std::uint64_t{1} << 47) - 1;
  p.gpu_id = kGpuId;
  return success();
}

Status KfdFile::apertures(kfd_ioctl_get_process_apertures_new_args& a) {
  if (a.num_of_nodes == 0) {
    a.num_of_nodes = 1;
    return success();
  }
  kfd_process_device_apertures p{};
  UHCA_CHECK(apertures_of(p));
  UHCA_CHECK(copy_to_user(a.kfd_process_device_apertures_ptr, &p, sizeof p));
  a.num_of_nodes = 1;
  return success();
}

// Linux: kfd_ioctl_alloc_memory_of_gpu, amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu.
Status KfdFile::alloc(kfd_ioctl_alloc_memory_of_gpu_args& a) {
  if (a.size == 0) return refuse(EINVAL, "kfd: 0 bytes of memory");
  UHCA_CHECK(right_gpu(a.gpu_id));
  if (!acquired_) return refuse(EINVAL, "kfd: memory before a VM has been acquired");
  const std::uint32_t f = a.flags;
  if (f & KFD_IOC_ALLOC_MEM_FLAGS_VRAM && f & KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC && gpu_.config().small_bar)
    return refuse(EINVAL, "kfd: public VRAM: the aperture does not show all of it");
  Memory m;
  m.va = a.va_addr;
  m.flags = f;
  if (f & KFD_IOC_ALLOC_MEM_FLAGS_VRAM) {
    const std::uint64_t flags = f & KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC ? kCpuAccessRequired : 0;
    m.bo = UHCA_TRY(gpu_.create(a.size, kDomainVram, kDomainVram | kDomainGtt, flags));
  } else if (f & KFD_IOC_ALLOC_MEM_FLAGS_GTT) {
    m.bo = UHCA_TRY(gpu_.create(a.size, kDomainGtt, kDomainGtt, 0));
  } else if (f & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) {
    m.bo = UHCA_TRY(gpu_.create_user(a.mmap_offset, align_up(a.size, 4096)));
  } else if (f & KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP) {
    if (a.size != 4096) return refuse(EINVAL, "kfd: {} bytes of remapped registers; there is one page", a.size);
    m.bo = UHCA_TRY(gpu_.create(4096, kDomainGtt, kDomainGtt, 0));  // its registers flush caches that do not exist
  } else if (f & KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL) {
    if (a.size != kDoorbellPage) return refuse(EINVAL, "kfd: {} bytes of doorbells; a process has {}", a.size, kDoorbellPage);
    m.bo = UHCA_TRY(gpu_.create(kDoorbellPage, kDomainGtt, kDomainGtt, 0));
  } else {
    return refuse(EINVAL, "kfd: memory with flags {:#x}: of no kind", f);
  }
  inside::Guard guard;
  std::lock_guard g(lock_);
  a.handle = std::uint64_t{kGpuId} << 32 | next_handle_++;
  if (f & (KFD_IOC_ALLOC_MEM_FLAGS_VRAM | KFD_IOC_ALLOC_MEM_FLAGS_GTT))
    a.mmap_offset = render_->allow_mmap(m.bo);
  else if (f & KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP)
    a.mmap_offset = kMmapMmio | std::uint64_t{kGpuId} << 46;
  else if (f & KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL)
    a.mmap_offset = kMmapDoorbell | std::uint64_t{kGpuId} << 46;
  if (f & KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP) mmio_ = m.bo;
  if (f & KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL) doorbells_ = m.bo;
  memory_[a.handle] = std::move(m);
  return success();
}

// What it was lives as long as its dma-bufs and mappings do.
Status KfdFile::free(const kfd_ioctl_free_memory_of_gpu_args& a) {
  inside::Guard guard;
  Memory gone;
  std::lock_guard g(lock_);
  Memory* m = UHCA_TRY(find(a.handle));
  if (m->mapped) return refuse(EBUSY, "kfd: memory {:#x} is mapped by the GPU", a.handle);
  gone = std::move(*m);
  memory_.erase(a.handle);
  render_->revoke_mmap(*gone.bo);
  return success();
}

Status KfdFile::map(kfd_ioctl_map_memory_to_gpu_args& a, bool map) {
  if (a.n_devices == 0) return refuse(EINVAL, "kfd: {} on no device", map ? "map" : "unmap");
  if (a.n_success > a.n_devices) return refuse(EINVAL, "kfd: {} devices of {} are done", a.n_success, a.n_devices);
  if (a.n_devices > 64) return refuse(EINVAL, "kfd: {} devices", a.n_devices);
  std::vector<std::uint32_t> ids(a.n_devices);
  UHCA_CHECK(copy_from_user(ids.data(), a.device_ids_array_ptr, ids.size() * 4));
  inside::Guard guard;
  std::lock_guard g(lock_);
  Memory* m = UHCA_TRY(find(a.handle));
  for (std::uint32_t i = a.n_success; i < a.n_devices; ++i) {
    UHCA_CHECK(right_gpu(ids[i]));
    if (map && !m->mapped) UHCA_CHECK(vm_->map(m->va, m->bo));
    if (!map && m->mapped) UHCA_CHECK(vm_->unmap(m->va));
    m->mapped = map;
    a.n_success = i + 1;
  }
  return success();
}

// Linux: kfd_ioctl_export_dmabuf. KFD itself holds the dma-buf until the memory is freed.
Status KfdFile::export_dmabuf(std::uint64_t handle, std::uint32_t flags, std::uint32_t* fd) {
  if (handle >> 32 != kGpuId) return refuse(EINVAL, "kfd: handle {:#x} is of no GPU", handle);
  inside::Guard guard;
  std::shared_ptr<mm::DmaBuf> buf;
  {
    std::lock_guard g(lock_);
    Memory* m = UHCA_TRY(find(handle));
    if (m->dmabuf == nullptr) m->dmabuf = UHCA_TRY(amdgpu_export(m->bo));
    buf = m->dmabuf;
  }
  if (flags & ~static_cast<std::uint32_t>(O_CLOEXEC | O_ACCMODE)) return refuse(EINVAL, "kfd: export flags {:#x}", flags);
  *fd = static_cast<std::uint32_t>(UHCA_TRY(mm::dma_buf_fd(std::move(buf))));
  return success();
}

Status KfdFile::dmabuf_info(kfd_ioctl_get_dmabuf_info_args& a) {
  auto buf = UHCA_TRY(mm::dma_buf_get(static_cast<int>(a.dmabuf_fd)));
  auto bo = amdgpu_own(*buf);
  if (bo == nullptr) return refuse(EINVAL, "kfd: dma-buf {} is another driver's", buf->name());
  a.size = bo->size();
  a.metadata_size = 0;
  a.gpu_id = kGpuId;
  a.flags = bo->preferred() & kDomainVram ? KFD_IOC_ALLOC_MEM_FLAGS_VRAM : KFD_IOC_ALLOC_MEM_FLAGS_GTT;
  if (bo->flags() & kCpuAccessRequired) a.flags |= KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC;
  return success();
}

Status KfdFile::import_dmabuf(kfd_ioctl_import_dmabuf_args& a) {
  UHCA_CHECK(right_gpu(a.gpu_id));
  auto buf = UHCA_TRY(mm::dma_buf_get(static_cast<int>(a.dmabuf_fd)));
  auto bo = amdgpu_own(*buf);
  if (bo == nullptr) return refuse(EINVAL, "kfd: dma-buf {} is another driver's", buf->name());
  if (!acquired_) return refuse(EINVAL, "kfd: an import before a VM has been acquired");
  inside::Guard guard;
  std::lock_guard g(lock_);
  a.handle = std::uint64_t{kGpuId} << 32 | next_handle_++;
  const std::uint32_t kind = bo->preferred() & kDomainVram ? KFD_IOC_ALLOC_MEM_FLAGS_VRAM : KFD_IOC_ALLOC_MEM_FLAGS_GTT;
  memory_[a.handle] = {std::move(bo), std::move(buf), a.va_addr, kind, false};
  return success();
}

Result<int> KfdFile::ioctl(unsigned long request, UserPtr arg) {
  if (_IOC_TYPE(request) != AMDKFD_IOCTL_BASE) return refuse(ENOTTY, "kfd: ioctl {:#x}", request);
  switch (_IOC_NR(request)) {
    case _IOC_NR(AMDKFD_IOC_GET_VERSION):
      return with_arg<kfd_ioctl_get_version_args>(request, arg, [](auto& a) -> Status {
        a.major_version = 1;
        a.minor_version = kKfdMinor;
        return success();
      });
    case _IOC_NR(AMDKFD_IOC_SET_MEMORY_POLICY):
      return with_arg<kfd_ioctl_set_memory_policy_args>(request, arg, [](auto& a) -> Status { return right_gpu(a.gpu_id); });
    case _IOC_NR(AMDKFD_IOC_SET_TRAP_HANDLER):
      return with_arg<kfd_ioctl_set_trap_handler_args>(request, arg, [](auto& a) -> Status { return right_gpu(a.gpu_id); });
    case _IOC_NR(AMDKFD_IOC_SET_SCRATCH_BACKING_VA):
      return with_arg<kfd_ioctl_set_scratch_backing_va_args>(request, arg, [](auto& a) -> Status { return right_gpu(a.gpu_id); });
    case _IOC_NR(AMDKFD_IOC_GET_CLOCK_COUNTERS):
      return with_arg<kfd_ioctl_get_clock_counters_args>(request, arg, [](auto& a) -> Status {
        UHCA_CHECK(right_gpu(a.gpu_id));
        a.cpu_clock_counter = a.system_clock_counter = SystemClock::instance().now();
        a.system_clock_freq = 1'000'000'000;
        a.gpu_clock_counter = a.cpu_clock_counter / 10;  // 100 MHz
        return success();
      });
    case _IOC_NR(AMDKFD_IOC_GET_PROCESS_APERTURES):
      return with_arg<kfd_ioctl_get_process_apertures_args>(request, arg, [this](auto& a) -> Status {
        a.num_of_nodes = 1;
        return apertures_of(a.process_apertures[0]);
      });
    case _IOC_NR(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW):
      return with_arg<kfd_ioctl_get_process_apertures_new_args>(request, arg, [this](auto& a) { return apertures(a); });
    case _IOC_NR(AMDKFD_IOC_CREATE_EVENT):
      return with_arg<kfd_ioctl_create_event_args>(request, arg, [this](auto& a) { return events_.create(a); });
    case _IOC_NR(AMDKFD_IOC_DESTROY_EVENT):
      return with_arg<kfd_ioctl_destroy_event_args>(request, arg, [this](auto& a) { return events_.destroy(a.event_id); });
    case _IOC_NR(AMDKFD_IOC_SET_EVENT):
      return with_arg<kfd_ioctl_set_event_args>(request, arg, [this](auto& a) { return events_.set(a.event_id); });
    case _IOC_NR(AMDKFD_IOC_RESET_EVENT):
      return with_arg<kfd_ioctl_reset_event_args>(request, arg, [this](auto& a) { return events_.reset(a.event_id); });
    case _IOC_NR(AMDKFD_IOC_WAIT_EVENTS): {
      // What is left of the timeout goes back with EINTR.
      kfd_ioctl_wait_events_args a{};
      UHCA_CHECK(copy_from_user(&a, arg, sizeof a));
      Status s = events_.wait(a);
      UHCA_CHECK(copy_to_user(arg, &a, sizeof a));
      if (!s.ok()) return s.error();
      return 0;
    }
    case _IOC_NR(AMDKFD_IOC_ACQUIRE_VM):
      return with_arg<kfd_ioctl_acquire_vm_args>(request, arg, [this](auto& a) { return acquire_vm(a); });
    case _IOC_NR(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU):
      return with_arg<kfd_ioctl_alloc_memory_of_gpu_args>(request, arg, [this](auto& a) { return alloc(a); });
    case _IOC_NR(AMDKFD_IOC_FREE_MEMORY_OF_GPU):
      return with_arg<kfd_ioctl_free_memory_of_gpu_args>(request, arg, [this](auto& a) { return free(a); });
    case _IOC_NR(AMDKFD_IOC_MAP_MEMORY_TO_GPU):
      return with_arg<kfd_ioctl_map_memory_to_gpu_args>(request, arg, [this](auto& a) { return map(a, true); });
    case _IOC_NR(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU):
      static_assert(sizeof(kfd_ioctl_unmap_memory_from_gpu_args) == sizeof(kfd_ioctl_map_memory_to_gpu_args));
      return with_arg<kfd_ioctl_map_memory_to_gpu_args>(request, arg, [this](auto& a) { return map(a, false); });
    case _IOC_NR(AMDKFD_IOC_GET_DMABUF_INFO):
      return with_arg<kfd_ioctl_get_dmabuf_info_args>(request, arg, [this](auto& a) { return dmabuf_info(a); });
    case _IOC_NR(AMDKFD_IOC_IMPORT_DMABUF):
      return with_arg<kfd_ioctl_import_dmabuf_args>(request, arg, [this](auto& a) { return import_dmabuf(a); });
    case _IOC_NR(AMDKFD_IOC_SET_XNACK_MODE):
      return with_arg<kfd_ioctl_set_xnack_mode_args>(request, arg, [](auto& a) -> Status {
        if (a.xnack_enabled > 0) return refuse(EPERM, "kfd: XNACK: the GPU does not retry faults");
        a.xnack_enabled = 0;
        return success();
      });
    case _IOC_NR(AMDKFD_IOC_AVAILABLE_MEMORY):
      return with_arg<kfd_ioctl_get_available_memory_args>(request, arg, [this](auto& a) -> Status {
        UHCA_CHECK(right_gpu(a.gpu_id));
        a.available = gpu_.vram().free_bytes(gpu_.vram().size());
        return success();
      });
    case kExportDmabuf:
      return with_arg<ExportDmabufArgs>(request, arg, [this](auto& a) { return export_dmabuf(a.handle, a.flags, &a.dmabuf_fd); });
    case _IOC_NR(AMDKFD_IOC_CREATE_QUEUE):
      return with_arg<kfd_ioctl_create_queue_args>(request, arg, [this](auto& a) { return create_queue(a); });
    case _IOC_NR(AMDKFD_IOC_DESTROY_QUEUE):
      return with_arg<kfd_ioctl_destroy_queue_args>(request, arg, [this](auto& a) { return sdma_.destroy(a.queue_id); });
    default: return refuse(EINVAL, "kfd: ioctl number {:#x}", _IOC_NR(request));
  }
}

Result<std::uintptr_t> KfdFile::mmap(const mm::UserMapping& m) {
  std::shared_ptr<Bo> bo;
  {
    inside::Guard guard;
    std::lock_guard g(lock_);
    if ((m.offset & kMmapDoorbell) == kMmapMmio) bo = mmio_;
    if ((m.offset & kMmapDoorbell) == kMmapDoorbell) {
      // May be mapped before, or without, memory for it.
      if (doorbells_ == nullptr) doorbells_ = UHCA_TRY(gpu_.create(kDoorbellPage, kDomainGtt, kDomainGtt, 0));
      bo = doorbells_;
    }
  }
  if (bo == nullptr || align_up(m.length, 4096) != bo->size())
    return refuse(EINVAL, "kfd: mmap of {} bytes at offset {:#x}", m.length, m.offset);
  mm::UserMapping page = m;
  page.offset = 0;
  return bo->mmap(page);
}

}  // namespace uhca::kernel::gpu

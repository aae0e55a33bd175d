// SPDX-License-Identifier: MIT
// Open, context, mmap, close. Linux: drivers/infiniband/core/uverbs_main.c.
#include "kernel/uverbs/ufile.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/inside.h"
#include "base/log.h"

namespace uhca::kernel {

UverbsFile::UverbsFile(ib_device& dev) : dev_(dev), tree_(dev) {}

UverbsFile::~UverbsFile() {
  release();
}

Result<std::shared_ptr<VerbsFile>> uverbs_open(int minor) {
  ib_device* dev = ib_device_by_minor(minor);
  if (!dev) return refuse(ENXIO, "open: no device behind uverbs{}", minor);
  return std::shared_ptr<VerbsFile>(std::make_shared<UverbsFile>(*dev));
}

Result<ib_ucontext*> UverbsFile::get_context() {
  ib_ucontext* c = context();
  if (!c) return refuse(EINVAL, "{}: no context yet (GET_CONTEXT comes first)", dev_.name);
  return c;
}

Status UverbsFile::alloc_context(uverbs_attr_bundle& attrs) {
  std::lock_guard g(context_lock_);
  if (ucontext_) return refuse(EINVAL, "GET_CONTEXT: this file has a context already");
  if (!dev_.ops.alloc_ucontext) return refuse(EOPNOTSUPP, "GET_CONTEXT: {} does not support it", dev_.name);
  auto ctx = UHCA_TRY(dev_.ops.alloc_ucontext(dev_, attrs.driver_udata));
  ctx->device = &dev_;
  ctx->ufile = this;
  ucontext_ = std::move(ctx);
  dev_.restrack[RDMA_RESTRACK_CTX].fetch_add(1);
  attrs.context = ucontext_.get();
  ucontext_ptr_.store(ucontext_.get(), std::memory_order_release);
  return success();
}

Result<MmapTarget> UverbsFile::mmap(std::size_t length, int prot, int flags, std::uint64_t offset) {
  inside::Guard guard;
  if (!hw_destroy_rwsem_.try_lock_shared()) return refuse(EIO, "mmap: the device file is being closed");
  std::shared_lock held(hw_destroy_rwsem_, std::adopt_lock);
  if (closed_) return refuse(EIO, "mmap: the device file is closed");
  ib_ucontext* ctx = UHCA_TRY(get_context());
  auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (!length || offset % page) return refuse(EINVAL, "mmap: length {}, offset {:#x}", length, offset);
  int sharing = flags & MAP_TYPE;
  if (sharing != MAP_SHARED && sharing != MAP_SHARED_VALIDATE) return refuse(EINVAL, "mmap of {}: must be MAP_SHARED", dev_.name);
  if (!dev_.ops.mmap) return refuse(EOPNOTSUPP, "mmap: {} does not support it", dev_.name);
  return dev_.ops.mmap(*ctx, offset / page, length, prot);
}

void UverbsFile::release() {
  inside::Guard guard;
  std::unique_lock held(hw_destroy_rwsem_);
  if (closed_) return;
  closed_ = true;
  if (ucontext_) {
    cleanup(RDMA_REMOVE_CLOSE);
    ucontext_ptr_.store(nullptr, std::memory_order_release);
    if (dev_.ops.dealloc_ucontext) dev_.ops.dealloc_ucontext(*ucontext_);
    ucontext_.reset();
    dev_.restrack[RDMA_RESTRACK_CTX].fetch_sub(1);
  }
  default_async_.reset();
}

void UverbsFile::init_default_async(const std::shared_ptr<EventFile>& f) {
  std::lock_guard g(idr_lock_);
  if (!default_async_) default_async_ = f;
}

std::shared_ptr<EventFile> UverbsFile::default_async() {
  std::lock_guard g(idr_lock_);
  return default_async_;
}

std::uint32_t UverbsFile::cqn_of_handle(std::uint32_t handle) {
  std::lock_guard g(idr_lock_);
  auto it = idr_.find(handle);
  if (it == idr_.end() || !it->second || it->second->type_id != UVERBS_OBJECT_CQ || !it->second->object) return 0;
  return static_cast<ib_cq*>(it->second->object)->hw_cqn();
}

std::uint32_t UverbsFile::qpn_of_handle(std::uint32_t handle) {
  std::lock_guard g(idr_lock_);
  auto it = idr_.find(handle);
  if (it == idr_.end() || !it->second || it->second->type_id != UVERBS_OBJECT_QP || !it->second->object) return 0;
  return static_cast<ib_qp*>(it->second->object)->qp_num;
}

}  // namespace uhca::kernel

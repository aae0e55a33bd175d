// SPDX-License-Identifier: MIT
// Open, context, mmap, close. Linux: drivers/infiniband/core/uverbs_main.c.
#include "kernel/uverbs/ufile.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/inside.h"
#include "base/log.h"

namespace uhca::kernel {

namespace {

// The open files, for the removal of a device. Never destroyed: files are released at exit.
struct OpenFiles {
  std::mutex lock;
  std::vector<std::weak_ptr<UverbsFile>> all;
  std::vector<ib_device*> gone;
};
OpenFiles& open_files() {
  alignas(OpenFiles) static std::byte memory[sizeof(OpenFiles)];
  static OpenFiles* o = new (memory) OpenFiles;
  return *o;
}

}  // namespace

UverbsFile::UverbsFile(ib_device& dev) : dev_(dev), tree_(dev) {}

UverbsFile::~UverbsFile() {
  release();
}

Result<std::shared_ptr<VerbsFile>> uverbs_open(int minor) {
  ib_device* dev = ib_device_by_minor(minor);
  if (!dev) return refuse(ENXIO, "open: no device behind uverbs{}", minor);
  OpenFiles& open = open_files();
  std::lock_guard g(open.lock);
  if (std::find(open.gone.begin(), open.gone.end(), dev) != open.gone.end()) return refuse(EIO, "open: {} was removed", dev->name);
  auto file = std::make_shared<UverbsFile>(*dev);
  std::erase_if(open.all, [](auto& f) { return f.expired(); });
  open.all.push_back(file);
  return std::shared_ptr<VerbsFile>(std::move(file));
}

void uverbs_disassociate(ib_device& dev) {
  OpenFiles& open = open_files();
  std::vector<std::shared_ptr<UverbsFile>> theirs;
  {
    std::lock_guard g(open.lock);
    open.gone.push_back(&dev);
    for (auto& f : open.all)
      if (auto file = f.lock(); file && &file->device() == &dev) theirs.push_back(std::move(file));
  }
  for (auto& f : theirs) f->disassociate();
}

void forget_open_files() {
  new (&open_files()) OpenFiles;
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
  take_down(RDMA_REMOVE_CLOSE);
}

void UverbsFile::disassociate() {
  take_down(RDMA_REMOVE_DRIVER_REMOVE);
}

void UverbsFile::take_down(rdma_remove_reason why) {
  inside::Guard guard;
  std::unique_lock held(hw_destroy_rwsem_);
  if (why == RDMA_REMOVE_CLOSE) {
    for (auto& f : left_open_) f->close();
    left_open_.clear();
  }
  if (closed_) return;
  closed_ = true;
  if (ucontext_) {
    if (why == RDMA_REMOVE_DRIVER_REMOVE) {
      std::lock_guard g(idr_lock_);
      for (const UobjectPtr& u : uobjects_)
        if (u->type_id == UVERBS_OBJECT_ASYNC_EVENT || u->type_id == UVERBS_OBJECT_COMP_CHANNEL)
          left_open_.push_back(static_cast<FdUobject&>(*u).file);
    }
    cleanup(why);
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

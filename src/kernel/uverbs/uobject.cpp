// SPDX-License-Identifier: MIT
// Life and death of uobjects. Linux: drivers/infiniband/core/rdma_core.c.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "kernel/uverbs/ufile.h"

namespace uhca::kernel {
namespace {

constexpr int kMaxPasses = 64;  // of the close-time loop; it ends earlier when a pass destroys nothing

}  // namespace

void UverbsFile::reap_event_files() {
  std::vector<UobjectPtr> all;
  {
    std::lock_guard g(idr_lock_);
    std::size_t n = 0;
    for (const UobjectPtr& u : uobjects_) n += u->type->is_fd;
    if (n < reap_at_) return;
    for (const UobjectPtr& u : uobjects_)
      if (u->type->is_fd) all.push_back(u);
  }
  std::size_t left = all.size();
  for (const UobjectPtr& u : all) {
    // Without a reader there is no descriptor either by which a call could find the file and start to use it.
    const std::shared_ptr<EventFile>& file = static_cast<FdUobject&>(*u).file;
    if (u->usecnt.load() != 0 || file.use_count() != 1 || !file->reader_gone()) continue;
    if (destroy(u, nullptr).ok()) --left;
  }
  std::lock_guard g(idr_lock_);
  reap_at_ = std::max(kReapAtLeast, 2 * left);
}

Result<UobjectPtr> UverbsFile::alloc_begin(std::uint16_t object_id) {
  ib_ucontext* ctx = UHCA_TRY(get_context());
  const ApiObject* api = tree_.object(object_id);
  if (!api || !api->type) return refuse(EINVAL, "object type {:#x} cannot be created on {}", object_id, dev_.name);

  UobjectPtr u;
  if (api->type->dmabuf) {
    auto d = std::make_shared<DmabufUobject>();
    d->dmabuf = UHCA_TRY(mm::DmaBufFile::reserve());
    d->id = static_cast<std::uint32_t>(d->dmabuf.fd());
    u = std::move(d);
  } else if (api->type->alloc) {
    u = api->type->alloc();
  } else if (api->type->is_fd) {
    u = std::make_shared<FdUobject>();
  } else {
    u = std::make_shared<ib_uobject>();
  }
  u->ufile = this;
  u->context = ctx;
  u->device = &dev_;
  u->type_id = object_id;
  u->type = api->type;
  u->usecnt.store(-1);

  if (api->type->dmabuf) return u;
  if (api->type->is_fd) {
    reap_event_files();
    int fd = -1;
    auto kind = object_id == UVERBS_OBJECT_COMP_CHANNEL ? EventFile::Kind::kCompletion : EventFile::Kind::kAsync;
    auto& file = static_cast<FdUobject&>(*u).file;
    file = UHCA_TRY(api->type->short_read ? EventFile::create_messages(api->type->short_read, &fd) : EventFile::create(kind, &fd));
    u->messages = file.get();
    u->id = static_cast<std::uint32_t>(fd);
    return u;
  }
  std::lock_guard g(idr_lock_);
  // The lowest that is free. Linux: xa_alloc.
  u->id = freed_ids_.empty() ? fresh_id_++ : freed_ids_.extract(freed_ids_.begin()).value();
  idr_.emplace(u->id, nullptr);
  return u;
}

void UverbsFile::commit(const UobjectPtr& u) {
  if (u->type->dmabuf) return;
  std::lock_guard g(idr_lock_);
  uobjects_.push_front(u);
  u->place = uobjects_.begin();
  u->placed = true;
  u->usecnt.store(0);
  if (!u->type->is_fd) idr_[u->id] = u;
}

void UverbsFile::abort(const UobjectPtr& u, uverbs_attr_bundle* attrs) {
  if (u->hw_obj_valid && u->object) {
    if (Status s = u->type->destroy_object(*u, RDMA_REMOVE_ABORT, attrs); !s.ok())
      log::error("abort of object {:#x} id {}: its hardware object could not be destroyed ({})", u->type_id, u->id, s.code());
    u->object = nullptr;
  }
  if (u->type->dmabuf) {
    syscall(SYS_close, static_cast<int>(u->id));
    return;
  }
  if (u->type->is_fd) {
    static_cast<FdUobject&>(*u).file->close();
    syscall(SYS_close, static_cast<int>(u->id));
    return;
  }
  std::lock_guard g(idr_lock_);
  free_id(u->id);
}

void UverbsFile::free_id(std::uint32_t id) {
  if (idr_.erase(id) != 0) freed_ids_.insert(id);
}

void UverbsFile::unlock(ib_uobject& u, uverbs_obj_access access) {
  if (access == UVERBS_ACCESS_READ) u.usecnt.fetch_sub(1);
  if (access == UVERBS_ACCESS_WRITE) u.usecnt.store(0);
}

Result<UobjectPtr> UverbsFile::lookup(std::uint16_t object_id, std::int64_t id, uverbs_obj_access access) {
  const ApiObject* api = nullptr;
  if (object_id != UVERBS_IDR_ANY_OBJECT) {
    api = tree_.object(object_id);
    if (!api || !api->type) return refuse(EINVAL, "{} has no objects of type {:#x}", dev_.name, object_id);
  }
  UobjectPtr u;
  if (api && api->type->dmabuf) return refuse(EOPNOTSUPP, "{}: descriptors cannot be looked up", api->name);
  if (api && api->type->is_fd) {
    if (id < std::numeric_limits<int>::min() || id > std::numeric_limits<int>::max())
      return refuse(EINVAL, "{}: descriptor {} is no int", api->name, id);
    if (access != UVERBS_ACCESS_READ) return refuse(EOPNOTSUPP, "{}: descriptors can only be read", api->name);
    auto file = id < 0 ? nullptr : EventFile::of_fd(static_cast<int>(id));
    std::lock_guard g(idr_lock_);
    for (const UobjectPtr& o : uobjects_)
      if (file && o->type == api->type && static_cast<FdUobject&>(*o).file == file) u = o;
    if (!u) return refuse(EBADF, "{}: descriptor {} is none of this file's", api->name, id);
  } else {
    if (id < 0) return refuse(EINVAL, "{}: handle {} is negative", api ? api->name : "object", id);
    std::lock_guard g(idr_lock_);
    auto it = id > std::numeric_limits<std::uint32_t>::max() ? idr_.end() : idr_.find(static_cast<std::uint32_t>(id));
    if (it == idr_.end() || !it->second) return refuse(ENOENT, "{}: no object has handle {}", api ? api->name : "object", id);
    if (api && it->second->type_id != object_id)
      return refuse(EINVAL, "handle {} is a {}, not a {}", id, tree_.object(it->second->type_id)->name, api->name);
    u = it->second;
  }
  if (access == UVERBS_ACCESS_READ) {
    int n = u->usecnt.load();
    do {
      if (n < 0) return refuse(EBUSY, "{} {}: in exclusive use by another call", api ? api->name : "object", id);
    } while (!u->usecnt.compare_exchange_weak(n, n + 1));
  } else if (access == UVERBS_ACCESS_WRITE) {
    int zero = 0;
    if (!u->usecnt.compare_exchange_strong(zero, -1)) return refuse(EBUSY, "{} {}: in use by another call", api ? api->name : "object", id);
  }
  return u;
}

Status UverbsFile::remove_hw(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle* attrs) {
  if (!u.object && !u.type->is_fd) return success();
  UHCA_CHECK(u.type->destroy_object(u, why, attrs));
  u.object = nullptr;
  return success();
}

void UverbsFile::forget(const UobjectPtr& u) {
  std::lock_guard g(idr_lock_);
  if (!std::exchange(u->placed, false)) return;
  if (!u->type->is_fd) free_id(u->id);
  uobjects_.erase(std::list<UobjectPtr>::iterator(u->place));
}

Status UverbsFile::destroy(const UobjectPtr& u, uverbs_attr_bundle* attrs) {
  int zero = 0;
  if (!u->usecnt.compare_exchange_strong(zero, -1))
    return refuse(EBUSY, "destroy of {} {}: in use by another call", tree_.object(u->type_id)->name, u->id);
  if (Status s = remove_hw(*u, RDMA_REMOVE_DESTROY, attrs); !s.ok()) {
    u->usecnt.store(0);
    return s;
  }
  forget(u);  // stays locked: whoever still holds a reference cannot use it
  return success();
}

std::vector<std::uint32_t> UverbsFile::handles_of(std::uint16_t object_id) {
  std::vector<std::uint32_t> out;
  std::lock_guard g(idr_lock_);
  for (const UobjectPtr& u : uobjects_)
    if (u->type_id == object_id) out.push_back(u->id);
  return out;
}

void UverbsFile::cleanup(rdma_remove_reason why) {
  // Objects refuse to die before what uses them (EBUSY): walk from the newest to the oldest until a pass destroys nothing.
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    std::list<UobjectPtr> all;
    {
      std::lock_guard g(idr_lock_);
      all = uobjects_;
    }
    if (all.empty()) return;
    bool progress = false;
    for (const UobjectPtr& u : all) {
      if (!remove_hw(*u, why, nullptr).ok()) continue;
      forget(u);
      progress = true;
    }
    if (!progress) break;
  }
  std::list<UobjectPtr> left;
  {
    std::lock_guard g(idr_lock_);
    left = uobjects_;
  }
  for (const UobjectPtr& u : left) {
    log::error("close of {}: object {:#x} id {} could not be destroyed", dev_.name, u->type_id, u->id);
    if (Status s = u->type->destroy_object(*u, RDMA_REMOVE_DRIVER_FAILURE, nullptr); !s.ok()) log::error("  nor forced ({})", s.code());
    u->object = nullptr;
    forget(u);
  }
}

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
// An open device file and the objects that live in it. Linux: struct ib_uverbs_file (core/uverbs.h) and rdma_core.c.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <vector>

#include "kernel/mm/dma_buf.h"
#include "kernel/uverbs/attr_bundle.h"
#include "kernel/uverbs/event_file.h"
#include "kernel/uverbs/file.h"
#include "kernel/uverbs/uapi_tree.h"

namespace uhca::kernel {

using UobjectPtr = std::shared_ptr<ib_uobject>;
struct WriteCmd;

// A dma-buf that is being made; once it is, nothing of the file knows it.
struct DmabufUobject : ib_uobject {
  mm::DmaBufFile dmabuf;
};

class UverbsFile final : public VerbsFile {
 public:
  explicit UverbsFile(ib_device& dev);
  ~UverbsFile() override;

  Status ioctl(unsigned long cmd, UserPtr arg) override;
  Result<std::size_t> write(UserPtr buf, std::size_t count) override;
  Result<MmapTarget> mmap(std::size_t length, int prot, int flags, std::uint64_t offset) override;
  void release() override;
  // The device goes away (uverbs_disassociate).
  void disassociate();
  ib_device& device() override { return dev_; }
  std::uint32_t cqn_of_handle(std::uint32_t handle) override;
  std::uint32_t qpn_of_handle(std::uint32_t handle) override;

  // ---- objects (uobject.cpp); all under the call's shared hold of hw_destroy_rwsem
  // EINVAL: no context, or the device lacks the object. EMFILE for FD types. *read_fd is set for those.
  Result<UobjectPtr> alloc_begin(std::uint16_t object_id);
  void commit(const UobjectPtr& u);
  // Undoes alloc_begin; destroys the hardware object when it exists.
  void abort(const UobjectPtr& u, uverbs_attr_bundle* attrs);
  // READ and WRITE take the object's lock (EBUSY), DESTROY does not. EINVAL negative id, wrong type; ENOENT no such id.
  Result<UobjectPtr> lookup(std::uint16_t object_id, std::int64_t id, uverbs_obj_access access);
  static void unlock(ib_uobject& u, uverbs_obj_access access);
  // Destroys the object and gives its id back. EBUSY in use; else the driver's error, and the object stays.
  Status destroy(const UobjectPtr& u, uverbs_attr_bundle* attrs);
  std::vector<std::uint32_t> handles_of(std::uint16_t object_id);

  // ---- context
  ib_ucontext* context() const { return ucontext_ptr_.load(std::memory_order_acquire); }
  Status alloc_context(uverbs_attr_bundle& attrs);
  // EINVAL before GET_CONTEXT.
  Result<ib_ucontext*> get_context();
  const UapiTree& tree() const { return tree_; }

  // The async file that objects use which name none; the first one becomes it.
  void init_default_async(const std::shared_ptr<EventFile>& f);
  std::shared_ptr<EventFile> default_async();

 private:
  friend struct BundleParser;
  static constexpr std::size_t kReapAtLeast = 8;
  Status run(UserPtr arg);
  void take_down(rdma_remove_reason why);
  void cleanup(rdma_remove_reason why);
  Status remove_hw(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle* attrs);
  void forget(const UobjectPtr& u);
  void free_id(std::uint32_t id);  // with idr_lock_
  // Closing the descriptor of an event file ends its object (Linux: uverbs_uobject_fd_release). Here nothing says that it was closed, so
  // that whoever makes the next one looks, each time the number has doubled. What a CQ or QP still refers to is left alone.
  void reap_event_files();

  ib_device& dev_;
  UapiTree tree_;
  std::shared_mutex hw_destroy_rwsem_;  // shared by every call, exclusive while release() takes everything down
  bool closed_ = false;

  std::mutex context_lock_;
  std::unique_ptr<ib_ucontext> ucontext_;
  std::atomic<ib_ucontext*> ucontext_ptr_{nullptr};

  std::mutex idr_lock_;
  std::map<std::uint32_t, UobjectPtr> idr_;  // nullptr: reserved by alloc_begin
  std::set<std::uint32_t> freed_ids_;        // all below fresh_id_ that are not in idr_
  std::uint32_t fresh_id_ = 0;
  std::list<UobjectPtr> uobjects_;  // newest first
  std::shared_ptr<EventFile> default_async_;
  std::vector<std::shared_ptr<EventFile>> left_open_;  // event files after disassociate(): what they answer is still to be read
  std::size_t reap_at_ = kReapAtLeast;                 // event files; the next to be made beyond them looks for those that are closed
};

// In a forked child: the open files are the parent's.
void forget_open_files();

// Holds an object for the length of a write command.
class UobjRef {
 public:
  UobjRef() = default;
  UobjRef(UobjectPtr u, uverbs_obj_access a) : u_(std::move(u)), a_(a) {}
  UobjRef(UobjRef&& o) noexcept : u_(std::move(o.u_)), a_(o.a_) {}
  UobjRef& operator=(UobjRef&& o) noexcept {
    if (this != &o) {
      reset();
      u_ = std::move(o.u_);
      a_ = o.a_;
    }
    return *this;
  }
  ~UobjRef() { reset(); }
  ib_uobject* get() const { return u_.get(); }
  const UobjectPtr& ptr() const { return u_; }
  template <class T>
  T* obj() const {
    return u_ ? static_cast<T*>(u_->object) : nullptr;
  }

 private:
  void reset() {
    if (u_) UverbsFile::unlock(*u_, a_);
    u_.reset();
  }
  UobjectPtr u_;
  uverbs_obj_access a_ = UVERBS_ACCESS_READ;
};

inline UverbsFile& ufile_of(uverbs_attr_bundle& b) {
  return *static_cast<UverbsFile*>(b.ufile);
}

// The write commands (write_dispatch.cpp), also behind INVOKE_WRITE.
Status uverbs_invoke_write(uverbs_attr_bundle& attrs);

}  // namespace uhca::kernel

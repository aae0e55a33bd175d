// SPDX-License-Identifier: MIT
// DEVX: programs issue commands themselves, under a uid. Linux: hw/mlx5/devx.c.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernel/mlx5_core/mlx5_core.h"
#include "kernel/mlx5_ib/devx_cmd.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/uverbs/attr_bundle.h"

namespace uhca::kernel::mlx5 {

class DevxEvents;

// An object that a program created by command.
struct DevxObject {
  mlx5_ib_dev* dev = nullptr;
  std::uint64_t id = 0;               // devx::encode
  std::uint32_t bulk = 0;             // flow counters: how many
  std::vector<std::uint8_t> destroy;  // the command
  bool drained = false;               // DCTs: DRAIN_DCT has been done, and cannot be done twice
  // CQs are in the driver's table, for their completion events.
  struct Cq : mlx5_core_cq {
    DevxEvents* events = nullptr;
  };
  std::unique_ptr<Cq> cq;
};

// Who wants to hear of which event. Thread-safe; deliver() runs on any thread.
class DevxEvents {
 public:
  struct Subscription {
    std::uint32_t key = 0;     // event | object type << 16
    bool of_object = false;    // else of the device
    std::uint32_t number = 0;  // of the object
    const DevxObject* object = nullptr;
    ib_uobject* file = nullptr;  // an async event file ...
    int eventfd = -1;            // ... or an eventfd (adopted)
    std::uint64_t cookie = 0;
    std::shared_ptr<std::atomic<bool>> queued;  // files that carry cookies only: one unread message each
  };
  ~DevxEvents();
  void add(std::vector<Subscription> s);
  void forget_object(const DevxObject& o);
  void forget_file(const ib_uobject& file);
  // An EQE of 64 bytes.
  void deliver(const std::uint8_t* eqe);

 private:
  template <class F>
  void drop_if(F&& f);
  std::mutex lock_;
  std::vector<Subscription> all_;
};

// The context that an ioctl is for; EINVAL.
Result<mlx5_ib_ucontext*> context_of(uverbs_attr_bundle& b);
// A uid for a context, or for the driver's own whitelisted queries. EINVAL: the device has no user contexts; what CREATE_UCTX answers.
Result<std::uint16_t> devx_create(mlx5_ib_dev& dev);
void devx_destroy(mlx5_ib_dev& dev, std::uint16_t uid);
// At probe and removal.
void devx_init(mlx5_ib_dev& dev);
void devx_cleanup(mlx5_ib_dev& dev);

// The methods, by file.
extern const uverbs_object_def devx_object_def, devx_obj_object_def;                    // devx.cpp
extern const uverbs_object_def devx_umem_object_def;                                    // devx_umem.cpp
extern const uverbs_object_def devx_async_cmd_object_def, devx_async_event_object_def;  // devx_events.cpp
Status devx_subscribe_event(uverbs_attr_bundle& b);
Status devx_obj_async_query(uverbs_attr_bundle& b);
bool devx_supported(const ib_device& dev);

// ---- shared by the files
struct DevxCommand {
  std::vector<std::uint8_t> in, out;
};
// The command of a method, with the context's uid in its header. EINVAL: a context without DEVX, a command for another function.
Result<DevxCommand> devx_command(uverbs_attr_bundle& b, mlx5_ib_ucontext& c, std::uint16_t in_attr, std::size_t outlen);
// Runs it. EREMOTEIO: the firmware refused, and `out` says how.
Status devx_exec(mlx5_ib_dev& dev, DevxCommand& cmd);
// The command of a method about the object of `handle_attr`. EINVAL: none of its kind (which `does` names), or about another object.
Result<DevxCommand> devx_object_command(uverbs_attr_bundle& b, mlx5_ib_ucontext& c, std::uint16_t in_attr, std::uint16_t handle_attr,
                                        std::size_t outlen, bool (*is_kind)(const devx::Input&), const char* does);
// Whether the command is about this object: of DEVX, or the one behind a verbs object.
bool devx_is_about(const ib_uobject& uobj, const DevxCommand& cmd);

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
// Completion channels and async files. Linux: uverbs_std_types_async_fd.c, uverbs_std_types.c.
#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

constexpr std::uint32_t kDeviceFatal = 8;  // IB_EVENT_DEVICE_FATAL

// The device's events (port up, GID change, ...), element = port number.
void device_event(ib_event_handler& h, ib_device&, std::uint32_t ib_event, std::uint32_t port) {
  static_cast<EventFile*>(h.context)->post(nullptr, port, ib_event);
}

Status destroy_fd(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto& u = static_cast<FdUobject&>(uobj);
  if (u.handler_registered) {
    ib_unregister_event_handler(*u.device, u.handler);
    u.handler_registered = false;
    if (why == RDMA_REMOVE_DRIVER_REMOVE) {  // the end of its events, which the program may read late
      u.file->post(nullptr, 0, kDeviceFatal);
      return success();
    }
  }
  u.file->close();
  return success();
}

Status async_event_alloc(uverbs_attr_bundle& b) {
  uverbs_init_async_file(ufile_of(b), static_cast<FdUobject&>(*uverbs_attr_get_uobject(b, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)));
  return success();
}

constexpr uverbs_attr_def kAlloc[] = {
    UVERBS_ATTR_FD(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_ACCESS_NEW, UA_MANDATORY),
};
constexpr uverbs_method_def kAsyncMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_ASYNC_EVENT_ALLOC, kAlloc, async_event_alloc),
};
constexpr uverbs_obj_type kAsync = {true, destroy_fd, nullptr, "[infinibandevent]", 0};
constexpr uverbs_obj_type kComp = {true, destroy_fd, nullptr, "[infinibandevent]", 0};

}  // namespace

constinit const uverbs_object_def uverbs_def_async_event = UVERBS_OBJECT(UVERBS_OBJECT_ASYNC_EVENT, &kAsync, kAsyncMethods);
// Made by the write command CREATE_COMP_CHANNEL only.
constinit const uverbs_object_def uverbs_def_comp_channel = {
    UVERBS_OBJECT_COMP_CHANNEL, "UVERBS_OBJECT_COMP_CHANNEL", &kComp, nullptr, 0, nullptr};

void uverbs_init_async_file(UverbsFile& file, FdUobject& u) {
  u.handler.handler = device_event;
  u.handler.context = u.file.get();
  ib_register_event_handler(*u.device, u.handler);
  u.handler_registered = true;
  u.object = &u.handler;  // marks it for abort; not owned
  u.hw_obj_valid = true;
  file.init_default_async(u.file);
}

std::shared_ptr<EventFile> uverbs_async_file(UverbsFile& file, const std::shared_ptr<EventFile>& named) {
  return named ? named : file.default_async();
}

}  // namespace uhca::kernel

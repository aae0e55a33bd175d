// SPDX-License-Identifier: MIT
// Answers of asynchronous queries, and events that programs subscribe to. Linux: hw/mlx5/devx.c.
#include <fcntl.h>
#include <fmt/format.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/devx_cmd.h"
#include "kernel/uverbs/uapi_def.h"
#include "prm/event.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::size_t kMaxEvents = 16;                    // of one subscription (MAX_NUM_EVENTS)
constexpr std::size_t kMaxUnread = std::size_t{1} << 20;  // bytes of answers in one file (MAX_ASYNC_BYTES_IN_USE)

const void* data_of(const std::uint8_t* eqe) {
  return prm::at<prm::eqe::event_data>(static_cast<const void*>(eqe));
}
std::uint16_t object_type(EventType event, const std::uint8_t* eqe) {
  switch (event) {
    case EventType::COMP:
    case EventType::CQ_ERROR: return 0;
    case EventType::DCT_DRAINED:
    case EventType::DCT_KEY_VIOLATION: return prm::kEventQueueDct;
    default: return static_cast<std::uint16_t>(prm::get<prm::qp_events::type>(data_of(eqe)));
  }
}
std::uint32_t object_number(EventType event, const std::uint8_t* eqe) {
  switch (event) {
    case EventType::COMP: return prm::get<prm::comp_event::cq_number>(data_of(eqe));
    case EventType::CQ_ERROR: return prm::get<prm::cq_error::cqn>(data_of(eqe));
    case EventType::DCT_DRAINED:
    case EventType::DCT_KEY_VIOLATION: return prm::get<prm::dct_events::dct_number>(data_of(eqe));
    default: return prm::get<prm::qp_events::qpn_rqn_sqn>(data_of(eqe));
  }
}

// A descriptor of our own for the program's eventfd. EBADF, EINVAL as eventfd_ctx_fdget.
Result<int> keep_eventfd(int fd) {
  char path[40], target[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/self/fd/{}", fd).out = 0;
  long n = syscall(SYS_readlinkat, AT_FDCWD, path, target, sizeof target);
  if (n < 0) return refuse(EBADF, "DEVX: subscribe: no descriptor {}", fd);
  if (std::string_view(target, static_cast<std::size_t>(n)) != "anon_inode:[eventfd]")
    return refuse(EINVAL, "DEVX: subscribe: descriptor {} is no eventfd", fd);
  int own = fd::adopt(static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3)));
  if (own < 0) return refuse(errno, "DEVX: subscribe: descriptor {} cannot be kept", fd);
  return own;
}

void signal_eventfd(int fd) {
  int saved = errno;
  std::uint64_t one = 1;
  syscall(SYS_write, fd, &one, sizeof one);
  errno = saved;
}

std::vector<std::byte> message(std::uint64_t head, const std::uint8_t* body, std::size_t n) {
  std::vector<std::byte> m(sizeof head + n);
  std::memcpy(m.data(), &head, sizeof head);
  if (n) std::memcpy(m.data() + sizeof head, body, n);
  return m;
}

Status async_cmd_destroy(ib_uobject& uobj, rdma_remove_reason, uverbs_attr_bundle*) {
  uobj.messages->close();
  return success();
}

Status async_event_destroy(ib_uobject& uobj, rdma_remove_reason, uverbs_attr_bundle*) {
  to_mdev(*uobj.device).devx_events->forget_file(uobj);
  uobj.messages->close();
  return success();
}

Status async_cmd_alloc(uverbs_attr_bundle& b) {
  UHCA_TRY(context_of(b));
  return success();
}

Status async_event_alloc(uverbs_attr_bundle& b) {
  UHCA_TRY(context_of(b));
  std::uint32_t flags;
  UHCA_CHECK(uverbs_get_flags32(&flags, b, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA));
  uverbs_attr_get_uobject(b, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE)->user_handle = flags;
  return success();
}

constexpr uverbs_attr_def kCmdAllocAttrs[] = {
    UVERBS_ATTR_FD(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, UVERBS_ACCESS_NEW, UA_MANDATORY),
};
constexpr uverbs_method_def kCmdMethods[] = {UVERBS_METHOD(MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, kCmdAllocAttrs, async_cmd_alloc)};
constexpr uverbs_attr_def kEventAllocAttrs[] = {
    UVERBS_ATTR_FD(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, UA_MANDATORY),
};
constexpr uverbs_method_def kEventMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, kEventAllocAttrs, async_event_alloc)};
constexpr uverbs_obj_type kCmdType = UVERBS_TYPE_ALLOC_MESSAGE_FD(async_cmd_destroy, "[devx_async_cmd]", ENOSPC);
constexpr uverbs_obj_type kEventType = UVERBS_TYPE_ALLOC_MESSAGE_FD(async_event_destroy, "[devx_async_event]", EINVAL);

}  // namespace

constinit const uverbs_object_def devx_async_cmd_object_def = {
    MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, "MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD", &kCmdType, kCmdMethods, std::size(kCmdMethods), devx_supported};
constinit const uverbs_object_def devx_async_event_object_def = {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD,
                                                                 "MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD",
                                                                 &kEventType,
                                                                 kEventMethods,
                                                                 std::size(kEventMethods),
                                                                 devx_supported};

// The device answers at once; the answer waits in the file all the same.
Status devx_obj_async_query(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  std::uint16_t outlen;
  UHCA_CHECK(uverbs_get_const(&outlen, b, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN));
  auto cmd = UHCA_TRY(devx_object_command(b, c, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, outlen,
                                          devx::is_query, "queries"));
  MessageSink& file = *uverbs_attr_get_uobject(b, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD)->messages;
  if (file.unread_bytes() + outlen > kMaxUnread)
    return refuse(EAGAIN, "DEVX: {} bytes of answers are unread in this file", file.unread_bytes());
  std::uint64_t wr_id;
  UHCA_CHECK(uverbs_copy_from(&wr_id, b, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID));
  // What the firmware refuses is an answer too.
  if (Status s = devx_exec(to_mdev(*c.device), cmd); !s && s.code() != EREMOTEIO) return s;
  file.post(message(wr_id, cmd.out.data(), outlen), nullptr);
  return success();
}

Status devx_subscribe_event(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  if (c.devx_uid == 0) return refuse(EINVAL, "DEVX: subscribe needs a context that was opened for DEVX");
  const auto* object = uverbs_attr_get_obj<DevxObject>(b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE);
  ib_uobject* file = uverbs_attr_get_uobject(b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE);
  const bool redirect = uverbs_attr_is_valid(b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM);
  std::uint64_t cookie = 0;
  if (uverbs_attr_is_valid(b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE)) {
    if (redirect) return refuse(EINVAL, "DEVX: subscribe: an eventfd carries no cookie");
    UHCA_CHECK(uverbs_copy_from(&cookie, b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE));
  }
  std::size_t bytes = UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST));
  if (bytes % 2 || bytes / 2 > kMaxEvents)
    return refuse(EINVAL, "DEVX: subscribe: a list of {} bytes; at most {} events", bytes, kMaxEvents);
  const auto* list = static_cast<const std::uint8_t*>(uverbs_attr_get_alloced_ptr(b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST));

  std::vector<DevxEvents::Subscription> subscriptions(bytes / 2);
  for (std::size_t i = 0; i < subscriptions.size(); ++i) {
    std::uint16_t event;
    std::memcpy(&event, list + i * 2, sizeof event);
    if (object ? !devx::is_object_event(event) : !devx::is_device_event(event))
      return refuse(EINVAL, "DEVX: subscribe: event {:#x} is none of {}", event, object ? "an object" : "the device");
    auto& s = subscriptions[i];
    s.of_object = object != nullptr;
    s.object = object;
    s.number = object ? static_cast<std::uint32_t>(object->id) : 0;
    s.key = event | (object ? std::uint32_t{devx::event_object_type(object->id, event)} << 16 : 0);
    s.file = file;
    s.cookie = cookie;
    if (file->user_handle & MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA) s.queued = std::make_shared<std::atomic<bool>>(false);
  }
  if (redirect) {
    std::int32_t fd;
    UHCA_CHECK(uverbs_copy_from(&fd, b, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM));
    for (auto it = subscriptions.begin(); it != subscriptions.end(); ++it) {
      auto own = keep_eventfd(fd);
      if (!own) {
        for (auto done = subscriptions.begin(); done != it; ++done) fd::close(done->eventfd);
        return own.error();
      }
      it->eventfd = *own;
    }
  }
  to_mdev(*c.device).devx_events->add(std::move(subscriptions));
  return success();
}

DevxEvents::~DevxEvents() {
  for (Subscription& s : all_) fd::close(s.eventfd);
}

void DevxEvents::add(std::vector<Subscription> s) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  for (Subscription& x : s) all_.push_back(std::move(x));
}

template <class F>
void DevxEvents::drop_if(F&& f) {
  inside::Guard guard;  // events may be delivered by a signal handler of this thread
  std::lock_guard g(lock_);
  std::erase_if(all_, [&f](const Subscription& s) {
    if (!f(s)) return false;
    fd::close(s.eventfd);
    return true;
  });
}

void DevxEvents::forget_object(const DevxObject& o) {
  drop_if([&o](const Subscription& s) { return s.object == &o; });
}
void DevxEvents::forget_file(const ib_uobject& file) {
  drop_if([&file](const Subscription& s) { return s.file == &file; });
}

void DevxEvents::deliver(const std::uint8_t* eqe) {
  auto event = static_cast<std::uint16_t>(prm::get<prm::eqe::event_type>(eqe));
  const auto type = static_cast<EventType>(event);
  const bool of_device = devx::is_device_event(event);
  const std::uint32_t key = event | (of_device ? 0u : std::uint32_t{object_type(type, eqe)} << 16);
  const std::uint32_t number = of_device ? 0 : object_number(type, eqe);
  inside::Guard guard;
  std::lock_guard g(lock_);
  for (Subscription& s : all_) {
    if (s.of_object == of_device || s.key != key || s.number != number) continue;
    if (s.eventfd >= 0) {
      signal_eventfd(s.eventfd);
    } else if (s.queued == nullptr) {
      s.file->messages->post(message(s.cookie, eqe, prm::eqe::kBytes), nullptr);
    } else if (!s.queued->exchange(true)) {
      s.file->messages->post(message(s.cookie, nullptr, 0), s.queued);
    }
  }
}

}  // namespace uhca::kernel::mlx5

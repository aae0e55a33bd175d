// SPDX-License-Identifier: MIT
// Declarations of the ioctl tree: objects, methods, attributes. Linux: <rdma/uverbs_ioctl.h>, same names, as constexpr data.
// Drivers declare their private part with it (ib_device_ops::driver_def); header-only, so that a driver needs no symbol of uverbs.
//
//   constexpr uverbs_attr_def kUarAllocAttrs[] = {
//       UVERBS_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR, UVERBS_ACCESS_NEW, UA_MANDATORY),
//       UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, UA_MANDATORY),
//       UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
//   };
//   constexpr uverbs_method_def kUarMethods[] = {
//       UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_ALLOC, kUarAllocAttrs, uar_obj_alloc),
//       UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_UAR_OBJ_DESTROY, kUarDestroyAttrs),   // no handler needed
//   };
//   constexpr uverbs_obj_type kUarType = UVERBS_TYPE_ALLOC_IDR(uar_obj_cleanup);
//   constexpr uverbs_object_def kUarObject = UVERBS_OBJECT(MLX5_IB_OBJECT_UAR, &kUarType, kUarMethods);
//   // Methods or attributes added to a core object: an object def with type nullptr; a method def with handler nullptr only
//   // adds attributes to the method that the core declares.
//   const uapi_definition mlx5_ib_defs[] = {{&kUarObject}, {&kPdQueryMethods}, {}};
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {

struct uverbs_attr_bundle;
struct ib_uobject;

enum uverbs_attr_type : std::uint8_t {
  UVERBS_ATTR_TYPE_NA,
  UVERBS_ATTR_TYPE_PTR_IN,
  UVERBS_ATTR_TYPE_PTR_OUT,
  UVERBS_ATTR_TYPE_IDR,
  UVERBS_ATTR_TYPE_FD,
  UVERBS_ATTR_TYPE_RAW_FD,
  UVERBS_ATTR_TYPE_ENUM_IN,
  UVERBS_ATTR_TYPE_IDRS_ARRAY,
};

enum uverbs_obj_access : std::uint8_t { UVERBS_ACCESS_READ, UVERBS_ACCESS_WRITE, UVERBS_ACCESS_NEW, UVERBS_ACCESS_DESTROY };

// Accepts any object; the handler looks at ib_uobject::type_id itself.
inline constexpr std::uint16_t UVERBS_IDR_ANY_OBJECT = 0xffff;

// Flags for the `ua` argument of the UVERBS_ATTR_* macros.
inline constexpr unsigned UA_OPTIONAL = 0, UA_MANDATORY = 1, UA_ALLOC_AND_COPY = 2, UA_UDATA = 4;

// The accepted length of a pointer attribute, in bytes.
struct uverbs_size {
  std::uint16_t min = 0, max = 0;
  bool zero_trailing = false;
};
constexpr uverbs_size UVERBS_ATTR_SIZE(std::uint16_t min, std::uint16_t max) {
  return {min, max, false};
}
constexpr uverbs_size UVERBS_ATTR_MIN_SIZE(std::uint16_t min) {
  return {min, 0xffff, false};
}
constexpr uverbs_size UVERBS_ATTR_NO_DATA() {
  return {0, 0, false};
}
// Exactly this type.
#define UVERBS_ATTR_TYPE(type) (::uhca::kernel::uverbs_size{sizeof(type), sizeof(type), false})
// At least up to the member `last`; more than the type must be zero.
#define UVERBS_ATTR_STRUCT(type, last) \
  (::uhca::kernel::uverbs_size{offsetof(type, last) + sizeof(static_cast<type*>(nullptr)->last), sizeof(type), true})

struct uverbs_attr_def {
  std::uint16_t id = 0;
  const char* name = "";
  uverbs_attr_type type = UVERBS_ATTR_TYPE_NA;
  unsigned ua = UA_OPTIONAL;
  uverbs_size size;                               // PTR_IN, PTR_OUT; IDRS_ARRAY: min/max count of elements
  std::uint16_t obj_type = 0;                     // IDR, FD, IDRS_ARRAY
  uverbs_obj_access access = UVERBS_ACCESS_READ;  // IDR, FD, IDRS_ARRAY
  const uverbs_size* enum_sizes = nullptr;        // ENUM_IN: one PTR_IN size per element
  std::uint8_t num_enum = 0;

  constexpr bool mandatory() const { return ua & UA_MANDATORY; }
  constexpr bool alloc_and_copy() const { return ua & UA_ALLOC_AND_COPY; }
  constexpr bool is_udata() const { return ua & UA_UDATA; }
};

namespace uapi_detail {
constexpr uverbs_attr_def ptr(std::uint16_t id, const char* name, uverbs_attr_type type, uverbs_size size, unsigned ua = UA_OPTIONAL) {
  uverbs_attr_def d;
  d.id = id, d.name = name, d.type = type, d.size = size, d.ua = ua;
  return d;
}
constexpr uverbs_attr_def obj(std::uint16_t id, const char* name, uverbs_attr_type type, std::uint16_t obj_type, uverbs_obj_access access,
                              unsigned ua = UA_OPTIONAL) {
  uverbs_attr_def d;
  d.id = id, d.name = name, d.type = type, d.obj_type = obj_type, d.access = access, d.ua = ua;
  return d;
}
constexpr uverbs_attr_def objs(std::uint16_t id, const char* name, std::uint16_t obj_type, uverbs_obj_access access, std::uint16_t min,
                               std::uint16_t max, unsigned ua = UA_OPTIONAL) {
  uverbs_attr_def d = obj(id, name, UVERBS_ATTR_TYPE_IDRS_ARRAY, obj_type, access, ua);
  d.size = {min, max, false};
  return d;
}
template <std::size_t N>
constexpr uverbs_attr_def enum_in(std::uint16_t id, const char* name, const uverbs_size (&sizes)[N], unsigned ua = UA_OPTIONAL) {
  uverbs_attr_def d;
  d.id = id, d.name = name, d.type = UVERBS_ATTR_TYPE_ENUM_IN, d.enum_sizes = sizes, d.num_enum = N, d.ua = ua;
  return d;
}
}  // namespace uapi_detail

#define UVERBS_ATTR_PTR_IN(id, ...) ::uhca::kernel::uapi_detail::ptr(id, #id, ::uhca::kernel::UVERBS_ATTR_TYPE_PTR_IN, __VA_ARGS__)
#define UVERBS_ATTR_PTR_OUT(id, ...) ::uhca::kernel::uapi_detail::ptr(id, #id, ::uhca::kernel::UVERBS_ATTR_TYPE_PTR_OUT, __VA_ARGS__)
// A 64-bit constant, read with uverbs_get_const.
#define UVERBS_ATTR_CONST_IN(id, ...) UVERBS_ATTR_PTR_IN(id, ::uhca::kernel::UVERBS_ATTR_SIZE(8, 8), ##__VA_ARGS__)
// 32 or 64 flag bits, read with uverbs_get_flags32/64.
#define UVERBS_ATTR_FLAGS_IN(id, ...) UVERBS_ATTR_PTR_IN(id, ::uhca::kernel::UVERBS_ATTR_SIZE(4, 8), ##__VA_ARGS__)
#define UVERBS_ATTR_IDR(id, ...) ::uhca::kernel::uapi_detail::obj(id, #id, ::uhca::kernel::UVERBS_ATTR_TYPE_IDR, __VA_ARGS__)
// Only READ and NEW.
#define UVERBS_ATTR_FD(id, ...) ::uhca::kernel::uapi_detail::obj(id, #id, ::uhca::kernel::UVERBS_ATTR_TYPE_FD, __VA_ARGS__)
#define UVERBS_ATTR_RAW_FD(id, ...) \
  ::uhca::kernel::uapi_detail::ptr(id, #id, ::uhca::kernel::UVERBS_ATTR_TYPE_RAW_FD, ::uhca::kernel::uverbs_size{}, ##__VA_ARGS__)
// (id, object type, READ or WRITE, min count, max count, ua)
#define UVERBS_ATTR_IDRS_ARR(id, ...) ::uhca::kernel::uapi_detail::objs(id, #id, __VA_ARGS__)
// (id, constexpr array of uverbs_size, ua)
#define UVERBS_ATTR_ENUM_IN(id, ...) ::uhca::kernel::uapi_detail::enum_in(id, #id, __VA_ARGS__)
// The driver's part of a core method: two entries of the attribute array.
#define UVERBS_ATTR_UHW()                                                                                      \
  UVERBS_ATTR_PTR_IN(::UVERBS_ATTR_UHW_IN, ::uhca::kernel::UVERBS_ATTR_MIN_SIZE(0), ::uhca::kernel::UA_UDATA), \
      UVERBS_ATTR_PTR_OUT(::UVERBS_ATTR_UHW_OUT, ::uhca::kernel::UVERBS_ATTR_MIN_SIZE(0), ::uhca::kernel::UA_UDATA)

// Whether this device has what the method or object needs (Linux: UAPI_DEF_METHOD_NEEDS_FN, UAPI_DEF_OBJ_NEEDS_FN).
using uapi_supported_fn = bool (*)(const ib_device& dev);
#define UAPI_NEEDS_FN(op) +[](const ::uhca::kernel::ib_device& dev) { return dev.ops.op != nullptr; }

struct uverbs_method_def {
  std::uint16_t id = 0;
  const char* name = "";
  const uverbs_attr_def* attrs = nullptr;
  std::size_t num_attrs = 0;
  // Runs with all attributes checked and objects looked up. nullptr: for a destroy method, nothing more to do; otherwise this
  // definition only adds attributes to a method that is declared elsewhere.
  Status (*handler)(uverbs_attr_bundle& attrs) = nullptr;
  bool destroy = false;  // has one IDR attribute with UVERBS_ACCESS_DESTROY; the object is gone before the handler runs
  uapi_supported_fn supported = nullptr;
};

#define UVERBS_METHOD(id, attrs, handler)                                     \
  ::uhca::kernel::uverbs_method_def {                                         \
    id, #id, attrs, sizeof(attrs) / sizeof(attrs[0]), handler, false, nullptr \
  }
#define UVERBS_METHOD_NEEDS(id, attrs, handler, op)                                     \
  ::uhca::kernel::uverbs_method_def {                                                   \
    id, #id, attrs, sizeof(attrs) / sizeof(attrs[0]), handler, false, UAPI_NEEDS_FN(op) \
  }
#define UVERBS_METHOD_DESTROY(id, attrs)                                     \
  ::uhca::kernel::uverbs_method_def {                                        \
    id, #id, attrs, sizeof(attrs) / sizeof(attrs[0]), nullptr, true, nullptr \
  }

enum rdma_remove_reason : std::uint8_t {
  RDMA_REMOVE_DESTROY,         // the user asked for it
  RDMA_REMOVE_CLOSE,           // the file was closed
  RDMA_REMOVE_DRIVER_REMOVE,   // the device goes away
  RDMA_REMOVE_ABORT,           // creation failed after the hardware object existed
  RDMA_REMOVE_DRIVER_FAILURE,  // could not be destroyed at close: forget it
};

// The kind of an object and how it dies.
struct uverbs_obj_type {
  bool is_fd = false;
  // Destroys uobj.object. An error (EBUSY, ...) leaves the object valid when `why` is DESTROY or CLOSE. FD types: called once,
  // when the uverbs file or the descriptor goes.
  Status (*destroy_object)(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle* attrs) = nullptr;
  // The uobject to allocate (a subclass of ib_uobject); nullptr: a plain one.
  std::shared_ptr<ib_uobject> (*alloc)() = nullptr;
  const char* fd_name = "";  // FD types
  // FD types of messages of any size (attr_bundle.h: MessageSink): what a read answers that has no room for the next one; 0: the core's
  // own event files.
  int short_read = 0;
  bool dmabuf = false;  // FD types whose descriptor is a dma-buf's and outlives the object (DmabufUobject)
};
#define UVERBS_TYPE_ALLOC_IDR(destroy) \
  ::uhca::kernel::uverbs_obj_type {    \
    false, destroy, nullptr, "", 0     \
  }

#define UVERBS_TYPE_ALLOC_MESSAGE_FD(destroy, name, short_read) \
  ::uhca::kernel::uverbs_obj_type {                             \
    true, destroy, nullptr, name, short_read                    \
  }

struct uverbs_object_def {
  std::uint16_t id = 0;
  const char* name = "";
  const uverbs_obj_type* type = nullptr;  // nullptr: no instances (DEVICE), or methods for an object declared elsewhere
  const uverbs_method_def* methods = nullptr;
  std::size_t num_methods = 0;
  uapi_supported_fn supported = nullptr;
};
#define UVERBS_OBJECT(id, type, methods)                                  \
  ::uhca::kernel::uverbs_object_def {                                     \
    id, #id, type, methods, sizeof(methods) / sizeof(methods[0]), nullptr \
  }
#define UVERBS_OBJECT_NEEDS(id, type, methods, op)                                  \
  ::uhca::kernel::uverbs_object_def {                                               \
    id, #id, type, methods, sizeof(methods) / sizeof(methods[0]), UAPI_NEEDS_FN(op) \
  }

// An array of these ends with an entry whose object is nullptr.
struct uapi_definition {
  const uverbs_object_def* object = nullptr;
};

}  // namespace uhca::kernel

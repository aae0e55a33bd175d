// SPDX-License-Identifier: MIT
// What a method's handler gets: the checked attributes, and accessors for them. Linux: struct uverbs_attr_bundle in
// <rdma/uverbs_ioctl.h>, same names. Header-only, so that drivers can use it without a symbol of uverbs.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <list>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "kernel/core/ib_verbs.h"
#include "kernel/mm/uaccess.h"
#include "kernel/uverbs/uapi_def.h"

namespace uhca::kernel {

// Where a driver puts what read() on its FD object returns (UVERBS_TYPE_ALLOC_MESSAGE_FD): one message each. Thread-safe.
class MessageSink {
 public:
  // `until_read`, if any, is cleared when the program has read it. Dropped after close().
  virtual void post(std::vector<std::byte> message, std::shared_ptr<std::atomic<bool>> until_read) = 0;
  // Of all messages, without the 8 bytes (wr_id, cookie) that each begins with.
  virtual std::size_t unread_bytes() = 0;
  static constexpr std::size_t kMessageHead = 8;
  virtual void close() = 0;

 protected:
  ~MessageSink() = default;
};

// The kernel's handle on an object that a program owns. Linux: struct ib_uobject.
struct ib_uobject {
  std::uint64_t user_handle = 0;  // what events carry as `element`
  VerbsFile* ufile = nullptr;     // valid while the object is in its file's list
  ib_ucontext* context = nullptr;
  ib_device* device = nullptr;
  void* object = nullptr;     // the verbs object, owned; destroy_object of the type deletes it
  std::uint32_t id = 0;       // handle, or descriptor number of FD types
  std::uint16_t type_id = 0;  // UVERBS_OBJECT_*
  const uverbs_obj_type* type = nullptr;
  MessageSink* messages = nullptr;  // message files: valid as long as the object
  std::uint64_t mmap_pgoff = 0;     // page offset under which a program may map this object; 0: not mappable
  // Its place among its file's objects, if it is one of them.
  std::list<std::shared_ptr<ib_uobject>>::iterator place;
  bool placed = false;
  // -1: exclusive; n: n readers.
  std::atomic<int> usecnt{0};
  // The hardware object exists although the handler has not returned yet: abort must destroy it.
  bool hw_obj_valid = false;

  virtual ~ib_uobject() = default;
};

struct uverbs_attr {
  const uverbs_attr_def* spec = nullptr;
  std::uint16_t len = 0;
  std::uint16_t uattr_idx = 0;  // position in the user's array
  std::uint16_t flags = 0;      // as the user gave them
  std::uint8_t enum_id = 0;
  std::uint64_t data = 0;                             // inline value, or user pointer
  std::unique_ptr<std::byte[]> alloced;               // UA_ALLOC_AND_COPY with len > 8
  std::shared_ptr<ib_uobject> uobject;                // IDR, FD
  std::vector<std::shared_ptr<ib_uobject>> uobjects;  // IDRS_ARRAY
};

// Inputs of at most 8 bytes are in `data` itself.
inline bool uverbs_attr_ptr_is_inline(const uverbs_attr& a) {
  return a.len <= sizeof a.data;
}

struct uverbs_attr_bundle {
  Udata driver_udata;  // UHW_IN/UHW_OUT; its `bundle` points back here
  Udata ucore;         // write commands: the core's part
  VerbsFile* ufile = nullptr;
  ib_device* device = nullptr;
  ib_ucontext* context = nullptr;  // nullptr before GET_CONTEXT
  ib_uobject* uobject = nullptr;   // destroy methods: the object that was destroyed
  const uverbs_method_def* method = nullptr;
  std::vector<uverbs_attr> attrs;  // in the user's order
  UserPtr user_attrs = 0;          // the user's struct ib_uverbs_attr[]

  uverbs_attr_bundle() { driver_udata.bundle = this; }
  uverbs_attr_bundle(const uverbs_attr_bundle&) = delete;
  uverbs_attr_bundle& operator=(const uverbs_attr_bundle&) = delete;
};

// The bundle behind a driver's udata (for driver attributes of core methods); nullptr when there is none.
inline uverbs_attr_bundle* rdma_udata_to_uverbs_attr_bundle(Udata* udata) {
  return udata ? udata->bundle : nullptr;
}

// nullptr: the user did not pass it (Linux: -ENOENT).
inline const uverbs_attr* uverbs_attr_get(const uverbs_attr_bundle& b, std::uint16_t id) {
  for (const uverbs_attr& a : b.attrs)
    if (a.spec && a.spec->id == id) return &a;
  return nullptr;
}
inline bool uverbs_attr_is_valid(const uverbs_attr_bundle& b, std::uint16_t id) {
  return uverbs_attr_get(b, id) != nullptr;
}

// The object behind an IDR or FD attribute; nullptr when absent.
inline ib_uobject* uverbs_attr_get_uobject(const uverbs_attr_bundle& b, std::uint16_t id) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  return a ? a->uobject.get() : nullptr;
}
template <class T>
T* uverbs_attr_get_obj(const uverbs_attr_bundle& b, std::uint16_t id) {
  ib_uobject* u = uverbs_attr_get_uobject(b, id);
  return u ? static_cast<T*>(u->object) : nullptr;
}
// Elements of an IDRS_ARRAY attribute; empty when absent.
inline const std::vector<std::shared_ptr<ib_uobject>>& uverbs_attr_get_uobjs_arr(const uverbs_attr_bundle& b, std::uint16_t id) {
  static const std::vector<std::shared_ptr<ib_uobject>>& none = *new std::vector<std::shared_ptr<ib_uobject>>();
  const uverbs_attr* a = uverbs_attr_get(b, id);
  return a ? a->uobjects : none;
}
// Bytes; ENOENT.
inline Result<std::size_t> uverbs_attr_get_len(const uverbs_attr_bundle& b, std::uint16_t id) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return Errno{ENOENT};
  return std::size_t{a->len};
}
// ENOENT; the chosen element of an ENUM_IN.
inline Result<std::uint8_t> uverbs_attr_get_enum_id(const uverbs_attr_bundle& b, std::uint16_t id) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return Errno{ENOENT};
  return a->enum_id;
}
// The kernel's copy of an attribute declared with UA_ALLOC_AND_COPY; nullptr when absent.
inline const void* uverbs_attr_get_alloced_ptr(const uverbs_attr_bundle& b, std::uint16_t id) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return nullptr;
  return uverbs_attr_ptr_is_inline(*a) ? static_cast<const void*>(&a->data) : a->alloced.get();
}

// The object exists in hardware now: if the handler fails afterwards, abort destroys it (Linux: uverbs_finalize_uobj_create).
inline void uverbs_finalize_uobj_create(const uverbs_attr_bundle& b, std::uint16_t id) {
  if (ib_uobject* u = uverbs_attr_get_uobject(b, id)) u->hw_obj_valid = true;
}

// Copies the attribute's bytes; the attribute must not be longer than n. ENOENT absent, EINVAL longer, EFAULT.
inline Status uverbs_copy_from(void* to, const uverbs_attr_bundle& b, std::uint16_t id, std::size_t n) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return Errno{ENOENT};
  if (n < a->len) return refuse(EINVAL, "{}: {} bytes given, {} understood", a->spec->name, a->len, n);
  if (uverbs_attr_ptr_is_inline(*a)) {
    std::memcpy(to, &a->data, a->len);
    return success();
  }
  return copy_from_user(to, a->data, a->len);
}
template <class T>
Status uverbs_copy_from(T* to, const uverbs_attr_bundle& b, std::uint16_t id) {
  static_assert(std::is_trivially_copyable_v<T>);
  return uverbs_copy_from(static_cast<void*>(to), b, id, sizeof(T));
}
// The same, but a shorter attribute leaves zeros and a longer one is cut. ENOENT, EFAULT.
inline Status uverbs_copy_from_or_zero(void* to, const uverbs_attr_bundle& b, std::uint16_t id, std::size_t n) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return Errno{ENOENT};
  std::size_t m = std::min<std::size_t>(n, a->len);
  if (uverbs_attr_ptr_is_inline(*a)) {
    std::memcpy(to, &a->data, m);
  } else {
    UHCA_CHECK(copy_from_user(to, a->data, m));
  }
  std::memset(static_cast<std::byte*>(to) + m, 0, n - m);
  return success();
}
template <class T>
Status uverbs_copy_from_or_zero(T* to, const uverbs_attr_bundle& b, std::uint16_t id) {
  static_assert(std::is_trivially_copyable_v<T>);
  return uverbs_copy_from_or_zero(static_cast<void*>(to), b, id, sizeof(T));
}

// Marks an attribute as written (UVERBS_ATTR_F_VALID_OUTPUT). EFAULT.
inline Status uverbs_set_output(const uverbs_attr_bundle& b, const uverbs_attr& a) {
  if (!b.user_attrs) return success();
  std::uint16_t flags = a.flags | UVERBS_ATTR_F_VALID_OUTPUT;
  UserPtr where = b.user_attrs + a.uattr_idx * sizeof(::ib_uverbs_attr) + offsetof(::ib_uverbs_attr, flags);
  return copy_to_user(where, &flags, sizeof flags);
}
// Copies min(n, the attribute's length). ENOENT absent, EFAULT.
inline Status uverbs_copy_to(const uverbs_attr_bundle& b, std::uint16_t id, const void* from, std::size_t n) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return Errno{ENOENT};
  UHCA_CHECK(copy_to_user(a->data, from, std::min<std::size_t>(n, a->len)));
  return uverbs_set_output(b, *a);
}
// The same, and clears what the user has room for beyond n.
inline Status uverbs_copy_to_struct_or_zero(const uverbs_attr_bundle& b, std::uint16_t id, const void* from, std::size_t n) {
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return Errno{ENOENT};
  if (n < a->len) UHCA_CHECK(clear_user(a->data + n, a->len - n));
  return uverbs_copy_to(b, id, from, n);
}
template <class T>
Status uverbs_copy_to(const uverbs_attr_bundle& b, std::uint16_t id, const T& from) {
  static_assert(std::is_trivially_copyable_v<T>);
  return uverbs_copy_to(b, id, static_cast<const void*>(&from), sizeof from);
}
// Linux: IS_UVERBS_COPY_ERR. An absent optional output is no error.
inline Status uverbs_ignore_enoent(Status s) {
  return !s.ok() && s.code() == ENOENT ? success() : std::move(s);
}

// A flags attribute of 4 or 8 bytes; absent: 0. EINVAL for bits outside `allowed`.
inline Status uverbs_get_flags64(std::uint64_t* to, const uverbs_attr_bundle& b, std::uint16_t id, std::uint64_t allowed) {
  *to = 0;
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return success();
  std::uint64_t v;
  if (a->len == 8) {
    v = a->data;
  } else if (a->len == 4) {
    v = static_cast<std::uint32_t>(a->data);
  } else {
    return refuse(EINVAL, "{}: flags of {} bytes", a->spec->name, a->len);
  }
  if (v & ~allowed) return refuse(EINVAL, "{}: unknown flag bits {:#x}", a->spec->name, v & ~allowed);
  *to = v;
  return success();
}
inline Status uverbs_get_flags32(std::uint32_t* to, const uverbs_attr_bundle& b, std::uint16_t id, std::uint64_t allowed) {
  *to = 0;
  std::uint64_t v;
  UHCA_CHECK(uverbs_get_flags64(&v, b, id, allowed));
  if (v > std::numeric_limits<std::uint32_t>::max()) return refuse(EINVAL, "flags {:#x} do not fit into 32 bits", v);
  *to = static_cast<std::uint32_t>(v);
  return success();
}

// A constant; ENOENT absent, EINVAL when it does not fit into *to.
template <class T>
Status uverbs_get_const(T* to, const uverbs_attr_bundle& b, std::uint16_t id) {
  static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
  const uverbs_attr* a = uverbs_attr_get(b, id);
  if (!a) return Errno{ENOENT};
  if constexpr (std::is_signed_v<T>) {
    auto v = static_cast<std::int64_t>(a->data);
    if (v < std::numeric_limits<T>::min() || v > std::numeric_limits<T>::max())
      return refuse(EINVAL, "{}: constant {} out of range", a->spec->name, v);
    *to = static_cast<T>(v);
  } else {
    constexpr std::uint64_t limit = sizeof(T) >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * (sizeof(T) & 7))) - 1;
    if (a->data > limit) return refuse(EINVAL, "{}: constant {:#x} out of range", a->spec->name, a->data);
    *to = static_cast<T>(a->data);
  }
  return success();
}
template <class T>
Status uverbs_get_const_default(T* to, const uverbs_attr_bundle& b, std::uint16_t id, T value) {
  if (!uverbs_attr_is_valid(b, id)) {
    *to = value;
    return success();
  }
  return uverbs_get_const(to, b, id);
}
inline Status uverbs_get_raw_fd(int* to, const uverbs_attr_bundle& b, std::uint16_t id) {
  return uverbs_get_const(to, b, id);
}

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
// RDMA_VERBS_IOCTL: header, attributes, objects, handler, commit or abort; checks and errnos in the kernel's order. Linux:
// drivers/infiniband/core/uverbs_ioctl.c.
#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <limits>

#include "base/inside.h"
#include "base/log.h"
#include "kernel/uverbs/ufile.h"

namespace uhca::kernel {
namespace {

constexpr std::size_t kMaxLength = 4096;  // bytes of one command: a page

// Objects that the parser took or made, undone in reverse order.
struct Held {
  UobjectPtr u;
  uverbs_obj_access access;
};

}  // namespace

struct BundleParser {
  UverbsFile& file;
  const ApiObject& object;
  const ApiMethod& method;
  uverbs_attr_bundle bundle;
  std::vector<::ib_uverbs_attr> uattrs;
  std::vector<Held> held;
  UobjectPtr destroyed;

  BundleParser(UverbsFile& f, const ApiObject& o, const ApiMethod& m) : file(f), object(o), method(m) {}

  template <class... A>
  Errno no(int err, const uverbs_attr_def& a, fmt::format_string<A...> f, A&&... args) {
    return refuse(err, "{}.{} {}: {}", object.name, method.name, a.name, fmt::format(f, std::forward<A>(args)...));
  }

  UserPtr user_data_ptr(std::size_t idx) const {
    return bundle.user_attrs + idx * sizeof(::ib_uverbs_attr) + offsetof(::ib_uverbs_attr, data);
  }

  Status ptr_in(const uverbs_attr_def& spec, const uverbs_size& size, const ::ib_uverbs_attr& ua, std::size_t idx, uverbs_attr& e) {
    bool in = spec.type != UVERBS_ATTR_TYPE_PTR_OUT;
    if (spec.type != UVERBS_ATTR_TYPE_ENUM_IN && ua.attr_data.reserved) return no(EINVAL, spec, "reserved field is not zero");
    if (ua.len < size.min) return no(EINVAL, spec, "{} bytes, at least {} are needed", ua.len, size.min);
    if (ua.len > size.max) {
      if (!size.zero_trailing) return no(EINVAL, spec, "{} bytes, at most {} are known", ua.len, size.max);
      if (in) {
        // Longer than what is known: fine when the rest is zero. (ua.len > size.max >= 8 here, or the value is inline.)
        bool zero;
        if (ua.len <= sizeof ua.data) {
          zero = (ua.data >> (8 * size.max)) == 0;
        } else {
          auto readable = user_is_zero(ua.data + size.max, ua.len - size.max);
          zero = readable.ok() && *readable;  // what cannot be read is not known to be zero
        }
        if (!zero) return no(EOPNOTSUPP, spec, "bytes after the known {} are not zero", size.max);
      }
    }
    e.len = ua.len;
    e.data = ua.data;
    if (in && spec.alloc_and_copy() && ua.len > sizeof ua.data) {
      e.alloced.reset(new (std::nothrow) std::byte[ua.len]);
      if (!e.alloced) return no(ENOMEM, spec, "{} bytes", ua.len);
      if (!copy_from_user(e.alloced.get(), ua.data, ua.len).ok()) return no(EFAULT, spec, "bad pointer {:#x}", ua.data);
    }
    if (spec.is_udata()) {
      Udata& u = bundle.driver_udata;
      if (in) {
        u.inlen = ua.len;
        u.inline_in = ua.data;
        u.inbuf = ua.len <= sizeof ua.data ? user_data_ptr(idx) : ua.data;
        if (!ua.len) u.inbuf = 0;
      } else {
        u.outlen = ua.len;
        u.outbuf = ua.data;
      }
    }
    return success();
  }

  Status attribute(const uverbs_attr_def& spec, const ::ib_uverbs_attr& ua, std::size_t idx) {
    uverbs_attr e;
    e.spec = &spec;
    e.uattr_idx = static_cast<std::uint16_t>(idx);
    e.flags = ua.flags;
    switch (spec.type) {
      case UVERBS_ATTR_TYPE_ENUM_IN:
        if (ua.attr_data.enum_data.elem_id >= spec.num_enum)
          return no(EOPNOTSUPP, spec, "element {} is unknown", ua.attr_data.enum_data.elem_id);
        if (ua.attr_data.enum_data.reserved) return no(EINVAL, spec, "reserved field is not zero");
        e.enum_id = ua.attr_data.enum_data.elem_id;
        UHCA_CHECK(ptr_in(spec, spec.enum_sizes[e.enum_id], ua, idx, e));
        break;
      case UVERBS_ATTR_TYPE_PTR_IN:
      case UVERBS_ATTR_TYPE_PTR_OUT: UHCA_CHECK(ptr_in(spec, spec.size, ua, idx, e)); break;
      case UVERBS_ATTR_TYPE_RAW_FD:
        if (ua.attr_data.reserved || ua.len) return no(EINVAL, spec, "length or reserved field is not zero");
        if (ua.data_s64 < std::numeric_limits<int>::min() || ua.data_s64 > std::numeric_limits<int>::max())
          return no(EINVAL, spec, "descriptor {} is no int", static_cast<std::int64_t>(ua.data_s64));
        e.data = ua.data;
        break;
      case UVERBS_ATTR_TYPE_IDR:
      case UVERBS_ATTR_TYPE_FD:
        if (ua.attr_data.reserved || ua.len) return no(EINVAL, spec, "length or reserved field is not zero");
        UHCA_CHECK(object_attr(spec, ua, idx, e));
        break;
      case UVERBS_ATTR_TYPE_IDRS_ARRAY: UHCA_CHECK(idrs_array(spec, ua, e)); break;
      default: return no(EOPNOTSUPP, spec, "attribute type {}", static_cast<unsigned>(spec.type));
    }
    bundle.attrs.push_back(std::move(e));
    return success();
  }

  Status object_attr(const uverbs_attr_def& spec, const ::ib_uverbs_attr& ua, std::size_t idx, uverbs_attr& e) {
    if (spec.access != UVERBS_ACCESS_NEW) {
      UobjectPtr u = UHCA_TRY(file.lookup(spec.obj_type, ua.data_s64, spec.access));
      if (spec.access != UVERBS_ACCESS_DESTROY) {
        held.push_back({u, spec.access});
      } else {
        destroyed = u;
      }
      e.uobject = std::move(u);
      return success();
    }
    UobjectPtr u = UHCA_TRY(file.alloc_begin(spec.obj_type));
    held.push_back({u, UVERBS_ACCESS_NEW});
    // The id is the user's before the object is: a handler that fails leaves a meaningless number.
    std::uint64_t id = u->id;
    e.uobject = std::move(u);
    if (!copy_to_user(user_data_ptr(idx), &id, sizeof id).ok()) return no(EFAULT, spec, "bad pointer");
    return success();
  }

  Status idrs_array(const uverbs_attr_def& spec, const ::ib_uverbs_attr& ua, uverbs_attr& e) {
    if (ua.attr_data.reserved) return no(EINVAL, spec, "reserved field is not zero");
    if (ua.len % 4) return no(EINVAL, spec, "{} bytes are no array of 32-bit handles", ua.len);
    std::size_t n = ua.len / 4;
    if (n < spec.size.min || n > spec.size.max)
      return no(EINVAL, spec, "{} handles, {} to {} are allowed", n, spec.size.min, spec.size.max);
    std::vector<std::uint32_t> ids(n);
    if (ua.len <= sizeof ua.data) {
      std::memcpy(ids.data(), &ua.data, ua.len);
    } else if (!copy_from_user(ids.data(), ua.data, ua.len).ok()) {
      return no(EFAULT, spec, "bad pointer {:#x}", static_cast<std::uint64_t>(ua.data));
    }
    for (std::uint32_t id : ids) {
      UobjectPtr u = UHCA_TRY(file.lookup(spec.obj_type, id, spec.access));
      held.push_back({u, spec.access});
      e.uobjects.push_back(std::move(u));
    }
    e.len = ua.len;
    e.data = ua.data;
    return success();
  }

  Status parse() {
    bundle.attrs.reserve(uattrs.size());
    for (std::size_t i = 0; i < uattrs.size(); ++i) {
      const ::ib_uverbs_attr& ua = uattrs[i];
      const uverbs_attr_def* spec = nullptr;
      for (const uverbs_attr_def* a : method.attrs)
        if (a->id == ua.attr_id) spec = a;
      if (!spec) {
        if (ua.flags & UVERBS_ATTR_F_MANDATORY)
          return refuse(EPROTONOSUPPORT, "{}.{}: mandatory attribute {:#x} is unknown", object.name, method.name, ua.attr_id);
        continue;
      }
      if (uverbs_attr_is_valid(bundle, ua.attr_id)) return no(EINVAL, *spec, "given twice");
      UHCA_CHECK(attribute(*spec, ua, i));
    }
    for (const uverbs_attr_def* a : method.attrs)
      if (a->mandatory() && !uverbs_attr_is_valid(bundle, a->id)) return no(EINVAL, *a, "mandatory attribute is missing");
    return success();
  }

  Status run() {
    UHCA_CHECK(parse());
    if (method.destroy) {
      UHCA_CHECK(file.destroy(destroyed, &bundle));
      bundle.uobject = destroyed.get();
    }
    if (method.def->handler) {
      Status s = method.def->handler(bundle);
      // EPROTONOSUPPORT tells user space "no such method"; a handler's own must not look like that.
      if (s.code() == EPROTONOSUPPORT) return Errno{EINVAL};
      if (!s.ok()) return s;
    }
    if (const uverbs_attr* out = uverbs_attr_get(bundle, UVERBS_ATTR_UHW_OUT)) UHCA_CHECK(uverbs_set_output(bundle, *out));
    return success();
  }

  void finish(bool ok) {
    for (auto it = held.rbegin(); it != held.rend(); ++it) {
      if (it->access != UVERBS_ACCESS_NEW) {
        UverbsFile::unlock(*it->u, it->access);
      } else if (ok) {
        file.commit(it->u);
      } else {
        file.abort(it->u, &bundle);
      }
    }
  }
};

Status UverbsFile::ioctl(unsigned long cmd, UserPtr arg) {
  inside::Guard guard;
  if (cmd != RDMA_VERBS_IOCTL) return refuse(ENOTTY, "ioctl {:#x}: only RDMA_VERBS_IOCTL is known", cmd);
  if (!hw_destroy_rwsem_.try_lock_shared()) return refuse(EIO, "ioctl: the device file is being closed");
  std::shared_lock held(hw_destroy_rwsem_, std::adopt_lock);
  if (closed_) return refuse(EIO, "ioctl: the device file is closed");
  return run(arg);
}

Status UverbsFile::run(UserPtr arg) {
  ::ib_uverbs_ioctl_hdr hdr;
  static_assert(sizeof hdr == 24 && sizeof(::ib_uverbs_attr) == 16);
  if (!copy_from_user(&hdr, arg, sizeof hdr).ok()) return refuse(EFAULT, "ioctl: bad header pointer {:#x}", arg);
  if (hdr.length > kMaxLength || hdr.length != sizeof hdr + hdr.num_attrs * sizeof(::ib_uverbs_attr))
    return refuse(EINVAL, "ioctl: length {} does not fit {} attributes", hdr.length, hdr.num_attrs);
  if (hdr.reserved1 || hdr.reserved2) return refuse(EPROTONOSUPPORT, "ioctl: reserved fields are not zero");
  if (hdr.driver_id != dev_.ops.driver_id)
    return refuse(EINVAL, "ioctl: driver id {}, the device has {}", hdr.driver_id, dev_.ops.driver_id);
  const ApiObject* obj = tree_.object(hdr.object_id);
  const ApiMethod* m = obj ? tree_.method(*obj, hdr.method_id) : nullptr;
  if (!m)
    return refuse(EPROTONOSUPPORT, "ioctl: object {} ({:#x}) method {:#x} is unknown or not supported by {}", obj ? obj->name : "?",
                  hdr.object_id, hdr.method_id, dev_.name);
  BundleParser p(*this, *obj, *m);
  p.bundle.ufile = this;
  p.bundle.device = &dev_;
  p.bundle.context = context();
  p.bundle.method = m->def;
  p.bundle.user_attrs = arg + sizeof hdr;
  p.uattrs.resize(hdr.num_attrs);
  if (!copy_from_user(p.uattrs.data(), p.bundle.user_attrs, hdr.num_attrs * sizeof(::ib_uverbs_attr)).ok())
    return refuse(EFAULT, "ioctl: bad attribute array");

  Status s = p.run();
  p.finish(s.ok());
  return s;
}

}  // namespace uhca::kernel

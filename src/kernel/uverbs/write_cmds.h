// SPDX-License-Identifier: MIT
// The legacy write commands as a table. Linux: drivers/infiniband/core/uverbs_cmd.c (uverbs_def_write_intf).
#pragma once

#include <cstdint>
#include <span>

#include "kernel/uverbs/ufile.h"

namespace uhca::kernel {

struct WriteCmd {
  std::uint32_t number = 0;
  bool ex = false;
  const char* name = "";
  std::uint16_t req_size = 0;   // bytes of the core's request that are needed
  std::uint16_t resp_size = 0;  // bytes of the core's response that must have room
  bool has_resp = false;        // plain: the request starts with the response pointer
  bool has_udata = false;       // plain: what follows request and response is the driver's
  // nullptr, or not supported: EOPNOTSUPP, without looking at sizes.
  Status (*handler)(uverbs_attr_bundle& b) = nullptr;
  uapi_supported_fn supported = nullptr;
};

// All commands of Linux 7.2 (35 plain, 12 extended).
std::span<const WriteCmd> uverbs_write_cmds();

// Handlers (write_*.cpp).
namespace write_cmd {
Status get_context(uverbs_attr_bundle&);
Status query_device(uverbs_attr_bundle&);
Status ex_query_device(uverbs_attr_bundle&);
Status query_port(uverbs_attr_bundle&);
Status alloc_pd(uverbs_attr_bundle&);
Status dealloc_pd(uverbs_attr_bundle&);
Status reg_mr(uverbs_attr_bundle&);
Status rereg_mr(uverbs_attr_bundle&);
Status dereg_mr(uverbs_attr_bundle&);
Status alloc_mw(uverbs_attr_bundle&);
Status dealloc_mw(uverbs_attr_bundle&);
Status create_comp_channel(uverbs_attr_bundle&);
Status create_cq(uverbs_attr_bundle&);
Status ex_create_cq(uverbs_attr_bundle&);
Status resize_cq(uverbs_attr_bundle&);
Status destroy_cq(uverbs_attr_bundle&);
Status ex_modify_cq(uverbs_attr_bundle&);
Status create_qp(uverbs_attr_bundle&);
Status ex_create_qp(uverbs_attr_bundle&);
Status query_qp(uverbs_attr_bundle&);
Status modify_qp(uverbs_attr_bundle&);
Status ex_modify_qp(uverbs_attr_bundle&);
Status destroy_qp(uverbs_attr_bundle&);
Status create_ah(uverbs_attr_bundle&);
Status destroy_ah(uverbs_attr_bundle&);
Status attach_mcast(uverbs_attr_bundle&);
Status detach_mcast(uverbs_attr_bundle&);
Status create_srq(uverbs_attr_bundle&);
Status create_xsrq(uverbs_attr_bundle&);
Status modify_srq(uverbs_attr_bundle&);
Status query_srq(uverbs_attr_bundle&);
Status destroy_srq(uverbs_attr_bundle&);
Status open_xrcd(uverbs_attr_bundle&);
Status close_xrcd(uverbs_attr_bundle&);
Status open_qp(uverbs_attr_bundle&);
Status ex_create_wq(uverbs_attr_bundle&);
Status ex_modify_wq(uverbs_attr_bundle&);
Status ex_destroy_wq(uverbs_attr_bundle&);
Status ex_create_rwq_ind_table(uverbs_attr_bundle&);
Status ex_destroy_rwq_ind_table(uverbs_attr_bundle&);
Status ex_create_flow(uverbs_attr_bundle&);
Status ex_destroy_flow(uverbs_attr_bundle&);
}  // namespace write_cmd

// The request: longer ones must be zero beyond what is known (EOPNOTSUPP), shorter ones read as zero there. EFAULT.
Status uverbs_request(const uverbs_attr_bundle& b, void* req, std::size_t n);
// The response: cut to the room that there is; more room is cleared. EFAULT.
Status uverbs_response(uverbs_attr_bundle& b, const void* resp, std::size_t n);

// A request with a list behind it, read piece by piece. ENOSPC: it ends too early; EFAULT.
class RequestReader {
 public:
  explicit RequestReader(const uverbs_attr_bundle& b) : at_(b.ucore.inbuf), left_(b.ucore.inlen) {}
  Status next(void* to, std::size_t n) {
    if (n > left_) return Errno{ENOSPC};
    UHCA_CHECK(copy_from_user(to, at_, n));
    at_ += n;
    left_ -= n;
    return success();
  }
  // EOPNOTSUPP: what is left is not zero.
  Status finish() const {
    auto zero = user_is_zero(at_, left_);
    return zero.ok() && *zero ? success() : Status(Errno{EOPNOTSUPP});
  }

 private:
  UserPtr at_;
  std::size_t left_;
};

// A new object for the length of a handler: aborted unless commit() is reached.
class NewObject {
 public:
  static Result<NewObject> begin(uverbs_attr_bundle& b, std::uint16_t type) {
    return NewObject(b, UHCA_TRY(ufile_of(b).alloc_begin(type)));
  }
  NewObject(NewObject&& o) noexcept : b_(o.b_), u_(std::move(o.u_)) {}
  NewObject& operator=(NewObject&&) = delete;
  ~NewObject() {
    if (u_) ufile_of(b_).abort(u_, &b_);
  }
  ib_uobject* operator->() const { return u_.get(); }
  template <class T>
  T& as() const {
    return static_cast<T&>(*u_);
  }
  void set(void* object) {
    u_->object = object;
    u_->hw_obj_valid = true;
  }
  Status commit() {
    ufile_of(b_).commit(u_);
    u_.reset();
    return success();
  }

 private:
  NewObject(uverbs_attr_bundle& b, UobjectPtr u) : b_(b), u_(std::move(u)) {}
  uverbs_attr_bundle& b_;
  UobjectPtr u_;
};

inline Result<UobjRef> read_object(uverbs_attr_bundle& b, std::uint16_t type, std::int64_t id) {
  return UobjRef(UHCA_TRY(ufile_of(b).lookup(type, id, UVERBS_ACCESS_READ)), UVERBS_ACCESS_READ);
}
inline Status perform_destroy(uverbs_attr_bundle& b, std::uint16_t type, std::uint32_t id, UobjectPtr* gone = nullptr) {
  UobjectPtr u = UHCA_TRY(ufile_of(b).lookup(type, id, UVERBS_ACCESS_DESTROY));
  UHCA_CHECK(ufile_of(b).destroy(u, &b));
  if (gone) *gone = std::move(u);
  return success();
}

}  // namespace uhca::kernel

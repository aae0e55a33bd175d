// SPDX-License-Identifier: MIT
// Write commands of XRC domains, and which file stands for which domain. Linux: uverbs_cmd.c (ib_uverbs_open_xrcd, xrcd_table_*).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>
#include <vector>

#include "base/log.h"
#include "kernel/uverbs/std_types.h"
#include "kernel/uverbs/write_cmds.h"

namespace uhca::kernel {
namespace {

// Domains that were opened by way of a file, of every device of this instance.
struct FileDomains {
  std::mutex lock;
  std::vector<ib_xrcd*> all;
};
FileDomains& file_domains() {
  static FileDomains& d = *new FileDomains;
  return d;
}

ib_xrcd* find(FileDomains& d, const ib_device& dev, const struct stat& st) {
  for (ib_xrcd* x : d.all)
    if (x->device == &dev && x->file_dev == st.st_dev && x->file_ino == st.st_ino) return x;
  return nullptr;
}

}  // namespace

void forget_file_domains() {
  new (&file_domains()) FileDomains;
}

Status uverbs_dealloc_xrcd(ib_xrcd& xrcd, rdma_remove_reason why) {
  FileDomains& d = file_domains();
  std::lock_guard g(d.lock);
  if (xrcd.has_file && xrcd.usecnt.fetch_sub(1) > 1) return success();
  if (why != RDMA_REMOVE_DRIVER_FAILURE) {
    if (Status s = ib_dealloc_xrcd(xrcd); !s.ok()) {
      if (xrcd.has_file) xrcd.usecnt.fetch_add(1);
      return s;
    }
  }
  if (xrcd.has_file) std::erase(d.all, &xrcd);
  delete &xrcd;
  return success();
}

namespace write_cmd {

Status open_xrcd(uverbs_attr_bundle& b) {
  ::ib_uverbs_open_xrcd cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  FileDomains& d = file_domains();
  std::lock_guard g(d.lock);
  ib_xrcd* shared = nullptr;
  struct stat st {};
  bool has_file = static_cast<std::int32_t>(cmd.fd) != -1;
  if (has_file) {
    if (syscall(SYS_fstat, static_cast<std::int32_t>(cmd.fd), &st) != 0)
      return refuse(EBADF, "open_xrcd: descriptor {}", static_cast<std::int32_t>(cmd.fd));
    shared = find(d, *b.device, st);
    if (!shared && !(cmd.oflags & O_CREAT)) return refuse(EAGAIN, "open_xrcd: the file has no XRC domain, and O_CREAT is not given");
    if (shared && (cmd.oflags & O_EXCL)) return refuse(EINVAL, "open_xrcd: the file has an XRC domain, and O_EXCL is given");
  }
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_XRCD));
  ::ib_uverbs_open_xrcd_resp resp{};
  resp.xrcd_handle = u->id;
  // The answer goes out before the domain exists: after that nothing can fail, and the lock of the table is not taken twice.
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  if (!shared) {
    auto fresh = UHCA_TRY(ib_alloc_xrcd(*b.device, &b.driver_udata));
    shared = fresh.release();
    if (has_file) {
      shared->has_file = true;
      shared->file_dev = st.st_dev;
      shared->file_ino = st.st_ino;
      d.all.push_back(shared);
    }
  }
  if (has_file) shared->usecnt.fetch_add(1);
  u.set(shared);
  return u.commit();
}

Status close_xrcd(uverbs_attr_bundle& b) {
  ::ib_uverbs_close_xrcd cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  return perform_destroy(b, UVERBS_OBJECT_XRCD, cmd.xrcd_handle);
}

Status open_qp(uverbs_attr_bundle& b) {
  ::ib_uverbs_open_qp cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_QP));
  auto ref = read_object(b, UVERBS_OBJECT_XRCD, cmd.pd_handle);
  if (!ref.ok()) return refuse(EINVAL, "open_qp: XRC domain {} does not exist", cmd.pd_handle);
  auto* xrcd = ref->obj<ib_xrcd>();
  if (!xrcd) return refuse(EINVAL, "open_qp: the XRC domain is gone");
  auto qp = UHCA_TRY(ib_open_qp(*xrcd, cmd.qpn, static_cast<ib_qp_type>(cmd.qp_type)));
  auto& uq = u.as<UqpObject>();
  uq.user_handle = cmd.user_handle;
  uq.async = ufile_of(b).default_async();
  uq.xrcd.take(ref->ptr());
  qp->qp_context = &uq;
  qp->event_handler = uverbs_qp_event;
  ::ib_uverbs_create_qp_resp resp{};
  resp.qpn = qp->qp_num;
  resp.qp_handle = u->id;
  u.set(qp.release());
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

}  // namespace write_cmd
}  // namespace uhca::kernel

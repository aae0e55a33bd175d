// SPDX-License-Identifier: MIT
// The core's own uobjects, and what ioctl methods and write commands share. Linux: core/uverbs.h, uverbs_std_types*.c.
#pragma once

#include "kernel/uverbs/ufile.h"
#include "uapi/rdma_next.h"

namespace uhca::kernel {

// An object that raises async events. Linux: ib_uevent_object.
struct UeventObject : ib_uobject {
  std::shared_ptr<EventFile> async;
  EventSource async_source;
  std::uint32_t async_events_reported = 0;  // set when the object is destroyed
};
struct UcqObject : UeventObject {
  std::shared_ptr<EventFile> comp;
  EventSource comp_source;
  std::uint32_t comp_events_reported = 0;
};
// MRs and friends keep nothing of their own: their PD's use count is in the verbs object.

// An XRC domain's handle. Linux: ib_uxrcd_object.
struct UxrcdObject : ib_uobject {
  std::atomic<int> refcnt{0};  // SRQs and QPs made with it
};
// What was made with an XRC domain's handle keeps it from being destroyed.
class XrcdHold {
 public:
  void take(const UobjectPtr& u) {
    u_ = std::static_pointer_cast<UxrcdObject>(u);
    u_->refcnt.fetch_add(1);
  }
  void drop() {
    if (u_) u_->refcnt.fetch_sub(1);
    u_.reset();
  }
  ~XrcdHold() { drop(); }

 private:
  std::shared_ptr<UxrcdObject> u_;
};
struct UsrqObject : UeventObject {
  XrcdHold xrcd;
};
// A multicast group that a QP was attached to.
struct McastEntry {
  ib_gid gid{};
  std::uint16_t lid = 0;
  bool operator==(const McastEntry&) const = default;
};
struct UqpObject : UeventObject {
  XrcdHold xrcd;
  std::mutex mcast_lock;  // held across the driver's attach and detach
  std::vector<McastEntry> mcast;
};
struct UwqObject : UeventObject {};
// Counters that a rule counts in stay as long as the rule.
struct UflowObject : ib_uobject {
  std::vector<ib_counters*> counters;
  void drop() {
    for (ib_counters* c : counters) c->usecnt.fetch_sub(1);
    counters.clear();
  }
};
// An opener of the domain is gone; the last one ends it (core/xrc, with the table of files of write_xrc.cpp).
Status uverbs_dealloc_xrcd(ib_xrcd& xrcd, rdma_remove_reason why);
// In a forked child: the table of files is empty, and its lock is free whoever held it in the parent.
void forget_file_domains();

struct CreateCqArgs {
  std::uint64_t user_handle = 0;
  ib_cq_init_attr attr;
  std::shared_ptr<EventFile> comp;   // nullptr: no channel
  std::shared_ptr<EventFile> async;  // nullptr: the default one
};
// Creates the CQ behind `u`. EINVAL: cqe 0, comp_vector out of range; else the driver's.
Status uverbs_create_cq(uverbs_attr_bundle& attrs, UcqObject& u, const CreateCqArgs& args);

struct CreateQpArgs {
  std::uint64_t user_handle = 0;
  ib_pd* pd = nullptr;  // nullptr: XRC_TGT
  UobjectPtr xrcd;      // XRC_TGT
  ib_qp_init_attr attr;
  std::shared_ptr<EventFile> async;
};
Status uverbs_create_qp(uverbs_attr_bundle& attrs, UqpObject& u, CreateQpArgs& args);
// The types that programs may create, before any object is looked up. EINVAL, EPERM.
Status uverbs_check_qp_type(unsigned type);
void uverbs_qp_event(ib_qp*, std::uint32_t ib_event, void* uobject);

struct CreateSrqArgs {
  std::uint64_t user_handle = 0;
  ib_pd* pd = nullptr;
  UobjectPtr xrcd;  // XRC
  ib_srq_init_attr attr;
  std::shared_ptr<EventFile> async;
};
Status uverbs_create_srq(uverbs_attr_bundle& attrs, UsrqObject& u, CreateSrqArgs& args);

struct CreateWqArgs {
  std::uint64_t user_handle = 0;
  ib_pd* pd = nullptr;
  ib_wq_init_attr attr;
  std::shared_ptr<EventFile> async;
};
Status uverbs_create_wq(uverbs_attr_bundle& attrs, UwqObject& u, CreateWqArgs& args);

Status uverbs_reg_mr(uverbs_attr_bundle& attrs, ib_uobject& u, ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova,
                     std::uint32_t access);

// Opens an async file for the device's events; the first one becomes the default.
void uverbs_init_async_file(UverbsFile& file, FdUobject& u);

// The async file to use: the named one or the default.
std::shared_ptr<EventFile> uverbs_async_file(UverbsFile& file, const std::shared_ptr<EventFile>& named);

// What QUERY_PORT answers, for write and ioctl.
void uverbs_fill_port(ib_device& dev, const ib_port_attr& attr, ::ib_uverbs_query_port_resp& resp);

}  // namespace uhca::kernel

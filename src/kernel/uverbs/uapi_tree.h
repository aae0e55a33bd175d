// SPDX-License-Identifier: MIT
// The ioctl tree of one device: the core's declarations and the driver's, merged, less what the device does not support.
// Linux: drivers/infiniband/core/uverbs_uapi.c.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel/uverbs/uapi_def.h"

namespace uhca::kernel {

struct ApiMethod {
  std::uint16_t id = 0;
  const char* name = "";
  const uverbs_method_def* def = nullptr;
  std::vector<const uverbs_attr_def*> attrs;
  bool destroy = false;
  bool has_udata = false;
};

struct ApiObject {
  std::uint16_t id = 0;
  const char* name = "";
  const uverbs_obj_type* type = nullptr;
  std::vector<ApiMethod> methods;
};

class UapiTree {
 public:
  explicit UapiTree(const ib_device& dev);
  // nullptr: unknown or not supported by the device.
  const ApiObject* object(std::uint16_t id) const;
  const ApiMethod* method(const ApiObject& obj, std::uint16_t id) const;

 private:
  void add(const ib_device& dev, const uverbs_object_def& def);
  std::vector<ApiObject> objects_;
};

// The core's part (std_*.cpp).
extern const uverbs_object_def uverbs_def_device, uverbs_def_pd, uverbs_def_mr, uverbs_def_cq, uverbs_def_qp, uverbs_def_async_event,
    uverbs_def_comp_channel, uverbs_def_ah, uverbs_def_mw, uverbs_def_srq, uverbs_def_xrcd, uverbs_def_wq, uverbs_def_rwq_ind_tbl,
    uverbs_def_flow, uverbs_def_counters, uverbs_def_dm, uverbs_def_dmabuf;

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
#include "kernel/uverbs/uapi_tree.h"

#include <algorithm>

namespace uhca::kernel {

void UapiTree::add(const ib_device& dev, const uverbs_object_def& def) {
  if (def.supported && !def.supported(dev)) return;
  auto obj = std::find_if(objects_.begin(), objects_.end(), [&](const ApiObject& o) { return o.id == def.id; });
  if (obj == objects_.end()) {
    // Methods for an object that the core lacks, or that was disabled: nothing to add them to.
    if (!def.type && def.id != UVERBS_OBJECT_DEVICE && !(def.id & 0x1000)) return;
    objects_.push_back({def.id, def.name, def.type, {}});
    obj = objects_.end() - 1;
  }
  for (const uverbs_method_def& m : std::span(def.methods, def.num_methods)) {
    if (m.supported && !m.supported(dev)) continue;
    auto have = std::find_if(obj->methods.begin(), obj->methods.end(), [&](const ApiMethod& x) { return x.id == m.id; });
    if (have == obj->methods.end()) {
      if (!m.handler && !m.destroy) continue;
      obj->methods.push_back({m.id, m.name, &m, {}, m.destroy, false});
      have = obj->methods.end() - 1;
    }
    for (const uverbs_attr_def& a : std::span(m.attrs, m.num_attrs)) {
      have->attrs.push_back(&a);
      have->has_udata |= a.is_udata();
    }
  }
}

UapiTree::UapiTree(const ib_device& dev) {
  for (const uverbs_object_def* d :
       {&uverbs_def_device, &uverbs_def_pd, &uverbs_def_mr, &uverbs_def_cq, &uverbs_def_qp, &uverbs_def_async_event,
        &uverbs_def_comp_channel, &uverbs_def_ah, &uverbs_def_mw, &uverbs_def_srq, &uverbs_def_xrcd, &uverbs_def_wq,
        &uverbs_def_rwq_ind_tbl, &uverbs_def_flow, &uverbs_def_counters, &uverbs_def_dm, &uverbs_def_dmabuf})
    add(dev, *d);
  for (const uapi_definition* d = dev.ops.driver_def; d && d->object; ++d) add(dev, *d->object);

  // A method that cannot do without an object which this device lacks goes; an optional attribute for it is unknown.
  for (ApiObject& o : objects_) {
    for (auto m = o.methods.begin(); m != o.methods.end();) {
      bool gone = false;
      auto lacks = [&](const uverbs_attr_def* a) {
        bool refers = a->type == UVERBS_ATTR_TYPE_IDR || a->type == UVERBS_ATTR_TYPE_FD || a->type == UVERBS_ATTR_TYPE_IDRS_ARRAY;
        if (!refers || a->obj_type == UVERBS_IDR_ANY_OBJECT || object(a->obj_type)) return false;
        gone |= a->mandatory();
        return true;
      };
      m->attrs.erase(std::remove_if(m->attrs.begin(), m->attrs.end(), lacks), m->attrs.end());
      if (gone) {
        m = o.methods.erase(m);
      } else {
        ++m;
      }
    }
  }
}

const ApiObject* UapiTree::object(std::uint16_t id) const {
  for (const ApiObject& o : objects_)
    if (o.id == id) return &o;
  return nullptr;
}

const ApiMethod* UapiTree::method(const ApiObject& obj, std::uint16_t id) const {
  for (const ApiMethod& m : obj.methods)
    if (m.id == id) return &m;
  return nullptr;
}

}  // namespace uhca::kernel

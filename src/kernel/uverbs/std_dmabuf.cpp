// SPDX-License-Identifier: MIT
// What a program may map of the device, as a dma-buf. Linux: uverbs_std_types_dmabuf.c.
#include "base/log.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

using namespace uapi;

Status destroy(ib_uobject&, rdma_remove_reason, uverbs_attr_bundle*) {
  return success();  // the descriptor is all there is: what it shows goes with its own object
}

Status alloc(uverbs_attr_bundle& b) {
  auto& u = static_cast<DmabufUobject&>(*uverbs_attr_get_uobject(b, UVERBS_ATTR_ALLOC_DMABUF_HANDLE));
  std::uint64_t pgoff = 0;
  UHCA_CHECK(uverbs_get_const(&pgoff, b, UVERBS_ATTR_ALLOC_DMABUF_PGOFF));
  const std::uint64_t page = 4096;
  auto buf = UHCA_TRY(b.device->ops.export_mmap(*u.context, pgoff / page));
  return u.dmabuf.bind(std::move(buf));
}

constexpr uverbs_attr_def kAlloc[] = {
    UVERBS_ATTR_FD(UVERBS_ATTR_ALLOC_DMABUF_HANDLE, uapi::UVERBS_OBJECT_DMABUF, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_ALLOC_DMABUF_PGOFF, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {UVERBS_METHOD(UVERBS_METHOD_DMABUF_ALLOC, kAlloc, alloc)};
constexpr uverbs_obj_type kType = {true, destroy, nullptr, "[dmabuf]", 0, true};

}  // namespace

constinit const uverbs_object_def uverbs_def_dmabuf = UVERBS_OBJECT_NEEDS(uapi::UVERBS_OBJECT_DMABUF, &kType, kMethods, export_mmap);

}  // namespace uhca::kernel

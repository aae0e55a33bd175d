// SPDX-License-Identifier: MIT
// Memory regions. Linux: uverbs_std_types_mr.c.
#include <unistd.h>

#include <vector>

#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

using namespace uapi;

constexpr std::uint64_t kAccessFlags = 0x3ff | ::IB_UVERBS_ACCESS_OPTIONAL_RANGE;
constexpr std::uint64_t kDmabufAccessFlags = 0xf | ::IB_UVERBS_ACCESS_RELAXED_ORDERING;  // local write, remote write, read and atomic

Status same_in_page(const char* what, std::uint64_t address, std::uint64_t iova) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (((address ^ iova) & (page - 1)) == 0) return success();
  return refuse(EINVAL, "{}: {:#x} and iova {:#x} differ within a page", what, address, iova);
}

Status destroy_mr(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* mr = static_cast<ib_mr*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_dereg_mr(*mr));
  delete mr;
  return success();
}

Status copy_keys(uverbs_attr_bundle& b, const ib_mr& mr, std::uint16_t lkey, std::uint16_t rkey) {
  UHCA_CHECK(uverbs_copy_to(b, lkey, mr.lkey));
  return uverbs_copy_to(b, rkey, mr.rkey);
}

void give(ib_uobject& u, std::unique_ptr<ib_mr> mr) {
  u.object = mr.release();
  u.hw_obj_valid = true;
}

Status reg_mr(uverbs_attr_bundle& b) {
  ib_uobject& u = *uverbs_attr_get_uobject(b, UVERBS_ATTR_REG_MR_HANDLE);
  ib_pd& pd = *uverbs_attr_get_obj<ib_pd>(b, UVERBS_ATTR_REG_MR_PD_HANDLE);
  std::uint64_t iova = 0, length = 0, addr = 0, fd_offset = 0;
  UHCA_CHECK(uverbs_copy_from(&iova, b, UVERBS_ATTR_REG_MR_IOVA));
  UHCA_CHECK(uverbs_copy_from(&length, b, UVERBS_ATTR_REG_MR_LENGTH));
  const bool has_fd = uverbs_attr_is_valid(b, UVERBS_ATTR_REG_MR_FD), has_addr = uverbs_attr_is_valid(b, UVERBS_ATTR_REG_MR_ADDR);
  const bool has_offset = uverbs_attr_is_valid(b, UVERBS_ATTR_REG_MR_FD_OFFSET);
  if (has_addr) UHCA_CHECK(uverbs_copy_from(&addr, b, UVERBS_ATTR_REG_MR_ADDR));
  if (has_offset) UHCA_CHECK(uverbs_copy_from(&fd_offset, b, UVERBS_ATTR_REG_MR_FD_OFFSET));
  int fd = -1;
  if (has_fd) UHCA_CHECK(uverbs_get_raw_fd(&fd, b, UVERBS_ATTR_REG_MR_FD));
  if (has_fd && !b.device->ops.reg_user_mr_dmabuf) return refuse(EOPNOTSUPP, "reg_mr: {} registers no dma-bufs", b.device->name);
  if (has_fd && (!has_offset || has_addr)) return refuse(EINVAL, "reg_mr: a descriptor needs FD_OFFSET and no ADDR");
  if (!has_fd && (!has_addr || has_offset)) return refuse(EINVAL, "reg_mr: needs ADDR, or FD and FD_OFFSET");
  UHCA_CHECK(same_in_page("reg_mr", has_fd ? fd_offset : addr, iova));
  std::uint32_t access = 0;
  UHCA_CHECK(uverbs_get_flags32(&access, b, UVERBS_ATTR_REG_MR_ACCESS_FLAGS, has_fd ? kDmabufAccessFlags : kAccessFlags));
  if (has_fd) {
    give(u, UHCA_TRY(ib_reg_user_mr_dmabuf(pd, fd_offset, length, iova, fd, access, &b)));
  } else {
    UHCA_CHECK(uverbs_reg_mr(b, u, pd, addr, length, iova, access));
  }
  return copy_keys(b, *static_cast<ib_mr*>(u.object), UVERBS_ATTR_REG_MR_RESP_LKEY, UVERBS_ATTR_REG_MR_RESP_RKEY);
}

Status reg_dmabuf_mr(uverbs_attr_bundle& b) {
  ib_uobject& u = *uverbs_attr_get_uobject(b, UVERBS_ATTR_REG_DMABUF_MR_HANDLE);
  ib_pd& pd = *uverbs_attr_get_obj<ib_pd>(b, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE);
  std::uint64_t offset = 0, length = 0, iova = 0;
  std::uint32_t fd = 0, access = 0;
  UHCA_CHECK(uverbs_copy_from(&offset, b, UVERBS_ATTR_REG_DMABUF_MR_OFFSET));
  UHCA_CHECK(uverbs_copy_from(&length, b, UVERBS_ATTR_REG_DMABUF_MR_LENGTH));
  UHCA_CHECK(uverbs_copy_from(&iova, b, UVERBS_ATTR_REG_DMABUF_MR_IOVA));
  UHCA_CHECK(same_in_page("reg_dmabuf_mr", offset, iova));
  UHCA_CHECK(uverbs_copy_from(&fd, b, UVERBS_ATTR_REG_DMABUF_MR_FD));
  UHCA_CHECK(uverbs_get_flags32(&access, b, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, kDmabufAccessFlags));
  give(u, UHCA_TRY(ib_reg_user_mr_dmabuf(pd, offset, length, iova, static_cast<int>(fd), access, &b)));
  return copy_keys(b, *static_cast<ib_mr*>(u.object), UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY);
}

Status query_mr(uverbs_attr_bundle& b) {
  const ib_mr& mr = *uverbs_attr_get_obj<ib_mr>(b, UVERBS_ATTR_QUERY_MR_HANDLE);
  UHCA_CHECK(uverbs_copy_to(b, UVERBS_ATTR_QUERY_MR_RESP_LKEY, mr.lkey));
  UHCA_CHECK(uverbs_copy_to(b, UVERBS_ATTR_QUERY_MR_RESP_RKEY, mr.rkey));
  UHCA_CHECK(uverbs_copy_to(b, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, mr.length));
  return uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_QUERY_MR_RESP_IOVA, mr.iova));
}

Status advise_mr(uverbs_attr_bundle& b) {
  ib_pd& pd = *uverbs_attr_get_obj<ib_pd>(b, UVERBS_ATTR_ADVISE_MR_PD_HANDLE);
  std::uint32_t advice = 0, flags = 0;
  UHCA_CHECK(uverbs_get_const(&advice, b, UVERBS_ATTR_ADVISE_MR_ADVICE));
  UHCA_CHECK(uverbs_get_flags32(&flags, b, UVERBS_ATTR_ADVISE_MR_FLAGS, ::IB_UVERBS_ADVISE_MR_FLAG_FLUSH));
  std::size_t len = UHCA_TRY(uverbs_attr_get_len(b, UVERBS_ATTR_ADVISE_MR_SGE_LIST));
  if (len % sizeof(::ib_uverbs_sge)) return refuse(EINVAL, "advise_mr: {} bytes are no SGE list", len);
  std::vector<::ib_uverbs_sge> sges(len / sizeof(::ib_uverbs_sge));
  std::memcpy(sges.data(), uverbs_attr_get_alloced_ptr(b, UVERBS_ATTR_ADVISE_MR_SGE_LIST), len);
  return b.device->ops.advise_mr(pd, advice, flags, sges.data(), sges.size(), &b);
}

Status reg_dm_mr(uverbs_attr_bundle& b) {
  constexpr std::uint32_t zero_based = 1 << 5;
  ib_uobject& u = *uverbs_attr_get_uobject(b, UVERBS_ATTR_REG_DM_MR_HANDLE);
  ib_dm& dm = *uverbs_attr_get_obj<ib_dm>(b, UVERBS_ATTR_REG_DM_MR_DM_HANDLE);
  ib_pd& pd = *uverbs_attr_get_obj<ib_pd>(b, UVERBS_ATTR_REG_DM_MR_PD_HANDLE);
  ib_dm_mr_attr attr;
  UHCA_CHECK(uverbs_copy_from(&attr.offset, b, UVERBS_ATTR_REG_DM_MR_OFFSET));
  UHCA_CHECK(uverbs_copy_from(&attr.length, b, UVERBS_ATTR_REG_DM_MR_LENGTH));
  UHCA_CHECK(uverbs_get_flags32(&attr.access_flags, b, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, kAccessFlags));
  if (!(attr.access_flags & zero_based))
    return refuse(EINVAL, "reg_dm_mr: access {:#x}: MRs of device memory are zero-based", attr.access_flags);
  give(u, UHCA_TRY(ib_reg_dm_mr(pd, dm, attr, &b)));
  return copy_keys(b, *static_cast<ib_mr*>(u.object), UVERBS_ATTR_REG_DM_MR_RESP_LKEY, UVERBS_ATTR_REG_DM_MR_RESP_RKEY);
}

constexpr uverbs_attr_def kRegDmMr[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_DM_MR_HANDLE, UVERBS_OBJECT_MR, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_DM_MR_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_DM_MR_LENGTH, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS),
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, UVERBS_OBJECT_DM, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kRegMr[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_MR_HANDLE, UVERBS_OBJECT_MR, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_MR_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    // No device here makes DMA handles: the look-up refuses every one.
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_MR_DMA_HANDLE, uapi::UVERBS_OBJECT_DMAH, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_MR_IOVA, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_MR_LENGTH, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_REG_MR_ACCESS_FLAGS, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_MR_ADDR, UVERBS_ATTR_TYPE(std::uint64_t)),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_MR_FD_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t)),
    UVERBS_ATTR_RAW_FD(UVERBS_ATTR_REG_MR_FD),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_REG_MR_RESP_LKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_REG_MR_RESP_RKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_UHW(),
};
constexpr uverbs_attr_def kDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_MR_HANDLE, UVERBS_OBJECT_MR, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_attr_def kQuery[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_QUERY_MR_HANDLE, UVERBS_OBJECT_MR, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_MR_RESP_RKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_MR_RESP_LKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_MR_RESP_IOVA, UVERBS_ATTR_TYPE(std::uint64_t)),
};
constexpr uverbs_attr_def kAdvise[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_ADVISE_MR_ADVICE, UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_ADVISE_MR_FLAGS, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_ADVISE_MR_SGE_LIST, UVERBS_ATTR_MIN_SIZE(sizeof(::ib_uverbs_sge)), UA_MANDATORY | UA_ALLOC_AND_COPY),
};
constexpr uverbs_attr_def kDmabuf[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, UVERBS_OBJECT_MR, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_DMABUF_MR_IOVA, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_REG_DMABUF_MR_FD, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD_NEEDS(uapi::UVERBS_METHOD_REG_MR, kRegMr, reg_mr, reg_user_mr),
    UVERBS_METHOD_DESTROY(UVERBS_METHOD_MR_DESTROY, kDestroy),
    UVERBS_METHOD_NEEDS(UVERBS_METHOD_DM_MR_REG, kRegDmMr, reg_dm_mr, reg_dm_mr),
    UVERBS_METHOD(UVERBS_METHOD_QUERY_MR, kQuery, query_mr),
    UVERBS_METHOD_NEEDS(UVERBS_METHOD_ADVISE_MR, kAdvise, advise_mr, advise_mr),
    UVERBS_METHOD_NEEDS(UVERBS_METHOD_REG_DMABUF_MR, kDmabuf, reg_dmabuf_mr, reg_user_mr_dmabuf),
};
constexpr uverbs_obj_type kType = UVERBS_TYPE_ALLOC_IDR(destroy_mr);

}  // namespace

constinit const uverbs_object_def uverbs_def_mr = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_MR, &kType, kMethods, dereg_mr);

Status uverbs_reg_mr(uverbs_attr_bundle& b, ib_uobject& u, ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova,
                     std::uint32_t access) {
  UHCA_CHECK(same_in_page("reg_mr", start, iova));
  give(u, UHCA_TRY(ib_reg_user_mr(pd, start, length, iova, access, &b.driver_udata)));
  return success();
}

}  // namespace uhca::kernel

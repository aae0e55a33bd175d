// SPDX-License-Identifier: MIT
// Commands on protection domains, memory regions and windows, address handles and XRC domains.
#include "user/verbs/internal.h"

using namespace uhca::verbs;
namespace uapi = uhca::uapi;

namespace {

// A destroy method with a single handle, and its legacy command.
template <class Req>
int destroy_simple(ibv_context* context, Method method, std::uint16_t object, std::uint16_t method_id, std::uint16_t attr,
                   std::uint32_t handle, unsigned write_command, Req req) {
  ibv_command_buffer cmd(object, method_id);
  cmd.in_obj(attr, handle);
  int ret;
  Outcome o = execute_with_fallback(context, method, &cmd, nullptr, &ret);
  if (o == Outcome::kTryWrite || o == Outcome::kTryWriteEx) ret = execute_write_req(context, write_command, &req);
  return is_destroy_error(&ret) ? ret : 0;
}

void set_mr(ibv_pd* pd, verbs_mr* vmr, std::uint32_t handle, std::uint32_t lkey, std::uint32_t rkey, ibv_mr_type type) {
  vmr->mr.context = pd->context;
  vmr->mr.pd = pd;
  vmr->mr.handle = handle;
  vmr->mr.lkey = lkey;
  vmr->mr.rkey = rkey;
  vmr->mr_type = type;
}

// On-demand registration of the whole address space is spelled length == SIZE_MAX with a null address.
bool bad_implicit_odp(int access, std::size_t length, const void* addr) {
  return (access & IBV_ACCESS_ON_DEMAND) && length == SIZE_MAX && addr;
}

}  // namespace

UHCA_EXPORT int ibv_cmd_alloc_pd(ibv_context* context, ibv_pd* pd, const verbs_udata* udata) {
  ib_uverbs_alloc_pd req{};
  ib_uverbs_alloc_pd_resp resp{};
  if (int ret = execute_write(context, IB_USER_VERBS_CMD_ALLOC_PD, &req, &resp, udata)) return ret;
  pd->handle = resp.pd_handle;
  pd->context = context;
  return 0;
}

UHCA_EXPORT int ibv_cmd_dealloc_pd(ibv_pd* pd) {
  ib_uverbs_dealloc_pd req{};
  req.pd_handle = pd->handle;
  return destroy_simple(pd->context, Method::kDeallocPd, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, UVERBS_ATTR_DESTROY_PD_HANDLE,
                        pd->handle, IB_USER_VERBS_CMD_DEALLOC_PD, req);
}

UHCA_EXPORT int ibv_cmd_reg_mr(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t hca_va, int access, verbs_mr* vmr,
                               const verbs_udata* udata) {
  if (bad_implicit_odp(access, length, addr)) return fail(EINVAL);
  ib_uverbs_reg_mr req{};
  ib_uverbs_reg_mr_resp resp{};
  req.start = reinterpret_cast<std::uintptr_t>(addr);
  req.length = length;
  req.hca_va = hca_va;
  req.pd_handle = pd->handle;
  req.access_flags = static_cast<std::uint32_t>(access);
  if (int ret = execute_write(pd->context, IB_USER_VERBS_CMD_REG_MR, &req, &resp, udata)) return ret;
  set_mr(pd, vmr, resp.mr_handle, resp.lkey, resp.rkey, IBV_MR_TYPE_MR);
  vmr->access = access;
  return 0;
}

UHCA_EXPORT int ibv_cmd_rereg_mr(verbs_mr* vmr, std::uint32_t flags, void* addr, std::size_t length, std::uint64_t hca_va, int access,
                                 ibv_pd* pd, const verbs_udata* udata) {
  ib_uverbs_rereg_mr req{};
  ib_uverbs_rereg_mr_resp resp{};
  req.mr_handle = vmr->mr.handle;
  req.flags = flags;
  req.start = reinterpret_cast<std::uintptr_t>(addr);
  req.length = length;
  req.hca_va = hca_va;
  req.pd_handle = flags & IBV_REREG_MR_CHANGE_PD ? pd->handle : 0;
  req.access_flags = static_cast<std::uint32_t>(access);
  if (int ret = execute_write(vmr->mr.context, IB_USER_VERBS_CMD_REREG_MR, &req, &resp, udata)) return ret;
  vmr->mr.lkey = resp.lkey;
  vmr->mr.rkey = resp.rkey;
  if (flags & IBV_REREG_MR_CHANGE_PD) vmr->mr.context = pd->context;
  if (flags & IBV_REREG_MR_CHANGE_ACCESS) vmr->access = access;
  return 0;
}

UHCA_EXPORT int ibv_cmd_dereg_mr(verbs_mr* vmr) {
  ib_uverbs_dereg_mr req{};
  req.mr_handle = vmr->mr.handle;
  return destroy_simple(vmr->mr.context, Method::kDeregMr, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, UVERBS_ATTR_DESTROY_MR_HANDLE,
                        vmr->mr.handle, IB_USER_VERBS_CMD_DEREG_MR, req);
}

UHCA_EXPORT int ibv_cmd_query_mr(ibv_pd* pd, verbs_mr* vmr, std::uint32_t mr_handle) {
  std::uint32_t lkey = 0, rkey = 0;
  std::uint64_t length = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
  cmd.in_obj(UVERBS_ATTR_QUERY_MR_HANDLE, mr_handle);
  cmd.out_struct(UVERBS_ATTR_QUERY_MR_RESP_LKEY, &lkey);
  cmd.out_struct(UVERBS_ATTR_QUERY_MR_RESP_RKEY, &rkey);
  cmd.out_struct(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &length);
  if (int ret = execute_ioctl(pd->context, &cmd)) return ret;
  set_mr(pd, vmr, mr_handle, lkey, rkey, IBV_MR_TYPE_IMPORTED_MR);
  vmr->mr.addr = nullptr;
  vmr->mr.length = length;
  return 0;
}

UHCA_EXPORT int ibv_cmd_advise_mr(ibv_pd* pd, enum ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* sg_list,
                                  std::uint32_t num_sge) {
  ibv_command_buffer cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
  cmd.in_obj(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd->handle);
  cmd.const_in(UVERBS_ATTR_ADVISE_MR_ADVICE, advice);
  cmd.in_u32(UVERBS_ATTR_ADVISE_MR_FLAGS, flags);
  cmd.in(UVERBS_ATTR_ADVISE_MR_SGE_LIST, sg_list, std::size_t{num_sge} * sizeof *sg_list);
  return execute_ioctl(pd->context, &cmd);
}

UHCA_EXPORT int ibv_cmd_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access,
                                      verbs_mr* vmr, const ibv_command_buffer* driver) {
  std::uint32_t lkey = 0, rkey = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
  cmd.out_obj(UVERBS_ATTR_REG_DMABUF_MR_HANDLE);
  cmd.out_struct(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey);
  cmd.out_struct(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey);
  cmd.in_obj(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle);
  cmd.in_u64(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset);
  cmd.in_u64(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length);
  cmd.in_u64(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova);
  cmd.in_u32(UVERBS_ATTR_REG_DMABUF_MR_FD, static_cast<std::uint32_t>(fd));
  cmd.in_u32(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, static_cast<std::uint32_t>(access));
  cmd.link(driver);
  if (int ret = execute_ioctl(pd->context, &cmd)) return ret;
  set_mr(pd, vmr, cmd.handle(UVERBS_ATTR_REG_DMABUF_MR_HANDLE), lkey, rkey, IBV_MR_TYPE_DMABUF_MR);
  vmr->mr.addr = reinterpret_cast<void*>(offset);
  vmr->mr.length = length;
  vmr->access = access;
  return 0;
}

UHCA_EXPORT int ibv_cmd_reg_mr_ex(ibv_pd* pd, verbs_mr* vmr, const ibv_mr_init_attr* attr) {
  const bool has_addr = attr->comp_mask & IBV_REG_MR_MASK_ADDR;
  const bool has_fd = attr->comp_mask & IBV_REG_MR_MASK_FD;
  const bool has_offset = attr->comp_mask & IBV_REG_MR_MASK_FD_OFFSET;
  const bool has_iova = attr->comp_mask & IBV_REG_MR_MASK_IOVA;
  // Either an address, or fd + offset + iova.
  if (has_fd ? (!has_offset || has_addr || !has_iova) : (has_offset || !has_addr)) return fail(EINVAL);
  if (!has_fd && bad_implicit_odp(attr->access, attr->length, attr->addr)) return fail(EINVAL);
  const std::uint64_t iova = has_iova ? attr->iova : reinterpret_cast<std::uintptr_t>(attr->addr);

  std::uint32_t lkey = 0, rkey = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_MR, uapi::UVERBS_METHOD_REG_MR);
  if (has_fd) {
    cmd.in_u64(uapi::UVERBS_ATTR_REG_MR_FD_OFFSET, attr->fd_offset);
    cmd.in_raw_fd(uapi::UVERBS_ATTR_REG_MR_FD, attr->fd);
  } else {
    cmd.in_u64(uapi::UVERBS_ATTR_REG_MR_ADDR, reinterpret_cast<std::uintptr_t>(attr->addr));
  }
  cmd.in_u64(uapi::UVERBS_ATTR_REG_MR_IOVA, iova);
  cmd.out_obj(uapi::UVERBS_ATTR_REG_MR_HANDLE);
  cmd.out_struct(uapi::UVERBS_ATTR_REG_MR_RESP_LKEY, &lkey);
  cmd.out_struct(uapi::UVERBS_ATTR_REG_MR_RESP_RKEY, &rkey);
  cmd.in_obj(uapi::UVERBS_ATTR_REG_MR_PD_HANDLE, pd->handle);
  cmd.in_u64(uapi::UVERBS_ATTR_REG_MR_LENGTH, attr->length);
  cmd.in_u32(uapi::UVERBS_ATTR_REG_MR_ACCESS_FLAGS, static_cast<std::uint32_t>(attr->access));
  if (attr->comp_mask & IBV_REG_MR_MASK_DMAH)
    cmd.in_obj(uapi::UVERBS_ATTR_REG_MR_DMA_HANDLE, reinterpret_cast<verbs_dmah*>(attr->dmah)->handle);

  int ret;
  switch (execute_with_fallback(pd->context, Method::kRegMr, &cmd, nullptr, &ret)) {
    case Outcome::kSuccess:
      set_mr(pd, vmr, cmd.handle(uapi::UVERBS_ATTR_REG_MR_HANDLE), lkey, rkey, has_fd ? IBV_MR_TYPE_DMABUF_MR : IBV_MR_TYPE_MR);
      vmr->access = attr->access;
      return 0;
    case Outcome::kError: return ret;
    default:
      // The write command knows neither dma-bufs nor DMA handles.
      if (has_fd || (attr->comp_mask & IBV_REG_MR_MASK_DMAH)) return fail(EOPNOTSUPP);
      return ibv_cmd_reg_mr(pd, attr->addr, attr->length, iova, attr->access, vmr, nullptr);
  }
}

UHCA_EXPORT int ibv_cmd_alloc_mw(ibv_pd* pd, enum ibv_mw_type type, ibv_mw* mw, const verbs_udata* udata) {
  ib_uverbs_alloc_mw req{};
  ib_uverbs_alloc_mw_resp resp{};
  req.pd_handle = pd->handle;
  req.mw_type = static_cast<std::uint8_t>(type);
  if (int ret = execute_write(pd->context, IB_USER_VERBS_CMD_ALLOC_MW, &req, &resp, udata)) return ret;
  mw->context = pd->context;
  mw->pd = pd;
  mw->rkey = resp.rkey;
  mw->handle = resp.mw_handle;
  mw->type = type;
  return 0;
}

UHCA_EXPORT int ibv_cmd_dealloc_mw(ibv_mw* mw) {
  ib_uverbs_dealloc_mw req{};
  req.mw_handle = mw->handle;
  return destroy_simple(mw->context, Method::kDeallocMw, UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, UVERBS_ATTR_DESTROY_MW_HANDLE,
                        mw->handle, IB_USER_VERBS_CMD_DEALLOC_MW, req);
}

UHCA_EXPORT int ibv_cmd_create_ah(ibv_pd* pd, ibv_ah* ah, const ibv_ah_attr* attr, const verbs_udata* udata) {
  ib_uverbs_create_ah req{};
  ib_uverbs_create_ah_resp resp{};
  req.user_handle = reinterpret_cast<std::uintptr_t>(ah);
  req.pd_handle = pd->handle;
  req.attr.dlid = attr->dlid;
  req.attr.sl = attr->sl;
  req.attr.src_path_bits = attr->src_path_bits;
  req.attr.static_rate = attr->static_rate;
  req.attr.is_global = attr->is_global;
  req.attr.port_num = attr->port_num;
  req.attr.grh.flow_label = attr->grh.flow_label;
  req.attr.grh.sgid_index = attr->grh.sgid_index;
  req.attr.grh.hop_limit = attr->grh.hop_limit;
  req.attr.grh.traffic_class = attr->grh.traffic_class;
  std::memcpy(req.attr.grh.dgid, attr->grh.dgid.raw, 16);
  if (int ret = execute_write(pd->context, IB_USER_VERBS_CMD_CREATE_AH, &req, &resp, udata)) return ret;
  ah->handle = resp.ah_handle;
  ah->context = pd->context;
  return 0;
}

UHCA_EXPORT int ibv_cmd_destroy_ah(ibv_ah* ah) {
  ib_uverbs_destroy_ah req{};
  req.ah_handle = ah->handle;
  return destroy_simple(ah->context, Method::kDestroyAh, UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, UVERBS_ATTR_DESTROY_AH_HANDLE,
                        ah->handle, IB_USER_VERBS_CMD_DESTROY_AH, req);
}

UHCA_EXPORT int ibv_cmd_open_xrcd(ibv_context* context, verbs_xrcd* xrcd, const ibv_xrcd_init_attr* attr, const verbs_udata* udata) {
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if (!(attr->comp_mask & IBV_XRCD_INIT_ATTR_FD) || !(attr->comp_mask & IBV_XRCD_INIT_ATTR_OFLAGS)) return fail(EINVAL);
  ib_uverbs_open_xrcd req{};
  ib_uverbs_open_xrcd_resp resp{};
  req.fd = static_cast<std::uint32_t>(attr->fd);
  req.oflags = static_cast<std::uint32_t>(attr->oflags);
  if (int ret = execute_write(context, IB_USER_VERBS_CMD_OPEN_XRCD, &req, &resp, udata)) return ret;
  xrcd->xrcd.context = context;
  xrcd->comp_mask = VERBS_XRCD_HANDLE;
  xrcd->handle = resp.xrcd_handle;
  return 0;
}

UHCA_EXPORT int ibv_cmd_close_xrcd(verbs_xrcd* xrcd) {
  ib_uverbs_close_xrcd req{};
  req.xrcd_handle = xrcd->handle;
  return destroy_simple(xrcd->xrcd.context, Method::kCloseXrcd, UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY,
                        UVERBS_ATTR_DESTROY_XRCD_HANDLE, xrcd->handle, IB_USER_VERBS_CMD_CLOSE_XRCD, req);
}

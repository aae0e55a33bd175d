// SPDX-License-Identifier: MIT
// write(2) on the device file and INVOKE_WRITE: header checks in the kernel's order. Linux: ib_uverbs_write in uverbs_main.c.
#include <cstddef>

#include "base/inside.h"
#include "base/log.h"
#include "kernel/uverbs/write_cmds.h"
#include "uapi/rdma_next.h"

namespace uhca::kernel {
namespace {

#define UHCA_END(type, last) (offsetof(::type, last) + sizeof(::type::last))
// Plain commands: request only; request and response; with the driver's part (U).
#define I(NUM, fn, op, req) \
  { ::IB_USER_VERBS_CMD_##NUM, false, #NUM, sizeof(::req), 0, false, false, write_cmd::fn, UAPI_NEEDS_FN(op) }
#define IO(NUM, fn, op, req, resp) \
  { ::IB_USER_VERBS_CMD_##NUM, false, #NUM, sizeof(::req), sizeof(::resp), true, false, write_cmd::fn, UAPI_NEEDS_FN(op) }
#define UI(NUM, fn, op, req) \
  { ::IB_USER_VERBS_CMD_##NUM, false, #NUM, sizeof(::req), 0, false, true, write_cmd::fn, UAPI_NEEDS_FN(op) }
#define UIO(NUM, fn, op, req, resp) \
  { ::IB_USER_VERBS_CMD_##NUM, false, #NUM, sizeof(::req), sizeof(::resp), true, true, write_cmd::fn, UAPI_NEEDS_FN(op) }
#define EX_IO(NUM, fn, op, req, req_last, resp, resp_last)                                                                         \
  {                                                                                                                                \
    ::IB_USER_VERBS_EX_CMD_##NUM, true, "EX_" #NUM, UHCA_END(req, req_last), UHCA_END(resp, resp_last), true, true, write_cmd::fn, \
        UAPI_NEEDS_FN(op)                                                                                                          \
  }
#define EX_I(NUM, fn, op, req, req_last) \
  { ::IB_USER_VERBS_EX_CMD_##NUM, true, "EX_" #NUM, UHCA_END(req, req_last), 0, false, true, write_cmd::fn, UAPI_NEEDS_FN(op) }
// In the table of Linux, but no operation of ours stands behind it. (Data path commands: a user QP's queues live in the program.)
#define NONE(NUM) \
  { ::IB_USER_VERBS_CMD_##NUM, false, #NUM, 0, 0, false, false, nullptr, nullptr }

constexpr WriteCmd kCmds[] = {
    UIO(GET_CONTEXT, get_context, alloc_ucontext, ib_uverbs_get_context, ib_uverbs_get_context_resp),
    IO(QUERY_DEVICE, query_device, query_device, ib_uverbs_query_device, ib_uverbs_query_device_resp),
    IO(QUERY_PORT, query_port, query_port, ib_uverbs_query_port, ib_uverbs_query_port_resp),
    UIO(ALLOC_PD, alloc_pd, alloc_pd, ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp),
    I(DEALLOC_PD, dealloc_pd, dealloc_pd, ib_uverbs_dealloc_pd),
    UIO(CREATE_AH, create_ah, create_user_ah, ib_uverbs_create_ah, ib_uverbs_create_ah_resp),
    I(DESTROY_AH, destroy_ah, destroy_ah, ib_uverbs_destroy_ah),
    UIO(REG_MR, reg_mr, reg_user_mr, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp),
    UIO(REREG_MR, rereg_mr, rereg_user_mr, ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp),
    I(DEREG_MR, dereg_mr, dereg_mr, ib_uverbs_dereg_mr),
    UIO(ALLOC_MW, alloc_mw, alloc_mw, ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp),
    I(DEALLOC_MW, dealloc_mw, dealloc_mw, ib_uverbs_dealloc_mw),
    IO(CREATE_COMP_CHANNEL, create_comp_channel, create_cq, ib_uverbs_create_comp_channel, ib_uverbs_create_comp_channel_resp),
    UIO(CREATE_CQ, create_cq, create_cq, ib_uverbs_create_cq, ib_uverbs_create_cq_resp),
    UIO(RESIZE_CQ, resize_cq, resize_cq, ib_uverbs_resize_cq, ib_uverbs_resize_cq_resp),
    IO(DESTROY_CQ, destroy_cq, destroy_cq, ib_uverbs_destroy_cq, ib_uverbs_destroy_cq_resp),
    NONE(POLL_CQ),
    NONE(REQ_NOTIFY_CQ),
    UIO(CREATE_QP, create_qp, create_qp, ib_uverbs_create_qp, ib_uverbs_create_qp_resp),
    IO(QUERY_QP, query_qp, query_qp, ib_uverbs_query_qp, ib_uverbs_query_qp_resp),
    I(MODIFY_QP, modify_qp, modify_qp, ib_uverbs_modify_qp),
    IO(DESTROY_QP, destroy_qp, destroy_qp, ib_uverbs_destroy_qp, ib_uverbs_destroy_qp_resp),
    NONE(POST_SEND),
    NONE(POST_RECV),
    I(ATTACH_MCAST, attach_mcast, attach_mcast, ib_uverbs_attach_mcast),
    I(DETACH_MCAST, detach_mcast, detach_mcast, ib_uverbs_detach_mcast),
    UIO(CREATE_SRQ, create_srq, create_srq, ib_uverbs_create_srq, ib_uverbs_create_srq_resp),
    UI(MODIFY_SRQ, modify_srq, modify_srq, ib_uverbs_modify_srq),
    IO(QUERY_SRQ, query_srq, query_srq, ib_uverbs_query_srq, ib_uverbs_query_srq_resp),
    IO(DESTROY_SRQ, destroy_srq, destroy_srq, ib_uverbs_destroy_srq, ib_uverbs_destroy_srq_resp),
    NONE(POST_SRQ_RECV),
    UIO(OPEN_XRCD, open_xrcd, alloc_xrcd, ib_uverbs_open_xrcd, ib_uverbs_open_xrcd_resp),
    I(CLOSE_XRCD, close_xrcd, dealloc_xrcd, ib_uverbs_close_xrcd),
    UIO(CREATE_XSRQ, create_xsrq, create_srq, ib_uverbs_create_xsrq, ib_uverbs_create_srq_resp),
    UIO(OPEN_QP, open_qp, alloc_xrcd, ib_uverbs_open_qp, ib_uverbs_create_qp_resp),
    EX_IO(QUERY_DEVICE, ex_query_device, query_device, ib_uverbs_ex_query_device, reserved, ib_uverbs_ex_query_device_resp,
          response_length),
    EX_IO(CREATE_CQ, ex_create_cq, create_cq, ib_uverbs_ex_create_cq, reserved, ib_uverbs_ex_create_cq_resp, response_length),
    EX_IO(CREATE_QP, ex_create_qp, create_qp, ib_uverbs_ex_create_qp, comp_mask, ib_uverbs_ex_create_qp_resp, response_length),
    EX_IO(MODIFY_QP, ex_modify_qp, modify_qp, ib_uverbs_ex_modify_qp, base, ib_uverbs_ex_modify_qp_resp, response_length),
    EX_IO(CREATE_FLOW, ex_create_flow, create_flow, ib_uverbs_create_flow, flow_attr, ib_uverbs_create_flow_resp, flow_handle),
    EX_I(DESTROY_FLOW, ex_destroy_flow, destroy_flow, ib_uverbs_destroy_flow, flow_handle),
    EX_IO(CREATE_WQ, ex_create_wq, create_wq, ib_uverbs_ex_create_wq, max_sge, ib_uverbs_ex_create_wq_resp, wqn),
    EX_I(MODIFY_WQ, ex_modify_wq, modify_wq, ib_uverbs_ex_modify_wq, curr_wq_state),
    EX_IO(DESTROY_WQ, ex_destroy_wq, destroy_wq, ib_uverbs_ex_destroy_wq, wq_handle, ib_uverbs_ex_destroy_wq_resp, reserved),
    EX_IO(CREATE_RWQ_IND_TBL, ex_create_rwq_ind_table, create_rwq_ind_table, ib_uverbs_ex_create_rwq_ind_table, log_ind_tbl_size,
          ib_uverbs_ex_create_rwq_ind_table_resp, ind_tbl_num),
    EX_I(DESTROY_RWQ_IND_TBL, ex_destroy_rwq_ind_table, destroy_rwq_ind_table, ib_uverbs_ex_destroy_rwq_ind_table, ind_tbl_handle),
    EX_I(MODIFY_CQ, ex_modify_cq, modify_cq, ib_uverbs_ex_modify_cq, reserved),
};

#undef I
#undef IO
#undef UI
#undef UIO
#undef EX_IO
#undef EX_I
#undef NONE

Status not_supported(uverbs_attr_bundle& b) {
  return refuse(EOPNOTSUPP, "write command: {} does not support it", b.device->name);
}
constexpr WriteCmd kNotSupported = {0, false, "(not supported)", 0, 0, false, false, not_supported, nullptr};

// EINVAL: bits that no command has; EOPNOTSUPP: beyond the table. A hole in the table is a plain command that answers EOPNOTSUPP itself,
// after the header checks; so is one in the table of the extended commands (Linux: uverbs_api::notsupp_method).
Result<const WriteCmd*> find(const ib_device& dev, std::uint32_t command) {
  if (command & ~(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_COMMAND_MASK))
    return refuse(EINVAL, "write command {:#x}: unknown bits", command);
  bool ex = command & IB_USER_VERBS_CMD_FLAG_EXTENDED;
  std::uint32_t number = command & IB_USER_VERBS_CMD_COMMAND_MASK;
  std::uint32_t last = 0;
  const WriteCmd* hit = nullptr;
  for (const WriteCmd& c : kCmds) {
    if (c.ex != ex || !c.handler || (c.supported && !c.supported(dev))) continue;
    if (c.number > last) last = c.number;
    if (c.number == number) hit = &c;
  }
  if (hit) return hit;
  if (number > last) return refuse(EOPNOTSUPP, "write command {:#x}: {} has none beyond {}", command, dev.name, last);
  return &kNotSupported;
}

Status verify(const WriteCmd& c, ::ib_uverbs_cmd_hdr& h, const ::ib_uverbs_ex_cmd_hdr& ex, std::size_t count) {
  if (c.ex) {
    std::size_t body = count - sizeof h - sizeof ex;
    if ((static_cast<std::size_t>(h.in_words) + ex.provider_in_words) * 8 != body)
      return refuse(EINVAL, "{}: {} + {} words in the header, {} bytes written", c.name, h.in_words, ex.provider_in_words, body);
    if (h.in_words * 8u < c.req_size) return refuse(ENOSPC, "{}: request of {} bytes, {} needed", c.name, h.in_words * 8, c.req_size);
    if (ex.cmd_hdr_reserved) return refuse(EINVAL, "{}: reserved field is not zero", c.name);
    if (ex.response) {
      if (!h.out_words && !ex.provider_out_words) return refuse(EINVAL, "{}: a response pointer, but no room", c.name);
      if (h.out_words * 8u < c.resp_size)
        return refuse(ENOSPC, "{}: response room {} bytes, {} needed", c.name, h.out_words * 8, c.resp_size);
      // The upper half of the address space is the kernel's.
      if (ex.response >> 47) return refuse(EFAULT, "{}: response pointer {:#x}", c.name, static_cast<std::uint64_t>(ex.response));
    } else if (h.out_words || ex.provider_out_words) {
      return refuse(EINVAL, "{}: response room, but no pointer", c.name);
    }
    return success();
  }
  if (h.in_words * 4u != count) return refuse(EINVAL, "{}: {} words in the header, {} bytes written", c.name, h.in_words, count);
  if (count < c.req_size + sizeof h) {
    // rdma-core 18 and 19 wrote 16 bytes here; Linux lets it pass.
    if (h.command == IB_USER_VERBS_CMD_DESTROY_CQ && count == 16) {
      h.in_words = 6;
      return success();
    }
    return refuse(ENOSPC, "{}: request of {} bytes, {} needed", c.name, count - sizeof h, c.req_size);
  }
  if (h.out_words * 4u < c.resp_size) return refuse(ENOSPC, "{}: response room {} bytes, {} needed", c.name, h.out_words * 4, c.resp_size);
  return success();
}

}  // namespace

std::span<const WriteCmd> uverbs_write_cmds() {
  return kCmds;
}

Status uverbs_request(const uverbs_attr_bundle& b, void* req, std::size_t n) {
  std::size_t have = b.ucore.inlen < n ? b.ucore.inlen : n;
  UHCA_CHECK(copy_from_user(req, b.ucore.inbuf, have));
  std::memset(static_cast<std::byte*>(req) + have, 0, n - have);
  if (b.ucore.inlen > n) {
    auto zero = user_is_zero(b.ucore.inbuf + n, b.ucore.inlen - n);
    if (!zero.ok() || !*zero) return refuse(EOPNOTSUPP, "request: bytes after the known {} are not zero", n);
  }
  return success();
}

Status uverbs_response(uverbs_attr_bundle& b, const void* resp, std::size_t n) {
  if (uverbs_attr_is_valid(b, UVERBS_ATTR_CORE_OUT)) return uverbs_copy_to_struct_or_zero(b, UVERBS_ATTR_CORE_OUT, resp, n);
  UHCA_CHECK(copy_to_user(b.ucore.outbuf, resp, b.ucore.outlen < n ? b.ucore.outlen : n));
  if (b.ucore.outlen > n) UHCA_CHECK(clear_user(b.ucore.outbuf + n, b.ucore.outlen - n));
  return success();
}

Result<std::size_t> UverbsFile::write(UserPtr buf, std::size_t count) {
  inside::Guard guard;
  if (!hw_destroy_rwsem_.try_lock_shared()) return refuse(EIO, "write: the device file is being closed");
  std::shared_lock held(hw_destroy_rwsem_, std::adopt_lock);
  if (closed_) return refuse(EIO, "write: the device file is closed");
  ::ib_uverbs_cmd_hdr h;
  ::ib_uverbs_ex_cmd_hdr ex{};
  if (count < sizeof h) return refuse(EINVAL, "write: {} bytes are no command", count);
  if (!copy_from_user(&h, buf, sizeof h).ok()) return refuse(EFAULT, "write: bad pointer {:#x}", buf);
  const WriteCmd* c = UHCA_TRY(find(dev_, h.command));
  if (c->ex) {
    if (count < sizeof h + sizeof ex) return refuse(EINVAL, "{}: {} bytes are no extended command", c->name, count);
    if (!copy_from_user(&ex, buf + sizeof h, sizeof ex).ok()) return refuse(EFAULT, "{}: bad pointer", c->name);
  }
  UHCA_CHECK(verify(*c, h, ex, count));

  uverbs_attr_bundle b;
  b.ufile = this;
  b.device = &dev_;
  b.context = context();
  UserPtr p = buf + sizeof h;
  if (!c->ex) {
    std::size_t in = h.in_words * 4u - sizeof h, out = h.out_words * 4u;
    UserPtr response = 0;
    if (c->has_udata) {
      b.driver_udata.inlen = in - c->req_size;
      in = c->req_size;
      if (b.driver_udata.inlen) b.driver_udata.inbuf = p + in;
    }
    if (c->has_resp) {
      if (!copy_from_user(&response, p, sizeof response).ok()) return refuse(EFAULT, "{}: bad pointer", c->name);
      if (c->has_udata) {
        b.driver_udata.outlen = out - c->resp_size;
        out = c->resp_size;
        if (b.driver_udata.outlen) b.driver_udata.outbuf = response + out;
      }
    }
    b.ucore.inbuf = p, b.ucore.inlen = in;
    b.ucore.outbuf = response, b.ucore.outlen = c->has_resp ? out : 0;
  } else {
    p += sizeof ex;
    b.ucore.inbuf = p, b.ucore.inlen = h.in_words * 8u;
    b.ucore.outbuf = ex.response, b.ucore.outlen = h.out_words * 8u;
    b.driver_udata.inlen = ex.provider_in_words * 8u, b.driver_udata.outlen = ex.provider_out_words * 8u;
    if (b.driver_udata.inlen) b.driver_udata.inbuf = p + b.ucore.inlen;
    if (b.driver_udata.outlen) b.driver_udata.outbuf = ex.response + b.ucore.outlen;
  }
  UHCA_CHECK(c->handler(b));
  return count;
}

Status uverbs_invoke_write(uverbs_attr_bundle& b) {
  std::uint32_t command = 0;
  UHCA_CHECK(uverbs_get_const(&command, b, UVERBS_ATTR_WRITE_CMD));
  const WriteCmd* c = UHCA_TRY(find(*b.device, command));
  if (const uverbs_attr* in = uverbs_attr_get(b, UVERBS_ATTR_CORE_IN)) {
    b.ucore.inlen = in->len;
    b.ucore.inbuf = uverbs_attr_ptr_is_inline(*in)
                        ? b.user_attrs + in->uattr_idx * sizeof(::ib_uverbs_attr) + offsetof(::ib_uverbs_attr, data)
                        : in->data;
  }
  if (const uverbs_attr* out = uverbs_attr_get(b, UVERBS_ATTR_CORE_OUT)) {
    b.ucore.outlen = out->len;
    b.ucore.outbuf = out->data;
  }
  if (b.ucore.inlen < c->req_size || b.ucore.outlen < c->resp_size)
    return refuse(ENOSPC, "INVOKE_WRITE {}: request {} of {} bytes, response {} of {}", c->name, b.ucore.inlen, c->req_size, b.ucore.outlen,
                  c->resp_size);
  return c->handler(b);
}

}  // namespace uhca::kernel

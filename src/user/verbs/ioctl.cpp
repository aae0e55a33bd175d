// SPDX-License-Identifier: MIT
// The two ways into the kernel: RDMA_VERBS_IOCTL with attributes, and the older write commands, which newer kernels also accept inside an
// ioctl. When which of them is used follows rdma-core (cmd_ioctl.c, cmd_fallback.c): a method that the kernel lacks is not tried twice.
#include <sys/ioctl.h>
#include <unistd.h>

#include "user/verbs/internal.h"

namespace uhca::verbs {
namespace {

void forget_method(verbs_ex_private* priv, Method method, bool all) {
  unsigned bits = all ? ~0u : 1u << static_cast<unsigned>(method);
  __atomic_fetch_or(&priv->unsupported_methods, bits, __ATOMIC_RELAXED);
}

// Can the legacy ABI express this command at all?
Outcome check_legacy(const ibv_command_buffer* cmd, const ibv_command_buffer* driver, int* ret) {
  bool ioctl_only = cmd->fallback_ioctl_only;
  bool ex = cmd->fallback_require_ex;
  if (driver) {
    for (unsigned i = 0; i < driver->count; ++i) {
      const ib_uverbs_attr& a = driver->attrs[i];
      if (a.attr_id != UVERBS_ATTR_UHW_IN && a.attr_id != UVERBS_ATTR_UHW_OUT && (a.flags & UVERBS_ATTR_F_MANDATORY)) ioctl_only = true;
    }
    ioctl_only |= driver->fallback_ioctl_only;
    ex |= driver->fallback_require_ex;
  }
  if (ioctl_only) {
    *ret = fail(EOPNOTSUPP);
    return Outcome::kError;
  }
  return ex ? Outcome::kTryWriteEx : Outcome::kTryWrite;
}

// write() takes one contiguous request and one contiguous response. Both are small, except for flow rules and indirection tables.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : data_(size <= sizeof inline_ ? inline_ : static_cast<std::byte*>(std::malloc(size))) {
    if (data_) std::memset(data_, 0, size);
  }
  ~Buffer() {
    if (data_ != inline_) std::free(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() { return data_; }

 private:
  alignas(8) std::byte inline_[512];
  std::byte* data_;
};

std::uint64_t address(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

int invoke_write(ibv_context* context, std::uint64_t command, const void* core_in, std::size_t core_in_len, void* core_out,
                 std::size_t core_out_len, const verbs_udata* udata) {
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
  cmd.const_in(UVERBS_ATTR_WRITE_CMD, command);
  if (core_in_len) cmd.in(UVERBS_ATTR_CORE_IN, core_in, core_in_len);
  if (core_out_len) cmd.out(UVERBS_ATTR_CORE_OUT, core_out, core_out_len);
  cmd.uhw(udata);
  return execute_ioctl(context, &cmd);
}

// One write(): the request in `req`, the response spread over core_out and udata->out.
int do_write(ibv_context* context, Buffer& req, std::size_t req_len, Buffer& resp, void* core_out, std::size_t core_out_len,
             const verbs_udata* udata) {
  ssize_t n = ::write(context->cmd_fd, req.data(), req_len);
  if (n != static_cast<ssize_t>(req_len)) return n < 0 ? errno : fail(EIO);
  if (core_out_len) std::memcpy(core_out, resp.data(), core_out_len);
  if (udata && udata->out_len) std::memcpy(udata->out, resp.data() + core_out_len, udata->out_len);
  return 0;
}

}  // namespace

Outcome execute_with_fallback(ibv_context* context, Method method, ibv_command_buffer* cmd, const ibv_command_buffer* driver, int* ret) {
  verbs_ex_private* priv = get_priv(context);
  if (__atomic_load_n(&priv->unsupported_methods, __ATOMIC_RELAXED) & (1u << static_cast<unsigned>(method)))
    return check_legacy(cmd, driver, ret);

  cmd->link(driver);
  *ret = execute_ioctl(context, cmd);
  if (*ret == 0) return Outcome::kSuccess;
  // ENOTTY: no ioctl interface at all. EPROTONOSUPPORT: this method, or a mandatory attribute, is unknown.
  if (*ret == ENOTTY || *ret == EPROTONOSUPPORT) {
    forget_method(priv, method, *ret == ENOTTY);
    return check_legacy(cmd, driver, ret);
  }
  return Outcome::kError;
}

int execute_write_raw(ibv_context* context, unsigned command, void* core_in, std::size_t core_in_len, void* core_out,
                      std::size_t core_out_len, const verbs_udata* udata) {
  const std::size_t uhw_in = udata ? udata->in_len : 0, uhw_out = udata ? udata->out_len : 0;
  if (get_priv(context)->use_ioctl_write) {
    std::uint64_t response = address(core_out);
    if (core_out) std::memcpy(core_in, &response, sizeof response);
    return invoke_write(context, command, core_in, core_in_len, core_out, core_out_len, udata);
  }
  const std::size_t req_len = sizeof(ib_uverbs_cmd_hdr) + core_in_len + uhw_in;
  const std::size_t resp_len = core_out_len + uhw_out;
  if (req_len % 4 || resp_len % 4 || req_len / 4 > UINT16_MAX || resp_len / 4 > UINT16_MAX) return fail(EINVAL);
  Buffer req(req_len), resp(resp_len);
  if (!req.data() || !resp.data()) return fail(ENOMEM);
  ib_uverbs_cmd_hdr hdr{};
  hdr.command = command;
  hdr.in_words = static_cast<std::uint16_t>(req_len / 4);
  hdr.out_words = static_cast<std::uint16_t>(resp_len / 4);
  std::uint64_t response = address(resp.data());
  if (core_out) std::memcpy(core_in, &response, sizeof response);
  std::memcpy(req.data(), &hdr, sizeof hdr);
  std::memcpy(req.data() + sizeof hdr, core_in, core_in_len);
  if (uhw_in) std::memcpy(req.data() + sizeof hdr + core_in_len, udata->in, uhw_in);
  return do_write(context, req, req_len, resp, core_out, core_out_len, udata);
}

int execute_write_ex_raw(ibv_context* context, unsigned command, const void* core_in, std::size_t core_in_len, void* core_out,
                         std::size_t core_out_len, const verbs_udata* udata) {
  const std::size_t uhw_in = udata ? udata->in_len : 0, uhw_out = udata ? udata->out_len : 0;
  if (get_priv(context)->use_ioctl_write)
    return invoke_write(context, IB_USER_VERBS_CMD_FLAG_EXTENDED | command, core_in, core_in_len, core_out, core_out_len, udata);

  constexpr std::size_t kHeaders = sizeof(ib_uverbs_cmd_hdr) + sizeof(ib_uverbs_ex_cmd_hdr);
  const std::size_t req_len = kHeaders + core_in_len + uhw_in;
  const std::size_t resp_len = core_out_len + uhw_out;
  if (core_in_len % 8 || uhw_in % 8 || core_out_len % 8 || uhw_out % 8 || req_len / 8 > UINT16_MAX || resp_len / 8 > UINT16_MAX)
    return fail(EINVAL);
  Buffer req(req_len), resp(resp_len);
  if (!req.data() || !resp.data()) return fail(ENOMEM);
  ib_uverbs_cmd_hdr hdr{};
  hdr.command = IB_USER_VERBS_CMD_FLAG_EXTENDED | command;
  hdr.in_words = static_cast<std::uint16_t>(core_in_len / 8);
  hdr.out_words = static_cast<std::uint16_t>(core_out_len / 8);
  ib_uverbs_ex_cmd_hdr ex{};
  ex.response = resp_len ? address(resp.data()) : 0;
  ex.provider_in_words = static_cast<std::uint16_t>(uhw_in / 8);
  ex.provider_out_words = static_cast<std::uint16_t>(uhw_out / 8);
  std::memcpy(req.data(), &hdr, sizeof hdr);
  std::memcpy(req.data() + sizeof hdr, &ex, sizeof ex);
  std::memcpy(req.data() + kHeaders, core_in, core_in_len);
  if (uhw_in) std::memcpy(req.data() + kHeaders + core_in_len, udata->in, uhw_in);
  return do_write(context, req, req_len, resp, core_out, core_out_len, udata);
}

bool has_ioctl_write(ibv_context* context) {
  // Too short on purpose: ENOSPC proves that the method exists; nothing is executed.
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
  cmd.const_in(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_QUERY_DEVICE);
  int ret = execute_ioctl(context, &cmd);
  return ret != EPROTONOSUPPORT && ret != ENOTTY;
}

}  // namespace uhca::verbs

UHCA_EXPORT int execute_ioctl(ibv_context* context, ibv_command_buffer* cmd) {
  if (cmd->invalid) return uhca::verbs::fail(EINVAL);
  cmd->hdr.num_attrs = static_cast<std::uint16_t>(cmd->count);
  cmd->hdr.length = static_cast<std::uint16_t>(sizeof cmd->hdr + cmd->count * sizeof cmd->attrs[0]);
  cmd->hdr.reserved1 = 0;
  cmd->hdr.reserved2 = 0;
  cmd->hdr.driver_id = uhca::verbs::get_priv(context)->driver_id;
  return ::ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &cmd->hdr) ? errno : 0;
}

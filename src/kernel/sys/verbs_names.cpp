// SPDX-License-Identifier: MIT
// Names come from the uapi headers: <rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_cmds.h>, <rdma/mlx5_user_ioctl_cmds.h>.
#include "kernel/sys/verbs_names.h"

#include <fmt/format.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstddef>
#include <string>

#include "base/trace.h"

namespace uhca::sys {
namespace {

struct CommandName {
  std::uint32_t command;
  const char* name;
};
constexpr std::uint32_t kEx = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr CommandName kCommands[] = {
#define UHCA_CMD(n) \
  { IB_USER_VERBS_CMD_##n, #n }
    UHCA_CMD(GET_CONTEXT),
    UHCA_CMD(QUERY_DEVICE),
    UHCA_CMD(QUERY_PORT),
    UHCA_CMD(ALLOC_PD),
    UHCA_CMD(DEALLOC_PD),
    UHCA_CMD(CREATE_AH),
    UHCA_CMD(DESTROY_AH),
    UHCA_CMD(REG_MR),
    UHCA_CMD(REREG_MR),
    UHCA_CMD(DEREG_MR),
    UHCA_CMD(ALLOC_MW),
    UHCA_CMD(DEALLOC_MW),
    UHCA_CMD(CREATE_CQ),
    UHCA_CMD(RESIZE_CQ),
    UHCA_CMD(DESTROY_CQ),
    UHCA_CMD(POLL_CQ),
    UHCA_CMD(CREATE_QP),
    UHCA_CMD(QUERY_QP),
    UHCA_CMD(MODIFY_QP),
    UHCA_CMD(DESTROY_QP),
    UHCA_CMD(POST_SEND),
    UHCA_CMD(POST_RECV),
    UHCA_CMD(ATTACH_MCAST),
    UHCA_CMD(DETACH_MCAST),
    UHCA_CMD(CREATE_SRQ),
    UHCA_CMD(MODIFY_SRQ),
    UHCA_CMD(QUERY_SRQ),
    UHCA_CMD(DESTROY_SRQ),
    UHCA_CMD(POST_SRQ_RECV),
    UHCA_CMD(OPEN_XRCD),
    UHCA_CMD(CLOSE_XRCD),
    UHCA_CMD(CREATE_XSRQ),
    UHCA_CMD(OPEN_QP),
    UHCA_CMD(REQ_NOTIFY_CQ),
    UHCA_CMD(CREATE_COMP_CHANNEL),
#undef UHCA_CMD
#define UHCA_EX(n) \
  { kEx | IB_USER_VERBS_EX_CMD_##n, "EX_" #n }
    UHCA_EX(QUERY_DEVICE),
    UHCA_EX(CREATE_CQ),
    UHCA_EX(CREATE_QP),
    UHCA_EX(MODIFY_QP),
    UHCA_EX(CREATE_FLOW),
    UHCA_EX(DESTROY_FLOW),
    UHCA_EX(CREATE_WQ),
    UHCA_EX(MODIFY_WQ),
    UHCA_EX(DESTROY_WQ),
    UHCA_EX(CREATE_RWQ_IND_TBL),
    UHCA_EX(DESTROY_RWQ_IND_TBL),
    UHCA_EX(MODIFY_CQ),
#undef UHCA_EX
};

struct MethodName {
  std::uint16_t object, method;
  const char* object_name;
  const char* name;
  const char* attrs;  // names of ids 0, 1, ... (from the driver's namespace: 0x1000, ...), separated by blanks
};
constexpr MethodName kMethods[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, "DEVICE", "INVOKE_WRITE", "CORE_IN CORE_OUT WRITE_CMD"},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, "DEVICE", "INFO_HANDLES", "OBJECT_ID TOTAL_HANDLES HANDLES_LIST"},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, "DEVICE", "QUERY_PORT", "PORT_NUM RESP"},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, "DEVICE", "GET_CONTEXT", "NUM_COMP_VECTORS CORE_SUPPORT FD_ARR"},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, "DEVICE", "QUERY_CONTEXT", "NUM_COMP_VECTORS CORE_SUPPORT"},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, "DEVICE", "QUERY_GID_TABLE", "ENTRY_SIZE FLAGS ENTRIES NUM_ENTRIES"},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, "DEVICE", "QUERY_GID_ENTRY", "PORT GID_INDEX FLAGS ENTRY"},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, "CQ", "CREATE", "HANDLE CQE USER_HANDLE COMP_CHANNEL COMP_VECTOR FLAGS RESP_CQE EVENT_FD"},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, "CQ", "DESTROY", "HANDLE RESP"},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, "QP", "CREATE",
     "HANDLE XRCD_HANDLE PD_HANDLE SRQ_HANDLE SEND_CQ_HANDLE RECV_CQ_HANDLE IND_TABLE_HANDLE USER_HANDLE CAP TYPE FLAGS SOURCE_QPN "
     "EVENT_FD RESP_CAP RESP_QP_NUM"},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, "QP", "DESTROY", "HANDLE RESP"},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, "SRQ", "CREATE",
     "HANDLE PD_HANDLE XRCD_HANDLE CQ_HANDLE USER_HANDLE MAX_WR MAX_SGE LIMIT MAX_NUM_TAGS TYPE EVENT_FD RESP_MAX_WR RESP_MAX_SGE "
     "RESP_SRQ_NUM"},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, "SRQ", "DESTROY", "HANDLE RESP"},
    {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, "WQ", "CREATE",
     "HANDLE PD_HANDLE CQ_HANDLE USER_HANDLE TYPE EVENT_FD MAX_WR MAX_SGE FLAGS RESP_MAX_WR RESP_MAX_SGE RESP_WQ_NUM"},
    {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, "WQ", "DESTROY", "HANDLE RESP"},
    {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, "PD", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, "MR", "DM_MR_REG",
     "HANDLE OFFSET LENGTH PD_HANDLE ACCESS_FLAGS DM_HANDLE RESP_LKEY RESP_RKEY"},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, "MR", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, "MR", "ADVISE", "PD_HANDLE ADVICE FLAGS SGE_LIST"},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, "MR", "QUERY", "HANDLE RESP_LKEY RESP_RKEY RESP_LENGTH RESP_IOVA"},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, "MR", "REG_DMABUF",
     "HANDLE PD_HANDLE OFFSET LENGTH IOVA FD ACCESS_FLAGS RESP_LKEY RESP_RKEY"},
    {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, "MW", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, "AH", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, "XRCD", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, "FLOW", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, "RWQ_IND_TBL", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, "DM", "ALLOC", "HANDLE LENGTH ALIGNMENT"},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, "DM", "FREE", "HANDLE"},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE, "COUNTERS", "CREATE", "HANDLE"},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, "COUNTERS", "DESTROY", "HANDLE"},
    {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ, "COUNTERS", "READ", "HANDLE BUFF FLAGS"},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, "ASYNC_EVENT", "ALLOC", "FD_HANDLE"},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "UAR", "ALLOC", "HANDLE TYPE MMAP_OFFSET MMAP_LENGTH PAGE_ID"},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "UAR", "DESTROY", "HANDLE"},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "DEVX", "OTHER", "CMD_IN CMD_OUT"},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, "DEVX", "QUERY_UAR", "USER_IDX DEV_IDX"},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "DEVX", "QUERY_EQN", "USER_VEC DEV_EQN"},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, "DEVX", "SUBSCRIBE_EVENT",
     "FD_HANDLE OBJ_HANDLE TYPE_NUM_LIST FD_NUM COOKIE"},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "DEVX_OBJ", "CREATE", "HANDLE CMD_IN CMD_OUT"},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "DEVX_OBJ", "DESTROY", "HANDLE"},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "DEVX_OBJ", "MODIFY", "HANDLE CMD_IN CMD_OUT"},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "DEVX_OBJ", "QUERY", "HANDLE CMD_IN CMD_OUT"},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "DEVX_UMEM", "REG", "HANDLE ADDR LEN ACCESS OUT_ID PGSZ_BITMAP DMABUF_FD"},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "DEVX_UMEM", "DEREG", "HANDLE"},
};

std::string_view word(std::string_view list, unsigned index) {
  while (index-- > 0) {
    std::size_t n = list.find(' ');
    if (n == std::string_view::npos) return {};
    list.remove_prefix(n + 1);
  }
  return list.substr(0, list.find(' '));
}

}  // namespace

std::string_view write_command_name(std::uint32_t command) {
  for (const auto& c : kCommands)
    if (c.command == command) return c.name;
  return "?";
}

void trace_verbs_ioctl(int fd, kernel::UserPtr arg, int err) {
  ib_uverbs_ioctl_hdr hdr{};
  if (!kernel::copy_from_user(&hdr, arg, sizeof hdr)) return;
  const MethodName* m = nullptr;
  for (const auto& k : kMethods)
    if (k.object == hdr.object_id && k.method == hdr.method_id) m = &k;
  char text[1024];
  std::size_t n = 0;
  // Attributes as "NAME=value" (inline data, a handle) or "NAME[len]" (a buffer of the program).
  for (unsigned i = 0; i < hdr.num_attrs && i < 32 && n + 64 < sizeof text; ++i) {
    ib_uverbs_attr a{};
    if (!kernel::copy_from_user(&a, arg + offsetof(ib_uverbs_ioctl_hdr, attrs) + i * sizeof a, sizeof a)) break;
    bool driver_object = hdr.object_id >= 1u << UVERBS_ID_NS_SHIFT;
    std::string_view name;
    char number[16];
    if (m && (a.attr_id >= 1u << UVERBS_ID_NS_SHIFT) == driver_object) name = word(m->attrs, a.attr_id & ((1u << UVERBS_ID_NS_SHIFT) - 1));
    if (name.empty() && a.attr_id == UVERBS_ATTR_UHW_IN) name = "UHW_IN";
    if (name.empty() && a.attr_id == UVERBS_ATTR_UHW_OUT) name = "UHW_OUT";
    if (name.empty()) {
      auto r = fmt::format_to_n(number, sizeof number, "{:#x}", a.attr_id);
      name = {number, r.size};
    }
    bool is_write_cmd =
        m && m->object == UVERBS_OBJECT_DEVICE && m->method == UVERBS_METHOD_INVOKE_WRITE && a.attr_id == UVERBS_ATTR_WRITE_CMD;
    auto room = sizeof text - n;
    auto r = is_write_cmd
                 ? fmt::format_to_n(text + n, room, "{}{}={}", i ? " " : "", name, write_command_name(static_cast<std::uint32_t>(a.data)))
             : a.len > 8 ? fmt::format_to_n(text + n, room, "{}{}[{}]", i ? " " : "", name, a.len)
                         : fmt::format_to_n(text + n, room, "{}{}={:#x}", i ? " " : "", name, a.data);
    n += r.size < room ? r.size : room;
  }
  trace::Event e("syscall", "ioctl");
  e.num("fd", fd);
  if (m) {
    e.str("object", m->object_name).str("method", m->name);
  } else {
    e.hex("object", hdr.object_id).hex("method", hdr.method_id);
  }
  e.str("attrs", {text, n}).num("errno", err);
}

}  // namespace uhca::sys

// SPDX-License-Identifier: MIT
// Methods of the device itself. Linux: uverbs_std_types_device.c.
#include <algorithm>
#include <vector>

#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

using namespace uapi;

std::uint64_t core_support(const ib_device& dev) {
  return ::IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS | (dev.ops.robust_udata ? IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA : 0);
}

Status get_context(uverbs_attr_bundle& b) {
  std::uint32_t vectors = b.device->num_comp_vectors;
  UHCA_CHECK(uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, vectors)));
  std::uint64_t support = core_support(*b.device);
  UHCA_CHECK(uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, support)));
  if (uverbs_attr_is_valid(b, UVERBS_ATTR_GET_CONTEXT_FD_ARR)) {
    // Descriptors of user capabilities (/dev/infiniband/*_ucap): this host has none to give.
    std::size_t len = UHCA_TRY(uverbs_attr_get_len(b, UVERBS_ATTR_GET_CONTEXT_FD_ARR));
    if (len % sizeof(int)) return refuse(EINVAL, "GET_CONTEXT: FD_ARR of {} bytes", len);
    return refuse(EINVAL, "GET_CONTEXT: FD_ARR holds no user capability of this host");
  }
  return ufile_of(b).alloc_context(b);
}

Status query_context(uverbs_attr_bundle& b) {
  if (!b.device->ops.query_ucontext) return refuse(EOPNOTSUPP, "QUERY_CONTEXT: {} does not support it", b.device->name);
  ib_ucontext* ctx = UHCA_TRY(ufile_of(b).get_context());
  std::uint32_t vectors = b.device->num_comp_vectors;
  UHCA_CHECK(uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, vectors)));
  std::uint64_t support = core_support(*b.device);
  UHCA_CHECK(uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, support)));
  return b.device->ops.query_ucontext(*ctx, b);
}

Status info_handles(uverbs_attr_bundle& b) {
  std::uint16_t object_id = 0;
  UHCA_CHECK(uverbs_get_const(&object_id, b, UVERBS_ATTR_INFO_OBJECT_ID));
  UHCA_TRY(ufile_of(b).get_context());
  std::vector<std::uint32_t> ids = ufile_of(b).handles_of(object_id);
  std::size_t room = 0;
  if (auto len = uverbs_attr_get_len(b, UVERBS_ATTR_INFO_HANDLES_LIST); len.ok()) room = *len / sizeof(std::uint32_t);
  if (room < ids.size()) ids.resize(room);
  auto total = static_cast<std::uint32_t>(ids.size());
  UHCA_CHECK(uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_INFO_HANDLES_LIST, ids.data(), ids.size() * sizeof(std::uint32_t))));
  return uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_INFO_TOTAL_HANDLES, total));
}

Status query_port(uverbs_attr_bundle& b) {
  std::uint8_t port = 0;
  UHCA_CHECK(uverbs_get_const(&port, b, UVERBS_ATTR_QUERY_PORT_PORT_NUM));
  if (port < 1 || port > b.device->num_ports) return refuse(EINVAL, "QUERY_PORT: {} has no port {}", b.device->name, port);
  ib_port_attr attr;
  UHCA_CHECK(b.device->ops.query_port(*b.device, port, attr));
  uapi::ib_uverbs_query_port_resp_ex resp{};
  uverbs_fill_port(*b.device, attr, resp.legacy_resp);
  resp.port_cap_flags2 = attr.port_cap_flags2;
  resp.active_speed_ex = attr.active_speed;
  return uverbs_copy_to_struct_or_zero(b, UVERBS_ATTR_QUERY_PORT_RESP, &resp, sizeof resp);
}

Status query_port_speed(uverbs_attr_bundle& b) {
  std::uint32_t port = 0;
  UHCA_CHECK(uverbs_get_const(&port, b, UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM));
  if (port < 1 || port > b.device->num_ports) return refuse(EINVAL, "QUERY_PORT_SPEED: {} has no port {}", b.device->name, port);
  std::uint64_t speed = 0;
  UHCA_CHECK(b.device->ops.query_port_speed(*b.device, port, speed));
  return uverbs_copy_to(b, UVERBS_ATTR_QUERY_PORT_SPEED_RESP, speed);
}

::ib_uverbs_gid_entry gid_entry(const ib_gid_attr& a, std::uint32_t port) {
  ::ib_uverbs_gid_entry e{};
  std::copy(a.gid.begin(), a.gid.end(), reinterpret_cast<std::uint8_t*>(&e.gid));
  e.gid_index = a.index;
  e.port_num = port;
  e.gid_type = a.roce_v2 ? ::IB_UVERBS_GID_TYPE_ROCE_V2 : ::IB_UVERBS_GID_TYPE_ROCE_V1;
  e.netdev_ifindex = a.ifindex;
  return e;
}

Status query_gid_table(uverbs_attr_bundle& b) {
  std::uint32_t flags = 0;
  UHCA_CHECK(uverbs_get_flags32(&flags, b, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0));
  std::uint64_t entry_size = 0;
  UHCA_CHECK(uverbs_get_const(&entry_size, b, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE));
  if (!entry_size) return refuse(EINVAL, "QUERY_GID_TABLE: entry size 0");
  std::size_t room = UHCA_TRY(uverbs_attr_get_len(b, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES));
  if (room % entry_size) return refuse(EINVAL, "QUERY_GID_TABLE: {} bytes are no array of {}-byte entries", room, entry_size);
  UHCA_TRY(ufile_of(b).get_context());

  std::vector<::ib_uverbs_gid_entry> all;
  for (std::uint32_t port = 1; port <= b.device->num_ports; ++port)
    for (const ib_gid_attr& a : rdma_gid_table(*b.device, port)) all.push_back(gid_entry(a, port));
  if (all.size() > room / entry_size)
    return refuse(EINVAL, "QUERY_GID_TABLE: room for {} entries, the table has {}", room / entry_size, all.size());
  const uverbs_attr* out = uverbs_attr_get(b, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  std::size_t known = std::min<std::size_t>(entry_size, sizeof(::ib_uverbs_gid_entry));
  for (std::size_t i = 0; i < all.size(); ++i) {
    UserPtr to = out->data + i * entry_size;
    UHCA_CHECK(copy_to_user(to, &all[i], known));
    if (entry_size > known) UHCA_CHECK(clear_user(to + known, entry_size - known));
  }
  UHCA_CHECK(uverbs_set_output(b, *out));
  auto n = static_cast<std::uint64_t>(all.size());
  return uverbs_copy_to(b, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, n);
}

Status query_gid_entry(uverbs_attr_bundle& b) {
  std::uint32_t flags = 0, index = 0, port = 0;
  UHCA_CHECK(uverbs_get_flags32(&flags, b, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0));
  UHCA_CHECK(uverbs_get_const(&index, b, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX));
  UHCA_CHECK(uverbs_get_const(&port, b, UVERBS_ATTR_QUERY_GID_ENTRY_PORT));
  UHCA_TRY(ufile_of(b).get_context());
  if (port < 1 || port > b.device->num_ports) return refuse(EINVAL, "QUERY_GID_ENTRY: {} has no port {}", b.device->name, port);
  if (index >= kGidTableLen) return refuse(EINVAL, "QUERY_GID_ENTRY: index {} of {}", index, kGidTableLen);
  ib_gid_attr a = rdma_get_gid_attr(*b.device, port, static_cast<std::uint16_t>(index));
  if (!a.valid) return Errno{ENODATA};  // an ordinary answer while a program walks the table
  ::ib_uverbs_gid_entry e = gid_entry(a, port);
  return uverbs_copy_to_struct_or_zero(b, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &e, sizeof e);
}

constexpr uverbs_attr_def kInvokeWrite[] = {
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_WRITE_CMD, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CORE_IN, UVERBS_ATTR_MIN_SIZE(sizeof(std::uint32_t))),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_MIN_SIZE(0)),
    UVERBS_ATTR_UHW(),
};
constexpr uverbs_attr_def kGetContext[] = {
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_TYPE(std::uint64_t)),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_GET_CONTEXT_FD_ARR, UVERBS_ATTR_MIN_SIZE(sizeof(int)), UA_ALLOC_AND_COPY),
    UVERBS_ATTR_UHW(),
};
constexpr uverbs_attr_def kQueryContext[] = {
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_TYPE(std::uint64_t)),
};
constexpr uverbs_attr_def kInfoHandles[] = {
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_INFO_OBJECT_ID, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_INFO_TOTAL_HANDLES, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_INFO_HANDLES_LIST, UVERBS_ATTR_MIN_SIZE(sizeof(std::uint32_t))),
};
constexpr uverbs_attr_def kQueryPort[] = {
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_QUERY_PORT_PORT_NUM, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_PORT_RESP, UVERBS_ATTR_STRUCT(uapi::ib_uverbs_query_port_resp_ex, active_speed_ex), UA_MANDATORY),
};
constexpr uverbs_attr_def kQueryPortSpeed[] = {
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_PORT_SPEED_RESP, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kQueryGidTable[] = {
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, UVERBS_ATTR_MIN_SIZE(0), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kQueryGidEntry[] = {
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UA_MANDATORY),
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, UVERBS_ATTR_STRUCT(::ib_uverbs_gid_entry, netdev_ifindex), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_INVOKE_WRITE, kInvokeWrite, uverbs_invoke_write),
    UVERBS_METHOD(UVERBS_METHOD_GET_CONTEXT, kGetContext, get_context),
    UVERBS_METHOD(UVERBS_METHOD_QUERY_CONTEXT, kQueryContext, query_context),
    UVERBS_METHOD(UVERBS_METHOD_INFO_HANDLES, kInfoHandles, info_handles),
    UVERBS_METHOD_NEEDS(UVERBS_METHOD_QUERY_PORT, kQueryPort, query_port, query_port),
    UVERBS_METHOD_NEEDS(UVERBS_METHOD_QUERY_PORT_SPEED, kQueryPortSpeed, query_port_speed, query_port_speed),
    UVERBS_METHOD(UVERBS_METHOD_QUERY_GID_TABLE, kQueryGidTable, query_gid_table),
    UVERBS_METHOD(UVERBS_METHOD_QUERY_GID_ENTRY, kQueryGidEntry, query_gid_entry),
};

}  // namespace

constinit const uverbs_object_def uverbs_def_device = UVERBS_OBJECT(UVERBS_OBJECT_DEVICE, nullptr, kMethods);

void uverbs_fill_port(ib_device&, const ib_port_attr& a, ::ib_uverbs_query_port_resp& r) {
  r.state = a.state;
  r.max_mtu = a.max_mtu;
  r.active_mtu = a.active_mtu;
  r.gid_tbl_len = a.gid_tbl_len;
  r.port_cap_flags = a.port_cap_flags | ::IB_UVERBS_PCF_IP_BASED_GIDS;
  r.max_msg_sz = a.max_msg_sz;
  r.bad_pkey_cntr = a.bad_pkey_cntr;
  r.qkey_viol_cntr = a.qkey_viol_cntr;
  r.pkey_tbl_len = a.pkey_tbl_len;
  r.lid = a.lid;
  r.sm_lid = a.sm_lid;
  r.lmc = a.lmc;
  r.max_vl_num = a.max_vl_num;
  r.sm_sl = a.sm_sl;
  r.subnet_timeout = a.subnet_timeout;
  r.init_type_reply = a.init_type_reply;
  r.active_width = a.active_width;
  // 8 bits here; NDR and beyond do not fit and read as the highest power of two that does (Linux: legacy active_speed).
  r.active_speed = static_cast<std::uint8_t>(a.active_speed > 0xff ? 0x80 : a.active_speed);
  r.phys_state = a.phys_state;
  r.link_layer = 2;                        // IBV_LINK_LAYER_ETHERNET
  r.flags = ::IB_UVERBS_QPF_GRH_REQUIRED;  // RoCE
}

}  // namespace uhca::kernel

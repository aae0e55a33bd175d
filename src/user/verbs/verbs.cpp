// SPDX-License-Identifier: MIT
// Verbs on devices, ports and protection domains.
#include "user/verbs/internal.h"

using namespace uhca::verbs;

// Programs older than port_cap_flags2 have this ibv_port_attr; the exported function writes no more than it.
struct _compat_ibv_port_attr {
  enum ibv_port_state state;
  enum ibv_mtu max_mtu;
  enum ibv_mtu active_mtu;
  int gid_tbl_len;
  std::uint32_t port_cap_flags;
  std::uint32_t max_msg_sz;
  std::uint32_t bad_pkey_cntr;
  std::uint32_t qkey_viol_cntr;
  std::uint16_t pkey_tbl_len;
  std::uint16_t lid;
  std::uint16_t sm_lid;
  std::uint8_t lmc;
  std::uint8_t max_vl_num;
  std::uint8_t sm_sl;
  std::uint8_t subnet_timeout;
  std::uint8_t init_type_reply;
  std::uint8_t active_width;
  std::uint8_t active_speed;
  std::uint8_t phys_state;
  std::uint8_t link_layer;
  std::uint8_t flags;
};
static_assert(sizeof(_compat_ibv_port_attr) == 48 && offsetof(_compat_ibv_port_attr, flags) == offsetof(ibv_port_attr, flags));

namespace uhca::verbs {

// attr_len is the size of the program's structure: shorter ones get the beginning, longer ones zeros behind what is known.
int query_port_clipped(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attr, std::size_t attr_len) {
  ibv_port_attr_v65 full{};
  if (int ret = get_ops(context)->query_port(context, port_num, &full)) return ret;
  const std::size_t n = attr_len < sizeof full ? attr_len : sizeof full;
  std::memcpy(static_cast<void*>(attr), &full, n);
  if (attr_len > n) std::memset(reinterpret_cast<char*>(attr) + n, 0, attr_len - n);
  return 0;
}

// Also the targets of ibv_context.ops (see set_library_ops): functions, not exported names, so that nothing can be put in between.
extern "C" int uhca_verbs_query_port_compat(ibv_context* context, std::uint8_t port_num, _compat_ibv_port_attr* attr) {
  return query_port_clipped(context, port_num, reinterpret_cast<ibv_port_attr*>(attr), sizeof *attr);
}

extern "C" int uhca_verbs_query_device(ibv_context* context, ibv_device_attr* attr) {
  static_assert(offsetof(ibv_device_attr_ex, orig_attr) == 0);
  return get_ops(context)->query_device_ex(context, nullptr, reinterpret_cast<ibv_device_attr_ex*>(attr), sizeof *attr);
}

}  // namespace uhca::verbs

UHCA_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return uhca_verbs_query_device(context, attr);
}

UHCA_EXPORT int ibv_query_port(ibv_context* context, std::uint8_t port_num, _compat_ibv_port_attr* attr) {
  return uhca_verbs_query_port_compat(context, port_num, attr);
}

UHCA_EXPORT int ibv_query_pkey(ibv_context* context, std::uint8_t port_num, int index, __be16* pkey) {
  char file[64], value[16];
  unsigned v;
  std::snprintf(file, sizeof file, "ports/%u/pkeys/%d", port_num, index);
  if (ibv_read_ibdev_sysfs_file(value, sizeof value, verbs_get_device(context->device)->sysfs, file) < 0) return -1;
  if (std::sscanf(value, "%x", &v) != 1) return -1;  // "0xffff"
  *pkey = __builtin_bswap16(static_cast<std::uint16_t>(v));
  return 0;
}

UHCA_EXPORT int ibv_get_pkey_index(ibv_context* context, std::uint8_t port_num, __be16 pkey) {
  for (int i = 0;; ++i) {
    __be16 entry;
    if (int ret = ibv_query_pkey(context, port_num, i, &entry); ret < 0) return ret;
    if (entry == pkey) return i;
  }
}

UHCA_EXPORT int ibv_query_port_speed(ibv_context* context, std::uint32_t port_num, std::uint64_t* speed) {
  return get_ops(context)->query_port_speed(context, port_num, speed);
}

UHCA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  ibv_pd* pd = get_ops(context)->alloc_pd(context);
  if (pd) pd->context = context;
  return pd;
}

UHCA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return get_ops(pd->context)->dealloc_pd(pd);
}

UHCA_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  return get_ops(context)->import_pd(context, handle);
}

UHCA_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  get_ops(pd->context)->unimport_pd(pd);
}

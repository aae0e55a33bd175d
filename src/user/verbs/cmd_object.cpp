// SPDX-License-Identifier: MIT
// Commands on device memory, flows, flow actions, counters, DMA handles and exported dma-bufs.
#include <algorithm>

#include "user/verbs/internal.h"

using namespace uhca::verbs;
namespace uapi = uhca::uapi;

namespace {

int destroy_by_handle(ibv_context* context, std::uint16_t object, std::uint16_t method, std::uint16_t attr, std::uint32_t handle) {
  ibv_command_buffer cmd(object, method);
  cmd.in_obj(attr, handle);
  int ret = execute_ioctl(context, &cmd);
  return is_destroy_error(&ret) ? ret : 0;
}

// Translates one match or action of a flow rule; returns its size in the kernel's form, 0 with errno when it cannot be expressed.
std::size_t translate_spec(const ibv_flow_spec* spec, std::byte* out) {
  constexpr std::uint32_t kInner = IBV_FLOW_SPEC_INNER;
  const std::uint32_t type = spec->hdr.type;
  ib_uverbs_flow_spec_hdr hdr{};
  hdr.type = type;
  const auto* app = reinterpret_cast<const std::byte*>(spec);
  // Value and mask, behind each other: `each` bytes of the application's at `at`, of which the kernel's form has `kern_each`.
  auto put = [&](std::size_t at, std::size_t each, std::size_t kern_each) -> std::size_t {
    hdr.size = static_cast<std::uint16_t>(8 + 2 * kern_each);
    std::memcpy(out, &hdr, 8);
    std::memcpy(out + 8, app + at, std::min(each, kern_each));
    std::memcpy(out + 8 + kern_each, app + at + each, std::min(each, kern_each));
    return hdr.size;
  };
  // Filters that have grown, or may: their length is the rest of the spec. `known`: bytes that the kernel looks at.
  auto sized = [&](std::size_t at, std::size_t known, std::size_t kern_each) -> std::size_t {
    const std::size_t each = spec->hdr.size < 8 ? 0 : (spec->hdr.size - 8u) / 2;
    if (each < known) return fail(EINVAL), 0;
    for (std::size_t i = known; i < each; ++i)
      if (app[at + each + i] != std::byte{0}) return fail(EOPNOTSUPP), 0;  // the mask asks for what the kernel cannot match
    return put(at, each, kern_each);
  };
  auto handle = [&](std::uint32_t h) -> std::size_t {
    hdr.size = 16;
    std::memcpy(out, &hdr, 8);
    std::memcpy(out + 8, &h, sizeof h);
    return hdr.size;
  };
  if ((type & kInner) && (type & ~kInner) >= IBV_FLOW_SPEC_VXLAN_TUNNEL && (type & ~kInner) != IBV_FLOW_SPEC_MPLS) return fail(EINVAL), 0;
  switch (type & ~kInner) {
    case IBV_FLOW_SPEC_ETH: return put(offsetof(ibv_flow_spec_eth, val), sizeof(ibv_flow_eth_filter), sizeof(ib_uverbs_flow_eth_filter));
    case IBV_FLOW_SPEC_IPV4:  // addresses only: the older, shorter form
      return put(offsetof(ibv_flow_spec_ipv4, val), sizeof(ibv_flow_ipv4_filter), sizeof(ibv_flow_ipv4_filter));
    case IBV_FLOW_SPEC_IPV4_EXT:
      hdr.type = IBV_FLOW_SPEC_IPV4 | (type & kInner);
      return sized(offsetof(ibv_flow_spec_ipv4_ext, val), sizeof(ib_uverbs_flow_ipv4_filter), sizeof(ib_uverbs_flow_ipv4_filter));
    case IBV_FLOW_SPEC_IPV6:
      return sized(offsetof(ibv_flow_spec_ipv6, val), offsetof(ib_uverbs_flow_ipv6_filter, hop_limit) + 1,
                   sizeof(ib_uverbs_flow_ipv6_filter));
    case IBV_FLOW_SPEC_ESP:
      return put(offsetof(ibv_flow_spec_esp, val), sizeof(ibv_flow_esp_filter), sizeof(ib_uverbs_flow_spec_esp_filter));
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      return put(offsetof(ibv_flow_spec_tcp_udp, val), sizeof(ibv_flow_tcp_udp_filter), sizeof(ib_uverbs_flow_tcp_udp_filter));
    case IBV_FLOW_SPEC_GRE: return put(offsetof(ibv_flow_spec_gre, val), sizeof(ibv_flow_gre_filter), sizeof(ib_uverbs_flow_gre_filter));
    case IBV_FLOW_SPEC_MPLS:
      return put(offsetof(ibv_flow_spec_mpls, val), sizeof(ibv_flow_mpls_filter), sizeof(ib_uverbs_flow_mpls_filter));
    case IBV_FLOW_SPEC_VXLAN_TUNNEL:
      return sized(offsetof(ibv_flow_spec_tunnel, val), sizeof(ib_uverbs_flow_tunnel_filter), sizeof(ib_uverbs_flow_tunnel_filter));
    case IBV_FLOW_SPEC_ACTION_TAG: return handle(spec->flow_tag.tag_id);
    case IBV_FLOW_SPEC_ACTION_DROP:
      hdr.size = sizeof hdr;
      std::memcpy(out, &hdr, sizeof hdr);
      return hdr.size;
    case IBV_FLOW_SPEC_ACTION_HANDLE: return handle(reinterpret_cast<const verbs_flow_action*>(spec->handle.action)->handle);
    case IBV_FLOW_SPEC_ACTION_COUNT: return handle(reinterpret_cast<const verbs_counters*>(spec->flow_count.counters)->handle);
    default: return fail(EINVAL), 0;
  }
}
static_assert(sizeof(ib_uverbs_flow_spec_hdr) == 8 && sizeof(ib_uverbs_flow_spec_action_tag) == 16 &&
              sizeof(ib_uverbs_flow_spec_action_handle) == 16 && sizeof(ib_uverbs_flow_spec_action_count) == 16);
constexpr std::size_t kMaxSpec = 128;
static_assert(sizeof(ib_uverbs_flow_spec_ipv6) <= kMaxSpec && sizeof(ib_uverbs_flow_spec_eth) <= kMaxSpec);

}  // namespace

UHCA_EXPORT int ibv_cmd_alloc_dm(ibv_context* context, const ibv_alloc_dm_attr* attr, verbs_dm* dm, ibv_command_buffer* driver) {
  ibv_command_buffer cmd(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
  cmd.out_obj(UVERBS_ATTR_ALLOC_DM_HANDLE);
  cmd.in_u64(UVERBS_ATTR_ALLOC_DM_LENGTH, attr->length);
  cmd.in_u32(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, attr->log_align_req);
  cmd.link(driver);
  if (int ret = execute_ioctl(context, &cmd)) return ret;
  cmd.finish_link(driver);
  dm->handle = cmd.handle(UVERBS_ATTR_ALLOC_DM_HANDLE);
  dm->dm.handle = dm->handle;
  dm->dm.comp_mask = IBV_DM_MASK_HANDLE;
  dm->dm.context = context;
  return 0;
}

UHCA_EXPORT int ibv_cmd_free_dm(verbs_dm* dm) {
  return destroy_by_handle(dm->dm.context, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, UVERBS_ATTR_FREE_DM_HANDLE, dm->handle);
}

UHCA_EXPORT int ibv_cmd_reg_dm_mr(ibv_pd* pd, verbs_dm* dm, std::uint64_t offset, std::size_t length, unsigned int access, verbs_mr* vmr,
                                  const ibv_command_buffer* driver) {
  // Such a region has no virtual address.
  if (!(access & IBV_ACCESS_ZERO_BASED)) return fail(EINVAL);
  std::uint32_t lkey = 0, rkey = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
  cmd.out_obj(UVERBS_ATTR_REG_DM_MR_HANDLE);
  cmd.out_struct(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &lkey);
  cmd.out_struct(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &rkey);
  cmd.in_obj(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd->handle);
  cmd.in_obj(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm->handle);
  cmd.in_u64(UVERBS_ATTR_REG_DM_MR_OFFSET, offset);
  cmd.in_u64(UVERBS_ATTR_REG_DM_MR_LENGTH, length);
  cmd.in_u32(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access);
  cmd.link(driver);
  if (int ret = execute_ioctl(pd->context, &cmd)) return ret;
  vmr->mr.handle = cmd.handle(UVERBS_ATTR_REG_DM_MR_HANDLE);
  vmr->mr.context = pd->context;
  vmr->mr.lkey = lkey;
  vmr->mr.rkey = rkey;
  vmr->mr.length = length;
  vmr->mr.pd = pd;
  vmr->mr.addr = nullptr;
  vmr->mr_type = IBV_MR_TYPE_MR;
  vmr->access = static_cast<int>(access);
  return 0;
}

UHCA_EXPORT int ibv_cmd_create_flow(ibv_qp* qp, ibv_flow* flow, const ibv_flow_attr* attr, const verbs_udata* udata) {
  const std::size_t cap = sizeof(ib_uverbs_create_flow) + attr->num_of_specs * kMaxSpec;
  auto* buf = static_cast<std::byte*>(std::calloc(1, cap));
  if (!buf) return fail(ENOMEM);
  auto* req = reinterpret_cast<ib_uverbs_create_flow*>(buf);
  req->qp_handle = qp->handle;
  req->flow_attr.type = attr->type;
  req->flow_attr.priority = attr->priority;
  req->flow_attr.num_of_specs = attr->num_of_specs;
  req->flow_attr.port = attr->port;
  req->flow_attr.flags = attr->flags;
  std::size_t len = sizeof *req;
  const std::byte* spec = reinterpret_cast<const std::byte*>(attr + 1);
  for (unsigned i = 0; i < attr->num_of_specs; ++i) {
    auto* s = reinterpret_cast<const ibv_flow_spec*>(spec);
    std::size_t n = translate_spec(s, buf + len);
    if (!n) {
      int e = errno;
      std::free(buf);
      return fail(e);
    }
    len += n;
    spec += s->hdr.size;
  }
  req->flow_attr.size = static_cast<std::uint16_t>(len - sizeof *req);
  ib_uverbs_create_flow_resp resp{};
  int ret = execute_write_ex_raw(qp->context, IB_USER_VERBS_EX_CMD_CREATE_FLOW, req, len, &resp, sizeof resp, udata);
  std::free(buf);
  if (ret) return ret;
  flow->context = qp->context;
  flow->handle = resp.flow_handle;
  return 0;
}

UHCA_EXPORT int ibv_cmd_destroy_flow(ibv_flow* flow) {
  ibv_command_buffer cmd(UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY);
  cmd.in_obj(UVERBS_ATTR_DESTROY_FLOW_HANDLE, flow->handle);
  int ret;
  if (execute_with_fallback(flow->context, Method::kDestroyFlow, &cmd, nullptr, &ret) == Outcome::kTryWrite) {
    ib_uverbs_destroy_flow req{};
    req.flow_handle = flow->handle;
    ret = execute_write_ex_raw(flow->context, IB_USER_VERBS_EX_CMD_DESTROY_FLOW, &req, sizeof req, nullptr, 0, nullptr);
  }
  return is_destroy_error(&ret) ? ret : 0;
}

UHCA_EXPORT int ibv_cmd_destroy_flow_action(verbs_flow_action* action) {
  return destroy_by_handle(action->action.context, UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_DESTROY,
                           UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE, action->handle);
}

UHCA_EXPORT int ibv_cmd_create_counters(ibv_context* context, const ibv_counters_init_attr* attr, verbs_counters* counters,
                                        const ibv_command_buffer* driver) {
  if (attr->comp_mask) return fail(EOPNOTSUPP);
  ibv_command_buffer cmd(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE);
  cmd.out_obj(UVERBS_ATTR_CREATE_COUNTERS_HANDLE);
  cmd.link(driver);
  if (int ret = execute_ioctl(context, &cmd)) return ret;
  counters->counters.context = context;
  counters->handle = cmd.handle(UVERBS_ATTR_CREATE_COUNTERS_HANDLE);
  return 0;
}

UHCA_EXPORT int ibv_cmd_destroy_counters(verbs_counters* counters) {
  return destroy_by_handle(counters->counters.context, UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY,
                           UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, counters->handle);
}

UHCA_EXPORT int ibv_cmd_read_counters(verbs_counters* counters, std::uint64_t* values, std::uint32_t ncounters, std::uint32_t flags,
                                      const ibv_command_buffer* driver) {
  ibv_command_buffer cmd(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ);
  cmd.in_obj(UVERBS_ATTR_READ_COUNTERS_HANDLE, counters->handle);
  cmd.out(UVERBS_ATTR_READ_COUNTERS_BUFF, values, std::size_t{ncounters} * sizeof *values);
  cmd.in_u32(UVERBS_ATTR_READ_COUNTERS_FLAGS, flags);
  cmd.link(driver);
  return execute_ioctl(counters->counters.context, &cmd);
}

UHCA_EXPORT int ibv_cmd_alloc_dmah(ibv_context* context, verbs_dmah* dmah, const ibv_dmah_init_attr* attr) {
  ibv_command_buffer cmd(uapi::UVERBS_OBJECT_DMAH, uapi::UVERBS_METHOD_DMAH_ALLOC);
  cmd.out_obj(uapi::UVERBS_ATTR_ALLOC_DMAH_HANDLE);
  if (attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_CPU_ID) cmd.in_u32(uapi::UVERBS_ATTR_ALLOC_DMAH_CPU_ID, attr->cpu_id);
  if (attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE)
    cmd.in_enum(uapi::UVERBS_ATTR_ALLOC_DMAH_TPH_MEM_TYPE, attr->tph_mem_type, nullptr, 0);
  if (attr->comp_mask & IBV_DMAH_INIT_ATTR_MASK_PH) cmd.in(uapi::UVERBS_ATTR_ALLOC_DMAH_PH, &attr->ph, sizeof attr->ph);
  if (int ret = execute_ioctl(context, &cmd)) return ret;
  dmah->handle = cmd.handle(uapi::UVERBS_ATTR_ALLOC_DMAH_HANDLE);
  dmah->dmah.context = context;
  return 0;
}

UHCA_EXPORT int ibv_cmd_free_dmah(verbs_dmah* dmah) {
  return destroy_by_handle(dmah->dmah.context, uapi::UVERBS_OBJECT_DMAH, uapi::UVERBS_METHOD_DMAH_FREE, uapi::UVERBS_ATTR_FREE_DMAH_HANDLE,
                           dmah->handle);
}

UHCA_EXPORT int ibv_cmd_export_dmabuf_fd(ibv_context* context, std::uint64_t pg_off) {
  // Object DMABUF: method ALLOC = 0, attributes HANDLE = 0 and PGOFF = 1.
  ibv_command_buffer cmd(uapi::UVERBS_OBJECT_DMABUF, 0);
  cmd.out_fd(0);
  cmd.in_u64(1, pg_off);
  return execute_ioctl(context, &cmd) ? -1 : static_cast<int>(cmd.handle(0));
}

// SPDX-License-Identifier: MIT
// Addresses, routes, queries, options, multicast.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "kernel/cm/ucma.h"
#include "kernel/cm/ucma_cmd.h"

namespace uhca::kernel::cm {
namespace {

// rdma_addr_size_kss: an address that does not fill what the program says is refused.
Status sized_address(const ::__kernel_sockaddr_storage& ss, std::uint16_t size, Sockaddr* out) {
  *out = sockaddr_of(&ss, sizeof ss);
  if (!size || size != out->size()) return refuse(EINVAL, "rdma_cm: {} bytes for an address of family {}", size, ss.ss_family);
  return success();
}

Status in6_address(const ::sockaddr_in6& in, Sockaddr* out) {
  *out = sockaddr_of(&in, sizeof in);
  if (!out->size()) return refuse(EINVAL, "rdma_cm: address family {}", in.sin6_family);
  return success();
}

constexpr std::uint32_t kQueryIbService = 3;  // RDMA_USER_CM_QUERY_IB_SERVICE, Linux 6.18
constexpr std::size_t kMaxOption = 4u << 20;  // KMALLOC_MAX_SIZE

}  // namespace

Status UcmaFile::bind_ip(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_bind_ip cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  Sockaddr addr;
  UHCA_CHECK(in6_address(cmd.addr, &addr));
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  return ucma_.cma_.bind_addr(*ctx->cm_id, addr);
}

Status UcmaFile::bind(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_bind cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  if (cmd.reserved) return refuse(EINVAL, "rdma_cm: BIND with a reserved field");
  Sockaddr addr;
  UHCA_CHECK(sized_address(cmd.addr, cmd.addr_size, &addr));
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  return ucma_.cma_.bind_addr(*ctx->cm_id, addr);
}

Status UcmaFile::resolve_ip(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_resolve_ip cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  Sockaddr src, dst;
  if (cmd.src_addr.sin6_family) UHCA_CHECK(in6_address(cmd.src_addr, &src));
  UHCA_CHECK(in6_address(cmd.dst_addr, &dst));
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  return ucma_.cma_.resolve_addr(*ctx->cm_id, src, dst, cmd.timeout_ms);
}

Status UcmaFile::resolve_addr(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_resolve_addr cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  if (cmd.reserved) return refuse(EINVAL, "rdma_cm: RESOLVE_ADDR with a reserved field");
  Sockaddr src, dst;
  if (cmd.src_size) UHCA_CHECK(sized_address(cmd.src_addr, cmd.src_size, &src));
  UHCA_CHECK(sized_address(cmd.dst_addr, cmd.dst_size, &dst));
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  return ucma_.cma_.resolve_addr(*ctx->cm_id, src, dst, cmd.timeout_ms);
}

Status UcmaFile::resolve_route(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_resolve_route cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  return ucma_.cma_.resolve_route(*ctx->cm_id, cmd.timeout_ms);
}

Status UcmaFile::resolve_ib_service(UserPtr in, std::size_t, std::size_t) {
  std::uint32_t id;  // the first field; the service itself is not looked at where it cannot be resolved
  UHCA_CHECK(copy_from_user(&id, in, sizeof id));
  UcmaContext* ctx = UHCA_TRY(get_ctx(id));
  return ucma_.cma_.resolve_ib_service(*ctx->cm_id);
}

// ---------------------------------------------------------------- queries

Status UcmaFile::query_route(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_query cmd;
  ::rdma_ucm_query_route_resp resp{};
  if (out_len < offsetof(::rdma_ucm_query_route_resp, ibdev_index)) return Errno{ENOSPC};
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  RdmaId& id = *ctx->cm_id;
  std::memcpy(&resp.src_addr, &id.src, id.src.family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  std::memcpy(&resp.dst_addr, &id.dst, id.dst.family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  if (id.bound) {
    resp.node_guid = byteswap(ucma_.dev_.node_guid);
    resp.ibdev_index = ucma_.dev_.index;
    resp.port_num = id.port_num;
    if (id.path) {
      resp.num_paths = 1;
      copy_path(resp.ib_route[0], *id.path);
    } else {
      ib_gid s = id.src.gid(), d = id.dst.gid();
      std::copy(s.begin(), s.end(), resp.ib_route[0].sgid);
      std::copy(d.begin(), d.end(), resp.ib_route[0].dgid);
      resp.ib_route[0].pkey = 0xffff;
    }
  }
  return copy_to_user(cmd.response, &resp, std::min(out_len, sizeof resp));
}

namespace {

void fill_device(::rdma_ucm_query_addr_resp& resp, ib_device& dev, const RdmaId& id) {
  if (!id.bound) return;
  resp.node_guid = byteswap(dev.node_guid);
  resp.ibdev_index = dev.index;
  resp.port_num = id.port_num;
  resp.pkey = 0xffff;
}

}  // namespace

Status UcmaFile::query(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_query cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  switch (cmd.option) {
    case RDMA_USER_CM_QUERY_ADDR: return query_addr(*ctx, cmd.response, out_len);
    case RDMA_USER_CM_QUERY_PATH: return query_path(*ctx, cmd.response, out_len);
    case RDMA_USER_CM_QUERY_GID: return query_gid(*ctx, cmd.response, out_len);
    case kQueryIbService:
      if (out_len < 8) return Errno{ENOSPC};
      return refuse(ENODATA, "rdma_cm: QUERY_IB_SERVICE: no service records: an Ethernet port has no subnet administrator");
    default: return refuse(ENOSYS, "rdma_cm: QUERY option {}", cmd.option);
  }
}

Status UcmaFile::query_addr(UcmaContext& ctx, UserPtr response, std::size_t out_len) {
  ::rdma_ucm_query_addr_resp resp{};
  if (out_len < offsetof(::rdma_ucm_query_addr_resp, ibdev_index)) return Errno{ENOSPC};
  RdmaId& id = *ctx.cm_id;
  resp.src_size = static_cast<std::uint16_t>(id.src.size());
  resp.dst_size = static_cast<std::uint16_t>(id.dst.size());
  std::memcpy(&resp.src_addr, &id.src, resp.src_size);
  std::memcpy(&resp.dst_addr, &id.dst, resp.dst_size);
  fill_device(resp, ucma_.dev_, id);
  return copy_to_user(response, &resp, std::min(out_len, sizeof resp));
}

Status UcmaFile::query_path(UcmaContext& ctx, UserPtr response, std::size_t out_len) {
  struct {
    std::uint32_t num_paths, reserved;  // rdma_ucm_query_path_resp
    ::ib_path_rec_data path;
  } resp{};
  static_assert(sizeof resp == sizeof(::rdma_ucm_query_path_resp) + sizeof(::ib_path_rec_data));
  std::size_t n = sizeof(::rdma_ucm_query_path_resp);
  if (out_len < n) return Errno{ENOSPC};
  if (ctx.cm_id->path) {
    resp.num_paths = 1;
    if (out_len >= sizeof resp) {
      resp.path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
      pack_path(resp.path.path_rec, *ctx.cm_id->path);
      n = sizeof resp;
    }
  }
  return copy_to_user(response, &resp, n);
}

Status UcmaFile::query_gid(UcmaContext& ctx, UserPtr response, std::size_t out_len) {
  ::rdma_ucm_query_addr_resp resp{};
  if (out_len < offsetof(::rdma_ucm_query_addr_resp, ibdev_index)) return Errno{ENOSPC};
  RdmaId& id = *ctx.cm_id;
  fill_device(resp, ucma_.dev_, id);
  auto fill = [&](const Sockaddr& from, void* to) {
    Sockaddr a;
    if (from.family() == kAfIb) {
      a = from;
    } else {
      a.ib.sib_family = kAfIb;
      a.ib.sib_pkey = resp.pkey;
      ib_gid g = id.bound ? from.gid() : ib_gid{};
      std::copy(g.begin(), g.end(), a.ib.sib_addr);
      a.ib.sib_sid = byteswap(rdma_service_id(id.ps, from));
    }
    std::memcpy(to, &a.ib, sizeof a.ib);
  };
  resp.src_size = resp.dst_size = sizeof(sockaddr_ib);
  fill(id.src, &resp.src_addr);
  fill(id.dst, &resp.dst_addr);
  return copy_to_user(response, &resp, std::min(out_len, sizeof resp));
}

Status UcmaFile::init_qp_attr(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_init_qp_attr cmd;
  ::ib_uverbs_qp_attr resp;
  if (out_len < sizeof resp) return Errno{ENOSPC};
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  if (cmd.qp_state > static_cast<std::uint32_t>(ib_qp_state::ERR))
    return refuse(EINVAL, "rdma_cm: INIT_QP_ATTR: no QP state {}", cmd.qp_state);
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  ib_qp_attr attr;
  std::uint32_t mask = 0;
  attr.qp_state = static_cast<ib_qp_state>(cmd.qp_state);
  UHCA_CHECK(ucma_.cma_.init_qp_attr(*ctx->cm_id, attr, mask));
  copy_qp_attr(resp, attr, mask);
  return copy_to_user(cmd.response, &resp, sizeof resp);
}

// ---------------------------------------------------------------- options

Status UcmaFile::set_option(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_set_option cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  if (cmd.optlen > kMaxOption) return refuse(EINVAL, "rdma_cm: SET_OPTION of {} bytes", cmd.optlen);
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  std::vector<std::uint8_t> value(cmd.optlen);
  if (cmd.optlen) UHCA_CHECK(copy_from_user(value.data(), cmd.optval, value.size()));
  if (cmd.level == RDMA_OPTION_ID) return set_option_id(*ctx, cmd.optname, value.data(), value.size());
  if (cmd.level == RDMA_OPTION_IB && cmd.optname == RDMA_OPTION_IB_PATH) return set_ib_path(*ctx, value.data(), value.size());
  return refuse(ENOSYS, "rdma_cm: SET_OPTION: no option {} of level {}", cmd.optname, cmd.level);
}

Status UcmaFile::set_option_id(UcmaContext& ctx, std::uint32_t name, const std::uint8_t* value, std::size_t len) {
  auto wrong_size = [&](std::size_t want) { return refuse(EINVAL, "rdma_cm: SET_OPTION {}: {} bytes instead of {}", name, len, want); };
  int flag = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (len != 1) return wrong_size(1);
      ctx.cm_id->tos = *value;
      return success();
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      if (len != sizeof flag) return wrong_size(sizeof flag);
      std::memcpy(&flag, value, sizeof flag);
      return name == RDMA_OPTION_ID_REUSEADDR ? ucma_.cma_.set_reuseaddr(*ctx.cm_id, flag != 0)
                                              : ucma_.cma_.set_afonly(*ctx.cm_id, flag != 0);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (len != 1) return wrong_size(1);
      return ucma_.cma_.set_ack_timeout(*ctx.cm_id, *value);
    default: return refuse(ENOSYS, "rdma_cm: SET_OPTION: no option {} of level 0", name);
  }
}

Status UcmaFile::set_ib_path(UcmaContext& ctx, const std::uint8_t* value, std::size_t len) {
  if (len % sizeof(::ib_path_rec_data)) return refuse(EINVAL, "rdma_cm: IB_PATH of {} bytes is no array of path records", len);
  for (std::size_t at = 0; at < len; at += sizeof(::ib_path_rec_data)) {
    ::ib_path_rec_data rec;
    std::memcpy(&rec, value + at, sizeof rec);
    if (rec.flags != (IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL)) continue;
    if (!ctx.cm_id->bound) return refuse(EINVAL, "rdma_cm: IB_PATH of id {}, which is not bound to a device", ctx.id);
    return ucma_.cma_.set_ib_path(*ctx.cm_id, unpack_path(rec.path_rec));
  }
  return refuse(EINVAL, "rdma_cm: IB_PATH without a primary bidirectional path");
}

// ---------------------------------------------------------------- multicast

Status UcmaFile::join_ip_mcast(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_join_ip_mcast cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  Sockaddr addr;
  UHCA_CHECK(in6_address(cmd.addr, &addr));
  ::rdma_ucm_join_mcast join{};
  join.response = cmd.response;
  join.uid = cmd.uid;
  join.id = cmd.id;
  join.addr_size = static_cast<std::uint16_t>(addr.size());
  join.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
  std::memcpy(&join.addr, &addr, addr.size());
  return process_join(join, out_len);
}

Status UcmaFile::join_mcast(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_join_mcast cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  return process_join(cmd, out_len);
}

Status UcmaFile::process_join(const ::rdma_ucm_join_mcast& cmd, std::size_t out_len) {
  ::rdma_ucm_create_id_resp resp{};
  if (out_len < sizeof resp) return Errno{ENOSPC};
  Sockaddr addr;
  UHCA_CHECK(sized_address(cmd.addr, cmd.addr_size, &addr));
  if (cmd.join_flags != RDMA_MC_JOIN_FLAG_FULLMEMBER && cmd.join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
    return refuse(EINVAL, "rdma_cm: JOIN_MCAST with flags {}", cmd.join_flags);
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  UcmaMulticast& mc = ucma_.new_multicast(*ctx);
  mc.uid = cmd.uid;
  mc.addr = addr;
  resp.id = mc.id;
  bool joined = false;
  Status s = ucma_.cma_.join_multicast(*ctx->cm_id, addr, cmd.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, &mc);
  if (s) {
    joined = true;
    s = copy_to_user(cmd.response, &resp, sizeof resp);
  }
  if (!s) {
    if (joined) ucma_.cma_.leave_multicast(*ctx->cm_id, addr);
    drop_multicast_events(mc);
    ucma_.multicasts_.erase(mc.id);
  }
  return s;
}

Status UcmaFile::leave_mcast(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_destroy_id cmd;
  ::rdma_ucm_destroy_id_resp resp{};
  if (out_len < sizeof resp) return Errno{ENOSPC};
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  auto it = ucma_.multicasts_.find(cmd.id);
  if (it == ucma_.multicasts_.end()) return refuse(ENOENT, "rdma_cm: no multicast membership {}", cmd.id);
  UcmaMulticast& mc = *it->second;
  if (mc.ctx->file != this) return refuse(EINVAL, "rdma_cm: multicast membership {} belongs to another event channel", cmd.id);
  if (mc.ctx->cm_id != nullptr) ucma_.cma_.leave_multicast(*mc.ctx->cm_id, mc.addr);
  drop_multicast_events(mc);
  resp.events_reported = mc.events_reported;
  ucma_.multicasts_.erase(it);
  return copy_to_user(cmd.response, &resp, sizeof resp);
}

}  // namespace uhca::kernel::cm

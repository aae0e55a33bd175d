// SPDX-License-Identifier: MIT
// Address handles: the address vector that UD sends copy into their WQEs. On RoCE the kernel resolves the destination MAC.
#include <sys/random.h>

#include "base/log.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

namespace {

// ibv_rate to the device's static rate, 0 = unlimited (rdma-core providers/mlx5/verbs.c; IBTA 1.3 table 224).
constexpr std::uint8_t kStaticRate[] = {0, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 11, 13, 15, 0, 9, 15, 0, 0, 9, 13, 0, 0};

std::uint16_t udp_sport(std::uint32_t flow_label) {
  if (flow_label & 0xfffff) return ibv_flow_label_to_udp_sport(flow_label & 0xfffff);
  std::uint16_t r = 0;
  if (getrandom(&r, sizeof r, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof r)) r = 0;
  return static_cast<std::uint16_t>(IB_ROCE_UDP_ENCAP_VALID_PORT_MIN | r);
}

int fill_av(Context* ctx, ibv_pd* pd, Ah* ah, ibv_ah_attr* attr, bool eth) {
  using S = prm::wqe_av;
  std::uint8_t* av = ah->av;
  std::uint8_t rate = attr->static_rate < sizeof kStaticRate ? kStaticRate[attr->static_rate] : 0;
  if (attr->is_global) {
    prm::set<S::tclass>(av, attr->grh.traffic_class);
    prm::set<S::hop_limit>(av, attr->grh.hop_limit);
    // The bit "GRH present" is for InfiniBand; RoCE always has one.
    prm::set<S::grh_gid_fl>(av, (eth ? 0u : 1u << 30) | std::uint32_t{attr->grh.sgid_index} << 20 | (attr->grh.flow_label & 0xfffff));
    std::memcpy(prm::at<S::rgid>(av), attr->grh.dgid.raw, 16);
  }
  if (!eth) {
    prm::set<S::fl_mlid>(av, attr->src_path_bits & 0x7f);
    prm::set<S::rlid>(av, attr->dlid);
    prm::set<S::stat_rate_sl>(av, rate << 4 | (attr->sl & 0xf));
    return 0;
  }
  prm::set<S::stat_rate_sl>(av, rate << 4 | (attr->sl & 0x7) << 1);
  ibv_gid_type_sysfs type;
  if (ibv_query_gid_type(pd->context, attr->port_num, attr->grh.sgid_index, &type)) return errno ? errno : EINVAL;
  if (type == IBV_GID_TYPE_SYSFS_ROCE_V2) prm::set<S::rlid>(av, udp_sport(attr->grh.flow_label));
  std::uint8_t* rmac = av + prm::byte_of<S::rmac_47_16>;
  if (ctx->cmds_supp_uhw & MLX5_USER_CMDS_SUPP_UHW_CREATE_AH) {
    mlx5_ib_create_ah_resp out = {};
    verbs_udata udata{nullptr, 0, &out, sizeof out};
    if (int err = ibv_cmd_create_ah(pd, &ah->ah, attr, &udata)) return err;
    ah->kernel_object = true;
    std::memcpy(rmac, out.dmac, sizeof out.dmac);
    return 0;
  }
  return ibv_resolve_eth_l2_from_gid(pd->context, attr, rmac, nullptr) ? (errno ? errno : EINVAL) : 0;
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  Context* ctx = to_ctx(pd->context);
  if (attr->port_num < 1 || attr->port_num > ctx->num_ports) return fail(refuse(EINVAL, "create_ah: port {}", attr->port_num));
  ibv_port_attr_v65 port = {};
  std::uint8_t link = attr->port_num <= 2 ? ctx->link_layer[attr->port_num - 1] : 0;
  std::uint8_t flags = attr->port_num <= 2 ? ctx->port_flags[attr->port_num - 1] : 0;
  if (!link) {
    if (int err = ibv_cmd_query_port(pd->context, attr->port_num, &port)) return fail(Errno{err});
    link = port.base.link_layer;
    flags = port.base.flags;
  }
  bool eth = link == IBV_LINK_LAYER_ETHERNET;
  if (!attr->is_global && (eth || (flags & IBV_QPF_GRH_REQUIRED)))
    return fail(refuse(EINVAL, "create_ah: the port needs a GRH (is_global=1)"));
  Ah* ah = make<Ah>();
  if (!ah) return nullptr;
  ah->ah.context = pd->context;
  ah->ah.pd = pd;
  if (int err = fill_av(ctx, pd, ah, attr, eth)) {
    delete ah;
    errno = err;
    return nullptr;
  }
  return &ah->ah;
}

int destroy_ah(ibv_ah* ibah) {
  Ah* ah = to_ah(ibah);
  if (ah->kernel_object)
    if (int err = ibv_cmd_destroy_ah(ibah)) return err;
  mlx5dv_devx_obj* mapping = ah->mapping.load(std::memory_order_acquire);
  if (mapping && mlx5dv_devx_obj_destroy(mapping)) log::warn("the mapping of an address handle to a QP could not be destroyed");
  delete ah;
  return 0;
}

}  // namespace

void fill_ah_ops(verbs_context_ops* ops) {
  ops->create_ah = create_ah;
  ops->destroy_ah = destroy_ah;
}

}  // namespace uhca::mlx5

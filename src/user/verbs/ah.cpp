// SPDX-License-Identifier: MIT
// Address handles, and the reply address of a received datagram. RoCEv2 over IPv4 leaves the IPv4 header in the last 20 of the 40
// bytes that a receive buffer reserves for the GRH (IBTA spec, annex A17).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

constexpr std::uint8_t kIbNextHeader = 0x1b;

std::uint32_t be32_of(std::uint32_t v) {
  return ntohl(v);
}

bool ipv4_checksum_ok(const iphdr& h) {
  std::uint16_t words[10];
  std::memcpy(words, &h, sizeof words);
  std::uint32_t sum = 0;
  for (std::uint16_t w : words) sum += w;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

// 4, 6, or -1 with errno. The first bytes may look like IPv6 by chance; a correct IPv4 header behind them is believed.
int network_version(const ibv_grh* grh, iphdr* ip4) {
  std::memcpy(ip4, reinterpret_cast<const char*>(grh) + 20, sizeof *ip4);
  const unsigned first = be32_of(grh->version_tclass_flow) >> 28;
  if (first != 6) {
    if (ip4->version == 4) return 4;
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return ip4->ihl == 5 && ipv4_checksum_ok(*ip4) ? 4 : 6;
}

ibv_gid mapped(std::uint32_t ipv4) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, &ipv4, 4);
  return gid;
}

// The index of (gid, type) on the port, or a negative value with errno.
int find_gid(ibv_context* context, std::uint8_t port, const ibv_gid& gid, ibv_gid_type_sysfs type) {
  for (int i = 0;; ++i) {
    ibv_gid entry;
    ibv_gid_type_sysfs entry_type;
    if (ibv_query_gid(context, port, i, &entry)) return -1;
    if (std::memcmp(entry.raw, gid.raw, 16) != 0) continue;
    if (ibv_query_gid_type(context, port, static_cast<unsigned>(i), &entry_type)) return -1;
    if (entry_type == type) return i;
  }
}

int fail_negative(int e) {
  errno = e;
  return -1;
}

int reply_over_ipv4(ibv_context* context, std::uint8_t port, const iphdr& ip4, ibv_ah_attr* attr) {
  if (IN_MULTICAST(ntohl(ip4.daddr))) return fail_negative(EINVAL);  // not in any GID table
  int index = find_gid(context, port, mapped(ip4.daddr), IBV_GID_TYPE_SYSFS_ROCE_V2);
  if (index < 0) return index;
  attr->grh.dgid = mapped(ip4.saddr);
  attr->grh.sgid_index = static_cast<std::uint8_t>(index);
  attr->grh.hop_limit = ip4.ttl;
  attr->grh.traffic_class = ip4.tos;
  return 0;
}

int reply_over_grh(ibv_context* context, std::uint8_t port, const ibv_grh* grh, ibv_ah_attr* attr) {
  if (grh->dgid.raw[0] == 0xff) return fail_negative(EINVAL);
  ibv_gid_type_sysfs type;
  if (grh->next_hdr == IPPROTO_UDP)
    type = IBV_GID_TYPE_SYSFS_ROCE_V2;
  else if (grh->next_hdr == kIbNextHeader)
    type = IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
  else
    return fail_negative(EPROTONOSUPPORT);
  int index = find_gid(context, port, grh->dgid, type);
  if (index < 0) return index;
  attr->grh.dgid = grh->sgid;
  attr->grh.sgid_index = static_cast<std::uint8_t>(index);
  attr->grh.hop_limit = grh->hop_limit;
  attr->grh.traffic_class = static_cast<std::uint8_t>(be32_of(grh->version_tclass_flow) >> 20);
  return 0;
}

// ::ffff:a.b.c.d, or the multicast form ff0e::ffff:a.b.c.d.
bool is_mapped_ipv4(const std::uint8_t gid[16]) {
  static constexpr std::uint8_t kUnicast[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static constexpr std::uint8_t kMulticast[12] = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid, kUnicast, 12) == 0 || std::memcmp(gid, kMulticast, 12) == 0;
}

}  // namespace

UHCA_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  ibv_ah* ah = get_ops(pd->context)->create_ah(pd, attr);
  if (ah) {
    ah->context = pd->context;
    ah->pd = pd;
  }
  return ah;
}

UHCA_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return get_ops(ah->context)->destroy_ah(ah);
}

UHCA_EXPORT int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port_num, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
  std::memset(static_cast<void*>(attr), 0, sizeof *attr);
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port_num;
  attr->grh.flow_label = be32_of(grh->version_tclass_flow) & 0xfffff;
  if (!(wc->wc_flags & IBV_WC_GRH)) return 0;
  attr->is_global = 1;
  iphdr ip4;
  switch (network_version(grh, &ip4)) {
    case 4: return reply_over_ipv4(context, port_num, ip4, attr);
    case 6: return reply_over_grh(context, port_num, grh, attr);
    default: return -1;
  }
}

UHCA_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port_num) {
  ibv_ah_attr attr;
  return ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr) ? nullptr : ibv_create_ah(pd, &attr);
}

UHCA_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, std::uint8_t eth_mac[ETHERNET_LL_SIZE],
                                            std::uint16_t* vid) {
  ibv_gid sgid;
  if (int ret = ibv_query_gid(context, attr->port_num, attr->grh.sgid_index, &sgid)) return ret;
  const bool dst4 = is_mapped_ipv4(attr->grh.dgid.raw), src4 = is_mapped_ipv4(sgid.raw);
  return resolve_neighbour(src4 ? AF_INET : AF_INET6, sgid.raw + (src4 ? 12 : 0), dst4 ? AF_INET : AF_INET6,
                           attr->grh.dgid.raw + (dst4 ? 12 : 0), eth_mac, vid);
}

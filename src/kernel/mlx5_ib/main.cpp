// SPDX-License-Identifier: MIT
// The ib_device: probe, remove, what it says about itself. Linux: hw/mlx5/main.c.
#include <net/if.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "base/fd.h"
#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/clock.h"
#include "kernel/mlx5_ib/dev_resources.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/dm.h"
#include "kernel/mlx5_ib/dmabuf.h"
#include "kernel/mlx5_ib/fs.h"
#include "kernel/mlx5_ib/hw_counters.h"
#include "kernel/mlx5_ib/kernel_queue.h"
#include "kernel/mlx5_ib/mlx5_ib.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/mr.h"
#include "kernel/mlx5_ib/netdev_state.h"
#include "kernel/mlx5_ib/umr.h"

namespace uhca::kernel::mlx5 {

namespace {

// IB_DEVICE_* of <rdma/ib_verbs.h>.
constexpr std::uint32_t kCapBadPkeyCntr = 1 << 1, kCapBadQkeyCntr = 1 << 2, kCapChangePhyPort = 1 << 4, kCapPortActiveEvent = 1 << 10,
                        kCapSysImageGuid = 1 << 11, kCapRcRnrNakGen = 1 << 12, kCapMemWindow = 1 << 17, kCapXrc = 1 << 20,
                        kCapMemWindowType2B = 1 << 24, kCapRawIpCsum = 1 << 26;
constexpr std::uint64_t kCapRawScatterFcs = std::uint64_t{1} << 34;
// ib_raw_packet_caps
constexpr std::uint32_t kRawCvlanStripping = 1 << 0, kRawScatterFcs = 1 << 1, kRawIpCsum = 1 << 2;
constexpr std::uint32_t kAtomicNone = 0, kAtomicHca = 1;  // enum ib_atomic_cap
constexpr std::uint32_t kAtomicCmpSwap = 1, kAtomicFetchAdd = 2, kAtomicSize8 = 8;
constexpr std::uint32_t kSegment = 16, kMaxReadDescriptor = 512;  // bytes; mlx5 reads at most 512 bytes of a READ WQE
constexpr std::uint8_t kPortDown = 1, kPortActive = 4, kPhysDisabled = 3, kPhysLinkUp = 5;
constexpr std::uint32_t kPortCmSup = 1 << 16, kPortIpBasedGids = 1 << 26;  // port_cap_flags
constexpr std::uint32_t kEventPortActive = 9, kEventPortErr = 10;
constexpr std::uint8_t kPortChangeDown = 1, kPortChangeActive = 4;  // Linux: MLX5_PORT_CHANGE_SUBTYPE_*

constexpr std::uint32_t kRoceVersion1 = 1;  // roce_cap.roce_version (Linux: MLX5_ROCE_VERSION_1_CAP)

// enum ib_port_width, ib_port_speed.
constexpr std::uint8_t k1X = 1, k4X = 2, k8X = 4, k2X = 16;
constexpr std::uint16_t kSdr = 1, kQdr = 4, kEdr = 32, kHdr = 64, kNdr = 128;

struct Link {
  std::uint32_t bits;  // of eth_proto_oper
  std::uint8_t width;
  std::uint16_t speed;
};
constexpr std::uint32_t bit(unsigned n) {
  return 1u << n;
}
// Linux: translate_eth_legacy_proto_oper, translate_eth_ext_proto_oper.
constexpr Link kLegacyLinks[] = {
    {bit(0) | bit(1) | bit(24) | bit(25), k1X, kSdr},   {bit(2) | bit(3) | bit(4) | bit(12) | bit(13) | bit(14) | bit(26), k1X, kQdr},
    {bit(27) | bit(28) | bit(29), k1X, kEdr},           {bit(6) | bit(7) | bit(15) | bit(16), k4X, kQdr},
    {bit(18) | bit(30) | bit(31), k1X, kHdr},           {bit(8), k4X, 16},
    {bit(20) | bit(21) | bit(22) | bit(23), k4X, kEdr},
};
constexpr Link kExtendedLinks[] = {
    {bit(0) | bit(1), k1X, kSdr}, {bit(3), k1X, 2},     {bit(4), k1X, kQdr},  {bit(5), k4X, kQdr},  {bit(6), k1X, kEdr},
    {bit(7), k2X, kEdr},          {bit(8), k1X, kHdr},  {bit(9), k4X, kEdr},  {bit(10), k2X, kHdr}, {bit(11), k1X, kNdr},
    {bit(12), k4X, kHdr},         {bit(13), k2X, kNdr}, {bit(15), k8X, kHdr}, {bit(16), k4X, kNdr},
};

// enum ib_mtu of what fits into a frame of the netdev (Linux: iboe_get_mtu): GRH, UDP, BTH, XRCETH, AtomicETH and ICRC go off.
std::uint8_t roce_mtu(unsigned netdev_mtu) {
  constexpr unsigned kHeaders = 40 + 8 + 12 + 4 + 28 + 4;
  unsigned left = netdev_mtu > kHeaders ? netdev_mtu - kHeaders : 0;
  for (unsigned e = 5; e >= 1; --e)
    if (left >= 128u << e) return static_cast<std::uint8_t>(e);
  return 0;
}

Status answer_query_device(mlx5_ib_dev& dev, const Udata& uhw) {
  if (uhw.inlen > 0) UHCA_CHECK(uhw.check_in_tail(0));
  // Members follow one another; each is there as far as the caller has room for it. What the device lacks is zero.
  using R = ::mlx5_ib_query_device_resp;
  R resp{};
  auto end = [](std::size_t off, std::size_t size) { return off + size; };
  std::size_t len = 8;
  if (uhw.outlen < len) return success();
  const std::size_t ends[] = {end(offsetof(R, tso_caps), sizeof resp.tso_caps),
                              end(offsetof(R, rss_caps), sizeof resp.rss_caps),
                              end(offsetof(R, cqe_comp_caps), sizeof resp.cqe_comp_caps),
                              end(offsetof(R, packet_pacing_caps), sizeof resp.packet_pacing_caps),
                              end(offsetof(R, mlx5_ib_support_multi_pkt_send_wqes), 4),
                              end(offsetof(R, flags), 4),
                              end(offsetof(R, sw_parsing_caps), sizeof resp.sw_parsing_caps),
                              end(offsetof(R, striding_rq_caps), sizeof resp.striding_rq_caps),
                              end(offsetof(R, tunnel_offloads_caps), 4),
                              end(offsetof(R, dci_streams_caps), sizeof resp.dci_streams_caps),
                              sizeof resp};
  for (std::size_t e : ends)
    if (uhw.outlen >= e) len = e;
  if (dev.mdev->cap_gen<prm::cmd_hca_cap::cqe_128_always>()) resp.flags |= MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD;
  if (dev.mdev->cap_gen<prm::cmd_hca_cap::cqe_compression_128>()) resp.flags |= MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP;
  if (dev.mdev->cap_gen<prm::cmd_hca_cap::cqe_compression>()) {
    resp.cqe_comp_caps.max_num = dev.mdev->cap_gen<prm::cmd_hca_cap::cqe_compression_max_num>();
    resp.cqe_comp_caps.supported_format = MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM;
    if (dev.mdev->cap_gen<prm::cmd_hca_cap::mini_cqe_resp_stride_index>())
      resp.cqe_comp_caps.supported_format |= MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX;
  }
  if (dev.mdev->cap_gen<prm::cmd_hca_cap::eth_net_offloads>()) {
    using eth = prm::per_protocol_networking_offload_caps;
    if (std::uint32_t log = dev.mdev->cap_eth<eth::max_lso_cap>()) {
      resp.tso_caps.max_tso = 1u << log;
      resp.tso_caps.supported_qpts = 1u << static_cast<unsigned>(ib_qp_type::RAW_PACKET);
    }
    resp.rss_caps.rx_hash_function = MLX5_RX_HASH_FUNC_TOEPLITZ;
    resp.rss_caps.rx_hash_fields_mask = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4 | MLX5_RX_HASH_SRC_IPV6 | MLX5_RX_HASH_DST_IPV6 |
                                        MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_TCP | MLX5_RX_HASH_SRC_PORT_UDP |
                                        MLX5_RX_HASH_DST_PORT_UDP | MLX5_RX_HASH_INNER;
  }
  if (dev.mdev->cap_gen<prm::cmd_hca_cap::qp_packet_based>()) resp.flags |= MLX5_IB_QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE;
  resp.dci_streams_caps.max_log_num_concurent =
      static_cast<std::uint8_t>(dev.mdev->cap_gen<prm::cmd_hca_cap::log_max_dci_stream_channels>());
  resp.dci_streams_caps.max_log_num_errored = static_cast<std::uint8_t>(dev.mdev->cap_gen<prm::cmd_hca_cap::log_max_dci_errored_streams>());
  resp.response_length = static_cast<std::uint32_t>(len);
  return uhw.copy_out(&resp, len);
}

Status add_gid(ib_device& d, const ib_gid_attr& gid) {
  auto& dev = to_mdev(d);
  if (gid.index >= dev.mdev->cap_roce<prm::roce_cap::roce_address_table_size>())
    return refuse(EINVAL, "GID index {}: the address table has {} entries", gid.index,
                  dev.mdev->cap_roce<prm::roce_cap::roce_address_table_size>());
  RoceAddressEntry e;
  e.valid = true;
  e.v2 = gid.roce_v2;
  e.gid = gid.gid;
  e.mac = gid.mac;
  static constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  e.ipv6 = !std::equal(kMapped.begin(), kMapped.end(), gid.gid.begin());
  return dev.mdev->set_roce_address(gid.index, e);
}

Status del_gid(ib_device& d, std::uint16_t index) {
  return to_mdev(d).mdev->set_roce_address(index, {});
}

Result<std::uint16_t> query_pkey(ib_device&, std::uint32_t port, std::uint16_t index) {
  if (port != 1 || index != 0) return refuse(EINVAL, "query_pkey: port {} index {}: there is port 1, index 0", port, index);
  return std::uint16_t{0xffff};
}

Result<Link> link_of(mlx5_ib_dev& dev) {
  auto s = UHCA_TRY(dev.mdev->query_port_speed());
  if (s.ext_eth_proto_oper != 0) {
    for (const Link& l : kExtendedLinks)
      if (s.ext_eth_proto_oper & l.bits) return l;
  }
  for (const Link& l : kLegacyLinks)
    if (s.eth_proto_oper & l.bits) return l;
  return Link{0, k4X, kQdr};  // Linux's answer for a link mode that it does not know, or no link
}

Status query_port_speed(ib_device& d, std::uint32_t port, std::uint64_t& speed) {
  if (port != 1) return refuse(EINVAL, "query_port_speed: port {} of 1", port);
  Link l = UHCA_TRY(link_of(to_mdev(d)));
  unsigned lanes = l.width == k1X ? 1 : l.width == k2X ? 2 : l.width == k4X ? 4 : 8;
  unsigned lane = l.speed == kSdr   ? 25
                  : l.speed == 2    ? 50
                  : l.speed == kQdr ? 100
                  : l.speed == 16   ? 140
                  : l.speed == kEdr ? 250
                  : l.speed == kHdr ? 500
                                    : 1000;
  speed = lanes * lane;
  return success();
}

void port_event(void* context, std::uint8_t sub_type) {
  auto& dev = *static_cast<mlx5_ib_dev*>(context);
  if (sub_type == kPortChangeActive) ib_dispatch_event(dev, kEventPortActive, 1);
  if (sub_type == kPortChangeDown) ib_dispatch_event(dev, kEventPortErr, 1);
}

// The host's addresses or links changed (Linux: roce_gid_mgmt's notifiers).
void netdev_news(void* context) {
  auto& dev = *static_cast<mlx5_ib_dev*>(context);
  rdma_drain_netdev_news(dev.netdev_news);
  if (Status s = rdma_refresh_gids(dev); !s) log::error("{}: the GID table does not follow {} ({})", dev.name, dev.netdev, s.code());
}

void set_ops(ib_device_ops& ops) {
  ops.driver_id = RDMA_DRIVER_MLX5;
  ops.uverbs_abi_ver = MLX5_IB_UVERBS_ABI_VERSION;
  ops.query_device = query_device;
  ops.query_port = query_port;
  ops.query_port_speed = query_port_speed;
  ops.query_pkey = query_pkey;
  ops.add_gid = add_gid;
  ops.del_gid = del_gid;
  ops.alloc_ucontext = alloc_ucontext;
  ops.dealloc_ucontext = dealloc_ucontext;
  ops.query_ucontext = query_ucontext;
  ops.mmap = mlx5::mmap;
  ops.alloc_pd = alloc_pd;
  ops.dealloc_pd = dealloc_pd;
  ops.reg_user_mr = reg_user_mr;
  ops.dereg_mr = dereg_mr;
  ops.rereg_user_mr = rereg_user_mr;
  ops.reg_user_mr_dmabuf = reg_user_mr_dmabuf;
  ops.export_mmap = export_mmap;
  ops.create_user_ah = create_user_ah;
  ops.destroy_ah = destroy_ah;
  ops.create_cq = create_cq;
  ops.destroy_cq = destroy_cq;
  ops.resize_cq = resize_cq;
  ops.modify_cq = modify_cq;
  ops.create_qp = create_qp;
  ops.modify_qp = modify_qp;
  ops.query_qp = query_qp;
  ops.destroy_qp = destroy_qp;
  ops.create_srq = create_srq;
  ops.modify_srq = modify_srq;
  ops.query_srq = query_srq;
  ops.destroy_srq = destroy_srq;
  ops.alloc_xrcd = alloc_xrcd;
  ops.dealloc_xrcd = dealloc_xrcd;
  ops.alloc_mw = alloc_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.attach_mcast = attach_mcast;
  ops.detach_mcast = detach_mcast;
  ops.alloc_coherent = alloc_coherent;
  ops.get_dma_lkey = get_dma_lkey;
  ops.put_dma_lkey = put_dma_lkey;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.driver_def = mlx5_ib_defs;
}

// Of a port that is Ethernet with queues of its own kind.
void set_ethernet_ops(ib_device_ops& ops) {
  ops.create_wq = create_wq;
  ops.modify_wq = modify_wq;
  ops.destroy_wq = destroy_wq;
  ops.create_rwq_ind_table = create_rwq_ind_table;
  ops.destroy_rwq_ind_table = destroy_rwq_ind_table;
  ops.create_flow = create_flow;
  ops.destroy_flow = destroy_flow;
  ops.create_counters = create_counters;
  ops.destroy_counters = destroy_counters;
  ops.read_counters = read_counters;
}

void set_dm_ops(ib_device_ops& ops) {
  ops.alloc_dm = alloc_dm;
  ops.dealloc_dm = dealloc_dm;
  ops.reg_dm_mr = reg_dm_mr;
}

}  // namespace

mlx5_ib_dev::mlx5_ib_dev(pci::InprocEndpoint& s) : slot(s) {}
mlx5_ib_dev::~mlx5_ib_dev() = default;
void mlx5_ib_dev::refresh_clock() {
  if (clock) clock->refresh();
}

Status query_device(ib_device& d, ib_device_attr& a, Udata* uhw) {
  auto& dev = to_mdev(d);
  auto& m = *dev.mdev;
  using cap = prm::cmd_hca_cap;
  a = {};
  a.fw_ver = std::uint64_t{m.fw_rev_major()} << 32 | std::uint64_t{m.fw_rev_minor()} << 16 | m.fw_rev_subminor();
  a.fw_ver_str = dev.fw_ver;
  a.sys_image_guid = byteswap(dev.sys_image_guid);
  a.max_mr_size = ~std::uint64_t{0};
  a.page_size_cap = ~((std::uint64_t{1} << m.cap_gen<cap::log_pg_sz>()) - 1);
  a.vendor_id = m.ieee_vendor_id();
  a.vendor_part_id = dev.pci_device;
  a.hw_ver = dev.hw_rev;
  a.device_cap_flags = kCapChangePhyPort | kCapPortActiveEvent | kCapSysImageGuid | kCapRcRnrNakGen;
  if (m.cap_gen<cap::pkv>()) a.device_cap_flags |= kCapBadPkeyCntr;
  if (m.cap_gen<cap::qkv>()) a.device_cap_flags |= kCapBadQkeyCntr;
  if (m.cap_gen<cap::xrc>()) a.device_cap_flags |= kCapXrc;
  if (m.cap_gen<cap::imaicl>()) {
    a.device_cap_flags |= kCapMemWindow | kCapMemWindowType2B;
    a.max_mw = 1u << m.cap_gen<cap::log_max_mkey>();
  }
  a.max_qp = 1u << m.cap_gen<cap::log_max_qp>();
  a.max_qp_wr = 1u << m.cap_gen<cap::log_max_qp_sz>();
  std::uint32_t send_desc = std::min<std::uint32_t>(m.cap_gen<cap::max_wqe_sz_sq>(), kMaxReadDescriptor);
  a.max_send_sge = (send_desc - 2 * kSegment) / kSegment;
  a.max_recv_sge = m.cap_gen<cap::max_wqe_sz_rq>() / kSegment;
  a.max_sge_rd = (kMaxReadDescriptor - 2 * kSegment) / kSegment;
  a.max_cq = 1u << m.cap_gen<cap::log_max_cq>();
  a.max_cqe = (1u << m.cap_gen<cap::log_max_cq_sz>()) - 1;
  a.max_mr = 1u << m.cap_gen<cap::log_max_mkey>();
  a.max_pd = 1u << m.cap_gen<cap::log_max_pd>();
  a.max_qp_rd_atom = 1u << m.cap_gen<cap::log_max_ra_req_qp>();
  a.max_qp_init_rd_atom = 1u << m.cap_gen<cap::log_max_ra_res_qp>();
  a.max_res_rd_atom = a.max_qp_rd_atom * a.max_qp;
  a.local_ca_ack_delay = static_cast<std::uint8_t>(m.cap_gen<cap::local_ca_ack_delay>());
  bool atomics = m.cap_gen<cap::atomic>() && (m.cap_atomic<prm::atomic_caps::atomic_operations>() & (kAtomicCmpSwap | kAtomicFetchAdd)) &&
                 (m.cap_atomic<prm::atomic_caps::atomic_size_qp>() & kAtomicSize8) &&
                 m.cap_atomic<prm::atomic_caps::atomic_req_8B_endianness_mode>() == 1;
  a.atomic_cap = atomics ? kAtomicHca : kAtomicNone;
  if (dev.ops.create_srq) {
    a.max_srq = 1u << m.cap_gen<cap::log_max_srq>();
    a.max_srq_wr = (1u << m.cap_gen<cap::log_max_srq_sz>()) - 1;
    a.max_srq_sge = a.max_recv_sge - 1;
  }
  if (dev.ops.attach_mcast) {
    a.max_mcast_grp = 1u << m.cap_gen<cap::log_max_mcg>();
    a.max_mcast_qp_attach = m.cap_gen<cap::max_qp_mcg>();
    a.max_total_mcast_qp_attach = a.max_mcast_qp_attach * a.max_mcast_grp;
  }
  if (m.cap_gen<cap::eth_net_offloads>()) {
    using eth = prm::per_protocol_networking_offload_caps;
    if (m.cap_eth<eth::csum_cap>()) {
      a.device_cap_flags |= kCapRawIpCsum;
      a.raw_packet_caps |= kRawIpCsum;
    }
    if (m.cap_eth<eth::vlan_cap>()) a.raw_packet_caps |= kRawCvlanStripping;
    if (m.cap_eth<eth::scatter_fcs>()) {
      a.device_cap_flags_ex |= kCapRawScatterFcs;
      a.raw_packet_caps |= kRawScatterFcs;
    }
    a.max_rwq_indirection_tables = 1u << m.cap_gen<cap::log_max_rqt>();
    a.max_rwq_indirection_table_size = 1u << m.cap_gen<cap::log_max_rqt_size>();
    a.rss_supported_qpts = 1u << static_cast<unsigned>(ib_qp_type::RAW_PACKET);
    a.max_wq_type_rq = 1u << m.cap_gen<cap::log_max_rq>();
  }
  fill_odp_caps(dev, a);
  if (m.cap_gen<cap::device_memory>() && m.cap_dev_mem<prm::device_mem_cap::memic>())
    a.max_dm_size = m.cap_dev_mem<prm::device_mem_cap::max_memic_size>();
  a.max_ah = std::numeric_limits<std::int32_t>::max();
  a.max_pkeys = static_cast<std::uint16_t>(128u << m.cap_gen<cap::pkey_table_size>());
  a.hca_core_clock = m.cap_gen<cap::device_frequency_khz>();
  a.timestamp_mask = 0x7fff'ffff'ffff'ffff;
  if (uhw == nullptr) return success();
  return answer_query_device(dev, *uhw);
}

Status query_port(ib_device& d, std::uint32_t port, ib_port_attr& a) {
  auto& dev = to_mdev(d);
  if (port != 1) return refuse(EINVAL, "query_port: port {} of 1", port);
  a = {};
  Link l = UHCA_TRY(link_of(dev));
  a.active_width = l.width;
  a.active_speed = l.speed;
  a.port_cap_flags = kPortCmSup | kPortIpBasedGids;
  a.gid_tbl_len = std::min<std::uint32_t>(dev.mdev->cap_roce<prm::roce_cap::roce_address_table_size>(), kGidTableLen);
  a.max_mtu = 5;
  a.pkey_tbl_len = 1;
  a.max_msg_sz = 1u << dev.mdev->cap_gen<prm::cmd_hca_cap::log_max_msg>();
  UHCA_CHECK(query_port_speed(d, port, a.speed_100mbps));
  auto state = netdev_state(dev.netdev);
  if (!state || !state->running) {
    a.state = kPortDown;
    a.phys_state = kPhysDisabled;
    a.active_mtu = 1;
    return success();
  }
  auto vport = UHCA_TRY(dev.mdev->query_vport_state());
  a.state = vport.up ? kPortActive : kPortDown;
  a.phys_state = vport.up ? kPhysLinkUp : kPhysDisabled;
  a.active_mtu = std::max<std::uint8_t>(1, roce_mtu(state->mtu));
  return success();
}

}  // namespace uhca::kernel::mlx5

namespace uhca::kernel {

Result<ib_device*> mlx5_ib_probe(pci::InprocEndpoint& slot) {
  auto dev = std::make_unique<mlx5::mlx5_ib_dev>(slot);
  dev->mdev = UHCA_TRY(mlx5::mlx5_core_dev::probe(slot));
  auto& m = *dev->mdev;
  auto vport = UHCA_TRY(m.query_nic_vport());
  if (!m.cap_gen<prm::cmd_hca_cap::roce>()) return refuse(EOPNOTSUPP, "the device has no RoCE");
  dev->devr = std::make_unique<mlx5::DevResources>(m);
  dev->umr = std::make_unique<mlx5::UmrQueue>(m);
  dev->clock = std::make_unique<mlx5::ClockPages>(slot);
  UHCA_CHECK(dev->clock->start());

  dev->name = "mlx5_%d";
  dev->node_guid = vport.node_guid;
  dev->sys_image_guid = vport.system_image_guid;
  dev->min_inline = vport.min_inline;
  dev->board_id = m.board_id();
  dev->fw_ver = fmt::format("{}.{}.{:04}", m.fw_rev_major(), m.fw_rev_minor(), m.fw_rev_subminor());
  dev->hca_type = fmt::format("MT{}", slot.device_id());  // Linux: hca_type_show
  dev->netdev = slot.netdev();
  dev->netdev_ifindex = static_cast<int>(if_nametoindex(slot.netdev().c_str()));
  dev->pci_vendor = slot.vendor_id();
  dev->pci_device = slot.device_id();
  dev->pci_address = "0000:03:00.0";
  dev->function_id = slot.function_id();
  dev->num_ports = 1;
  dev->num_comp_vectors = m.num_comp_vectors();
  dev->roce_v1 = m.cap_roce<prm::roce_cap::roce_version>() & mlx5::kRoceVersion1;
  mlx5::set_ops(dev->ops);
  dev->ops.hw_counter_names = mlx5::hw_counter_names(m);
  dev->ops.read_hw_counter = mlx5::read_hw_counter;
  if (m.cap_gen<prm::cmd_hca_cap::eth_net_offloads>() && m.cap_gen<prm::cmd_hca_cap::nic_flow_table>() &&
      prm::get<prm::flow_table_prop_layout::ft_support>(m.flow_rx())) {
    dev->flows = std::make_unique<mlx5::FlowTables>(m);
  }
  if (m.cap_gen<prm::cmd_hca_cap::eth_net_offloads>()) mlx5::set_ethernet_ops(dev->ops);
  if (prm::get<prm::odp_per_transport_service_cap::send>(prm::at<prm::odp_cap::rc_odp_caps>(m.cap_odp())))
    dev->ops.advise_mr = mlx5::advise_mr;
  if (m.cap_gen<prm::cmd_hca_cap::device_memory>()) {
    dev->dm = std::make_unique<mlx5::DmPages>(m.cap_dev_mem<prm::device_mem_cap::memic_bar_size>() >> 12);
    mlx5::set_dm_ops(dev->ops);
  }

  UHCA_CHECK(m.set_roce(true));
  m.set_port_listener(&mlx5::port_event, dev.get());
  mlx5::devx_init(*dev);
  dev->netdev_news = rdma_netdev_news();  // before the table is first read: no change is missed
  Status registered = ib_register_device(*dev);
  if (!registered) {
    m.set_port_listener(nullptr, nullptr);
    mlx5::devx_cleanup(*dev);
    fd::close(dev->netdev_news);
    if (Status s = m.set_roce(false); !s) log::error("RoCE could not be switched off");
    return registered.error();
  }
  slot.serve(dev->netdev_news, &mlx5::netdev_news, dev.get());
  log::info("{}: {} firmware {} on {}, {} completion vectors", dev->name, dev->hca_type, dev->fw_ver, dev->netdev, dev->num_comp_vectors);
  return static_cast<ib_device*>(dev.release());
}

void mlx5_ib_remove(ib_device* d) {
  std::unique_ptr<mlx5::mlx5_ib_dev> dev(&mlx5::to_mdev(*d));
  dev->slot.serve(-1, nullptr, nullptr);
  fd::close(dev->netdev_news);
  ib_unregister_device(*dev);
  dev->mdev->set_port_listener(nullptr, nullptr);
  mlx5::devx_cleanup(*dev);
  if (Status s = dev->mdev->set_roce(false); !s) log::error("{}: RoCE could not be switched off", dev->name);
}

}  // namespace uhca::kernel

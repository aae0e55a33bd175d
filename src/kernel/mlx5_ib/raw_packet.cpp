// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/raw_packet.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "base/log.h"
#include "kernel/mlx5_ib/queue_pages.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_object.h"
#include "prm/queue_context.h"
#include "prm/wqe.h"

namespace uhca::kernel::mlx5 {
namespace {

using prm::Opcode;
using S = ib_qp_state;

// tirc: disp_type, rx_hash_fn, self_lb_block (where drivers set what is allowed); rx_hash_field_select (Linux mlx5_ifc.h).
constexpr unsigned kDirect = 0, kIndirect = 1, kToeplitz = 2, kLoopUnicast = 1, kLoopMulticast = 2;
constexpr unsigned kHashIpv4 = 0, kHashIpv6 = 1, kHashTcp = 0, kHashUdp = 1;
constexpr std::uint32_t kSelSrcIp = 1, kSelDstIp = 2, kSelSport = 4, kSelDport = 8, kSelSpi = 16;
constexpr std::size_t kToeplitzKey = 40;
constexpr unsigned kWqCyclic = 1;  // wq.wq_type
constexpr std::uint32_t kSelfLoopback = MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;
// ib_qp_create_flags
constexpr std::uint32_t kBlockMulticastLoopback = 1 << 1, kScatterFcs = 1 << 8, kCvlanStripping = 1 << 9, kEndPadding = 1 << 11;

// Linux: process_vendor_flags for RAW_PACKET. Flags that a device may lack silently are taken out.
Status check_flags(const mlx5_core_dev& m, std::uint32_t flags, bool rss) {
  if (flags & (MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT)) flags &= ~(MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT);
  std::uint32_t known = MLX5_QP_FLAG_SIGNATURE | MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_BFREG_INDEX |
                        MLX5_QP_FLAG_UAR_PAGE_INDEX | kSelfLoopback;
  using cap = prm::per_protocol_networking_offload_caps;
  if (m.cap_eth<cap::tunnel_stateless_vxlan>() || m.cap_eth<cap::tunnel_stateless_gre>()) known |= MLX5_QP_FLAG_TUNNEL_OFFLOADS;
  std::uint32_t of_rss = MLX5_QP_FLAG_TUNNEL_OFFLOADS | kSelfLoopback;
  if (rss && (flags & known & ~of_rss)) return refuse(EINVAL, "create_qp: driver flags {:#x} are not for RSS", flags & ~of_rss);
  if (flags & ~known) return refuse(EINVAL, "create_qp: driver flags {:#x} are not supported by this device or QP type", flags & ~known);
  return success();
}

// Linux: process_create_flags.
Status check_create_flags(const mlx5_core_dev& m, std::uint32_t flags) {
  using cap = prm::per_protocol_networking_offload_caps;
  std::uint32_t known = 0;
  if (m.cap_gen<prm::cmd_hca_cap::block_lb_mc>()) known |= kBlockMulticastLoopback;
  if (m.cap_eth<cap::scatter_fcs>()) known |= kScatterFcs;
  if (m.cap_eth<cap::vlan_cap>()) known |= kCvlanStripping;
  if (m.cap_gen<prm::cmd_hca_cap::end_pad>()) known |= kEndPadding;
  if (flags & ~known) return refuse(EOPNOTSUPP, "create_qp: create_flags {:#x} are not supported by the device", flags & ~known);
  return success();
}

unsigned self_loopback(std::uint32_t flags) {
  return (flags & MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC ? kLoopUnicast : 0u) |
         (flags & MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC ? kLoopMulticast : 0u);
}

Result<std::uint32_t> create_tir(mlx5_core_dev& m, std::uint8_t (&in)[prm::create_tir_in::kBytes]) {
  std::uint8_t out[prm::create_tir_out::kBytes] = {};
  prm::set<prm::create_tir_in::opcode>(in, static_cast<std::uint16_t>(Opcode::CREATE_TIR));
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
  return std::uint32_t{prm::get<prm::create_tir_out::tirn>(out)};
}

Result<std::uint32_t> create_tis(mlx5_core_dev& m, std::uint32_t tdn, std::uint16_t uid) {
  std::uint8_t in[prm::create_tis_in::kBytes] = {}, out[prm::create_tis_out::kBytes] = {};
  prm::set<prm::create_tis_in::opcode>(in, static_cast<std::uint16_t>(Opcode::CREATE_TIS));
  prm::set<prm::create_tis_in::uid>(in, uid);
  prm::set<prm::tisc::transport_domain>(prm::at<prm::create_tis_in::ctx>(static_cast<void*>(in)), tdn);
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
  return std::uint32_t{prm::get<prm::create_tis_out::tisn>(out)};
}

// rqc and sqc carry the wq at the same place, and the page list lies behind both.
std::vector<std::uint8_t> with_wq(const QueuePages& pages, std::uint32_t pdn, pci::DmaAddr dbr, unsigned log_size, unsigned log_stride) {
  std::vector<std::uint8_t> in(prm::create_rq_in::kBytes + pages.pas.size() * 8);
  void* wq = prm::at<prm::rqc::wq>(prm::at<prm::create_rq_in::ctx>(static_cast<void*>(in.data())));
  prm::set<prm::wq::wq_type>(wq, kWqCyclic);
  prm::set<prm::wq::pd>(wq, pdn);
  prm::set<prm::wq::dbr_addr>(wq, dbr);
  prm::set<prm::wq::log_wq_sz>(wq, log_size);
  prm::set<prm::wq::log_wq_stride>(wq, log_stride);
  prm::set<prm::wq::log_wq_pg_sz>(wq, pages.log_page_size);
  prm::set<prm::wq::page_offset>(wq, pages.page_offset);
  for (std::size_t i = 0; i < pages.pas.size(); ++i) prm::set<prm::wq::pas>(wq, pages.pas[i], i);
  return in;
}

unsigned log_of(std::uint32_t power_of_two) {
  return static_cast<unsigned>(std::countr_zero(power_of_two));
}

void side_event(mlx5_core_qp& core, EventType type) {
  qp_event(*static_cast<RawPacketQp::Side&>(core).owner, type);
}

Status create_sq(mlx5_core_dev& m, mlx5_ib_qp& qp, const ib_qp_init_attr& attr, const ::mlx5_ib_create_qp& ucmd, std::uint32_t uar,
                 std::uint32_t uidx) {
  RawPacketQp& raw = *qp.raw;
  raw.sq_buffer = UHCA_TRY(m.domain().pin(ucmd.sq_buf_addr, std::size_t{qp.sq_wqe_cnt} * prm::kSendWqeBb, false, "SQ buffer"));
  QueuePages pages = UHCA_TRY(queue_pages(*raw.sq_buffer, prm::wq::page_offset.width));
  auto in = with_wq(pages, to_mpd(*qp.pd).pdn, qp.doorbell->dma(), log_of(qp.sq_wqe_cnt), log_of(prm::kSendWqeBb));
  void* sqc = prm::at<prm::create_sq_in::ctx>(static_cast<void*>(in.data()));
  prm::set<prm::create_sq_in::uid>(in.data(), raw.uid);
  prm::set<prm::sqc::flush_in_error_en>(sqc, 1);
  prm::set<prm::sqc::user_index>(sqc, uidx);
  prm::set<prm::sqc::cqn>(sqc, to_mcq(*attr.send_cq).cqn);
  prm::set<prm::sqc::tis_lst_sz>(sqc, 1);
  prm::set<prm::sqc::tis_num_0>(sqc, raw.tisn);
  prm::set<prm::wq::uar_page>(prm::at<prm::sqc::wq>(sqc), uar);
  raw.sq.event = side_event;
  raw.sq.owner = &qp;
  UHCA_CHECK(create_raw_queue(m, raw.sq, Opcode::CREATE_SQ, in));
  raw.sq.exists = true;
  m.domain().rename(raw.sq_buffer->dma(), fmt::format("SQ {:#x} buffer", raw.sq.qpn));
  return success();
}

Status create_rq(mlx5_core_dev& m, mlx5_ib_qp& qp, const ib_qp_init_attr& attr, std::uint32_t uidx) {
  RawPacketQp& raw = *qp.raw;
  QueuePages pages = UHCA_TRY(queue_pages(*qp.buffer, prm::wq::page_offset.width));
  auto in = with_wq(pages, to_mpd(*qp.pd).pdn, qp.doorbell->dma(), log_of(qp.rq_wqe_cnt), qp.rq_wqe_shift);
  void* rqc = prm::at<prm::create_rq_in::ctx>(static_cast<void*>(in.data()));
  prm::set<prm::create_rq_in::uid>(in.data(), raw.uid);
  prm::set<prm::rqc::vsd>(rqc, attr.create_flags & kCvlanStripping ? 0 : 1);
  prm::set<prm::rqc::scatter_fcs>(rqc, attr.create_flags & kScatterFcs ? 1 : 0);
  prm::set<prm::rqc::flush_in_error_en>(rqc, 1);
  prm::set<prm::rqc::user_index>(rqc, uidx);
  prm::set<prm::rqc::cqn>(rqc, to_mcq(*attr.recv_cq).cqn);
  prm::set<prm::wq::end_padding_mode>(prm::at<prm::rqc::wq>(rqc), attr.create_flags & kEndPadding ? 1 : 0);
  raw.rq.event = side_event;
  raw.rq.owner = &qp;
  UHCA_CHECK(create_raw_queue(m, raw.rq, Opcode::CREATE_RQ, in));
  raw.rq.exists = true;
  m.domain().rename(qp.buffer->dma(), fmt::format("RQ {:#x} buffer", raw.rq.qpn));
  return success();
}

// What exists is destroyed, in the reverse order of creation. Linux: destroy_raw_packet_qp.
Status destroy_parts(mlx5_core_dev& m, mlx5_ib_qp& qp) {
  RawPacketQp& raw = *qp.raw;
  if (raw.has_tir) UHCA_CHECK(exec_on_number(m, Opcode::DESTROY_TIR, raw.tirn, raw.uid));
  raw.has_tir = false;
  if (raw.rq.exists) UHCA_CHECK(destroy_raw_queue(m, raw.rq, Opcode::DESTROY_RQ, raw.uid));
  raw.rq.exists = false;
  if (raw.sq.exists) UHCA_CHECK(destroy_raw_queue(m, raw.sq, Opcode::DESTROY_SQ, raw.uid));
  raw.sq.exists = false;
  if (raw.tisn != 0) UHCA_CHECK(exec_on_number(m, Opcode::DESTROY_TIS, raw.tisn, raw.uid));
  raw.tisn = 0;
  return success();
}

Status create_parts(mlx5_core_dev& m, mlx5_ib_qp& qp, const ib_qp_init_attr& attr, const ::mlx5_ib_create_qp& ucmd, std::uint32_t tdn,
                    std::uint32_t uar, std::uint32_t uidx) {
  RawPacketQp& raw = *qp.raw;
  if (qp.sq_wqe_cnt != 0) {
    raw.tisn = UHCA_TRY(create_tis(m, tdn, raw.uid));
    UHCA_CHECK(create_sq(m, qp, attr, ucmd, uar, uidx));
  }
  if (qp.rq_wqe_cnt != 0) {
    if (!qp.buffer) return refuse(EINVAL, "create_qp: no buffer for the receive queue");
    UHCA_CHECK(create_rq(m, qp, attr, uidx));
    std::uint8_t in[prm::create_tir_in::kBytes] = {};
    void* tirc = prm::at<prm::create_tir_in::ctx>(static_cast<void*>(in));
    prm::set<prm::create_tir_in::uid>(in, raw.uid);
    prm::set<prm::tirc::disp_type>(tirc, kDirect);
    prm::set<prm::tirc::inline_rqn>(tirc, raw.rq.qpn);
    prm::set<prm::tirc::transport_domain>(tirc, tdn);
    prm::set<prm::tirc::self_lb_block>(tirc, self_loopback(ucmd.flags));
    raw.tirn = UHCA_TRY(create_tir(m, in));
    raw.has_tir = true;
  }
  return success();
}

// Programs that may issue commands of their own learn the numbers of what is underneath.
::mlx5_ib_create_qp_resp numbers(const RawPacketQp& raw) {
  ::mlx5_ib_create_qp_resp r{};
  if (raw.uid == 0) return r;
  if (raw.sq.exists) {
    r.tisn = raw.tisn;
    r.sqn = raw.sq.qpn;
    r.comp_mask |= MLX5_IB_CREATE_QP_RESP_MASK_TISN | MLX5_IB_CREATE_QP_RESP_MASK_SQN;
  }
  if (raw.rq.exists) {
    r.rqn = raw.rq.qpn;
    r.comp_mask |= MLX5_IB_CREATE_QP_RESP_MASK_RQN;
  }
  if (raw.has_tir) {
    r.tirn = raw.tirn;
    r.comp_mask |= MLX5_IB_CREATE_QP_RESP_MASK_TIRN;
  }
  return r;
}

// Which headers the hash covers. Linux: create_rss_raw_qp_tir.
Status select_fields(void* tirc, const ib_rwq_ind_table& table, std::uint64_t fields) {
  // Without fields, and with one WQ, the TIR serves as a place for rules.
  if (fields == 0 && table.ind_tbl.size() == 1) return success();
  if (fields == 0) return refuse(EINVAL, "create_qp: RSS over {} WQs without hash fields", table.ind_tbl.size());
  constexpr std::uint64_t v4 = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4, v6 = MLX5_RX_HASH_SRC_IPV6 | MLX5_RX_HASH_DST_IPV6;
  constexpr std::uint64_t tcp = MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_TCP;
  constexpr std::uint64_t udp = MLX5_RX_HASH_SRC_PORT_UDP | MLX5_RX_HASH_DST_PORT_UDP;
  if ((fields & v4) && (fields & v6)) return refuse(EINVAL, "create_qp: RSS over both IPv4 and IPv6");
  int l4 = ((fields & tcp) != 0) + ((fields & udp) != 0) + ((fields & MLX5_RX_HASH_IPSEC_SPI) != 0);
  if (l4 > 1) return refuse(EINVAL, "create_qp: RSS over more than one of TCP, UDP, ESP");
  bool inner = fields & MLX5_RX_HASH_INNER;
  void* hfs = inner ? prm::at<prm::tirc::rx_hash_field_selector_inner>(tirc) : prm::at<prm::tirc::rx_hash_field_selector_outer>(tirc);
  using sel = prm::rx_hash_field_select;
  prm::set<sel::l3_prot_type>(hfs, fields & v6 ? kHashIpv6 : kHashIpv4);
  prm::set<sel::l4_prot_type>(hfs, fields & udp ? kHashUdp : kHashTcp);
  std::uint32_t selected = 0;
  if (fields & (MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_SRC_IPV6)) selected |= kSelSrcIp;
  if (fields & (MLX5_RX_HASH_DST_IPV4 | MLX5_RX_HASH_DST_IPV6)) selected |= kSelDstIp;
  if (fields & (MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_SRC_PORT_UDP)) selected |= kSelSport;
  if (fields & (MLX5_RX_HASH_DST_PORT_TCP | MLX5_RX_HASH_DST_PORT_UDP)) selected |= kSelDport;
  if (fields & MLX5_RX_HASH_IPSEC_SPI) selected |= kSelSpi;
  prm::set<sel::selected_fields>(hfs, selected);
  return success();
}

Status create_rss_tir(mlx5_core_dev& m, mlx5_ib_qp& qp, const ib_rwq_ind_table& table, const ::mlx5_ib_create_qp_rss& ucmd,
                      std::uint32_t tdn) {
  if (ucmd.comp_mask) return refuse(EOPNOTSUPP, "create_qp: RSS comp_mask {:#x}", ucmd.comp_mask);
  if ((ucmd.rx_hash_fields_mask & MLX5_RX_HASH_INNER) && !(ucmd.flags & MLX5_QP_FLAG_TUNNEL_OFFLOADS))
    return refuse(EOPNOTSUPP, "create_qp: RSS over inner headers needs tunnel offloads");
  std::uint8_t in[prm::create_tir_in::kBytes] = {};
  void* tirc = prm::at<prm::create_tir_in::ctx>(static_cast<void*>(in));
  prm::set<prm::create_tir_in::uid>(in, qp.raw->uid);
  prm::set<prm::tirc::disp_type>(tirc, kIndirect);
  prm::set<prm::tirc::indirect_table>(tirc, table.ind_tbl_num);
  prm::set<prm::tirc::transport_domain>(tirc, tdn);
  prm::set<prm::tirc::tunneled_offload_en>(tirc, ucmd.flags & MLX5_QP_FLAG_TUNNEL_OFFLOADS ? 1 : 0);
  prm::set<prm::tirc::self_lb_block>(tirc, self_loopback(ucmd.flags));
  if (ucmd.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ)
    return refuse(EOPNOTSUPP, "create_qp: RSS hash function {}; Toeplitz ({}) is offered", ucmd.rx_hash_function,
                  static_cast<int>(MLX5_RX_HASH_FUNC_TOEPLITZ));
  if (ucmd.rx_key_len != kToeplitzKey) return refuse(EINVAL, "create_qp: an RSS key of {} bytes, not {}", ucmd.rx_key_len, kToeplitzKey);
  prm::set<prm::tirc::rx_hash_fn>(tirc, kToeplitz);
  std::memcpy(prm::at<prm::tirc::rx_hash_toeplitz_key>(tirc), ucmd.rx_hash_key, kToeplitzKey);
  UHCA_CHECK(select_fields(tirc, table, ucmd.rx_hash_fields_mask));
  qp.raw->tirn = UHCA_TRY(create_tir(m, in));
  qp.raw->has_tir = true;
  return success();
}

// Linux: process_udata_size and check_ucmd_data. Reads what there is of the driver's request.
template <class Cmd>
Status read_request(const Udata& udata, std::size_t least, std::size_t last, Cmd* ucmd) {
  if (udata.inlen < least) return refuse(EINVAL, "create_qp: driver data of {} bytes", udata.inlen);
  if (udata.inlen > last) {
    auto zero = user_is_zero(udata.inbuf + last, udata.inlen - last);
    if (!zero.ok() || !*zero) return refuse(EINVAL, "create_qp: driver data beyond {} bytes is not zero", last);
  }
  return udata.copy_in(ucmd, sizeof *ucmd);
}

Status set_state(mlx5_core_dev& m, RawPacketQp& raw, RawPacketQp::Side& side, bool send, WqState to) {
  std::uint8_t in[prm::modify_rq_in::kBytes] = {}, out[prm::modify_rq_out::kBytes] = {};
  // MODIFY_SQ and MODIFY_RQ share number, states and the context's state.
  prm::set<prm::modify_rq_in::opcode>(in, static_cast<std::uint16_t>(send ? Opcode::MODIFY_SQ : Opcode::MODIFY_RQ));
  prm::set<prm::modify_rq_in::uid>(in, raw.uid);
  prm::set<prm::modify_rq_in::rqn>(in, side.qpn);
  prm::set<prm::modify_rq_in::rq_state>(in, static_cast<unsigned>(side.state));
  prm::set<prm::rqc::state>(prm::at<prm::modify_rq_in::ctx>(static_cast<void*>(in)), static_cast<unsigned>(to));
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
  side.state = to;
  return success();
}

Result<WqState> query_state(mlx5_core_dev& m, RawPacketQp::Side& side, bool send) {
  std::uint8_t in[prm::query_rq_in::kBytes] = {};
  std::vector<std::uint8_t> out(prm::query_rq_out::kBytes);
  prm::set<prm::query_rq_in::opcode>(in, static_cast<std::uint16_t>(send ? Opcode::QUERY_SQ : Opcode::QUERY_RQ));
  prm::set<prm::query_rq_in::rqn>(in, side.qpn);
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out.data(), out.size()));
  side.state =
      static_cast<WqState>(prm::get<prm::rqc::state>(prm::at<prm::query_rq_out::rq_context>(static_cast<const void*>(out.data()))));
  return side.state;
}

}  // namespace

Status create_raw_queue(mlx5_core_dev& m, mlx5_core_qp& q, Opcode op, std::vector<std::uint8_t>& in) {
  std::uint8_t out[prm::create_rq_out::kBytes] = {};
  prm::set<prm::create_rq_in::opcode>(in.data(), static_cast<std::uint16_t>(op));
  UHCA_CHECK(m.cmd().exec(in.data(), in.size(), out, sizeof out));
  q.qpn = prm::get<prm::create_rq_out::rqn>(out);
  if (m.track_qp(q)) return success();
  Opcode undo = op == Opcode::CREATE_SQ ? Opcode::DESTROY_SQ : Opcode::DESTROY_RQ;
  auto uid = static_cast<std::uint16_t>(prm::get<prm::create_rq_in::uid>(in.data()));
  if (Status s = exec_on_number(m, undo, q.qpn, uid); !s) log::error("queue {:#x} could not be destroyed", q.qpn);
  return refuse(ENOMEM, "queue {:#x}: no place in the table", q.qpn);
}

Status destroy_raw_queue(mlx5_core_dev& m, mlx5_core_qp& q, Opcode op, std::uint16_t uid) {
  m.untrack_qp(q);
  Status s = exec_on_number(m, op, q.qpn, uid);
  if (!s) m.track_qp(q);
  return s;
}

Status exec_on_number(mlx5_core_dev& m, Opcode op, std::uint32_t number, std::uint16_t uid) {
  std::uint8_t in[prm::destroy_tir_in::kBytes] = {}, out[prm::destroy_tir_out::kBytes] = {};
  prm::set<prm::destroy_tir_in::opcode>(in, static_cast<std::uint16_t>(op));
  prm::set<prm::destroy_tir_in::uid>(in, uid);
  prm::set<prm::destroy_tir_in::tirn>(in, number);
  return m.cmd().exec(in, sizeof in, out, sizeof out);
}

Result<std::unique_ptr<ib_qp>> create_raw_packet_qp(mlx5_ib_dev& dev, ib_pd* ibpd, ib_qp_init_attr& attr, Udata* udata) {
  auto& m = *dev.mdev;
  bool rss = attr.rwq_ind_tbl != nullptr;
  if (udata == nullptr || ibpd == nullptr || ibpd->ucontext == nullptr)
    return refuse(EOPNOTSUPP, "create_qp: raw packet QPs are for programs");
  auto& c = to_mucontext(*ibpd->ucontext);
  if (!m.cap_gen<prm::cmd_hca_cap::eth_net_offloads>()) return refuse(EOPNOTSUPP, "create_qp: the device has no Ethernet queues");
  if (attr.qp_type != ib_qp_type::RAW_PACKET) return refuse(EINVAL, "create_qp: an indirection table is for raw packet QPs");
  if (c.cqe_version == 0) return refuse(EINVAL, "create_qp: raw packet QPs need CQE version 1");
  using Cmd = ::mlx5_ib_create_qp;
  using Rss = ::mlx5_ib_create_qp_rss;
  Cmd ucmd{};
  Rss rss_cmd{};
  if (rss) {
    if (udata->outlen < offsetof(::mlx5_ib_create_qp_resp, bfreg_index) + sizeof(std::uint32_t))
      return refuse(EINVAL, "create_qp: room for {} bytes of driver response", udata->outlen);
    UHCA_CHECK(read_request(*udata, offsetof(Rss, flags) + sizeof rss_cmd.flags, sizeof(Rss), &rss_cmd));
  } else {
    UHCA_CHECK(read_request(*udata, offsetof(Cmd, ece_options), offsetof(Cmd, reserved), &ucmd));
  }
  UHCA_CHECK(check_flags(m, rss ? rss_cmd.flags : ucmd.flags, rss));
  std::uint32_t uidx = 0;
  if (!rss) uidx = UHCA_TRY(user_index(c, udata->inlen >= offsetof(Cmd, uidx) + sizeof ucmd.uidx, ucmd.uidx));
  if (rss && attr.create_flags != 0) return refuse(EINVAL, "create_qp: create_flags {:#x} are not for RSS", attr.create_flags);
  UHCA_CHECK(check_create_flags(m, attr.create_flags));
  if (rss && attr.send_cq != nullptr) return refuse(EINVAL, "create_qp: an RSS QP sends nothing");

  auto qp = std::make_unique<mlx5_ib_qp>();
  qp->device = &dev;
  qp->pd = ibpd;
  qp->qp_type = attr.qp_type;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->rwq_ind_tbl = attr.rwq_ind_tbl;
  qp->sq_sig_all = attr.sq_sig_all;
  qp->max_inline_data = attr.cap.max_inline_data;
  qp->raw = std::make_unique<RawPacketQp>();
  qp->raw->uid = c.devx_uid;
  Status s;
  if (rss) {
    s = create_rss_tir(m, *qp, *attr.rwq_ind_tbl, rss_cmd, c.tdn);
  } else {
    if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return refuse(EINVAL, "create_qp: a send and a receive CQ are needed");
    UHCA_CHECK(size_receive_queue(m, *qp, attr, ucmd));
    UHCA_CHECK(size_send_queue(m, *qp, attr, ucmd));
    std::uint32_t uar = UHCA_TRY(uar_of(c, ucmd));
    if (ucmd.db_addr % 8) return refuse(EINVAL, "create_qp: doorbell record at {:#x} is not aligned to 8 bytes", ucmd.db_addr);
    std::size_t bytes = std::size_t{qp->rq_wqe_cnt} << qp->rq_wqe_shift;
    if (ucmd.buf_addr != 0 && bytes != 0) qp->buffer = UHCA_TRY(m.domain().pin(ucmd.buf_addr, bytes, false, "RQ buffer"));
    qp->doorbell = UHCA_TRY(m.domain().pin(ucmd.db_addr, 8, false, "raw packet QP doorbell record"));
    if (qp->sq_wqe_cnt == 0 && qp->rq_wqe_cnt == 0) return refuse(EINVAL, "create_qp: a raw packet QP without queues");
    s = create_parts(m, *qp, attr, ucmd, c.tdn, uar, uidx);
  }
  if (s.ok()) {
    qp->qp_num = qp->qpn = qp->raw->sq.exists ? qp->raw->sq.qpn : qp->raw->rq.qpn;  // 0 of an RSS QP
    auto resp = numbers(*qp->raw);
    s = udata->copy_out(&resp, sizeof resp);
    if (s.ok()) return std::unique_ptr<ib_qp>(std::move(qp));
  }
  if (Status f = destroy_parts(m, *qp); !f) log::error("raw packet QP could not be undone");
  return s.error();
}

Status destroy_raw_packet_qp(mlx5_ib_qp& qp) {
  auto& m = *to_mdev(*qp.device).mdev;
  if (qp.state != S::RESET) {
    // The device is done with the queues when their numbers are freed. One that is in error by itself is not where we left it.
    RawPacketQp& raw = *qp.raw;
    if (raw.rq.exists) static_cast<void>(query_state(m, raw.rq, false));
    if (raw.sq.exists) static_cast<void>(query_state(m, raw.sq, true));
    if (Status s = modify_raw_packet_qp(qp, qp.state, S::RESET); !s)
      log::warn("raw packet QP {:#x}: could not be reset before destruction", qp.qpn);
  }
  UHCA_CHECK(destroy_parts(m, qp));
  qp.raw->sq_buffer.reset();
  qp.buffer.reset();
  qp.doorbell.reset();
  return success();
}

Status modify_raw_packet_qp(mlx5_ib_qp& qp, S from, S to) {
  auto& m = *to_mdev(*qp.device).mdev;
  RawPacketQp& raw = *qp.raw;
  auto both = [&](WqState rq, WqState sq) -> Status {
    if (raw.rq.exists) UHCA_CHECK(set_state(m, raw, raw.rq, false, rq));
    return raw.sq.exists ? set_state(m, raw, raw.sq, true, sq) : success();
  };
  if (to == S::RESET) return both(WqState::kReset, WqState::kReset);
  if (to == S::ERR) return both(WqState::kError, WqState::kError);
  if (from == S::RESET && to == S::INIT) return both(WqState::kReady, WqState::kReset);
  if (from == S::INIT && (to == S::INIT || to == S::RTR)) return success();
  if ((from == S::RTR || from == S::RTS) && to == S::RTS)
    return raw.sq.exists ? set_state(m, raw, raw.sq, true, WqState::kReady) : success();
  return refuse(EINVAL, "modify_qp: raw packet QP {:#x}: its queues have no {} -> {}", qp.qpn, to_string(from), to_string(to));
}

// Linux: sqrq_state_to_qp_state.
Status query_raw_packet_qp(mlx5_ib_qp& qp) {
  auto& m = *to_mdev(*qp.device).mdev;
  RawPacketQp& raw = *qp.raw;
  WqState sq{}, rq{};
  if (raw.sq.exists) sq = UHCA_TRY(query_state(m, raw.sq, true));
  if (raw.rq.exists) rq = UHCA_TRY(query_state(m, raw.rq, false));
  if (!raw.rq.exists) return success();  // an SQ alone: as it was set
  bool has_sq = raw.sq.exists, bad = false;
  switch (rq) {
    case WqState::kReset:
      bad = has_sq && sq != WqState::kReset;
      qp.state = S::RESET;
      break;
    case WqState::kReady:
      if (has_sq && sq == WqState::kError) qp.state = S::SQE;
      break;
    case WqState::kError:
      bad = has_sq && sq != WqState::kError;
      qp.state = S::ERR;
      break;
  }
  if (bad)
    return refuse(EINVAL, "query_qp: raw packet QP {:#x}: SQ in state {}, RQ in state {}", qp.qpn, static_cast<int>(sq),
                  static_cast<int>(rq));
  return success();
}

}  // namespace uhca::kernel::mlx5

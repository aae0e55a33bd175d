// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/kernel_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/log.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"
#include "prm/cqe.h"
#include "prm/wqe.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kMigrated = 3;     // qpc.pm_state
constexpr std::uint32_t kDatagramBbs = 2;  // control, address vector, one pointer: 80 bytes
constexpr std::uint32_t kRecvStride = 16;  // one pointer
constexpr std::uint32_t kMaxWr = 1024;
constexpr std::uint16_t kRoceUdpPortMin = 0xc000;  // IB_ROCE_UDP_ENCAP_VALID_PORT_MIN

// enum ib_wc_status.
constexpr std::uint8_t kWcLocLen = 1, kWcLocQpOp = 2, kWcLocProt = 4, kWcFlush = 5, kWcGeneral = 21;

std::uint8_t wc_status(std::uint32_t syndrome) {
  switch (static_cast<prm::CqeSyndrome>(syndrome)) {
    case prm::CqeSyndrome::LOCAL_LENGTH: return kWcLocLen;
    case prm::CqeSyndrome::LOCAL_QP_OP: return kWcLocQpOp;
    case prm::CqeSyndrome::LOCAL_PROT: return kWcLocProt;
    case prm::CqeSyndrome::WR_FLUSH: return kWcFlush;
    default: return kWcGeneral;
  }
}

void store_record(std::uint32_t* word, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*word).store(byteswap(value), std::memory_order_release);
}

void put_pages(void* in, prm::Field pas, const mm::DmaBuffer& memory, std::size_t bytes) {
  for (std::size_t i = 0; i < (bytes + kPage - 1) / kPage; ++i) prm::set(in, pas, memory.dma() + i * kPage, i);
}

// Linux: mlx5_ib_create_ah / create_ib_ah for a RoCE port.
void put_av(std::uint8_t* seg, const ib_ud_wr& wr) {
  using S = prm::wqe_av;
  const rdma_ah_attr& ah = wr.ah;
  prm::set<S::qkey>(seg, wr.remote_qkey);
  prm::set<S::ext>(seg, 1);
  prm::set<S::dqp_dct>(seg, wr.remote_qpn & 0xffffff);
  prm::set<S::stat_rate_sl>(seg, static_cast<std::uint8_t>((ah.sl & 7) << 1));
  if (ah.sgid_attr.roce_v2) {
    // The flow label, folded to 14 bits (Linux: rdma_flow_label_to_udp_sport).
    std::uint32_t low = ah.flow_label & 0x3fff, high = (ah.flow_label & 0xfc000) >> 14;
    prm::set<S::rlid>(seg, kRoceUdpPortMin | (low ^ high));
  }
  std::uint8_t* rmac = seg + prm::byte_of<S::rmac_47_16>;
  std::copy(ah.dmac.begin(), ah.dmac.end(), rmac);
  prm::set<S::tclass>(seg, ah.traffic_class);
  prm::set<S::hop_limit>(seg, ah.hop_limit);
  prm::set<S::grh_gid_fl>(seg, std::uint32_t{ah.sgid_index} << 20 | (ah.flow_label & 0xfffff));
  std::memcpy(prm::at<S::rgid>(seg), ah.dgid.data(), 16);
}

void put_pointer(std::uint8_t* seg, const ib_sge& sge) {
  prm::set<prm::wqe_data_seg::byte_count>(seg, sge.length);
  prm::set<prm::wqe_data_seg::lkey>(seg, sge.lkey);
  prm::set<prm::wqe_data_seg::addr>(seg, sge.addr);
}

std::uint64_t uar_offset(const mlx5_core_dev& m, std::size_t reg) {
  return std::uint64_t{m.uar()} * prm::kUarPageSize + reg;
}

}  // namespace

Result<std::unique_ptr<mm::DmaBuffer>> alloc_coherent(ib_device& d, std::size_t size) {
  return to_mdev(d).mdev->domain().alloc_coherent(size);
}

Result<std::uint32_t> get_dma_lkey(ib_pd& pd) {
  return to_mdev(*pd.device).mdev->create_pa_mkey(to_mpd(pd).pdn);
}

Status put_dma_lkey(ib_pd& pd, std::uint32_t lkey) {
  return to_mdev(*pd.device).mdev->destroy_mkey(lkey);
}

Result<std::unique_ptr<ib_cq>> create_kernel_cq(mlx5_ib_dev& dev, const ib_cq_init_attr& attr) {
  auto& m = *dev.mdev;
  if (attr.cqe == 0 || attr.cqe > 2 * kMaxWr)
    return refuse(EINVAL, "create_cq: {} entries for a kernel consumer, at most {}", attr.cqe, 2 * kMaxWr);
  std::uint32_t entries = std::bit_ceil(attr.cqe + 1);
  std::size_t bytes = align_up(std::size_t{entries} * prm::cqe64::kBytes, kPage);
  auto cq = std::make_unique<mlx5_ib_cq>();
  cq->device = &dev;
  cq->kernel = std::make_unique<KernelCq>();
  KernelCq& k = *cq->kernel;
  k.memory = UHCA_TRY(m.domain().alloc_coherent(bytes + kPage));
  k.log_size = static_cast<unsigned>(std::countr_zero(entries));
  auto* cqes = static_cast<std::uint8_t*>(k.memory->cpu());
  for (std::uint32_t i = 0; i < entries; ++i) cqes[(i + 1) * prm::cqe64::kBytes - 1] = prm::kCqeOwnerInitial;
  k.doorbell = reinterpret_cast<std::uint32_t*>(cqes + bytes);

  std::vector<std::uint8_t> in(prm::create_cq_in::kBytes + bytes / kPage * 8);
  put_pages(in.data(), prm::create_cq_in::pas, *k.memory, bytes);
  void* cqc = prm::at<prm::create_cq_in::cq_context>(in.data());
  prm::set<prm::cqc::log_cq_size>(cqc, k.log_size);
  prm::set<prm::cqc::uar_page>(cqc, m.uar());
  prm::set<prm::cqc::c_eqn_or_apu_element>(cqc, UHCA_TRY(m.comp_eqn(attr.comp_vector)));
  prm::set<prm::cqc::dbr_addr>(cqc, k.memory->dma() + bytes);
  cq->cqe = static_cast<int>(entries - 1);
  set_cq_handlers(*cq);
  UHCA_CHECK(m.create_cq(*cq, in));
  return std::unique_ptr<ib_cq>(std::move(cq));
}

Result<std::unique_ptr<ib_qp>> create_kernel_qp(mlx5_ib_dev& dev, ib_pd& pd, ib_qp_init_attr& attr) {
  auto& m = *dev.mdev;
  if (attr.qp_type != ib_qp_type::UD && attr.qp_type != ib_qp_type::GSI)
    return refuse(EOPNOTSUPP, "create_qp: QP type {} for a kernel consumer", static_cast<int>(attr.qp_type));
  if (attr.create_flags || attr.srq) return refuse(EOPNOTSUPP, "create_qp: no flags and no SRQ for a kernel consumer");
  if (!attr.send_cq || !attr.recv_cq || !to_mcq(*attr.send_cq).kernel || !to_mcq(*attr.recv_cq).kernel)
    return refuse(EINVAL, "create_qp: a kernel consumer needs kernel CQs");
  if (attr.cap.max_send_wr == 0 || attr.cap.max_send_wr > kMaxWr || attr.cap.max_recv_wr == 0 || attr.cap.max_recv_wr > kMaxWr ||
      attr.cap.max_send_sge > 1 || attr.cap.max_recv_sge > 1)
    return refuse(EINVAL, "create_qp: {} sends and {} receives of one segment for a kernel consumer, at most {} each", attr.cap.max_send_wr,
                  attr.cap.max_recv_wr, kMaxWr);
  auto qp = std::make_unique<mlx5_ib_qp>();
  qp->device = &dev;
  qp->pd = &pd;
  qp->qp_type = attr.qp_type;
  qp->sq_sig_all = true;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->kernel = std::make_unique<KernelQp>();
  KernelQp& k = *qp->kernel;
  k.rq_size = std::max(std::bit_ceil(attr.cap.max_recv_wr), 4u);
  k.sq_size = std::bit_ceil(attr.cap.max_send_wr * kDatagramBbs);
  k.rq_wr_ids.resize(k.rq_size);
  k.sq_wr_ids.resize(k.sq_size);
  std::size_t rq_bytes = std::size_t{k.rq_size} * kRecvStride;
  std::size_t bytes = align_up(rq_bytes + k.sq_size * prm::kSendWqeBb, kPage);
  k.memory = UHCA_TRY(m.domain().alloc_coherent(bytes + kPage));
  k.rq = static_cast<std::uint8_t*>(k.memory->cpu());
  k.sq = k.rq + rq_bytes;
  k.doorbell = reinterpret_cast<std::uint32_t*>(k.rq + bytes);
  k.doorbell_dma = k.memory->dma() + bytes;

  std::vector<std::uint8_t> in(prm::create_qp_in::kBytes + bytes / kPage * 8);
  put_pages(in.data(), prm::create_qp_in::pas, *k.memory, bytes);
  void* qpc = prm::at<prm::create_qp_in::qpc>(in.data());
  prm::set<prm::qpc::st>(qpc, to_mlx5_st(attr.qp_type));
  prm::set<prm::qpc::pm_state>(qpc, kMigrated);
  prm::set<prm::qpc::pd>(qpc, to_mpd(pd).pdn);
  prm::set<prm::qpc::log_rq_stride>(qpc, 0);  // 16 bytes
  prm::set<prm::qpc::log_rq_size>(qpc, static_cast<unsigned>(std::countr_zero(k.rq_size)));
  prm::set<prm::qpc::log_sq_size>(qpc, static_cast<unsigned>(std::countr_zero(k.sq_size)));
  prm::set<prm::qpc::cqn_snd>(qpc, to_mcq(*attr.send_cq).cqn);
  prm::set<prm::qpc::cqn_rcv>(qpc, to_mcq(*attr.recv_cq).cqn);
  prm::set<prm::qpc::dbr_addr>(qpc, k.doorbell_dma);
  prm::set<prm::qpc::uar_page>(qpc, m.uar());
  prm::set<prm::qpc::user_index>(qpc, 0xffffff);
  static_cast<mlx5_core_qp&>(*qp).event = [](mlx5_core_qp& q, EventType type) {
    log::warn("kernel QP {:#x}: event {:#x}", q.qpn, static_cast<unsigned>(type));
  };
  UHCA_CHECK(m.create_qp(*qp, in));
  qp->qp_num = attr.qp_type == ib_qp_type::GSI ? 1 : qp->qpn;
  for (ib_cq* cq : {attr.send_cq, attr.recv_cq}) {
    KernelCq& c = *to_mcq(*cq).kernel;
    std::lock_guard g(c.lock);
    if (std::find(c.qps.begin(), c.qps.end(), qp.get()) == c.qps.end()) c.qps.push_back(qp.get());
  }
  return std::unique_ptr<ib_qp>(std::move(qp));
}

void leave_kernel_cqs(mlx5_ib_qp& qp) {
  for (ib_cq* cq : {qp.send_cq, qp.recv_cq}) {
    KernelCq& c = *to_mcq(*cq).kernel;
    std::lock_guard g(c.lock);
    std::erase(c.qps, &qp);
  }
}

Status post_send(ib_qp& ibqp, const ib_ud_wr& wr) {
  auto& qp = to_mqp(ibqp);
  auto& dev = to_mdev(*qp.device);
  KernelQp& k = *qp.kernel;
  std::uint64_t first;
  {
    std::lock_guard g(k.lock);
    if (k.sq_head - k.sq_tail + kDatagramBbs > k.sq_size) return refuse(ENOMEM, "post_send: the send queue of QP {:#x} is full", qp.qp_num);
    std::uint32_t at = k.sq_head & (k.sq_size - 1);
    // Datagrams take two blocks and the size is even: none wraps.
    std::uint8_t* wqe = k.sq + std::size_t{at} * prm::kSendWqeBb;
    std::memset(wqe, 0, kDatagramBbs * prm::kSendWqeBb);
    using C = prm::wqe_ctrl_seg;
    prm::set<C::opcode>(wqe, static_cast<std::uint8_t>(prm::WqeOpcode::SEND));
    prm::set<C::wqe_index>(wqe, k.sq_head & 0xffff);
    prm::set<C::qpn>(wqe, qp.qpn);
    prm::set<C::ds>(wqe, (C::kBytes + prm::wqe_av::kBytes + prm::wqe_data_seg::kBytes) / prm::kWqeDsUnit);
    prm::set<C::fm_ce_se>(wqe, prm::kWqeCtrlCqUpdate);
    put_av(wqe + C::kBytes, wr);
    put_pointer(wqe + C::kBytes + prm::wqe_av::kBytes, wr.sge);
    k.sq_wr_ids[at] = wr.wr_id;
    k.sq_head += kDatagramBbs;
    store_record(&k.doorbell[prm::kSndDbr], k.sq_head & 0xffff);
    std::memcpy(&first, wqe, sizeof first);
  }
  dev.doorbell(uar_offset(*dev.mdev, prm::kUarBlueFlame), first);
  return success();
}

Status post_recv(ib_qp& ibqp, const ib_recv_wr& wr) {
  auto& qp = to_mqp(ibqp);
  KernelQp& k = *qp.kernel;
  std::lock_guard g(k.lock);
  if (k.rq_head - k.rq_tail == k.rq_size) return refuse(ENOMEM, "post_recv: the receive queue of QP {:#x} is full", qp.qp_num);
  std::uint32_t at = k.rq_head & (k.rq_size - 1);
  put_pointer(k.rq + std::size_t{at} * kRecvStride, wr.sge);
  k.rq_wr_ids[at] = wr.wr_id;
  ++k.rq_head;
  store_record(&k.doorbell[prm::kRcvDbr], k.rq_head & 0xffff);
  return success();
}

namespace {

void fill_wc(KernelQp& k, const std::uint8_t* cqe, bool receive, ib_wc& wc) {
  wc = {};
  wc.receive = receive;
  std::uint32_t counter = prm::get<prm::cqe64::wqe_counter>(cqe);
  std::lock_guard g(k.lock);
  if (receive) {
    // In order: the oldest posted one.
    wc.wr_id = k.rq_wr_ids[k.rq_tail & (k.rq_size - 1)];
    ++k.rq_tail;
  } else {
    wc.wr_id = k.sq_wr_ids[counter & (k.sq_size - 1)];
    k.sq_tail += static_cast<std::uint16_t>(counter - k.sq_tail) + kDatagramBbs;
  }
  auto op = static_cast<prm::CqeOpcode>(prm::get<prm::cqe64::opcode>(cqe));
  if (op == prm::CqeOpcode::REQ_ERR || op == prm::CqeOpcode::RESP_ERR) {
    wc.status = wc_status(prm::get<prm::err_cqe::syndrome>(cqe));
    wc.vendor_err = static_cast<std::uint8_t>(prm::get<prm::err_cqe::vendor_err_synd>(cqe));
    return;
  }
  wc.byte_len = prm::get<prm::cqe64::byte_cnt>(cqe);
  std::uint32_t flags = prm::get<prm::cqe64::flags_rqpn>(cqe);
  wc.src_qp = flags & 0xffffff;
  // MLX5_CQE_ROCE_L3_HEADER_TYPE_*: 0 GRH, 1 IPv6, 2 IPv4.
  unsigned l3 = flags >> 24 & 3;
  wc.network = l3 == 2 ? rdma_network_type::IPV4 : l3 == 1 ? rdma_network_type::IPV6 : rdma_network_type::ROCE_V1;
}

}  // namespace

std::size_t poll_cq(ib_cq& ibcq, ib_wc* wc, std::size_t n) {
  KernelCq& k = *to_mcq(ibcq).kernel;
  std::lock_guard g(k.lock);
  auto* cqes = static_cast<const std::uint8_t*>(k.memory->cpu());
  std::size_t got = 0;
  while (got < n) {
    const std::uint8_t* cqe = cqes + std::size_t{k.ci & ((1u << k.log_size) - 1)} * prm::cqe64::kBytes;
    std::uint8_t op_own =
        std::atomic_ref<std::uint8_t>(const_cast<std::uint8_t&>(cqe[prm::cqe64::kBytes - 1])).load(std::memory_order_acquire);
    if (op_own >> 4 == static_cast<unsigned>(prm::CqeOpcode::INVALID) || (op_own & 1) != (k.ci >> k.log_size & 1)) break;
    ++k.ci;
    std::uint32_t qpn = prm::get<prm::cqe64::qpn>(cqe);
    auto op = static_cast<prm::CqeOpcode>(op_own >> 4);
    bool receive = op != prm::CqeOpcode::REQ && op != prm::CqeOpcode::REQ_ERR;
    auto qp = std::find_if(k.qps.begin(), k.qps.end(), [&](mlx5_ib_qp* q) { return q->qpn == qpn; });
    if (qp == k.qps.end()) continue;
    fill_wc(*(*qp)->kernel, cqe, receive, wc[got++]);
  }
  store_record(&k.doorbell[prm::kCqSetCi], k.ci & 0xffffff);
  return got;
}

Status req_notify_cq(ib_cq& ibcq) {
  auto& cq = to_mcq(ibcq);
  auto& dev = to_mdev(*cq.device);
  std::uint64_t value;
  {
    KernelCq& k = *cq.kernel;
    std::lock_guard g(k.lock);
    std::uint32_t arm = (k.arm_sn++ & 3) << 28 | prm::kCqDbReqNot | (k.ci & 0xffffff);
    store_record(&k.doorbell[prm::kCqArmDb], arm);
    std::uint32_t words[2] = {byteswap(arm), byteswap(cq.cqn)};
    std::memcpy(&value, words, sizeof value);
  }
  dev.doorbell(uar_offset(*dev.mdev, prm::kUarCqDoorbell), value);
  return success();
}

}  // namespace uhca::kernel::mlx5

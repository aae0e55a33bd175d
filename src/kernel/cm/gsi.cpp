// SPDX-License-Identifier: MIT
#include "kernel/cm/gsi.h"

#include <cstring>

#include "base/log.h"
#include "base/types.h"

namespace uhca::kernel::cm {
namespace {

constexpr std::size_t kGrh = 40;
constexpr std::size_t kRecvStride = 320;  // GRH and MAD, aligned
constexpr std::uint32_t kQpn1 = 1;

// The network header in front of the MAD.
void parse_header(const std::uint8_t* grh, rdma_network_type type, MadInfo& info) {
  if (type == rdma_network_type::IPV4) {
    const std::uint8_t* ip = grh + 20;
    info.traffic_class = ip[1];
    info.hop_limit = ip[8];
    info.sgid = info.dgid = ib_gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::memcpy(&info.sgid[12], ip + 12, 4);
    std::memcpy(&info.dgid[12], ip + 16, 4);
    return;
  }
  info.roce_v2 = type == rdma_network_type::IPV6;
  std::uint32_t word = load_be<std::uint32_t>(grh);
  info.traffic_class = static_cast<std::uint8_t>(word >> 20);
  info.flow_label = word & 0xfffff;
  info.hop_limit = grh[7];
  std::memcpy(info.sgid.data(), grh + 8, 16);
  std::memcpy(info.dgid.data(), grh + 24, 16);
}

}  // namespace

Result<std::unique_ptr<GsiQp>> GsiQp::create(ib_device& dev, void (*arrived)(void*), void* context) {
  const ib_device_ops& o = dev.ops;
  if (!o.alloc_coherent || !o.get_dma_lkey || !o.post_send || !o.post_recv || !o.poll_cq || !o.req_notify_cq)
    return refuse(EOPNOTSUPP, "{}: no connection management: the driver has no kernel queues", dev.name);
  std::unique_ptr<GsiQp> g(new GsiQp(dev));
  UHCA_CHECK(g->make(arrived, context));
  return g;
}

Status GsiQp::make(void (*arrived)(void*), void* context) {
  arrived_ = arrived;
  arrived_context_ = context;
  pd_ = UHCA_TRY(ib_alloc_pd(dev_, nullptr, nullptr));
  send_cq_ = UHCA_TRY(ib_create_cq(dev_, nullptr, {kSends, 0, 0}, nullptr));
  recv_cq_ = UHCA_TRY(ib_create_cq(dev_, nullptr, {kRecvs, 0, 0}, nullptr));
  recv_cq_->cq_context = this;
  recv_cq_->comp_handler = [](ib_cq*, void* self) {
    auto* g = static_cast<GsiQp*>(self);
    g->arrived_(g->arrived_context_);
  };
  ib_qp_init_attr attr;
  attr.qp_type = ib_qp_type::GSI;
  attr.send_cq = send_cq_.get();
  attr.recv_cq = recv_cq_.get();
  attr.cap.max_send_wr = kSends;
  attr.cap.max_recv_wr = kRecvs;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  qp_ = UHCA_TRY(ib_create_qp(*pd_, attr, nullptr));
  buffers_ = UHCA_TRY(dev_.ops.alloc_coherent(dev_, kRecvs * kRecvStride + kSends * kMadSize));
  lkey_ = UHCA_TRY(dev_.ops.get_dma_lkey(*pd_));
  for (unsigned i = 0; i < kSends; ++i) free_sends_.push_back(i);
  UHCA_CHECK(to_rts());
  for (unsigned i = 0; i < kRecvs; ++i) UHCA_CHECK(post_recv(i));
  return dev_.ops.req_notify_cq(*recv_cq_);
}

Status GsiQp::to_rts() {
  ib_qp_attr a;
  a.qp_state = ib_qp_state::INIT;
  a.qkey = kGsiQkey;
  a.pkey_index = 0;
  UHCA_CHECK(ib_modify_qp(*qp_, a, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_QKEY, nullptr));
  a.qp_state = ib_qp_state::RTR;
  UHCA_CHECK(ib_modify_qp(*qp_, a, IB_QP_STATE, nullptr));
  a.qp_state = ib_qp_state::RTS;
  a.sq_psn = 0;
  return ib_modify_qp(*qp_, a, IB_QP_STATE | IB_QP_SQ_PSN, nullptr);
}

GsiQp::~GsiQp() {
  auto gone = [&](const char* what, Status s) {
    if (!s) log::error("{}: the {} of QP1 could not be destroyed ({})", dev_.name, what, s.code());
  };
  if (qp_) gone("QP", ib_destroy_qp(*qp_));
  if (send_cq_) gone("send CQ", ib_destroy_cq(*send_cq_));
  if (recv_cq_) gone("receive CQ", ib_destroy_cq(*recv_cq_));
  if (lkey_) gone("key", dev_.ops.put_dma_lkey(*pd_, lkey_));
  if (pd_) gone("PD", ib_dealloc_pd(*pd_));
}

Status GsiQp::post_recv(unsigned slot) {
  ib_recv_wr wr;
  wr.wr_id = slot;
  wr.sge = {buffers_->dma() + slot * kRecvStride, static_cast<std::uint32_t>(kGrh + kMadSize), lkey_};
  return dev_.ops.post_recv(*qp_, wr);
}

// With send_lock_ held.
void GsiQp::reap_sends() {
  ib_wc wc[16];
  std::size_t n;
  while ((n = dev_.ops.poll_cq(*send_cq_, wc, std::size(wc))) > 0) {
    for (std::size_t i = 0; i < n; ++i) {
      if (wc[i].status) log::warn("{}: a MAD was not sent: completion status {}", dev_.name, wc[i].status);
      free_sends_.push_back(static_cast<unsigned>(wc[i].wr_id));
    }
  }
}

Status GsiQp::send(const Mad& mad, const rdma_ah_attr& av) {
  ib_ud_wr wr;
  wr.ah = av;
  UHCA_CHECK(rdma_resolve_ah(dev_, wr.ah, av.port_num));
  unsigned slot;
  {
    std::lock_guard g(send_lock_);
    reap_sends();
    if (free_sends_.empty()) return refuse(ENOMEM, "{}: {} MADs are under way, no buffer for another", dev_.name, kSends);
    slot = free_sends_.back();
    free_sends_.pop_back();
  }
  std::size_t at = kRecvs * kRecvStride + slot * kMadSize;
  std::memcpy(static_cast<std::uint8_t*>(buffers_->cpu()) + at, mad.bytes.data(), kMadSize);
  wr.wr_id = slot;
  wr.sge = {buffers_->dma() + at, static_cast<std::uint32_t>(kMadSize), lkey_};
  wr.remote_qpn = kQpn1;
  wr.remote_qkey = kGsiQkey;
  Status s = dev_.ops.post_send(*qp_, wr);
  if (!s) {
    std::lock_guard g(send_lock_);
    free_sends_.push_back(slot);
  }
  return s;
}

bool GsiQp::poll(Sink sink, void* context) {
  ib_wc wc[32];
  bool armed = false;
  for (std::size_t taken = 0; taken < kRecvs;) {
    std::size_t n = dev_.ops.poll_cq(*recv_cq_, wc, std::size(wc));
    taken += n;
    if (n == 0) {
      // Armed, and nothing came in between.
      if (armed) return true;
      if (Status s = dev_.ops.req_notify_cq(*recv_cq_); !s) log::error("{}: the CQ of QP1 cannot be armed", dev_.name);
      armed = true;
      continue;
    }
    for (std::size_t i = 0; i < n; ++i) {
      auto slot = static_cast<unsigned>(wc[i].wr_id);
      const auto* buffer = static_cast<const std::uint8_t*>(buffers_->cpu()) + slot * kRecvStride;
      if (wc[i].status == 0 && wc[i].byte_len == kGrh + kMadSize) {
        Mad mad;
        MadInfo info;
        std::memcpy(mad.bytes.data(), buffer + kGrh, kMadSize);
        info.src_qp = wc[i].src_qp;
        info.sl = wc[i].sl;
        parse_header(buffer, wc[i].network, info);
        if (Status s = post_recv(slot); !s) log::error("{}: a receive buffer of QP1 is lost ({})", dev_.name, s.code());
        sink(context, mad, info);
      } else {
        // Not a MAD: dropped.
        if (wc[i].status) log::warn("{}: QP1 received with completion status {}", dev_.name, wc[i].status);
        if (Status s = post_recv(slot); !s) log::error("{}: a receive buffer of QP1 is lost ({})", dev_.name, s.code());
      }
    }
  }
  return false;
}

}  // namespace uhca::kernel::cm

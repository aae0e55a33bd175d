// SPDX-License-Identifier: MIT
#include "device/hca/doorbell.h"

#include <cstring>

#include "base/trace.h"
#include "base/types.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/fast_path.h"
#include "device/hca/qp_error.h"
#include "device/hca/raw_queue.h"
#include "device/hca/rc_requester.h"
#include "prm/wqe.h"

namespace uhca::hca {

void uar_store(Lane& lane, std::uint64_t offset, std::uint32_t uar, std::uint64_t value) {
  if (offset == prm::kUarEqArm || offset == prm::kUarEqNoArm) {
    std::uint32_t v = byteswap(static_cast<std::uint32_t>(value));
    if (Eq* eq = lane.objects.eq(v >> 24)) eq_doorbell(lane, *eq, v & 0xffffff, offset == prm::kUarEqArm);
    return;
  }
  std::uint64_t v = byteswap(value);
  if (offset == prm::kUarCqDoorbell) {
    Cq* cq = lane.objects.cq(static_cast<std::uint32_t>(v) & 0xffffff);
    if (cq != nullptr && cq->uar == uar) look_at_cq_record(lane, *cq, true);
    return;
  }
  if (offset < prm::kUarBlueFlame) return;
  // The first 8 bytes of a control segment; of a larger BlueFlame copy the stores that follow look like nothing in particular.
  Qp* qp = lane.objects.qp(static_cast<std::uint32_t>(v) >> 8);
  if (qp != nullptr && qp->uar == uar) look_at_send_queue(lane, *qp);
  if (qp != nullptr) return;
  RawQueue* sq = lane.objects.raw_queue(static_cast<std::uint32_t>(v) >> 8);
  if (sq != nullptr && sq->send && sq->uar == uar) look_at_raw_queue(lane, *sq);
}

void blue_flame_write(Lane& lane, std::uint64_t offset, std::uint32_t uar, const std::array<std::uint64_t, 8>& words) {
  if (offset < prm::kUarBlueFlame) {
    for (unsigned i = 0; i < words.size(); ++i) uar_store(lane, offset + i * 8, uar, words[i]);
    return;
  }
  // A longer copy goes on behind the beginning of the register: with data, whatever it looks like.
  if (offset % prm::kBlueFlameBytes != 0) return;
  std::uint8_t wqe[prm::kSendWqeBb];
  std::memcpy(wqe, words.data(), sizeof wqe);
  BlueFlame copy;
  if (prm::get<prm::wqe_ctrl_seg::ds>(wqe) * prm::kWqeDsUnit <= sizeof wqe)
    copy = {wqe, static_cast<std::uint16_t>(prm::get<prm::wqe_ctrl_seg::wqe_index>(wqe))};
  const std::uint32_t number = static_cast<std::uint32_t>(prm::get<prm::wqe_ctrl_seg::qpn>(wqe));
  if (trace::on()) trace::Event("doorbell", "BLUE_FLAME").hex("qpn", number).num("wqe", copy.index);
  Qp* qp = lane.objects.qp(number);
  RawQueue* sq = qp == nullptr ? lane.objects.raw_queue(number) : nullptr;
  if (qp != nullptr) qp->blue_flame = copy;
  if (sq != nullptr) sq->blue_flame = copy;
  uar_store(lane, offset, uar, words[0]);
  // Whatever was not taken from the copy comes from memory, later.
  if (qp != nullptr) qp->blue_flame = {};
  if (sq != nullptr) sq->blue_flame = {};
}

void look_at_send_queue(Lane& lane, Qp& qp) {
  QpTransport& t = *qp.transport;
  bool under_way = false;
  lane.note_post();
  switch (qp.state) {
    case QpState::kErr:
    case QpState::kSqErr: flush_posts(lane, qp); break;
    case QpState::kRts:
    case QpState::kSqDrain:
      if (!refresh_send_posted(lane, qp)) break;
      while (qp.state == QpState::kRts && execute_plain(lane, qp)) {
      }
      if (qp.transport->req.done == qp.transport->req.posted) break;
      if (trace::on()) trace::Event("doorbell", "SQ").hex("qpn", qp.qpn).num("posted", t.req.posted).num("fetched", t.req.fetched);
      under_way = is_reliable(qp.type) && t.req.una_psn != t.req.max_psn;
      run_requester(lane, qp);
      break;
    default: break;  // looked at again when the QP gets there
  }
  lane.settle();
  if (!under_way || !lane.attended()) lane.flush(false);
}

}  // namespace uhca::hca

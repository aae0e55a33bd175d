// SPDX-License-Identifier: MIT
// The arm rule (rdma-core providers/mlx5/cq.c: mlx5_arm_cq, mlx5_cq_event): word 1 of the doorbell record holds sn << 28 | cmd | ci. The
// sequence number moves on with every event that software takes, so an arm with the number of an event that has been sent is stale. CQEs
// behind `ci` that exist when the arm is seen fire it at once; that is what closes the race between the last poll and the arm (case C11).
// Where a CQ is moderated, what would fire it may have to wait (cq_moderation.h).
#include "device/hca/cqe_writer.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/cq_moderation.h"
#include "device/hca/doorbell_record.h"
#include "device/hca/eqe_writer.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

constexpr std::uint32_t kIndexMask = 0xffffff;
constexpr std::uint8_t kCqSyndromeOverrun = 0x1;  // Linux device.h: MLX5_CQ_ERROR_SYNDROME_CQ_OVERRUN

void set_arm(Lane& lane, Cq& cq, Cq::Arm arm) {
  if (cq.arm == Cq::Arm::kNone && arm != Cq::Arm::kNone) ++lane.armed;
  if (cq.arm != Cq::Arm::kNone && arm == Cq::Arm::kNone) --lane.armed;
  cq.arm = arm;
  forget_event(lane, cq);
}

void fire(Lane& lane, Cq& cq) {
  set_arm(lane, cq, Cq::Arm::kNone);
  cq.arm_sn = cq.arm_word >> 28 & 3;
  note_event(lane, cq);
  completion_event(lane, cq);
}

// The CQ is armed and has what it was armed for.
void fire_or_hold(Lane& lane, Cq& cq) {
  if (!hold_event(lane, cq)) fire(lane, cq);
}

bool exists_behind(std::uint32_t pi, std::uint32_t ci) {
  std::uint32_t n = (pi - ci) & kIndexMask;
  return n != 0 && n < 0x800000;
}

void act_on_arm(Lane& lane, Cq& cq, std::uint32_t word) {
  cq.arm_word = word;
  if (word == prm::kCqInitCmdSn && cq.arm_sn == Cq::kNeverArmed) return;
  if (cq.arm_sn == (word >> 28 & 3)) return;
  bool solicited = (word & prm::kCqDbReqNotSol) != 0;
  cq.arm_ci = word & kIndexMask;
  set_arm(lane, cq, solicited ? Cq::Arm::kSolicited : Cq::Arm::kAny);
  if (trace::on())
    trace::Event("doorbell", "CQ_ARM").num("cqn", cq.cqn).num("sn", word >> 28 & 3).num("ci", cq.arm_ci).flag("solicited", solicited);
  if (exists_behind(solicited ? cq.solicited_pi : cq.pi, cq.arm_ci)) fire_or_hold(lane, cq);
}

bool load_record(Lane& lane, const Cq& cq, std::size_t word, std::uint32_t* v) {
  return hca::load_record(lane.bus, cq.dbr_window, cq.dbr, word, v);
}

// The owner bit is in the last byte.
bool store_cqe(Lane& lane, const Cq& cq, std::uint64_t off, const std::uint8_t (&e)[prm::cqe64::kBytes]) {
  {
    rcu::ReadSection section;
    std::byte* p = off + sizeof e <= cq.buf.bytes ? cq.buf.window.writable_at(off) : nullptr;
    if (p != nullptr && safecopy::copy_last_byte_last(p, e, sizeof e)) return true;
  }
  return lane.bus.dma_write_last_byte_last(cq.buf.at(off), e, sizeof e);
}

// Whether there is room; refreshes the consumer index only when there seems to be none.
bool has_room(Lane& lane, Cq& cq) {
  std::uint32_t size = 1u << cq.log_size;
  if (((cq.pi - cq.ci) & kIndexMask) < size) return true;
  std::uint32_t ci;
  if (load_record(lane, cq, prm::kCqSetCi, &ci)) cq.ci = ci & kIndexMask;
  return ((cq.pi - cq.ci) & kIndexMask) < size;
}

void fail_cq(Lane& lane, Cq& cq, const char* why) {
  cq.error = true;
  if (cq.event_held) fire(lane, cq);  // of the CQEs that are there
  disarm(lane, cq);
  lane.counters.totals.add<Qc::cq_overflow>();
  lane.cq_failed = true;
  static_cast<void>(refuse(EOVERFLOW,
                           "CQ {:#x} of {} entries: {} (producer {}, consumer {}): create it with more entries, or poll more often", cq.cqn,
                           1u << cq.log_size, why, cq.pi, cq.ci));
  cq_error_event(lane, cq, kCqSyndromeOverrun);
}

constexpr std::size_t kInlineInCqe = 32;    // the first half of the CQE64
constexpr std::size_t kInlineInEntry = 64;  // the half of a 128-byte entry before the CQE64

// Data in the CQE (libmlx5: mlx5_copy_to_recv_wqe of `cqe` or `cqe - 1`). `off`: of the CQE64 in the CQ's buffer, `e` its
// bytes. The two halves of a 128-byte entry may lie in different pages.
bool place_inline(Lane& lane, const Cq& cq, std::uint64_t off, std::span<const std::byte> data, std::uint8_t* e) {
  if (cq.cqe_size == 128) {
    prm::set<prm::cqe64::format>(e, prm::kCqeInlineScatter64 >> 2);
    return lane.bus.dma_write(cq.buf.at(off - kInlineInEntry), data.data(), data.size());
  }
  prm::set<prm::cqe64::format>(e, prm::kCqeInlineScatter32 >> 2);
  std::memcpy(e, data.data(), data.size());
  return true;
}

void trace_cqe(const Cq& cq, std::uint32_t number, const std::uint8_t* cqe) {
  auto opcode = static_cast<prm::CqeOpcode>(prm::get<prm::cqe64::opcode>(cqe));
  trace::Event e("cqe", opcode == prm::CqeOpcode::REQ || opcode == prm::CqeOpcode::REQ_ERR ? "SEND_QUEUE" : "RECV_QUEUE");
  e.num("cqn", cq.cqn).hex("qpn", number).num("wqe", prm::get<prm::cqe64::wqe_counter>(cqe)).num("index", cq.pi);
  e.num("opcode", static_cast<int>(opcode));
  if (opcode == prm::CqeOpcode::REQ_ERR || opcode == prm::CqeOpcode::RESP_ERR) {
    e.hex("syndrome", prm::get<prm::err_cqe::syndrome>(cqe)).hex("vendor_err", prm::get<prm::err_cqe::vendor_err_synd>(cqe));
  } else {
    e.num("byte_cnt", prm::get<prm::cqe64::byte_cnt>(cqe));
  }
}

}  // namespace

std::size_t inline_scatter_limit(const Cq& cq, unsigned wanted) {
  return std::min<std::size_t>(wanted, cq.cqe_size == 128 ? kInlineInEntry : kInlineInCqe);
}

void disarm(Lane& lane, Cq& cq) {
  set_arm(lane, cq, Cq::Arm::kNone);
}

void look_at_cq_record(Lane& lane, Cq& cq, bool doorbell) {
  std::uint32_t ci, arm;
  if (!load_record(lane, cq, prm::kCqSetCi, &ci) || !load_record(lane, cq, prm::kCqArmDb, &arm)) return;
  cq.ci = ci & kIndexMask;
  if (cq.error || (arm == cq.arm_word && !doorbell)) return;
  act_on_arm(lane, cq, arm);
}

void write_cqe(Lane& lane, Cq* cq, const Qp& qp, const Cqe& c) {
  if (cq == nullptr || cq->error) return;
  std::uint8_t e[prm::cqe64::kBytes] = {};
  prm::set<prm::cqe64::srqn_uidx>(e, c.user_index == Cqe::kOfQp ? qp.user_index : c.user_index);
  prm::set<prm::cqe64::sop_drop_qpn>(e, std::uint32_t{c.wqe_opcode} << 24 | qp.qpn);
  prm::set<prm::cqe64::wqe_counter>(e, c.wqe_counter);
  if (c.error) {
    prm::set<prm::err_cqe::syndrome>(e, c.error.syndrome);
    prm::set<prm::err_cqe::vendor_err_synd>(e, c.error.vendor);
    prm::set<prm::err_cqe::hw_error_syndrome>(e, c.error.hw_syndrome);
  } else {
    prm::set<prm::cqe64::byte_cnt>(e, c.byte_cnt);
    prm::set<prm::cqe64::imm_inval_pkey>(e, c.imm);
    prm::set<prm::cqe64::timestamp>(e, lane.now);
    prm::set<prm::cqe64::se>(e, c.solicited);
    prm::set<prm::cqe64::flags_rqpn>(e, c.flags_rqpn);
    if (c.vlan != 0xffff) {
      prm::set<prm::cqe64::vlan_info>(e, c.vlan);
      prm::set<prm::cqe64::l4_hdr_type_etc>(e, 1);  // CQE_VLAN_PRESENT
    }
  }
  prm::set<prm::cqe64::opcode>(e, static_cast<unsigned>(c.opcode));
  post_cqe(lane, *cq, qp.qpn, e, c.solicited || c.error, c.data);
}

void post_cqe(Lane& lane, Cq& cq, std::uint32_t number, std::uint8_t (&e)[prm::cqe64::kBytes], bool wakes_solicited,
              std::span<const std::byte> data) {
  if (cq.error) return;
  std::uint32_t size = 1u << cq.log_size;
  if (!cq.collapsed && !has_room(lane, cq) && !cq.overrun_ignore) {
    fail_cq(lane, cq, "overrun");
    return;
  }
  prm::set<prm::cqe64::owner>(e, cq.pi >> cq.log_size & 1);

  // Of a 128-byte entry the second half is the CQE64.
  std::uint32_t slot = cq.collapsed ? 0 : cq.pi & (size - 1);
  std::uint64_t off = std::uint64_t{slot} * cq.cqe_size + (cq.cqe_size - sizeof e);
  if ((off + cq.buf.page_offset) >> cq.buf.log_page >= cq.buf.pages.size()) {
    fail_cq(lane, cq, "its buffer is smaller than its size");
    return;
  }
  if (!data.empty() && !place_inline(lane, cq, off, data, e)) {
    fail_cq(lane, cq, lane.bus.last_fault());
    return;
  }
  if (!store_cqe(lane, cq, off, e)) {
    fail_cq(lane, cq, lane.bus.last_fault());
    return;
  }
  if (trace::on()) trace_cqe(cq, number, e);
  ++cq.pi;
  note_cqe(lane, cq);
  if (wakes_solicited) cq.solicited_pi = cq.pi;
  // A doorbell may have been lost: the record is the truth (decision 4).
  std::uint32_t arm;
  if (cq.arm == Cq::Arm::kNone) {
    if (load_record(lane, cq, prm::kCqArmDb, &arm) && arm != cq.arm_word) act_on_arm(lane, cq, arm);
    return;
  }
  if (cq.arm == Cq::Arm::kAny || wakes_solicited) fire_or_hold(lane, cq);
}

void release_events(Lane& lane) {
  lane.event_at = kNever;
  for (std::size_t i = 0; i < lane.held_events.size();) {
    Cq& cq = *lane.held_events[i];
    if (!hold_event(lane, cq))
      fire(lane, cq);  // which takes it from the list
    else
      ++i;
  }
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/umr.h"

#include <sched.h>

#include <atomic>
#include <cstring>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"
#include "prm/cqe.h"
#include "prm/wqe.h"

namespace uhca::kernel::mlx5 {
namespace {

// One page: where each thing lies, bytes. A request takes two basic blocks.
constexpr std::size_t kPage = 4096, kCqes = 0, kSq = 1024, kCqDoorbell = 2048, kQpDoorbell = 2048 + 64;
constexpr unsigned kLogCqes = 2, kLogBlocks = 2;
constexpr std::uint32_t kBlocks = 2;
constexpr std::uint32_t kRegUmr = 0xc, kMigrated = 3, kZeroLengthRq = 3;  // qpc.st, pm_state, rq_type
constexpr std::uint64_t kMaskPd = 1 << 7;                                 // MLX5_MKEY_MASK_PD
constexpr std::uint8_t kCheckNotFree = 2 << 5;                            // MLX5_UMR_CHECK_FREE: complain about a key that is free

void store_record(std::uint8_t* at, std::uint32_t v) {
  std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(at)).store(byteswap(v), std::memory_order_release);
}

}  // namespace

UmrQueue::~UmrQueue() {
  undo();
}

Status UmrQueue::to_rts() {
  for (prm::Opcode op : {prm::Opcode::RST2INIT_QP, prm::Opcode::INIT2RTR_QP, prm::Opcode::RTR2RTS_QP}) {
    std::uint8_t in[prm::rst2init_qp_in::kBytes] = {}, out[prm::rst2init_qp_out::kBytes] = {};
    prm::set<prm::rst2init_qp_in::opcode>(in, static_cast<std::uint16_t>(op));
    prm::set<prm::rst2init_qp_in::qpn>(in, qp_.qpn);
    void* qpc = prm::at<prm::rst2init_qp_in::qpc>(static_cast<void*>(in));
    prm::set<prm::qpc::st>(qpc, kRegUmr);
    prm::set<prm::qpc::pm_state>(qpc, kMigrated);
    prm::set<prm::qpc::pd>(qpc, pdn_);
    prm::set<prm::qpc::dbr_addr>(qpc, memory_->dma() + kQpDoorbell);
    prm::set<prm::ads::vhca_port_num>(prm::at<prm::qpc::primary_address_path>(qpc), 1);
    UHCA_CHECK(m_.cmd().exec(in, sizeof in, out, sizeof out));
  }
  return success();
}

Status UmrQueue::make() {
  memory_ = UHCA_TRY(m_.domain().alloc_coherent(kPage));
  auto* bytes = static_cast<std::uint8_t*>(memory_->cpu());
  for (unsigned i = 0; i < 1u << kLogCqes; ++i) bytes[kCqes + (i + 1) * prm::cqe64::kBytes - 1] = prm::kCqeOwnerInitial;
  pdn_ = UHCA_TRY(m_.alloc_pd());
  steps_ = 1;
  {
    std::vector<std::uint8_t> in(prm::create_cq_in::kBytes + 8);
    prm::set<prm::create_cq_in::pas>(in.data(), memory_->dma());
    void* cqc = prm::at<prm::create_cq_in::cq_context>(in.data());
    prm::set<prm::cqc::log_cq_size>(cqc, kLogCqes);
    prm::set<prm::cqc::uar_page>(cqc, m_.uar());
    prm::set<prm::cqc::c_eqn_or_apu_element>(cqc, UHCA_TRY(m_.comp_eqn(0)));
    prm::set<prm::cqc::dbr_addr>(cqc, memory_->dma() + kCqDoorbell);
    cq_.comp = [](mlx5_core_cq&) {};
    cq_.event = [](mlx5_core_cq&, EventType) {};
    UHCA_CHECK(m_.create_cq(cq_, in));
    steps_ = 2;
  }
  std::vector<std::uint8_t> in(prm::create_qp_in::kBytes + 8);
  prm::set<prm::create_qp_in::pas>(in.data(), memory_->dma());
  void* qpc = prm::at<prm::create_qp_in::qpc>(in.data());
  prm::set<prm::qpc::st>(qpc, kRegUmr);
  prm::set<prm::qpc::pm_state>(qpc, kMigrated);
  prm::set<prm::qpc::pd>(qpc, pdn_);
  prm::set<prm::qpc::rq_type>(qpc, kZeroLengthRq);
  prm::set<prm::qpc::log_sq_size>(qpc, kLogBlocks);
  prm::set<prm::qpc::page_offset>(qpc, kSq / (kPage / 64));
  prm::set<prm::qpc::cqn_snd>(qpc, cq_.cqn);
  prm::set<prm::qpc::cqn_rcv>(qpc, cq_.cqn);
  prm::set<prm::qpc::dbr_addr>(qpc, memory_->dma() + kQpDoorbell);
  prm::set<prm::qpc::uar_page>(qpc, m_.uar());
  prm::set<prm::qpc::user_index>(qpc, kDefaultUserIndex);
  qp_.event = [](mlx5_core_qp& q, EventType type) { log::warn("UMR QP {:#x}: event {:#x}", q.qpn, static_cast<unsigned>(type)); };
  UHCA_CHECK(m_.create_qp(qp_, in));
  steps_ = 3;
  return to_rts();
}

void UmrQueue::undo() {
  auto gone = [](const char* what, const Status& s) {
    if (!s.ok()) log::error("the UMR queue's {} could not be freed ({})", what, s.code());
  };
  switch (steps_) {
    case 3: gone("QP", m_.destroy_qp(qp_)); [[fallthrough]];
    case 2: gone("CQ", m_.destroy_cq(cq_)); [[fallthrough]];
    case 1: gone("PD", m_.dealloc_pd(pdn_)); break;
    default: break;
  }
  steps_ = 0;
  posted_ = polled_ = 0;
  memory_.reset();
}

Status UmrQueue::change_pd_access(std::uint32_t key, std::uint32_t pdn, std::uint32_t access,
                                  void (*ring)(void*, std::uint64_t, std::uint64_t), void* context) {
  std::lock_guard g(lock_);
  if (steps_ == 0) {
    if (Status s = make(); !s.ok()) {
      undo();
      return s;
    }
  }
  auto* page = static_cast<std::uint8_t*>(memory_->cpu());
  std::uint8_t* wqe = page + kSq + (posted_ & ((1u << kLogBlocks) - 1)) * prm::kSendWqeBb;
  std::memset(wqe, 0, kBlocks * prm::kSendWqeBb);
  using C = prm::wqe_ctrl_seg;
  constexpr std::size_t kBytes = C::kBytes + prm::wqe_umr_ctrl_seg::kBytes + prm::wqe_mkey_context_seg::kBytes;
  static_assert(kBytes == kBlocks * prm::kSendWqeBb);
  prm::set<C::opcode>(wqe, static_cast<std::uint8_t>(prm::WqeOpcode::UMR));
  prm::set<C::wqe_index>(wqe, posted_ & 0xffff);
  prm::set<C::qpn>(wqe, qp_.qpn);
  prm::set<C::ds>(wqe, kBytes / prm::kWqeDsUnit);
  prm::set<C::fm_ce_se>(wqe, prm::kWqeCtrlCqUpdate);
  prm::set<C::imm>(wqe, key);
  std::uint8_t* umr = wqe + C::kBytes;
  prm::set<prm::wqe_umr_ctrl_seg::flags>(umr, kCheckNotFree | prm::kUmrInline);
  prm::set<prm::wqe_umr_ctrl_seg::mkey_mask>(
      umr, kMaskPd | prm::kUmrMaskLocalWrite | prm::kUmrMaskRemoteRead | prm::kUmrMaskRemoteWrite | prm::kUmrMaskAtomic);
  std::uint8_t* mkc = umr + prm::wqe_umr_ctrl_seg::kBytes;
  prm::set<prm::mkc::pd>(mkc, pdn);
  prm::set<prm::mkc::lw>(mkc, access & kAccessLocalWrite ? 1 : 0);
  prm::set<prm::mkc::rr>(mkc, access & kAccessRemoteRead ? 1 : 0);
  prm::set<prm::mkc::rw>(mkc, access & kAccessRemoteWrite ? 1 : 0);
  prm::set<prm::mkc::a>(mkc, access & kAccessRemoteAtomic ? 1 : 0);
  prm::set<prm::mkc::qpn>(mkc, 0xffffff);
  prm::set<prm::mkc::mkey_7_0>(mkc, key & 0xff);
  posted_ += kBlocks;
  store_record(page + kQpDoorbell + prm::kSndDbr * 4, posted_ & 0xffff);
  std::uint64_t first;
  std::memcpy(&first, wqe, sizeof first);
  const std::uint64_t reg = std::uint64_t{m_.uar()} * prm::kUarPageSize + prm::kUarBlueFlame;
  ring(context, reg, first);
  const std::uint8_t* cqe = page + kCqes + (polled_ & ((1u << kLogCqes) - 1)) * prm::cqe64::kBytes;
  const unsigned turn = polled_ >> kLogCqes & 1;
  std::uint8_t own;
  for (;;) {
    own = std::atomic_ref<std::uint8_t>(const_cast<std::uint8_t&>(cqe[prm::cqe64::kBytes - 1])).load(std::memory_order_acquire);
    if (own >> 4 != static_cast<unsigned>(prm::CqeOpcode::INVALID) && (own & 1u) == turn) break;
    // The engine ran in the doorbell; when somebody else has it, that is who executes the request.
    sched_yield();
    ring(context, reg, first);
  }
  ++polled_;
  store_record(page + kCqDoorbell + prm::kCqSetCi * 4, polled_ & 0xffffff);
  if (own >> 4 == static_cast<unsigned>(prm::CqeOpcode::REQ)) return success();
  Status answer = refuse(EIO, "UMR of key {:#x}: syndrome {:#x}", key, prm::get<prm::err_cqe::syndrome>(cqe));
  undo();  // the QP is in error; the next request makes a new one
  return answer;
}

}  // namespace uhca::kernel::mlx5

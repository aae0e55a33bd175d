// SPDX-License-Identifier: MIT
// Completion queues.
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "prm/cq_moderation.h"
#include "prm/cqe.h"
#include "prm/umem_ref.h"
#include "prm/wqe.h"

namespace uhca::hca::cmd {
namespace {

constexpr unsigned kCqErrorState = 0xa;  // cqc.status: write or overrun error
constexpr unsigned kCqe128Padded = 2;    // cqc.cqe_sz: 128 bytes, of which the second half is the CQE in any case
constexpr unsigned kMiniReserved = 2;    // cqc.mini_cqe_res_format: hash 0, checksum 1, checksum and stride index 3
enum ModifyOp : std::uint16_t { kModerate = 0, kResize = 1 };
// modify_cq_in.modify_field_select_resize_field_select with op_mod "resize" (mlx5_ib cq.c: MLX5_MODIFY_CQ_MASK_*).
constexpr std::uint32_t kLogSize = 1 << 0, kPageOffset = 1 << 1, kPageSize = 1 << 2;

// The umem fields lie at the same place in CREATE_CQ and MODIFY_CQ.
Status buffer_of(Command& c, const void* cqc, std::span<const std::uint8_t> pas, unsigned cqe_size, QueueBuffer& out, unsigned& log_size) {
  log_size = prm::get<prm::cqc::log_cq_size>(cqc);
  if (log_size > kLogMaxCqSize) return c.refuse(Status::BAD_PARAM, "2^{} entries", log_size);
  const std::uint64_t bytes = std::uint64_t{cqe_size} << log_size;
  Status s = c.get<prm::create_cq_in::cq_umem_valid>()
                 ? take_umem_buffer(c, c.get<prm::umem_ref::cq_umem_id>(), c.get<prm::umem_ref::cq_umem_offset>(), bytes, out)
                 : take_queue_buffer(c, pas, prm::get<prm::cqc::log_page_size>(cqc) + 12, prm::get<prm::cqc::page_offset>(cqc), bytes, out);
  if (s != Status::OK) return s;
  // Each half of an entry is written in one piece, so it must lie in one page.
  if (out.page_offset % prm::cqe64::kBytes != 0)
    return c.refuse(Status::BAD_PARAM, "the buffer starts {:#x} bytes into a page: no multiple of {}", out.page_offset, prm::cqe64::kBytes);
  return Status::OK;
}

Status take_period_mode(Command& c, const void* cqc, Cq& cq) {
  unsigned mode = prm::get<prm::cqc::cq_period_mode>(cqc);
  if (mode > static_cast<unsigned>(prm::CqPeriodMode::kCqe)) return c.refuse(Status::BAD_PARAM, "cq_period_mode {}", mode);
  cq.period_mode = static_cast<prm::CqPeriodMode>(mode);
  return Status::OK;
}

Status moderate(Command& c, Cq& cq) {
  const std::uint8_t* cqc = c.at<prm::modify_cq_in::cq_context>();
  std::uint32_t select = c.get<prm::modify_cq_in::modify_field_select_resize_field_select>();
  if (select & ~(prm::kCqModifyPeriod | prm::kCqModifyCount | prm::kCqModifyOverrun | prm::kCqModifyPeriodMode))
    return c.refuse(Status::BAD_PARAM, "field select {:#x}", select);
  if (select & prm::kCqModifyPeriodMode) {
    if (Status s = take_period_mode(c, cqc, cq); s != Status::OK) return s;
    prm::set<prm::cqc::cq_period_mode>(cq.cqc.data(), static_cast<unsigned>(cq.period_mode));
  }
  if (select & prm::kCqModifyPeriod) {
    cq.period = prm::get<prm::cqc::cq_period>(cqc);
    prm::set<prm::cqc::cq_period>(cq.cqc.data(), cq.period);
  }
  if (select & prm::kCqModifyCount) {
    cq.max_count = prm::get<prm::cqc::cq_max_count>(cqc);
    prm::set<prm::cqc::cq_max_count>(cq.cqc.data(), cq.max_count);
  }
  if (select & prm::kCqModifyOverrun) {
    cq.overrun_ignore = prm::get<prm::cqc::oi>(cqc);
    prm::set<prm::cqc::oi>(cq.cqc.data(), cq.overrun_ignore);
  }
  c.hca.data_path().cq_moderation_changed();
  return Status::OK;
}

void refresh_consumer_index(Command& c, Cq& cq) {
  std::uint8_t record[4];
  if (c.hca.bus().dma_read(record, cq.dbr + prm::kCqSetCi * 4, sizeof record)) cq.ci = load_be<std::uint32_t>(record) & 0xffffff;
}

// The last CQE in the old buffer says so; later ones go to the new buffer under continuing indexes (mlx5_ib cq.c: copy_resize_cqes).
Status resize(Command& c, Cq& cq) {
  const std::uint8_t* cqc = c.at<prm::modify_cq_in::cq_context>();
  std::uint32_t select = c.get<prm::modify_cq_in::modify_field_select_resize_field_select>();
  if (!(select & kLogSize) || (select & ~(kLogSize | kPageOffset | kPageSize)))
    return c.refuse(Status::BAD_PARAM, "resize field select {:#x}", select);
  if (c.get<prm::modify_cq_in::cq_umem_valid>()) return c.refuse(Status::BAD_PARAM, "resizing into a umem is not offered");
  if (cq.error) return c.refuse(Status::BAD_RES_STATE, "CQ {:#x} is in error", cq.cqn);
  QueueBuffer buf;
  unsigned log_size;
  Status s = buffer_of(c, cqc, c.tail(prm::modify_cq_in::kBytes), cq.cqe_size, buf, log_size);
  if (s != Status::OK) return s;
  // What the program has not read yet moves along, and the entry that marks the switch needs a place in the old buffer.
  refresh_consumer_index(c, cq);
  std::uint32_t unread = (cq.pi - cq.ci) & 0xffffff;
  if (unread >= 1u << log_size || unread >= 1u << cq.log_size)
    return c.refuse(Status::BAD_RES_STATE, "CQ {:#x}: {} entries are unread; {} are wanted", cq.cqn, unread, 1u << log_size);
  std::uint8_t cqe[prm::cqe64::kBytes]{};
  std::uint32_t slot = cq.pi & ((1u << cq.log_size) - 1);
  prm::set<prm::cqe64::opcode>(cqe, static_cast<std::uint8_t>(prm::CqeOpcode::RESIZE_CQ));
  prm::set<prm::cqe64::owner>(cqe, cq.pi >> cq.log_size & 1);
  pci::DmaAddr at = cq.buf.at(std::uint64_t{slot} * cq.cqe_size + (cq.cqe_size - prm::cqe64::kBytes));
  if (!c.hca.bus().dma_write_last_byte_last(at, cqe, sizeof cqe))
    return c.refuse(Status::INT_ERR, "CQ {:#x}: buffer at {:#x}: {}", cq.cqn, at, c.hca.bus().last_fault());
  ++cq.pi;
  cq.buf = std::move(buf);
  cq.log_size = log_size;
  prm::set<prm::cqc::log_cq_size>(cq.cqc.data(), log_size);
  prm::set<prm::cqc::log_page_size>(cq.cqc.data(), cq.buf.log_page - 12);
  prm::set<prm::cqc::page_offset>(cq.cqc.data(), prm::get<prm::cqc::page_offset>(cqc));
  return Status::OK;
}

}  // namespace

Status create_cq(Command& c) {
  const std::uint8_t* cqc = c.at<prm::create_cq_in::cq_context>();
  auto cq = std::make_unique<Cq>();
  unsigned size_code = prm::get<prm::cqc::cqe_sz>(cqc);
  if (size_code > kCqe128Padded) return c.refuse(Status::BAD_PARAM, "cqe_sz {}", size_code);
  cq->cqe_size = size_code == 0 ? 64 : 128;
  cq->uar = prm::get<prm::cqc::uar_page>(cqc);
  cq->eqn = prm::get<prm::cqc::c_eqn_or_apu_element>(cqc);
  cq->dbr = prm::get<prm::cqc::dbr_addr>(cqc);
  cq->overrun_ignore = prm::get<prm::cqc::oi>(cqc);
  cq->collapsed = prm::get<prm::cqc::cc>(cqc);
  cq->period = prm::get<prm::cqc::cq_period>(cqc);
  cq->max_count = prm::get<prm::cqc::cq_max_count>(cqc);
  if (Status s = take_period_mode(c, cqc, *cq); s != Status::OK) return s;
  if (prm::get<prm::cqc::cqe_comp_en>(cqc) && prm::get<prm::cqc::mini_cqe_res_format>(cqc) == kMiniReserved)
    return c.refuse(Status::BAD_PARAM, "mini CQE format {}", prm::get<prm::cqc::mini_cqe_res_format>(cqc));
  if (prm::get<prm::cqc::apu_cq>(cqc)) return c.refuse(Status::BAD_PARAM, "APU CQs are not offered");
  Eq* eq = c.objects().eq(cq->eqn);
  if (eq == nullptr) return c.no_such("EQ", cq->eqn);
  if (!c.st.uars.exists(cq->uar)) return c.no_such("UAR", cq->uar);
  if (Status s = c.may_use(Kind::kUar, cq->uar); s != Status::OK) return s;
  if (prm::get<prm::cqc::dbr_umem_valid>(cqc)) {
    if (Status s = take_umem_dbr(c, prm::get<prm::umem_ref::cqc_dbr_umem_id>(cqc), cq->dbr, cq->dbr); s != Status::OK) return s;
  }
  if (bad_dbr(cq->dbr)) return c.refuse(Status::BAD_PARAM, "doorbell record at {:#x}", cq->dbr);
  cq->dbr_window.open(c.hca.bus(), cq->dbr, prm::kDoorbellRecord);
  Status s = buffer_of(c, cqc, c.tail(prm::create_cq_in::kBytes), cq->cqe_size, cq->buf, cq->log_size);
  if (s != Status::OK) return s;
  // What stands in the record now is no arm (Linux starts it with a sequence number of its own, MLX5_CQ_INIT_CMD_SN).
  if (std::uint32_t word; c.hca.bus().dma_load32(cq->dbr + prm::kCqArmDb * 4, &word)) cq->arm_word = byteswap(word);
  auto n = c.st.cqns.take();
  if (!n) return c.exhausted("CQ");
  cq->cqn = *n;
  std::memcpy(cq->cqc.data(), cqc, cq->cqc.size());
  ++eq->users;
  c.st.uars.hold(cq->uar);
  c.objects().cqs.emplace(*n, std::move(cq));
  c.set<prm::create_cq_out::cqn>(*n);
  return Status::OK;
}

Status query_cq(Command& c) {
  std::uint32_t n = c.get<prm::query_cq_in::cqn>();
  Cq* cq = c.objects().cq(n);
  if (cq == nullptr) return c.no_such("CQ", n);
  void* cqc = c.out_at<prm::query_cq_out::cq_context>();
  std::memcpy(cqc, cq->cqc.data(), cq->cqc.size());
  if (cq->error) prm::set<prm::cqc::status>(cqc, kCqErrorState);
  prm::set<prm::cqc::st>(cqc, cq->arm == Cq::Arm::kNone ? 0xa : cq->arm == Cq::Arm::kAny ? 0x9 : 0x6);  // fired, armed, solicited armed
  prm::set<prm::cqc::consumer_counter>(cqc, cq->ci);
  prm::set<prm::cqc::producer_counter>(cqc, cq->pi);
  put_pages(c, prm::query_cq_out::kBytes, cq->buf);
  return Status::OK;
}

Status modify_cq(Command& c) {
  std::uint32_t n = c.get<prm::modify_cq_in::cqn>();
  Cq* cq = c.objects().cq(n);
  if (cq == nullptr) return c.no_such("CQ", n);
  switch (c.op_mod()) {
    case kModerate: return moderate(c, *cq);
    case kResize: return resize(c, *cq);
    default: return c.refuse(Status::BAD_PARAM, "op_mod {}", c.op_mod());
  }
}

Status destroy_cq(Command& c) {
  std::uint32_t n = c.get<prm::destroy_cq_in::cqn>();
  Cq* cq = c.objects().cq(n);
  if (cq == nullptr) return c.no_such("CQ", n);
  if (cq->users != 0) return c.in_use("CQ", n, cq->users);
  c.hca.data_path().cq_destroyed(*cq);
  if (Eq* eq = c.objects().eq(cq->eqn)) --eq->users;
  c.st.uars.drop(cq->uar);
  c.objects().cqs.erase(n);
  c.st.cqns.give_back(n);
  return Status::OK;
}

}  // namespace uhca::hca::cmd

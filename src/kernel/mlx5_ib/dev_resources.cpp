// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/dev_resources.h"

#include <cstring>

#include "base/log.h"
#include "kernel/mlx5_ib/srq_cmd.h"
#include "prm/cmd_object.h"
#include "prm/context.h"
#include "prm/cqe.h"
#include "prm/wqe.h"

namespace uhca::kernel::mlx5 {
namespace {

// The one page: where each thing lies, bytes. Queues begin on 64ths of the page.
constexpr std::size_t kPage = 4096, kCqes = 0, kSrqWqes0 = 1024, kSrqWqes1 = 1024 + 64, kDoorbells = 2048, kDoorbellStride = 64;
constexpr unsigned kLogEntries = 1, kLogStride = 5;  // two entries each; SRQ WQEs of 32 bytes

}  // namespace

DevResources::~DevResources() {
  undo();
}

Result<DevResources::View> DevResources::get() {
  std::lock_guard g(lock_);
  if (!made_) {
    if (Status s = make(); !s.ok()) {
      undo();
      return s.error();
    }
    made_ = true;
  }
  return view_;
}

Result<std::uint32_t> DevResources::make_cq() {
  std::vector<std::uint8_t> in(prm::create_cq_in::kBytes + 8);
  prm::set<prm::create_cq_in::pas>(in.data(), memory_->dma());
  void* cqc = prm::at<prm::create_cq_in::cq_context>(in.data());
  prm::set<prm::cqc::log_cq_size>(cqc, kLogEntries);
  prm::set<prm::cqc::uar_page>(cqc, m_.uar());
  prm::set<prm::cqc::c_eqn_or_apu_element>(cqc, UHCA_TRY(m_.comp_eqn(0)));
  prm::set<prm::cqc::dbr_addr>(cqc, memory_->dma() + kDoorbells);
  // Nothing is ever sent to it, and nobody polls it.
  cq_.comp = [](mlx5_core_cq&) {};
  cq_.event = [](mlx5_core_cq&, EventType) {};
  UHCA_CHECK(m_.create_cq(cq_, in));
  return cq_.cqn;
}

Status DevResources::make() {
  memory_ = UHCA_TRY(m_.domain().alloc_coherent(kPage));
  auto* bytes = static_cast<std::uint8_t*>(memory_->cpu());
  for (unsigned i = 0; i < 1u << kLogEntries; ++i) {
    bytes[kCqes + (i + 1) * prm::cqe64::kBytes - 1] = prm::kCqeOwnerInitial;
    for (std::size_t queue : {kSrqWqes0, kSrqWqes1})
      prm::set<prm::wqe_srq_next_seg::next_wqe_index>(bytes + queue + (i << kLogStride), (i + 1) % (1u << kLogEntries));
  }
  view_.p0 = UHCA_TRY(m_.alloc_pd());
  steps_ = 1;
  view_.c0 = UHCA_TRY(make_cq());
  steps_ = 2;
  view_.xrcdn0 = UHCA_TRY(m_.alloc_xrcd());
  steps_ = 3;
  view_.xrcdn1 = UHCA_TRY(m_.alloc_xrcd());
  steps_ = 4;
  SrqSpec spec;
  spec.kind = SrqKind::kXrc;
  spec.pdn = view_.p0;
  spec.log_size = kLogEntries;
  spec.log_stride = kLogStride;
  spec.doorbell = memory_->dma() + kDoorbells + kDoorbellStride;
  spec.pages.pas = {memory_->dma()};
  spec.pages.page_offset = kSrqWqes0 / (kPage / 64);
  spec.xrcdn = view_.xrcdn0;
  spec.cqn = view_.c0;
  view_.s0 = UHCA_TRY(cmd_create_srq(m_, spec));
  steps_ = 5;
  spec.kind = SrqKind::kRmp;
  spec.doorbell += kDoorbellStride;
  spec.pages.page_offset = kSrqWqes1 / (kPage / 64);
  view_.s1 = UHCA_TRY(cmd_create_srq(m_, spec));
  steps_ = 6;
  return success();
}

void DevResources::undo() {
  auto gone = [](const char* what, const Status& s) {
    if (!s.ok()) log::error("the driver's own {} could not be freed ({})", what, s.code());
  };
  switch (steps_) {
    case 6: gone("RMP", cmd_destroy_srq(m_, SrqKind::kRmp, view_.s1)); [[fallthrough]];
    case 5: gone("XRC SRQ", cmd_destroy_srq(m_, SrqKind::kXrc, view_.s0)); [[fallthrough]];
    case 4: gone("XRC domain", m_.dealloc_xrcd(view_.xrcdn1)); [[fallthrough]];
    case 3: gone("XRC domain", m_.dealloc_xrcd(view_.xrcdn0)); [[fallthrough]];
    case 2: gone("CQ", m_.destroy_cq(cq_)); [[fallthrough]];
    case 1: gone("PD", m_.dealloc_pd(view_.p0)); break;
    default: break;
  }
  steps_ = 0;
  made_ = false;
  memory_.reset();
}

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
// Bring-up and removal, in the order of Linux core/main.c (mlx5_function_setup, mlx5_load) and of the recorded driver.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_core/mlx5_core.h"
#include "prm/cmd_object.h"
#include "prm/event.h"
#include "prm/reg.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint64_t kRegFwRev = 0x0, kRegCmdifSub = 0x4, kRegInitializing = 0x1fc;
constexpr auto kInitTimeout = std::chrono::seconds(120);  // Linux: FW_INIT_TIMEOUT_MILI
constexpr std::uint16_t kRegHostEndianness = 0x7004;
// Events of the asynchronous queue: what the recorded driver subscribes to; with the DC transport, those of DCTs too.
constexpr std::uint64_t kAsyncMask = 0x1f02be;
constexpr unsigned kAsyncVector = 0;
constexpr unsigned kLogCmdEq = 8, kLogAsyncEq = 13, kLogPagesEq = 8, kLogCompEq = 11;

template <class In>
void opcode(void* in, prm::Opcode op) {
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(op));
}

unsigned online_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (syscall(SYS_sched_getaffinity, 0, sizeof set, &set) <= 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

mlx5_core_dev::mlx5_core_dev(pci::Endpoint& endpoint)
    : endpoint_(endpoint), domain_(std::make_unique<mm::IommuDomain>()), cmd_(endpoint, *domain_), pages_(cmd_, *domain_) {}

Result<std::unique_ptr<mlx5_core_dev>> mlx5_core_dev::probe(pci::Endpoint& endpoint) {
  return probe(endpoint, nullptr);
}

Result<std::unique_ptr<mlx5_core_dev>> mlx5_core_dev::probe(pci::Endpoint& endpoint, const CommandFault* fault) {
  std::unique_ptr<mlx5_core_dev> dev(new mlx5_core_dev(endpoint));
  if (fault != nullptr) dev->cmd_.inject(*fault);
  UHCA_CHECK(dev->bring_up());  // the destructor undoes what was done
  return dev;
}

mlx5_core_dev::~mlx5_core_dev() {
  tear_down();
}

Status mlx5_core_dev::bring_up() {
  endpoint_.attach_iommu(domain_.get());
  std::uint32_t rev = byteswap(endpoint_.read32(kRegFwRev));
  fw_major_ = static_cast<std::uint16_t>(rev & 0xffff);
  fw_minor_ = static_cast<std::uint16_t>(rev >> 16);
  fw_subminor_ = static_cast<std::uint16_t>(byteswap(endpoint_.read32(kRegCmdifSub)) & 0xffff);

  using Step = Status (mlx5_core_dev::*)();
  using Undo = void (mlx5_core_dev::*)();
  static constexpr std::pair<Step, Undo> kSteps[] = {
      {&mlx5_core_dev::wait_fw_init, nullptr},
      {&mlx5_core_dev::start_commands, nullptr},
      {&mlx5_core_dev::enable_hca, &mlx5_core_dev::disable_hca},
      {&mlx5_core_dev::set_issi, nullptr},
      {&mlx5_core_dev::boot_pages, &mlx5_core_dev::reclaim_pages},
      {&mlx5_core_dev::set_host_endianness, nullptr},
      {&mlx5_core_dev::negotiate_caps, nullptr},
      {&mlx5_core_dev::init_pages, nullptr},
      {&mlx5_core_dev::init_hca, &mlx5_core_dev::teardown_hca},
      {&mlx5_core_dev::query_caps, nullptr},
      {&mlx5_core_dev::query_adapter, nullptr},
      {&mlx5_core_dev::start_uar, &mlx5_core_dev::stop_uar},
      {&mlx5_core_dev::start_async_eqs, &mlx5_core_dev::stop_async_eqs},
      {&mlx5_core_dev::start_comp_eqs, &mlx5_core_dev::stop_comp_eqs},
  };
  for (auto [step, undo] : kSteps) {
    Status s = (this->*step)();
    // Steps that give things away one by one are undone even when they failed half way; their undo looks at what is there.
    if (undo != nullptr && (s.ok() || undo == &mlx5_core_dev::reclaim_pages || undo == &mlx5_core_dev::stop_async_eqs ||
                            undo == &mlx5_core_dev::stop_comp_eqs))
      undo_.push_back(undo);
    UHCA_CHECK(std::move(s));
  }
  return success();
}

void mlx5_core_dev::tear_down() {
  while (!undo_.empty()) {
    auto undo = undo_.back();
    undo_.pop_back();
    (this->*undo)();
  }
  cmd_.set_before(nullptr, nullptr);
  endpoint_.attach_iommu(nullptr);
}

Status mlx5_core_dev::wait_fw_init() {
  auto deadline = std::chrono::steady_clock::now() + kInitTimeout;
  while (byteswap(endpoint_.read32(kRegInitializing)) >> 31) {
    if (std::chrono::steady_clock::now() > deadline) return refuse(EBUSY, "the firmware is still initializing");
    sched_yield();
  }
  return success();
}

Status mlx5_core_dev::start_commands() {
  return cmd_.start();
}

Status mlx5_core_dev::enable_hca() {
  std::uint8_t in[prm::enable_hca_in::kBytes] = {}, out[16] = {};
  opcode<prm::enable_hca_in>(in, prm::Opcode::ENABLE_HCA);
  return cmd_.exec(in, sizeof in, out, prm::enable_hca_out::kBytes);
}

void mlx5_core_dev::disable_hca() {
  std::uint8_t in[prm::disable_hca_in::kBytes] = {}, out[16] = {};
  opcode<prm::disable_hca_in>(in, prm::Opcode::DISABLE_HCA);
  if (Status s = cmd_.exec(in, sizeof in, out, prm::disable_hca_out::kBytes); !s) log::error("DISABLE_HCA failed");
}

Status mlx5_core_dev::set_issi() {
  std::uint8_t in[prm::query_issi_in::kBytes] = {}, out[prm::query_issi_out::kBytes] = {};
  opcode<prm::query_issi_in>(in, prm::Opcode::QUERY_ISSI);
  Status s = cmd_.exec_raw(in, sizeof in, out, sizeof out);
  UHCA_CHECK(std::move(s));
  std::uint8_t status = static_cast<std::uint8_t>(prm::get<prm::cmd_out::status>(out));
  // A firmware that does not know the command has ISSI 0 only.
  if (status == static_cast<std::uint8_t>(prm::CmdStatus::BAD_OP)) return success();
  if (status != 0) return refuse(cmd_status_to_err(status), "QUERY_ISSI: firmware status {:#x}", status);
  std::uint32_t supported = prm::get<prm::query_issi_out::supported_issi_dw0>(out);
  if (supported & 2) {
    std::uint8_t sin[prm::set_issi_in::kBytes] = {}, sout[prm::set_issi_out::kBytes] = {};
    opcode<prm::set_issi_in>(sin, prm::Opcode::SET_ISSI);
    prm::set<prm::set_issi_in::current_issi>(sin, 1);
    return cmd_.exec(sin, sizeof sin, sout, sizeof sout);
  }
  if (supported & 1 || supported == 0) return success();
  return refuse(EOPNOTSUPP, "the firmware supports interface versions {:#x}, none of which is 0 or 1", supported);
}

Status mlx5_core_dev::boot_pages() {
  return pages_.satisfy_startup(true);
}
Status mlx5_core_dev::init_pages() {
  return pages_.satisfy_startup(false);
}

void mlx5_core_dev::reclaim_pages() {
  if (Status s = pages_.reclaim_all(); !s) log::error("{} firmware pages did not come back", pages_.outstanding());
}

Status mlx5_core_dev::set_host_endianness() {
  std::uint8_t reg[prm::register_host_endianness::kBytes] = {};
  prm::set<prm::register_host_endianness::he>(reg, 0);  // little
  return access_reg(kRegHostEndianness, true, reg, sizeof reg);
}

Status mlx5_core_dev::init_hca() {
  std::uint8_t in[prm::init_hca_in::kBytes] = {}, out[prm::init_hca_out::kBytes] = {};
  opcode<prm::init_hca_in>(in, prm::Opcode::INIT_HCA);
  return cmd_.exec(in, sizeof in, out, sizeof out);
}

void mlx5_core_dev::teardown_hca() {
  std::uint8_t in[prm::teardown_hca_in::kBytes] = {}, out[prm::teardown_hca_out::kBytes] = {};
  opcode<prm::teardown_hca_in>(in, prm::Opcode::TEARDOWN_HCA);
  if (Status s = cmd_.exec(in, sizeof in, out, sizeof out); !s) log::error("TEARDOWN_HCA failed");
}

Status mlx5_core_dev::query_adapter() {
  std::uint8_t in[prm::query_adapter_in::kBytes] = {}, out[prm::query_adapter_out::kBytes] = {};
  opcode<prm::query_adapter_in>(in, prm::Opcode::QUERY_ADAPTER);
  UHCA_CHECK(cmd_.exec(in, sizeof in, out, sizeof out));
  const void* block = prm::at<prm::query_adapter_out::query_adapter_struct>(static_cast<const void*>(out));
  ieee_vendor_id_ = prm::get<prm::query_adapter_param_block::ieee_vendor_id>(block);
  const auto* psid = static_cast<const char*>(prm::at<prm::query_adapter_param_block::vsd_contd_psid>(block));
  board_id_.assign(psid, std::find(psid, psid + 16, '\0'));
  return success();
}

Status mlx5_core_dev::start_uar() {
  uar_ = UHCA_TRY(alloc_uar());
  return success();
}

void mlx5_core_dev::stop_uar() {
  if (Status s = dealloc_uar(uar_); !s) log::error("UAR {:#x} could not be freed", uar_);
}

// ---------------------------------------------------------------- events

Status mlx5_core_dev::start_async_eq(std::size_t place, std::unique_ptr<EventQueue>& eq, unsigned log_entries, std::uint64_t mask,
                                     EventQueue::Handler handler) {
  eq = UHCA_TRY(EventQueue::create(cmd_, *domain_, endpoint_, log_entries, kAsyncVector, uar_, mask, handler, this));
  async_queues_[place].store(eq.get(), std::memory_order_release);
  eq->arm();
  return success();
}

Status mlx5_core_dev::start_async_eqs() {
  auto bit = [](EventType t) { return std::uint64_t{1} << static_cast<unsigned>(t); };
  endpoint_.request_irq(kAsyncVector, &mlx5_core_dev::async_irq, this);
  UHCA_CHECK(start_async_eq(0, cmd_eq_, kLogCmdEq, bit(EventType::CMD), &mlx5_core_dev::cmd_eqe));
  cmd_.use_events(true);
  std::uint64_t mask = kAsyncMask;
  if (cap_gen<prm::cmd_hca_cap::dct>()) mask |= bit(EventType::DCT_DRAINED) | bit(EventType::DCT_KEY_VIOLATION);
  UHCA_CHECK(start_async_eq(1, async_eq_, kLogAsyncEq, mask, &mlx5_core_dev::async_eqe));
  UHCA_CHECK(start_async_eq(2, pages_eq_, kLogPagesEq, bit(EventType::PAGE_REQUEST), &mlx5_core_dev::pages_eqe));
  cmd_.set_before(
      +[](void* p) { static_cast<FirmwarePages*>(p)->serve(); }, &pages_);
  return success();
}

void mlx5_core_dev::stop_async_eqs() {
  cmd_.set_before(nullptr, nullptr);
  // Commands that destroy EQs still complete by event until the command EQ itself goes. Nothing may poll a queue that is gone: the
  // vector is freed first, and completions are polled from then on.
  cmd_.use_events(false);
  endpoint_.free_irq(kAsyncVector);
  for (auto& q : async_queues_) q.store(nullptr, std::memory_order_release);
  for (auto* eq : {&pages_eq_, &async_eq_, &cmd_eq_}) {
    if (*eq == nullptr) continue;
    if (Status s = (*eq)->destroy(); !s) log::error("EQ {} could not be destroyed", (*eq)->eqn());
    eq->reset();
  }
}

Status mlx5_core_dev::start_comp_eqs() {
  unsigned vectors = endpoint_.num_vectors();
  if (vectors < 2) return refuse(ENODEV, "{} interrupt vectors; at least 2 are needed", vectors);
  unsigned n = std::min({vectors - 1, online_cpus(), (1u << cap_gen<prm::cmd_hca_cap::log_max_eq>()) - 3});
  comp_eqs_.reserve(n);
  for (unsigned i = 0; i < n; ++i) {
    auto eq = UHCA_TRY(EventQueue::create(cmd_, *domain_, endpoint_, kLogCompEq, i + 1, uar_, 0, &mlx5_core_dev::comp_eqe, this));
    comp_eqs_.push_back(std::move(eq));
    endpoint_.request_irq(i + 1, &mlx5_core_dev::comp_irq, comp_eqs_.back().get());
    comp_eqs_.back()->arm();
  }
  return success();
}

void mlx5_core_dev::stop_comp_eqs() {
  while (!comp_eqs_.empty()) {
    auto& eq = comp_eqs_.back();
    endpoint_.free_irq(static_cast<unsigned>(comp_eqs_.size()));
    if (Status s = eq->destroy(); !s) log::error("EQ {} could not be destroyed", eq->eqn());
    comp_eqs_.pop_back();
  }
}

Result<std::uint32_t> mlx5_core_dev::comp_eqn(unsigned vector) const {
  if (vector >= comp_eqs_.size()) return refuse(EINVAL, "completion vector {} of {}", vector, comp_eqs_.size());
  return comp_eqs_[vector]->eqn();
}

void mlx5_core_dev::async_irq(void* self) {
  auto& dev = *static_cast<mlx5_core_dev*>(self);
  for (auto& q : dev.async_queues_) {
    if (EventQueue* eq = q.load(std::memory_order_acquire)) eq->poll();
  }
}

void mlx5_core_dev::comp_irq(void* eq) {
  static_cast<EventQueue*>(eq)->poll();
}

namespace {
const void* event_data(const std::uint8_t* eqe) {
  return prm::at<prm::eqe::event_data>(static_cast<const void*>(eqe));
}
}  // namespace

void mlx5_core_dev::cmd_eqe(void* self, const std::uint8_t* eqe) {
  auto& dev = *static_cast<mlx5_core_dev*>(self);
  dev.cmd_.completion(prm::get<prm::cmd_inter_comp_event::command_completion_vector>(event_data(eqe)));
}

void mlx5_core_dev::pages_eqe(void* self, const std::uint8_t* eqe) {
  auto& dev = *static_cast<mlx5_core_dev*>(self);
  dev.pages_.request(static_cast<std::int32_t>(prm::get<prm::pages_req_event::num_pages>(event_data(eqe))));
}

void mlx5_core_dev::comp_eqe(void* self, const std::uint8_t* eqe) {
  auto& dev = *static_cast<mlx5_core_dev*>(self);
  std::uint32_t cqn = prm::get<prm::comp_event::cq_number>(event_data(eqe));
  if (!dev.cqs_.with(cqn, [eqe](mlx5_core_cq& cq) { cq.comp_eqe != nullptr ? cq.comp_eqe(cq, eqe) : cq.comp(cq); }))
    log::debug("completion event for CQ {:#x}, which is gone", cqn);
}

void mlx5_core_dev::async_eqe(void* self, const std::uint8_t* eqe) {
  auto& dev = *static_cast<mlx5_core_dev*>(self);
  auto type = static_cast<EventType>(prm::get<prm::eqe::event_type>(eqe));
  const void* data = event_data(eqe);
  if (auto tap = dev.event_tap_.load(std::memory_order_acquire)) tap(dev.tap_context_.load(std::memory_order_acquire), eqe);
  switch (type) {
    case EventType::PATH_MIG:
    case EventType::COMM_EST:
    case EventType::SQ_DRAINED:
    case EventType::WQ_CATAS_ERROR:
    case EventType::PATH_MIG_FAILED:
    case EventType::WQ_INVAL_REQ_ERROR:
    case EventType::WQ_ACCESS_ERROR:
    case EventType::SRQ_LAST_WQE: {
      std::uint32_t qpn = prm::get<prm::qp_events::qpn_rqn_sqn>(data);
      if (!dev.qps_.with(qpn, [type](mlx5_core_qp& qp) { qp.event(qp, type); }))
        log::debug("event {:#x} for QP {:#x}, which is gone", static_cast<unsigned>(type), qpn);
      break;
    }
    case EventType::SRQ_CATAS_ERROR:
    case EventType::SRQ_RQ_LIMIT: {
      std::uint32_t srqn = prm::get<prm::qp_events::qpn_rqn_sqn>(data);
      if (!dev.srqs_.with(srqn, [type](mlx5_core_srq& srq) { srq.event(srq, type); }))
        log::debug("event {:#x} for SRQ {:#x}, which is gone", static_cast<unsigned>(type), srqn);
      break;
    }
    case EventType::CQ_ERROR: {
      std::uint32_t cqn = prm::get<prm::cq_error::cqn>(data);
      log::warn("CQ {:#x}: error, syndrome {:#x}", cqn, prm::get<prm::cq_error::syndrome>(data));
      dev.cqs_.with(cqn, [type](mlx5_core_cq& cq) { cq.event(cq, type); });
      break;
    }
    case EventType::PORT_CHANGE:
      if (auto listener = dev.port_listener_.load(std::memory_order_acquire))
        listener(dev.port_context_.load(std::memory_order_acquire), static_cast<std::uint8_t>(prm::get<prm::eqe::event_sub_type>(eqe)));
      break;
    case EventType::DCT_DRAINED:
    case EventType::DCT_KEY_VIOLATION: break;  // nobody in the driver waits for them; the tap has had the event
    default: log::warn("event {:#x} has no receiver", static_cast<unsigned>(type)); break;
  }
}

void mlx5_core_dev::set_port_listener(void (*listener)(void*, std::uint8_t), void* context) {
  port_context_.store(context, std::memory_order_release);
  port_listener_.store(listener, std::memory_order_release);
}

void mlx5_core_dev::set_event_tap(void (*tap)(void*, const std::uint8_t*), void* context) {
  tap_context_.store(context, std::memory_order_release);
  event_tap_.store(tap, std::memory_order_release);
}

Status mlx5_core_dev::create_cq(mlx5_core_cq& cq, std::vector<std::uint8_t>& in) {
  std::uint8_t out[prm::create_cq_out::kBytes] = {};
  opcode<prm::create_cq_in>(in.data(), prm::Opcode::CREATE_CQ);
  UHCA_CHECK(cmd_.exec(in.data(), in.size(), out, sizeof out));
  cq.cqn = prm::get<prm::create_cq_out::cqn>(out);
  if (cqs_.insert(cq.cqn, &cq)) return success();
  if (Status s = dealloc_number(prm::Opcode::DESTROY_CQ, cq.cqn); !s) log::error("CQ {:#x} could not be destroyed", cq.cqn);
  return refuse(ENOMEM, "CQ {:#x}: no place in the table", cq.cqn);
}

Status mlx5_core_dev::destroy_cq(mlx5_core_cq& cq) {
  // Out of the table first: the number may be given to somebody else as soon as the command is done.
  cqs_.remove(cq.cqn, &cq);
  Status s = dealloc_number(prm::Opcode::DESTROY_CQ, cq.cqn);
  if (!s) cqs_.insert(cq.cqn, &cq);
  return s;
}

}  // namespace uhca::kernel::mlx5

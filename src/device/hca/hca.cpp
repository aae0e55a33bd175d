// SPDX-License-Identifier: MIT
#include "device/hca/hca.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "device/hca/cmd_if.h"
#include "device/hca/data_path.h"
#include "device/hca/memic.h"
#include "prm/other_caps.h"

namespace uhca::hca {
namespace {

constexpr std::uint64_t kUarStart = std::uint64_t{Hca::kFirstUar} * 4096;
// Firmware 22.35.1000, command interface revision 5.
constexpr std::uint32_t kFwMajor = 22, kFwMinor = 35, kFwSubminor = 1000, kCmdifRev = 5;
// The init segment (prm: initial_seg), byte offsets.
enum Reg : std::uint64_t {
  kFwRev = 0x0,
  kCmdifFwSub = 0x4,
  kCmdqHigh = 0x10,
  kCmdqLow = 0x14,
  kDoorbell = 0x18,
  kTimerHigh = 0x1000,
  kTimerLow = 0x1004,
  kHealthCounter = 0x1010,
};
constexpr Nanos kHealthPeriod = 10'000'000;  // drivers look every second or two

}  // namespace

Hca::Hca(const HcaConfig& config, pci::Bus& bus, wire::Port& port, const Clock& clock, QpnLease& lease)
    : config_(config), bus_(bus), port_(port), clock_(clock), lease_(lease) {
  if (config_.offer_memic) memic_ = std::make_unique<Memic>(config_.memic);
  objects_.memic = memic_.get();
  data_path_ = std::make_unique<DataPath>(*this);
  commands_ = std::make_unique<CommandInterface>(*this);
}

Hca::~Hca() {
  std::lock_guard<LaneLock> g(lane_);
  commands_->forget_objects();
}

std::uint32_t Hca::read_register(std::uint64_t offset) {
  switch (offset) {
    case kFwRev: return kFwMinor << 16 | kFwMajor;
    case kCmdifFwSub: return kCmdifRev << 16 | kFwSubminor;
    case kCmdqHigh: return commands_->queue_high();
    case kCmdqLow: return commands_->queue_low();
    case kTimerHigh: return static_cast<std::uint32_t>(clock_.now() >> 32);
    case kTimerLow: return static_cast<std::uint32_t>(clock_.now());
    case kHealthCounter: return static_cast<std::uint32_t>(clock_.now() / kHealthPeriod) & 0xffffff;
    default: return 0;  // initializing: done; health buffer: no error; UARs are write-only
  }
}

// An entry other than drive(): whatever it leaves to be done must be seen by those who look before they drive (pci/idle_watch.h).
class Hca::Entry {
 public:
  explicit Entry(Hca& h) : h_(h) { h_.lane_.lock(); }
  ~Entry() {
    h_.data_path_->note_work();
    h_.lane_.unlock();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  Hca& h_;
};

bool Hca::is_access(std::uint64_t offset, unsigned size) {
  return (size == 1 || size == 2 || size == 4 || size == 8) && offset % size == 0 && offset <= kBar0Size - size;
}
bool Hca::is_uar(std::uint64_t offset) {
  return offset >= kUarStart && offset < kMemicStart;
}

std::uint64_t Hca::mmio_read(std::uint64_t offset, unsigned size) {
  if (!is_access(offset, size)) return ~std::uint64_t{0};
  std::lock_guard<LaneLock> g(lane_);
  if (memic_ && Memic::in_windows(offset)) return memic_->load(offset, size);
  std::uint8_t bytes[8];
  std::uint64_t base = offset & ~std::uint64_t{3};
  for (unsigned i = 0; i < 8; i += 4) store_be<std::uint32_t>(bytes + i, base + i < kBar0Size ? read_register(base + i) : 0);
  std::uint64_t v = 0;
  std::memcpy(&v, bytes + (offset - base), size);
  return v;
}

void Hca::write_register(std::uint64_t offset, std::uint32_t value) {
  switch (offset) {
    case kCmdqHigh: commands_->set_queue_high(value); break;
    case kCmdqLow:
      commands_->set_queue_low(value);
      if (commands_->take_reset_request()) {
        reset_locked();
        commands_->set_queue_low(1u << 8);  // the state that the driver waits for: disabled
      }
      break;
    case kDoorbell:
      data_path_->flush();  // a QP that goes has answered first
      commands_->ring(value);
      break;
    default: break;  // read-only or without effect (clear_int, health_syndrome)
  }
}

void Hca::mmio_write(std::uint64_t offset, std::uint64_t value, unsigned size) {
  if (memic_ && Memic::in_windows(offset)) {
    if (!is_access(offset, size)) return;
    std::lock_guard<LaneLock> g(lane_);
    memic_->store(offset, value, size);
    return;
  }
  if (offset >= kUarStart) {
    if (size >= 4) uar_store(offset, value);
    return;
  }
  if ((size != 4 && size != 8) || offset % size != 0) return;
  Entry e(*this);
  for (unsigned i = 0; i < size; i += 4) write_register(offset + i, byteswap(static_cast<std::uint32_t>(value >> (8 * i))));
}

void Hca::mmio_write_line(std::uint64_t offset, const std::array<std::uint64_t, 8>& words) {
  if (!is_uar(offset)) {
    Function::mmio_write_line(offset, words);
    return;
  }
  Entry e(*this);
  data_path_->blue_flame_write(offset % 4096, static_cast<std::uint32_t>(offset / 4096), words);
}

void Hca::reset_locked() {
  commands_->forget_objects();
  commands_->reset();
}

void Hca::reset() {
  Entry e(*this);
  reset_locked();
}

void Hca::uar_store(std::uint64_t offset, std::uint64_t value) {
  if (!is_uar(offset)) return;
  Entry e(*this);
  data_path_->uar_store(offset % 4096, static_cast<std::uint32_t>(offset / 4096), value);
}

void Hca::look_at_send_queue(std::uint32_t qpn) {
  Entry e(*this);
  if (Qp* qp = objects_.qp(qpn)) data_path_->look_at_send_queue(*qp);
  if (RawQueue* q = objects_.raw_queue(qpn)) data_path_->look_at_raw_queue(*q);
}

void Hca::look_at_cq(std::uint32_t cqn) {
  Entry e(*this);
  if (Cq* cq = objects_.cq(cqn)) data_path_->look_at_cq(*cq);
}

void Hca::look_at_uar(std::uint32_t uar_index) {
  Entry e(*this);
  for (auto& [n, cq] : objects_.cqs)
    if (cq->uar == uar_index) data_path_->look_at_cq(*cq);
  for (auto& [n, qp] : objects_.qps)
    if (qp->uar == uar_index && qp->has_sq) data_path_->look_at_send_queue(*qp);
  for (auto& [n, q] : objects_.raw_queues)
    if (q->send && q->uar == uar_index) data_path_->look_at_raw_queue(*q);
}

bool Hca::drive(bool thorough) {
  std::lock_guard<LaneLock> g(lane_);
  return data_path_->drive(thorough);
}

void Hca::set_idle_watch(pci::IdleWatch* watch) {
  std::lock_guard<LaneLock> g(lane_);
  data_path_->set_idle_watch(watch);
}

Nanos Hca::next_deadline() {
  std::lock_guard<LaneLock> g(lane_);
  return data_path_->next_deadline();
}

unsigned Hca::armed_cqs() {
  std::lock_guard<LaneLock> g(lane_);
  return data_path_->armed_cqs();
}

void Hca::fail_command(const CommandFault& fault) {
  std::lock_guard<LaneLock> g(lane_);
  commands_->fail(fault);
}

std::size_t Hca::live_objects() {
  std::lock_guard<LaneLock> g(lane_);
  return commands_->control().live() + objects_.mkeys.size() + objects_.eqs.size() + objects_.cqs.size() + objects_.qps.size() +
         objects_.srqs.size() + objects_.raw_queues.size() + objects_.tises.size() + objects_.tirs.size() + objects_.rqts.size() +
         objects_.steering.size() + objects_.dcts.size() + objects_.counter_sets.size() + objects_.multicast.size() +
         (memic_ ? memic_->live() : 0);
}

void Hca::clear_objects() {
  objects_.gsi = nullptr;
  objects_.dcts.clear();
  objects_.qps.clear();
  if (objects_.steering.port_knows) port_.want_ethernet(false);
  objects_.steering.clear();
  objects_.tirs.clear();
  objects_.rqts.clear();
  objects_.tises.clear();
  objects_.raw_queues.clear();
  objects_.srqs.clear();
  objects_.cqs.clear();
  objects_.eqs.clear();
  objects_.mkeys.clear();
  if (memic_) memic_->reset();
  objects_.counter_sets.clear();
  for (auto& [gid, qpns] : objects_.multicast) port_.want_group(gid, false);
  objects_.multicast.clear();
  std::fill(objects_.roce_addresses.begin(), objects_.roce_addresses.end(), RoceAddress{});
}

std::size_t Hca::held_pages() {
  std::lock_guard<LaneLock> g(lane_);
  return commands_->control().pages.size();
}

bool Hca::atomics_in_host_order() const {
  const Caps::Group* atomic = std::as_const(commands_->control()).caps.current(static_cast<unsigned>(CapType::kAtomic));
  return prm::get<prm::atomic_caps::atomic_req_8B_endianness_mode>(atomic->data()) != 0;
}

}  // namespace uhca::hca

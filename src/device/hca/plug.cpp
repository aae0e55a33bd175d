// SPDX-License-Identifier: MIT
// Plugs the HCA into the slot of this process: netdev, uplink, function number, device.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "device/hca/hca.h"
#include "device/hca/plug_parts.h"
#include "device/hca/published.h"
#include "device/pci/inproc_endpoint.h"
#include "prm/opcode.h"
#include "wire/net/impair.h"
#include "wire/net/uplink.h"

namespace uhca::pci {
namespace {

// Our area, shown to the functions of this host and user.
class AreaShowcase final : public wire::Showcase {
 public:
  explicit AreaShowcase(SharedArea& area) : area_(area) {}
  int fd() const override { return area_.fd(); }
  std::size_t bytes() const override { return SharedArea::bytes(); }
  unsigned admit(pid_t pid) override {
    unsigned hold = area_.take_hold(pid);
    return hold == SharedArea::kHolds ? kNone : hold;
  }
  void dismiss(unsigned number) override { area_.release_hold(number); }

 private:
  SharedArea& area_;
};

// Answers tools through the port, which exists before the device and is gone after it: on the service thread, or on one that polls (which
// is "busy" then, as it holds the lane).
class Spokesman final : public wire::Inspector {
 public:
  void speak_for(hca::Hca* hca) { hca_ = hca; }
  std::string report() override { return hca_ != nullptr ? hca_->report() : std::string(); }

 private:
  hca::Hca* hca_ = nullptr;
};

// The engine together with what it refers to.
class HcaInSlot final : public Engine {
 public:
  // `rules`: nullptr: the frames leave as they are. `spokesman` outlives it.
  HcaInSlot(const hca::HcaConfig& config, Bus& bus, wire::Uplink& uplink, const wire::ImpairRules* rules, Spokesman& spokesman)
      : lease_(uplink),
        impair_(rules != nullptr ? std::make_unique<wire::Impair>(uplink, *rules) : nullptr),
        hca_(config, bus, impair_ != nullptr ? static_cast<wire::Port&>(*impair_) : uplink, SystemClock::instance(), lease_),
        spokesman_(spokesman) {
    spokesman_.speak_for(&hca_);
  }
  ~HcaInSlot() override { spokesman_.speak_for(nullptr); }

  std::size_t bar0_size() const override { return hca_.bar0_size(); }
  std::uint64_t mmio_read(std::uint64_t o, unsigned s) override { return hca_.mmio_read(o, s); }
  void mmio_write(std::uint64_t o, std::uint64_t v, unsigned s) override { hca_.mmio_write(o, v, s); }
  void reset() override { hca_.reset(); }
  void uar_store(std::uint64_t o, std::uint64_t v) override { hca_.uar_store(o, v); }
  void look_at_send_queue(std::uint32_t n) override { hca_.look_at_send_queue(n); }
  void look_at_cq(std::uint32_t n) override { hca_.look_at_cq(n); }
  void look_at_uar(std::uint32_t n) override { hca_.look_at_uar(n); }
  bool drive(bool thorough) override { return hca_.drive(thorough); }
  void set_idle_watch(IdleWatch* w) override { hca_.set_idle_watch(w); }
  Nanos next_deadline() override {
    const Nanos t = hca_.next_deadline();
    return impair_ != nullptr ? std::min(t, impair_->next()) : t;
  }
  unsigned armed_cqs() override { return hca_.armed_cqs(); }
  Status plan_fault(const std::string& name, unsigned nth, const std::string& status) override {
    hca::CommandFault fault;
    fault.nth = nth;
    if (!name.empty() && !prm::opcode_of(name.c_str(), &fault.opcode)) return refuse(EINVAL, "fault rule: no command {}", name);
    if (!status.empty() && !prm::cmd_status_of(status.c_str(), &fault.status)) return refuse(EINVAL, "fault rule: no status {}", status);
    hca_.fail_command(fault);
    return success();
  }
  std::size_t live_objects() override { return hca_.live_objects(); }

 private:
  hca::UplinkLease lease_;
  std::unique_ptr<wire::Impair> impair_;
  hca::Hca hca_;
  Spokesman& spokesman_;
};

}  // namespace

std::unique_ptr<InprocEndpoint> plug_in_hca(const SlotConfig& config) {
  auto netdev = wire::choose_netdev(config.netdev);
  if (!netdev) {
    log::error("netdev '{}': {}", config.netdev, strerrordesc_np(netdev.code()));
    errno = netdev.code() == ENODEV ? EADDRNOTAVAIL : netdev.code();
    return nullptr;
  }
  auto rules = wire::parse_impair_rules(config.impair);
  if (!rules) {
    log::error("'{}' is not understood as rules of impairment", config.impair);
    errno = rules.code();
    return nullptr;
  }
  const bool direct_access = config.direct_access && config.impair.empty();
  auto bus = std::make_unique<InprocBus>();
  if (direct_access) bus->area = SharedArea::create();
  static_assert(sizeof(hca::PublishedTables) <= SharedArea::kDeviceBytes);
  wire::Uplink::Options options;
  if (bus->area) {
    bus->showcase = std::make_unique<AreaShowcase>(*bus->area);
    options.host_switch.showcase = bus->showcase.get();
  } else if (direct_access) {
    log::info("no area for direct access between processes: {}", strerrordesc_np(errno));
  }
  auto spokesman = std::make_unique<Spokesman>();
  Spokesman& speaks = *spokesman;
  options.host_switch.inspector = spokesman.get();
  bus->inspector = std::move(spokesman);
  auto uplink = wire::Uplink::create(*netdev, options);
  if (!uplink) {
    log::error("uplink on '{}': {}", netdev->name, strerrordesc_np(uplink.code()));
    errno = uplink.code();
    return nullptr;
  }
  hca::HcaConfig hc;
  hc.mac = netdev->mac;
  hc.netdev_mtu = netdev->mtu;
  hc.node_guid = hca::eui64(netdev->mac);

  SlotIdentity identity;
  identity.netdev = netdev->name;
  identity.function_id = (*uplink)->function_id();
  identity.vendor_id = hc.vendor_id;
  identity.device_id = hc.device_id;
  identity.num_vectors = hc.num_vectors;

  hc.published = bus->area ? bus->area->device_part() : nullptr;
  hc.shares_mac = true;
  hc.one_sided = direct_access;
  hc.congestion_control = config.congestion_control;
  hc.on_demand = true;  // the memory is this process's: whoever touches it makes the kernel bring it in
  hc.memic = bus->map_bar(hca::Hca::kBar0Size, hca::Hca::kMemicStart, hca::Hca::kMemicBytes);
  if (hc.memic == nullptr) {
    const int err = errno;
    log::error("memory of the BAR: {}", strerrordesc_np(err));
    uplink->reset();
    bus.reset();
    errno = err;
    return nullptr;
  }
  hc.drives_per_clock = 4;  // most polls do not come that far (idle_watch.h)
  auto engine = std::make_unique<HcaInSlot>(hc, *bus, **uplink, config.impair.empty() ? nullptr : &*rules, speaks);
  auto slot = std::make_unique<InprocSlot>(std::move(identity), std::move(bus), std::move(uplink).value(), std::move(engine));
  if (!slot->valid()) return nullptr;
  return slot;
}

}  // namespace uhca::pci

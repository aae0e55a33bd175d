// SPDX-License-Identifier: MIT
// An HCA behind a vfio-user socket: netdev, port, device, server.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/safecopy.h"
#include "device/hca/hca.h"
#include "device/hca/plug_parts.h"
#include "device/pci/vfio_user.h"
#include "device/pci/vfio_user_server.h"
#include "wire/net/function_mac.h"
#include "wire/net/netdev_port.h"
#include "wire/net/uplink.h"

namespace uhca::pci {
namespace {

// On a wire of its own nobody else's QPNs are in the way.
class OwnLease final : public hca::QpnLease {
 public:
  std::uint32_t lease_block() override {
    std::uint32_t first = next_;
    if (next_ != 0) next_ = (next_ + hca::kQpnBlock) & 0xffffff;
    return first < kMulticastBlock ? first : 0;
  }

 private:
  static constexpr std::uint32_t kMulticastBlock = 0xfff000;
  std::uint32_t next_ = hca::kQpnBlock;
};

class Served final : public ServedHca {
 public:
  Served(const hca::HcaConfig& hc, std::unique_ptr<wire::Port> port, std::unique_ptr<hca::QpnLease> lease, std::string description)
      : port_(std::move(port)),
        lease_(std::move(lease)),
        hca_(hc, bus_, *port_, SystemClock::instance(), *lease_),
        description_(std::move(description)) {}

  Status listen(const std::string& path) { return server_.listen(path); }
  Status run(int stop_fd) override { return server_.run(stop_fd); }
  std::string description() const override { return description_; }

 private:
  vfio_user::GuestBus bus_;
  std::unique_ptr<wire::Port> port_;
  std::unique_ptr<hca::QpnLease> lease_;
  hca::Hca hca_;
  std::string description_;
  vfio_user::Device device_{
      {hca_.config().vendor_id, hca_.config().device_id}, bus_, hca_, hca_.config().blue_flame ? WriteCombiner::kPatience : 0};
  vfio_user::Server server_{device_, hca_, *port_};
};

std::string text(const wire::Mac& m) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4], m[5]);
}

// The largest MTU that fits into a frame of our ports.
unsigned mtu_for(const wire::NetdevInfo& netdev) {
  constexpr unsigned kMax = wire::kMaxFrame - 22;  // Ethernet header, one VLAN tag, room for an FCS that drivers count
  return std::min(netdev.mtu, kMax);
}

}  // namespace

Result<std::unique_ptr<ServedHca>> serve_hca(const ServeConfig& config) {
  safecopy::install_handler();
  auto netdev = wire::choose_netdev(config.netdev);
  if (!netdev) return refuse(netdev.code() == ENODEV ? EADDRNOTAVAIL : netdev.code(), "netdev '{}'", config.netdev);
  hca::HcaConfig hc;
  hc.netdev_mtu = mtu_for(*netdev);
  hc.num_vectors = Msix::kVectors;
  hc.offer_memic = false;  // the guest maps no part of the BAR as memory
  hc.blue_flame = config.write_combining;
  std::unique_ptr<wire::Port> port;
  std::unique_ptr<hca::QpnLease> lease;
  std::string where;
  if (config.netdev.empty()) {
    wire::Uplink::Options options;
    options.ethernet = true;
    auto uplink = UHCA_TRY(wire::Uplink::create(*netdev, options));
    hc.mac = wire::function_mac(netdev->mac, uplink->function_id());
    where = fmt::format("function {} of the adapter on {}", uplink->function_id(), netdev->name);
    lease = std::make_unique<hca::UplinkLease>(*uplink);
    port = std::move(uplink);
  } else {
    // The interface keeps its own address for the host's use of it.
    hc.mac = wire::function_mac(netdev->mac, wire::kOffTheSwitch);
    auto wire_port = UHCA_TRY(wire::NetdevPort::create(*netdev, hc.mac));
    where = fmt::format("on the wire of {}{}", wire_port->is_tap() ? "tap device " : "", netdev->name);
    lease = std::make_unique<OwnLease>();
    port = std::move(wire_port);
  }
  hc.node_guid = hca::eui64(hc.mac);
  auto served = std::make_unique<Served>(hc, std::move(port), std::move(lease), fmt::format("{}, MAC {}", where, text(hc.mac)));
  UHCA_CHECK(served->listen(config.socket));
  return std::unique_ptr<ServedHca>(std::move(served));
}

}  // namespace uhca::pci

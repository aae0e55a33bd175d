// SPDX-License-Identifier: MIT
// An HCA behind a vfio-user socket: netdev, port, device, server.
#include <fmt/format.h>

#include <cerrno>

#include "base/log.h"
#include "base/safecopy.h"
#include "device/hca/hca.h"
#include "device/hca/plug_parts.h"
#include "device/pci/vfio_user.h"
#include "device/pci/vfio_user_server.h"
#include "wire/net/function_mac.h"
#include "wire/net/uplink.h"

namespace uhca::pci {
namespace {

// On the host switch: another function of the adapter, with a MAC of its own.
class OnSwitch final : public ServedHca {
 public:
  OnSwitch(const hca::HcaConfig& hc, std::unique_ptr<wire::Uplink> uplink)
      : uplink_(std::move(uplink)), lease_(*uplink_), hca_(hc, bus_, *uplink_, SystemClock::instance(), lease_) {}

  Status listen(const std::string& path) { return server_.listen(path); }
  Status run(int stop_fd) override { return server_.run(stop_fd); }
  std::string description() const override {
    return fmt::format("function {} of the adapter on {}", uplink_->function_id(), uplink_->netdev().name);
  }

 private:
  vfio_user::GuestBus bus_;
  std::unique_ptr<wire::Uplink> uplink_;
  hca::UplinkLease lease_;
  hca::Hca hca_;
  vfio_user::Device device_{{hca_.config().vendor_id, hca_.config().device_id}, bus_, hca_};
  vfio_user::Server server_{device_, hca_, *uplink_};
};

}  // namespace

Result<std::unique_ptr<ServedHca>> serve_hca(const ServeConfig& config) {
  safecopy::install_handler();
  auto netdev = wire::choose_netdev(config.netdev);
  if (!netdev) return refuse(netdev.code() == ENODEV ? EADDRNOTAVAIL : netdev.code(), "netdev '{}'", config.netdev);
  auto uplink = wire::Uplink::create(*netdev);
  if (!uplink) return refuse(uplink.code(), "uplink on '{}'", netdev->name);
  hca::HcaConfig hc;
  hc.mac = wire::function_mac(netdev->mac, (*uplink)->function_id());
  hc.netdev_mtu = netdev->mtu;
  hc.num_vectors = Msix::kVectors;
  hc.node_guid = hca::eui64(hc.mac);
  auto served = std::make_unique<OnSwitch>(hc, std::move(uplink).value());
  UHCA_CHECK(served->listen(config.socket));
  return std::unique_ptr<ServedHca>(std::move(served));
}

}  // namespace uhca::pci

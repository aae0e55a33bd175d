// SPDX-License-Identifier: MIT
// The GID table of a RoCE port. Linux: drivers/infiniband/core/{cache,roce_gid_mgmt}.c.
//
// Every address gives two entries, RoCE v1 (if the port has it) and then RoCE v2. The first slots are the default GIDs: the link-local
// address that EUI-64 derives from the MAC, whether the netdev carries it or not. The netdev's own link-local address usually is the same
// and then takes no further slot. IPv4 addresses come before IPv6 ones.
#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/core/device_state.h"
#include "kernel/core/netdev.h"

namespace uhca::kernel {
namespace {

constexpr std::uint32_t kEventGidChange = 18;  // IBV_EVENT_GID_CHANGE

// fe80:: and the EUI-64 of a MAC (RFC 4291, appendix A).
ib_gid link_local_gid(const std::array<std::uint8_t, 6>& mac) {
  ib_gid g{};
  g[0] = 0xfe, g[1] = 0x80;
  g[8] = mac[0] ^ 2, g[9] = mac[1], g[10] = mac[2], g[11] = 0xff;
  g[12] = 0xfe, g[13] = mac[3], g[14] = mac[4], g[15] = mac[5];
  return g;
}

bool same(const ib_gid_attr& a, const ib_gid_attr& b) {
  return a.gid == b.gid && a.roce_v2 == b.roce_v2 && a.mac == b.mac && a.ifindex == b.ifindex;
}

Status delete_entry(DeviceState& st, std::uint16_t index) {
  if (st.dev->ops.del_gid) UHCA_CHECK(st.dev->ops.del_gid(*st.dev, index));
  {
    std::lock_guard g(st.gid_lock);
    st.gids[index] = {};
  }
  ib_dispatch_event(*st.dev, kEventGidChange, 1);
  return success();
}

Status add_entry(DeviceState& st, ib_gid_attr e, std::uint16_t index) {
  e.index = index;
  if (st.dev->ops.add_gid) UHCA_CHECK(st.dev->ops.add_gid(*st.dev, e));
  {
    std::lock_guard g(st.gid_lock);
    st.gids[index] = std::move(e);
  }
  ib_dispatch_event(*st.dev, kEventGidChange, 1);
  return success();
}

}  // namespace

ib_gid_attr rdma_get_gid_attr(ib_device& dev, std::uint32_t port, std::uint16_t index) {
  DeviceState* st = device_state(dev);
  if (!st || port < 1 || port > dev.num_ports || index >= kGidTableLen) return {};
  std::lock_guard g(st->gid_lock);
  return st->gids[index];
}

std::vector<ib_gid_attr> rdma_gid_table(ib_device& dev, std::uint32_t port) {
  std::vector<ib_gid_attr> out;
  DeviceState* st = device_state(dev);
  if (!st || port < 1 || port > dev.num_ports) return out;
  std::lock_guard g(st->gid_lock);
  for (const ib_gid_attr& e : st->gids)
    if (e.valid) out.push_back(e);
  return out;
}

Status rdma_refresh_gids(ib_device& dev) {
  DeviceState* st = device_state(dev);
  if (!st) return refuse(ENODEV, "refresh GIDs: {} is not registered", dev.name);
  if (dev.netdev.empty()) return success();

  std::lock_guard update(st->gid_update);
  NetdevAddresses net = netdev_addresses(dev.netdev);
  const std::uint16_t default_slots = dev.roce_v1 ? 2 : 1;
  std::vector<ib_gid_attr> want;
  if (net.ifindex) {
    auto add = [&](const ib_gid& gid) {
      for (bool v2 : {false, true}) {
        if (!v2 && !dev.roce_v1) continue;
        ib_gid_attr e;
        e.valid = true;
        e.gid = gid;
        e.roce_v2 = v2;
        e.ifindex = static_cast<std::uint32_t>(net.ifindex);
        e.netdev = dev.netdev;
        e.mac = net.mac;
        if (std::none_of(want.begin(), want.end(), [&](const ib_gid_attr& w) { return same(w, e); })) want.push_back(std::move(e));
      }
    };
    add(link_local_gid(net.mac));
    for (const ib_gid& a : net.addresses) add(a);
  }

  for (std::uint16_t i = 0; i < kGidTableLen; ++i) {
    ib_gid_attr have = rdma_get_gid_attr(dev, 1, i);
    if (!have.valid) continue;
    bool keep = i < default_slots ? i < want.size() && same(want[i], have)
                                  : std::any_of(want.begin(), want.end(), [&](const ib_gid_attr& w) { return same(w, have); });
    if (keep) continue;
    UHCA_CHECK(delete_entry(*st, i));
  }
  std::uint16_t free_slot = default_slots;
  for (std::size_t w = 0; w < want.size(); ++w) {
    std::uint16_t slot = static_cast<std::uint16_t>(w);
    if (w >= default_slots) {
      bool present = false;
      for (std::uint16_t i = 0; i < kGidTableLen && !present; ++i) {
        ib_gid_attr have = rdma_get_gid_attr(dev, 1, i);
        present = have.valid && same(have, want[w]);
      }
      if (present) continue;
      while (free_slot < kGidTableLen && rdma_get_gid_attr(dev, 1, free_slot).valid) ++free_slot;
      if (free_slot == kGidTableLen) {
        log::warn("{}: GID table full, an address of {} has no GID", dev.name, dev.netdev);
        break;
      }
      slot = free_slot;
    } else if (rdma_get_gid_attr(dev, 1, slot).valid) {
      continue;
    }
    UHCA_CHECK(add_entry(*st, want[w], slot));
  }
  return success();
}

void gid_table_cleanup(DeviceState& st) {
  std::lock_guard update(st.gid_update);
  for (std::uint16_t i = 0; i < kGidTableLen; ++i)
    if (rdma_get_gid_attr(*st.dev, 1, i).valid)
      if (Status s = delete_entry(st, i); !s.ok()) log::warn("{}: GID {} could not be deleted ({})", st.dev->name, i, s.code());
}

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
// The registry of devices and the distribution of their events. Linux: drivers/infiniband/core/device.c.
#include <algorithm>
#include <string>

#include "base/log.h"
#include "kernel/core/device_state.h"

namespace uhca::kernel {
namespace {

using List = std::vector<ib_device*>;

struct Registry {
  std::mutex lock;
  std::atomic<const List*> devices{new List};
  std::vector<const List*> retired;  // snapshots that somebody may still walk
  std::vector<std::unique_ptr<DeviceState>> states;
  std::uint32_t next_index = 0;
  std::uint32_t minors_used = 0;  // bit n: uverbsN
};

// Leaked: programs' destructors may run after ours would.
std::atomic<Registry*>& registry_slot() {
  static auto* slot = new std::atomic<Registry*>(new Registry);
  return *slot;
}

Registry& registry() { return *registry_slot().load(std::memory_order_acquire); }

// With r.lock held.
void publish(Registry& r, List next) {
  r.retired.push_back(r.devices.load());
  r.devices.store(new List(std::move(next)), std::memory_order_release);
}

// "mlx5_%d" -> the first free number. EINVAL, ENFILE (Linux: -ENFILE for a name in use).
Status assign_name(const List& list, std::string& name) {
  auto taken = [&list](const std::string& n) { return std::any_of(list.begin(), list.end(), [&](ib_device* d) { return d->name == n; }); };
  if (name.empty()) return refuse(EINVAL, "register device: no name");
  std::size_t at = name.find("%d");
  if (at == std::string::npos) {
    if (taken(name)) return refuse(ENFILE, "register device: the name {} is in use", name);
    return success();
  }
  for (unsigned i = 0;; ++i) {
    std::string n = name.substr(0, at) + std::to_string(i) + name.substr(at + 2);
    if (!taken(n)) {
      name = std::move(n);
      return success();
    }
  }
}

}  // namespace

DeviceState* device_state(const ib_device& dev) {
  Registry& r = registry();
  std::lock_guard g(r.lock);
  for (auto& s : r.states)
    if (s->dev == &dev) return s.get();
  return nullptr;
}

Status ib_register_device(ib_device& dev) {
  Registry& r = registry();
  if (dev.ops.query_device) UHCA_CHECK(dev.ops.query_device(dev, dev.attrs, nullptr));
  {
    std::lock_guard g(r.lock);
    List next = *r.devices.load();
    if (std::find(next.begin(), next.end(), &dev) != next.end()) return refuse(EEXIST, "register device: {} is registered", dev.name);
    UHCA_CHECK(assign_name(next, dev.name));
    int minor = 0;
    while (minor < 32 && (r.minors_used >> minor & 1)) ++minor;
    if (minor == 32) return refuse(ENFILE, "register device: no uverbs minor left (32)");
    r.minors_used |= 1u << minor;
    dev.uverbs_minor = minor;
    dev.index = r.next_index++;
    auto st = std::make_unique<DeviceState>();
    st->dev = &dev;
    r.states.push_back(std::move(st));
  }
  // The GID table is complete before anybody can find the device.
  if (Status s = rdma_refresh_gids(dev); !s.ok()) {
    ib_unregister_device(dev);
    return s;
  }
  std::lock_guard g(r.lock);
  List next = *r.devices.load();
  next.push_back(&dev);
  publish(r, std::move(next));
  return success();
}

void ib_unregister_device(ib_device& dev) {
  Registry& r = registry();
  DeviceState* st = device_state(dev);
  if (!st) return;
  {
    std::lock_guard g(r.lock);
    List next = *r.devices.load();
    auto it = std::find(next.begin(), next.end(), &dev);
    if (it != next.end()) {
      next.erase(it);
      publish(r, std::move(next));
    }
    r.minors_used &= ~(1u << dev.uverbs_minor);
  }
  gid_table_cleanup(*st);
  std::lock_guard g(r.lock);
  st->dev = nullptr;
}

void ib_forget_devices_after_fork() { registry_slot().store(new Registry, std::memory_order_release); }

const std::vector<ib_device*>& ib_devices() {
  return *registry().devices.load(std::memory_order_acquire);
}

ib_device* ib_device_by_name(std::string_view name) {
  for (ib_device* d : ib_devices())
    if (d->name == name) return d;
  return nullptr;
}

ib_device* ib_device_by_minor(int minor) {
  for (ib_device* d : ib_devices())
    if (d->uverbs_minor == minor) return d;
  return nullptr;
}

void ib_dispatch_event(ib_device& dev, std::uint32_t ib_event, std::uint32_t port) {
  DeviceState* st = device_state(dev);
  if (!st) return;
  std::shared_lock g(st->handlers_lock);
  for (ib_event_handler* h : st->handlers) h->handler(*h, dev, ib_event, port);
}

void ib_register_event_handler(ib_device& dev, ib_event_handler& h) {
  DeviceState* st = device_state(dev);
  if (!st) return;
  std::unique_lock g(st->handlers_lock);
  st->handlers.push_back(&h);
}

void ib_unregister_event_handler(ib_device& dev, ib_event_handler& h) {
  DeviceState* st = device_state(dev);
  if (!st) return;
  std::unique_lock g(st->handlers_lock);
  st->handlers.erase(std::remove(st->handlers.begin(), st->handlers.end(), &h), st->handlers.end());
}

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
// Several communication managers over a wire that loses, doubles and delays what a test says, on a virtual clock.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/cm/ib_cm.h"

namespace uhca::kernel::cm::test {

inline ib_gid ip(std::uint8_t host) {
  ib_gid g{};
  g[10] = g[11] = 0xff;
  g[12] = 10;
  g[15] = host;
  return g;
}

class FakeNet;

class FakeDevice final : public CmDevice, public MadTransport {
 public:
  FakeDevice(FakeNet& net, std::uint8_t host, std::uint32_t prefix) : cm(*this, prefix, 7), host_(host), net_(net) {}
  std::uint64_t node_guid() const override { return 0xabcd00 + host_; }
  std::uint8_t local_ca_ack_delay() const override { return 15; }
  std::uint8_t port_num() const override { return 1; }
  Result<ib_gid_attr> find_gid(const ib_gid& gid, bool v2) override;
  Result<std::uint16_t> find_pkey(std::uint16_t pkey) override {
    if (pkey != 0xffff) return Errno{ENOENT};
    return std::uint16_t{0};
  }
  MadTransport& transport() override { return *this; }
  void met(std::uint32_t function) override { functions_met.push_back(function); }
  Status send(const Mad& mad, const rdma_ah_attr& av) override;

  IbCm cm;
  std::uint8_t host() const { return host_; }
  int send_error = 0;
  std::vector<std::uint32_t> functions_met;

 private:
  std::uint8_t host_;
  FakeNet& net_;
};

class FakeNet {
 public:
  struct Packet {
    Mad mad;
    ib_gid from, to;
  };
  FakeDevice& add(std::uint8_t host) {
    hosts_.push_back(std::make_unique<FakeDevice>(*this, host, host));
    return *hosts_.back();
  }
  // Decides the number of copies that arrive.
  std::function<unsigned(const Packet&)> copies = [](const Packet&) { return 1u; };
  std::vector<CmAttr> sent;

  void put(const Mad& mad, const ib_gid& from, const ib_gid& to) {
    Packet p{mad, from, to};
    sent.push_back(cm_attr(mad));
    for (unsigned n = copies(p); n > 0; --n) queue_.push_back(p);
  }
  void settle() {
    while (!queue_.empty()) {
      Packet p = queue_.front();
      queue_.pop_front();
      for (auto& h : hosts_) {
        if (ip(h->host()) != p.to) continue;
        MadInfo info;
        info.sgid = p.from;
        info.dgid = p.to;
        info.hop_limit = 64;
        h->cm.receive(p.mad, info);
      }
    }
  }
  // Lets time pass up to `until`, each timer at its own moment.
  void advance(Nanos by) {
    Nanos until = now + by;
    for (;;) {
      settle();
      Nanos next = kNever;
      for (auto& h : hosts_) next = std::min(next, h->cm.next_deadline());
      if (next > until) break;
      now = next;
      for (auto& h : hosts_) {
        h->cm.set_now(now);
        h->cm.run_timers();
      }
    }
    now = until;
    for (auto& h : hosts_) h->cm.set_now(now);
  }
  unsigned count(CmAttr a) const {
    unsigned n = 0;
    for (CmAttr s : sent) n += s == a;
    return n;
  }

  Nanos now = 0;
  bool one_host = false;  // the addresses are all of one host, the devices its functions

 private:
  std::vector<std::unique_ptr<FakeDevice>> hosts_;
  std::deque<Packet> queue_;
};

inline Result<ib_gid_attr> FakeDevice::find_gid(const ib_gid& gid, bool v2) {
  if (gid != ip(host_) && !net_.one_host) return Errno{ENOENT};
  ib_gid_attr a;
  a.valid = true;
  a.gid = gid;
  a.index = 3;
  a.ifindex = 2;
  a.roce_v2 = v2;
  return a;
}

inline Status FakeDevice::send(const Mad& mad, const rdma_ah_attr& av) {
  if (send_error) return Errno{send_error};
  net_.put(mad, av.sgid_attr.gid, av.dgid);
  return success();
}

}  // namespace uhca::kernel::cm::test

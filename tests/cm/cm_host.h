// SPDX-License-Identifier: MIT
// A host with an event channel on /dev/infiniband/rdma_cm, without the file: commands are written as a program writes them.
#pragma once

#include <arpa/inet.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "cm/fake_net.h"
#include "kernel/cm/ucma.h"

namespace uhca::kernel::cm::test {

struct FakeIbDevice final : ib_device {
  void doorbell(std::uint64_t, std::uint64_t) override {}
  void look_at_send_queue(std::uint32_t) override {}
  void look_at_cq(std::uint32_t) override {}
  void polled_empty() override {}
  void going_to_sleep() override {}
  void watch_uar(std::uint32_t, bool) override {}
  void invalidate_range(UserPtr, std::size_t, std::string_view) override {}
};

inline sockaddr_in in4(std::uint8_t host, std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = host ? htonl(10u << 24 | host) : 0;
  return a;
}

class CmHost final : public RdmaCmEnvironment {
 public:
  CmHost(FakeNet& net, std::uint8_t host)
      : dev(net.add(host)),
        ports("uhca-test/" + std::to_string(getpid()) + "/" + std::to_string(host) + "/", nullptr, nullptr),
        cma(*this, dev.cm, ports),
        ucma(cma, ibdev),
        file(ucma, &CmHost::ready, this),
        other(ucma, &CmHost::ready, this) {
    ibdev.node_guid = 0x1122334455667788;
    ibdev.index = 7;
  }

  CmDevice& device() override { return dev; }
  std::uint8_t active_mtu() const override { return mtu; }
  ib_gid_attr loopback_gid() override { return *dev.find_gid(ip(dev.host()), true); }
  int netdev_ifindex() const override { return 2; }
  bool is_local_address(const ib_gid& g) override { return g == ip(dev.host()) || g == ip(200); }
  Result<IpRoute> route(const ib_gid& dst, const ib_gid*, int) override {
    if (dst == ip(250)) return Errno{ENETUNREACH};
    IpRoute r;
    r.ifindex = 2;
    r.local = dst == ip(dev.host());
    r.source = ip(dev.host());
    r.next_hop = dst;
    r.needs_neighbour = dst == ip(251);
    return r;
  }
  bool neighbour_known(int, const ib_gid&) override { return neighbour; }
  void solicit(const ib_gid&, int) override { ++solicited; }
  std::uint32_t random() override { return 0x12345; }

  // One command; its errno, 0 for success.
  template <class T>
  int write(UcmaFile& f, std::uint32_t cmd, const T& body, std::size_t out, std::size_t in = sizeof(T)) {
    struct {
      ::rdma_ucm_cmd_hdr hdr;
      T body;
    } __attribute__((packed)) message{{cmd, static_cast<std::uint16_t>(in), static_cast<std::uint16_t>(out)}, body};
    auto r = f.write(reinterpret_cast<UserPtr>(&message), sizeof message, &CmHost::file_of, this);
    EXPECT_TRUE(!r || *r == sizeof message);
    return r.code();
  }
  template <class T>
  int write(std::uint32_t cmd, const T& body, std::size_t out = 0) {
    return write(file, cmd, body, out);
  }

  std::uint32_t create(std::uint16_t ps = kPsTcp, std::uint64_t uid = 77, std::uint8_t type = 2) {
    ::rdma_ucm_create_id_resp resp{~0u};
    ::rdma_ucm_create_id c{uid, reinterpret_cast<UserPtr>(&resp), ps, type, {}};
    EXPECT_EQ(0, write(RDMA_USER_CM_CMD_CREATE_ID, c, sizeof resp));
    return resp.id;
  }
  int bind(std::uint32_t id, const sockaddr_in& a) {
    ::rdma_ucm_bind b{};
    b.id = id;
    b.addr_size = sizeof a;
    std::memcpy(&b.addr, &a, sizeof a);
    return write(RDMA_USER_CM_CMD_BIND, b);
  }
  int listen(std::uint32_t id, std::uint32_t backlog = 10) { return write(RDMA_USER_CM_CMD_LISTEN, ::rdma_ucm_listen{id, backlog}); }
  int resolve(std::uint32_t id, const sockaddr_in& dst, std::uint32_t timeout = 2000) {
    ::rdma_ucm_resolve_addr r{};
    r.id = id;
    r.timeout_ms = timeout;
    r.dst_size = sizeof dst;
    std::memcpy(&r.dst_addr, &dst, sizeof dst);
    return queried(write(RDMA_USER_CM_CMD_RESOLVE_ADDR, r));
  }
  int route(std::uint32_t id, std::uint32_t timeout = 2000) {
    return queried(write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, ::rdma_ucm_resolve_route{id, timeout}));
  }
  int connect(std::uint32_t id, std::size_t private_bytes = 0, std::uint32_t qpn = 0x1001) {
    ::rdma_ucm_connect c{};
    c.id = id;
    c.conn_param.valid = 1;
    c.conn_param.qp_num = qpn;
    c.conn_param.responder_resources = 3;
    c.conn_param.initiator_depth = 2;
    c.conn_param.private_data_len = static_cast<std::uint8_t>(private_bytes);
    std::memset(c.conn_param.private_data, 0x5a, private_bytes);
    return write(RDMA_USER_CM_CMD_CONNECT, c);
  }
  int accept(std::uint32_t id, std::uint64_t uid, bool with_param, std::uint32_t qpn = 0x2001) {
    ::rdma_ucm_accept a{};
    a.id = id;
    a.uid = uid;
    a.conn_param.valid = with_param;
    a.conn_param.qp_num = qpn;
    return write(RDMA_USER_CM_CMD_ACCEPT, a);
  }
  int disconnect(std::uint32_t id) { return write(RDMA_USER_CM_CMD_DISCONNECT, ::rdma_ucm_disconnect{id}); }
  int destroy(std::uint32_t id, std::uint32_t* reported = nullptr) {
    ::rdma_ucm_destroy_id_resp resp{};
    int e = write(RDMA_USER_CM_CMD_DESTROY_ID, ::rdma_ucm_destroy_id{reinterpret_cast<UserPtr>(&resp), id, 0}, sizeof resp);
    if (reported) *reported = resp.events_reported;
    return e;
  }
  // The errno of GET_EVENT: EAGAIN when none waits.
  int event(::rdma_ucm_event_resp* e, UcmaFile* f = nullptr) {
    *e = {};
    return write(f ? *f : file, RDMA_USER_CM_CMD_GET_EVENT, ::rdma_ucm_get_event{reinterpret_cast<UserPtr>(e)}, sizeof *e);
  }
  // The next event must be this one.
  ::rdma_ucm_event_resp expect(RdmaEventType t, int status = 0) {
    ::rdma_ucm_event_resp e;
    EXPECT_EQ(0, event(&e)) << "no event; " << to_string(t) << " expected";
    EXPECT_STREQ(to_string(t), to_string(static_cast<RdmaEventType>(e.event)));
    EXPECT_EQ(status, static_cast<int>(e.status));
    return e;
  }

  FakeDevice& dev;
  FakeIbDevice ibdev;
  std::uint8_t mtu = 3;
  bool neighbour = false;
  unsigned solicited = 0;
  bool readable = false;
  PortSpace ports;
  RdmaCm cma;
  Ucma ucma;
  UcmaFile file, other;

 private:
  // What is known already is said as soon as the command has returned.
  int queried(int error) {
    cma.run_timers();
    return error;
  }
  static void ready(void* self, bool on) {
    auto& h = *static_cast<CmHost*>(self);
    h.readable = on;
  }
  static Result<UcmaFile*> file_of(void* self, int fd) {
    auto& h = *static_cast<CmHost*>(self);
    if (fd == 1000) return &h.file;
    if (fd == 1001) return &h.other;
    return Errno{fd < 0 ? ENOENT : EINVAL};
  }
};

}  // namespace uhca::kernel::cm::test

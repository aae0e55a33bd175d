// SPDX-License-Identifier: MIT
// rdma_cm: connections by IP address and port. Linux: drivers/infiniband/core/cma.c, <rdma/rdma_cm.h>; states, events and errnos
// as there. Like ib_cm.h: no locks, no threads; the caller holds one lock over all calls and passes the time.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/fd.h"
#include "kernel/cm/addr.h"
#include "kernel/cm/ib_cm.h"
#include "kernel/cm/port_space.h"

namespace uhca::kernel::cm {

enum class RdmaState : std::uint8_t {
  IDLE,
  ADDR_QUERY,
  ADDR_RESOLVED,
  ROUTE_QUERY,
  ROUTE_RESOLVED,
  CONNECT,
  DISCONNECT,
  ADDR_BOUND,
  LISTEN
};
const char* to_string(RdmaState s);

// enum rdma_cm_event_type: the values of the ABI.
enum class RdmaEventType : std::uint32_t {
  ADDR_RESOLVED,
  ADDR_ERROR,
  ROUTE_RESOLVED,
  ROUTE_ERROR,
  CONNECT_REQUEST,
  CONNECT_RESPONSE,
  CONNECT_ERROR,
  UNREACHABLE,
  REJECTED,
  ESTABLISHED,
  DISCONNECTED,
  DEVICE_REMOVAL,
  MULTICAST_JOIN,
  MULTICAST_ERROR,
  ADDR_CHANGE,
  TIMEWAIT_EXIT,
  ADDRINFO_RESOLVED,
  ADDRINFO_ERROR,
  USER,
  INTERNAL
};
const char* to_string(RdmaEventType t);

struct RdmaConnParam {
  std::span<const std::uint8_t> private_data;
  std::uint8_t responder_resources = 0, initiator_depth = 0, flow_control = 0, retry_count = 0, rnr_retry_count = 0, srq = 0;
  std::uint32_t qp_num = 0, qkey = 0;
};

struct RdmaUdParam {
  std::span<const std::uint8_t> private_data;
  rdma_ah_attr ah_attr;
  std::uint32_t qp_num = 0, qkey = 0;
};

struct RdmaId;

struct RdmaMulticast {
  Sockaddr addr;
  void* context = nullptr;
  int membership = -1;  // a socket that has joined the group on the netdev (Linux: ip_mc_inc_group)
  ~RdmaMulticast() { fd::close(membership); }
};

struct RdmaEvent {
  RdmaEventType type{};
  int status = 0;  // 0, a negative errno, or the reason of a reject
  RdmaConnParam conn;
  RdmaUdParam ud;
  Ece ece;
  RdmaId* listen_id = nullptr;  // CONNECT_REQUEST
  void* multicast = nullptr;    // MULTICAST_*: the context of the join
};

class RdmaEventHandler {
 public:
  virtual ~RdmaEventHandler() = default;
  // For CONNECT_REQUEST, `id` is the new one; an error destroys it.
  virtual Status rdma_event(RdmaId& id, const RdmaEvent& event) = 0;
};

class RdmaCm;

struct RdmaId final : CmHandler {
  explicit RdmaId(RdmaCm& owner) : cma(owner) {}
  Status cm_event(CmId& id, const CmEvent& event) override;

  RdmaCm& cma;
  RdmaEventHandler* handler = nullptr;
  void* context = nullptr;
  RdmaState state = RdmaState::IDLE;
  std::uint16_t ps = kPsTcp;
  ib_qp_type qp_type = ib_qp_type::RC;
  Sockaddr src, dst;
  // The device, once the id is bound to it (Linux: id->device, sgid_attr).
  bool bound = false;
  std::uint8_t port_num = 0;
  ib_gid_attr sgid_attr;
  std::optional<PathRec> path;
  CmId* cm_id = nullptr;
  PortBinding port;
  std::uint32_t seq_num = 0, qkey = 0, qp_num = 0;
  int bound_dev_if = 0;
  std::uint8_t srq = 0, tos = 0, ack_timeout = 0;
  bool ack_timeout_set = false, afonly_set = false, afonly = false, reuseaddr = false;
  Ece ece;
  std::list<std::unique_ptr<RdmaMulticast>> multicasts;
};

// The service id of an IP address's port (IBTA annex A11), or of an AF_IB address.
std::uint64_t rdma_service_id(std::uint16_t ps, const Sockaddr& addr);

// What rdma_cm needs of the device and of the host's network.
class RdmaCmEnvironment {
 public:
  virtual ~RdmaCmEnvironment() = default;
  virtual CmDevice& device() = 0;
  virtual std::uint8_t active_mtu() const = 0;  // enum ib_mtu
  virtual ib_gid_attr loopback_gid() = 0;       // invalid: the port has no GID for it
  virtual int netdev_ifindex() const = 0;
  virtual bool is_local_address(const ib_gid& gid) = 0;
  virtual Result<IpRoute> route(const ib_gid& dst, const ib_gid* src, int ifindex) = 0;
  virtual bool neighbour_known(int ifindex, const ib_gid& gid) = 0;
  virtual void solicit(const ib_gid& gid, int ifindex) = 0;
  virtual std::uint32_t random() = 0;
};

class RdmaCm {
 public:
  RdmaCm(RdmaCmEnvironment& env, IbCm& cm, PortSpace& ports);
  ~RdmaCm();
  RdmaCm(const RdmaCm&) = delete;
  RdmaCm& operator=(const RdmaCm&) = delete;

  void set_now(Nanos now) { now_ = now; }
  void run_timers();
  Nanos next_deadline() const;

  RdmaId& create_id(RdmaEventHandler& handler, std::uint16_t ps, ib_qp_type type);
  void destroy_id(RdmaId& id);

  Status bind_addr(RdmaId& id, const Sockaddr& addr);
  Status resolve_addr(RdmaId& id, const Sockaddr& src, const Sockaddr& dst, std::uint32_t timeout_ms);
  Status resolve_route(RdmaId& id, std::uint32_t timeout_ms);
  Status set_ib_path(RdmaId& id, const PathRec& path);
  Status resolve_ib_service(RdmaId& id);
  Status listen(RdmaId& id);
  Status connect(RdmaId& id, const RdmaConnParam& param, const Ece& ece);
  // nullptr: the active side accepts the response.
  Status accept(RdmaId& id, const RdmaConnParam* param, const Ece& ece);
  Status reject(RdmaId& id, std::span<const std::uint8_t> private_data, CmRej reason);
  Status disconnect(RdmaId& id);
  Status notify(RdmaId& id, std::uint32_t ib_event);
  Status init_qp_attr(RdmaId& id, ib_qp_attr& attr, std::uint32_t& mask);
  Status join_multicast(RdmaId& id, const Sockaddr& addr, bool send_only, void* context);
  void leave_multicast(RdmaId& id, const Sockaddr& addr);
  Status set_reuseaddr(RdmaId& id, bool on);
  Status set_afonly(RdmaId& id, bool on);
  Status set_ack_timeout(RdmaId& id, std::uint8_t timeout);

  // The device goes: every id that is bound to it hears of it (DEVICE_REMOVAL; the handler may destroy the id meanwhile), and none can be
  // bound to it any more (ENODEV). Linux: cma_process_remove.
  void remove_device();

  std::size_t live_ids() const { return ids_.size(); }
  IbCm& ib_cm() { return cm_; }

 private:
  friend struct RdmaId;
  // All listening ids of the process share this handler of ib_cm; it finds theirs by port and address.
  struct Listener final : CmHandler {
    explicit Listener(RdmaCm& owner) : cma(owner) {}
    Status cm_event(CmId& id, const CmEvent& event) override { return cma.request(id, event); }
    RdmaCm& cma;
  };
  // An address or a route that is being resolved. Its event never comes before the command has returned, even when all is known: Linux
  // leaves it to a workqueue, and programs that wait for it let others run meanwhile.
  struct Query {
    RdmaId* id;
    ib_gid source{};  // zero: the id has its own
    ib_gid next_hop{};
    int ifindex = 0;
    bool neighbour = false;  // the next hop must be found first
    Nanos deadline, next_look;
  };

  Status bind_addr_dst(RdmaId& id, const Sockaddr& src, const Sockaddr& dst);
  Status acquire_dev_by_src(RdmaId& id);
  Status bind_loopback(RdmaId& id);
  void addr_resolved(RdmaId& id, const ib_gid& source, int status);
  void route_resolved(RdmaId& id);
  void cancel_query(RdmaId& id);
  Status request(CmId& cm_id, const CmEvent& event);
  Status connection_event(RdmaId& id, const CmEvent& event);
  Status sidr_rep_event(RdmaId& id, const CmEvent& event);
  RdmaId* find_listener(const CmEvent& event);
  Status rep_recv(RdmaId& id);
  Status accept_ib(RdmaId& id, const RdmaConnParam& param);
  Status connect_ib(RdmaId& id, const RdmaConnParam& param);
  Status connect_udp(RdmaId& id, const RdmaConnParam& param);
  Status send_sidr_rep(RdmaId& id, CmSidrStatus status, std::uint32_t qkey, std::span<const std::uint8_t> private_data);
  void set_default_qkey(RdmaId& id);
  Status set_qkey(RdmaId& id, std::uint32_t qkey);
  Result<std::vector<std::uint8_t>> with_header(const RdmaId& id, std::span<const std::uint8_t> data, std::size_t most);
  Status deliver(RdmaId& id, const RdmaEvent& event);
  void deliver_or_destroy(RdmaId& id, const RdmaEvent& event);

  RdmaCmEnvironment& env_;
  IbCm& cm_;
  PortSpace& ports_;
  Listener listener_{*this};
  Nanos now_ = 0;
  std::unordered_map<RdmaId*, std::unique_ptr<RdmaId>> ids_;
  bool removed_ = false;
  std::list<RdmaId*> listening_;
  std::list<Query> queries_;
};

}  // namespace uhca::kernel::cm

// SPDX-License-Identifier: MIT
// Connection management of this process: the lock, the thread, the clock, and the open files around ib_cm and rdma_cm.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "kernel/cm/early_requests.h"
#include "kernel/cm/exchange.h"
#include "kernel/cm/file.h"
#include "kernel/cm/gsi.h"
#include "kernel/cm/peer_watch.h"
#include "kernel/cm/rdma_cm.h"
#include "kernel/cm/ucma.h"

namespace uhca::kernel::cm {

class Service final : public CmDevice, public RdmaCmEnvironment {
 public:
  static Result<std::unique_ptr<Service>> create(ib_device& dev);
  ~Service() override;

  Result<OpenedCmFile> open(bool cloexec, bool nonblock);
  std::shared_ptr<CmFile> file_of(std::uint64_t inode);
  void reap();
  void close_all();
  void remove_device();
  bool any_open() const { return open_files_.load(std::memory_order_relaxed) != 0; }

  // CmDevice
  std::uint64_t node_guid() const override { return dev_.node_guid; }
  std::uint8_t local_ca_ack_delay() const override { return dev_.attrs.local_ca_ack_delay; }
  std::uint8_t port_num() const override { return 1; }
  Result<ib_gid_attr> find_gid(const ib_gid& gid, bool roce_v2) override;
  Result<std::uint16_t> find_pkey(std::uint16_t pkey) override;
  MadTransport& transport() override { return *gsi_; }
  void met(std::uint32_t function) override;

  // RdmaCmEnvironment
  CmDevice& device() override { return *this; }
  std::uint8_t active_mtu() const override;
  ib_gid_attr loopback_gid() override;
  int netdev_ifindex() const override { return dev_.netdev_ifindex; }
  bool is_local_address(const ib_gid& gid) override;
  Result<IpRoute> route(const ib_gid& dst, const ib_gid* src, int ifindex) override { return ip_route(dst, src, ifindex); }
  bool neighbour_known(int ifindex, const ib_gid& gid) override;
  void solicit(const ib_gid& gid, int ifindex) override { ip_solicit(gid, ifindex); }
  std::uint32_t random() override;

 private:
  class File;
  explicit Service(ib_device& dev);
  Status start();
  // With the lock held: the thread runs and knows the earliest deadline.
  void after_work();
  // Hands on, or processes, what waits at QP1.
  void take_arrived();
  void ensure_thread();
  void wake();
  static void* thread_entry(void* self);
  void run();
  // Sleeps until something is to be done, and does it. False: this process has no descriptors left for those who call.
  bool attend();
  bool serve_callers(int listening_fd, unsigned most);
  // A caller whose message may still be on its way: a connection that was accepted in between.
  void serve_caller(int fd);
  void mad_arrived(const Mad& mad, const MadInfo& info);
  // A MAD of connection management, to whom it belongs.
  void dispatch(const EarlyRequests::Request& r);
  Nanos next_deadline() const;
  // Connections with functions of this host that died hear of it.
  void take_leave();
  void pass_time();
  static void watch(void* self, int fd, bool on);
  // Gives back files whose last descriptor is gone; they are destroyed here.
  void reap_locked();

  ib_device& dev_;
  std::mutex lock_;
  std::unique_ptr<GsiQp> gsi_;
  std::unique_ptr<PortSpace> ports_;
  std::unique_ptr<IbCm> cm_;
  std::unique_ptr<RdmaCm> cma_;
  std::unique_ptr<Ucma> ucma_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<PeerWatch> peers_;
  EarlyRequests early_;
  Nanos now_ = 0;
  std::map<std::uint64_t, std::shared_ptr<File>> files_;  // by inode of the pipe
  std::atomic<int> open_files_{0};
  int epoll_ = -1, wake_ = -1;
  std::deque<int> callers_;  // that are connected and have not spoken yet, the oldest first
  std::atomic<bool> thread_started_{false};
  std::atomic<Nanos> sleeping_until_{0};
};

}  // namespace uhca::kernel::cm

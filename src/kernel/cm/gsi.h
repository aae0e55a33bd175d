// SPDX-License-Identifier: MIT
// The general service interface of a port: QP1, as a consumer of kernel verbs. Linux: drivers/infiniband/core/mad.c.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernel/cm/mad.h"
#include "kernel/mm/umem.h"

namespace uhca::kernel::cm {

class GsiQp final : public MadTransport {
 public:
  // `arrived(context)`: MADs wait for poll(); called on any thread, from inside the device's interrupt dispatch.
  static Result<std::unique_ptr<GsiQp>> create(ib_device& dev, void (*arrived)(void*), void* context);
  ~GsiQp() override;
  GsiQp(const GsiQp&) = delete;
  GsiQp& operator=(const GsiQp&) = delete;

  // ENOMEM: all send buffers are under way.
  Status send(const Mad& mad, const rdma_ah_attr& av) override;

  // Hands MADs that have arrived to the sink, at most as many as there are receive buffers: whoever sends without end does not hold the
  // caller. True: that was all, and the queue is armed again; false: it is to be called again. One thread at a time.
  using Sink = void (*)(void* context, const Mad& mad, const MadInfo& info);
  bool poll(Sink sink, void* context);

  static constexpr unsigned kRecvs = 256, kSends = 128;

 private:
  explicit GsiQp(ib_device& dev) : dev_(dev) {}
  Status make(void (*arrived)(void*), void* context);
  Status to_rts();
  Status post_recv(unsigned slot);
  void reap_sends();

  ib_device& dev_;
  void (*arrived_)(void*) = nullptr;
  void* arrived_context_ = nullptr;
  std::unique_ptr<ib_pd> pd_;
  std::unique_ptr<ib_cq> send_cq_, recv_cq_;
  std::unique_ptr<ib_qp> qp_;
  std::unique_ptr<mm::DmaBuffer> buffers_;
  std::uint32_t lkey_ = 0;
  std::mutex send_lock_;  // free_sends_
  std::vector<unsigned> free_sends_;
};

}  // namespace uhca::kernel::cm

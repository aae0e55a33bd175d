// SPDX-License-Identifier: MIT
// Queues of kernel consumers: their memory is the driver's, and the driver builds WQEs and reads CQEs itself. Linux: the kernel halves
// of hw/mlx5/cq.c, qp.c and wr.c.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernel/mlx5_ib/mlx5_ib_dev.h"

namespace uhca::kernel::mlx5 {

struct KernelCq {
  std::unique_ptr<mm::DmaBuffer> memory;  // CQEs of 64 bytes, then the doorbell record
  std::mutex lock;
  unsigned log_size = 0;
  std::uint32_t ci = 0;
  std::uint32_t arm_sn = 0;
  std::uint32_t* doorbell = nullptr;  // two big-endian words
  std::vector<mlx5_ib_qp*> qps;       // whose completions come here
};

struct KernelQp {
  std::unique_ptr<mm::DmaBuffer> memory;  // receive queue, send queue, then the doorbell record
  std::mutex lock;
  std::uint8_t* rq = nullptr;
  std::uint8_t* sq = nullptr;
  std::uint32_t* doorbell = nullptr;
  pci::DmaAddr doorbell_dma = 0;
  std::uint32_t rq_size = 0, rq_head = 0, rq_tail = 0;  // WQEs
  std::uint32_t sq_size = 0, sq_head = 0, sq_tail = 0;  // basic blocks
  std::vector<std::uint64_t> rq_wr_ids, sq_wr_ids;
};

Result<std::unique_ptr<ib_cq>> create_kernel_cq(mlx5_ib_dev& dev, const ib_cq_init_attr& attr);
// UD and GSI.
Result<std::unique_ptr<ib_qp>> create_kernel_qp(mlx5_ib_dev& dev, ib_pd& pd, ib_qp_init_attr& attr);
// After its destruction in hardware: completions that are still in its CQs are nobody's from now on.
void leave_kernel_cqs(mlx5_ib_qp& qp);
// cq.cpp: the driver's handlers of a CQ's events.
void set_cq_handlers(mlx5_ib_cq& cq);

Result<std::unique_ptr<mm::DmaBuffer>> alloc_coherent(ib_device&, std::size_t size);
Result<std::uint32_t> get_dma_lkey(ib_pd&);
Status put_dma_lkey(ib_pd&, std::uint32_t lkey);
Status post_send(ib_qp&, const ib_ud_wr&);
Status post_recv(ib_qp&, const ib_recv_wr&);
std::size_t poll_cq(ib_cq&, ib_wc* wc, std::size_t n);
Status req_notify_cq(ib_cq&);

}  // namespace uhca::kernel::mlx5

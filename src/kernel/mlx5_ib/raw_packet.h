// SPDX-License-Identifier: MIT
// Raw packet QPs: no QPs of the device, but an SQ with a TIS to send and an RQ with a TIR to receive, or only a TIR that spreads what is
// received over the WQs of an indirection table (RSS). Linux: hw/mlx5/qp.c (create_raw_packet_qp, create_rss_raw_qp_tir).
#pragma once

#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "prm/opcode.h"

namespace uhca::kernel::mlx5 {

// States of SQs and RQs (MLX5_SQC_STATE_*, MLX5_RQC_STATE_*).
enum class WqState : std::uint8_t { kReset = 0, kReady = 1, kError = 3 };

struct RawPacketQp {
  struct Side : mlx5_core_qp {
    mlx5_ib_qp* owner = nullptr;
    WqState state = WqState::kReset;
    bool exists = false;
  };
  Side sq, rq;
  std::uint16_t uid = 0;
  std::uint32_t tisn = 0, tirn = 0;
  bool has_tir = false;  // a rule can lead here
  std::unique_ptr<mm::Umem> sq_buffer;
};

Result<std::unique_ptr<ib_qp>> create_raw_packet_qp(mlx5_ib_dev&, ib_pd*, ib_qp_init_attr&, Udata*);
Status destroy_raw_packet_qp(mlx5_ib_qp&);
// The transition has been checked. EINVAL: the device has none such for its queues.
Status modify_raw_packet_qp(mlx5_ib_qp&, ib_qp_state from, ib_qp_state to);
// Sets the QP's state from those of its queues.
Status query_raw_packet_qp(mlx5_ib_qp&);

// Commands on SQs and RQs, also for WQs. `in`: a whole create_rq_in (create_sq_in); the queue is found by events from then on.
Status create_raw_queue(mlx5_core_dev&, mlx5_core_qp&, prm::Opcode, std::vector<std::uint8_t>& in);
Status destroy_raw_queue(mlx5_core_dev&, mlx5_core_qp&, prm::Opcode, std::uint16_t uid);
// A destroy or any other command that has nothing but a 24-bit number at its usual place.
Status exec_on_number(mlx5_core_dev&, prm::Opcode, std::uint32_t number, std::uint16_t uid);

}  // namespace uhca::kernel::mlx5

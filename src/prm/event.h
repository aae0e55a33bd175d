// SPDX-License-Identifier: MIT
// Event queue entries and their event data.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_eqe(F) \
  F(event_type, 0x8, 0x8, 1) \
  F(event_sub_type, 0x18, 0x8, 1) \
  F(event_data, 0x100, 0xe0, 1) \
  F(signature, 0x1f0, 0x8, 1) \
  F(owner, 0x1ff, 0x1, 1)
UHCA_PRM_LAYOUT(eqe, 0x200)

#define UHCA_PRM_comp_event(F) \
  F(cq_number, 0xc8, 0x18, 1)
UHCA_PRM_LAYOUT(comp_event, 0xe0)

#define UHCA_PRM_cmd_inter_comp_event(F) \
  F(command_completion_vector, 0x0, 0x20, 1)
UHCA_PRM_LAYOUT(cmd_inter_comp_event, 0xe0)

#define UHCA_PRM_pages_req_event(F) \
  F(function_id, 0x10, 0x10, 1) \
  F(num_pages, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(pages_req_event, 0xe0)

#define UHCA_PRM_port_state_change_event(F) \
  F(port_num, 0x40, 0x4, 1)
UHCA_PRM_LAYOUT(port_state_change_event, 0xe0)

#define UHCA_PRM_cq_error(F) \
  F(cqn, 0x8, 0x18, 1) \
  F(syndrome, 0x58, 0x8, 1)
UHCA_PRM_LAYOUT(cq_error, 0xe0)

#define UHCA_PRM_qp_events(F) \
  F(type, 0xa0, 0x8, 1) \
  F(qpn_rqn_sqn, 0xc8, 0x18, 1)
UHCA_PRM_LAYOUT(qp_events, 0xe0)

#define UHCA_PRM_dct_events(F) \
  F(dct_number, 0xc8, 0x18, 1)
UHCA_PRM_LAYOUT(dct_events, 0xe0)

#define UHCA_PRM_rdma_page_fault_event(F) \
  F(bytes_committed, 0x0, 0x20, 1) \
  F(r_key, 0x20, 0x20, 1) \
  F(packet_len, 0x50, 0x10, 1) \
  F(rdma_op_len, 0x60, 0x20, 1) \
  F(rdma_va, 0x80, 0x40, 1) \
  F(rdma, 0xc5, 0x1, 1) \
  F(write, 0xc6, 0x1, 1) \
  F(requestor, 0xc7, 0x1, 1) \
  F(qp_number, 0xc8, 0x18, 1)
UHCA_PRM_LAYOUT(rdma_page_fault_event, 0xe0)

#define UHCA_PRM_wqe_associated_page_fault_event(F) \
  F(bytes_committed, 0x0, 0x20, 1) \
  F(wqe_index, 0x30, 0x10, 1) \
  F(len, 0x50, 0x10, 1) \
  F(rdma, 0xc5, 0x1, 1) \
  F(write_read, 0xc6, 0x1, 1) \
  F(requestor, 0xc7, 0x1, 1) \
  F(qpn, 0xc8, 0x18, 1)
UHCA_PRM_LAYOUT(wqe_associated_page_fault_event, 0xe0)

#define UHCA_PRM_db_bf_congestion_event(F) \
  F(event_subtype, 0x0, 0x8, 1) \
  F(congestion_level, 0x10, 0x8, 1)
UHCA_PRM_LAYOUT(db_bf_congestion_event, 0xc0)

// clang-format on

namespace uhca::prm {
// qp_events.type, and what stands for it where an event has no such field (Linux device.h: MLX5_EVENT_QUEUE_TYPE_*).
inline constexpr std::uint16_t kEventQueueQp = 0, kEventQueueRq = 1, kEventQueueSq = 2, kEventQueueDct = 6;
}  // namespace uhca::prm

#define UHCA_PRM_LAYOUTS_event(L)    \
  L(eqe)                             \
  L(comp_event)                      \
  L(cmd_inter_comp_event)            \
  L(pages_req_event)                 \
  L(port_state_change_event)         \
  L(cq_error)                        \
  L(qp_events)                       \
  L(dct_events)                      \
  L(rdma_page_fault_event)           \
  L(wqe_associated_page_fault_event) \
  L(db_bf_congestion_event)

// SPDX-License-Identifier: MIT
// The objects of Ethernet: receive WQs, their indirection tables, flow rules, counters. Part of ib_verbs.h, which has the verbs. Linux:
// <rdma/ib_verbs.h>.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace uhca::kernel {

struct ib_cq;
struct ib_device;
struct ib_pd;
struct ib_qp;
struct ib_counters;

enum class ib_wq_state : std::uint8_t { RESET = 0, RDY = 1, ERR = 2 };
inline constexpr std::uint32_t IB_WQT_RQ = 0;
// ib_wq_flags, ib_wq_attr_mask
inline constexpr std::uint32_t IB_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0, IB_WQ_FLAGS_SCATTER_FCS = 1 << 1, IB_WQ_FLAGS_DELAY_DROP = 1 << 2,
                               IB_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3;
inline constexpr std::uint32_t IB_WQ_STATE = 1 << 0, IB_WQ_CUR_STATE = 1 << 1, IB_WQ_FLAGS = 1 << 2;

struct ib_wq_init_attr {
  ib_cq* cq = nullptr;
  std::uint32_t wq_type = IB_WQT_RQ, max_wr = 0, max_sge = 0, create_flags = 0;
};
struct ib_wq_attr {
  ib_wq_state wq_state{}, curr_wq_state{};
  std::uint32_t flags = 0, flags_mask = 0;
};

struct ib_wq {
  ib_device* device = nullptr;
  ib_pd* pd = nullptr;
  ib_cq* cq = nullptr;
  std::uint32_t wq_num = 0, wq_type = IB_WQT_RQ;
  ib_wq_state state = ib_wq_state::RESET;
  std::atomic<int> usecnt{0};  // indirection tables
  void (*event_handler)(ib_wq* wq, std::uint32_t ib_event, void* context) = nullptr;
  void* wq_context = nullptr;
  virtual ~ib_wq() = default;
};

struct ib_rwq_ind_table {
  ib_device* device = nullptr;
  std::vector<ib_wq*> ind_tbl;  // 2^n
  std::uint32_t ind_tbl_num = 0;
  std::atomic<int> usecnt{0};  // QPs
  virtual ~ib_rwq_ind_table() = default;
};

// ib_flow_attr_type, ib_flow_flags, ib_flow_spec_type
enum class ib_flow_attr_type : std::uint8_t { NORMAL = 0, ALL_DEFAULT = 1, MC_DEFAULT = 2, SNIFFER = 3 };
inline constexpr std::uint32_t IB_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1, IB_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
                               IB_FLOW_ATTR_FLAGS_RESERVED = 1 << 3;
inline constexpr std::uint32_t IB_FLOW_SPEC_ETH = 0x20, IB_FLOW_SPEC_IPV4 = 0x30, IB_FLOW_SPEC_IPV6 = 0x31, IB_FLOW_SPEC_ESP = 0x34,
                               IB_FLOW_SPEC_TCP = 0x40, IB_FLOW_SPEC_UDP = 0x41, IB_FLOW_SPEC_VXLAN_TUNNEL = 0x50, IB_FLOW_SPEC_GRE = 0x51,
                               IB_FLOW_SPEC_MPLS = 0x60, IB_FLOW_SPEC_INNER = 0x100, IB_FLOW_SPEC_ACTION_TAG = 0x1000,
                               IB_FLOW_SPEC_ACTION_DROP = 0x1001, IB_FLOW_SPEC_ACTION_HANDLE = 0x1002, IB_FLOW_SPEC_ACTION_COUNT = 0x1003;
inline constexpr unsigned IB_FLOW_SPEC_SUPPORT_LAYERS = 10;

// One match or action of a rule. A match: value and mask, in the layout of the uapi's filter of that type (ib_uverbs_flow_*_filter).
struct ib_flow_spec {
  std::uint32_t type = 0;
  alignas(4) std::array<std::uint8_t, 40> val{}, mask{};
  std::uint32_t tag_id = 0;         // ACTION_TAG
  ib_counters* counters = nullptr;  // ACTION_COUNT
};
struct ib_flow_attr {
  ib_flow_attr_type type = ib_flow_attr_type::NORMAL;
  std::uint16_t priority = 0;
  std::uint32_t flags = 0;
  std::uint8_t port = 1;
  std::vector<ib_flow_spec> specs;
};

struct ib_flow {
  ib_device* device = nullptr;
  ib_qp* qp = nullptr;  // nullptr: a rule of the driver's own kind
  virtual ~ib_flow() = default;
};

struct ib_counters {
  ib_device* device = nullptr;
  std::atomic<int> usecnt{0};  // flows
  virtual ~ib_counters() = default;
};

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
// Quality of service as programs ask for it: scheduling elements, the extension of QP contexts, UDP source ports; and VARs. Linux 6.1's
// mlx5_ifc.h does not have them (its drivers do not use them). Source: rdma-core, providers/mlx5/mlx5_ifc.h; Linux 7.2 mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

namespace uhca::prm::qos {

// cmd_hca_cap, qos_cap
inline constexpr Field cap_qpc_extension{0x122, 0x1, 1}, cap_rts2rts_qp_udp_sport{0x151, 0x1, 1}, cap_nic_qp_scheduling{0x21, 0x1, 1};
// nic_element_type, nic_tsar_type
inline constexpr std::uint32_t kCanTsar = 1 << 0, kCanQueueGroup = 1 << 4, kCanDwrr = 1 << 0;

// init2init_qp_in, rts2rts_qp_in: more optional parameters, and a second context behind the first.
inline constexpr Field qp_has_ext{0x40, 0x1, 1}, qp_opt_mask_95_32{0x840, 0x40, 1};
inline constexpr Field qp_dci_stream{0x890, 0x10, 1}, qp_group_requester{0x8a0, 0x20, 1}, qp_group_responder{0x8c0, 0x20, 1};
inline constexpr std::size_t kExtendedQpInBytes = (0x880 + 0x600) / 8;
inline constexpr std::uint64_t kOptDciStream = 1 << 0, kOptQueueGroup = 1 << 1, kOptUdpSport = 1 << 2;

// The general object "scheduling element", behind its header of 16 bytes.
inline constexpr std::uint16_t kObjSchedulingElement = 0x26;
inline constexpr Field elem_select{0x80, 0x40, 1}, elem_hierarchy{0xc0, 0x8, 1}, elem_type{0x180, 0x8, 1}, elem_tsar_type{0x1a8, 0x8, 1},
    elem_parent{0x1c0, 0x20, 1}, elem_bw_share{0x220, 0x20, 1}, elem_max_bw{0x240, 0x20, 1};
inline constexpr std::size_t kElemInBytes = (0x80 + 0x400) / 8;
inline constexpr std::uint32_t kHierarchyNic = 3, kTypeTsar = 0, kTypeQueueGroup = 4, kTsarDwrr = 0;
inline constexpr std::uint64_t kSelectShare = 1 << 0, kSelectMaxBw = 1 << 1;

// The general object "address vector to QP mapping", behind its header; remote_address_vector is a ud_av.
inline constexpr std::uint16_t kObjAvQpMapping = 0x3a;
inline constexpr std::uint64_t kObjTypesAvQpMapping = std::uint64_t{1} << kObjAvQpMapping;
inline constexpr std::size_t kGeneralHdrBytes = 0x80 / 8;
inline constexpr Field avmap_qpn{0x80 + 0x60, 0x20, 1}, avmap_eth_prio{0x80 + 0x80 + 0x64, 0x4, 1},
    avmap_src_addr_index{0x80 + 0x80 + 0xe4, 0x8, 1}, avmap_rgid{0x80 + 0x80 + 0x100, 0x8, 16};
inline constexpr std::size_t kAvMapInBytes = (0x80 + 0x80 + 0x180) / 8;

// virtio_emulation_cap (capability type 0x13), and the bit of general_obj_types that says it is there
inline constexpr std::uint64_t kObjTypesVirtioNetQ = 1 << 13;
inline constexpr Field var_log_stride{0x33, 0x5, 1}, var_log_size{0x3b, 0x5, 1}, var_bar_offset{0x40, 0x40, 1};

}  // namespace uhca::prm::qos

// SPDX-License-Identifier: MIT
// The messages of the communication manager. IBTA vol. 1, 12.6 and 12.11; names as in Linux include/rdma/ibta_vol1_c12.h.
// Offsets and widths in bits from the start of the message, which follows the MAD header.
#pragma once

#include "kernel/cm/mad.h"

// clang-format off
#define UHCA_PRM_cm_req(F) \
  F(local_comm_id, 0x0, 0x20, 1) \
  F(vendor_id, 0x28, 0x18, 1) \
  F(service_id, 0x40, 0x40, 1) \
  F(local_ca_guid, 0x80, 0x40, 1) \
  F(local_qkey, 0xe0, 0x20, 1) \
  F(local_qpn, 0x100, 0x18, 1) \
  F(responder_resources, 0x118, 0x8, 1) \
  F(local_eecn, 0x120, 0x18, 1) \
  F(initiator_depth, 0x138, 0x8, 1) \
  F(remote_eecn, 0x140, 0x18, 1) \
  F(remote_cm_response_timeout, 0x158, 0x5, 1) \
  F(transport_service_type, 0x15d, 0x2, 1) \
  F(end_to_end_flow_control, 0x15f, 0x1, 1) \
  F(starting_psn, 0x160, 0x18, 1) \
  F(local_cm_response_timeout, 0x178, 0x5, 1) \
  F(retry_count, 0x17d, 0x3, 1) \
  F(partition_key, 0x180, 0x10, 1) \
  F(path_packet_payload_mtu, 0x190, 0x4, 1) \
  F(rdc_exists, 0x194, 0x1, 1) \
  F(rnr_retry_count, 0x195, 0x3, 1) \
  F(max_cm_retries, 0x198, 0x4, 1) \
  F(srq, 0x19c, 0x1, 1) \
  F(extended_transport_type, 0x19d, 0x3, 1) \
  F(primary_local_port_lid, 0x1a0, 0x10, 1) \
  F(primary_remote_port_lid, 0x1b0, 0x10, 1) \
  F(primary_local_port_gid, 0x1c0, 0x8, 16) \
  F(primary_remote_port_gid, 0x240, 0x8, 16) \
  F(primary_flow_label, 0x2c0, 0x14, 1) \
  F(primary_packet_rate, 0x2da, 0x6, 1) \
  F(primary_traffic_class, 0x2e0, 0x8, 1) \
  F(primary_hop_limit, 0x2e8, 0x8, 1) \
  F(primary_sl, 0x2f0, 0x4, 1) \
  F(primary_subnet_local, 0x2f4, 0x1, 1) \
  F(primary_local_ack_timeout, 0x2f8, 0x5, 1) \
  F(alternate_local_port_lid, 0x300, 0x10, 1) \
  F(private_data, 0x460, 0x8, 92)
UHCA_PRM_LAYOUT(cm_req, 0x740)

#define UHCA_PRM_cm_mra(F) \
  F(local_comm_id, 0x0, 0x20, 1) \
  F(remote_comm_id, 0x20, 0x20, 1) \
  F(message_mraed, 0x40, 0x2, 1) \
  F(service_timeout, 0x48, 0x5, 1) \
  F(private_data, 0x50, 0x8, 222)
UHCA_PRM_LAYOUT(cm_mra, 0x740)

#define UHCA_PRM_cm_rej(F) \
  F(local_comm_id, 0x0, 0x20, 1) \
  F(remote_comm_id, 0x20, 0x20, 1) \
  F(message_rejected, 0x40, 0x2, 1) \
  F(reject_info_length, 0x48, 0x7, 1) \
  F(reason, 0x50, 0x10, 1) \
  F(ari, 0x60, 0x8, 72) \
  F(private_data, 0x2a0, 0x8, 148)
UHCA_PRM_LAYOUT(cm_rej, 0x740)

#define UHCA_PRM_cm_rep(F) \
  F(local_comm_id, 0x0, 0x20, 1) \
  F(remote_comm_id, 0x20, 0x20, 1) \
  F(local_qkey, 0x40, 0x20, 1) \
  F(local_qpn, 0x60, 0x18, 1) \
  F(vendor_id_h, 0x78, 0x8, 1) \
  F(local_ee_context_number, 0x80, 0x18, 1) \
  F(vendor_id_m, 0x98, 0x8, 1) \
  F(starting_psn, 0xa0, 0x18, 1) \
  F(vendor_id_l, 0xb8, 0x8, 1) \
  F(responder_resources, 0xc0, 0x8, 1) \
  F(initiator_depth, 0xc8, 0x8, 1) \
  F(target_ack_delay, 0xd0, 0x5, 1) \
  F(failover_accepted, 0xd5, 0x2, 1) \
  F(end_to_end_flow_control, 0xd7, 0x1, 1) \
  F(rnr_retry_count, 0xd8, 0x3, 1) \
  F(srq, 0xdb, 0x1, 1) \
  F(local_ca_guid, 0xe0, 0x40, 1) \
  F(private_data, 0x120, 0x8, 196)
UHCA_PRM_LAYOUT(cm_rep, 0x740)

#define UHCA_PRM_cm_rtu(F) \
  F(local_comm_id, 0x0, 0x20, 1) \
  F(remote_comm_id, 0x20, 0x20, 1) \
  F(private_data, 0x40, 0x8, 224)
UHCA_PRM_LAYOUT(cm_rtu, 0x740)

#define UHCA_PRM_cm_dreq(F) \
  F(local_comm_id, 0x0, 0x20, 1) \
  F(remote_comm_id, 0x20, 0x20, 1) \
  F(remote_qpn_eecn, 0x40, 0x18, 1) \
  F(private_data, 0x60, 0x8, 220)
UHCA_PRM_LAYOUT(cm_dreq, 0x740)

#define UHCA_PRM_cm_drep(F) \
  F(local_comm_id, 0x0, 0x20, 1) \
  F(remote_comm_id, 0x20, 0x20, 1) \
  F(private_data, 0x40, 0x8, 224)
UHCA_PRM_LAYOUT(cm_drep, 0x740)

#define UHCA_PRM_cm_sidr_req(F) \
  F(request_id, 0x0, 0x20, 1) \
  F(partition_key, 0x20, 0x10, 1) \
  F(service_id, 0x40, 0x40, 1) \
  F(private_data, 0x80, 0x8, 216)
UHCA_PRM_LAYOUT(cm_sidr_req, 0x740)

#define UHCA_PRM_cm_sidr_rep(F) \
  F(request_id, 0x0, 0x20, 1) \
  F(status, 0x20, 0x8, 1) \
  F(additional_information_length, 0x28, 0x8, 1) \
  F(vendor_id_h, 0x30, 0x10, 1) \
  F(qpn, 0x40, 0x18, 1) \
  F(vendor_id_l, 0x58, 0x8, 1) \
  F(service_id, 0x60, 0x40, 1) \
  F(qkey, 0xa0, 0x20, 1) \
  F(additional_information, 0xc0, 0x8, 72) \
  F(private_data, 0x300, 0x8, 136)
UHCA_PRM_LAYOUT(cm_sidr_rep, 0x740)
// clang-format on

namespace uhca::kernel::cm {

inline constexpr std::uint8_t kCmClassVersion = 2;  // IBTA 1.2

enum class CmAttr : std::uint16_t {
  REQ = 0x10,
  MRA = 0x11,
  REJ = 0x12,
  REP = 0x13,
  RTU = 0x14,
  DREQ = 0x15,
  DREP = 0x16,
  SIDR_REQ = 0x17,
  SIDR_REP = 0x18,
  LAP = 0x19,
  APR = 0x1a,
};
const char* to_string(CmAttr a);

// MRA and REJ: the kind of message that they answer.
enum class CmResponse : std::uint8_t { REQ = 0, REP = 1, OTHER = 2 };

// Reasons of REJ (IBTA vol. 1, 12.6.7.2). The value is the status of the REJECTED event.
enum class CmRej : std::uint16_t {
  TIMEOUT = 4,
  INVALID_SERVICE_ID = 8,
  STALE_CONN = 10,
  INVALID_GID = 12,
  CONSUMER_DEFINED = 28,
  VENDOR_OPTION_NOT_SUPPORTED = 35,
};

// Status of SIDR_REP (IBTA vol. 1, 12.11.2.2).
enum class CmSidrStatus : std::uint8_t { SUCCESS = 0, UNSUPPORTED = 1, REJECT = 2 };

inline constexpr std::size_t kReqPrivateData = 92, kMraPrivateData = 222, kRejPrivateData = 148, kRepPrivateData = 196,
                             kRtuPrivateData = 224, kDreqPrivateData = 220, kDrepPrivateData = 224, kSidrReqPrivateData = 216,
                             kSidrRepPrivateData = 136, kRejAri = 72;

// The fields by which a MAD of the class finds its owner.
inline std::uint32_t cm_local_comm_id(const Mad& m) {
  return prm::get<prm::cm_rej::local_comm_id>(m.body());
}
inline std::uint32_t cm_remote_comm_id(const Mad& m) {
  return prm::get<prm::cm_rej::remote_comm_id>(m.body());
}
inline CmAttr cm_attr(const Mad& m) {
  return static_cast<CmAttr>(prm::get<prm::mad_hdr::attr_id>(m.hdr()));
}
bool is_cm_mad(const Mad& m);

}  // namespace uhca::kernel::cm

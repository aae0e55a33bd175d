// SPDX-License-Identifier: MIT
// The objects of the RDMA core and their attributes. Part of ib_verbs.h, which has the device, its operations and the verbs; ib_ethernet.h
// has the objects of Ethernet. Linux: <rdma/ib_verbs.h>; names as there.
#pragma once

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace uhca::kernel {

struct ib_device;
struct ib_pd;
struct ib_cq;
struct ib_qp;
struct ib_mr;
struct ib_ah;
struct ib_mw;
struct ib_srq;
struct ib_xrcd;
struct ib_dm;
struct ib_ucontext;
struct ib_rwq_ind_table;  // ib_ethernet.h
class VerbsFile;          // uverbs: the open file behind a ucontext

using ib_gid = std::array<std::uint8_t, 16>;  // network order

// ---------------------------------------------------------------- attributes

enum class ib_qp_type : std::uint8_t {
  SMI = 0,
  GSI = 1,
  RC = 2,
  UC = 3,
  UD = 4,
  RAW_IPV6 = 5,
  RAW_ETHERTYPE = 6,
  RAW_PACKET = 8,
  XRC_INI = 9,
  XRC_TGT = 10,
  DRIVER = 0xff
};
enum class ib_qp_state : std::uint8_t { RESET = 0, INIT = 1, RTR = 2, RTS = 3, SQD = 4, SQE = 5, ERR = 6 };
const char* to_string(ib_qp_state s);

// ib_qp_attr_mask: the bits of IB_USER_VERBS_QP_ATTR (same values as enum ibv_qp_attr_mask).
inline constexpr std::uint32_t IB_QP_STATE = 1 << 0, IB_QP_CUR_STATE = 1 << 1, IB_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
                               IB_QP_ACCESS_FLAGS = 1 << 3, IB_QP_PKEY_INDEX = 1 << 4, IB_QP_PORT = 1 << 5, IB_QP_QKEY = 1 << 6,
                               IB_QP_AV = 1 << 7, IB_QP_PATH_MTU = 1 << 8, IB_QP_TIMEOUT = 1 << 9, IB_QP_RETRY_CNT = 1 << 10,
                               IB_QP_RNR_RETRY = 1 << 11, IB_QP_RQ_PSN = 1 << 12, IB_QP_MAX_QP_RD_ATOMIC = 1 << 13,
                               IB_QP_ALT_PATH = 1 << 14, IB_QP_MIN_RNR_TIMER = 1 << 15, IB_QP_SQ_PSN = 1 << 16,
                               IB_QP_MAX_DEST_RD_ATOMIC = 1 << 17, IB_QP_PATH_MIG_STATE = 1 << 18, IB_QP_CAP = 1 << 19,
                               IB_QP_DEST_QPN = 1 << 20, IB_QP_RATE_LIMIT = 1 << 25;

struct ib_gid_attr {
  bool valid = false;
  ib_gid gid{};
  std::uint16_t index = 0;
  bool roce_v2 = true;  // else RoCE v1
  std::uint32_t ifindex = 0;
  std::string netdev;
  std::array<std::uint8_t, 6> mac{};
};

struct rdma_ah_attr {
  bool is_global = false;
  ib_gid dgid{};
  std::uint32_t flow_label = 0;
  std::uint8_t sgid_index = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t traffic_class = 0;
  std::uint16_t dlid = 0;
  std::uint8_t sl = 0;
  std::uint8_t src_path_bits = 0;
  std::uint8_t static_rate = 0;
  std::uint8_t port_num = 0;
  std::array<std::uint8_t, 6> dmac{};  // resolved by the core (roce: rdma_... resolve_eth_dmac)
  ib_gid_attr sgid_attr;               // looked up by the core from sgid_index
};

struct ib_qp_cap {
  std::uint32_t max_send_wr = 0, max_recv_wr = 0, max_send_sge = 0, max_recv_sge = 0, max_inline_data = 0;
};

struct ib_qp_attr {
  ib_qp_state qp_state{}, cur_qp_state{};
  std::uint8_t path_mtu = 0;  // enum ib_mtu: 1 = 256 ... 5 = 4096
  std::uint8_t path_mig_state = 0;
  std::uint32_t qkey = 0, rq_psn = 0, sq_psn = 0, dest_qp_num = 0;
  std::uint32_t qp_access_flags = 0;
  ib_qp_cap cap;
  rdma_ah_attr ah_attr, alt_ah_attr;
  std::uint16_t pkey_index = 0, alt_pkey_index = 0;
  std::uint8_t en_sqd_async_notify = 0, sq_draining = 0, max_rd_atomic = 0, max_dest_rd_atomic = 0, min_rnr_timer = 0, port_num = 0,
               timeout = 0, retry_cnt = 0, rnr_retry = 0, alt_port_num = 0, alt_timeout = 0;
  std::uint32_t rate_limit = 0;
};

struct ib_qp_init_attr {
  ib_cq* send_cq = nullptr;
  ib_cq* recv_cq = nullptr;
  ib_qp_cap cap;
  bool sq_sig_all = false;
  ib_qp_type qp_type = ib_qp_type::RC;
  std::uint32_t create_flags = 0;
  ib_srq* srq = nullptr;
  ib_xrcd* xrcd = nullptr;                  // XRC_TGT
  std::uint32_t source_qpn = 0;             // with IB_QP_CREATE_SOURCE_QPN
  ib_rwq_ind_table* rwq_ind_tbl = nullptr;  // RAW_PACKET: what is received is spread over its WQs
};

struct ib_cq_init_attr {
  std::uint32_t cqe = 0;
  std::uint32_t comp_vector = 0;
  std::uint32_t flags = 0;
};

struct ib_port_attr {
  std::uint8_t state = 4;  // IB_PORT_ACTIVE
  std::uint8_t max_mtu = 5, active_mtu = 3;
  std::uint32_t gid_tbl_len = 0, port_cap_flags = 0, max_msg_sz = 0, bad_pkey_cntr = 0, qkey_viol_cntr = 0;
  std::uint16_t pkey_tbl_len = 1, lid = 0, sm_lid = 0;
  std::uint8_t lmc = 0, max_vl_num = 1, sm_sl = 0, subnet_timeout = 0, init_type_reply = 0, active_width = 1, phys_state = 5;
  std::uint16_t active_speed = 0;
  std::uint16_t port_cap_flags2 = 0;
  std::uint64_t speed_100mbps = 0;  // query_port_speed, unit 100 Mb/s
};

// ib_device_attr: what QUERY_DEVICE(_EX) reports; field names of ib_uverbs_query_device_resp where they coincide.
struct ib_device_attr {
  std::uint64_t fw_ver = 0;
  std::string fw_ver_str;
  std::uint64_t sys_image_guid = 0;  // network order, as the uapi wants it
  std::uint64_t max_mr_size = 0, page_size_cap = 0;
  std::uint32_t vendor_id = 0, vendor_part_id = 0, hw_ver = 0;
  std::uint32_t max_qp = 0, max_qp_wr = 0, max_send_sge = 0, max_recv_sge = 0, max_sge_rd = 0, max_cq = 0, max_cqe = 0, max_mr = 0,
                max_pd = 0;
  std::uint32_t device_cap_flags = 0;
  std::uint64_t device_cap_flags_ex = 0;
  std::uint32_t max_qp_rd_atom = 0, max_ee_rd_atom = 0, max_res_rd_atom = 0, max_qp_init_rd_atom = 0, max_ee_init_rd_atom = 0;
  std::uint32_t atomic_cap = 0, masked_atomic_cap = 0, max_ee = 0, max_rdd = 0, max_mw = 0, max_raw_ipv6_qp = 0, max_raw_ethy_qp = 0,
                max_mcast_grp = 0, max_mcast_qp_attach = 0, max_total_mcast_qp_attach = 0, max_ah = 0, max_srq = 0, max_srq_wr = 0,
                max_srq_sge = 0;
  std::uint16_t max_pkeys = 1;
  std::uint8_t local_ca_ack_delay = 0;
  std::uint64_t timestamp_mask = 0, hca_core_clock = 0;  // kHz
  std::uint32_t max_wq_type_rq = 0, raw_packet_caps = 0;
  std::uint64_t max_dm_size = 0;
  std::uint32_t xrc_odp_caps = 0;
  std::uint32_t rss_supported_qpts = 0, max_rwq_indirection_tables = 0, max_rwq_indirection_table_size = 0;
  std::uint64_t odp_general_caps = 0;  // bit 0: ODP, bit 1: implicit
  std::uint32_t odp_rc_caps = 0, odp_uc_caps = 0, odp_ud_caps = 0;
};

// ---------------------------------------------------------------- objects

struct ib_ucontext {
  ib_device* device = nullptr;
  VerbsFile* ufile = nullptr;
  virtual ~ib_ucontext() = default;
};

struct ib_pd {
  ib_device* device = nullptr;
  ib_ucontext* ucontext = nullptr;
  std::atomic<int> usecnt{0};  // MRs, QPs, ... on this PD
  virtual ~ib_pd() = default;
};

struct ib_mr {
  ib_device* device = nullptr;
  ib_pd* pd = nullptr;
  std::uint32_t lkey = 0, rkey = 0;
  std::uint64_t iova = 0, length = 0;
  std::atomic<int> usecnt{0};  // memory windows bound to it
  ib_dm* dm = nullptr;         // of device memory
  virtual ~ib_mr() = default;
};

struct ib_cq {
  ib_device* device = nullptr;
  ib_ucontext* ucontext = nullptr;
  int cqe = 0;
  std::atomic<int> usecnt{0};
  // Called on a completion event (any thread; takes no lock that is held across a command).
  void (*comp_handler)(ib_cq* cq, void* context) = nullptr;
  void (*event_handler)(ib_cq* cq, std::uint32_t ib_event, void* context) = nullptr;
  void* cq_context = nullptr;
  virtual ~ib_cq() = default;
  // The hardware's number, for the hooks and traces.
  virtual std::uint32_t hw_cqn() const = 0;
};

struct ib_qp {
  ib_device* device = nullptr;
  ib_pd* pd = nullptr;
  ib_cq* send_cq = nullptr;
  ib_cq* recv_cq = nullptr;
  ib_srq* srq = nullptr;
  ib_rwq_ind_table* rwq_ind_tbl = nullptr;
  std::uint32_t qp_num = 0;
  ib_qp_type qp_type = ib_qp_type::RC;
  std::uint8_t port = 0;
  std::atomic<int> usecnt{0};  // multicast groups, flows; of a shared QP: its openers
  void (*event_handler)(ib_qp* qp, std::uint32_t ib_event, void* context) = nullptr;
  void* qp_context = nullptr;
  // XRC_TGT QPs belong to their XRC domain and may be opened several times: programs hold openings, whose real_qp is the driver's QP.
  // Of every other QP nullptr.
  ib_qp* real_qp = nullptr;
  ib_xrcd* xrcd = nullptr;       // of a shared QP
  std::mutex open_lock;          // openings; also taken by event handlers, never held across a command
  std::vector<ib_qp*> openings;  // of a shared QP
  virtual ~ib_qp() = default;
};
// The driver's QP behind `qp`.
inline ib_qp& ib_real_qp(ib_qp& qp) {
  return qp.real_qp ? *qp.real_qp : qp;
}

struct ib_ah {
  ib_device* device = nullptr;
  ib_pd* pd = nullptr;
  rdma_ah_attr attr;
  virtual ~ib_ah() = default;
};

struct ib_mw {
  ib_device* device = nullptr;
  ib_pd* pd = nullptr;
  std::uint32_t rkey = 0;
  std::uint8_t type = 1;  // enum ib_uverbs_... mw type: 1, 2
  virtual ~ib_mw() = default;
};

// Memory of the device itself.
struct ib_dm_alloc_attr {
  std::uint64_t length = 0;     // bytes
  std::uint32_t alignment = 0;  // log2 of bytes
};
struct ib_dm_mr_attr {
  std::uint64_t length = 0, offset = 0;  // bytes; offset in the device memory
  std::uint32_t access_flags = 0;
};
struct ib_dm {
  ib_device* device = nullptr;
  std::uint64_t length = 0;    // as asked for
  std::atomic<int> usecnt{0};  // MRs
  virtual ~ib_dm() = default;
};

struct ib_srq_attr {
  std::uint32_t max_wr = 0, max_sge = 0, srq_limit = 0;
};
// ib_srq_attr_mask
inline constexpr std::uint32_t IB_SRQ_MAX_WR = 1 << 0, IB_SRQ_LIMIT = 1 << 1;
enum class ib_srq_type : std::uint8_t { BASIC = 0, XRC = 1, TM = 2 };

struct ib_srq_init_attr {
  ib_srq_attr attr;
  ib_srq_type srq_type = ib_srq_type::BASIC;
  ib_cq* cq = nullptr;             // XRC, TM
  ib_xrcd* xrcd = nullptr;         // XRC
  std::uint32_t max_num_tags = 0;  // TM
};
inline bool ib_srq_has_cq(ib_srq_type t) {
  return t == ib_srq_type::XRC || t == ib_srq_type::TM;
}

struct ib_srq {
  ib_device* device = nullptr;
  ib_pd* pd = nullptr;
  ib_srq_type srq_type = ib_srq_type::BASIC;
  ib_cq* cq = nullptr;
  ib_xrcd* xrcd = nullptr;
  std::uint32_t srq_num = 0;
  std::atomic<int> usecnt{0};  // QPs on this SRQ
  void (*event_handler)(ib_srq* srq, std::uint32_t ib_event, void* context) = nullptr;
  void* srq_context = nullptr;
  virtual ~ib_srq() = default;
};

// An XRC domain. Those that were opened by way of a file are shared by all who open the same file.
struct ib_xrcd {
  ib_device* device = nullptr;
  std::atomic<int> usecnt{0};  // SRQs, shared QPs; with a file: also its openers
  bool has_file = false;
  std::uint64_t file_dev = 0, file_ino = 0;
  std::mutex tgt_qps_lock;
  std::map<std::uint32_t, ib_qp*> tgt_qps;  // shared QPs by number, owned
  virtual ~ib_xrcd() = default;
};

// ---------------------------------------------------------------- work requests of kernel consumers (Linux: ib_send_wr, ib_recv_wr, ib_wc)

struct ib_sge {
  std::uint64_t addr = 0;  // bus address
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

// A datagram (UD, GSI), always signalled.
struct ib_ud_wr {
  std::uint64_t wr_id = 0;
  ib_sge sge;
  rdma_ah_attr ah;  // resolved: sgid_attr, dmac
  std::uint32_t remote_qpn = 0, remote_qkey = 0;
};

struct ib_recv_wr {
  std::uint64_t wr_id = 0;
  ib_sge sge;
};

enum class rdma_network_type : std::uint8_t { ROCE_V1 = 1, IPV4 = 2, IPV6 = 3 };

struct ib_wc {
  std::uint64_t wr_id = 0;
  bool receive = false;
  std::uint8_t status = 0;  // enum ib_wc_status
  std::uint8_t vendor_err = 0;
  std::uint8_t sl = 0;
  std::uint32_t byte_len = 0;
  std::uint32_t src_qp = 0;
  rdma_network_type network = rdma_network_type::IPV4;  // of a received datagram: what stands in the 40 bytes in front of it
};

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
// RDMA core: devices, their objects and the operations that a driver provides. Linux: <rdma/ib_verbs.h>; names as there.
// User-visible structures and constants come from the installed uapi headers (<rdma/ib_user_verbs.h>, ...).
#pragma once

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_netlink.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernel/core/ib_ethernet.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel {

struct uverbs_attr_bundle;  // kernel/uverbs/attr_bundle.h

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
struct ib_dmah;
struct ib_ucontext;
namespace mm {
class DmaBuffer;  // kernel/mm/umem.h
class DmaBuf;     // kernel/mm/dma_buf.h
}  // namespace mm
class VerbsFile;  // uverbs: the open file behind a ucontext

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
  ib_dmah* dmah = nullptr;
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

// How DMA shall be done for an MR: hints for the steering of PCIe writes (TPH).
struct ib_dmah {
  ib_device* device = nullptr;
  std::uint32_t cpu_id = 0;
  std::uint8_t mem_type = 0, ph = 0;
  bool has_cpu_id = false, has_mem_type = false, has_ph = false;
  std::atomic<int> usecnt{0};  // MRs
  virtual ~ib_dmah() = default;
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

// What mmap on the device file answers: a descriptor and the offset in it to map instead.
struct MmapTarget {
  int fd = -1;
  std::uint64_t offset = 0;     // bytes
  std::uint32_t uar_index = 0;  // the UAR page that this is, for doorbell watching; 0: not a UAR
  bool read_only = false;
  bool trapped = false;        // no memory: each access is to be performed by the device (ib_device::bar_load, bar_store); fd says nothing
  std::shared_ptr<void> hold;  // if any, kept as long as the mapping
};

// One driver-private method or object for the ioctl tree: declared by the driver, parsed by uverbs (uverbs/uapi_def.h).
struct uapi_definition;

// The driver's operations; a null pointer: not supported (the core answers EOPNOTSUPP, the uapi method disappears).
struct ib_device_ops {
  std::uint32_t driver_id = 0;  // RDMA_DRIVER_*
  std::uint32_t uverbs_abi_ver = 0;

  Status (*query_device)(ib_device&, ib_device_attr&, Udata*) = nullptr;
  Status (*query_port)(ib_device&, std::uint32_t port, ib_port_attr&) = nullptr;
  Result<std::uint16_t> (*query_pkey)(ib_device&, std::uint32_t port, std::uint16_t index) = nullptr;
  // What the hardware counts at the port: the names, nullptr behind the last, and the value of one by its place among them (Linux:
  // alloc_hw_port_stats, get_hw_stats).
  const char* const* hw_counter_names = nullptr;
  Result<std::uint64_t> (*read_hw_counter)(ib_device&, unsigned index) = nullptr;
  Status (*add_gid)(ib_device&, const ib_gid_attr&) = nullptr;
  Status (*del_gid)(ib_device&, std::uint16_t index) = nullptr;

  Result<std::unique_ptr<ib_ucontext>> (*alloc_ucontext)(ib_device&, Udata&) = nullptr;
  void (*dealloc_ucontext)(ib_ucontext&) = nullptr;
  // Driver attributes of QUERY_CONTEXT (for a process that imports the context).
  Status (*query_ucontext)(ib_ucontext&, uverbs_attr_bundle&) = nullptr;
  Result<MmapTarget> (*mmap)(ib_ucontext&, std::uint64_t pgoff, std::size_t length, int prot) = nullptr;

  Result<std::unique_ptr<ib_pd>> (*alloc_pd)(ib_device&, ib_ucontext*, Udata*) = nullptr;
  Status (*dealloc_pd)(ib_pd&) = nullptr;
  // iova and access flags (IB_ACCESS_*) as the user asked; lkey/rkey/iova/length are filled.
  Result<std::unique_ptr<ib_mr>> (*reg_user_mr)(ib_pd&, std::uint64_t start, std::uint64_t length, std::uint64_t iova, std::uint32_t access,
                                                Udata*) = nullptr;
  Status (*dereg_mr)(ib_mr&) = nullptr;

  Result<std::unique_ptr<ib_cq>> (*create_cq)(ib_device&, ib_ucontext*, const ib_cq_init_attr&, Udata*) = nullptr;
  Status (*destroy_cq)(ib_cq&) = nullptr;

  // cap is updated to what was given. No PD: XRC_TGT, which belongs to attr.xrcd.
  Result<std::unique_ptr<ib_qp>> (*create_qp)(ib_device&, ib_pd*, ib_qp_init_attr&, Udata*) = nullptr;
  Status (*modify_qp)(ib_qp&, const ib_qp_attr&, std::uint32_t attr_mask, Udata*) = nullptr;
  Status (*query_qp)(ib_qp&, ib_qp_attr&, std::uint32_t attr_mask, ib_qp_init_attr&) = nullptr;
  Status (*destroy_qp)(ib_qp&) = nullptr;

  // Optional: a null pointer makes the method or command disappear.
  Status (*query_port_speed)(ib_device&, std::uint32_t port, std::uint64_t& speed_100mbps) = nullptr;
  // attr has been resolved (dmac, sgid_attr); the driver may answer its own response (mlx5: dmac) in udata.
  Result<std::unique_ptr<ib_ah>> (*create_user_ah)(ib_pd&, const rdma_ah_attr&, Udata*) = nullptr;
  Status (*destroy_ah)(ib_ah&) = nullptr;
  // flags: IB_MR_REREG_TRANS 1, PD 2, ACCESS 4. `pd` is the new one when flags has PD, else the present one. A returned MR
  // replaces the old one (which has been destroyed); nullptr: changed in place.
  Result<std::unique_ptr<ib_mr>> (*rereg_user_mr)(ib_mr&, std::uint32_t flags, std::uint64_t start, std::uint64_t length,
                                                  std::uint64_t iova, std::uint32_t access, ib_pd& pd, Udata*) = nullptr;
  Result<std::unique_ptr<ib_mr>> (*reg_user_mr_dmabuf)(ib_pd&, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                                                       std::uint32_t access, uverbs_attr_bundle* attrs) = nullptr;
  Status (*advise_mr)(ib_pd&, std::uint32_t advice, std::uint32_t flags, const ::ib_uverbs_sge* sges, std::size_t n,
                      uverbs_attr_bundle* attrs) = nullptr;
  Result<std::unique_ptr<ib_mw>> (*alloc_mw)(ib_pd&, std::uint8_t type, Udata*) = nullptr;
  Status (*dealloc_mw)(ib_mw&) = nullptr;
  Status (*resize_cq)(ib_cq&, std::uint32_t cqe, Udata*) = nullptr;
  Status (*modify_cq)(ib_cq&, std::uint16_t cq_count, std::uint16_t cq_period) = nullptr;
  Result<std::unique_ptr<ib_srq>> (*create_srq)(ib_pd&, ib_srq_init_attr&, Udata*) = nullptr;  // attr is updated to what was given
  Status (*modify_srq)(ib_srq&, const ib_srq_attr&, std::uint32_t mask, Udata*) = nullptr;
  Status (*query_srq)(ib_srq&, ib_srq_attr&) = nullptr;
  Status (*destroy_srq)(ib_srq&) = nullptr;
  Result<std::unique_ptr<ib_xrcd>> (*alloc_xrcd)(ib_device&, Udata*) = nullptr;
  Status (*dealloc_xrcd)(ib_xrcd&) = nullptr;
  Status (*attach_mcast)(ib_qp&, const ib_gid&, std::uint16_t lid) = nullptr;
  Status (*detach_mcast)(ib_qp&, const ib_gid&, std::uint16_t lid) = nullptr;
  // attr is updated to what was given.
  Result<std::unique_ptr<ib_wq>> (*create_wq)(ib_pd&, ib_wq_init_attr&, Udata*) = nullptr;
  Status (*modify_wq)(ib_wq&, const ib_wq_attr&, std::uint32_t mask, Udata*) = nullptr;
  Status (*destroy_wq)(ib_wq&) = nullptr;
  Result<std::unique_ptr<ib_rwq_ind_table>> (*create_rwq_ind_table)(ib_device&, const std::vector<ib_wq*>&, Udata*) = nullptr;
  Status (*destroy_rwq_ind_table)(ib_rwq_ind_table&) = nullptr;
  Result<std::unique_ptr<ib_flow>> (*create_flow)(ib_qp&, const ib_flow_attr&, Udata*) = nullptr;
  Status (*destroy_flow)(ib_flow&) = nullptr;
  Result<std::unique_ptr<ib_counters>> (*create_counters)(ib_device&) = nullptr;
  Status (*destroy_counters)(ib_counters&) = nullptr;
  // Fills `n` values. EINVAL: more than the counters have.
  Status (*read_counters)(ib_counters&, std::uint64_t* values, std::uint32_t n, std::uint32_t flags) = nullptr;
  Result<std::unique_ptr<ib_dm>> (*alloc_dm)(ib_ucontext&, const ib_dm_alloc_attr&, uverbs_attr_bundle* attrs) = nullptr;
  Status (*dealloc_dm)(ib_dm&, ib_ucontext&) = nullptr;
  Result<std::unique_ptr<ib_mr>> (*reg_dm_mr)(ib_pd&, ib_dm&, const ib_dm_mr_attr&, uverbs_attr_bundle* attrs) = nullptr;
  // The driver checks the attributes that were given and keeps what it needs beside them. EOPNOTSUPP, ...
  Result<std::unique_ptr<ib_dmah>> (*alloc_dmah)(ib_ucontext&, const ib_dmah&, uverbs_attr_bundle* attrs) = nullptr;
  Status (*dealloc_dmah)(ib_dmah&) = nullptr;
  // What may be mapped at that page offset of the context, as a dma-buf (peer-to-peer). EINVAL: nothing, or nothing that can be one.
  Result<std::shared_ptr<mm::DmaBuf>> (*export_mmap)(ib_ucontext&, std::uint64_t pgoff) = nullptr;
  // The driver rejects udata that it does not know (CORE_SUPPORT_ROBUST_UDATA).
  bool robust_udata = false;

  // Kernel consumers: create_cq and create_qp without context and udata make queues that these serve. Callable on any thread, not from
  // handlers of the device's interrupts.
  Result<std::unique_ptr<mm::DmaBuffer>> (*alloc_coherent)(ib_device&, std::size_t size) = nullptr;
  // A key for all bus addresses, local access. ENOMEM, ...
  Result<std::uint32_t> (*get_dma_lkey)(ib_pd&) = nullptr;
  Status (*put_dma_lkey)(ib_pd&, std::uint32_t lkey) = nullptr;
  Status (*post_send)(ib_qp&, const ib_ud_wr&) = nullptr;  // ENOMEM: the send queue is full; EINVAL: not in RTS
  Status (*post_recv)(ib_qp&, const ib_recv_wr&) = nullptr;
  // At most `n` completions; how many.
  std::size_t (*poll_cq)(ib_cq&, ib_wc* wc, std::size_t n) = nullptr;
  // The next completion calls comp_handler. Poll once more afterwards: what came before does not count.
  Status (*req_notify_cq)(ib_cq&) = nullptr;

  // Declarations of driver-private objects, methods and attributes (null-terminated array or nullptr).
  const uapi_definition* driver_def = nullptr;
};

// Counters of live objects (Linux: restrack).
enum rdma_restrack_type : std::uint8_t {
  RDMA_RESTRACK_PD,
  RDMA_RESTRACK_CQ,
  RDMA_RESTRACK_QP,
  RDMA_RESTRACK_CM_ID,
  RDMA_RESTRACK_MR,
  RDMA_RESTRACK_CTX,
  RDMA_RESTRACK_COUNTER,
  RDMA_RESTRACK_SRQ,
  RDMA_RESTRACK_AH,
  RDMA_RESTRACK_MW,
  RDMA_RESTRACK_MAX
};

struct ib_device {
  std::string name;             // "mlx5_0"
  std::uint32_t index = 0;      // NLDEV device index
  int uverbs_minor = 0;         // /dev/infiniband/uverbsN, device 231:192+N
  std::uint64_t node_guid = 0;  // host order
  std::uint64_t sys_image_guid = 0;
  std::string node_desc;
  std::string board_id;
  std::string fw_ver;
  std::string hca_type;  // "MT4125"
  std::uint32_t hw_rev = 0;
  std::string netdev;  // interface behind port 1
  int netdev_ifindex = 0;
  std::uint16_t pci_vendor = 0, pci_device = 0;
  std::string pci_address;        // "0000:03:00.0" of the virtual slot
  std::uint32_t function_id = 0;  // number of this function on its host (1..4094), 0: there is no other
  unsigned num_ports = 1;
  unsigned num_comp_vectors = 1;
  bool roce_v1 = true;  // the port has RoCE v1 beside v2 (Linux: core_cap_flags RDMA_CORE_PORT_IBA_ROCE), so GIDs of both kinds
  ib_device_ops ops;
  ib_device_attr attrs;  // filled at registration
  std::array<std::atomic<std::uint32_t>, RDMA_RESTRACK_MAX> restrack{};

  virtual ~ib_device() = default;
  // Hooks of the data path, forwarded by the driver to its slot (see device/pci/inproc.h).
  virtual void doorbell(std::uint64_t bar_offset, std::uint64_t value) = 0;
  virtual void look_at_send_queue(std::uint32_t qpn) = 0;
  virtual void look_at_cq(std::uint32_t cqn) = 0;
  virtual void polled_empty() = 0;
  virtual void going_to_sleep() = 0;
  virtual void watch_uar(std::uint32_t uar_index, bool on) = 0;
  // A kernel consumer waits for frames although no program has opened the device. Idempotent.
  virtual void start_service() {}
  // A program is about to read the device's clock in a page that it has mapped.
  virtual void refresh_clock() {}
  // Accesses of a program to a mapping that is no memory (MmapTarget::trapped): offset in BAR 0, 1, 2, 4 or 8 aligned bytes.
  virtual std::uint64_t bar_load(std::uint64_t offset, unsigned size) {
    static_cast<void>(offset), static_cast<void>(size);
    return ~std::uint64_t{0};
  }
  virtual void bar_store(std::uint64_t offset, std::uint64_t value, unsigned size) {
    static_cast<void>(offset), static_cast<void>(value), static_cast<void>(size);
  }
  // Memory that the program is about to unmap or replace.
  virtual void invalidate_range(UserPtr va, std::size_t length, std::string_view how) = 0;
};

// ---------------------------------------------------------------- registry (core/device.cpp)

Status ib_register_device(ib_device& dev);  // assigns index, name, minor; queries attrs; fills the GID table
void ib_unregister_device(ib_device& dev);
// In a forked child: the registry is empty again. The parent's devices are not touched (their threads and locks are not here).
void ib_forget_devices_after_fork();
// Devices stay registered for the life of the instance; the vector is stable while the caller uses it.
const std::vector<ib_device*>& ib_devices();
ib_device* ib_device_by_name(std::string_view name);
ib_device* ib_device_by_minor(int minor);

// ---------------------------------------------------------------- GID cache (core/gid_table.cpp)

inline constexpr std::uint16_t kGidTableLen = 256;
// A copy of the entry; invalid when the slot is empty or out of range.
ib_gid_attr rdma_get_gid_attr(ib_device& dev, std::uint32_t port, std::uint16_t index);
// All valid entries.
std::vector<ib_gid_attr> rdma_gid_table(ib_device& dev, std::uint32_t port);
// Reads the netdev's addresses again: entries that went are deleted (ops.del_gid), new ones take free slots; a GID_CHANGE event for each.
Status rdma_refresh_gids(ib_device& dev);
// News of the host's addresses and links: a non-blocking descriptor (adopted, base/fd.h) that becomes readable when rdma_refresh_gids
// is due, and how to read it empty. Linux has notifier chains instead. -1: none to be had (logged).
int rdma_netdev_news();
void rdma_drain_netdev_news(int fd);

// ---------------------------------------------------------------- verbs with the core's own checks (core/verbs.cpp)

// The state table (Linux: ib_modify_qp_is_ok). On refusal *why says what is missing or extra.
bool ib_modify_qp_is_ok(ib_qp_state cur, ib_qp_state next, ib_qp_type type, std::uint32_t mask, std::string* why);
// Resolves the AH (sgid_index -> attr, dmac) and calls the driver. EINVAL, ENODEV, ... with reasons.
Status ib_modify_qp(ib_qp& qp, ib_qp_attr& attr, std::uint32_t mask, Udata* udata);

// The device's own reading of an AH: port, sgid_index -> sgid_attr, dmac. EINVAL, ENODEV with reasons.
Status rdma_resolve_ah(ib_device& dev, rdma_ah_attr& ah, std::uint32_t port);

// Events (enum ib_event_type: values of IBV_EVENT_*), to every registered handler of the device. Thread-safe; handlers run on
// the caller's thread.
void ib_dispatch_event(ib_device& dev, std::uint32_t ib_event, std::uint32_t port);
struct ib_event_handler {
  void (*handler)(ib_event_handler& self, ib_device& dev, std::uint32_t ib_event, std::uint32_t port) = nullptr;
  void* context = nullptr;
};
void ib_register_event_handler(ib_device& dev, ib_event_handler& h);
// Returns when no call of this handler runs any more.
void ib_unregister_event_handler(ib_device& dev, ib_event_handler& h);

// Verbs with the core's bookkeeping (usecnt, restrack): the driver's op plus EBUSY rules. Destroy keeps the object on error.
Result<std::unique_ptr<ib_pd>> ib_alloc_pd(ib_device& dev, ib_ucontext* uctx, Udata* udata);
Status ib_dealloc_pd(ib_pd& pd);  // EBUSY: something is still on it
Result<std::unique_ptr<ib_mr>> ib_reg_user_mr(ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova,
                                              std::uint32_t access, Udata* udata);
Status ib_dereg_mr(ib_mr& mr);
Result<std::unique_ptr<ib_cq>> ib_create_cq(ib_device& dev, ib_ucontext* uctx, const ib_cq_init_attr& attr, Udata* udata);
Status ib_destroy_cq(ib_cq& cq);
// pd: nullptr for XRC_TGT, where the answer is the first opening of a shared QP.
Result<std::unique_ptr<ib_qp>> ib_create_qp(ib_device& dev, ib_pd* pd, ib_qp_init_attr& attr, Udata* udata);
inline Result<std::unique_ptr<ib_qp>> ib_create_qp(ib_pd& pd, ib_qp_init_attr& attr, Udata* udata) {
  return ib_create_qp(*pd.device, &pd, attr, udata);
}
// Of an opening: closes it; the last one destroys the shared QP.
Status ib_destroy_qp(ib_qp& qp);
Status ib_query_qp(ib_qp& qp, ib_qp_attr& attr, std::uint32_t mask, ib_qp_init_attr& init);
// EINVAL: no multicast GID (ff00::/8, or an IPv4 group as a mapped address), or not a UD QP.
Status ib_attach_mcast(ib_qp& qp, const ib_gid& gid, std::uint16_t lid);
Status ib_detach_mcast(ib_qp& qp, const ib_gid& gid, std::uint16_t lid);
Result<std::unique_ptr<ib_wq>> ib_create_wq(ib_pd& pd, ib_wq_init_attr& attr, Udata* udata);
Status ib_destroy_wq(ib_wq& wq);  // EBUSY: an indirection table has it
// The WQs must not go away meanwhile.
Result<std::unique_ptr<ib_rwq_ind_table>> ib_create_rwq_ind_table(ib_device& dev, const std::vector<ib_wq*>& wqs, Udata* udata);
Status ib_destroy_rwq_ind_table(ib_rwq_ind_table& table);  // EBUSY: a QP has it
Result<std::unique_ptr<ib_flow>> ib_create_flow(ib_qp& qp, const ib_flow_attr& attr, Udata* udata);
Status ib_destroy_flow(ib_flow& flow);
Result<std::unique_ptr<ib_srq>> ib_create_srq(ib_pd& pd, ib_srq_init_attr& attr, Udata* udata);
Status ib_destroy_srq(ib_srq& srq);

// ---- XRC (core/xrc.cpp)
Result<std::unique_ptr<ib_xrcd>> ib_alloc_xrcd(ib_device& dev, Udata* udata);
Status ib_dealloc_xrcd(ib_xrcd& xrcd);  // EBUSY
// Another opening of the shared QP of that number; EINVAL: the domain has none.
Result<std::unique_ptr<ib_qp>> ib_open_qp(ib_xrcd& xrcd, std::uint32_t qp_num, ib_qp_type type);
// For ib_create_qp and ib_destroy_qp.
std::unique_ptr<ib_qp> ib_share_qp(std::unique_ptr<ib_qp> qp, ib_xrcd& xrcd);
Status ib_close_qp(ib_qp& opening);
// The access flags that reg_mr accepts (Linux: ib_check_mr_access). EINVAL, EOPNOTSUPP with reasons.
Status ib_check_mr_access(ib_device& dev, std::uint32_t access);

}  // namespace uhca::kernel

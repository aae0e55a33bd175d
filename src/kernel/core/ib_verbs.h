// SPDX-License-Identifier: MIT
// RDMA core: devices, the operations that a driver provides, and kernel verbs. Linux: <rdma/ib_verbs.h>; names as there.
// User-visible structures and constants come from the installed uapi headers (<rdma/ib_user_verbs.h>, ...).
#pragma once

#include <rdma/rdma_netlink.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernel/core/ib_ethernet.h"
#include "kernel/core/ib_objects.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel {

struct uverbs_attr_bundle;  // kernel/uverbs/attr_bundle.h
namespace mm {
class DmaBuffer;  // kernel/mm/umem.h
class DmaBuf;     // kernel/mm/dma_buf.h
}  // namespace mm

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
// The dma-buf behind `fd`, from `offset` on. EOPNOTSUPP, and what ib_check_mr_access and the driver answer.
Result<std::unique_ptr<ib_mr>> ib_reg_user_mr_dmabuf(ib_pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                                                     std::uint32_t access, uverbs_attr_bundle* attrs);
// EINVAL: what lies outside of the device memory; else as above.
Result<std::unique_ptr<ib_mr>> ib_reg_dm_mr(ib_pd& pd, ib_dm& dm, const ib_dm_mr_attr& attr, uverbs_attr_bundle* attrs);
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

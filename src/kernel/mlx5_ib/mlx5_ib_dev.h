// SPDX-License-Identifier: MIT
// The driver's own side of the core's objects. Linux: drivers/infiniband/hw/mlx5/mlx5_ib.h.
#pragma once

#include <rdma/mlx5-abi.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <vector>

#include "device/pci/inproc.h"
#include "kernel/core/ib_verbs.h"
#include "kernel/mlx5_core/mlx5_core.h"
#include "kernel/mm/umem.h"

namespace uhca::kernel {
struct uverbs_object_def;  // uverbs/uapi_def.h
}

namespace uhca::kernel::mlx5 {

// Access flags of the uapi (IB_ACCESS_*).
inline constexpr std::uint32_t kAccessLocalWrite = 1, kAccessRemoteWrite = 2, kAccessRemoteRead = 4, kAccessRemoteAtomic = 8,
                               kAccessMwBind = 16, kAccessZeroBased = 32, kAccessOnDemand = 64, kAccessRelaxedOrdering = 1u << 20;

class DevResources;
struct mlx5_ib_mr;
class ClockPages;
class UmrQueue;
class DevxEvents;  // devx.h
class FlowTables;  // fs.h
class DmPages;     // dm.h

// Numbers from 0 on, handed out smallest first.
class PageNumbers {
 public:
  std::optional<std::uint32_t> take(std::uint32_t count);
  void give_back(std::uint32_t n);

 private:
  std::mutex lock_;
  std::set<std::uint32_t> used_;
};

struct mlx5_ib_dev final : ib_device {
  explicit mlx5_ib_dev(pci::InprocEndpoint& s);
  ~mlx5_ib_dev() override;

  pci::InprocEndpoint& slot;
  std::unique_ptr<DevxEvents> devx_events;  // above mdev: events come until the event queues of mdev are gone
  std::unique_ptr<mlx5_core_dev> mdev;
  int netdev_news = -1;                  // rdma_netdev_news
  std::uint16_t devx_whitelist_uid = 0;  // for the queries of contexts without DEVX; 0: the device has no user contexts
  std::uint8_t min_inline = 0;           // nic vport context: min_wqe_inline_mode
  std::unique_ptr<DevResources> devr;
  std::unique_ptr<UmrQueue> umr;
  std::unique_ptr<FlowTables> flows;
  PageNumbers vars;
  std::unique_ptr<DmPages> dm;
  std::shared_mutex odp_lock;  // shared while an MR of the table is used
  // By key: on demand, and of dma-bufs.
  std::map<std::uint32_t, mlx5_ib_mr*> odp_mrs;
  std::unique_ptr<ClockPages> clock;

  void doorbell(std::uint64_t bar_offset, std::uint64_t value) override { slot.doorbell(bar_offset, value); }
  void look_at_send_queue(std::uint32_t qpn) override { slot.look_at_send_queue(qpn); }
  void look_at_cq(std::uint32_t cqn) override { slot.look_at_cq(cqn); }
  void polled_empty() override { slot.polled_empty(); }
  void going_to_sleep() override { slot.going_to_sleep(); }
  void start_service() override { slot.start_service(); }
  void watch_uar(std::uint32_t uar_index, bool on) override { slot.watch_uar(uar_index, on); }
  void refresh_clock() override;
  std::uint64_t bar_load(std::uint64_t offset, unsigned size) override { return slot.trapped_load(offset, size); }
  void bar_store(std::uint64_t offset, std::uint64_t value, unsigned size) override { slot.trapped_store(offset, value, size); }
  void invalidate_range(UserPtr va, std::size_t length, std::string_view how) override { mdev->domain().invalidate(va, length, how); }
};
inline mlx5_ib_dev& to_mdev(ib_device& d) {
  return static_cast<mlx5_ib_dev&>(d);
}

class PageExports;    // dmabuf.h
struct DmabufMemory;  // dmabuf.h

// A piece of the device that the program may map under a cookie.
struct MmapEntry {
  std::uint32_t page_id = 0;             // what the program calls it: a UAR page, a VAR
  std::uint64_t pgoff = 0;               // what mmap gets, in pages
  std::uint64_t bar_offset = 0;          // bytes
  std::uint64_t length = 4096;           // bytes; whole pages
  bool uar = false;                      // doorbells of queues lie in it
  bool trapped = false;                  // accesses are the device's to perform
  std::shared_ptr<void> hold;            // what mappings of it keep
  std::shared_ptr<PageExports> exports;  // as dma-bufs; made by the first
};
using UarEntry = MmapEntry;

struct mlx5_ib_ucontext final : ib_ucontext {
  std::uint32_t tdn = 0;
  std::uint16_t devx_uid = 0;  // 0: opened without DEVX
  std::uint8_t cqe_version = 0;
  bool lib_uar_dyn = false;
  std::vector<std::uint32_t> sys_pages;  // static UAR pages of programs without dynamic mode

  std::mutex lock;                              // entries
  std::map<std::uint64_t, MmapEntry*> entries;  // by page offset; owned by their uobjects
  std::uint32_t next_cookie = 0;
  std::uint32_t next_dm_index = 0;
};
inline mlx5_ib_ucontext& to_mucontext(ib_ucontext& c) {
  return static_cast<mlx5_ib_ucontext&>(c);
}

struct mlx5_ib_pd final : ib_pd {
  std::uint32_t pdn = 0;
};
inline mlx5_ib_pd& to_mpd(ib_pd& p) {
  return static_cast<mlx5_ib_pd&>(p);
}

struct mlx5_ib_mr final : ib_mr {
  mlx5_ib_mr();
  ~mlx5_ib_mr() override;
  std::uint32_t access = 0;
  // What it is made of: pinned memory, memory on demand, or neither (of the device).
  std::unique_ptr<mm::Umem> umem;
  std::unique_ptr<mm::UmemOdp> odp;
  std::unique_ptr<DmabufMemory> dmabuf;
  bool odp_implicit = false;  // the whole address space
};
inline mlx5_ib_mr& to_mmr(ib_mr& m) {
  return static_cast<mlx5_ib_mr&>(m);
}

struct KernelCq;  // kernel_queue.h
struct KernelQp;
struct Dct;          // dct.h
struct RawPacketQp;  // raw_packet.h

struct mlx5_ib_cq final : ib_cq, mlx5_core_cq {
  mlx5_ib_cq();
  ~mlx5_ib_cq() override;
  std::unique_ptr<KernelCq> kernel;            // of a kernel consumer
  std::uint32_t cqe_size = 64, size_code = 0;  // size_code: cqc.cqe_sz
  std::unique_ptr<mm::Umem> buffer, doorbell;
  std::mutex resize_lock;
  std::uint32_t hw_cqn() const override { return cqn; }
};
inline mlx5_ib_cq& to_mcq(ib_cq& c) {
  return static_cast<mlx5_ib_cq&>(c);
}

struct mlx5_ib_qp final : ib_qp, mlx5_core_qp {
  mlx5_ib_qp();
  ~mlx5_ib_qp() override;
  std::unique_ptr<KernelQp> kernel;  // of a kernel consumer
  std::unique_ptr<Dct> dct;          // a DC target: no QP of the device
  std::unique_ptr<RawPacketQp> raw;  // Ethernet: an SQ and an RQ of the device, or a TIR over an indirection table
  std::mutex lock;                   // one state change at a time
  ib_qp_state state = ib_qp_state::RESET;
  std::uint32_t atomic_rd_en = 0;  // access flags in effect
  std::uint8_t resp_depth = 0;     // max_dest_rd_atomic in effect
  std::uint8_t port_num = 0;
  std::uint32_t sq_wqe_cnt = 0, rq_wqe_cnt = 0, rq_max_gs = 0, rq_wqe_shift = 0;
  std::uint32_t max_inline_data = 0;
  bool sq_sig_all = false;
  std::unique_ptr<mm::Umem> buffer, doorbell;
};
inline mlx5_ib_qp& to_mqp(ib_qp& q) {
  return static_cast<mlx5_ib_qp&>(q);
}

enum class SrqKind : std::uint8_t { kRmp, kXrc };
struct mlx5_ib_srq final : ib_srq, mlx5_core_srq {
  SrqKind kind = SrqKind::kRmp;
  std::uint32_t max = 0, max_gs = 0;  // WQEs in the queue; scatter entries of each
  std::unique_ptr<mm::Umem> buffer, doorbell;
};
inline mlx5_ib_srq& to_msrq(ib_srq& s) {
  return static_cast<mlx5_ib_srq&>(s);
}

struct mlx5_ib_xrcd final : ib_xrcd {
  std::uint32_t xrcdn = 0;
};
inline mlx5_ib_xrcd& to_mxrcd(ib_xrcd& x) {
  return static_cast<mlx5_ib_xrcd&>(x);
}

struct mlx5_ib_rwq final : ib_wq, mlx5_core_qp {
  std::unique_ptr<mm::Umem> buffer, doorbell;
};
inline mlx5_ib_rwq& to_mrwq(ib_wq& w) {
  return static_cast<mlx5_ib_rwq&>(w);
}

struct mlx5_ib_rwq_ind_table final : ib_rwq_ind_table {
  std::uint16_t uid = 0;
};

// Operations, by file.
// main.cpp
Status query_device(ib_device&, ib_device_attr&, Udata*);
Status query_port(ib_device&, std::uint32_t port, ib_port_attr&);
// ucontext.cpp
Result<std::unique_ptr<ib_ucontext>> alloc_ucontext(ib_device&, Udata&);
void dealloc_ucontext(ib_ucontext&);
Status query_ucontext(ib_ucontext&, uverbs_attr_bundle&);
Result<MmapTarget> mmap(ib_ucontext&, std::uint64_t pgoff, std::size_t length, int prot);
::mlx5_ib_alloc_ucontext_resp ucontext_resp(mlx5_ib_dev&, mlx5_ib_ucontext&);
// Takes a UAR page of the device and gives it a cookie of this context.
Result<std::unique_ptr<UarEntry>> alloc_uar_entry(mlx5_ib_ucontext&);
Status free_uar_entry(mlx5_ib_ucontext&, UarEntry&);
// Gives the entry a cookie (pgoff); the context does not own it. ENOMEM: none is left.
Status add_mmap_entry(mlx5_ib_ucontext&, MmapEntry&);
// The same under the offsets of device memory (MLX5_IB_MMAP_DEVICE_MEM).
Status add_device_memory_entry(mlx5_ib_ucontext&, MmapEntry&);
void remove_mmap_entry(mlx5_ib_ucontext&, MmapEntry&);
// The UAR page behind what a create command says; EINVAL.
Result<std::uint32_t> uar_of_bfreg(mlx5_ib_ucontext&, std::uint32_t bfreg);
// mr.cpp
Result<std::unique_ptr<ib_pd>> alloc_pd(ib_device&, ib_ucontext*, Udata*);
Status dealloc_pd(ib_pd&);
Result<std::unique_ptr<ib_mr>> reg_user_mr(ib_pd&, std::uint64_t start, std::uint64_t length, std::uint64_t iova, std::uint32_t access,
                                           Udata*);
Result<std::unique_ptr<ib_mr>> rereg_user_mr(ib_mr&, std::uint32_t flags, std::uint64_t start, std::uint64_t length, std::uint64_t iova,
                                             std::uint32_t access, ib_pd&, Udata*);
Status dereg_mr(ib_mr&);
Result<std::unique_ptr<ib_ah>> create_user_ah(ib_pd&, const rdma_ah_attr&, Udata*);
Status destroy_ah(ib_ah&);
// cq.cpp
Result<std::unique_ptr<ib_cq>> create_cq(ib_device&, ib_ucontext*, const ib_cq_init_attr&, Udata*);
Status destroy_cq(ib_cq&);
Status resize_cq(ib_cq&, std::uint32_t cqe, Udata*);
Status modify_cq(ib_cq&, std::uint16_t cq_count, std::uint16_t cq_period);
// qp.cpp
Result<std::unique_ptr<ib_qp>> create_qp(ib_device&, ib_pd*, ib_qp_init_attr&, Udata*);
Status destroy_qp(ib_qp&);
std::uint8_t to_mlx5_st(ib_qp_type t);
// qp_modify.cpp
Status modify_qp(ib_qp&, const ib_qp_attr&, std::uint32_t attr_mask, Udata*);
Status query_qp(ib_qp&, ib_qp_attr&, std::uint32_t attr_mask, ib_qp_init_attr&);
// The user index of a create command: with CQE version 1, and only then, the program gives one. EINVAL.
Result<std::uint32_t> user_index(const mlx5_ib_ucontext&, bool given, std::uint32_t uidx);
inline constexpr std::uint32_t kDefaultUserIndex = 0xffffff;
// What qp.cpp and raw_packet.cpp share: sizes of user queues, the doorbell page. EINVAL.
Status size_receive_queue(const mlx5_core_dev&, mlx5_ib_qp&, const ib_qp_init_attr&, const ::mlx5_ib_create_qp&);
Status size_send_queue(const mlx5_core_dev&, mlx5_ib_qp&, const ib_qp_init_attr&, const ::mlx5_ib_create_qp&);
Result<std::uint32_t> uar_of(mlx5_ib_ucontext&, const ::mlx5_ib_create_qp&);
// The driver's handler of QP events.
void qp_event(mlx5_core_qp&, EventType);
// wq.cpp
Result<std::unique_ptr<ib_wq>> create_wq(ib_pd&, ib_wq_init_attr&, Udata*);
Status modify_wq(ib_wq&, const ib_wq_attr&, std::uint32_t mask, Udata*);
Status destroy_wq(ib_wq&);
Result<std::unique_ptr<ib_rwq_ind_table>> create_rwq_ind_table(ib_device&, const std::vector<ib_wq*>&, Udata*);
Status destroy_rwq_ind_table(ib_rwq_ind_table&);
// flow.cpp
Result<std::unique_ptr<ib_flow>> create_flow(ib_qp&, const ib_flow_attr&, Udata*);
Status destroy_flow(ib_flow&);
// counters.cpp
Result<std::unique_ptr<ib_counters>> create_counters(ib_device&);
Status destroy_counters(ib_counters&);
Status read_counters(ib_counters&, std::uint64_t* values, std::uint32_t n, std::uint32_t flags);
// srq.cpp
Result<std::unique_ptr<ib_srq>> create_srq(ib_pd&, ib_srq_init_attr&, Udata*);
Status modify_srq(ib_srq&, const ib_srq_attr&, std::uint32_t mask, Udata*);
Status query_srq(ib_srq&, ib_srq_attr&);
Status destroy_srq(ib_srq&);
Result<std::unique_ptr<ib_xrcd>> alloc_xrcd(ib_device&, Udata*);
Status dealloc_xrcd(ib_xrcd&);
// mw.cpp
Result<std::unique_ptr<ib_mw>> alloc_mw(ib_pd&, std::uint8_t type, Udata*);
Status dealloc_mw(ib_mw&);
// mcg.cpp
Status attach_mcast(ib_qp&, const ib_gid&, std::uint16_t lid);
Status detach_mcast(ib_qp&, const ib_gid&, std::uint16_t lid);
// var.cpp, qos.cpp
extern const uverbs_object_def var_object_def, pp_object_def;
// uapi.cpp
extern const uapi_definition mlx5_ib_defs[];

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
// The provider's private objects behind the Verbs objects that programs hold. Each begins with the seam's object (user/verbs/provider.h).
#pragma once

#include <infiniband/mlx5dv.h>
#include <pthread.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <new>

#include "uapi/hooks.h"
#include "user/mlx5/biased_lock.h"
#include "user/mlx5/cqe_parse.h"
#include "user/mlx5/queue.h"
#include "user/mlx5/wqe_build.h"
#include "user/verbs/cmd.h"
#include "user/verbs/provider.h"

namespace uhca::mlx5 {

class LockGuard {
 public:
  explicit LockGuard(BiasedLock& l) : l_(l) { l_.lock(); }
  ~LockGuard() { l_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  BiasedLock& l_;
};

class MutexGuard {
 public:
  explicit MutexGuard(pthread_mutex_t& m) : m_(m) { pthread_mutex_lock(&m_); }
  ~MutexGuard() { pthread_mutex_unlock(&m_); }
  MutexGuard(const MutexGuard&) = delete;
  MutexGuard& operator=(const MutexGuard&) = delete;

 private:
  pthread_mutex_t& m_;
};

// One mapped UAR page and the doorbell register in it.
struct Uar {
  std::uint8_t* page = nullptr;
  std::uint8_t* reg = nullptr;  // page + 0x800
  std::uint32_t page_id = 0;
  std::uint32_t handle = 0;
  std::uint32_t length = 0;
  std::uint32_t buf_size = 0;  // bytes between the two alternating halves of the register; 0: one place (NC pages)
  std::uint64_t mmap_offset = 0;
};

struct Qp;
struct Srq;
struct Rwq;
struct DbrPage;

// What a user index names: a QP, an XRC SRQ, or a receive WQ.
struct Indexed {
  Qp* qp = nullptr;
  Srq* srq = nullptr;
  Rwq* wq = nullptr;
  std::uint32_t uidx = 0;
};

inline constexpr unsigned kUidxShift = 12;
inline constexpr unsigned kUidxTable = 1u << kUidxShift;

// A fresh one is zeroed memory (made by _verbs_init_and_alloc_context), so every member must be right when all bits are 0.
struct Context {
  verbs_context_v65 vctx;
  QueueLimits limits;
  std::uint32_t bf_reg_size;
  std::uint32_t cache_line_size;
  std::uint32_t num_ports;
  std::uint32_t num_dyn_bfregs;
  std::uint32_t dump_fill_mkey;  // kInvalidLkey: none
  std::uint64_t max_dm_size;     // bytes
  std::uint8_t cmds_supp_uhw;
  bool ece;
  bool real_time_ts;
  bool single_threaded;
  bool devx;
  bool raw_csum;                // raw packet QPs on an Ethernet port: checksums filled in and verified
  std::uint8_t eth_min_inline;  // bytes of a frame's headers that must lie in the WQE
  enum ibv_atomic_cap atomic_cap;
  std::uint8_t link_layer[2];
  std::uint8_t port_flags[2];
  mlx5_ib_query_device_resp caps;
  Uar nc_uar;
  void* hca_core_clock_page;
  void* hca_core_clock;  // the timer's high word
  const mlx5_ib_clock_info* clock_info;
  pthread_mutex_t dbr_mutex;
  DbrPage* dbr_pages;
  pthread_mutex_t uidx_mutex;
  std::atomic<std::atomic<Indexed*>*> uidx_tables[kUidxTable];
  std::uint32_t uidx_used[kUidxTable];
  mlx5dv_ctx_allocators extern_alloc;
  uhca_doorbell_hook_t doorbell_hook;
  uhca_poll_hook_t poll_hook;
};

inline Context* to_ctx(ibv_context* c) {
  return reinterpret_cast<Context*>(verbs_context_of(c));
}
inline ibv_context* to_ibv(Context* c) {
  return &c->vctx.v.context;
}

// Queue memory: page aligned, zeroed, kept out of children after fork.
struct Buf {
  void* addr = nullptr;
  std::size_t size = 0;
  enum class Kind : std::uint8_t { kNone, kAnonymous, kParentDomain, kExtern } kind = Kind::kNone;
  std::uint8_t* bytes() const { return static_cast<std::uint8_t*>(addr); }
};

struct Td {
  ibv_td td;
  std::atomic<int> refs{1};
};

// A protection domain, or a parent domain around one.
struct Pd {
  ibv_pd pd;
  std::uint32_t pdn = 0;
  std::atomic<int> refs{1};
  Pd* protection = nullptr;  // parent domains only
  Td* td = nullptr;
  void* (*alloc)(ibv_pd*, void* pd_context, std::size_t size, std::size_t align, std::uint64_t type) = nullptr;
  void (*free)(ibv_pd*, void* pd_context, void* ptr, std::uint64_t type) = nullptr;
  void* pd_context = nullptr;
};
inline Pd* to_pd(ibv_pd* p) {
  return reinterpret_cast<Pd*>(p);
}

struct Ah {
  ibv_ah ah;
  bool kernel_object = false;
  std::atomic<mlx5dv_devx_obj*> mapping = nullptr;  // to a QP (mlx5dv_map_ah_to_qp)
  alignas(16) std::uint8_t av[prm::wqe_av::kBytes];
};
inline Ah* to_ah(ibv_ah* a) {
  return reinterpret_cast<Ah*>(a);
}

struct Srq {
  verbs_srq v;
  BiasedLock lock;
  Buf buf;
  std::uint32_t* db = nullptr;
  Pd* dbr_owner = nullptr;
  std::uint64_t* wrid = nullptr;
  std::uint32_t srqn = 0, wqe_shift = 0, max_gs = 0, max = 0;
  std::uint32_t head = 0, tail = 0;
  std::uint32_t counter = 0;  // WQEs ever posted
  Indexed index;              // XRC
  std::uint8_t* wqe(std::uint32_t i) const { return buf.bytes() + (std::size_t{i} << wqe_shift); }
};
inline Srq* to_srq(ibv_srq* s) {
  return reinterpret_cast<Srq*>(s);
}

struct Cq {
  verbs_cq v;
  BiasedLock lock;
  Buf buf;
  std::uint32_t* db = nullptr;
  Pd* parent = nullptr;
  std::uint32_t cqn = 0;
  std::uint32_t ncqe = 0;
  std::uint32_t cqe_shift = 6;
  std::uint32_t cons_index = 0;
  std::uint32_t arm_sn = 0;
  bool dv_owned = false;
  // The entry that start_poll/next_poll stands on.
  CqeView cur;
  Indexed* cur_index = nullptr;
  std::uint8_t cur_umr_opcode = 0;
  bool cur_csum = false;  // what it says about checksums is valid
  bool wallclock_from_cqe = false;
  mlx5dv_clock_info clock;

  // The last 64 bytes of entry n, where the CQE proper lies.
  std::uint8_t* cqe64(std::uint32_t n) const { return buf.bytes() + ((std::size_t{n & (ncqe - 1)} + 1) << cqe_shift) - prm::cqe64::kBytes; }
  bool sw_owned(std::uint32_t n) const { return cqe_owned_by_sw(__atomic_load_n(cqe64(n) + 63, __ATOMIC_ACQUIRE), n, ncqe); }
};
inline Cq* to_cq(ibv_cq* c) {
  return reinterpret_cast<Cq*>(c);
}
inline Cq* to_cq(ibv_cq_ex* c) {
  return reinterpret_cast<Cq*>(c);
}

// The work request that the ibv_wr_* calls are building.
struct WrBuild {
  std::uint32_t rollback_cur_post = 0;
  std::uint8_t rollback_fence = 0;
  std::uint8_t setters_left = 0;
  bool open = false;
  int err = 0;
  std::uint32_t nreq = 0;
  CtrlSeg ctrl;
  std::uint8_t* ctrl_seg = nullptr;
  std::uint8_t* address = nullptr;  // the segment that a setter fills
  bool eth_pending = false;         // the Ethernet segment comes with the data: headers are to be inlined
  std::uint8_t eth_flags = 0;
  // Of a key that is being configured (mkey.cpp).
  mlx5dv_mkey* mkey = nullptr;
  std::uint8_t* umr = nullptr;
  std::uint8_t* mkey_context = nullptr;
  WqeCursor cursor;
};

struct Qp {
  verbs_qp v;
  mlx5dv_qp_ex dv;
  Context* ctx = nullptr;
  Buf buf;
  SqRing ring;
  BiasedLock sq_lock, rq_lock;
  WorkQueue sq, rq;
  std::uint32_t cur_post = 0;     // in basic blocks
  std::uint32_t sq_overhead = 0;  // bytes before the data segments that a WQE has room for
  std::uint32_t transport = 0;    // bytes of the datagram, DC or XRC segment
  std::uint32_t max_inline = 0;
  std::uint8_t sq_signal_bits = 0;
  std::uint8_t next_fence = 0;
  bool atomics = false;
  std::uint32_t* db = nullptr;
  Uar* uar = nullptr;
  std::uint32_t uar_offset = 0;
  std::uint32_t uidx = 0;
  Indexed index;
  std::uint32_t get_ece = 0, set_ece = 0;
  mlx5dv_dc_type dc_type = {};  // 0: none of DC
  // RAW_PACKET
  bool rss = false;   // no queues of its own
  bool csum = false;  // Context::raw_csum, once the port is known
  std::uint32_t max_tso = 0, max_tso_header = 0;
  std::uint8_t* last_ctrl = nullptr;
  WrBuild wr;
};
inline Qp* to_qp(ibv_qp* q) {
  return reinterpret_cast<Qp*>(q);
}
inline Qp* to_qp(ibv_qp_ex* q) {
  return reinterpret_cast<Qp*>(q);
}

// A receive WQ.
struct Rwq {
  ibv_wq wq;
  BiasedLock lock;
  Buf buf;
  std::uint32_t* db = nullptr;
  Pd* parent = nullptr;
  WorkQueue rq;
  Indexed index;
};
inline Rwq* to_rwq(ibv_wq* w) {
  return reinterpret_cast<Rwq*>(w);
}

// ---- memory (buf.cpp)
inline constexpr std::uint64_t kResTypeBuf = 0;  // no mlx5dv_resource type: buffers of ibv_alloc_buf
bool alloc_buf(Context* ctx, Pd* pd, std::size_t bytes, std::uint64_t resource_type, Buf* buf);  // false: errno set
void free_buf(Context* ctx, Pd* pd, std::uint64_t resource_type, Buf* buf);
// A doorbell record (8 bytes, zero) on a cache line of its own; nullptr with errno.
std::uint32_t* alloc_dbr(Context* ctx, Pd* pd);
void free_dbr(Context* ctx, Pd* pd, std::uint32_t* db);
// The parent domain behind pd, or nullptr for an ordinary one.
inline Pd* parent_domain(ibv_pd* pd) {
  return pd && to_pd(pd)->protection ? to_pd(pd) : nullptr;
}
inline bool needs_lock(Context* ctx, ibv_pd* pd) {
  Pd* parent = parent_domain(pd);
  return !ctx->single_threaded && !(parent && parent->td);
}

// ---- user indices (uidx.cpp): what cqe64.srqn_uidx names
int store_uidx(Context* ctx, Indexed* index);  // the index, which is also written into *index; or -1
void clear_uidx(Context* ctx, std::uint32_t uidx);
inline Indexed* find_uidx(Context* ctx, std::uint32_t uidx) {
  std::atomic<Indexed*>* t = ctx->uidx_tables[(uidx >> kUidxShift) & (kUidxTable - 1)].load(std::memory_order_acquire);
  return t ? t[uidx & (kUidxTable - 1)].load(std::memory_order_acquire) : nullptr;
}

// ---- UAR pages (uar.cpp). type: MLX5_IB_UAPI_UAR_ALLOC_TYPE_*. 0 or an errno.
int alloc_uar(Context* ctx, std::uint32_t type, Uar* u);
int free_uar(Context* ctx, Uar* u);

// ---- the doorbell (doorbell.h)
struct Doorbell {
  std::uint8_t* reg = nullptr;
  std::uint64_t value = 0;  // as stored
};

// ---- operations, by file
void fill_memory_ops(verbs_context_ops* ops);  // memory.cpp: PD, MR, MW, parent and thread domains
void fill_ah_ops(verbs_context_ops* ops);      // ah.cpp
void fill_cq_ops(verbs_context_ops* ops);      // cq.cpp
void fill_srq_ops(verbs_context_ops* ops);     // srq.cpp
void fill_qp_ops(verbs_context_ops* ops);      // qp.cpp
void fill_wq_ops(verbs_context_ops* ops);      // wq.cpp
void fill_flow_ops(verbs_context_ops* ops);    // flow.cpp
// For a rule that does not come by create_flow (dv_flow.cpp): what ibv_destroy_flow takes. nullptr and ENOMEM.
ibv_flow* make_raw_flow();
void free_raw_flow(ibv_flow* flow);
void fill_dm_ops(verbs_context_ops* ops);  // dm.cpp
void get_dm(ibv_dm* in, mlx5dv_dm* out);   // for mlx5dv_init_obj

// cq.cpp
ibv_cq_ex* create_cq(ibv_context* context, const ibv_cq_init_attr_ex* attr, const mlx5dv_cq_init_attr* dv, bool extended);
int cq_poll(ibv_cq* cq, int n, ibv_wc* wc);
int fill_cq_readers(Cq* cq, const ibv_cq_init_attr_ex* attr);
// Removes the CQEs of a QP that is gone or reset and gives SRQ WQEs back. The caller holds the CQ's lock.
void clean_cq_locked(Cq* cq, std::uint32_t uidx, Srq* srq);
// srq.cpp
void srq_free_wqe(Srq* srq, std::uint32_t index);
int srq_post_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
// xrc.cpp: XRC domains, and their target QPs, which have no queues in the program
void fill_xrc_ops(verbs_context_ops* ops);
ibv_qp* create_xrc_target(ibv_context* context, ibv_qp_init_attr_ex* attr);
int destroy_xrc_target(Qp* qp);
inline bool is_xrc_target(const Qp* qp) {
  return qp->v.qp.qp_type == IBV_QPT_XRC_RECV;
}
// dc.cpp: which end of DC a QP is to be, 0 for ordinary QPs; targets, which have no queues in the program
Result<mlx5dv_dc_type> dc_type_of(const ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr* dv);
// The streams that a DCI is to have, within what the device offers.
Result<mlx5_ib_create_qp_dci_streams> dci_streams_of(const Context* ctx, const mlx5dv_qp_init_attr& dv);
ibv_qp* create_dct(ibv_context* context, ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr& dv, std::uint32_t flags);
int modify_dct(Qp* qp, const ibv_qp_attr* attr, int mask);
inline bool is_dct(const Qp* qp) {
  return qp->dc_type == MLX5DV_DCTYPE_DCT;
}
inline constexpr std::uint32_t kEceFirstVersion = 0x10000000;  // asks the kernel for ECE (rdma-core providers/mlx5/verbs.c)
// qp.cpp
ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr* dv);
// post.cpp
int qp_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int qp_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int qp_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
// wr.cpp: fills the builders for the QP's type; 0 or EOPNOTSUPP.
// dv_ops: MLX5DV_QP_EX_WITH_*.
int fill_wr_builders(Qp* qp, ibv_qp_type type, std::uint64_t ops, std::uint64_t dv_ops);
void set_wr_complete(Qp* qp, bool can_post);
// mkey.cpp: those of dv_ops that change keys
inline constexpr std::uint64_t kMkeyOps = MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
void fill_mkey_builders(Qp* qp, std::uint64_t dv_ops);
// clock.cpp
int read_core_clock(Context* ctx, std::uint64_t* cycles);
int read_clock_info(Context* ctx, mlx5dv_clock_info* info);

template <class T>
T* make() {
  T* p = new (std::nothrow) T();
  if (!p) errno = ENOMEM;
  return p;
}

// An MR that `command` registers, 0 or an errno; nullptr with errno.
template <class F>
ibv_mr* new_mr(int access, F&& command) {
  verbs_mr* mr = make<verbs_mr>();
  if (!mr) return nullptr;
  if (int err = command(mr)) {
    delete mr;
    errno = err;
    return nullptr;
  }
  mr->access = access;
  return &mr->mr;
}

// nullptr with errno, for functions that answer a pointer.
inline std::nullptr_t fail(Errno e) {
  errno = e.value;
  return nullptr;
}
inline int fail_int(Errno e) {
  errno = e.value;
  return e.value;
}

}  // namespace uhca::mlx5

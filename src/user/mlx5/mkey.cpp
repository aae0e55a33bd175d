// SPDX-License-Identifier: MIT
// mlx5dv: indirect keys, whose pieces are pieces of other keys, and the work requests that say which. Signatures and encryption are not
// here: keys for them cannot be made.
#include <algorithm>

#include "base/log.h"
#include "prm/cmd_core.h"
#include "prm/cmd_object.h"
#include "prm/context.h"
#include "prm/opcode.h"
#include "user/mlx5/devx.h"
#include "user/mlx5/post.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace uhca::mlx5 {
namespace {

constexpr std::size_t kKlm = prm::wqe_data_seg::kBytes, kListUnit = 64;
constexpr std::uint32_t kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint64_t kMaskAccess = prm::kUmrMaskLocalWrite | prm::kUmrMaskRemoteRead | prm::kUmrMaskRemoteWrite | prm::kUmrMaskAtomic;

struct Mkey {
  mlx5dv_mkey dv;
  mlx5dv_devx_obj* obj;
  std::uint32_t max_entries;
};
Mkey* to_mkey(mlx5dv_mkey* m) {
  return reinterpret_cast<Mkey*>(m);
}

void fail_batch(Qp* qp, Errno e) {
  if (!qp->wr.err) qp->wr.err = e.value;
}

// Opens the UMR: control segment, UMR control and key context, both still empty but for the key's variant.
bool begin(Qp* qp, const mlx5dv_mkey& mkey) {
  WrBuild& b = qp->wr;
  ibv_qp_ex& q = qp->v.qp_ex.base;
  if (b.err) return false;
  if (!(q.wr_flags & IBV_SEND_INLINE)) {
    fail_batch(qp, refuse(EOPNOTSUPP, "key {:#x}: its layout goes into the work request (IBV_SEND_INLINE)", mkey.lkey));
    return false;
  }
  if (sq_full(qp, b.nreq)) {
    fail_batch(qp, refuse(ENOMEM, "wr on QP {:#x}: the send queue of {} WRs is full", q.qp_base.qp_num, qp->sq.max_post));
    return false;
  }
  OpenWqe w = open_wqe(qp, WqeOpcode::UMR, q.wr_id, q.wr_flags, b.nreq, MLX5DV_WC_UMR);
  w.ctrl.imm = mkey.lkey;
  b.ctrl = w.ctrl;
  b.ctrl_seg = w.ctrl_seg;
  b.cursor = w.cursor;
  b.umr = b.cursor.take(prm::wqe_umr_ctrl_seg::kBytes);
  b.mkey_context = b.cursor.take(prm::wqe_mkey_context_seg::kBytes);
  std::memset(b.umr, 0, prm::wqe_umr_ctrl_seg::kBytes);
  std::memset(b.mkey_context, 0, prm::wqe_mkey_context_seg::kBytes);
  prm::set<prm::wqe_umr_ctrl_seg::flags>(b.umr, prm::kUmrInline);
  prm::set<prm::wqe_umr_ctrl_seg::mkey_mask>(b.umr, prm::kUmrMaskFree | prm::kUmrMaskMkey);
  prm::set<prm::wqe_mkey_context_seg::qpn_mkey>(b.mkey_context, 0xffffff00u | (mkey.lkey & 0xff));
  b.mkey = nullptr;
  b.open = true;
  ++b.nreq;
  return true;
}

void end(Qp* qp) {
  WrBuild& b = qp->wr;
  b.open = false;
  b.mkey = nullptr;
  close_wqe(qp, &b.ctrl, b.ctrl_seg, b.cursor.ds());
}

void setter_done(Qp* qp) {
  if (--qp->wr.setters_left == 0) end(qp);
}

std::uint64_t mask_of(const WrBuild& b) {
  return prm::get<prm::wqe_umr_ctrl_seg::mkey_mask>(b.umr);
}

bool put_access(Qp* qp, std::uint32_t access) {
  WrBuild& b = qp->wr;
  if (access & ~kAccess) {
    fail_batch(qp, refuse(EINVAL, "key access flags {:#x}", access));
    return false;
  }
  std::uint8_t bits = 0;
  if (access & IBV_ACCESS_LOCAL_WRITE) bits |= prm::kMkeySegLocalWrite;
  if (access & IBV_ACCESS_REMOTE_WRITE) bits |= prm::kMkeySegRemoteWrite;
  if (access & IBV_ACCESS_REMOTE_READ) bits |= prm::kMkeySegRemoteRead;
  if (access & IBV_ACCESS_REMOTE_ATOMIC) bits |= prm::kMkeySegAtomic;
  prm::set<prm::wqe_umr_ctrl_seg::mkey_mask>(b.umr, mask_of(b) | kMaskAccess);
  prm::set<prm::wqe_mkey_context_seg::access_flags>(b.mkey_context, bits);
  return true;
}

// How many pieces a work request of this QP can carry (that is what its inline data is for here).
std::size_t room(const Qp* qp, const Mkey& m) {
  return std::min<std::size_t>((qp->max_inline + prm::wqe_inline_seg::kBytes) / kKlm, m.max_entries);
}

// The list and its length; at(i) is the i-th of n pieces.
template <class At>
bool put_layout(Qp* qp, const Mkey& m, std::size_t n, At at) {
  WrBuild& b = qp->wr;
  if (n > room(qp, m)) {
    fail_batch(qp, refuse(ENOMEM, "key {:#x}: {} pieces, at most {} (its own and those of max_inline_data)", m.dv.lkey, n, room(qp, m)));
    return false;
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const ibv_sge s = at(i);
    put_data(b.cursor.take(kKlm), s.length, s.lkey, s.addr);
    length += s.length;
  }
  for (std::size_t i = n; i % (kListUnit / kKlm) != 0; ++i) std::memset(b.cursor.take(kKlm), 0, kKlm);
  prm::set<prm::wqe_umr_ctrl_seg::klm_octowords>(b.umr, align_up(n * kKlm, kListUnit) / prm::kWqeDsUnit);
  prm::set<prm::wqe_umr_ctrl_seg::mkey_mask>(b.umr, mask_of(b) | prm::kUmrMaskLen);
  prm::set<prm::wqe_mkey_context_seg::len>(b.mkey_context, length);
  return true;
}

bool put_list(Qp* qp, const Mkey& m, std::uint16_t n, const ibv_sge* sge) {
  return put_layout(qp, m, n, [sge](std::size_t i) { return sge[i]; });
}

// A pattern that repeats: a head, then the pieces with their strides (mlx5dv.h: mlx5_wqe_umr_repeat_block_seg, ..._ent_seg), both laid
// out like data segments.
bool put_interleaved(Qp* qp, const Mkey& m, std::uint32_t repeat, std::uint16_t n, const mlx5dv_mr_interleaved* d) {
  constexpr std::uint32_t kRepeat = 0x400;
  std::uint64_t once = 0;
  for (std::uint16_t i = 0; i < n; ++i) once += d[i].bytes_count;
  auto at = [&](std::size_t i) {
    if (i == 0) return ibv_sge{std::uint64_t{repeat} << 32 | n, static_cast<std::uint32_t>(once), kRepeat};
    const mlx5dv_mr_interleaved& e = d[i - 1];
    return ibv_sge{e.addr, (e.bytes_count + e.bytes_skip) << 16 | (e.bytes_count & 0xffff), e.lkey};
  };
  if (!put_layout(qp, m, n + std::size_t{1}, at)) return false;
  prm::set<prm::wqe_mkey_context_seg::len>(qp->wr.mkey_context, once * repeat);
  return true;
}

void wr_mr_list(mlx5dv_qp_ex* dv, mlx5dv_mkey* mkey, std::uint32_t access, std::uint16_t n, ibv_sge* sge) {
  Qp* qp = of_dv(dv);
  if (begin(qp, *mkey) && put_access(qp, access) && put_list(qp, *to_mkey(mkey), n, sge)) end(qp);
}
void wr_mr_interleaved(mlx5dv_qp_ex* dv, mlx5dv_mkey* mkey, std::uint32_t access, std::uint32_t repeat, std::uint16_t n,
                       mlx5dv_mr_interleaved* data) {
  Qp* qp = of_dv(dv);
  if (begin(qp, *mkey) && put_access(qp, access) && put_interleaved(qp, *to_mkey(mkey), repeat, n, data)) end(qp);
}

void wr_mkey_configure(mlx5dv_qp_ex* dv, mlx5dv_mkey* mkey, std::uint8_t setters, mlx5dv_mkey_conf_attr* attr) {
  Qp* qp = of_dv(dv);
  if (attr->comp_mask || attr->conf_flags)
    return fail_batch(qp, refuse(EOPNOTSUPP, "mkey_configure: flags {:#x}, comp_mask {:#x}", attr->conf_flags, attr->comp_mask));
  if (!begin(qp, *mkey)) return;
  qp->wr.mkey = mkey;
  qp->wr.setters_left = setters;
  if (!setters) end(qp);
}

// Whether a setter may come now; the batch is void when it may not.
bool configuring(Qp* qp) {
  if (!qp->wr.err && !(qp->wr.open && qp->wr.mkey)) fail_batch(qp, refuse(EINVAL, "a key's setter outside of mkey_configure"));
  return !qp->wr.err;
}
bool once(Qp* qp, bool before) {
  if (before) fail_batch(qp, refuse(EINVAL, "a key's setter twice in one request"));
  return !before;
}

void wr_set_access(mlx5dv_qp_ex* dv, std::uint32_t access) {
  Qp* qp = of_dv(dv);
  if (configuring(qp) && once(qp, mask_of(qp->wr) & kMaskAccess) && put_access(qp, access)) setter_done(qp);
}
void wr_set_list(mlx5dv_qp_ex* dv, std::uint16_t n, const ibv_sge* sge) {
  Qp* qp = of_dv(dv);
  if (configuring(qp) && once(qp, mask_of(qp->wr) & prm::kUmrMaskLen) && put_list(qp, *to_mkey(qp->wr.mkey), n, sge)) setter_done(qp);
}
void wr_set_interleaved(mlx5dv_qp_ex* dv, std::uint32_t repeat, std::uint16_t n, const mlx5dv_mr_interleaved* data) {
  Qp* qp = of_dv(dv);
  if (configuring(qp) && once(qp, mask_of(qp->wr) & prm::kUmrMaskLen) && put_interleaved(qp, *to_mkey(qp->wr.mkey), repeat, n, data))
    setter_done(qp);
}
void wr_set_signature(mlx5dv_qp_ex* dv, const mlx5dv_sig_block_attr*) {
  fail_batch(of_dv(dv), refuse(EOPNOTSUPP, "the device computes no signatures"));
}
void wr_set_crypto(mlx5dv_qp_ex* dv, const mlx5dv_crypto_attr*) {
  fail_batch(of_dv(dv), refuse(EOPNOTSUPP, "the device does not encrypt"));
}

}  // namespace

void fill_mkey_builders(Qp* qp, std::uint64_t dv_ops) {
  if (dv_ops & MLX5DV_QP_EX_WITH_MR_LIST) qp->dv.wr_mr_list = wr_mr_list;
  if (dv_ops & MLX5DV_QP_EX_WITH_MR_INTERLEAVED) qp->dv.wr_mr_interleaved = wr_mr_interleaved;
  if (!(dv_ops & MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)) return;
  qp->dv.wr_mkey_configure = wr_mkey_configure;
  qp->dv.wr_set_mkey_access_flags = wr_set_access;
  qp->dv.wr_set_mkey_layout_list = wr_set_list;
  qp->dv.wr_set_mkey_layout_interleaved = wr_set_interleaved;
  qp->dv.wr_set_mkey_sig_block = wr_set_signature;
  qp->dv.wr_set_mkey_crypto = wr_set_crypto;
}

}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT mlx5dv_mkey* mlx5dv_create_mkey(mlx5dv_mkey_init_attr* attr) {
  ibv_context* context = attr->pd->context;
  constexpr std::uint32_t known = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  if (!attr->create_flags || (attr->create_flags & ~known))
    return mlx5::fail(refuse(EOPNOTSUPP, "mlx5dv_create_mkey: create_flags {:#x}", attr->create_flags));
  auto* m = make<mlx5::Mkey>();
  if (!m) return nullptr;
  m->max_entries = static_cast<std::uint32_t>(align_up(std::uint64_t{attr->max_entries}, mlx5::kListUnit / mlx5::kKlm));
  std::uint8_t in[prm::create_mkey_in::kBytes] = {}, out[prm::create_mkey_out::kBytes] = {};
  prm::set<prm::create_mkey_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::CREATE_MKEY));
  void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(static_cast<void*>(in));
  prm::set<prm::mkc::access_mode_1_0>(mkc, prm::kMkeyModeKlms);
  prm::set<prm::mkc::free>(mkc, 1);
  prm::set<prm::mkc::umr_en>(mkc, 1);
  prm::set<prm::mkc::pd>(mkc, to_pd(attr->pd)->pdn);
  prm::set<prm::mkc::translations_octword_size>(mkc, m->max_entries);
  prm::set<prm::mkc::lr>(mkc, 1);
  prm::set<prm::mkc::qpn>(mkc, 0xffffff);
  prm::set<prm::mkc::en_rinval>(mkc, attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE ? 1 : 0);
  m->obj = mlx5dv_devx_obj_create(context, in, sizeof in, out, sizeof out);
  if (!m->obj) {
    int err = command_error(errno, out);
    delete m;
    errno = err;
    return nullptr;
  }
  attr->max_entries = static_cast<std::uint16_t>(m->max_entries);
  m->dv.lkey = m->dv.rkey = prm::get<prm::create_mkey_out::mkey_index>(out) << 8;
  return &m->dv;
}

UHCA_EXPORT int mlx5dv_destroy_mkey(mlx5dv_mkey* dv) {
  auto* m = reinterpret_cast<mlx5::Mkey*>(dv);
  if (int err = mlx5dv_devx_obj_destroy(m->obj)) return err;
  delete m;
  return 0;
}

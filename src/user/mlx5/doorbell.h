// SPDX-License-Identifier: MIT
// Ringing doorbells: the doorbell record in memory first, then one 64-bit store to the mapped UAR page, then the hook, if the process has
// one (uapi/hooks.h). Order as the device demands it: WQEs, record, register.
#pragma once

#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

// Everything written before is visible to the device before what follows.
inline void to_device_barrier() {
  std::atomic_thread_fence(std::memory_order_release);
}
inline void mmio_barrier() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline void write_dbr(std::uint32_t* rec, std::uint32_t v) {
  __atomic_store_n(rec, __builtin_bswap32(v), __ATOMIC_RELEASE);
}

// A device across PCI needs the records before the register, and the register soon. To one that the hook calls the register is memory.
inline void write_uar(const Context* ctx, const Doorbell& d) {
  if (!ctx->doorbell_hook) mmio_barrier();
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(d.reg), d.value, __ATOMIC_RELEASE);
  if (!ctx->doorbell_hook) mmio_barrier();
}

// Tells the device about `nreq` new send WQEs; the caller holds the SQ lock. The answer goes to call_hook() once the lock is released,
// since the hook may run the send engine on this thread.
inline Doorbell ring_sq(Qp* qp, std::uint32_t nreq, const std::uint8_t* last_ctrl) {
  qp->sq.head += nreq;
  to_device_barrier();
  write_dbr(&qp->db[prm::kSndDbr], qp->cur_post & 0xffff);
  Doorbell d;
  d.reg = qp->uar->reg + qp->uar_offset;
  std::memcpy(&d.value, last_ctrl, sizeof d.value);
  write_uar(qp->ctx, d);
  qp->uar_offset ^= qp->uar->buf_size;
  return d;
}

inline void call_hook(Context* ctx, const Doorbell& d) {
  if (d.reg && ctx->doorbell_hook) ctx->doorbell_hook(d.reg, d.value);
}

}  // namespace uhca::mlx5

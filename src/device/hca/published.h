// SPDX-License-Identifier: MIT
// What an HCA function publishes for the functions of its host and user: the direct memory keys and the responders of its QPs, so that
// an initiator can check and execute WRITE and READ itself (DESIGN, decision 5; pci/shared_area.h). The published tables say yes only:
// whatever is not in them, or does not allow the operation, goes as packets (host_packet.h, or frames) and gets its answer, or its NAK,
// there.
//
// Each entry is guarded by a sequence word that is 0 while the entry is empty or changes; readers take it before and after. Written
// with the lane's lock held.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/hca/objects.h"

namespace uhca::hca {

inline constexpr std::uint32_t kPublishedReadable = 1, kPublishedWritable = 2;

// All values in host byte order.
struct alignas(64) PublishedMkey {
  std::atomic<std::uint32_t> seq;
  std::atomic<std::uint32_t> key;
  std::atomic<std::uint32_t> pd;
  std::atomic<std::uint32_t> rights;       // kPublished*: remote read, remote write
  std::atomic<std::uint64_t> start;        // first virtual address of the key
  std::atomic<std::uint64_t> len;          // bytes
  std::atomic<std::uint64_t> address;      // where `start` lies in the owner's address space
  std::atomic<std::uint64_t> range_state;  // of the IOMMU's range, as it must still be
  std::atomic<std::uint32_t> range;
};

// The responder of one RC QP.
struct alignas(64) PublishedQp {
  std::atomic<std::uint32_t> seq;
  std::atomic<std::uint32_t> qpn;
  std::atomic<std::uint32_t> remote_qpn;
  std::atomic<std::uint32_t> pd;
  std::atomic<std::uint32_t> rights;         // remote operations that the QP enables
  std::atomic<std::uint32_t> writes, reads;  // executed by the initiator; only grow
  std::atomic<std::uint64_t> path;           // path_hash() of (our GID, peer's GID)
  std::atomic<std::uint64_t> progress;       // ePSN | MSN << 24 | busy << 48: the truth while the entry stands
};
inline constexpr std::uint64_t kResponderBusy = std::uint64_t{1} << 48;  // in the middle of a message, or holding a NAK back

inline constexpr std::uint32_t kPublishedMkeys = 1u << 16;  // by index
inline constexpr std::uint32_t kPublishedQps = 1u << 12;    // by QPN modulo this

struct PublishedTables {
  PublishedMkey mkeys[kPublishedMkeys];
  PublishedQp qps[kPublishedQps];
};

// A number that tells paths apart.
std::uint64_t path_hash(const wire::Gid& responder, const wire::Gid& requester);

constexpr std::uint64_t pack_progress(std::uint32_t epsn, std::uint32_t msn) {
  return epsn | std::uint64_t{msn} << 24;
}
constexpr std::uint32_t progress_epsn(std::uint64_t p) {
  return p & 0xffffff;
}
constexpr std::uint32_t progress_msn(std::uint64_t p) {
  return p >> 24 & 0xffffff;
}

class Publisher {
 public:
  // `tables`: zero, in memory that others can see; nullptr: nothing is ever published.
  explicit Publisher(PublishedTables* tables) : tables_(tables) {}

  // The key is new or has changed, and its window is open: publishes it if others can use it, else withdraws what stood there.
  void mkey(const Mkey& m);
  void withdraw_mkey(std::uint32_t key);
  // Likewise after state and attribute changes of a QP.
  void qp(Qp& qp);
  // The responder stands where its initiator has left it.
  void withdraw_qp(Qp& qp);

 private:
  PublishedTables* tables_;
  std::uint32_t next_seq_ = 1;
  std::uint32_t fresh_seq();
};

// Takes over what initiators have done since the last call, and publishes what the responder did itself. For QPs that are not published:
// nothing. Both with the lane's lock held.
struct Lane;
void count_one_sided(Lane& lane, Qp& qp);  // the counters alone
void load_progress(Lane& lane, Qp& qp);
void store_progress(Qp& qp);

}  // namespace uhca::hca

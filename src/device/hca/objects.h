// SPDX-License-Identifier: MIT
// The HCA's objects as its command interface creates them and its engine uses them. Guarded by the lane's lock (hca.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "device/hca/eth_objects.h"
#include "device/hca/flow_steering.h"
#include "device/hca/number_map.h"
#include "device/pci/bus.h"
#include "device/pci/host_window.h"
#include "prm/cmd_object.h"
#include "prm/context.h"
#include "prm/cq_moderation.h"
#include "prm/queue_context.h"
#include "wire/roce/roce.h"

namespace uhca::hca {

// A queue buffer as commands describe it: a list of pages of 2^log_page bytes, starting page_offset bytes into the first.
struct QueueBuffer {
  std::vector<pci::DmaAddr> pages;
  unsigned log_page = 12;
  std::uint32_t page_offset = 0;  // bytes
  std::uint64_t bytes = 0;        // usable size
  pci::HostWindow window;         // on all of it

  void open_window(pci::Bus& bus) {
    if (pages.empty() || bytes == 0) return window.close();
    for (std::size_t i = 1; i < pages.size(); ++i)
      if (pages[i] != pages[0] + (std::uint64_t{i} << log_page)) return window.close();
    window.open(bus, at(0), bytes);
  }
  pci::DmaAddr at(std::uint64_t off) const {
    off += page_offset;
    return pages[off >> log_page] + (off & ((std::uint64_t{1} << log_page) - 1));
  }
};

// mkc.access_mode (Linux device.h: MLX5_MKC_ACCESS_MODE_*).
enum class MkeyMode : std::uint8_t { kPa = 0, kMtt = 1, kKlms = 2, kKsm = 3, kSwIcm = 4, kMemic = 5 };

// One entry of an indirect key's list: `byte_count` bytes of `key` from `va` on (KSM: all entries 1 << log_page bytes).
struct Klm {
  std::uint32_t byte_count = 0;
  std::uint32_t key = 0;
  std::uint64_t va = 0;
  std::uint64_t end = 0;  // bytes of the list up to here, this entry included (index_klms)
};

struct Mkey {
  std::uint32_t key = 0;  // index << 8 | variant byte: what lkey and rkey are
  MkeyMode mode = MkeyMode::kMtt;
  bool free = false;  // allocated but not usable until a UMR turns it on
  bool lr = false, lw = false, rr = false, rw = false, atomic = false;
  bool length64 = false;  // the whole address space
  bool umr_en = false;
  std::uint32_t pd = 0;
  std::uint32_t qpn = 0xffffff;  // bound to one QP, or any
  std::uint64_t start = 0;       // first virtual address
  std::uint64_t len = 0;         // bytes
  unsigned log_page = 12;
  std::uint64_t memic = 0;                           // mode kMemic: where the key's address 0 lies, as an offset in the BAR
  pci::HostWindow window;                            // on [start, start + len), if that is one range
  std::vector<pci::DmaAddr> mtt;                     // page addresses, flag bits removed; entry 0 holds the page of `start`
  std::vector<Klm> klms;                             // modes kKlms and kKsm
  std::uint32_t octwords = 0;                        // room for translations, in 16-byte units: what a UMR may load
  std::array<std::uint8_t, prm::mkc::kBytes> mkc{};  // as created, for QUERY_MKEY
};

struct Eq {
  std::uint32_t eqn = 0;
  unsigned log_size = 0;
  std::uint32_t uar = 0;
  unsigned vector = 0;
  unsigned users = 0;            // CQs that report here
  std::uint64_t event_mask = 0;  // bit per event type (create_eq_in.event_bitmask[0])
  QueueBuffer buf;               // 64-byte EQEs
  std::uint32_t pi = 0;
  std::uint32_t ci = 0;  // as the last doorbell said, 24 bits
  bool armed = false;    // fires the vector at the next EQE
  std::array<std::uint8_t, prm::eqc::kBytes> eqc{};
};

struct Cq {
  std::uint32_t cqn = 0;
  unsigned log_size = 0;
  unsigned cqe_size = 64;  // 64 or 128
  QueueBuffer buf;
  pci::DmaAddr dbr = 0;
  pci::HostWindow dbr_window;
  std::uint32_t uar = 0;
  std::uint32_t eqn = 0;
  bool overrun_ignore = false;
  bool collapsed = false;  // cqc.cc: every CQE goes to entry 0
  bool error = false;      // overrun happened: no more CQEs are written
  std::uint32_t pi = 0;    // CQEs written since creation
  std::uint32_t ci = 0;    // consumer index last read from the doorbell record, 24 bits
  enum class Arm : std::uint8_t { kNone, kAny, kSolicited } arm = Arm::kNone;
  static constexpr std::uint32_t kNeverArmed = 4;
  std::uint32_t arm_sn = kNeverArmed;  // sequence number of the last arm that was acted on (2 bits)
  std::uint32_t arm_ci = 0;
  std::uint32_t arm_word = 0;      // doorbell record word 1 as last acted on
  std::uint32_t solicited_pi = 0;  // `pi` just behind the last solicited or error CQE
  unsigned users = 0;              // QPs and other objects that complete here
  unsigned period = 0;             // moderation: microseconds ...
  unsigned max_count = 0;          // ... and CQEs that an event may wait for (cq_moderation.h)
  prm::CqPeriodMode period_mode = prm::CqPeriodMode::kEvent;
  bool event_held = false;     // in Lane::held_events
  std::uint32_t event_pi = 0;  // `pi` at the last event while moderated
  Nanos event_at = 0;          // when that was
  Nanos cqe_at = 0;            // when the last CQE was, while moderated
  std::array<std::uint8_t, prm::cqc::kBytes> cqc{};
};

enum class QpState : std::uint8_t { kReset = 0, kInit = 1, kRtr = 2, kRts = 3, kSqErr = 4, kErr = 6, kSqDrain = 7, kSqDrained = 8 };

constexpr bool takes_frames(QpState s) {
  return s == QpState::kRtr || s == QpState::kRts || s == QpState::kSqDrain || s == QpState::kSqDrained || s == QpState::kSqErr;
}

// qpc.st (Linux qp.h: MLX5_QP_ST_*).
enum class QpType : std::uint8_t {
  kRc = 0x0,
  kUc = 0x1,
  kUd = 0x2,
  kXrc = 0x3,
  kDci = 0x5,
  kQp0 = 0x7,
  kQp1 = 0x8,
  kRegUmr = 0xc,
  kDctSession = 0xff,  // the engine's own: a DCT's responder towards one initiator
};

// A shared receive queue: verbs SRQ (RMP with ISSI 1, SRQ with ISSI 0) or XRC SRQ. One number space.
struct Srq {
  enum class Kind : std::uint8_t { kSrq, kXrcSrq, kRmp };
  std::uint32_t srqn = 0;
  Kind kind = Kind::kRmp;
  std::uint32_t pd = 0;
  std::uint32_t xrcd = 0;
  Cq* cq = nullptr;              // XRC SRQ: where its receives complete
  std::uint32_t user_index = 0;  // XRC SRQ: goes into CQEs
  unsigned log_size = 0;         // WQEs
  unsigned log_stride = 4;       // bytes, log2
  bool cyclic = false;           // a ring; else WQEs are linked by their next segment's index
  QueueBuffer buf;
  pci::DmaAddr dbr = 0;
  std::uint16_t lwm = 0;  // armed limit; 0: not armed
  bool rlky = false;      // reserved lkey allowed
  bool error = false;
  std::uint16_t head = 0;                                 // index of the WQE that is taken next
  std::uint16_t hw_counter = 0;                           // WQEs taken, 16 bits as the doorbell record counts
  std::uint16_t sw_counter = 0;                           // WQEs posted, as last read
  unsigned users = 0;                                     // QPs that receive from it
  std::array<std::uint8_t, prm::rmpc::kBytes> context{};  // as created: rmpc, srqc or xrc_srqc
};

// The WQE that came with the doorbell: taken from there, not from memory, if its turn is now.
struct BlueFlame {
  const std::uint8_t* wqe = nullptr;  // 64 bytes, while the doorbell is being served
  std::uint16_t index = 0;
};

// An Ethernet send or receive queue (SQ, RQ): QPNs, SQNs and RQNs are disjoint.
struct RawQueue {
  enum class State : std::uint8_t { kReset = 0, kReady = 1, kError = 3 };
  std::uint32_t number = 0;
  bool send = false;
  State state = State::kReset;
  std::uint32_t pd = 0;
  std::uint32_t uar = 0;  // SQ
  Cq* cq = nullptr;
  std::uint32_t user_index = 0;
  std::uint32_t tisn = 0;  // SQ; 0: none (internal operations only)
  unsigned log_size = 0;   // WQEs (RQ) or basic blocks (SQ)
  unsigned log_stride = 6;
  QueueBuffer buf;
  pci::DmaAddr dbr = 0;
  BlueFlame blue_flame;             // SQ
  std::uint16_t hw_counter = 0;     // next WQE (RQ) or basic block (SQ) that the device takes, 16 bits as the doorbell record counts
  std::uint16_t sw_counter = 0;     // producer index as last read
  std::uint32_t segments_sent = 0;  // SQ: packets of the WQE at hw_counter that have left
  bool sending = false;             // SQ: on the stack right now (local loopback may come back to its CQ)
  bool rlky = false;                // reserved lkey allowed
  bool flush_in_error = false;      // WQEs of a queue in error complete with errors; else they vanish
  unsigned users = 0;               // RQ: TIRs and RQTs that point here
  std::array<std::uint8_t, prm::rqc::kBytes> context{};  // rqc or sqc
};

// Services with acknowledges and retries; the others complete a request when it has been sent.
constexpr bool is_reliable(QpType t) {
  return t == QpType::kRc || t == QpType::kXrc || t == QpType::kDci || t == QpType::kDctSession;
}
constexpr bool is_datagram(QpType t) {
  return t == QpType::kUd || t == QpType::kQp1;
}
// Services that send to one peer at a time.
constexpr bool has_peer(QpType t) {
  return is_reliable(t) || t == QpType::kUc;
}

// One counter set (ALLOC_Q_COUNTER), laid out as QUERY_Q_COUNTER answers it.
struct CounterSet {
  std::array<std::uint8_t, prm::query_q_counter_out::kBytes> raw{};
  template <prm::Field F>
  void add(std::uint32_t n = 1) {
    prm::set<F>(raw.data(), prm::get<F>(raw.data()) + n);
  }
};

struct QpTransport;  // the engine's part (qp_transport.h)

struct Qp {
  std::uint32_t qpn = 0;
  QpType type = QpType::kRc;
  QpState state = QpState::kReset;
  std::uint32_t pd = 0;
  std::uint32_t uar = 0;
  std::uint32_t user_index = 0xffffff;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  std::uint32_t srqn = 0;                                  // with rq_type SRQ/RMP/XRC
  Srq* srq = nullptr;                                      // the same
  std::uint32_t xrcd = 0;                                  // XRC
  std::uint8_t counter_set = 0;                            // 0: none
  std::uint32_t group_requester = 0, group_responder = 0;  // scheduling elements; 0: none
  bool has_rq = true;                                      // own receive queue (rq_type 0)
  QueueBuffer buf;                                         // RQ first, then SQ (qpc.no_sq / rq_type say what is there)
  pci::DmaAddr dbr = 0;
  pci::HostWindow dbr_window;
  BlueFlame blue_flame;
  unsigned log_sq_size = 0;  // basic blocks of 64 bytes
  bool has_sq = true;
  unsigned log_rq_size = 0;         // WQEs
  unsigned log_rq_stride = 4;       // bytes, log2 (qpc.log_rq_stride + 4)
  bool rlky = false;                // reserved lkey allowed
  bool fre = false;                 // fast registration: UMRs may load page lists (kernel QPs)
  bool block_lb_mc = false;         // gets no copies of its own multicasts
  std::uint32_t deth_sqpn = 0;      // UD: source QPN that it shows; 0: its own
  unsigned scatter_to_cqe_req = 0;  // cs_req: READ and atomic responses of up to so many bytes go into the CQE
  unsigned scatter_to_cqe_res = 0;  // cs_res: likewise receives
  // What the state changes set.
  std::uint32_t remote_qpn = 0;
  unsigned mtu_bytes = 1024;
  unsigned log_msg_max = 30;
  std::uint32_t qkey = 0;
  bool rre = false, rwe = false, rae = false;  // remote read / write / atomic enabled at this responder
  unsigned retry_count = 0;
  unsigned rnr_retry = 0;
  unsigned ack_timeout = 0;    // 4.096 us << n; 0: never
  unsigned min_rnr_nak = 0;    // IBTA timer code
  unsigned max_rd_atomic = 0;  // outstanding READ/atomic as requester
  unsigned max_dest_rd_atomic = 0;
  std::uint32_t next_send_psn = 0;
  std::uint32_t next_rcv_psn = 0;
  wire::NetHeader path;  // template of outgoing packets
  std::uint16_t pkey_index = 0;
  // DC: of the initiator's session with its target (wire::DcEth). Kept over RESET: session numbers only move on.
  std::uint16_t dc_session = 0;
  std::uint32_t dc_start_psn = 0;
  std::uint64_t dc_key = 0;
  Nanos dc_last_use = 0;  // target's side
  std::unique_ptr<QpTransport> transport;
  std::array<std::uint8_t, prm::qpc::kBytes> qpc{};  // as the driver wrote it, for QUERY_QP

  std::uint64_t sq_offset() const { return has_rq ? (std::uint64_t{1} << (log_rq_size + log_rq_stride)) : 0; }

  Qp();
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;
};

// Bytes (qpc.log_msg_max; 0: what the device can do).
inline std::uint64_t max_message(const Qp& qp) {
  return std::uint64_t{1} << (qp.log_msg_max == 0 ? 30 : qp.log_msg_max);
}
// Of the path MTU, for so much payload: one at least. Most payload is short, and a division is not.
inline std::uint32_t packets_of(const Qp& qp, std::uint64_t bytes) {
  return bytes <= qp.mtu_bytes ? 1 : static_cast<std::uint32_t>((bytes + qp.mtu_bytes - 1) / qp.mtu_bytes);
}

// roce_addr_layout.roce_version; bit numbers of roce_cap.roce_version (Linux mlx5/driver.h: MLX5_ROCE_VERSION_*).
inline constexpr std::uint8_t kRoceV1 = 0, kRoceV2 = 2;

// Who talks to a DCT.
struct DcInitiator {
  wire::Gid gid{};
  std::uint32_t qpn = 0;
  auto operator<=>(const DcInitiator&) const = default;
};

// A DC target: what all its sessions share, and the sessions.
struct Dct {
  std::uint32_t dctn = 0;
  std::uint32_t pd = 0;
  Cq* cq = nullptr;
  Srq* srq = nullptr;
  std::array<std::uint8_t, prm::dctc::kBytes> context{};
  bool drained = false;
  std::uint32_t key_violations = 0;
  std::map<DcInitiator, std::unique_ptr<Qp>> sessions;
};

// One entry of the RoCE address table (SET_ROCE_ADDRESS).
struct RoceAddress {
  bool valid = false;
  bool ipv6 = false;  // roce_l3_type
  std::uint8_t version = kRoceV2;
  wire::Gid gid{};
  wire::Mac mac{};
  std::uint16_t vlan = 0xffff;
};

class Memic;  // memic.h

// The tables that the engine looks things up in.
struct Objects {
  Memic* memic = nullptr;  // of the HCA; nullptr: it has no memory of its own
  NumberMap<Mkey> mkeys;   // by index (key >> 8)
  std::unordered_map<std::uint32_t, std::unique_ptr<Eq>> eqs;
  NumberMap<Cq> cqs;
  NumberMap<Qp> qps;
  NumberMap<Srq> srqs;
  std::unordered_map<std::uint32_t, std::unique_ptr<RawQueue>> raw_queues;  // SQs and RQs by number
  std::unordered_map<std::uint32_t, Tis> tises;
  std::unordered_map<std::uint32_t, Tir> tirs;
  std::unordered_map<std::uint32_t, Rqt> rqts;
  Steering steering;
  VportState vport;
  PortState port;
  std::unordered_map<std::uint32_t, std::unique_ptr<Dct>> dcts;
  std::unordered_map<std::uint32_t, CounterSet> counter_sets;
  std::map<wire::Gid, std::vector<std::uint32_t>> multicast;  // QPNs attached to a multicast GID
  Qp* gsi = nullptr;                                          // the QP that answers as QP1
  std::vector<RoceAddress> roce_addresses{256};

  Mkey* mkey(std::uint32_t key) const { return mkeys.find(key >> 8); }
  Eq* eq(std::uint32_t n) const {
    auto it = eqs.find(n);
    return it == eqs.end() ? nullptr : it->second.get();
  }
  Cq* cq(std::uint32_t n) const { return cqs.find(n); }
  Srq* srq(std::uint32_t n) const { return srqs.find(n); }
  RawQueue* raw_queue(std::uint32_t n) const {
    auto it = raw_queues.find(n);
    return it == raw_queues.end() ? nullptr : it->second.get();
  }
  CounterSet* counter_set(std::uint32_t n) {
    auto it = counter_sets.find(n);
    return it == counter_sets.end() ? nullptr : &it->second;
  }
  Dct* dct(std::uint32_t n) const {
    auto it = dcts.find(n);
    return it == dcts.end() ? nullptr : it->second.get();
  }
  Qp* qp(std::uint32_t n) const { return qps.find(n); }
};

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
#include "device/hca/host_packet.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/rcu.h"
#include "base/types.h"
#include "device/hca/published.h"
#include "device/hca/qp_transport.h"
#include "wire/net/ring.h"

namespace uhca::hca {
namespace {

// What a record begins with, in host byte order; behind it the extension headers of the opcode as on the wire, then the payload or the
// pieces.
struct HostHeader {
  std::uint64_t path;  // path_hash() of (receiver's GID, sender's GID)
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t packets;
  std::uint32_t dest_qpn;
  std::uint32_t psn;
  std::uint32_t length;  // bytes of payload, carried or to be fetched
  std::uint32_t sender_seq;
  std::uint32_t pieces;
};
static_assert(sizeof(HostHeader) == 32);
constexpr std::uint8_t kSolicited = 1, kAckReq = 2, kFetch = 4;

constexpr std::size_t kMostBehindHeader = wire::kMaxExtBytes + std::max<std::size_t>(kMaxHostValue, kMaxFetchPieces * sizeof(RangePiece));
static_assert(sizeof(HostHeader) + kMostBehindHeader <= wire::kMaxHostRecord);

// Starts a record with its headers; returns what comes behind them, nullptr: no room.
std::byte* begin(Lane& lane, wire::PeerFunction& to, const Qp& qp, const wire::Packet& p, HostHeader h, std::size_t behind) {
  const wire::OpcodeInfo& row = wire::info(p.bth.opcode);
  std::byte* at = lane.port.begin_record(to, sizeof h + row.ext_bytes + behind);
  if (at == nullptr) {
    ++lane.counters.tx_busy;
    return nullptr;
  }
  h.path = qp.transport->peer_path;
  h.opcode = static_cast<std::uint8_t>(p.bth.opcode);
  h.flags = static_cast<std::uint8_t>(h.flags | (p.bth.solicited ? kSolicited : 0) | (p.bth.ack_req ? kAckReq : 0));
  h.packets = static_cast<std::uint16_t>(packets_of(qp, h.length));
  h.dest_qpn = p.bth.dest_qp;
  h.psn = p.bth.psn;
  std::memcpy(at, &h, sizeof h);
  at += sizeof h;
  wire::emit_extensions(p, row.props, reinterpret_cast<std::uint8_t*>(at));
  return at + row.ext_bytes;
}

bool is_senders(PublishedTables& tables, const Qp& qp, std::uint32_t seq) {
  const PublishedQp& e = tables.qps[qp.remote_qpn % kPublishedQps];
  return seq != 0 && e.seq.load(std::memory_order_acquire) == seq && e.qpn.load(std::memory_order_relaxed) == qp.remote_qpn;
}

}  // namespace

std::uint64_t by_value(const Qp& qp, std::uint64_t left) {
  return std::min<std::uint64_t>(left, kMaxHostValue / qp.mtu_bytes * qp.mtu_bytes);
}

std::uint64_t to_fetch(const Qp& qp, std::uint64_t left) {
  // Only a sender that has an answer from there knows that its own memory can be reached.
  if (left <= kMaxHostValue || !qp.transport->peer_reaches_us || qp.transport->shared == nullptr) return 0;
  return std::min<std::uint64_t>(left, std::uint64_t{kMaxFetchPackets} * qp.mtu_bytes);
}

std::byte* begin_host_packet(Lane& lane, wire::PeerFunction& to, const Qp& qp, const wire::Packet& p, std::uint32_t payload) {
  HostHeader h{};
  h.length = payload;
  return begin(lane, to, qp, p, h, payload);
}

bool begin_fetch_packet(Lane& lane, wire::PeerFunction& to, const Qp& qp, const wire::Packet& p, std::uint32_t payload,
                        std::span<const RangePiece> pieces) {
  HostHeader h{};
  h.flags = kFetch;
  h.length = payload;
  h.sender_seq = qp.transport->shared->seq.load(std::memory_order_relaxed);
  h.pieces = static_cast<std::uint32_t>(pieces.size());
  std::byte* at = begin(lane, to, qp, p, h, pieces.size_bytes());
  if (at == nullptr) return false;
  std::memcpy(at, pieces.data(), pieces.size_bytes());
  return true;
}

void count_host_packet(const Qp& qp, const wire::Packet& p, std::uint32_t length, Traffic& port, Traffic& rdma) {
  const std::uint32_t packets = packets_of(qp, length);
  const std::size_t around = wire::frame_size(p) - p.payload.size() - (-p.payload.size() & 3);  // headers and ICRC
  for (Traffic* t : {&port, &rdma}) {
    if (packets == 1) {
      t->add_unicast(around + align_up(length, 4), 1);
      continue;
    }
    const std::uint32_t last = length - (packets - 1) * qp.mtu_bytes;
    t->add_unicast(around + qp.mtu_bytes, 1);
    const std::size_t bare = around - wire::info(p.bth.opcode).ext_bytes;  // of those in the middle
    if (packets > 2) t->add_unicast(bare + qp.mtu_bytes, packets - 2);
    t->add_unicast(bare + align_up(last, 4), 1);
  }
}

void commit_host_packet(Lane& lane, const Qp& qp, const wire::Packet& p) {
  lane.port.commit_record(*lane.host_out);
  lane.counters.tx_frames += packets_of(qp, static_cast<std::uint32_t>(p.payload.size()));
  count_host_packet(qp, p, static_cast<std::uint32_t>(p.payload.size()), lane.counters.port_tx, lane.counters.rdma_tx);
}

bool parse_host_packet(std::span<const std::byte> record, wire::Packet& p, HostBody& body, std::uint64_t* path) {
  HostHeader h;
  if (record.size() < sizeof h) return false;
  std::memcpy(&h, record.data(), sizeof h);  // once: its writer runs on
  p.bth.opcode = static_cast<wire::Opcode>(h.opcode);
  const wire::OpcodeInfo& row = wire::info(p.bth.opcode);
  if (row.name == nullptr || wire::service_of(p.bth.opcode) != wire::Service::kRC) return false;
  // As many packets as the data may need; without data it is one.
  const bool data = wire::has(row.props, wire::Prop::kPayload);
  if (h.packets == 0 || h.packets > (data ? kMaxFetchPackets : 1) || h.length > h.packets * std::uint32_t{4096}) return false;
  if (record.size() < sizeof h + row.ext_bytes || h.dest_qpn > 0xffffff || h.psn > wire::kPsnMask) return false;
  std::span<const std::byte> behind = record.subspan(sizeof h + row.ext_bytes);
  std::uint8_t ext[wire::kMaxExtBytes];
  std::memcpy(ext, record.data() + sizeof h, row.ext_bytes);
  wire::parse_extensions(p, row.props, ext);
  *path = h.path;
  p.bth.solicited = (h.flags & kSolicited) != 0;
  p.bth.ack_req = (h.flags & kAckReq) != 0;
  p.bth.dest_qp = h.dest_qpn;
  p.bth.psn = h.psn;
  body.packets = h.packets;
  body.length = h.length;
  body.fetch = (h.flags & kFetch) != 0;
  if (!body.fetch) {
    p.payload = behind;
    return behind.size() == h.length && (data || h.length == 0);
  }
  if (!data || !wire::has(row.props, wire::Prop::kRequest) || h.length == 0) return false;
  if (h.pieces == 0 || h.pieces > kMaxFetchPieces || behind.size() != h.pieces * sizeof(RangePiece)) return false;
  body.sender_seq = h.sender_seq;
  body.pieces = h.pieces;
  std::memcpy(body.at, behind.data(), behind.size());
  std::uint64_t left = h.length;
  for (const RangePiece& piece : std::span(body.at, body.pieces)) {
    if (piece.bytes == 0 || piece.bytes > left) return false;
    left -= piece.bytes;
  }
  return left == 0;
}

bool fetch_payload(Lane& lane, const Qp& qp, const HostBody& body, const Pieces& pieces) {
  wire::PeerFunction* peer = direct_peer(lane, qp);
  if (peer == nullptr) return false;
  Holding holding(*peer);
  auto& tables = *static_cast<PublishedTables*>(pci::SharedArea::device_part_of(peer->area));
  std::span<const RangePiece> theirs(body.at, body.pieces);
  if (!is_senders(tables, qp, body.sender_seq)) return false;
  if (!std::all_of(theirs.begin(), theirs.end(), [&](const RangePiece& p) { return still_there(peer->area, p); })) return false;
  if (!copy_between(peer->pid, CopyWay::kFromThem, pieces.get(), theirs)) return false;
  // The sender's program gets its memory back when the message completes, be it with an error: what was fetched after that is not the
  // message.
  std::atomic_thread_fence(std::memory_order_acquire);
  return is_senders(tables, qp, body.sender_seq);
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
// What the tests of the HCA stand on: a bus that checks every access, a port whose frames can be inspected and dropped, a
// driver that talks to the command interface exactly as a real one does (entries and mailboxes in memory, doorbell in the BAR),
// and a bench that has brought a device up.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/hca/hca.h"
#include "device/pci/bus.h"
#include "device/pci/shared_area.h"
#include "prm/cmd_core.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/cmd_vport.h"
#include "prm/context.h"
#include "prm/cqe.h"
#include "prm/event.h"
#include "prm/opcode.h"
#include "wire/net/port.h"

namespace uhca::hcatest {

// Memory at bus addresses kBase and up. Only what alloc() handed out is mapped, with the permissions it asked for; behind every
// allocation lies an unmapped page. Every refused access is counted and described.
class FakeBus final : public pci::Bus {
 public:
  enum Access : std::uint8_t { kNone = 0, kRead = 1, kWrite = 2, kRw = 3 };
  static constexpr pci::DmaAddr kBase = 0x100000000;
  static constexpr std::size_t kPage = 4096;

  explicit FakeBus(std::size_t bytes = std::size_t{256} << 20) : size_(bytes), access_(bytes / kPage, kNone) {
    mem_ = static_cast<std::uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  ~FakeBus() override { munmap(mem_, size_); }

  // Bytes, rounded up to pages; aligned to `align` (a power of two >= 4096). Zeroed.
  pci::DmaAddr alloc(std::size_t len, std::size_t align = kPage, Access access = kRw) {
    std::lock_guard<std::mutex> g(mutex_);
    std::size_t at = (next_ + align - 1) & ~(align - 1);
    std::size_t pages = (len + kPage - 1) / kPage;
    if (pages == 0) pages = 1;
    if (at + (pages + 1) * kPage > size_) {
      ADD_FAILURE() << "FakeBus is full";
      return 0;
    }
    for (std::size_t i = 0; i < pages; ++i) access_[at / kPage + i] = access;
    next_ = at + (pages + 1) * kPage;
    return kBase + at;
  }
  // Takes back what was handed out since mark().
  std::size_t mark() const { return next_; }
  void rewind(std::size_t to) {
    std::lock_guard<std::mutex> g(mutex_);
    std::fill(access_.begin() + static_cast<std::ptrdiff_t>(to / kPage), access_.begin() + static_cast<std::ptrdiff_t>(next_ / kPage),
              kNone);
    std::memset(mem_ + to, 0, next_ - to);
    next_ = to;
  }
  // What the device may do with these pages from now on (kNone: unmapped).
  void set_access(pci::DmaAddr addr, std::size_t len, Access access) {
    std::lock_guard<std::mutex> g(mutex_);
    for (std::size_t p = (addr - kBase) / kPage; p <= (addr - kBase + len - 1) / kPage; ++p) access_[p] = access;
  }
  // The driver's own view; must be within one allocation.
  std::uint8_t* host(pci::DmaAddr addr) { return mem_ + (addr - kBase); }
  template <class T>
  T be(pci::DmaAddr addr) {
    return load_be<T>(host(addr));
  }
  void put_be32(pci::DmaAddr addr, std::uint32_t v) { store_be<std::uint32_t>(host(addr), v); }

  bool dma_read(void* dst, pci::DmaAddr src, std::size_t len) override {
    std::lock_guard<std::mutex> g(mutex_);
    ++accesses_;
    if (!check(src, len, kRead)) return false;
    std::memcpy(dst, mem_ + (src - kBase), len);
    return true;
  }
  bool dma_write(pci::DmaAddr dst, const void* src, std::size_t len) override {
    std::lock_guard<std::mutex> g(mutex_);
    ++accesses_;
    if (!check(dst, len, kWrite)) return false;
    std::memcpy(mem_ + (dst - kBase), src, len);
    return true;
  }
  bool dma_load32(pci::DmaAddr src, std::uint32_t* value) override {
    if (src % 4 != 0) {
      ADD_FAILURE() << "unaligned dma_load32 at " << std::hex << src;
      return false;
    }
    return dma_read(value, src, 4);
  }
  bool dma_store32(pci::DmaAddr dst, std::uint32_t value) override {
    if (dst % 4 != 0) {
      ADD_FAILURE() << "unaligned dma_store32 at " << std::hex << dst;
      return false;
    }
    return dma_write(dst, &value, 4);
  }
  bool dma_write_last_byte_last(pci::DmaAddr dst, const void* src, std::size_t len) override {
    if (len == 0 || len > 64 || dst / kPage != (dst + len - 1) / kPage) {
      ADD_FAILURE() << "dma_write_last_byte_last of " << len << " bytes at " << std::hex << dst;
      return false;
    }
    return dma_write(dst, src, len);
  }
  bool dma_cas64(pci::DmaAddr addr, std::uint64_t* expected, std::uint64_t desired) override {
    if (addr % 8 != 0) {
      ADD_FAILURE() << "unaligned dma_cas64 at " << std::hex << addr;
      return false;
    }
    std::lock_guard<std::mutex> g(mutex_);
    ++accesses_;
    if (!check(addr, 8, kRead) || !check(addr, 8, kWrite)) return false;
    std::uint64_t found;
    std::memcpy(&found, mem_ + (addr - kBase), 8);
    if (found == *expected) std::memcpy(mem_ + (addr - kBase), &desired, 8);
    *expected = found;
    return true;
  }
  // With an area: all memory is one range of it, at its own address.
  static constexpr std::uint32_t kRange = 7;
  pci::SharedArea* area = nullptr;
  bool resolve(pci::DmaAddr addr, std::size_t len, pci::DmaDir dir, pci::HostRange* out) override {
    std::lock_guard<std::mutex> g(mutex_);
    if (area == nullptr || !check(addr, len, dir == pci::DmaDir::kToDevice ? kRead : kWrite)) return false;
    *out = {reinterpret_cast<std::uintptr_t>(mem_ + (addr - kBase)), kRange, area->range_states()[kRange].load(),
            &area->range_states()[kRange]};
    return true;
  }
  const char* last_fault() const override { return fault_; }
  void raise(unsigned vector) override {
    std::lock_guard<std::mutex> g(mutex_);
    raised_.push_back(vector);
  }

  // Vectors raised since the last call, in order.
  std::vector<unsigned> take_raised() {
    std::lock_guard<std::mutex> g(mutex_);
    return std::exchange(raised_, {});
  }
  std::uint64_t faults() const { return faults_; }
  std::uint64_t accesses() const { return accesses_; }

 private:
  bool check(pci::DmaAddr addr, std::size_t len, Access want) {
    fault_ = "none";
    if (len == 0) return true;
    bool inside = addr >= kBase && addr - kBase < size_ && len <= size_ - (addr - kBase);
    if (!inside) {
      fault_ = "outside of memory";
      ++faults_;
      return false;
    }
    for (std::size_t p = (addr - kBase) / kPage; p <= (addr - kBase + len - 1) / kPage; ++p) {
      if ((access_[p] & want) == want) continue;
      fault_ = access_[p] == kNone ? "unmapped" : want == kWrite ? "not writable" : "not readable";
      ++faults_;
      return false;
    }
    return true;
  }

  std::mutex mutex_;
  std::uint8_t* mem_;
  std::size_t size_;
  std::vector<std::uint8_t> access_;
  std::size_t next_ = 16 * kPage;
  std::vector<unsigned> raised_;
  std::uint64_t faults_ = 0;
  std::uint64_t accesses_ = 0;
  const char* fault_ = "none";
};

// A port on a wire that is a pair of queues. Frames that the device sends are recorded in `sent` and, unless the hook says
// otherwise, go to the peer's receive queue (a port may be its own peer: loopback).
class FakePort final : public wire::Port {
 public:
  using Bytes = std::vector<std::byte>;
  enum class Verdict : std::uint8_t { kDeliver, kDrop, kBusy, kUnreachable };

  void connect(FakePort* peer) { peer_ = peer; }
  // Called for every frame before anything happens to it; may change it.
  std::function<Verdict(Bytes&)> on_send;
  std::vector<Bytes> sent;  // every frame accepted or dropped, as on_send left it
  std::deque<Bytes> incoming;
  bool asleep = false;
  // Set: the peer takes host packets. They are kept in `records` as they lie in the ring; on_record sees them when they are committed.
  wire::PeerFunction* near = nullptr;
  std::function<void(Bytes&)> on_record;
  std::deque<Bytes> records;
  std::size_t record_room = 64;  // so many at a time
  std::uint64_t records_sent = 0, longest_record = 0;

  void inject(Bytes frame) { incoming.push_back(std::move(frame)); }

  wire::Send send(wire::Frame frame) override {
    Bytes copy(frame.begin(), frame.end());
    EXPECT_LE(copy.size(), wire::kMaxFrame);
    Verdict v = on_send ? on_send(copy) : Verdict::kDeliver;
    if (v == Verdict::kBusy) return wire::Send::kBusy;
    sent.push_back(copy);
    if (v == Verdict::kUnreachable) return wire::Send::kUnreachable;
    if (v == Verdict::kDeliver && peer_ != nullptr) peer_->incoming.push_back(std::move(copy));
    return wire::Send::kSent;
  }
  unsigned poll(wire::FrameSink& sink, unsigned budget, bool) override {
    unsigned n = 0;
    while (n < budget && !incoming.empty()) {
      Bytes frame = std::move(incoming.front());
      incoming.pop_front();
      ++n;
      sink.receive(frame);
    }
    while (n < budget && !records.empty() && !hold_records) {
      Bytes record = std::move(records.front());
      records.pop_front();
      ++n;
      sink.receive_record(record);
    }
    return n;
  }
  unsigned quiet_words(std::span<const std::uint32_t*>) override { return incoming.empty() && records.empty() ? 0 : kMustPoll; }
  bool hold_records = false;         // the receiver does not run
  unsigned asked_before_gone = ~0u;  // so often the peer is still there
  wire::PeerFunction* peer(const wire::Gid&, std::uint32_t) override {
    if (asked_before_gone == 0) return nullptr;
    --asked_before_gone;
    return near;
  }
  std::byte* begin_record(wire::PeerFunction&, std::size_t bytes) override {
    if (records.size() >= record_room) return nullptr;
    begun_.assign(bytes, std::byte{0xee});
    return begun_.data();
  }
  void commit_record(wire::PeerFunction&) override {
    ++records_sent;
    longest_record = std::max<std::uint64_t>(longest_record, begun_.size());
    if (on_record) on_record(begun_);
    records.push_back(begun_);
  }
  void set_asleep(bool a) override { asleep = a; }

 private:
  FakePort* peer_ = nullptr;
  Bytes begun_;
};

// Hands out blocks from `first`; at most `blocks` of them.
class FakeLease final : public hca::QpnLease {
 public:
  explicit FakeLease(std::uint32_t first = 0x1000, unsigned blocks = 8) : next_(first), left_(blocks) {}
  std::uint32_t lease_block() override {
    if (left_ == 0) return 0;
    --left_;
    ++leased;
    return std::exchange(next_, next_ + hca::kQpnBlock);
  }
  unsigned leased = 0;

 private:
  std::uint32_t next_;
  unsigned left_;
};

// One command's input: a layout's bytes, the opcode filled in, and room for what follows it (pas, MTTs).
template <class Layout>
class Request {
 public:
  explicit Request(prm::Opcode op, std::uint16_t op_mod = 0, std::size_t extra = 0) : bytes(Layout::kBytes + extra) {
    prm::set<prm::cmd_in::opcode>(bytes.data(), static_cast<std::uint16_t>(op));
    prm::set<prm::cmd_in::op_mod>(bytes.data(), op_mod);
  }
  template <prm::Field F>
  Request& set(std::uint64_t v, std::size_t i = 0) {
    prm::set<F>(bytes.data(), v, i);
    return *this;
  }
  template <prm::Field F>
  void* at(std::size_t i = 0) {
    return prm::at<F>(static_cast<void*>(bytes.data()), i);
  }
  std::vector<std::uint8_t> bytes;
};

struct Reply {
  bool completed = false;  // the ownership bit was cleared
  prm::DeliveryStatus delivery{};
  std::vector<std::uint8_t> out;

  prm::CmdStatus status() const { return static_cast<prm::CmdStatus>(out.empty() ? 0xff : out[0]); }
  std::uint32_t syndrome() const { return prm::get<prm::cmd_out::syndrome>(out.data()); }
  bool ok() const { return completed && delivery == prm::DeliveryStatus::OK && status() == prm::CmdStatus::OK; }
  template <prm::Field F>
  auto get(std::size_t i = 0) const {
    return prm::get<F>(out.data(), i);
  }
  template <prm::Field F>
  const void* at(std::size_t i = 0) const {
    return prm::at<F>(static_cast<const void*>(out.data()), i);
  }
};

// Owns a command queue in the bus's memory and executes commands through it.
class CommandDriver {
 public:
  CommandDriver(hca::Hca& hca, FakeBus& bus) : hca_(hca), bus_(bus), queue_(bus.alloc(4096)) { attach(); }
  // Tells the device where the queue is; again after a reset.
  void attach() {
    write_reg(0x10, static_cast<std::uint32_t>(queue_ >> 32));
    write_reg(0x14, static_cast<std::uint32_t>(queue_));
  }

  // Big-endian registers, as a driver's ioread32be/iowrite32be.
  std::uint32_t read_reg(std::uint64_t off) { return byteswap(static_cast<std::uint32_t>(hca_.mmio_read(off, 4))); }
  void write_reg(std::uint64_t off, std::uint32_t v) { hca_.mmio_write(off, byteswap(v), 4); }

  static constexpr std::size_t kInline = 16, kMailboxData = 512;
  pci::DmaAddr entry(unsigned slot) const { return queue_ + slot * 64; }

  // A chain of mailboxes that holds `len` bytes beyond the inline 16; 0 when none is needed.
  pci::DmaAddr make_chain(const std::uint8_t* data, std::size_t len, std::uint8_t token) {
    pci::DmaAddr head = 0, prev = 0;
    for (std::size_t block = 0; block * kMailboxData < len; ++block) {
      pci::DmaAddr box = bus_.alloc(prm::cmd_if_box::kBytes);
      void* b = bus_.host(box);
      std::size_t n = std::min(kMailboxData, len - block * kMailboxData);
      if (data != nullptr) std::memcpy(b, data + block * kMailboxData, n);
      prm::set<prm::cmd_if_box::block_number>(b, block);
      prm::set<prm::cmd_if_box::token>(b, token);
      if (prev != 0) {
        store_be<std::uint64_t>(bus_.host(prev) + prm::byte_of<prm::cmd_if_box::next_pointer_63_32>, box);
      } else {
        head = box;
      }
      prev = box;
    }
    return head;
  }

  // Writes the entry of `slot`, ownership bit set, without ringing.
  void prepare(unsigned slot, const std::vector<std::uint8_t>& in, std::size_t out_len) {
    std::uint8_t* e = bus_.host(entry(slot));
    std::uint8_t token = static_cast<std::uint8_t>(++token_ == 0 ? ++token_ : token_);
    std::memset(e, 0, 64);
    prm::set<prm::cmd_queue_entry::type>(e, 7);
    prm::set<prm::cmd_queue_entry::input_length>(e, in.size());
    std::memcpy(e + 16, in.data(), std::min(in.size(), kInline));
    if (in.size() > kInline) {
      store_be<std::uint64_t>(e + prm::byte_of<prm::cmd_queue_entry::input_mailbox_pointer_63_32>,
                              make_chain(in.data() + kInline, in.size() - kInline, token));
    }
    if (out_len > kInline) {
      store_be<std::uint64_t>(e + prm::byte_of<prm::cmd_queue_entry::output_mailbox_pointer_63_32>,
                              make_chain(nullptr, out_len - kInline, token));
    }
    prm::set<prm::cmd_queue_entry::output_length>(e, out_len);
    prm::set<prm::cmd_queue_entry::token>(e, token);
    prm::set<prm::cmd_queue_entry::ownership>(e, 1);
  }
  void ring(std::uint32_t mask) { write_reg(0x18, mask); }

  // Reads back what the device wrote.
  Reply collect(unsigned slot) {
    Reply r;
    const std::uint8_t* e = bus_.host(entry(slot));
    r.completed = prm::get<prm::cmd_queue_entry::ownership>(e) == 0;
    r.delivery = static_cast<prm::DeliveryStatus>(prm::get<prm::cmd_queue_entry::status>(e));
    std::size_t out_len = prm::get<prm::cmd_queue_entry::output_length>(e);
    if (r.delivery != prm::DeliveryStatus::OK) out_len = 16;  // the rest may be garbage
    r.out.resize(std::max<std::size_t>(out_len, 16));
    std::memcpy(r.out.data(), e + 32, std::min<std::size_t>(16, r.out.size()));
    pci::DmaAddr box = load_be<std::uint64_t>(e + prm::byte_of<prm::cmd_queue_entry::output_mailbox_pointer_63_32>);
    for (std::size_t at = kInline; at < out_len && box != 0; at += kMailboxData) {
      const std::uint8_t* b = bus_.host(box);
      std::memcpy(r.out.data() + at, b, std::min(kMailboxData, out_len - at));
      box = load_be<std::uint64_t>(b + prm::byte_of<prm::cmd_if_box::next_pointer_63_32>);
    }
    return r;
  }

  Reply exec(const std::vector<std::uint8_t>& in, std::size_t out_len = 16) {
    prepare(0, in, out_len);
    ring(1);
    return collect(0);
  }
  template <class Layout>
  Reply exec(const Request<Layout>& in, std::size_t out_len = 16) {
    return exec(in.bytes, out_len);
  }

 private:
  hca::Hca& hca_;
  FakeBus& bus_;
  pci::DmaAddr queue_;
  std::uint8_t token_ = 0;
};

struct CqHandle {
  std::uint32_t cqn = 0;
  pci::DmaAddr buf = 0, dbr = 0;
  unsigned log_size = 0, cqe_size = 64;
};
struct EqHandle {
  std::uint32_t eqn = 0;
  pci::DmaAddr buf = 0;
  unsigned log_size = 0;
};
struct QpSpec {
  hca::QpType type = hca::QpType::kRc;
  std::uint32_t pd = 0, uar = 0, send_cqn = 0, recv_cqn = 0;
  unsigned log_sq = 6;      // basic blocks of 64 bytes
  unsigned log_rq = 6;      // WQEs
  unsigned log_stride = 4;  // bytes, log2
  std::uint32_t user_index = 0x5a5a5;
  std::uint32_t srqn = 0;
  unsigned rq_type = 0;  // 0 own RQ, 1 SRQ/RMP, 3 none
  bool no_sq = false;
  bool rlky = false;
  unsigned cs_req = 0, cs_res = 0;  // scatter to CQE codes
  std::uint32_t xrcd = 0, deth_sqpn = 0;
  bool block_lb_mc = false, fre = false;
  unsigned log_streams = 0, log_errored = 0;  // DCI
};
struct QpHandle {
  std::uint32_t qpn = 0;
  pci::DmaAddr buf = 0, rq = 0, sq = 0, dbr = 0;
  QpSpec spec;
};
struct PathSpec {
  std::uint32_t remote_qpn = 0;
  unsigned sgid_index = 0;
  wire::Gid dgid{};
  wire::Mac dmac{};
  unsigned hop_limit = 64, tclass = 0;
  std::uint32_t flow_label = 0;
  std::uint16_t udp_sport = 0;
  unsigned mtu = 3;  // IBTA code: 1024 bytes
  std::uint32_t rq_psn = 0, sq_psn = 0;
  unsigned retry = 7, rnr_retry = 7, ack_timeout = 14, min_rnr_nak = 12;
  unsigned log_sra_max = 2, log_rra_max = 2;
  bool rre = true, rwe = true, rae = true;
  unsigned atomic_mode = 3;  // up to 8 bytes
  std::uint32_t qkey = 0;
};

// A device with everything around it. bring_up() does what a driver does up to the first queue.
class Bench {
 public:
  explicit Bench(std::uint32_t first_qpn = 0x1000, unsigned blocks = 8, std::uint8_t mac_last = 0x50, unsigned netdev_mtu = 1500,
                 bool shared = false)
      : area(shared ? pci::SharedArea::create() : nullptr),
        lease(first_qpn, blocks),
        config(make_config(mac_last, netdev_mtu, area.get())),
        hca(config, bus, port, clock, lease),
        cmd(hca, bus) {
    bus.area = area.get();
  }

  static hca::HcaConfig make_config(std::uint8_t mac_last, unsigned netdev_mtu = 1500, pci::SharedArea* area = nullptr) {
    hca::HcaConfig c;
    c.published = area != nullptr ? area->device_part() : nullptr;
    c.netdev_mtu = netdev_mtu;
    c.mac = {0x02, 0x10, 0x20, 0x30, 0x40, mac_last};
    c.node_guid = 0x021020fffe304000 | mac_last;
    c.num_vectors = 4;
    return c;
  }

  std::unique_ptr<pci::SharedArea> area;
  FakeBus bus;
  FakePort port;
  VirtualClock clock;
  FakeLease lease;
  hca::HcaConfig config;
  hca::Hca hca;
  CommandDriver cmd;
  std::uint32_t uar = 0, pd = 0;
  EqHandle cmd_eq, async_eq, comp_eq;

  using Op = prm::Opcode;

  // ENABLE_HCA up to INIT_HCA, pages given.
  void init() {
    ASSERT_TRUE(cmd.exec(Request<prm::enable_hca_in>(Op::ENABLE_HCA), 12).ok());
    ASSERT_TRUE(cmd.exec(Request<prm::set_issi_in>(Op::SET_ISSI).set<prm::set_issi_in::current_issi>(1)).ok());
    give_pages(1);
    give_pages(2);
    ASSERT_TRUE(cmd.exec(Request<prm::init_hca_in>(Op::INIT_HCA)).ok());
  }
  // Asks with QUERY_PAGES (1 boot, 2 init) and gives that many.
  void give_pages(std::uint16_t which) {
    Reply q = cmd.exec(Request<prm::query_pages_in>(Op::QUERY_PAGES, which));
    ASSERT_TRUE(q.ok());
    std::uint32_t n = q.get<prm::query_pages_out::num_pages>();
    Request<prm::manage_pages_in> give(Op::MANAGE_PAGES, 1, n * 8);
    give.set<prm::manage_pages_in::input_num_entries>(n);
    for (std::uint32_t i = 0; i < n; ++i) give.set<prm::manage_pages_in::pas>(bus.alloc(4096), i);
    ASSERT_TRUE(cmd.exec(give).ok());
  }
  // ... and the three EQs (command, async, completion on vector 1), a UAR and a PD.
  void bring_up() {
    init();
    uar = alloc_uar();
    cmd_eq = create_eq(8, 0, std::uint64_t{1} << 0x0a);
    async_eq = create_eq(8, 0, 0x301f02be);  // as mlx5_core: every affiliated event, DCT events
    comp_eq = create_eq(8, 1, 0);
    pd = alloc_pd();
    bus.take_raised();
  }

  std::uint32_t alloc_uar() {
    Reply r = cmd.exec(Request<prm::alloc_uar_in>(Op::ALLOC_UAR));
    EXPECT_TRUE(r.ok());
    return r.get<prm::alloc_uar_out::uar>();
  }
  std::uint32_t alloc_pd() {
    Reply r = cmd.exec(Request<prm::alloc_pd_in>(Op::ALLOC_PD));
    EXPECT_TRUE(r.ok());
    return r.get<prm::alloc_pd_out::pd>();
  }
  template <class R>
  void put_pas(R& req, prm::Field pas, pci::DmaAddr buf, std::size_t bytes) {
    for (std::size_t i = 0; i < (bytes + 4095) / 4096; ++i) prm::set(req.bytes.data(), pas, buf + i * 4096, i);
  }
  static std::size_t pas_bytes(std::size_t bytes) { return (bytes + 4095) / 4096 * 8; }

  EqHandle create_eq(unsigned log_size, unsigned vector, std::uint64_t mask) {
    EqHandle h;
    std::size_t bytes = std::size_t{64} << log_size;
    h.log_size = log_size;
    h.buf = bus.alloc(bytes);
    for (std::size_t i = 0; i < std::size_t{1} << log_size; ++i) bus.host(h.buf)[i * 64 + 63] = 1;  // hardware owns all
    Request<prm::create_eq_in> r(Op::CREATE_EQ, 0, pas_bytes(bytes));
    void* c = r.at<prm::create_eq_in::eq_context_entry>();
    prm::set<prm::eqc::log_eq_size>(c, log_size);
    prm::set<prm::eqc::uar_page>(c, uar);
    prm::set<prm::eqc::intr>(c, vector);
    r.set<prm::create_eq_in::event_bitmask>(mask);
    put_pas(r, prm::create_eq_in::pas, h.buf, bytes);
    Reply out = cmd.exec(r);
    EXPECT_TRUE(out.ok());
    h.eqn = out.get<prm::create_eq_out::eq_number>();
    return h;
  }
  Request<prm::create_cq_in> cq_request(unsigned log_size, CqHandle& h, unsigned cqe_size = 64) {
    std::size_t bytes = std::size_t{cqe_size} << log_size;
    h.log_size = log_size;
    h.cqe_size = cqe_size;
    h.buf = bus.alloc(bytes);
    h.dbr = bus.alloc(64);
    for (std::size_t i = 0; i < std::size_t{1} << log_size; ++i) bus.host(h.buf)[(i + 1) * cqe_size - 1] = prm::kCqeOwnerInitial;
    Request<prm::create_cq_in> r(Op::CREATE_CQ, 0, pas_bytes(bytes));
    void* c = r.at<prm::create_cq_in::cq_context>();
    prm::set<prm::cqc::cqe_sz>(c, cqe_size == 128 ? 1 : 0);
    prm::set<prm::cqc::log_cq_size>(c, log_size);
    prm::set<prm::cqc::uar_page>(c, uar);
    prm::set<prm::cqc::c_eqn_or_apu_element>(c, comp_eq.eqn);
    prm::set<prm::cqc::dbr_addr>(c, h.dbr);
    put_pas(r, prm::create_cq_in::pas, h.buf, bytes);
    return r;
  }
  CqHandle create_cq(unsigned log_size, unsigned cqe_size = 64) {
    CqHandle h;
    Reply out = cmd.exec(cq_request(log_size, h, cqe_size));
    EXPECT_TRUE(out.ok());
    h.cqn = out.get<prm::create_cq_out::cqn>();
    return h;
  }
  // A direct key over [va, va + len) whose memory lies at `mem` (page-aligned to va's offset). Returns lkey = rkey. Access bits:
  // local write, remote read, remote write, atomic (local read always).
  struct Access {
    bool lw = true, rr = true, rw = true, a = true;
  };
  std::uint32_t create_mkey(std::uint64_t va, std::uint64_t len, pci::DmaAddr mem, Access acc) {
    return create_mkey_in_pd(pd, va, len, mem, acc);
  }
  std::uint32_t create_mkey(std::uint64_t va, std::uint64_t len, pci::DmaAddr mem) { return create_mkey(va, len, mem, Access{}); }
  std::uint32_t create_mkey_in_pd(std::uint32_t in_pd, std::uint64_t va, std::uint64_t len, pci::DmaAddr mem, Access acc) {
    std::size_t pages = (va % 4096 + len + 4095) / 4096;
    Request<prm::create_mkey_in> r(Op::CREATE_MKEY, 0, (pages * 8 + 15) / 16 * 16);
    void* c = r.at<prm::create_mkey_in::memory_key_mkey_entry>();
    mkc(c, in_pd, va, len, acc);
    prm::set<prm::mkc::access_mode_1_0>(c, 1);
    prm::set<prm::mkc::log_page_size>(c, 12);
    prm::set<prm::mkc::translations_octword_size>(c, (pages + 1) / 2);
    r.set<prm::create_mkey_in::translations_octword_actual_size>((pages + 1) / 2);
    for (std::size_t i = 0; i < pages; ++i)
      store_be<std::uint64_t>(r.bytes.data() + prm::create_mkey_in::kBytes + i * 8, ((mem & ~pci::DmaAddr{4095}) + i * 4096) | 3);
    return created_mkey(r);
  }
  // All of memory by bus address (PA mode, as the kernel's own key).
  std::uint32_t create_pa_mkey() {
    Request<prm::create_mkey_in> r(Op::CREATE_MKEY);
    void* c = r.at<prm::create_mkey_in::memory_key_mkey_entry>();
    mkc(c, pd, 0, 0, Access{});
    prm::set<prm::mkc::length64>(c, 1);
    return created_mkey(r);
  }
  QpHandle create_qp(const QpSpec& spec) {
    QpHandle h;
    Reply out = cmd.exec(qp_request(spec, h));
    EXPECT_TRUE(out.ok()) << "CREATE_QP status " << static_cast<int>(out.status());
    h.qpn = out.get<prm::create_qp_out::qpn>();
    return h;
  }
  Request<prm::create_qp_in> qp_request(const QpSpec& spec, QpHandle& h) {
    std::size_t rq = spec.rq_type == 0 ? std::size_t{1} << (spec.log_rq + spec.log_stride) : 0;
    std::size_t sq = spec.no_sq ? 0 : std::size_t{64} << spec.log_sq;
    h.spec = spec;
    h.buf = bus.alloc(rq + sq);
    h.rq = h.buf;
    h.sq = h.buf + rq;
    h.dbr = bus.alloc(64);
    Request<prm::create_qp_in> r(Op::CREATE_QP, 0, pas_bytes(rq + sq));
    void* c = r.at<prm::create_qp_in::qpc>();
    prm::set<prm::qpc::st>(c, static_cast<unsigned>(spec.type));
    prm::set<prm::qpc::pm_state>(c, 3);
    prm::set<prm::qpc::pd>(c, spec.pd ? spec.pd : pd);
    prm::set<prm::qpc::uar_page>(c, spec.uar ? spec.uar : uar);
    prm::set<prm::qpc::log_sq_size>(c, spec.log_sq);
    prm::set<prm::qpc::no_sq>(c, spec.no_sq);
    prm::set<prm::qpc::rq_type>(c, spec.rq_type);
    if (spec.rq_type == 0) {
      prm::set<prm::qpc::log_rq_size>(c, spec.log_rq);
      prm::set<prm::qpc::log_rq_stride>(c, spec.log_stride - 4);
    }
    prm::set<prm::qpc::srqn_rmpn_xrqn>(c, spec.srqn);
    prm::set<prm::qpc::user_index>(c, spec.user_index);
    prm::set<prm::qpc::log_num_dci_stream_channels>(c, spec.log_streams);
    prm::set<prm::qpc::log_num_dci_errored_streams>(c, spec.log_errored);
    prm::set<prm::qpc::cqn_snd>(c, spec.send_cqn);
    prm::set<prm::qpc::cqn_rcv>(c, spec.recv_cqn);
    prm::set<prm::qpc::rlky>(c, spec.rlky);
    prm::set<prm::qpc::cs_req>(c, spec.cs_req);
    prm::set<prm::qpc::cs_res>(c, spec.cs_res);
    prm::set<prm::qpc::xrcd>(c, spec.xrcd);
    prm::set<prm::qpc::deth_sqpn>(c, spec.deth_sqpn);
    prm::set<prm::qpc::block_lb_mc>(c, spec.block_lb_mc);
    prm::set<prm::qpc::fre>(c, spec.fre);
    prm::set<prm::qpc::dbr_addr>(c, h.dbr);
    put_pas(r, prm::create_qp_in::pas, h.buf, rq + sq);
    return r;
  }

  // A RoCE address (version 0: v1, 2: v2) at this index of the address table.
  void set_roce_address(unsigned index, const wire::Gid& gid, bool ipv6 = false, unsigned version = 2) {
    Request<prm::set_roce_address_in> r(Op::SET_ROCE_ADDRESS);
    r.set<prm::set_roce_address_in::roce_address_index>(index);
    void* a = r.at<prm::set_roce_address_in::roce_address>();
    std::memcpy(prm::at<prm::roce_addr_layout::source_l3_address>(a), gid.data(), 16);
    const wire::Mac& m = config.mac;
    prm::set<prm::roce_addr_layout::source_mac_47_32>(a, load_be<std::uint16_t>(m.data()));
    prm::set<prm::roce_addr_layout::source_mac_31_0>(a, load_be<std::uint32_t>(m.data() + 2));
    prm::set<prm::roce_addr_layout::roce_version>(a, version);
    prm::set<prm::roce_addr_layout::roce_l3_type>(a, ipv6 ? 1 : 0);
    ASSERT_TRUE(cmd.exec(r).ok());
  }
  static wire::Gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
  }

  static void put_path(void* qpc, const PathSpec& p) {
    void* ads = prm::at<prm::qpc::primary_address_path>(qpc);
    prm::set<prm::ads::grh>(ads, 1);
    prm::set<prm::ads::ack_timeout>(ads, p.ack_timeout);
    prm::set<prm::ads::src_addr_index>(ads, p.sgid_index);
    prm::set<prm::ads::hop_limit>(ads, p.hop_limit);
    prm::set<prm::ads::tclass>(ads, p.tclass);
    prm::set<prm::ads::flow_label>(ads, p.flow_label);
    prm::set<prm::ads::udp_sport>(ads, p.udp_sport);
    prm::set<prm::ads::vhca_port_num>(ads, 1);
    std::memcpy(prm::at<prm::ads::rgid_rip>(ads), p.dgid.data(), 16);
    prm::set<prm::ads::rmac_47_32>(ads, load_be<std::uint16_t>(p.dmac.data()));
    prm::set<prm::ads::rmac_31_0>(ads, load_be<std::uint32_t>(p.dmac.data() + 2));
  }
  Reply to_init(const QpHandle& qp, const PathSpec& p) {
    Request<prm::rst2init_qp_in> r(Op::RST2INIT_QP);
    r.set<prm::rst2init_qp_in::qpn>(qp.qpn);
    fill(r.at<prm::rst2init_qp_in::qpc>(), qp, p);
    return cmd.exec(r);
  }
  Reply to_rtr(const QpHandle& qp, const PathSpec& p) {
    Request<prm::init2rtr_qp_in> r(Op::INIT2RTR_QP);
    r.set<prm::init2rtr_qp_in::qpn>(qp.qpn);
    r.set<prm::init2rtr_qp_in::opt_param_mask>(1 << 1 | 1 << 2 | 1 << 3);  // RRE, RAE, RWE
    fill(r.at<prm::init2rtr_qp_in::qpc>(), qp, p);
    return cmd.exec(r);
  }
  Reply to_rts(const QpHandle& qp, const PathSpec& p) {
    Request<prm::rtr2rts_qp_in> r(Op::RTR2RTS_QP);
    r.set<prm::rtr2rts_qp_in::qpn>(qp.qpn);
    fill(r.at<prm::rtr2rts_qp_in::qpc>(), qp, p);
    return cmd.exec(r);
  }
  void connect(const QpHandle& qp, const PathSpec& p) {
    ASSERT_TRUE(to_init(qp, p).ok());
    ASSERT_TRUE(to_rtr(qp, p).ok());
    ASSERT_TRUE(to_rts(qp, p).ok());
  }
  Reply simple(Op op, std::uint32_t number) {  // destroy/2ERR/2RST/dealloc: the number sits in bits 0x48..0x5f of all of them
    Request<prm::destroy_qp_in> r(op);
    r.set<prm::destroy_qp_in::qpn>(number);
    return cmd.exec(r);
  }

  // A direct key of these rights; its mode and pages are left.
  static void put_key(void* c, std::uint32_t in_pd, std::uint64_t va, std::uint64_t len, Access acc) {
    prm::set<prm::mkc::lr>(c, 1);
    prm::set<prm::mkc::lw>(c, acc.lw);
    prm::set<prm::mkc::rr>(c, acc.rr);
    prm::set<prm::mkc::rw>(c, acc.rw);
    prm::set<prm::mkc::a>(c, acc.a);
    prm::set<prm::mkc::qpn>(c, 0xffffff);
    prm::set<prm::mkc::pd>(c, in_pd);
    prm::set<prm::mkc::start_addr>(c, va);
    prm::set<prm::mkc::len>(c, len);
  }

 private:
  void fill(void* c, const QpHandle& qp, const PathSpec& p) {
    prm::set<prm::qpc::st>(c, static_cast<unsigned>(qp.spec.type));
    prm::set<prm::qpc::pm_state>(c, 3);
    prm::set<prm::qpc::pd>(c, qp.spec.pd ? qp.spec.pd : pd);
    prm::set<prm::qpc::cqn_snd>(c, qp.spec.send_cqn);
    prm::set<prm::qpc::cqn_rcv>(c, qp.spec.recv_cqn);
    prm::set<prm::qpc::mtu>(c, p.mtu);
    prm::set<prm::qpc::log_msg_max>(c, 30);
    prm::set<prm::qpc::remote_qpn>(c, p.remote_qpn);
    put_path(c, p);
    prm::set<prm::qpc::log_sra_max>(c, p.log_sra_max);
    prm::set<prm::qpc::log_rra_max>(c, p.log_rra_max);
    prm::set<prm::qpc::retry_count>(c, p.retry);
    prm::set<prm::qpc::rnr_retry>(c, p.rnr_retry);
    prm::set<prm::qpc::next_send_psn>(c, p.sq_psn);
    prm::set<prm::qpc::next_rcv_psn>(c, p.rq_psn);
    prm::set<prm::qpc::min_rnr_nak>(c, p.min_rnr_nak);
    prm::set<prm::qpc::rre>(c, p.rre);
    prm::set<prm::qpc::rwe>(c, p.rwe);
    prm::set<prm::qpc::rae>(c, p.rae);
    prm::set<prm::qpc::atomic_mode>(c, p.atomic_mode);
    prm::set<prm::qpc::q_key>(c, p.qkey);
  }
  void mkc(void* c, std::uint32_t in_pd, std::uint64_t va, std::uint64_t len, Access acc) {
    prm::set<prm::mkc::mkey_7_0>(c, variant_);
    put_key(c, in_pd, va, len, acc);
  }
  std::uint32_t created_mkey(const Request<prm::create_mkey_in>& r) {
    Reply out = cmd.exec(r);
    EXPECT_TRUE(out.ok());
    return out.get<prm::create_mkey_out::mkey_index>() << 8 | variant_++;
  }
  std::uint8_t variant_ = 0x17;
};

}  // namespace uhca::hcatest

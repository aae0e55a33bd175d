// SPDX-License-Identifier: MIT
// Frames that are nearly right, in any order, for QPs of every service that send and receive meanwhile: PSNs around what is expected,
// addresses around the edges of memory, keys that are not meant for the peer, lengths that do not fit, headers with flipped bits under a
// right ICRC. The bus checks every access; bytes around registered memory, and memory that peers may only read, or not even that, stay
// as they are; the device answers commands to the end. How long and which: fuzz_run.h.
#include "device/hca/qp_transport.h"
#include "hca/fuzz_run.h"
#include "hca/srq_harness.h"

namespace uhca::hcatest {
namespace {

using hca::QpState;
using hca::QpType;
using prm::WqeOpcode;

constexpr std::uint64_t kDcKey = 0x1122334455667788;

class DpFuzz : public SrqTest {
 protected:
  struct Subject {
    QpType type;
    wire::Service service;
    End end;
    std::uint32_t dctn = 0;  // DC targets have no QP
  };
  std::mt19937 rng;
  std::vector<Subject> subjects;
  Region open, readable, closed, received;  // all rights; peers may read; the program only; where receives and answers go
  std::vector<Region*> regions{&open, &readable, &closed, &received};
  std::vector<std::vector<std::uint8_t>> before;  // whole pages of each
  SrqHandle dc_srq, xrc_srq;
  CqHandle dc_cq, xrc_cq;
  std::uint32_t dc_ci = 0, xrc_ci = 0, xrcd = 0;
  std::uint64_t frames = 0, taken = 0, lives = 0;

  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(rng() % n); }
  template <class C>
  auto& one_of(C& c) {
    return c[pick(static_cast<std::uint32_t>(c.size()))];
  }

  void teach() {
    // None begins or ends with its page.
    open = region(5000, {.lw = true, .rr = true, .rw = true, .a = true}, 0x7f0000000300);
    readable = region(3000, {.lw = true, .rr = true, .rw = false, .a = false}, 0x7f1000000700);
    closed = region(3000, {.lw = true, .rr = false, .rw = false, .a = false}, 0x7f2000000500);
    received = region(9000, {.lw = true, .rr = false, .rw = false, .a = false}, 0x7f3000000100);
    for (Region* r : regions) {
      std::uint8_t* p = bench.bus.host(page_of(*r));
      for (std::size_t i = 0; i < size_of(*r); ++i) p[i] = static_cast<std::uint8_t>(rng());
      before.emplace_back(p, p + size_of(*r));
    }
    Reply r = bench.cmd.exec(Request<prm::alloc_xrcd_in>(prm::Opcode::ALLOC_XRCD));
    ASSERT_TRUE(r.ok());
    xrcd = r.get<prm::alloc_xrcd_out::xrcd>();
    xrc_cq = bench.create_cq(6);
    xrc_srq = create_xrc_srq(4, xrcd, xrc_cq.cqn, 1);
    for (auto [type, service] : {std::pair{QpType::kRc, wire::Service::kRC},
                                 {QpType::kRc, wire::Service::kRC},
                                 {QpType::kUc, wire::Service::kUC},
                                 {QpType::kUd, wire::Service::kUD},
                                 {QpType::kXrc, wire::Service::kXRC},
                                 {QpType::kDci, wire::Service::kDC}}) {
      base = QpSpec{};
      base.type = type;
      if (type == QpType::kXrc) base.xrcd = xrcd, base.rq_type = 1, base.srqn = xrc_srq.srqn;
      if (type == QpType::kDci) base.rq_type = 3;
      subjects.push_back({type, service, make_end()});
      bring_up(subjects.back());
    }
    create_target();
  }
  void create_target() {
    dc_cq = bench.create_cq(6);
    dc_srq = create_rmp(4);
    Request<prm::create_dct_in> r(prm::Opcode::CREATE_DCT);
    void* c = r.at<prm::create_dct_in::dct_context_entry>();
    prm::set<prm::dctc::pd>(c, bench.pd);
    prm::set<prm::dctc::cqn>(c, dc_cq.cqn);
    prm::set<prm::dctc::srqn_xrqn>(c, dc_srq.srqn);
    for (prm::Field f : {prm::dctc::rre, prm::dctc::rwe, prm::dctc::rae}) prm::set(c, f, 1);
    prm::set<prm::dctc::dc_access_key>(c, kDcKey);
    prm::set<prm::dctc::mtu>(c, 3);
    Reply out = bench.cmd.exec(r);
    ASSERT_TRUE(out.ok());
    subjects.push_back({QpType::kDctSession, wire::Service::kDC, {}, out.get<prm::create_dct_out::dctn>()});
  }
  void bring_up(Subject& s) {
    ++lives;
    PathSpec p;
    p.dgid = Bench::ipv4_gid(10, 0, 0, 2);
    p.dmac = bench.config.mac;
    p.remote_qpn = 0xabcd;
    p.rq_psn = pick(2) == 0 ? 0xfffff8 : pick(1 << 24);
    p.sq_psn = pick(2) == 0 ? 0xfffff8 : pick(1 << 24);
    p.qkey = 0x11;
    p.ack_timeout = 10;
    p.retry = pick(3);
    p.rnr_retry = pick(8);
    s.end.sq_pi = s.end.rq_pi = 0;
    bench.bus.put_be32(s.end.qp.dbr, 0);
    bench.bus.put_be32(s.end.qp.dbr + 4, 0);
    bench.connect(s.end.qp, p);
  }
  static pci::DmaAddr page_of(const Region& r) { return r.mem - r.va % 4096; }
  static std::size_t size_of(const Region& r) { return (r.va % 4096 + r.len + 4095) / 4096 * 4096; }

  // What no peer may have changed.
  void check_memory() {
    for (std::size_t k = 0; k < regions.size(); ++k) {
      const Region& r = *regions[k];
      const std::uint8_t* p = bench.bus.host(page_of(r));
      std::size_t begin = r.va % 4096, end = begin + r.len;
      bool fixed = &r == &readable || &r == &closed;
      ASSERT_EQ(std::memcmp(p, before[k].data(), fixed ? size_of(r) : begin), 0) << "region " << k << ": changed, or changed before it";
      ASSERT_EQ(std::memcmp(p + end, before[k].data() + end, size_of(r) - end), 0) << "region " << k << ": changed behind it";
    }
    ASSERT_EQ(bench.bus.faults(), 0u) << bench.bus.last_fault();
  }

  // ---- what the program does meanwhile
  void program() {
    Subject& s = one_of(subjects);
    auto place = [this](std::uint32_t n) { return sge(received, n, pick(static_cast<std::uint32_t>(received.len) - n + 1)); };
    if (pick(2) == 0) {
      if (pick(2) == 0 && dc_srq.counter - received_dc_ < 8) post_srq(dc_srq, {place(pick(3000))});
      if (pick(2) == 0 && xrc_srq.counter - received_xrc_ < 8) post_srq(xrc_srq, {place(pick(3000))});
    }
    if (s.type == QpType::kDctSession) return;
    QpState now = bench.hca.objects().qp(s.end.qp.qpn)->state;
    if (now == QpState::kErr || now == QpState::kSqErr || pick(400) == 0) {
      const std::size_t memory = bench.bus.mark();  // commands take mailboxes
      ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, s.end.qp.qpn).ok());
      bring_up(s);
      bench.bus.rewind(memory);
      drain();
      return;
    }
    const hca::QpTransport& t = *bench.hca.objects().qp(s.end.qp.qpn)->transport;
    if (s.end.qp.spec.rq_type == 0 && static_cast<std::uint16_t>(s.end.rq_pi - t.resp.rq_ci) < 12) post_recv(s.end, {place(pick(3000))});
    if (static_cast<std::uint16_t>(s.end.sq_pi - t.req.done) > 32 || pick(3) != 0) return;
    Wr w{.op = WqeOpcode::SEND, .sges = {sge(closed, pick(3000))}};
    bool reliable = s.type == QpType::kRc || s.type == QpType::kXrc || s.type == QpType::kDci;
    if (s.type == QpType::kUd) w.sges = {sge(closed, pick(1000))};
    if (s.type != QpType::kUd && pick(2) == 0) w.op = WqeOpcode::RDMA_WRITE;
    if (reliable && pick(2) == 0) {
      w.op = pick(2) == 0 ? WqeOpcode::RDMA_READ : WqeOpcode::ATOMIC_FA;
      w.sges = {place(w.op == WqeOpcode::ATOMIC_FA ? 8 : pick(3000))};
    }
    w.raddr = 0x10000;
    w.rkey = 0x1234;
    w.xrc_srqn = xrc_srq.srqn;
    w.av.qpn = 0xabcd;
    w.av.dc_key = s.type == QpType::kDci ? kDcKey : 0;
    w.av.dgid = Bench::ipv4_gid(10, 0, 0, 2);
    w.av.dmac = bench.config.mac;
    post(s.end, w);
  }
  // Everything that has completed is taken, so that queues do not run over.
  void drain() {
    for (Subject& s : subjects) {
      if (s.type == QpType::kDctSession) continue;
      taken += sends(s.end).size() + recvs(s.end).size();
    }
    while (auto w = poll(dc_cq, dc_ci)) {
      ++received_dc_;
      free_srq(dc_srq, static_cast<std::uint16_t>(w->wqe));
    }
    while (auto w = poll(xrc_cq, xrc_ci)) {
      ++received_xrc_;
      free_srq(xrc_srq, static_cast<std::uint16_t>(w->wqe));
    }
  }

  // ---- frames
  std::uint64_t address() {
    const Region& r = *one_of(regions);
    std::uint64_t edge = pick(2) == 0 ? r.va : r.va + r.len;
    if (pick(40) == 0) return ~std::uint64_t{0} - pick(64);
    return pick(3) == 0 ? edge + pick(64) - 32 : r.va + pick(static_cast<std::uint32_t>(r.len)) / 8 * 8;
  }
  std::uint32_t length() {
    switch (pick(8)) {
      case 0: return 0;
      case 1: return static_cast<std::uint32_t>(rng());
      case 2: return 1024 + pick(3) - 1;
      default: return pick(4000);
    }
  }
  wire::Packet packet(const Subject& s, bool response) {
    wire::Packet p;
    p.net.smac = p.net.dmac = bench.config.mac;
    p.net.sgid = Bench::ipv4_gid(10, 0, 0, pick(60) == 0 ? 3 : 2);
    p.net.dgid = Bench::ipv4_gid(10, 0, 0, pick(60) == 0 ? 9 : 1);
    p.net.traffic_class = static_cast<std::uint8_t>(pick(10) == 0 ? 3 : 0);
    do {
      p.bth.opcode = wire::make_opcode(pick(30) == 0 ? static_cast<wire::Service>(pick(7)) : s.service, static_cast<wire::Op>(pick(0x18)));
    } while (wire::info(p.bth.opcode).name == nullptr || (wire::has(wire::info(p.bth.opcode).props, wire::Prop::kResponse) != response &&
                                                          pick(20) != 0 && s.service != wire::Service::kUD));
    if (pick(200) == 0) p.bth.opcode = wire::kCnp;
    p.bth.dest_qp = s.dctn != 0 ? s.dctn : s.end.qp.qpn;
    if (pick(100) == 0) p.bth.dest_qp = pick(2) == 0 ? pick(1 << 24) : 1;
    p.bth.ack_req = pick(2) == 0;
    p.bth.solicited = pick(2) == 0;
    p.reth = {address(), pick(50) == 0 ? pick(~0u) : one_of(regions)->key, length()};
    p.atomic_eth = {address(), p.reth.rkey, rng(), rng()};
    p.deth = {pick(10) == 0 ? pick(~0u) : 0x11, pick(1 << 24)};
    constexpr std::uint8_t kSyndromes[] = {0x1f, 0x00, 0x21, 0x2e, 0x60, 0x61, 0x62, 0x63, 0x64, 0x7f, 0x40};
    p.aeth = {kSyndromes[pick(pick(3) == 0 ? 11 : 1)], pick(1 << 24)};
    p.imm = static_cast<std::uint32_t>(rng());
    p.ieth = one_of(regions)->key;
    p.xrc_srq = pick(20) == 0 ? pick(1 << 24) : xrc_srq.srqn;
    p.dc_eth = {pick(30) == 0 ? rng() : kDcKey, session_, 0xabcd, dc_start_};
    return p;
  }
  // Most packets are what a peer may send, so that messages get under way that others can disturb: its operation and length.
  std::uint32_t fair_request(const Subject& s, wire::Packet& p) {
    using wire::Op;
    const hca::Responder* r = s.dctn != 0 ? nullptr : &bench.hca.objects().qp(s.end.qp.qpn)->transport->resp;
    bool sending = r != nullptr && r->message == hca::Responder::Message::kSend;
    bool writing = r != nullptr && r->message == hca::Responder::Message::kWrite;
    std::uint32_t len = pick(1025);
    Op op = pick(2) == 0 ? Op::kSendOnly : Op::kWriteOnly;
    if (s.service == wire::Service::kUD) op = Op::kSendOnly;
    if (s.service != wire::Service::kUD && pick(4) == 0) op = op == Op::kSendOnly ? Op::kSendFirst : Op::kWriteFirst, len = 1024;
    if (s.service != wire::Service::kUD && s.service != wire::Service::kUC && pick(4) == 0)
      op = pick(2) == 0 ? Op::kReadRequest : Op::kFetchAdd;
    if (sending) op = pick(2) == 0 ? Op::kSendMiddle : Op::kSendLast;
    if (writing) {
      std::uint64_t left = r->write_length - r->received;
      op = left > 1024 ? Op::kWriteMiddle : Op::kWriteLast;
      len = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, 1024));
    }
    if (op == Op::kSendMiddle) len = 1024;
    if (op == Op::kSendLast && len == 0) len = 1;
    p.bth.opcode = wire::make_opcode(s.service, op);
    std::uint32_t total = op == Op::kWriteFirst || op == Op::kReadRequest ? 1025 + pick(3000) : len;
    std::uint64_t va = open.va + pick(static_cast<std::uint32_t>(open.len) - total + 1);
    p.reth = {va, open.key, total};
    p.atomic_eth = {(va + 7) / 8 * 8 - (va + 7 > open.va + open.len - 8 ? 16 : 0), open.key, rng(), rng()};
    return op == Op::kReadRequest || op == Op::kFetchAdd ? 0 : len;
  }
  void send_something() {
    const Subject& s = one_of(subjects);
    bool response = s.dctn == 0 && s.type != QpType::kUc && pick(3) == 0;
    if (s.type == QpType::kDci) response = true;
    std::uint32_t psn = dc_psn_;
    if (s.dctn == 0) {
      const hca::QpTransport& t = *bench.hca.objects().qp(s.end.qp.qpn)->transport;
      psn = response ? t.req.una_psn + (t.req.max_psn == t.req.una_psn ? 0 : pick((t.req.max_psn - t.req.una_psn) & 0xff)) : t.resp.epsn;
    } else if (pick(20) == 0) {
      ++session_;
      dc_start_ = dc_psn_ = psn = pick(1 << 24);
    }
    wire::Packet p = packet(s, response);
    const bool fair = pick(8) != 0 && !response;
    const std::uint32_t fair_len = fair ? fair_request(s, p) : 0;
    p.bth.psn = (psn + (!fair && pick(4) == 0 ? pick(9) - 4 : 0)) & wire::kPsnMask;
    if (s.dctn != 0) dc_psn_ = (dc_psn_ + 1) & wire::kPsnMask;
    const wire::Prop props = wire::info(p.bth.opcode).props;
    std::vector<std::byte> payload(fair                                     ? fair_len
                                   : wire::has(props, wire::Prop::kPayload) ? (pick(3) == 0 ? pick(2000) : 1024)
                                   : pick(60) == 0                          ? pick(64)
                                                                            : 0);
    for (auto& byte : payload) byte = static_cast<std::byte>(rng());
    p.payload = payload;
    if (!fair && pick(2) == 0) p.reth.length = static_cast<std::uint32_t>(payload.size()) * (1 + pick(3));
    FakePort::Bytes frame(wire::frame_size(p));
    frame.resize(wire::emit(p, frame));
    if (!fair) spoil(frame);
    bench.port.inject(std::move(frame));
    ++frames;
  }
  void spoil(FakePort::Bytes& frame) {
    if (pick(4) == 0) {
      for (unsigned n = 1 + pick(3); n > 0; --n)
        frame[14 + pick(static_cast<std::uint32_t>(std::min<std::size_t>(frame.size() - 18, 70)))] ^= static_cast<std::byte>(1u << pick(8));
      if (pick(4) != 0) {  // a right ICRC over it
        std::uint32_t crc = wire::icrc(std::span(frame).subspan(14, frame.size() - 18), false);
        std::memcpy(frame.data() + frame.size() - 4, &crc, 4);
      }
    }
    if (pick(50) == 0) frame.resize(pick(static_cast<std::uint32_t>(frame.size()) + 64));
  }

 private:
  std::uint16_t session_ = 1, received_dc_ = 0, received_xrc_ = 0;
  std::uint32_t dc_psn_ = 0, dc_start_ = 0;
};

TEST_F(DpFuzz, NearlyRightFrames) {
  FuzzRun fuzz(rng);
  SCOPED_TRACE(fuzz.name());
  bench.port.connect(nullptr);  // what the device sends reaches nobody
  teach();
  std::uint64_t executed = 0;
  while (!fuzz.over() && !HasFailure()) {
    for (unsigned i = 0; i < 256 && !HasFailure(); ++i) {
      program();
      for (unsigned n = pick(4); n > 0; --n) send_something();
      if (pick(8) == 0) bench.clock.advance(pick(20'000'000));
      run();
      drain();
    }
    check_memory();
    bench.port.sent.clear();
    bench.bus.take_raised();
    executed = prm::get(bench.hca.data_path().counters().totals.raw.data(), hca::Qc::rx_write_requests);
  }
  EXPECT_TRUE(bench.cmd.exec(Request<prm::nop_in>(prm::Opcode::NOP)).ok());
  EXPECT_GT(taken, frames / 100) << "too little gets through to mean anything";
  EXPECT_GT(executed, frames / 200) << "too few WRITEs get through to mean anything";
  std::printf("%lu frames, %lu completions, %lu writes begun, %lu lives of QPs\n", static_cast<unsigned long>(frames),
              static_cast<unsigned long>(taken), static_cast<unsigned long>(executed), static_cast<unsigned long>(lives));
}

}  // namespace
}  // namespace uhca::hcatest

// SPDX-License-Identifier: MIT
// Two connected RC QPs on one device whose port is its own peer, and what a program does with them: posting, ringing, polling. Time stands
// still until a test moves it.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "device/hca/data_path.h"
#include "hca/harness.h"
#include "prm/wqe.h"
#include "wire/roce/roce.h"

namespace uhca::hcatest {

struct Region {
  std::uint64_t va = 0;
  std::uint64_t len = 0;
  pci::DmaAddr mem = 0;  // of va
  std::uint32_t key = 0;
};

struct Sge {
  std::uint64_t addr = 0;
  std::uint32_t len = 0;
  std::uint32_t lkey = 0;
};

// Where a datagram or the request of a DC initiator goes.
struct Av {
  std::uint32_t qpn = 0, qkey = 0, flow_label = 0;
  std::uint64_t dc_key = 0;
  wire::Gid dgid{};
  wire::Mac dmac{};
  unsigned sgid_index = 0, hop_limit = 64, tclass = 0, sl = 0;
  std::uint16_t udp_sport = 0;
};

struct Wr {
  prm::WqeOpcode op = prm::WqeOpcode::SEND;
  std::vector<Sge> sges;
  std::vector<std::uint8_t> inl;  // inline data instead of sges, when not empty
  std::uint64_t raddr = 0;
  std::uint32_t rkey = 0;
  std::uint32_t imm = 0;
  std::uint64_t swap_add = 0, compare = 0;
  bool signaled = true, solicited = false, fence = false;
  Av av;                       // UD
  std::uint32_t xrc_srqn = 0;  // XRC
  unsigned stream = 0;         // DCI with streams
};

struct Wc {
  prm::CqeOpcode opcode{};
  unsigned syndrome = 0, vendor = 0, hw = 0;
  std::uint32_t qpn = 0, uidx = 0, byte_cnt = 0, imm = 0;
  unsigned wqe_opcode = 0, wqe = 0;
  std::uint32_t flags_rqpn = 0;
  unsigned vlan = 0, format = 0;
  bool se = false;
  bool ok() const { return opcode <= prm::CqeOpcode::NO_PACKET; }
};

inline std::string wire_name(const wire::Packet& p) {
  const char* n = wire::info(p.bth.opcode).name;
  return n == nullptr ? "?" : n;
}

// A program's view of a QP and its two CQs.
struct End {
  QpHandle qp;
  CqHandle scq, rcq;
  std::uint16_t sq_pi = 0, rq_pi = 0;
  std::uint32_t scq_ci = 0, rcq_ci = 0;
};

class DpTest : public ::testing::Test {
 protected:
  explicit DpTest(bool shared = false, std::uint32_t first_qpn = 0x1000) : bench(first_qpn, 8, 0x50, 1500, shared) {}
  Bench bench;
  End a, b;
  PathSpec path_a, path_b;
  unsigned log_scq = 6;
  QpSpec base;  // of what make_end() creates, besides its queues
  unsigned cqe_size = 64;

  void SetUp() override {
    bench.port.connect(&bench.port);
    bench.bring_up();
    bench.set_roce_address(0, Bench::ipv4_gid(10, 0, 0, 1));
    for (PathSpec* p : {&path_a, &path_b}) {
      p->dgid = Bench::ipv4_gid(10, 0, 0, 1);
      p->dmac = bench.config.mac;
      p->ack_timeout = 14;
    }
    path_a.sq_psn = path_b.rq_psn = 0x10;
    path_b.sq_psn = path_a.rq_psn = 0x20;
  }
  End make_end(unsigned log_sq = 6, unsigned log_rq = 4, unsigned log_stride = 6) {
    End e;
    e.scq = bench.create_cq(log_scq, cqe_size);
    e.rcq = bench.create_cq(6, cqe_size);
    QpSpec s = base;
    s.log_sq = log_sq;
    s.log_rq = log_rq;
    s.log_stride = log_stride;
    s.send_cqn = e.scq.cqn;
    s.recv_cqn = e.rcq.cqn;
    s.user_index = 0x100 + e.scq.cqn;
    e.qp = bench.create_qp(s);
    return e;
  }
  // Both to RTS with path_a and path_b.
  void connect() {
    a = make_end();
    b = make_end();
    path_a.remote_qpn = b.qp.qpn;
    path_b.remote_qpn = a.qp.qpn;
    bench.connect(a.qp, path_a);
    bench.connect(b.qp, path_b);
  }

  Region region(std::uint64_t len, Bench::Access acc = {}, std::uint64_t va = 0x7f0000000000) {
    Region r;
    r.va = va;
    r.len = len;
    r.mem = bench.bus.alloc(len + va % 4096) + va % 4096;
    r.key = bench.create_mkey(va, len, r.mem, acc);
    return r;
  }
  void fill(const Region& r, std::uint8_t seed) {
    for (std::uint64_t i = 0; i < r.len; ++i) bench.bus.host(r.mem)[i] = static_cast<std::uint8_t>(seed + i * 7 + (i >> 8) * 13);
  }
  ::testing::AssertionResult same(const Region& x, const Region& y, std::uint64_t len, std::uint64_t off = 0) {
    for (std::uint64_t i = off; i < off + len; ++i) {
      if (bench.bus.host(x.mem)[i] != bench.bus.host(y.mem)[i]) return ::testing::AssertionFailure() << "byte " << i << " differs";
    }
    return ::testing::AssertionSuccess();
  }
  static Sge sge(const Region& r, std::uint32_t len, std::uint64_t off = 0) { return {r.va + off, len, r.key}; }

  // Writes the WQE as libmlx5 does and the doorbell record; rings the UAR unless told not to. Returns its index.
  std::uint16_t post(End& e, const Wr& w, bool ring = true) {
    using prm::WqeOpcode;
    std::uint8_t raw[1024] = {};
    std::size_t at = 16;
    bool rdma = w.op == WqeOpcode::RDMA_WRITE || w.op == WqeOpcode::RDMA_WRITE_IMM || w.op == WqeOpcode::RDMA_READ;
    bool atomic = w.op == WqeOpcode::ATOMIC_CS || w.op == WqeOpcode::ATOMIC_FA;
    if (hca::is_datagram(e.qp.spec.type) || e.qp.spec.type == hca::QpType::kDci) {
      put_av(raw + at, w.av);
      at += prm::wqe_av::kBytes;
    }
    if (e.qp.spec.type == hca::QpType::kXrc) {
      prm::set<prm::wqe_xrc_seg::xrc_srqn>(raw + at, w.xrc_srqn);
      at += prm::wqe_xrc_seg::kBytes;
    }
    if (rdma || atomic) {
      prm::set<prm::wqe_raddr_seg::raddr>(raw + at, w.raddr);
      prm::set<prm::wqe_raddr_seg::rkey>(raw + at, w.rkey);
      at += 16;
    }
    if (atomic) {
      prm::set<prm::wqe_atomic_seg::swap_add>(raw + at, w.swap_add);
      prm::set<prm::wqe_atomic_seg::compare>(raw + at, w.compare);
      at += 16;
    }
    if (!w.inl.empty()) {
      store_be<std::uint32_t>(raw + at, 0x80000000u | static_cast<std::uint32_t>(w.inl.size()));
      std::memcpy(raw + at + 4, w.inl.data(), w.inl.size());
      at = (at + 4 + w.inl.size() + 15) / 16 * 16;
    }
    for (const Sge& s : w.sges) {
      if (s.len == 0) continue;  // as libmlx5
      prm::set<prm::wqe_data_seg::byte_count>(raw + at, s.len);
      prm::set<prm::wqe_data_seg::lkey>(raw + at, s.lkey);
      prm::set<prm::wqe_data_seg::addr>(raw + at, s.addr);
      at += 16;
    }
    prm::set<prm::wqe_ctrl_seg::wqe_index>(raw, e.sq_pi);
    prm::set<prm::wqe_ctrl_seg::opcode>(raw, static_cast<unsigned>(w.op));
    prm::set<prm::wqe_ctrl_seg::qpn>(raw, e.qp.qpn);
    prm::set<prm::wqe_ctrl_seg::ds>(raw, at / 16);
    prm::set<prm::wqe_ctrl_seg::dci_stream_channel_id>(raw, w.stream);
    prm::set<prm::wqe_ctrl_seg::fm_ce_se>(
        raw, (w.signaled ? prm::kWqeCtrlCqUpdate : 0) | (w.solicited ? prm::kWqeCtrlSolicited : 0) | (w.fence ? prm::kWqeCtrlFence : 0));
    prm::set<prm::wqe_ctrl_seg::imm>(raw, w.imm);
    return post_raw(e, raw, at, ring);
  }
  static void put_av(std::uint8_t* p, const Av& a) {
    prm::set<prm::wqe_av::qkey>(p, a.qkey);
    if (a.dc_key != 0) prm::set<prm::wqe_av::qkey_or_dc_key>(p, a.dc_key);
    prm::set<prm::wqe_av::ext>(p, 1);
    prm::set<prm::wqe_av::dqp_dct>(p, a.qpn);
    prm::set<prm::wqe_av::stat_rate_sl>(p, a.sl << 1);
    prm::set<prm::wqe_av::rlid>(p, a.udp_sport);
    prm::set<prm::wqe_av::rmac_47_16>(p, load_be<std::uint32_t>(a.dmac.data()));
    prm::set<prm::wqe_av::rmac_15_0>(p, load_be<std::uint16_t>(a.dmac.data() + 4));
    prm::set<prm::wqe_av::tclass>(p, a.tclass);
    prm::set<prm::wqe_av::hop_limit>(p, a.hop_limit);
    prm::set<prm::wqe_av::grh_gid_fl>(p, a.sgid_index << 20 | a.flow_label);
    std::memcpy(prm::at<prm::wqe_av::rgid>(static_cast<void*>(p)), a.dgid.data(), a.dgid.size());
  }
  std::uint16_t post_raw(End& e, const std::uint8_t* raw, std::size_t bytes, bool ring = true) {
    std::uint16_t index = e.sq_pi;
    unsigned size = 1u << e.qp.spec.log_sq;
    unsigned bbs = std::max<unsigned>(1, static_cast<unsigned>((bytes + 63) / 64));
    for (unsigned i = 0; i < bbs; ++i) std::memcpy(bench.bus.host(e.qp.sq) + ((index + i) & (size - 1)) * 64, raw + i * 64, 64);
    e.sq_pi = static_cast<std::uint16_t>(e.sq_pi + bbs);
    bench.bus.put_be32(e.qp.dbr + 4, e.sq_pi);
    if (ring) {
      std::uint64_t v;
      std::memcpy(&v, raw, 8);
      bench.hca.mmio_write(std::uint64_t{bench.uar} * 4096 + 0x800, v, 8);
    }
    return index;
  }
  std::uint16_t post_recv(End& e, const std::vector<Sge>& sges) {
    unsigned size = 1u << e.qp.spec.log_rq, max = (1u << e.qp.spec.log_stride) / 16;
    std::uint8_t* w = bench.bus.host(e.qp.rq) + (std::size_t{e.rq_pi & (size - 1)} << e.qp.spec.log_stride);
    unsigned j = 0;
    for (const Sge& s : sges) {
      prm::set<prm::wqe_data_seg::byte_count>(w + j * 16, s.len);
      prm::set<prm::wqe_data_seg::lkey>(w + j * 16, s.lkey);
      prm::set<prm::wqe_data_seg::addr>(w + j++ * 16, s.addr);
    }
    if (j < max) {
      prm::set<prm::wqe_data_seg::byte_count>(w + j * 16, 0);
      prm::set<prm::wqe_data_seg::lkey>(w + j * 16, prm::kInvalidLkey);
    }
    std::uint16_t index = e.rq_pi++;
    bench.bus.put_be32(e.qp.dbr, e.rq_pi);
    return index;
  }

  std::optional<Wc> poll(const CqHandle& cq, std::uint32_t& ci, bool update = true) {
    unsigned size = 1u << cq.log_size;
    const std::uint8_t* e = bench.bus.host(cq.buf) + (ci & (size - 1)) * cq.cqe_size + (cq.cqe_size - 64);
    unsigned op_own = e[63];
    if (op_own >> 4 == 15 || (op_own & 1) != ((ci >> cq.log_size) & 1)) return {};
    Wc w;
    w.opcode = static_cast<prm::CqeOpcode>(op_own >> 4);
    w.se = prm::get<prm::cqe64::se>(e);
    w.uidx = prm::get<prm::cqe64::srqn_uidx>(e);
    w.qpn = prm::get<prm::cqe64::qpn>(e);
    w.wqe_opcode = prm::get<prm::cqe64::sop>(e);
    w.wqe = prm::get<prm::cqe64::wqe_counter>(e);
    w.flags_rqpn = prm::get<prm::cqe64::flags_rqpn>(e);
    w.vlan = prm::get<prm::cqe64::vlan_info>(e);
    w.format = prm::get<prm::cqe64::format>(e);
    if (w.ok()) {
      w.byte_cnt = prm::get<prm::cqe64::byte_cnt>(e);
      w.imm = prm::get<prm::cqe64::imm_inval_pkey>(e);
    } else {
      w.syndrome = prm::get<prm::err_cqe::syndrome>(e);
      w.vendor = prm::get<prm::err_cqe::vendor_err_synd>(e);
      w.hw = prm::get<prm::err_cqe::hw_error_syndrome>(e);
    }
    ++ci;
    if (update) bench.bus.put_be32(cq.dbr, ci & 0xffffff);
    return w;
  }
  std::vector<Wc> sends(End& e) {
    std::vector<Wc> v;
    while (auto w = poll(e.scq, e.scq_ci)) v.push_back(*w);
    return v;
  }
  std::vector<Wc> recvs(End& e) {
    std::vector<Wc> v;
    while (auto w = poll(e.rcq, e.rcq_ci)) v.push_back(*w);
    return v;
  }
  static std::vector<unsigned> syndromes(const std::vector<Wc>& v) {
    std::vector<unsigned> s;
    for (const Wc& w : v) s.push_back(w.syndrome);
    return s;
  }

  // Runs the engine until it has nothing to do at this time.
  void run() {
    for (int i = 0; i < 10000 && bench.hca.drive(true); ++i) {
    }
  }
  // Lets time pass to the next deadline, `times` times.
  void pass(unsigned times) {
    for (unsigned i = 0; i < times; ++i) {
      Nanos d = bench.hca.next_deadline();
      if (d == kNever) return;
      bench.clock.set(std::max(d, bench.clock.now()));
      run();
    }
  }
  void run_for(Nanos t) {
    Nanos end = bench.clock.now() + t;
    run();
    for (Nanos d = bench.hca.next_deadline(); d <= end; d = bench.hca.next_deadline()) {
      bench.clock.set(std::max(d, bench.clock.now()));
      run();
    }
    bench.clock.set(end);
    run();
  }

  // What crossed the wire since `from`, as "RC_SEND_ONLY@16".
  std::vector<std::string> wire_log(std::size_t from = 0) {
    std::vector<std::string> v;
    for (std::size_t i = from; i < bench.port.sent.size(); ++i) {
      wire::Packet p;
      if (wire::parse(bench.port.sent[i], p) != wire::ParseError::kNone) continue;
      v.push_back(wire_name(p) + "@" + std::to_string(p.bth.psn));
    }
    return v;
  }
  std::vector<wire::Packet> packets(std::size_t from = 0) {
    std::vector<wire::Packet> v;
    for (std::size_t i = from; i < bench.port.sent.size(); ++i) {
      wire::Packet p;
      if (wire::parse(bench.port.sent[i], p) == wire::ParseError::kNone) v.push_back(p);
    }
    return v;
  }
  // Decides about every frame by its parsed form.
  void on_packet(std::function<FakePort::Verdict(const wire::Packet&)> f) {
    bench.port.on_send = [f](FakePort::Bytes& bytes) {
      wire::Packet p;
      if (wire::parse(bytes, p) != wire::ParseError::kNone) return FakePort::Verdict::kDeliver;
      return f(p);
    };
  }
  // A frame of a scripted peer: as A would send it to B.
  wire::Service injected = wire::Service::kRC;
  void inject_to_b(wire::Packet p, wire::Op op, std::uint32_t psn, const std::vector<std::byte>& payload) {
    p.net.smac = p.net.dmac = bench.config.mac;
    p.net.sgid = p.net.dgid = Bench::ipv4_gid(10, 0, 0, 1);
    p.bth.opcode = wire::make_opcode(injected, op);
    p.bth.dest_qp = b.qp.qpn;
    p.bth.psn = psn;
    p.payload = payload;
    FakePort::Bytes out(wire::frame_size(p));
    out.resize(wire::emit(p, out));
    bench.port.inject(out);
  }
  hca::QpState state(const End& e) {
    Request<prm::query_qp_in> q(prm::Opcode::QUERY_QP);
    q.set<prm::query_qp_in::qpn>(e.qp.qpn);
    Reply r = bench.cmd.exec(q, prm::query_qp_out::kBytes);
    EXPECT_TRUE(r.ok());
    return static_cast<hca::QpState>(prm::get<prm::qpc::state>(r.at<prm::query_qp_out::qpc>()));
  }
  // Types of the events in the asynchronous EQ since the last call.
  std::vector<unsigned> async_events() {
    std::vector<unsigned> v;
    for (;; ++async_ci_) {
      const std::uint8_t* e = bench.bus.host(bench.async_eq.buf) + (async_ci_ & ((1u << bench.async_eq.log_size) - 1)) * 64;
      if ((e[63] & 1) != ((async_ci_ >> bench.async_eq.log_size) & 1)) break;
      v.push_back(prm::get<prm::eqe::event_type>(e));
    }
    return v;
  }
  // The numbers in the affiliated events since the last call, by type.
  std::vector<std::pair<unsigned, std::uint32_t>> affiliated_events() {
    std::vector<std::pair<unsigned, std::uint32_t>> v;
    std::uint32_t from = async_ci_;
    std::vector<unsigned> types = async_events();
    for (unsigned t : types) {
      const std::uint8_t* e = bench.bus.host(bench.async_eq.buf) + (from++ & ((1u << bench.async_eq.log_size) - 1)) * 64;
      v.emplace_back(t, prm::get<prm::qp_events::qpn_rqn_sqn>(prm::at<prm::eqe::event_data>(e)));
    }
    return v;
  }
  // CQNs of the completion events since the last call.
  std::vector<std::uint32_t> comp_events() {
    std::vector<std::uint32_t> v;
    for (;; ++comp_ci_) {
      const std::uint8_t* e = bench.bus.host(bench.comp_eq.buf) + (comp_ci_ & ((1u << bench.comp_eq.log_size) - 1)) * 64;
      if ((e[63] & 1) != ((comp_ci_ >> bench.comp_eq.log_size) & 1)) break;
      v.push_back(prm::get<prm::comp_event::cq_number>(prm::at<prm::eqe::event_data>(e)));
    }
    return v;
  }
  void arm(const CqHandle& cq, std::uint32_t ci, unsigned sn, bool solicited = false, bool doorbell = true) {
    std::uint32_t word = (sn & 3) << 28 | (solicited ? prm::kCqDbReqNotSol : 0) | (ci & 0xffffff);
    bench.bus.put_be32(cq.dbr, ci & 0xffffff);
    bench.bus.put_be32(cq.dbr + 4, word);
    if (doorbell) bench.hca.mmio_write(std::uint64_t{bench.uar} * 4096 + 0x20, byteswap(std::uint64_t{word} << 32 | cq.cqn), 8);
  }

 private:
  std::uint32_t async_ci_ = 0, comp_ci_ = 0;
};

}  // namespace uhca::hcatest

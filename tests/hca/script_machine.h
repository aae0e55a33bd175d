// SPDX-License-Identifier: MIT
// Runs packet scripts (docs/packet-scripts.md): a QP of the device, the script in the role of its peer. Frames go by way of the link that a
// test chooses; time is virtual on all of them.
#pragma once

#include <deque>
#include <map>

#include "hca/dp_harness.h"
#include "hca/packet_script.h"

namespace uhca::hcatest {

class ScriptMachine : public DpTest {
 protected:
  explicit ScriptMachine(std::uint32_t first_qpn = 0x1000) : DpTest(false, first_qpn) {}
  static constexpr std::uint32_t kPeerQpn = 0xabcd;
  wire::Gid own = Bench::ipv4_gid(10, 0, 0, 1), peer = Bench::ipv4_gid(10, 0, 0, 2);

  // ---- the link
  std::deque<FakePort::Bytes> arrived;  // at the peer, in order
  virtual void begin_link() {
    bench.port.connect(nullptr);
    bench.port.on_send = [this](FakePort::Bytes& frame) {
      arrived.push_back(frame);
      return FakePort::Verdict::kDrop;  // no peer of the harness's gets it
    };
  }
  // What the peer sends is at the device.
  virtual void carry(const FakePort::Bytes& frame) { bench.port.inject(frame); }
  // Whatever the device has sent is in `arrived`.
  virtual void await_frames() {}

  // What is wrong; empty: the script holds.
  std::string run_script(const std::string& text) {
    error_.clear();
    regions_.clear();
    std::vector<Statement> all = parse_script(text, &error_);
    if (!error_.empty()) return error_;
    begin_link();
    bench.set_roce_address(0, own);
    for (const Statement& s : all) {
      at_ = &s;
      execute(s);
      for (const auto& [name, value] : s.args)
        if (error_.empty() && s.used.count(name) == 0) fail("unknown: " + name + "=" + value);
      for (std::size_t i = 1; i < s.words.size() && takes_flags(s); ++i)
        if (error_.empty() && s.used.count(s.words[i]) == 0) fail("unknown: " + s.words[i]);
      if (!error_.empty()) return error_;
    }
    at_ = nullptr;
    settle();
    if (!arrived.empty()) fail("the device has sent more than the script expects: " + next_name());
    if (poll(a.scq, a.scq_ci) || poll(a.rcq, a.rcq_ci)) fail("a CQE is left that the script does not expect");
    return error_;
  }

 private:
  using Pattern = std::vector<std::byte>;
  std::string error_;
  const Statement* at_ = nullptr;
  std::map<std::string, Region> regions_;
  std::uint64_t sent_ = 0;  // bytes of the peer's current message

  void fail(const std::string& what) {
    if (!error_.empty()) return;
    error_ = at_ == nullptr ? "at the end: " + what : "line " + std::to_string(at_->line) + ": " + at_->text + ": " + what;
  }
  std::uint64_t number(const std::string& s) {
    auto v = script_number(s);
    if (!v) fail("'" + s + "' is no number");
    return v.value_or(0);
  }
  std::uint64_t arg(const std::string& name, std::uint64_t otherwise) { return at_->has(name) ? number(at_->get(name)) : otherwise; }
  static Pattern pattern(std::uint64_t seed, std::uint64_t off, std::uint64_t len) {
    Pattern v(len);
    for (std::uint64_t i = 0; i < len; ++i) v[i] = static_cast<std::byte>(seed + (off + i) * 7 + ((off + i) >> 8) * 13);
    return v;
  }
  // "m", "m+64": memory of the device.
  struct Place {
    Region region;
    std::uint64_t off = 0;
    std::uint64_t va() const { return region.va + off; }
  };
  Place place(const std::string& s) {
    auto plus = s.find('+');
    auto it = regions_.find(s.substr(0, plus));
    if (it == regions_.end()) return fail("no memory '" + s + "'"), Place{};
    return {it->second, plus == std::string::npos ? 0 : number(s.substr(plus + 1))};
  }
  std::uint8_t* host(const Place& p, std::uint64_t len) {
    if (p.off + len > p.region.len) fail("that much memory is not there");
    return bench.bus.host(p.region.mem) + p.off;
  }
  // An address or a key: a number, or that of memory; "m^1": a key that is not m's.
  std::uint64_t address(const std::string& s) { return script_number(s) ? number(s) : place(s).va(); }
  std::uint32_t key(const std::string& s) {
    auto hat = s.find('^');
    std::string name = s.substr(0, hat);
    std::uint64_t k = script_number(name) ? number(name) : place(name).region.key;
    return static_cast<std::uint32_t>(k ^ (hat == std::string::npos ? 0 : number(s.substr(hat + 1))));
  }

  // ---- time
  void settle() {
    run();
    await_frames();
  }
  // To the moment at which the device has something to do, at most until `end`. False: that is the end.
  bool step_to(Nanos end) {
    Nanos d = bench.hca.next_deadline();
    bool more = d <= end;
    bench.clock.set(std::max(more ? d : end, bench.clock.now()));
    settle();
    return more;
  }
  void pass_time(Nanos t) {
    Nanos end = bench.clock.now() + t;
    settle();
    while (step_to(end)) {
    }
  }

  // ---- statements
  // Behind the first word there are flags only.
  static bool takes_flags(const Statement& s) {
    return s.verb != "mr" && s.verb != "cqe" && s.verb != "memory" && s.verb != "word" && s.verb != "result" && s.verb != "set";
  }
  void execute(const Statement& s) {
    if (s.verb == ">") return expect_frame();
    if (s.after) pass_time(*s.after);
    if (s.verb.empty()) return;
    if (s.verb == "qp") return make_qp();
    if (s.verb == "mr") return make_mr();
    if (s.verb == "<") return send_frame();
    if (s.verb == "cqe") return expect_cqe();
    if (s.verb == "recv") return post_receive();
    if (s.verb == "state") return expect_state();
    if (s.verb == "memory" || s.verb == "word" || s.verb == "result" || s.verb == "set") return about_memory();
    post_request();
  }

  void make_qp() {
    static const std::map<std::string, hca::QpType> kTypes{{"rc", hca::QpType::kRc}, {"uc", hca::QpType::kUc}, {"ud", hca::QpType::kUd}};
    auto type = kTypes.find(at_->words.empty() ? "" : at_->words[0]);
    if (type == kTypes.end()) return fail("rc, uc or ud");
    base.type = type->second;
    a = make_end();
    PathSpec p;
    p.remote_qpn = kPeerQpn;
    p.dgid = peer;
    p.dmac = bench.config.mac;
    unsigned mtu = static_cast<unsigned>(arg("mtu", 1024));
    p.mtu = 1;
    while (p.mtu < 5 && 128u << p.mtu != mtu) ++p.mtu;
    if (128u << p.mtu != mtu) fail("mtu is 256, 512, 1024, 2048 or 4096");
    p.rq_psn = static_cast<std::uint32_t>(arg("epsn", 100));
    p.sq_psn = static_cast<std::uint32_t>(arg("psn", 200));
    p.ack_timeout = static_cast<unsigned>(arg("timeout", 14));
    p.retry = static_cast<unsigned>(arg("retry_cnt", 7));
    p.rnr_retry = static_cast<unsigned>(arg("rnr_retry", 7));
    p.min_rnr_nak = static_cast<unsigned>(arg("min_rnr_timer", 12));
    p.log_sra_max = log2_of("max_rd_atomic", 4);
    p.log_rra_max = log2_of("max_dest_rd_atomic", 4);
    p.qkey = static_cast<std::uint32_t>(arg("qkey", 0x11));
    std::string access = at_->get("access", "rwa");
    p.rre = access.find('r') != std::string::npos;
    p.rwe = access.find('w') != std::string::npos;
    p.rae = access.find('a') != std::string::npos;
    bench.connect(a.qp, p);
  }
  unsigned log2_of(const char* name, unsigned otherwise) {
    unsigned v = static_cast<unsigned>(arg(name, otherwise)), log = 0;
    while (1u << log < v) ++log;
    if (1u << log != v) fail("a power of two");
    return log;
  }
  void make_mr() {
    if (at_->words.size() != 2) return fail("mr NAME LENGTH");
    std::string access = at_->get("access", "lrwa");
    auto may = [&](char c) { return access.find(c) != std::string::npos; };
    Region r = region(number(at_->words[1]), {.lw = may('l'), .rr = may('r'), .rw = may('w'), .a = may('a')},
                      0x7f0000000000 + (std::uint64_t{regions_.size()} << 32));
    if (!error_.empty()) return;
    Pattern p = pattern(arg("fill", 9), 0, r.len);
    std::memcpy(bench.bus.host(r.mem), p.data(), p.size());
    regions_[at_->words[0]] = r;
  }
  std::vector<Sge> sges(std::uint64_t len) {
    if (at_->words.empty()) return {};
    Place p = place(at_->words[0]);
    return {{p.va(), static_cast<std::uint32_t>(len), at_->has("lkey") ? key(at_->get("lkey")) : p.region.key}};
  }
  void post_receive() { DpTest::post_recv(a, sges(arg("len", 4096))); }

  void post_request() {
    using prm::WqeOpcode;
    static const std::map<std::string, WqeOpcode> kVerbs{{"send", WqeOpcode::SEND},
                                                         {"send_imm", WqeOpcode::SEND_IMM},
                                                         {"write", WqeOpcode::RDMA_WRITE},
                                                         {"write_imm", WqeOpcode::RDMA_WRITE_IMM},
                                                         {"read", WqeOpcode::RDMA_READ},
                                                         {"fetch_add", WqeOpcode::ATOMIC_FA},
                                                         {"compare_swap", WqeOpcode::ATOMIC_CS}};
    auto op = kVerbs.find(at_->verb);
    if (op == kVerbs.end()) return fail("no such statement");
    bool atomic = op->second == WqeOpcode::ATOMIC_FA || op->second == WqeOpcode::ATOMIC_CS;
    Wr w{.op = op->second, .sges = sges(atomic ? 8 : arg("len", 64))};
    w.raddr = arg("va", 0x10000);
    w.rkey = static_cast<std::uint32_t>(arg("rkey", 0x1234));
    w.imm = static_cast<std::uint32_t>(arg("imm", 0));
    w.swap_add = at_->has("add") ? arg("add", 0) : arg("swap", 0);
    w.compare = arg("compare", 0);
    w.fence = at_->flag("fence");
    w.solicited = at_->flag("solicited");
    w.signaled = !at_->flag("unsignaled");
    w.av.qpn = kPeerQpn;
    w.av.qkey = static_cast<std::uint32_t>(arg("qkey", 0x11));
    w.av.dgid = peer;
    w.av.dmac = bench.config.mac;
    if (error_.empty()) DpTest::post(a, w);
  }

  // ---- frames
  wire::Service service() const {
    return base.type == hca::QpType::kRc ? wire::Service::kRC : base.type == hca::QpType::kUc ? wire::Service::kUC : wire::Service::kUD;
  }
  std::optional<wire::Opcode> opcode() {
    if (at_->words.empty()) return fail("which packet?"), std::nullopt;
    if (at_->words[0] == "CNP") return wire::kCnp;
    for (unsigned o = 0; o < 32; ++o) {
      wire::Opcode code = wire::make_opcode(service(), static_cast<wire::Op>(o));
      const char* name = wire::info(code).name;
      if (name != nullptr && std::strchr(name, '_') + 1 == at_->words[0]) return code;
    }
    return fail("this service has no " + at_->words[0]), std::nullopt;
  }
  // "psn=7" or "psn=7..9": how many in a row.
  std::uint32_t first_psn(unsigned* count) {
    std::string s = at_->get("psn", "0");
    *count = 1;
    auto dots = s.find("..");
    auto first = static_cast<std::uint32_t>(number(s.substr(0, dots)));
    if (dots != std::string::npos) *count = ((static_cast<std::uint32_t>(number(s.substr(dots + 2))) - first) & wire::kPsnMask) + 1;
    return first;
  }
  std::optional<std::uint8_t> syndrome() {
    static const std::map<std::string, wire::NakCode> kNaks{{"sequence", wire::NakCode::kPsnSequence},
                                                            {"invalid", wire::NakCode::kInvalidRequest},
                                                            {"access", wire::NakCode::kRemoteAccess},
                                                            {"operational", wire::NakCode::kRemoteOperational}};
    if (at_->has("credits")) return static_cast<std::uint8_t>(wire::kAethAck | (arg("credits", 0) & 0x1f));
    if (at_->has("rnr")) return static_cast<std::uint8_t>(wire::kAethRnrNak | (arg("rnr", 0) & 0x1f));
    if (!at_->has("nak")) return {};
    auto nak = kNaks.find(at_->get("nak"));
    if (nak == kNaks.end()) return fail("nak is sequence, invalid, access or operational"), std::nullopt;
    return static_cast<std::uint8_t>(wire::kAethNak | static_cast<std::uint8_t>(nak->second));
  }

  void send_frame() {
    auto code = opcode();
    if (!code) return;
    unsigned count;
    std::uint32_t psn = first_psn(&count);
    const wire::Prop props = wire::info(*code).props;
    for (unsigned i = 0; i < count && error_.empty(); ++i) {
      wire::Packet p;
      p.net.smac = p.net.dmac = bench.config.mac;
      p.net.sgid = peer;
      p.net.dgid = own;
      p.net.traffic_class = static_cast<std::uint8_t>(arg("ecn", 0));
      p.bth.opcode = *code;
      p.bth.dest_qp = static_cast<std::uint32_t>(arg("dest_qp", a.qp.qpn));
      p.bth.psn = wire::psn_add(psn, i);
      p.bth.ack_req = at_->flag("ack_req");
      p.bth.solicited = at_->flag("solicited");
      std::uint64_t len = wire::has(props, wire::Prop::kPayload) ? arg("len", 0) : 0;
      if (at_->has("va")) p.reth.va = p.atomic_eth.va = address(at_->get("va"));
      if (at_->has("rkey")) p.reth.rkey = p.atomic_eth.rkey = key(at_->get("rkey"));
      p.reth.length = static_cast<std::uint32_t>(arg("dmalen", len));
      p.atomic_eth.swap_add = at_->has("add") ? arg("add", 0) : arg("swap", 0);
      p.atomic_eth.compare = arg("compare", 0);
      p.atomic_ack = arg("value", 0);
      p.imm = static_cast<std::uint32_t>(arg("imm", 0));
      p.deth = {static_cast<std::uint32_t>(arg("qkey", 0x11)), kPeerQpn};
      p.aeth = {syndrome().value_or(wire::kAethAck | 0x1f), static_cast<std::uint32_t>(arg("msn", 0))};
      if (wire::has(props, wire::Prop::kFirst)) sent_ = 0;
      sent_ = arg("off", sent_);
      Pattern data = pattern(arg("data", 1), sent_, len);
      sent_ += len;
      p.payload = data;
      FakePort::Bytes frame(wire::frame_size(p));
      frame.resize(wire::emit(p, frame));
      if (at_->flag("damaged")) frame[frame.size() - 6] ^= std::byte{1};
      carry(frame);
      settle();
    }
  }

  std::string next_name() {
    wire::Packet p;
    if (arrived.empty()) return "nothing";
    if (wire::parse(arrived.front(), p) != wire::ParseError::kNone) return "a frame that cannot be parsed";
    std::string s = wire_name(p) + " psn=" + std::to_string(p.bth.psn) + " len=" + std::to_string(p.payload.size());
    if (wire::has(wire::info(p.bth.opcode).props, wire::Prop::kAeth))
      s += " syndrome=" + std::to_string(p.aeth.syndrome) + " msn=" + std::to_string(p.aeth.msn);
    return s;
  }
  void same(const char* name, std::uint64_t is, std::uint64_t wanted) {
    if (is != wanted) fail(std::string(name) + " is " + std::to_string(is) + ", not " + std::to_string(wanted) + " (" + next_name() + ")");
  }
  void if_given(const char* name, std::uint64_t is) {
    if (at_->has(name)) same(name, is, arg(name, 0));
  }

  // "+10ms > ...": the frame comes when that time has passed, and nothing before.
  void expect_frame() {
    settle();
    if (at_->after) {
      if (!arrived.empty()) return fail("too early: " + next_name());
      Nanos begin = bench.clock.now();
      while (arrived.empty() && step_to(begin + *at_->after)) {
      }
      Nanos took = bench.clock.now() - begin;
      if (!arrived.empty() && took + 1000 < *at_->after) return fail("after " + std::to_string(took) + " ns already: " + next_name());
    }
    if (at_->flag("nothing")) {
      if (!arrived.empty()) fail("the device sent " + next_name());
      return;
    }
    auto code = opcode();
    if (!code) return;
    unsigned count;
    std::uint32_t psn = first_psn(&count);
    for (unsigned i = 0; i < count && error_.empty(); ++i) {
      if (arrived.empty()) return fail("the device sent nothing");
      wire::Packet p;
      if (wire::parse(arrived.front(), p) != wire::ParseError::kNone || p.bth.opcode != *code)
        return fail("the device sent " + next_name());
      compare(p, wire::psn_add(psn, i), i);
      arrived.pop_front();
    }
  }
  void compare(const wire::Packet& p, std::uint32_t psn, unsigned i) {
    if (at_->has("psn")) same("psn", p.bth.psn, psn);
    same("dest_qp", p.bth.dest_qp, kPeerQpn);
    if_given("len", p.payload.size());
    if_given("va", wire::has(wire::info(p.bth.opcode).props, wire::Prop::kReth) ? p.reth.va : p.atomic_eth.va);
    if_given("rkey", wire::has(wire::info(p.bth.opcode).props, wire::Prop::kReth) ? p.reth.rkey : p.atomic_eth.rkey);
    if_given("dmalen", p.reth.length);
    if_given("imm", p.imm);
    if_given("msn", p.aeth.msn);
    if_given("qkey", p.deth.qkey);
    if_given("add", p.atomic_eth.swap_add);
    if_given("swap", p.atomic_eth.swap_add);
    if_given("compare", p.atomic_eth.compare);
    if_given("value", p.atomic_ack);
    if (at_->flag("ack_req")) same("ack_req", p.bth.ack_req, 1);
    if (at_->flag("solicited")) same("solicited", p.bth.solicited, 1);
    if (at_->flag("ack")) same("syndrome's kind", p.aeth.syndrome & 0x60, wire::kAethAck);
    if (auto s = syndrome()) same("syndrome", p.aeth.syndrome, *s);
    if (at_->has("data") && error_.empty()) {
      Place from = place(at_->get("data"));
      from.off += std::uint64_t{i} * p.payload.size();
      const std::uint8_t* want = host(from, p.payload.size());
      if (error_.empty() && std::memcmp(want, p.payload.data(), p.payload.size()) != 0) fail("other data");
    }
  }

  // ---- what the program sees
  void expect_cqe() {
    static const std::map<std::string, unsigned> kStatus{
        {"success", 0},        {"loc_len", 0x01},    {"loc_qp_op", 0x02}, {"loc_prot", 0x04},  {"flush", 0x05},
        {"rem_inv_req", 0x12}, {"rem_access", 0x13}, {"rem_op", 0x14},    {"retry_exc", 0x15}, {"rnr_retry_exc", 0x16}};
    settle();
    if (at_->flag("none")) {
      if (poll(a.scq, a.scq_ci) || poll(a.rcq, a.rcq_ci)) fail("there is one");
      return;
    }
    bool of_send = at_->flag("send");
    if (at_->words.size() != 2 || of_send == at_->flag("recv")) return fail("cqe none, or cqe send|recv STATUS");
    auto status = kStatus.find(at_->words[1]);
    if (status == kStatus.end()) return fail("no such status");
    auto w = of_send ? poll(a.scq, a.scq_ci) : poll(a.rcq, a.rcq_ci);
    if (!w) return fail("there is none");
    same("syndrome", w->syndrome, status->second);
    if_given("vendor_err", w->vendor);
    if_given("len", w->byte_cnt);
    if_given("imm", w->imm);
  }
  void expect_state() {
    static const std::map<std::string, hca::QpState> kStates{
        {"RTS", hca::QpState::kRts}, {"ERR", hca::QpState::kErr}, {"SQE", hca::QpState::kSqErr}};
    settle();
    auto want = kStates.find(at_->words.empty() ? "" : at_->words[0]);
    if (want == kStates.end()) return fail("RTS, SQE or ERR");
    if (DpTest::state(a) != want->second) fail("it is not");
  }
  void about_memory() {
    settle();
    if (at_->words.size() < 2) return fail("which memory, and what?");
    Place p = place(at_->words[0]);
    if (at_->verb == "memory") {
      std::uint64_t len = number(at_->words[1]);
      Pattern want = pattern(arg("data", 1), arg("off", 0), len);
      const std::uint8_t* is = host(p, len);
      for (std::uint64_t i = 0; error_.empty() && i < len; ++i)
        if (is[i] != static_cast<std::uint8_t>(want[i])) fail("byte " + std::to_string(i) + " differs");
      return;
    }
    std::uint8_t* word = host(p, 8);
    if (!error_.empty()) return;
    std::uint64_t v = number(at_->words[1]), is;
    if (at_->verb == "set") {
      std::memcpy(word, &v, 8);
      return;
    }
    std::memcpy(&is, word, 8);
    same("it", at_->verb == "result" ? byteswap(is) : is, v);  // what an atomic returns is big-endian, as the device is set up
  }
};

}  // namespace uhca::hcatest

// SPDX-License-Identifier: MIT
// Work requests that change keys: memory windows (case D11), fast registration as kernel ULPs do it, local and remote invalidate; indirect
// keys.
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using hca::QpState;
using hca::QpType;
using prm::CqeOpcode;
using prm::WqeOpcode;
using Syndromes = std::vector<unsigned>;

constexpr std::uint8_t kMustBeFree = 1 << 5;
constexpr std::uint64_t kMaskPageSize = 1 << 1, kMaskEnRinval = 1 << 8, kMaskLocalRead = 1 << 17;

struct UmrSpec {
  std::uint32_t key = 0;  // imm: the key that is changed
  std::uint8_t flags = prm::kUmrInline;
  std::uint64_t mask = prm::kUmrMaskFree;
  bool free = false;
  unsigned rights = 0;  // byte 2 of the mkey context: kMkeySeg*
  std::uint8_t variant = 0;
  std::uint32_t qpn = 0xffffff;
  bool en_rinval = false;
  std::uint64_t start = 0, len = 0;
  unsigned log_page = 0;
  unsigned octwords = 0;
  std::vector<hca::Klm> klms;        // inline
  std::vector<std::uint64_t> pages;  // inline
  std::optional<Sge> list;           // by pointer
};

class DpUmr : public DpTest {
 protected:
  Region src, dst;
  void setup(bool fre = false) {
    base.fre = fre;
    connect();
    src = region(16384);
    dst = region(16384);
    fill(src, 5);
  }
  std::uint32_t free_mkey(unsigned mode, unsigned octwords, bool en_rinval = true, bool umr_en = true) {
    Request<prm::create_mkey_in> r(prm::Opcode::CREATE_MKEY);
    void* c = r.at<prm::create_mkey_in::memory_key_mkey_entry>();
    prm::set<prm::mkc::free>(c, 1);
    prm::set<prm::mkc::translations_octword_size>(c, octwords);
    prm::set<prm::mkc::pd>(c, bench.pd);
    prm::set<prm::mkc::umr_en>(c, umr_en);
    prm::set<prm::mkc::lr>(c, 1);
    prm::set<prm::mkc::access_mode_1_0>(c, mode);
    prm::set<prm::mkc::en_rinval>(c, en_rinval);
    prm::set<prm::mkc::qpn>(c, 0xffffff);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    return out.get<prm::create_mkey_out::mkey_index>() << 8;
  }
  std::uint16_t post_umr(End& e, const UmrSpec& u, bool ring = true) {
    std::uint8_t raw[1024] = {};
    std::size_t at = 16 + 48 + 64;
    std::uint8_t* c = raw + 16;
    prm::set<prm::wqe_umr_ctrl_seg::flags>(c, u.flags);
    prm::set<prm::wqe_umr_ctrl_seg::klm_octowords>(c, u.octwords);
    prm::set<prm::wqe_umr_ctrl_seg::mkey_mask>(c, u.mask);
    std::uint8_t* m = c + 48;
    prm::set<prm::mkc::free>(m, u.free);
    m[2] = static_cast<std::uint8_t>(u.rights);
    prm::set<prm::mkc::qpn>(m, u.qpn);
    prm::set<prm::mkc::mkey_7_0>(m, u.variant);
    prm::set<prm::mkc::en_rinval>(m, u.en_rinval);
    prm::set<prm::mkc::start_addr>(m, u.start);
    prm::set<prm::mkc::len>(m, u.len);
    prm::set<prm::mkc::log_page_size>(m, u.log_page);
    if (u.list) {
      prm::set<prm::wqe_data_seg::byte_count>(raw + at, u.list->len);
      prm::set<prm::wqe_data_seg::lkey>(raw + at, u.list->lkey);
      prm::set<prm::wqe_data_seg::addr>(raw + at, u.list->addr);
      at += 16;
    } else {
      std::size_t list = at;
      for (const hca::Klm& k : u.klms) {
        store_be<std::uint32_t>(raw + list, k.byte_count);
        store_be<std::uint32_t>(raw + list + 4, k.key);
        store_be<std::uint64_t>(raw + list + 8, k.va);
        list += 16;
      }
      for (std::uint64_t p : u.pages) {
        store_be<std::uint64_t>(raw + list, p);
        list += 8;
      }
      at = (list + 63) / 64 * 64;
    }
    prm::set<prm::wqe_ctrl_seg::opcode>(raw, static_cast<unsigned>(WqeOpcode::UMR));
    prm::set<prm::wqe_ctrl_seg::wqe_index>(raw, e.sq_pi);
    prm::set<prm::wqe_ctrl_seg::qpn>(raw, e.qp.qpn);
    prm::set<prm::wqe_ctrl_seg::ds>(raw, at / 16);
    prm::set<prm::wqe_ctrl_seg::fm_ce_se>(raw, prm::kWqeCtrlCqUpdate);
    prm::set<prm::wqe_ctrl_seg::imm>(raw, u.key);
    return post_raw(e, raw, at, ring);
  }
  // As libmlx5 binds a window of type 2.
  UmrSpec bind(std::uint32_t mw, std::uint8_t variant, const End& e, const Region& r, std::uint64_t off, std::uint32_t len) {
    UmrSpec u;
    u.key = mw;
    u.flags = prm::kUmrInline | prm::kUmrTranslationOffset | prm::kUmrCheckFree;
    u.mask = prm::kUmrMaskFree | prm::kUmrMaskMkey | prm::kUmrMaskQpn | prm::kUmrMaskLen | prm::kUmrMaskStartAddr |
             prm::kUmrMaskLocalWrite | prm::kUmrMaskRemoteRead | prm::kUmrMaskRemoteWrite | prm::kUmrMaskAtomic;
    u.rights = prm::kMkeySegRemoteRead | prm::kMkeySegRemoteWrite;
    u.variant = variant;
    u.qpn = e.qp.qpn;
    u.start = r.va + off;
    u.len = len;
    u.octwords = 4;
    u.klms = {{len, r.key, r.va + off}};
    return u;
  }
  static UmrSpec local_inv(std::uint32_t key) {  // as libmlx5
    UmrSpec u;
    u.key = key;
    u.flags = prm::kUmrInline | prm::kUmrTranslationOffset | prm::kUmrCheckQpn;
    u.mask = prm::kUmrMaskFree | prm::kUmrMaskMkey | prm::kUmrMaskQpn;
    u.free = true;
    return u;
  }
  Syndromes write(std::uint32_t rkey, std::uint64_t va, std::uint32_t len) {
    post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, len)}, .raddr = va, .rkey = rkey});
    run();
    return syndromes(sends(a));
  }
};

TEST_F(DpUmr, WindowOfTypeTwo) {  // D11
  setup();
  std::uint32_t mw = free_mkey(2, 4);
  post_umr(b, bind(mw, 7, b, dst, 100, 1000));
  run();
  auto s = sends(b);
  ASSERT_EQ(syndromes(s), (Syndromes{0}));
  EXPECT_EQ(s[0].wqe_opcode, 0x25u);
  EXPECT_EQ(write(mw | 7, dst.va + 100, 1000), (Syndromes{0}));
  EXPECT_EQ(std::memcmp(bench.bus.host(dst.mem) + 100, bench.bus.host(src.mem), 1000), 0);
  // SEND with invalidate names it: gone.
  post_recv(b, {sge(dst, 64)});
  Wr inv{.op = WqeOpcode::SEND_INVAL, .sges = {sge(src, 8)}};
  inv.imm = mw | 7;
  post(a, inv);
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].opcode, CqeOpcode::RESP_SEND_INV);
  EXPECT_EQ(v[0].imm, mw | 7);
  post_umr(b, local_inv(mw | 7));
  run();
  EXPECT_EQ(syndromes(sends(b)), (Syndromes{0}));
  EXPECT_EQ(write(mw | 7, dst.va + 100, 8), (Syndromes{0x13}));
}

TEST_F(DpUmr, OldVariantOfAWindowIsAnAccessError) {  // D11
  setup();
  std::uint32_t mw = free_mkey(2, 4);
  post_umr(b, bind(mw, 7, b, dst, 0, 1000));
  run();
  EXPECT_EQ(write(mw, dst.va, 8), (Syndromes{0x13}));
}

TEST_F(DpUmr, WindowBoundsAndQp) {
  setup();
  std::uint32_t mw = free_mkey(2, 4);
  post_umr(b, bind(mw, 1, b, dst, 100, 1000));
  run();
  EXPECT_EQ(write(mw | 1, dst.va + 99, 8), (Syndromes{0x13}));
}

TEST_F(DpUmr, WindowOfAnotherQpIsAnAccessError) {
  setup();
  std::uint32_t mw = free_mkey(2, 4);
  post_umr(a, bind(mw, 1, a, dst, 0, 1000));  // A's own
  run();
  ASSERT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(write(mw | 1, dst.va, 8), (Syndromes{0x13}));
}

TEST_F(DpUmr, BindOfABoundWindowFails) {
  setup();
  std::uint32_t mw = free_mkey(2, 4);
  post_umr(b, bind(mw, 1, b, dst, 0, 1000));
  post_umr(b, bind(mw, 2, b, dst, 0, 1000));
  run();
  auto s = sends(b);
  ASSERT_EQ(syndromes(s), (Syndromes{0, 0x06}));
  EXPECT_EQ(s[1].vendor, 0x78u);
  EXPECT_EQ(state(b), QpState::kErr);
}

TEST_F(DpUmr, BindsThatTheRegionDoesNotAllow) {
  for (int what = 0; what < 4; ++what) {
    SCOPED_TRACE(what);
    setup();
    std::uint32_t mw = free_mkey(2, 4);
    Region r = dst;
    if (what == 0) r.key ^= 1;
    if (what == 1) r = region(4096, {.lw = false, .rr = true, .rw = false, .a = false});
    if (what == 2) r.key = bench.create_mkey_in_pd(bench.alloc_pd(), dst.va, dst.len, dst.mem, {});
    post_umr(b, bind(mw, 1, b, r, 0, what == 3 ? 16385 : 1000));
    run();
    EXPECT_EQ(syndromes(sends(b)), (Syndromes{0x06}));
  }
}

TEST_F(DpUmr, KeysWithoutUmrAndOfOthersAreRefused) {
  for (int what = 0; what < 3; ++what) {
    SCOPED_TRACE(what);
    setup();
    std::uint32_t mw = what == 0 ? free_mkey(2, 4, true, false) : free_mkey(2, 4);
    UmrSpec u = bind(what == 1 ? mw + 0x100 : mw, 1, b, dst, 0, 1000);
    if (what == 2) u.octwords = 5, u.klms.resize(5, u.klms[0]);
    post_umr(b, u);
    run();
    EXPECT_EQ(syndromes(sends(b)), (Syndromes{0x06}));
  }
}

// ---- fast registration

TEST_F(DpUmr, FastRegistrationWithPagesInTheWqe) {
  setup(true);
  std::uint32_t mr = free_mkey(1, 2);  // room for the three pages; lists come in units of 64 bytes all the same
  UmrSpec u;
  u.key = mr | 3;
  u.flags = prm::kUmrInline | kMustBeFree;
  u.mask = prm::kUmrMaskLen | kMaskPageSize | prm::kUmrMaskStartAddr | kMaskEnRinval | prm::kUmrMaskMkey | kMaskLocalRead |
           prm::kUmrMaskLocalWrite | prm::kUmrMaskRemoteRead | prm::kUmrMaskRemoteWrite | prm::kUmrMaskFree;
  u.variant = 3;
  u.rights = 0x80 | prm::kMkeySegLocalRead | prm::kMkeySegLocalWrite | prm::kMkeySegRemoteRead | prm::kMkeySegRemoteWrite | 1;
  u.start = 0x5000000100;
  u.len = 3 * 4096 - 0x100;
  u.log_page = 12;
  u.octwords = 4;
  // The pages in the order 2, 0, 1.
  u.pages = {(dst.mem & ~std::uint64_t{4095}) + 8192 + 3, (dst.mem & ~std::uint64_t{4095}) + 3,
             (dst.mem & ~std::uint64_t{4095}) + 4096 + 3};
  u.en_rinval = true;
  post_umr(b, u);
  run();
  ASSERT_EQ(syndromes(sends(b)), (Syndromes{0}));
  EXPECT_EQ(write(mr | 3, u.start, 3 * 4096 - 0x100), (Syndromes{0}));
  std::vector<std::uint8_t> seen;
  for (std::size_t page : {8192, 0, 4096}) {
    const std::uint8_t* p = bench.bus.host((dst.mem & ~std::uint64_t{4095}) + page);
    seen.insert(seen.end(), p + (page == 8192 ? 0x100 : 0), p + 4096);
  }
  EXPECT_EQ(std::memcmp(seen.data(), bench.bus.host(src.mem), seen.size()), 0);
  // Registered twice: it is in use.
  post_umr(b, u);
  run();
  EXPECT_EQ(syndromes(sends(b)), (Syndromes{0x06}));
}

TEST_F(DpUmr, PageListsNeedFastRegistration) {
  setup(false);
  std::uint32_t mr = free_mkey(1, 4);
  UmrSpec u;
  u.key = mr;
  u.octwords = 4;
  u.pages = {0x3};
  post_umr(b, u);
  run();
  EXPECT_EQ(syndromes(sends(b)), (Syndromes{0x06}));
}

TEST_F(DpUmr, LongListByPointerAndLocalInvalidate) {
  setup(true);
  constexpr unsigned kPages = 300;
  Region big = region(kPages * 4096, {}, 0x6f0000000000), list = region(kPages * 8 + 64);
  for (unsigned i = 0; i < kPages; ++i) store_be<std::uint64_t>(bench.bus.host(list.mem) + 8 * i, big.mem + (kPages - 1 - i) * 4096 + 3);
  std::uint32_t mr = free_mkey(1, kPages);
  UmrSpec u;
  u.key = mr | 9;
  u.flags = kMustBeFree;
  u.mask = prm::kUmrMaskLen | kMaskPageSize | prm::kUmrMaskStartAddr | prm::kUmrMaskMkey | prm::kUmrMaskLocalWrite |
           prm::kUmrMaskRemoteWrite | prm::kUmrMaskFree;
  u.variant = 9;
  u.rights = prm::kMkeySegLocalWrite | prm::kMkeySegRemoteWrite;
  u.start = 0;
  u.len = kPages * 4096;
  u.log_page = 12;
  u.octwords = (kPages * 8 + 63) / 64 * 4;
  u.list = Sge{list.va, u.octwords * 16, list.key};
  post_umr(b, u);
  run();
  ASSERT_EQ(syndromes(sends(b)), (Syndromes{0}));
  EXPECT_EQ(write(mr | 9, 299 * 4096, 100), (Syndromes{0}));
  EXPECT_EQ(std::memcmp(bench.bus.host(big.mem), bench.bus.host(src.mem), 100), 0);
  UmrSpec inv;  // as mlx5_ib: FREE only, the variant must be right
  inv.key = mr | 9;
  inv.free = true;
  post_umr(b, inv);
  run();
  ASSERT_EQ(syndromes(sends(b)), (Syndromes{0}));
  EXPECT_EQ(write(mr | 9, 0, 100), (Syndromes{0x13}));
  EXPECT_EQ(bench.bus.faults(), 0u);
}

TEST_F(DpUmr, ListThatIsNotReadableChangesNothing) {
  setup(true);
  std::uint32_t mr = free_mkey(1, 8);
  UmrSpec u;
  u.key = mr;
  u.flags = 0;
  u.octwords = 8;
  u.list = Sge{src.va, 128, src.key ^ 1};
  post_umr(b, u);
  run();
  EXPECT_EQ(syndromes(sends(b)), (Syndromes{0x04}));
}

TEST_F(DpUmr, LaterRequestsOfTheSameDoorbellUseTheNewKey) {
  setup();
  std::uint32_t mw = free_mkey(2, 4);
  UmrSpec u = bind(mw, 5, a, src, 0, 4096);
  u.mask |= kMaskLocalRead;
  u.rights |= prm::kMkeySegLocalRead;
  post_umr(a, u, false);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {{src.va, 100, mw | 5}}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0}));
  EXPECT_TRUE(same(src, dst, 100));
}

TEST_F(DpUmr, GoingBackDoesNotExecuteItTwice) {
  setup();
  std::uint32_t mw = free_mkey(2, 4);
  on_packet([n = 0](const wire::Packet&) mutable { return n++ == 0 ? FakePort::Verdict::kDrop : FakePort::Verdict::kDeliver; });
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key}, false);
  post_umr(a, bind(mw, 5, a, src, 0, 4096), false);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key});
  run_for(1'000'000'000);
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0, 0}));
}

// ---- indirect keys

TEST_F(DpUmr, IndirectKeyJoinsPieces) {
  setup();
  Region second = region(8192, {}, 0x6e0000000010);
  std::uint32_t mw = free_mkey(2, 4);
  UmrSpec u = bind(mw, 1, b, dst, 0, 4000);
  u.klms = {{1001, dst.key, dst.va + 7}, {999, second.key, second.va + 1}, {2000, dst.key, dst.va + 8192}};
  u.start = 0x1000;
  post_umr(b, u);
  run();
  ASSERT_EQ(syndromes(sends(b)), (Syndromes{0}));
  EXPECT_EQ(write(mw | 1, 0x1000, 4000), (Syndromes{0}));
  const std::uint8_t* s = bench.bus.host(src.mem);
  EXPECT_EQ(std::memcmp(bench.bus.host(dst.mem) + 7, s, 1001), 0);
  EXPECT_EQ(std::memcmp(bench.bus.host(second.mem) + 1, s + 1001, 999), 0);
  EXPECT_EQ(std::memcmp(bench.bus.host(dst.mem) + 8192, s + 2000, 2000), 0);
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 3000, 8192)}, .raddr = 0x1000 + 500, .rkey = mw | 1});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(std::memcmp(bench.bus.host(src.mem) + 8192, s + 500, 3000), 0);
  // The key behind it goes: access error at the next use.
  ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_MKEY, second.key >> 8).ok());
  EXPECT_EQ(write(mw | 1, 0x1000, 4000), (Syndromes{0x13}));
}

TEST_F(DpUmr, KeysThatPointAtThemselvesEnd) {
  setup();
  std::uint32_t k = free_mkey(3, 4);  // KSM: its list is not checked when it is loaded
  UmrSpec u = bind(k, 0, b, dst, 0, 4096);
  u.mask |= kMaskPageSize;
  u.log_page = 12;
  u.qpn = 0xffffff;
  u.start = 0;
  u.klms = {{0, k, 0}};
  post_umr(b, u);
  run();
  ASSERT_EQ(syndromes(sends(b)), (Syndromes{0}));
  EXPECT_EQ(write(k, 0, 8), (Syndromes{0x13}));
}

// As mlx5_ib's QP for MRs: no path, and no PD before INIT.
TEST_F(DpUmr, UmrQpNeedsNoPathAndGetsItsPdAtInit) {
  setup();
  QpSpec s;
  s.type = QpType::kRegUmr;
  s.rq_type = 3;
  End e;
  e.scq = bench.create_cq(4);
  s.send_cqn = e.scq.cqn;
  auto request = bench.qp_request(s, e.qp);
  prm::set<prm::qpc::pd>(request.at<prm::create_qp_in::qpc>(), 0);
  Reply created = bench.cmd.exec(request);
  ASSERT_TRUE(created.ok());
  e.qp.qpn = created.get<prm::create_qp_out::qpn>();
  PathSpec none;
  bench.connect(e.qp, none);
  std::uint32_t mr = free_mkey(1, 4);
  Region list = region(64);
  store_be<std::uint64_t>(bench.bus.host(list.mem), dst.mem | 3);
  UmrSpec u;
  u.key = mr;
  u.mask |= prm::kUmrMaskLen | prm::kUmrMaskStartAddr | kMaskPageSize | prm::kUmrMaskRemoteWrite;
  u.rights = prm::kMkeySegRemoteWrite;
  u.start = 0;
  u.len = 4096;
  u.log_page = 12;
  u.octwords = 4;
  u.flags = kMustBeFree;
  u.list = Sge{list.va, 64, list.key};
  post_umr(e, u);
  run();
  EXPECT_EQ(syndromes(sends(e)), (Syndromes{0}));
  EXPECT_EQ(write(mr, 0, 8), (Syndromes{0}));
  post(e, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(syndromes(sends(e)), (Syndromes{0x02}));
}

}  // namespace
}  // namespace uhca::hcatest

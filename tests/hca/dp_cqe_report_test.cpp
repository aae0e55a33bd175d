// SPDX-License-Identifier: MIT
// Error CQEs as real adapters wrote them, from four bug reports (case C19): the same mistakes give the same words here.
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;
using Tail = std::array<std::uint32_t, 4>;  // the last four words of the CQE

class DpCqeReport : public DpTest {
 protected:
  // The last words of A's first completion, without what differs from run to run: QPN, WQE counter, signature, owner.
  Tail first_send() {
    const std::uint8_t* e = bench.bus.host(a.scq.buf);
    Tail t;
    for (std::size_t i = 0; i < t.size(); ++i) t[i] = load_be<std::uint32_t>(e + 48 + 4 * i);
    return without_numbers(t);
  }
  static Tail without_numbers(Tail t) {
    t[2] &= 0xff000000;
    t[3] &= 0x000000f0;
    return t;
  }
};

TEST_F(DpCqeReport, SendFromAKeyThatIsNone) {
  connect();
  Region src = region(64);
  post(a, {.sges = {{src.va, 64, src.key ^ 1}}});
  run();
  EXPECT_EQ(first_send(), without_numbers({0x00000000, 0x93005204, 0x0a0019a1, 0xc0921cd2}));
}

TEST_F(DpCqeReport, ReadWithAKeyThatIsNone) {
  connect();
  Region src = region(64), dst = region(64);
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 64)}, .raddr = dst.va, .rkey = dst.key ^ 1});
  run();
  EXPECT_EQ(first_send(), without_numbers({0x00000000, 0x00008813, 0x10012abe, 0x0dd0c1d3}));
}

TEST_F(DpCqeReport, ReadThatThePeersQpForbids) {
  path_b.rre = false;
  connect();
  Region src = region(64), dst = region(64);
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 64)}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_EQ(first_send(), without_numbers({0x00000000, 0x00008a12, 0x1002a8af, 0x0001a2d2}));
}

TEST_F(DpCqeReport, WriteBeyondTheRegion) {
  connect();
  Region src = region(64), dst = region(64);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 64)}, .raddr = dst.va + 1, .rkey = dst.key});
  run();
  EXPECT_EQ(first_send(), without_numbers({0x00000000, 0x00008813, 0x08006214, 0x0000f6d2}));
}

}  // namespace
}  // namespace uhca::hcatest

// SPDX-License-Identifier: MIT
// What a re-registration changes under the same key, and what needs a new one; packet pacing entries.
#include "kernel/mlx5_ib/umr.h"

#include "mlx5/rig.h"
#include "prm/cmd_core.h"
#include "prm/context.h"

namespace uhca::mlx5test {
namespace {

class UmrTest : public DeviceTest {
 protected:
  static constexpr std::uint32_t kNewPd = 2, kNewAccess = 4;  // IB_MR_REREG_*
  std::vector<std::uint8_t> query(std::uint32_t key) {
    std::uint8_t in[prm::query_mkey_in::kBytes] = {};
    std::vector<std::uint8_t> out(prm::query_mkey_out::kBytes);
    prm::set<prm::query_mkey_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_MKEY));
    prm::set<prm::query_mkey_in::mkey_index>(in, key >> 8);
    EXPECT_TRUE(dev->mdev->cmd().exec(in, sizeof in, out.data(), out.size()).ok());
    const auto* mkc =
        static_cast<const std::uint8_t*>(prm::at<prm::query_mkey_out::memory_key_mkey_entry>(static_cast<const void*>(out.data())));
    return {mkc, mkc + prm::mkc::kBytes};
  }
};

TEST_F(UmrTest, AccessAndPdChangeUnderTheKey) {
  Pages memory(8192);
  auto mr = ib_reg_user_mr(*pd, up(memory.p), 8192, up(memory.p), kAccessLocalWrite, nullptr);
  ASSERT_TRUE(mr.ok());
  auto other = ib_alloc_pd(*dev, ctx.get(), nullptr);
  ASSERT_TRUE(other.ok());
  const std::uint32_t key = (*mr)->lkey;
  for (int i = 0; i < 20; ++i) {  // the queue goes round several times
    std::uint32_t access = i % 2 ? kAccessLocalWrite : kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;
    ib_pd& to = i % 2 ? *pd : **other;
    auto same = dev->ops.rereg_user_mr(**mr, kNewAccess | kNewPd, 0, 0, 0, access, to, nullptr);
    ASSERT_TRUE(same.ok()) << same.code();
    EXPECT_EQ(nullptr, same->get()) << "no new key";
    auto mkc = query(key);
    EXPECT_EQ(i % 2 ? 0u : 1u, prm::get<prm::mkc::rw>(mkc.data()));
    EXPECT_EQ(i % 2 ? 0u : 1u, prm::get<prm::mkc::rr>(mkc.data()));
    EXPECT_EQ(1u, prm::get<prm::mkc::lw>(mkc.data()));
    EXPECT_EQ(to_mpd(to).pdn, prm::get<prm::mkc::pd>(mkc.data()));
    EXPECT_EQ(8192u, prm::get<prm::mkc::len>(mkc.data()));
  }
  EXPECT_TRUE(ib_dealloc_pd(**other).ok()) << "the key has left it";
  auto fresh = dev->ops.rereg_user_mr(**mr, kNewAccess, 0, 0, 0, kAccessLocalWrite | kAccessRelaxedOrdering, *pd, nullptr);
  ASSERT_TRUE(fresh.ok());
  ASSERT_NE(nullptr, fresh->get()) << "ordering is not what a UMR changes";
  EXPECT_TRUE(ib_dereg_mr(**fresh).ok());
  ranges_before = dev->mdev->domain().live_ranges();
}

TEST_F(UmrTest, RefusedRequestsDoNotEndTheQueue) {
  auto ring = +[](void* d, std::uint64_t offset, std::uint64_t value) { static_cast<mlx5_ib_dev*>(d)->doorbell(offset, value); };
  EXPECT_EQ(EIO, dev->umr->change_pd_access(0xdead00, to_mpd(*pd).pdn, 0, ring, dev).code()) << "no such key";
  Pages memory(4096);
  auto mr = ib_reg_user_mr(*pd, up(memory.p), 4096, up(memory.p), kAccessLocalWrite, nullptr);
  ASSERT_TRUE(mr.ok());
  EXPECT_TRUE(dev->umr->change_pd_access((*mr)->lkey, to_mpd(*pd).pdn, kAccessLocalWrite | kAccessRemoteRead, ring, dev).ok());
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
  ranges_before = dev->mdev->domain().live_ranges();
}

TEST_F(UmrTest, EqualRatesShareAnEntry) {
  auto context = [](std::uint32_t kbps) {
    RateTable::Context c{};
    prm::set<prm::set_pp_rate_limit_context::rate_limit>(c.data(), kbps);
    return c;
  };
  RateTable& t = dev->mdev->rates();
  auto a = t.add(context(100), 0, false), b = t.add(context(100), 0, false), own = t.add(context(100), 0, true),
       c = t.add(context(7), 0, false);
  ASSERT_TRUE(a.ok() && b.ok() && own.ok() && c.ok());
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, *own);
  EXPECT_NE(*a, *c);
  EXPECT_EQ(EINVAL, t.add(context(0), 0, false).code());
  EXPECT_EQ(EINVAL, t.add(context(0xffffffff), 0, false).code());
  t.remove(*a);
  EXPECT_EQ(*b, *t.add(context(100), 0, false)) << "still in use";
  t.remove(*b);
  t.remove(*b);
  for (std::uint16_t i : {*own, *c}) t.remove(i);
  std::vector<std::uint16_t> all;
  for (;;) {
    auto i = t.add(context(5), 0, true);
    if (!i.ok()) {
      EXPECT_EQ(ENOSPC, i.code());
      break;
    }
    all.push_back(*i);
  }
  EXPECT_EQ(128u, all.size());
  for (std::uint16_t i : all) t.remove(i);
}

}  // namespace
}  // namespace uhca::mlx5test

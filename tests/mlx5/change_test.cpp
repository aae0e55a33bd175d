// SPDX-License-Identifier: MIT
// What changes an object after its creation: rereg_mr, resize_cq, CQ moderation; and the clock pages.
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>

#include "kernel/mlx5_ib/clock.h"
#include "mlx5/rig.h"
#include "prm/cmd_object.h"
#include "prm/context.h"

namespace uhca::mlx5test {
namespace {

constexpr std::uint32_t kTrans = 1, kPd = 2, kAccess = 4;  // IB_MR_REREG_*

// What the device knows of a key.
std::vector<std::uint8_t> query_mkey(mlx5_core_dev& m, std::uint32_t key) {
  std::uint8_t in[prm::query_mkey_in::kBytes] = {};
  std::vector<std::uint8_t> out(prm::query_mkey_out::kBytes), mkc(prm::mkc::kBytes);
  prm::set<prm::query_mkey_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_MKEY));
  prm::set<prm::query_mkey_in::mkey_index>(in, key >> 8);
  if (!m.cmd().exec(in, sizeof in, out.data(), out.size()).ok()) return {};
  std::memcpy(mkc.data(), prm::at<prm::query_mkey_out::memory_key_mkey_entry>(out.data()), mkc.size());
  return mkc;
}

class ChangeTest : public DeviceTest {
 protected:
  Result<std::unique_ptr<ib_mr>> rereg(ib_mr& mr, std::uint32_t flags, void* p, std::uint64_t len, std::uint32_t access, ib_pd& to) {
    return dev->ops.rereg_user_mr(mr, flags, up(p), len, up(p), access, to, nullptr);
  }
};

TEST_F(ChangeTest, ReregMovesMemoryPdAndAccess) {
  Pages a(8192), b(16384);
  auto mr = ib_reg_user_mr(*pd, up(a.p), 8192, up(a.p), kAccessLocalWrite, nullptr);
  ASSERT_TRUE(mr.ok());
  std::size_t ranges = dev->mdev->domain().live_ranges();
  std::uint32_t old = (*mr)->lkey;
  auto other = ib_alloc_pd(*dev, ctx.get(), nullptr);
  ASSERT_TRUE(other.ok());

  auto moved = rereg(**mr, kTrans, b.p, 16384, 0, *pd);
  ASSERT_TRUE(moved.ok()) << moved.code();
  EXPECT_TRUE(query_mkey(*dev->mdev, old).empty()) << "the old key is gone";
  EXPECT_EQ(16384u, (*moved)->length);
  EXPECT_EQ(ranges, dev->mdev->domain().live_ranges());
  auto mkc = query_mkey(*dev->mdev, (*moved)->lkey);
  ASSERT_FALSE(mkc.empty());
  EXPECT_EQ(up(b.p), prm::get<prm::mkc::start_addr>(mkc.data()));
  EXPECT_EQ(1u, prm::get<prm::mkc::lw>(mkc.data())) << "access is kept";

  auto both = rereg(**moved, kPd | kAccess, nullptr, 0, kAccessLocalWrite | kAccessRemoteRead, **other);
  ASSERT_TRUE(both.ok()) << both.code();
  EXPECT_EQ(nullptr, both->get()) << "the key stays";
  mkc = query_mkey(*dev->mdev, (*moved)->lkey);
  EXPECT_EQ(to_mpd(**other).pdn, prm::get<prm::mkc::pd>(mkc.data()));
  EXPECT_EQ(1u, prm::get<prm::mkc::rr>(mkc.data()));
  EXPECT_EQ(up(b.p), prm::get<prm::mkc::start_addr>(mkc.data())) << "the memory is kept";
  EXPECT_TRUE(dev->ops.dereg_mr(**moved).ok());
  pd->usecnt.fetch_sub(1);  // of the first registration; the core moves it along with the PD
  dev->restrack[RDMA_RESTRACK_MR].fetch_sub(1);
  EXPECT_TRUE(ib_dealloc_pd(**other).ok());
}

TEST_F(ChangeTest, ReregThatFailsKeepsTheOldRegistration) {
  Pages a(8192);
  auto mr = ib_reg_user_mr(*pd, up(a.p), 8192, up(a.p), 0, nullptr);
  ASSERT_TRUE(mr.ok());
  std::size_t ranges = dev->mdev->domain().live_ranges();
  EXPECT_EQ(EACCES, rereg(**mr, kAccess, nullptr, 0, kAccessLocalWrite, *pd).code()) << "pinned for reading";
  EXPECT_EQ(EOPNOTSUPP, rereg(**mr, kAccess, nullptr, 0, kAccessOnDemand, *pd).code());
  EXPECT_EQ(EFAULT, dev->ops.rereg_user_mr(**mr, kTrans, 4096, 4096, 4096, 0, *pd, nullptr).code());
  EXPECT_EQ(EINVAL, dev->ops.rereg_user_mr(**mr, kTrans, up(a.p), 4096, up(a.p) + 1, 0, *pd, nullptr).code());
  for (prm::Opcode op : {prm::Opcode::CREATE_MKEY, prm::Opcode::DESTROY_MKEY}) {
    dev->mdev->cmd().inject({0, static_cast<std::uint16_t>(op), prm::CmdStatus::NO_RES});
    EXPECT_EQ(EAGAIN, rereg(**mr, kAccess, nullptr, 0, kAccessRelaxedOrdering, *pd).code()) << "needs a new key";
    dev->mdev->cmd().clear_fault();
    EXPECT_FALSE(query_mkey(*dev->mdev, (*mr)->lkey).empty());
    EXPECT_EQ(ranges, dev->mdev->domain().live_ranges());
  }
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
  EXPECT_EQ(ranges - 1, dev->mdev->domain().live_ranges());
}

TEST_F(ChangeTest, ResizeCqMovesItsBuffer) {
  Pages buf(65536), bigger(65536), db(64);
  for (std::size_t i = 63; i < 65536; i += 64) buf.p[i] = bigger.p[i] = 0xf0;
  auto cq = make_cq(15, buf.p, db.p);
  ASSERT_TRUE(cq.ok());
  auto resize = [&](std::uint32_t cqe, auto change, std::size_t inlen = sizeof(mlx5_ib_resize_cq)) {
    Call<mlx5_ib_resize_cq, int> call(inlen);
    call.in.buf_addr = up(bigger.p);
    call.in.cqe_size = 64;
    change(call.in);
    return dev->ops.resize_cq(**cq, cqe, &call.udata).code();
  };
  auto as_is = [](auto&) {};
  EXPECT_EQ(EINVAL, resize(1u << 23, as_is));
  EXPECT_EQ(EINVAL, resize(63, as_is, 8));
  EXPECT_EQ(EINVAL, resize(63, [](auto& in) { in.reserved0 = 1; }));
  EXPECT_EQ(EINVAL, resize(63, [](auto& in) { in.cqe_size = 128; }));
  EXPECT_EQ(EFAULT, resize(63, [](auto& in) { in.buf_addr = 4096; }));
  EXPECT_EQ(EINVAL, dev->ops.resize_cq(**cq, 63, nullptr).code());
  EXPECT_EQ(15, (*cq)->cqe);
  EXPECT_EQ(0, resize(15, as_is)) << "nothing to do";
  ASSERT_EQ(0, resize(63, as_is));
  EXPECT_EQ(63, (*cq)->cqe);
  EXPECT_EQ(5 << 4, buf.p[63] & 0xf0) << "the RESIZE_CQ entry ends the old buffer";
  EXPECT_TRUE(ib_destroy_cq(**cq).ok());
}

TEST_F(ChangeTest, Moderation) {
  Pages buf(65536), db(64);
  auto cq = make_cq(15, buf.p, db.p);
  ASSERT_TRUE(cq.ok());
  EXPECT_EQ(EINVAL, dev->ops.modify_cq(**cq, 1, 0x1000).code());
  ASSERT_TRUE(dev->ops.modify_cq(**cq, 7, 100).ok());
  std::uint8_t in[prm::query_cq_in::kBytes] = {};
  std::vector<std::uint8_t> out(prm::query_cq_out::kBytes);
  prm::set<prm::query_cq_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_CQ));
  prm::set<prm::query_cq_in::cqn>(in, (*cq)->hw_cqn());
  ASSERT_TRUE(dev->mdev->cmd().exec(in, sizeof in, out.data(), out.size()).ok());
  const void* cqc = prm::at<prm::query_cq_out::cq_context>(static_cast<const void*>(out.data()));
  EXPECT_EQ(100u, prm::get<prm::cqc::cq_period>(cqc));
  EXPECT_EQ(7u, prm::get<prm::cqc::cq_max_count>(cqc));
  EXPECT_TRUE(ib_destroy_cq(**cq).ok());
}

TEST_F(ChangeTest, ClockPagesAreReadOnlyAndMove) {
  constexpr std::uint64_t kCoreClock = 5 << 8, kClockInfo = 7 << 8;
  EXPECT_EQ(EPERM, dev->ops.mmap(*ctx, kCoreClock, 4096, PROT_READ | PROT_WRITE).code());
  EXPECT_EQ(EPERM, dev->ops.mmap(*ctx, kClockInfo, 4096, PROT_READ | PROT_EXEC).code());
  EXPECT_EQ(EINVAL, dev->ops.mmap(*ctx, kClockInfo, 8192, PROT_READ).code());
  EXPECT_EQ(EOPNOTSUPP, dev->ops.mmap(*ctx, kClockInfo + 1, 4096, PROT_READ).code());
  EXPECT_EQ(1u << MLX5_IB_CLOCK_INFO_V1, uctx_resp.clock_info_versions);
  EXPECT_TRUE(uctx_resp.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET);

  auto timer = dev->ops.mmap(*ctx, kCoreClock, 4096, PROT_READ), info = dev->ops.mmap(*ctx, kClockInfo, 4096, PROT_READ);
  ASSERT_TRUE(timer.ok() && info.ok());
  EXPECT_EQ(MAP_FAILED, ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, timer->fd, static_cast<off_t>(timer->offset)));
  auto* t = static_cast<const std::uint8_t*>(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, timer->fd, static_cast<off_t>(timer->offset)));
  auto* i =
      static_cast<const mlx5_ib_clock_info*>(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, info->fd, static_cast<off_t>(info->offset)));
  ASSERT_NE(MAP_FAILED, static_cast<const void*>(t));
  ASSERT_NE(MAP_FAILED, static_cast<const void*>(i));
  EXPECT_EQ(-1, mprotect(const_cast<std::uint8_t*>(t), 4096, PROT_READ | PROT_WRITE));
  std::uint64_t first = load_be<std::uint64_t>(t + uctx_resp.hca_core_clock_offset);
  dev->refresh_clock();
  std::uint64_t second = load_be<std::uint64_t>(t + uctx_resp.hca_core_clock_offset);
  EXPECT_NE(0u, first);
  EXPECT_GT(second, first);
  EXPECT_FALSE(i->sign & MLX5_IB_CLOCK_INFO_KERNEL_UPDATING);
  EXPECT_GE(i->cycles, first);
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  std::uint64_t wall = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
  EXPECT_LE(i->nsec, wall);
  EXPECT_EQ(1u, i->mult);
  munmap(const_cast<std::uint8_t*>(t), 4096);
  munmap(const_cast<mlx5_ib_clock_info*>(i), 4096);
}

}  // namespace
}  // namespace uhca::mlx5test

// SPDX-License-Identifier: MIT
// MRs of dma-bufs: what the device reads and writes is where the buffer is now, and nothing of what it was.
#include "kernel/mlx5_ib/dmabuf.h"

#include <thread>

#include "kernel/uverbs/attr_bundle.h"
#include "mm/moving_buffer.h"
#include "prm/cqe.h"
#include "prm/wqe.h"
#include "rig.h"

namespace uhca::mlx5test {
namespace {

using mm::MovingBuffer;
constexpr std::uint32_t kAccess = kAccessLocalWrite | kAccessRemoteWrite;
constexpr std::size_t kPage = 4096;

class DmabufMr : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    for (std::size_t i = 0; i < 64; ++i) cqbuf.p[i * 64 + 63] = 0xf0;  // invalid, owned by the device
    cq = *make_cq(63, cqbuf.p, db.p);
    qp = *make_qp(qp_request(qbuf.p, db.p + 64), *cq);
    local = *ib_reg_user_mr(*pd, up(data.p), data.bytes, up(data.p), kAccess, &none);
    connect();
  }
  void TearDown() override {
    EXPECT_TRUE(ib_destroy_qp(*qp).ok());
    EXPECT_TRUE(ib_dereg_mr(*local).ok());
    EXPECT_TRUE(ib_destroy_cq(*cq).ok());
    DeviceTest::TearDown();
  }
  void connect() {
    ib_gid_attr gid = rdma_gid_table(*dev, 1).back();
    ib_qp_attr a;
    a.qp_state = ib_qp_state::INIT;
    a.port_num = 1;
    a.qp_access_flags = kAccessRemoteWrite;
    ASSERT_TRUE(ib_modify_qp(*qp, a, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, nullptr).ok());
    a.qp_state = ib_qp_state::RTR;
    a.path_mtu = 3;
    a.dest_qp_num = qp->qp_num;
    a.max_dest_rd_atomic = 1;
    a.ah_attr.is_global = true;
    a.ah_attr.dgid = gid.gid;
    a.ah_attr.sgid_index = static_cast<std::uint8_t>(gid.index);
    a.ah_attr.hop_limit = 64;
    a.ah_attr.port_num = 1;
    int mask = IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
    ASSERT_TRUE(ib_modify_qp(*qp, a, mask, nullptr).ok());
    a.qp_state = ib_qp_state::RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    mask = IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
    ASSERT_TRUE(ib_modify_qp(*qp, a, mask, nullptr).ok());
  }
  // RDMA write from `from` to `to`; the completion's opcode (0: well, 13: an error of the requester).
  int write(std::uint64_t from, std::uint32_t lkey, std::uint64_t to, std::uint32_t rkey, std::uint32_t bytes) {
    std::uint8_t* wqe = qbuf.p + 32 * 32 + (posted % 64) * 64;  // the send queue lies behind 32 receive WQEs of 32 bytes
    std::memset(wqe, 0, 64);
    prm::set<prm::wqe_ctrl_seg::opcode>(wqe, 0x08);
    prm::set<prm::wqe_ctrl_seg::wqe_index>(wqe, posted);
    prm::set<prm::wqe_ctrl_seg::qpn>(wqe, qp->qp_num);
    prm::set<prm::wqe_ctrl_seg::ds>(wqe, 3);
    prm::set<prm::wqe_ctrl_seg::fm_ce_se>(wqe, 0x08);
    prm::set<prm::wqe_raddr_seg::raddr>(wqe + 16, to);
    prm::set<prm::wqe_raddr_seg::rkey>(wqe + 16, rkey);
    prm::set<prm::wqe_data_seg::byte_count>(wqe + 32, bytes);
    prm::set<prm::wqe_data_seg::lkey>(wqe + 32, lkey);
    prm::set<prm::wqe_data_seg::addr>(wqe + 32, from);
    store_be<std::uint32_t>(db.p + 64 + 4, ++posted);
    std::uint64_t value;
    std::memcpy(&value, wqe, 8);
    dev->doorbell(std::uint64_t{uar->page_id} * 4096 + 0x800, value);
    std::uint8_t* cqe = cqbuf.p + (posted - 1) % 64 * 64;
    const unsigned lap = (posted - 1) / 64 & 1;
    auto valid = [&] {
      std::uint8_t own = __atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE);
      return own >> 4 != 0xf && (own & 1) == lap;
    };
    for (int i = 0; i < 10'000'000 && !valid(); ++i) dev->polled_empty();
    EXPECT_TRUE(valid());
    store_be<std::uint32_t>(db.p, posted);  // consumed
    return cqe[63] >> 4;
  }
  Result<std::unique_ptr<ib_mr>> reg(std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                                     std::uint32_t access = kAccess) {
    uverbs_attr_bundle attrs;
    auto mr = reg_user_mr_dmabuf(*pd, offset, length, iova, fd, access, &attrs);
    if (mr.ok()) {
      (*mr)->device = dev;
      (*mr)->pd = pd.get();
      pd->usecnt.fetch_add(1);  // as uverbs does
    }
    return mr;
  }

  Pages qbuf{16 * kPage}, cqbuf{4 * kPage}, db{kPage}, data{16 * kPage};
  std::unique_ptr<ib_cq> cq;
  std::unique_ptr<ib_qp> qp;
  std::unique_ptr<ib_mr> local;
  Udata none;
  std::uint32_t posted = 0;
};

TEST_F(DmabufMr, DataLandsWhereTheBufferIs) {
  MovingBuffer b(8 * kPage);
  auto mr = reg(kPage + 16, 6 * kPage, 0x7654010, b.fd);
  ASSERT_TRUE(mr.ok()) << mr.code();
  for (std::size_t i = 0; i < 6 * kPage; ++i) data.p[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  EXPECT_EQ(0, write(up(data.p), local->lkey, 0x7654010, (*mr)->rkey, 6 * kPage));
  EXPECT_EQ(0, std::memcmp(b.exporter->memory() + kPage + 16, data.p, 6 * kPage)) << "across the pieces";
  EXPECT_EQ(std::byte{0}, b.exporter->memory()[kPage + 15]);
  EXPECT_EQ(std::byte{0}, b.exporter->memory()[7 * kPage + 16]);
  EXPECT_EQ(0, write(0x7654010, (*mr)->lkey, up(data.p + 8 * kPage), local->rkey, 6 * kPage)) << "and from there";
  EXPECT_EQ(0, std::memcmp(data.p + 8 * kPage, data.p, 6 * kPage));
  EXPECT_EQ(13, write(up(data.p), local->lkey, 0x7654010 - 1, (*mr)->rkey, 8)) << "one byte before";
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
  EXPECT_EQ(0, b.seen.mapped + b.seen.attached + b.seen.pinned);
}

TEST_F(DmabufMr, AMoveIsAPageFaultAndTheKeyStays) {
  MovingBuffer b(8 * kPage);
  auto mr = reg(0, 8 * kPage, 0, b.fd);
  ASSERT_TRUE(mr.ok()) << mr.code();
  const std::uint32_t rkey = (*mr)->rkey;
  std::memset(data.p, 0x11, kPage);
  EXPECT_EQ(0, write(up(data.p), local->lkey, 0, rkey, kPage));
  EXPECT_EQ(1, b.seen.times("map"));
  for (int i = 1; i <= 5; ++i) {
    b.move();
    EXPECT_EQ(0, b.seen.mapped) << "nothing of it is used";
    std::memset(data.p, 0x20 + i, kPage);
    EXPECT_EQ(0, write(up(data.p), local->lkey, static_cast<std::uint64_t>(i) * kPage, rkey, kPage));
    EXPECT_EQ(1 + i, b.seen.times("map"));
    EXPECT_EQ(0, std::memcmp(b.exporter->memory() + i * kPage, data.p, kPage));
    EXPECT_EQ(std::byte{0xdd}, b.exporter->before()[i * kPage]) << "what it was is not written";
    EXPECT_EQ(std::byte{0x11}, b.exporter->memory()[0]) << "what was written moved along";
  }
  auto& window = *static_cast<mlx5_ib_mr&>(**mr).dmabuf->window;
  EXPECT_EQ(5u, window.stats().faults);
  EXPECT_EQ(5u, window.stats().invalidations);
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
}

// Many moves while the device writes: each write ends well, and what was before stays untouched.
TEST_F(DmabufMr, MovesDuringTraffic) {
  MovingBuffer b(64 * kPage);
  auto mr = reg(0, 64 * kPage, 0, b.fd);
  ASSERT_TRUE(mr.ok()) << mr.code();
  std::atomic<bool> stop{false};
  std::atomic<int> moves{0};
  std::thread mover([&] {
    while (!stop.load() && moves.load() < 2000) {
      b.move();
      ++moves;
      std::this_thread::yield();
    }
  });
  int bad = 0;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    std::memset(data.p, static_cast<int>(i), 2 * kPage);
    bad += write(up(data.p), local->lkey, (i * 3 % 62) * kPage, (*mr)->rkey, 2 * kPage) != 0;
  }
  stop = true;
  mover.join();
  EXPECT_EQ(0, bad);
  EXPECT_GT(moves.load(), 10);
  // The last 62 writes (3 is coprime to 62) cover every page, each page last by the later of two.
  for (std::uint32_t i = 2990; i < 3000; ++i) {
    const std::byte* page = b.exporter->memory() + (i * 3 % 62) * kPage;
    EXPECT_EQ(std::byte(static_cast<std::uint8_t>(i)), page[0]);
    EXPECT_EQ(std::byte(static_cast<std::uint8_t>(i)), page[2 * kPage - 1]);
  }
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
}

TEST_F(DmabufMr, AFaultThatCannotBeServedEndsTheAccess) {
  MovingBuffer b(2 * kPage);
  auto mr = reg(0, 2 * kPage, 0, b.fd);
  ASSERT_TRUE(mr.ok()) << mr.code();
  b.move();
  b.exporter->refuse_map = ENODEV;
  EXPECT_EQ(13, write(up(data.p), local->lkey, 0, (*mr)->rkey, 8)) << "remote access error";
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
}

TEST_F(DmabufMr, WhatIsRefusedLeavesNothing) {
  MovingBuffer b(2 * kPage);
  EXPECT_EQ(EBADF, reg(0, 0, 0, -1, 0).code()) << "the probe of programs";
  EXPECT_EQ(EINVAL, reg(0, 2 * kPage + 1, 0, b.fd).code());
  EXPECT_EQ(EINVAL, reg(0, 0, 0, b.fd).code());
  EXPECT_EQ(EINVAL, reg(0, kPage, ~std::uint64_t{0} - kPage + 2, b.fd).code()) << "the iova wraps";
  b.exporter->refuse_map = EIO;
  EXPECT_EQ(EIO, reg(0, kPage, 0, b.fd).code());
  EXPECT_EQ(0, b.seen.mapped + b.seen.attached + b.seen.pinned);
  b.exporter->refuse_map = 0;
  // Read-only use needs no writable window.
  auto mr = reg(0, kPage, 0, b.fd, 0);
  ASSERT_TRUE(mr.ok());
  EXPECT_EQ(13, write(up(data.p), local->lkey, 0, (*mr)->rkey, 8));
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
}

TEST_F(DmabufMr, OtherAccessWithTheSameKeyOtherMemoryWithANewOne) {
  MovingBuffer b(2 * kPage);
  auto mr = reg(0, 2 * kPage, 0, b.fd);
  ASSERT_TRUE(mr.ok());
  auto rereg = [&](ib_mr& m, std::uint32_t flags, std::uint64_t start, std::uint64_t length, std::uint32_t access) {
    return dev->ops.rereg_user_mr(m, flags, start, length, start, access, *pd, nullptr);
  };
  auto less = rereg(**mr, 4, 0, 0, kAccessLocalWrite);
  ASSERT_TRUE(less.ok()) << less.code();
  EXPECT_EQ(nullptr, *less) << "the same key";
  EXPECT_EQ(1, b.seen.attached);
  EXPECT_EQ(EOPNOTSUPP, rereg(**mr, 4, 0, 0, kAccessLocalWrite | kAccessOnDemand).code());
  EXPECT_EQ(EOPNOTSUPP, rereg(**mr, 4, 0, 0, kAccessLocalWrite | kAccessRelaxedOrdering).code()) << "needs a new key for the same buffer";
  EXPECT_EQ(EFAULT, rereg(**mr, 1, 0x1000, kPage, kAccess).code());
  EXPECT_EQ(1, b.seen.attached) << "refused: as it was";
  auto fresh = rereg(**mr, 1 | 4, up(data.p), kPage, kAccess);
  ASSERT_TRUE(fresh.ok()) << fresh.code();
  ASSERT_NE(nullptr, *fresh);
  EXPECT_EQ(0, b.seen.attached + b.seen.mapped) << "ordinary memory from now on";
  (*fresh)->device = dev;
  (*fresh)->pd = pd.get();
  EXPECT_EQ(0, write(up(data.p), (*fresh)->lkey, up(data.p) + 64, (*fresh)->rkey, 8));
  EXPECT_TRUE(ib_dereg_mr(**fresh).ok());
}

TEST_F(DmabufMr, RegisteredMemoryOutlivesItsDescriptor) {
  MovingBuffer b(2 * kPage);
  auto mr = reg(0, 2 * kPage, 0, b.fd);
  ASSERT_TRUE(mr.ok());
  std::byte* memory = b.exporter->memory();
  b.close();
  EXPECT_EQ(0, b.seen.released);
  std::memset(data.p, 0x77, kPage);
  EXPECT_EQ(0, write(up(data.p), local->lkey, kPage, (*mr)->rkey, kPage));
  EXPECT_EQ(std::byte{0x77}, memory[2 * kPage - 1]);
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
  mr->reset();
  EXPECT_EQ(1, b.seen.released);
}

}  // namespace
}  // namespace uhca::mlx5test

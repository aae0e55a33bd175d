// SPDX-License-Identifier: MIT
// One work request through everything below the provider: WQE in memory, doorbell, completion entry, event queue, handler.
#include "prm/cqe.h"
#include "prm/wqe.h"
#include "rig.h"

namespace uhca::mlx5test {
namespace {

void to_rts(ib_qp& qp, std::uint32_t peer, const ib_gid_attr& gid) {
  ib_qp_attr a;
  a.qp_state = ib_qp_state::INIT;
  a.port_num = 1;
  a.qp_access_flags = kAccessRemoteWrite;
  ASSERT_TRUE(ib_modify_qp(qp, a, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, nullptr).ok());
  a.qp_state = ib_qp_state::RTR;
  a.path_mtu = 3;
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = 1;
  a.ah_attr.is_global = true;
  a.ah_attr.dgid = gid.gid;
  a.ah_attr.sgid_index = static_cast<std::uint8_t>(gid.index);
  a.ah_attr.hop_limit = 64;
  a.ah_attr.port_num = 1;
  ASSERT_TRUE(
      ib_modify_qp(qp, a,
                   IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER,
                   nullptr)
          .ok());
  a.qp_state = ib_qp_state::RTS;
  a.timeout = 14;
  a.retry_cnt = a.rnr_retry = 7;
  a.max_rd_atomic = 1;
  ASSERT_TRUE(
      ib_modify_qp(qp, a, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC, nullptr)
          .ok());
}

TEST_F(DeviceTest, WriteCompletesAndRaisesTheEvent) {
  Pages qbuf(16 * 4096), cqbuf(4 * 4096), db(4096), data(2 * 4096);
  for (std::size_t i = 0; i < 64; ++i) cqbuf.p[i * 64 + 63] = 0xf0;  // invalid, owned by the device
  auto cq = make_cq(63, cqbuf.p, db.p);
  ASSERT_TRUE(cq.ok());
  std::atomic<int> events{0};
  (*cq)->cq_context = &events;
  (*cq)->comp_handler = [](ib_cq*, void* c) { ++*static_cast<std::atomic<int>*>(c); };
  auto made = make_qp(qp_request(qbuf.p, db.p + 64), **cq);
  ASSERT_TRUE(made.ok());
  ib_qp& qp = **made;
  std::vector<ib_gid_attr> gids = rdma_gid_table(*dev, 1);
  ASSERT_FALSE(gids.empty());
  to_rts(qp, qp.qp_num, gids.back());
  Udata none;
  auto mr = ib_reg_user_mr(*pd, up(data.p), 8192, 0x10000, kAccessLocalWrite | kAccessRemoteWrite, &none);
  ASSERT_TRUE(mr.ok());
  std::memcpy(data.p, "through the whole driver", 25);

  // Arm the CQ: word 1 of its record, then the register (sequence number 0, any completion, consumer index 0).
  std::uint64_t page = std::uint64_t{uar->page_id} * 4096;
  store_be<std::uint32_t>(db.p + 4, 0);
  std::uint8_t arm[8] = {};
  store_be<std::uint32_t>(arm + 4, (*cq)->hw_cqn());
  std::uint64_t value;
  std::memcpy(&value, arm, 8);
  dev->doorbell(page + 0x20, value);

  std::uint8_t* wqe = qbuf.p + 32 * 32;  // the send queue lies behind 32 receive WQEs of 32 bytes
  prm::set<prm::wqe_ctrl_seg::opcode>(wqe, 0x08);
  prm::set<prm::wqe_ctrl_seg::qpn>(wqe, qp.qp_num);
  prm::set<prm::wqe_ctrl_seg::ds>(wqe, 3);
  prm::set<prm::wqe_ctrl_seg::fm_ce_se>(wqe, 0x08);
  prm::set<prm::wqe_raddr_seg::raddr>(wqe + 16, 0x10000 + 4096);
  prm::set<prm::wqe_raddr_seg::rkey>(wqe + 16, (*mr)->rkey);
  prm::set<prm::wqe_data_seg::byte_count>(wqe + 32, 25);
  prm::set<prm::wqe_data_seg::lkey>(wqe + 32, (*mr)->lkey);
  prm::set<prm::wqe_data_seg::addr>(wqe + 32, 0x10000);
  store_be<std::uint32_t>(db.p + 64 + 4, 1);
  std::memcpy(&value, wqe, 8);
  dev->doorbell(page + 0x800, value);

  auto valid = [&] { return (__atomic_load_n(cqbuf.p + 63, __ATOMIC_ACQUIRE) >> 4) != 0xf; };
  for (int i = 0; i < 1'000'000 && !(valid() && events.load() > 0); ++i) dev->polled_empty();
  ASSERT_TRUE(valid());
  EXPECT_EQ(0, cqbuf.p[63] >> 4);  // a requester's completion
  EXPECT_STREQ("through the whole driver", reinterpret_cast<char*>(data.p + 4096));
  EXPECT_EQ(1, events.load());

  EXPECT_TRUE(ib_destroy_qp(qp).ok());
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
  EXPECT_TRUE(ib_destroy_cq(**cq).ok());
}

}  // namespace
}  // namespace uhca::mlx5test

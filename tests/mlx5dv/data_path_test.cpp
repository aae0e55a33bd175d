// SPDX-License-Identifier: MIT
// Posting and polling on real queues in memory; the test is the device.
#include <gtest/gtest.h>

#include "mlx5dv/fake_verbs.h"

namespace {
using namespace fake;

std::uint32_t be(const void* p) {
  return load_be<std::uint32_t>(p);
}

ibv_send_wr send_wr(ibv_wr_opcode op, ibv_sge* sge, int n, unsigned flags = IBV_SEND_SIGNALED) {
  ibv_send_wr wr = {};
  wr.opcode = op;
  wr.sg_list = sge;
  wr.num_sge = n;
  wr.send_flags = flags;
  return wr;
}

TEST(Post, DoorbellRecordThenRegisterThenHook) {
  Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq);
  Qp* qp = e.rts(&a);
  ASSERT_NE(nullptr, qp);
  EXPECT_EQ(7u, calls.qp_in.bfreg_index);
  EXPECT_TRUE(calls.qp_in.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX);
  EXPECT_EQ(qp->buf.bytes() + calls.qp_in.rq_wqe_count * (1u << calls.qp_in.rq_wqe_shift), qp->ring.start);
  ibv_sge sge{0x1000, 64, 0x11};
  ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, 1);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad));
  EXPECT_EQ(1u, be(&qp->db[1]));
  std::uint64_t stored;
  std::memcpy(&stored, e.uar + 0x800, 8);
  std::uint64_t ctrl;
  std::memcpy(&ctrl, qp->ring.start, 8);
  EXPECT_EQ(ctrl, stored);
  ASSERT_EQ(1u, calls.doorbells.size());
  EXPECT_EQ(e.uar + 0x800, calls.doorbells[0].first);
  EXPECT_EQ(ctrl, calls.doorbells[0].second);
  EXPECT_EQ(qp->v.qp.qp_num << 8 | 2u, be(qp->ring.start + 4));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Post, TooManySgesNamesTheRightWr) {
  Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq);
  Qp* qp = e.rts(&a);
  ibv_sge sge[5] = {};
  for (auto& s : sge) s = {0x1000, 8, 1};
  ibv_send_wr wr[5];
  for (int i = 0; i < 5; ++i) {
    wr[i] = send_wr(IBV_WR_SEND, sge, i == 2 ? 5 : 1);
    wr[i].next = i < 4 ? &wr[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ENOMEM, qp_post_send(&qp->v.qp, wr, &bad));
  EXPECT_EQ(&wr[2], bad);
  EXPECT_EQ(2u, be(&qp->db[1]));
  EXPECT_EQ(2u, qp->sq.head);
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Post, FullUntilASignaledCompletionIsPolled) {
  Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq);
  Qp* qp = e.rts(&a);
  EXPECT_EQ(8u, a.cap.max_send_wr);
  ibv_sge sge{0x1000, 8, 1};
  ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, 1, 0);
  ibv_send_wr* bad = nullptr;
  for (unsigned i = 0; i < a.cap.max_send_wr; ++i) {
    wr.wr_id = i;
    ASSERT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad)) << i;
  }
  EXPECT_EQ(ENOMEM, qp_post_send(&qp->v.qp, &wr, &bad));
  EXPECT_EQ(&wr, bad);
  ibv_wc wc;
  EXPECT_EQ(0, cq_poll(&cq->v.cq, 1, &wc));
  EXPECT_EQ(ENOMEM, qp_post_send(&qp->v.qp, &wr, &bad));
  // A completion of the fifth WR completes all before it.
  Env::Producer p{cq};
  prm::set<prm::cqe64::sop>(p.push(CqeOpcode::REQ, qp->uidx, 4), MLX5_OPCODE_SEND);
  ASSERT_EQ(1, cq_poll(&cq->v.cq, 4, &wc));
  EXPECT_EQ(4u, wc.wr_id);
  EXPECT_EQ(IBV_WC_SEND, wc.opcode);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad)) << i;
  EXPECT_EQ(ENOMEM, qp_post_send(&qp->v.qp, &wr, &bad));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Post, InlineSumsAreChecked) {
  Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq);
  a.cap.max_inline_data = 64;
  Qp* qp = e.rts(&a);
  EXPECT_GE(a.cap.max_inline_data, 64u);
  std::vector<std::uint8_t> before(qp->ring.start, qp->ring.end);
  std::uint8_t data[64] = {};
  auto addr = reinterpret_cast<std::uintptr_t>(data);
  ibv_sge sge[3] = {{addr, 1u << 31, 0}, {addr, 1u << 31, 0}, {addr, 8, 0}};
  ibv_send_wr wr = send_wr(IBV_WR_SEND, sge, 3, IBV_SEND_INLINE);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ENOMEM, qp_post_send(&qp->v.qp, &wr, &bad));
  EXPECT_EQ(0, std::memcmp(before.data(), qp->ring.start, before.size()));
  EXPECT_TRUE(calls.doorbells.empty());
  sge[0] = {addr, 5, 0xdead};
  wr.num_sge = 1;
  for (int i = 0; i < 5; ++i) data[i] = static_cast<std::uint8_t>(0x40 + i);
  ASSERT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad));
  std::memset(data, 0, sizeof data);
  EXPECT_EQ(0x80000005u, be(qp->ring.start + 16));
  EXPECT_EQ(0, std::memcmp(qp->ring.start + 20, "\x40\x41\x42\x43\x44", 5));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Post, StatesGatePosting) {
  Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq);
  a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.send_ops_flags = IBV_QP_EX_WITH_SEND;
  Qp* qp = e.qp(&a);
  ASSERT_NE(nullptr, qp);
  EXPECT_TRUE(qp->v.comp_mask & VERBS_QP_EX);
  ibv_sge sge{0x1000, 8, 1};
  ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, 1);
  ibv_send_wr* bad = nullptr;
  ibv_recv_wr rwr = {};
  rwr.sg_list = &sge;
  rwr.num_sge = 1;
  ibv_recv_wr* rbad = nullptr;
  EXPECT_EQ(ENOMEM, qp_post_send(&qp->v.qp, &wr, &bad));
  EXPECT_EQ(EINVAL, qp_post_recv(&qp->v.qp, &rwr, &rbad));
  EXPECT_EQ(&rwr, rbad);
  ibv_qp_ex* q = &qp->v.qp_ex.base;
  q->wr_start(q);
  EXPECT_EQ(EINVAL, q->wr_complete(q));
  e.modify(qp, IBV_QPS_INIT);
  EXPECT_EQ(0, qp_post_recv(&qp->v.qp, &rwr, &rbad));
  EXPECT_EQ(1u, be(&qp->db[0]));
  e.modify(qp, IBV_QPS_RTR);
  e.modify(qp, IBV_QPS_RTS);
  EXPECT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad));
  q->wr_start(q);
  EXPECT_EQ(0, q->wr_complete(q));
  e.modify(qp, IBV_QPS_ERR);
  EXPECT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad));  // to be flushed
  e.modify(qp, IBV_QPS_RESET);
  EXPECT_EQ(0u, qp->cur_post);
  EXPECT_EQ(0u, qp->db[0] | qp->db[1]);
  EXPECT_EQ(ENOMEM, qp_post_send(&qp->v.qp, &wr, &bad));
  // The WQEs were sized for SEND only.
  for (ibv_qp_state s : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) e.modify(qp, s);
  ibv_send_wr write = send_wr(IBV_WR_RDMA_WRITE, &sge, 1);
  EXPECT_EQ(EINVAL, qp_post_send(&qp->v.qp, &write, &bad));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

// Every builder makes the bytes that ibv_post_send makes for the same request.
TEST(Wr, SameBytesAsPostSend) {
  Env e;
  Cq* cq = e.cq(64);
  auto a = e.attr(cq, cq);
  a.cap.max_send_wr = 32;
  a.cap.max_inline_data = 60;
  auto b = a;
  b.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  b.send_ops_flags = *default_send_ops(IBV_QPT_RC);
  Qp* x = e.rts(&a);
  Qp* y = e.rts(&b);
  ASSERT_NE(nullptr, y);
  y->v.qp.qp_num = x->v.qp.qp_num;
  ibv_qp_ex* q = &y->v.qp_ex.base;
  ibv_mw mw = {};
  mw.rkey = 0x700;
  mw.type = IBV_MW_TYPE_2;
  ibv_mr mr = {};
  mr.lkey = 0x88;
  ibv_mw_bind_info bind{&mr, 0x9000, 100, IBV_ACCESS_REMOTE_READ};
  ibv_sge sge[2] = {{0x1000, 10, 1}, {0x2000, 20, 2}};
  char text[] = "forty bytes of inline data, all of them.";
  ibv_sge inl{reinterpret_cast<std::uintptr_t>(text), 40, 0};
  std::vector<ibv_send_wr> wrs;
  auto add = [&](ibv_wr_opcode op) -> ibv_send_wr& {
    wrs.push_back(send_wr(op, sge, 2, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
    wrs.back().wr_id = wrs.size();
    return wrs.back();
  };
  add(IBV_WR_SEND);
  add(IBV_WR_SEND_WITH_IMM).imm_data = htobe32(0x89abcdef);
  add(IBV_WR_SEND_WITH_INV).invalidate_rkey = 0x1234;
  for (ibv_wr_opcode op : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ}) {
    auto& w = add(op);
    if (op == IBV_WR_RDMA_WRITE_WITH_IMM) w.imm_data = htobe32(7);
    w.wr.rdma.remote_addr = 0x123456789;
    w.wr.rdma.rkey = 0x77;
  }
  for (ibv_wr_opcode op : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    auto& w = add(op);
    w.num_sge = 1;
    w.wr.atomic.remote_addr = 0x1230;
    w.wr.atomic.rkey = 0x78;
    w.wr.atomic.compare_add = 5;
    w.wr.atomic.swap = op == IBV_WR_ATOMIC_CMP_AND_SWP ? 6 : 0;
  }
  add(IBV_WR_LOCAL_INV).invalidate_rkey = 0x55;
  wrs.back().num_sge = 0;
  auto& bw = add(IBV_WR_BIND_MW);
  bw.num_sge = 0;
  bw.bind_mw.mw = &mw;
  bw.bind_mw.rkey = 0x701;
  bw.bind_mw.bind_info = bind;
  auto& fenced = add(IBV_WR_SEND);
  fenced.send_flags |= IBV_SEND_INLINE | IBV_SEND_FENCE;
  fenced.sg_list = &inl;
  fenced.num_sge = 1;
  add(IBV_WR_SEND).num_sge = 0;
  for (std::size_t i = 0; i < wrs.size(); ++i) wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
  ibv_send_wr* bad = nullptr;
  sge[0].length = 8;
  ASSERT_EQ(0, qp_post_send(&x->v.qp, wrs.data(), &bad));

  q->wr_start(q);
  for (auto& w : wrs) {
    q->wr_id = w.wr_id;
    q->wr_flags = w.send_flags;
    switch (w.opcode) {
      case IBV_WR_SEND: q->wr_send(q); break;
      case IBV_WR_SEND_WITH_IMM: q->wr_send_imm(q, w.imm_data); break;
      case IBV_WR_SEND_WITH_INV: q->wr_send_inv(q, w.invalidate_rkey); break;
      case IBV_WR_RDMA_WRITE: q->wr_rdma_write(q, w.wr.rdma.rkey, w.wr.rdma.remote_addr); break;
      case IBV_WR_RDMA_WRITE_WITH_IMM: q->wr_rdma_write_imm(q, w.wr.rdma.rkey, w.wr.rdma.remote_addr, w.imm_data); break;
      case IBV_WR_RDMA_READ: q->wr_rdma_read(q, w.wr.rdma.rkey, w.wr.rdma.remote_addr); break;
      case IBV_WR_ATOMIC_CMP_AND_SWP: q->wr_atomic_cmp_swp(q, w.wr.atomic.rkey, w.wr.atomic.remote_addr, 5, 6); break;
      case IBV_WR_ATOMIC_FETCH_AND_ADD: q->wr_atomic_fetch_add(q, w.wr.atomic.rkey, w.wr.atomic.remote_addr, 5); break;
      case IBV_WR_LOCAL_INV: q->wr_local_inv(q, w.invalidate_rkey); continue;
      case IBV_WR_BIND_MW: q->wr_bind_mw(q, &mw, 0x701, &bind); continue;
      default: FAIL();
    }
    if (w.send_flags & IBV_SEND_INLINE) {
      ibv_data_buf parts[2] = {{text, 15}, {text + 15, 25}};
      q->wr_set_inline_data_list(q, 2, parts);
    } else if (w.num_sge == 1) {
      q->wr_set_sge(q, sge[0].lkey, sge[0].addr, sge[0].length);
    } else {
      q->wr_set_sge_list(q, static_cast<std::size_t>(w.num_sge), sge);
    }
  }
  ASSERT_EQ(0, q->wr_complete(q));
  EXPECT_EQ(x->cur_post, y->cur_post);
  EXPECT_EQ(x->sq.head, y->sq.head);
  EXPECT_EQ(wrs.size(), y->sq.head);
  for (std::uint32_t i = 0; i < x->cur_post; ++i) EXPECT_EQ(0, std::memcmp(x->ring.block(i), y->ring.block(i), 64)) << "block " << i;
  ASSERT_EQ(2u, calls.doorbells.size());
  EXPECT_EQ(calls.doorbells[0].second, calls.doorbells[1].second);
  // The WQE behind the bind carries the small fence, unless a full one is asked for.
  EXPECT_EQ(x->db[1], y->db[1]);
  e.ops.destroy_qp(&x->v.qp);
  e.ops.destroy_qp(&y->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Wr, ErrorsVoidTheBatchAndAbortRollsBack) {
  Env e;
  Cq* cq = e.cq(64);
  auto a = e.attr(cq, cq);
  a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
  Qp* qp = e.rts(&a);
  ibv_qp_ex* q = &qp->v.qp_ex.base;
  std::uint8_t big[2048] = {};
  ibv_data_buf bufs[3] = {{big, qp->max_inline / 2 + 1}, {big, qp->max_inline / 2 + 1}, {big, ~std::size_t{0}}};
  q->wr_start(q);
  q->wr_send(q);
  q->wr_set_sge(q, 1, 0x1000, 8);
  q->wr_send(q);
  q->wr_set_inline_data_list(q, 3, bufs);
  q->wr_send(q);
  q->wr_set_sge(q, 1, 0x1000, 8);
  EXPECT_EQ(ENOMEM, q->wr_complete(q));
  EXPECT_EQ(0u, qp->cur_post);
  EXPECT_EQ(0u, qp->sq.head);
  EXPECT_TRUE(calls.doorbells.empty());

  ibv_sge five[5] = {};
  q->wr_start(q);
  q->wr_rdma_write(q, 1, 2);
  q->wr_set_sge_list(q, 5, five);
  EXPECT_EQ(ENOMEM, q->wr_complete(q));

  q->wr_start(q);
  q->wr_send(q);
  q->wr_set_sge(q, 1, 0x1000, 8);
  q->wr_abort(q);
  EXPECT_EQ(0u, qp->cur_post);

  q->wr_start(q);
  for (unsigned i = 0; i <= a.cap.max_send_wr; ++i) {
    q->wr_send(q);
    q->wr_set_sge(q, 1, 0x1000, 8);
  }
  EXPECT_EQ(ENOMEM, q->wr_complete(q));
  EXPECT_EQ(0u, qp->sq.head);
  e.ops.destroy_qp(&qp->v.qp);

  a.send_ops_flags = IBV_QP_EX_WITH_TSO;
  EXPECT_EQ(nullptr, e.qp(&a));
  EXPECT_EQ(EOPNOTSUPP, errno);
  e.ctx->atomic_cap = IBV_ATOMIC_NONE;
  a.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  EXPECT_EQ(nullptr, e.qp(&a));
  EXPECT_EQ(EOPNOTSUPP, errno);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Wr, DatagramsInEitherOrderOfSetters) {
  Env e;
  Cq* cq = e.cq(64);
  auto a = e.attr(cq, cq, IBV_QPT_UD);
  a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  Qp* qp = e.rts(&a);
  ASSERT_NE(nullptr, qp);
  Ah ah;
  for (unsigned i = 0; i < sizeof ah.av; ++i) ah.av[i] = static_cast<std::uint8_t>(i);
  ibv_qp_ex* q = &qp->v.qp_ex.base;
  q->wr_flags = IBV_SEND_SIGNALED;
  q->wr_start(q);
  q->wr_send(q);
  q->wr_set_ud_addr(q, &ah.ah, 0x10, 0x1111);
  q->wr_set_sge(q, 1, 0x1000, 8);
  q->wr_send(q);
  q->wr_set_sge(q, 1, 0x1000, 8);
  q->wr_set_ud_addr(q, &ah.ah, 0x10, 0x1111);
  ASSERT_EQ(0, q->wr_complete(q));
  EXPECT_EQ(4u, qp->cur_post);
  EXPECT_EQ(0, std::memcmp(qp->ring.block(0) + 4, qp->ring.block(2) + 4, 124));
  EXPECT_EQ(5u, be(qp->ring.block(0) + 4) & 0x3f);
  EXPECT_EQ(0x80000010u, be(qp->ring.block(0) + 24));
  ibv_sge sge{0x1000, 8, 1};
  ibv_send_wr wr = send_wr(IBV_WR_SEND, &sge, 1);
  wr.wr.ud.ah = &ah.ah;
  wr.wr.ud.remote_qpn = 0x10;
  wr.wr.ud.remote_qkey = 0x1111;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad));
  EXPECT_EQ(0, std::memcmp(qp->ring.block(0) + 4, qp->ring.block(4) + 4, 76));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

// WQEs of several blocks go round the ring many times.
TEST(Post, RingWrapsAtEveryOffset) {
  Env e;
  Cq* cq = e.cq(64);
  auto a = e.attr(cq, cq);
  a.cap.max_send_sge = 9;
  a.cap.max_send_wr = 3;
  Qp* qp = e.rts(&a);
  Env::Producer p{cq};
  ibv_sge sge[9];
  int wrapped = 0;
  for (int i = 0; i < 500; ++i) {
    int n = 1 + i % 9;
    for (int k = 0; k < n; ++k)
      sge[k] = {static_cast<std::uint64_t>(i) << 16 | static_cast<unsigned>(k), static_cast<std::uint32_t>(k + 1), 5};
    ibv_send_wr wr = send_wr(IBV_WR_RDMA_READ, sge, n);
    wr.wr_id = static_cast<std::uint64_t>(i);
    std::uint32_t at = qp->cur_post;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad)) << i;
    const std::uint8_t* seg = qp->ring.block(at & (qp->sq.wqe_cnt - 1));
    EXPECT_EQ((at & 0xffff) << 8 | MLX5_OPCODE_RDMA_READ, be(seg));
    EXPECT_EQ(static_cast<unsigned>(n) + 2, be(seg + 4) & 0x3f);
    seg += 32;
    for (int k = 0; k < n; ++k, seg += 16) {
      if (seg == qp->ring.end) seg = qp->ring.start, ++wrapped;
      EXPECT_EQ(static_cast<std::uint32_t>(k + 1), be(seg));
      EXPECT_EQ(sge[k].addr, load_be<std::uint64_t>(seg + 8));
    }
    std::uint8_t* c = p.push(CqeOpcode::REQ, qp->uidx, static_cast<std::uint16_t>(at));
    prm::set<prm::cqe64::sop>(c, MLX5_OPCODE_RDMA_READ);
    prm::set<prm::cqe64::byte_cnt>(c, static_cast<std::uint32_t>(n));
    ibv_wc wc;
    ASSERT_EQ(1, cq_poll(&cq->v.cq, 1, &wc));
    EXPECT_EQ(static_cast<std::uint64_t>(i), wc.wr_id);
    EXPECT_EQ(IBV_WC_RDMA_READ, wc.opcode);
    EXPECT_EQ(static_cast<std::uint32_t>(n), wc.byte_len);
  }
  EXPECT_GT(wrapped, 10);
  EXPECT_EQ(500u, be(&cq->db[0]));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Poll, ReceiveWithImmediateAndPayloadInTheCqe) {
  for (std::uint32_t size : {64u, 128u}) {
    Env e;
    Cq* cq = e.cq(8, 0, size);
    ASSERT_NE(nullptr, cq);
    EXPECT_EQ(size, calls.cq_in.cqe_size);
    auto a = e.attr(cq, cq);
    Qp* qp = e.rts(&a);
    std::uint8_t dst[64] = {};
    ibv_sge sge[2] = {{reinterpret_cast<std::uintptr_t>(dst), 10, 1}, {reinterpret_cast<std::uintptr_t>(dst + 10), 54, 1}};
    ibv_recv_wr wr = {};
    wr.sg_list = sge;
    wr.num_sge = 2;
    ibv_recv_wr* bad = nullptr;
    for (int i = 0; i < 3; ++i) {
      wr.wr_id = static_cast<std::uint64_t>(100 + i);
      ASSERT_EQ(0, qp_post_recv(&qp->v.qp, &wr, &bad));
    }
    EXPECT_EQ(3u, be(&qp->db[0]));
    Env::Producer p{cq};
    std::uint32_t n = size == 64 ? 20 : 60;
    std::uint8_t* c = p.push(CqeOpcode::RESP_SEND_IMM, qp->uidx, 0, size == 64 ? 4 : 8);
    for (std::uint32_t i = 0; i < n; ++i) (size == 64 ? c : c - 64)[i] = static_cast<std::uint8_t>(i + 1);
    prm::set<prm::cqe64::byte_cnt>(c, n);
    prm::set<prm::cqe64::imm_inval_pkey>(c, 0x89abcdef);
    prm::set<prm::cqe64::qpn>(c, qp->v.qp.qp_num);
    prm::set<prm::cqe64::flags_rqpn>(c, 0x222);
    // Too long for the list.
    c = p.push(CqeOpcode::RESP_SEND, qp->uidx, 1, size == 64 ? 4 : 8);
    prm::set<prm::cqe64::byte_cnt>(c, 65);
    c = p.push(CqeOpcode::RESP_ERR, qp->uidx, 2);
    prm::set<prm::err_cqe::syndrome>(c, 5);
    prm::set<prm::err_cqe::vendor_err_synd>(c, 0xf9);
    ibv_wc wc[4] = {};
    ASSERT_EQ(3, cq_poll(&cq->v.cq, 4, wc));
    EXPECT_EQ(100u, wc[0].wr_id);
    EXPECT_EQ(IBV_WC_SUCCESS, wc[0].status);
    EXPECT_EQ(IBV_WC_RECV, wc[0].opcode);
    EXPECT_EQ(n, wc[0].byte_len);
    EXPECT_EQ(unsigned{IBV_WC_WITH_IMM}, wc[0].wc_flags);
    EXPECT_EQ(htobe32(0x89abcdef), wc[0].imm_data);
    EXPECT_EQ(qp->v.qp.qp_num, wc[0].qp_num);
    EXPECT_EQ(0x222u, wc[0].src_qp);
    EXPECT_EQ(IBV_WC_LOC_LEN_ERR, wc[1].status);
    EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc[2].status);
    EXPECT_EQ(0xf9u, wc[2].vendor_err);
    EXPECT_EQ(102u, wc[2].wr_id);
    EXPECT_EQ(3u, qp->rq.tail.load());
    EXPECT_EQ(3u, be(&cq->db[0]));
    e.ops.destroy_qp(&qp->v.qp);
    e.ops.destroy_cq(&cq->v.cq);
  }
}

TEST(Poll, PayloadPlacedWhereTheReadAsked) {
  Env e;
  Cq* cq = e.cq(8);
  auto a = e.attr(cq, cq);
  Qp* qp = e.rts(&a);
  std::uint64_t old = 0;
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(&old), 8, 1};
  ibv_send_wr wr = send_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(0, qp_post_send(&qp->v.qp, &wr, &bad));
  Env::Producer p{cq};
  std::uint8_t* c = p.push(CqeOpcode::REQ, qp->uidx, 0, 4);
  prm::set<prm::cqe64::sop>(c, MLX5_OPCODE_ATOMIC_FA);
  std::uint64_t v = 0x1122334455667788;
  std::memcpy(c, &v, 8);
  ibv_wc wc;
  ASSERT_EQ(1, cq_poll(&cq->v.cq, 1, &wc));
  EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
  EXPECT_EQ(IBV_WC_FETCH_ADD, wc.opcode);
  EXPECT_EQ(8u, wc.byte_len);
  EXPECT_EQ(v, old);
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Poll, EmptyAsksTheDeviceAndLooksAgain) {
  Env e;
  static Cq* cq;
  static Qp* qp;
  cq = e.cq(8, IBV_WC_STANDARD_FLAGS);
  auto a = e.attr(cq, cq);
  qp = e.rts(&a);
  ibv_wc wc;
  EXPECT_EQ(0, cq_poll(&cq->v.cq, 1, &wc));
  ASSERT_EQ(1u, calls.empty_polls.size());
  EXPECT_EQ(cq->cqn, calls.empty_polls[0]);
  calls.on_empty_poll = [] {
    if (cq->sw_owned(0)) return;
    Env::Producer p{cq};
    prm::set<prm::cqe64::sop>(p.push(CqeOpcode::REQ, qp->uidx, 0), MLX5_OPCODE_SEND);
  };
  EXPECT_EQ(1, cq_poll(&cq->v.cq, 1, &wc));
  calls.on_empty_poll = nullptr;
  ibv_cq_ex* q = &cq->v.cq_ex;
  ibv_poll_cq_attr attr = {};
  EXPECT_EQ(ENOENT, q->start_poll(q, &attr));
  attr.comp_mask = 1;
  EXPECT_EQ(EINVAL, q->start_poll(q, &attr));
  EXPECT_EQ(0, cq_poll(&cq->v.cq, 0, &wc));
  e.ctx->poll_hook = nullptr;
  EXPECT_EQ(0, cq_poll(&cq->v.cq, 1, &wc));
  // A CQE that belongs to nobody.
  Env::Producer p{cq, 1};
  p.push(CqeOpcode::REQ, 0x7777, 0);
  EXPECT_EQ(-2, cq_poll(&cq->v.cq, 1, &wc));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Poll, ExtendedReaders) {
  Env e;
  Cq* cq =
      e.cq(8, std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG);
  auto a = e.attr(cq, cq);
  Qp* qp = e.rts(&a);
  qp->rq.wrid[0] = 42;
  qp->sq.wrid[3] = 43;
  qp->sq.wr_data[3] = IBV_WC_LOCAL_INV;
  Env::Producer p{cq};
  std::uint8_t* c = p.push(CqeOpcode::RESP_SEND_INV, qp->uidx, 0);
  prm::set<prm::cqe64::byte_cnt>(c, 99);
  prm::set<prm::cqe64::imm_inval_pkey>(c, 0x01020304);
  prm::set<prm::cqe64::timestamp>(c, 123456789);
  prm::set<prm::cqe64::vlan_info>(c, 0x44);
  prm::set<prm::cqe64::flags_rqpn>(c, 1u << 28 | 3u << 24 | 0x321);
  prm::set<prm::cqe64::qpn>(c, 0xabcdef);
  prm::set<prm::cqe64::slid>(c, 9);
  prm::set<prm::cqe64::ml_path>(c, 0x83);
  prm::set<prm::cqe64::sop>(p.push(CqeOpcode::REQ, qp->uidx, 3), MLX5_OPCODE_UMR);
  c = p.push(CqeOpcode::REQ_ERR, qp->uidx, 3);
  prm::set<prm::err_cqe::syndrome>(c, 0x13);
  prm::set<prm::err_cqe::vendor_err_synd>(c, 0x88);
  ibv_cq_ex* q = &cq->v.cq_ex;
  ibv_poll_cq_attr attr = {};
  ASSERT_EQ(0, q->start_poll(q, &attr));
  EXPECT_EQ(42u, q->wr_id);
  EXPECT_EQ(IBV_WC_SUCCESS, q->status);
  EXPECT_EQ(IBV_WC_RECV, ibv_wc_read_opcode(q));
  EXPECT_EQ(99u, ibv_wc_read_byte_len(q));
  EXPECT_EQ(0x01020304u, ibv_wc_read_invalidated_rkey(q));
  EXPECT_EQ(unsigned{IBV_WC_WITH_INV | IBV_WC_GRH}, ibv_wc_read_wc_flags(q));
  EXPECT_EQ(123456789u, ibv_wc_read_completion_ts(q));
  EXPECT_EQ(0x44, ibv_wc_read_cvlan(q));
  EXPECT_EQ(0x321u, ibv_wc_read_src_qp(q));
  EXPECT_EQ(3, ibv_wc_read_sl(q));
  EXPECT_EQ(9u, ibv_wc_read_slid(q));
  EXPECT_EQ(3, ibv_wc_read_dlid_path_bits(q));
  EXPECT_EQ(0xabcdefu, ibv_wc_read_qp_num(q));
  EXPECT_EQ(0xbcdefu, ibv_wc_read_flow_tag(q));
  ASSERT_EQ(0, q->next_poll(q));
  EXPECT_EQ(43u, q->wr_id);
  EXPECT_EQ(IBV_WC_LOCAL_INV, ibv_wc_read_opcode(q));
  ASSERT_EQ(0, q->next_poll(q));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, q->status);
  EXPECT_EQ(0x88u, ibv_wc_read_vendor_err(q));
  EXPECT_EQ(ENOENT, q->next_poll(q));
  q->end_poll(q);
  EXPECT_EQ(3u, be(&cq->db[0]));
  EXPECT_EQ(nullptr, e.cq(8, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK));
  EXPECT_EQ(EOPNOTSUPP, errno);
  EXPECT_EQ(nullptr, e.cq(8, std::uint64_t{1} << 40));
  EXPECT_EQ(ENOTSUP, errno);
  EXPECT_EQ(nullptr, e.cq(8, 0, 96));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(nullptr, e.cq(1 << 24));
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Cq, ArmWritesRecordAndRegister) {
  Env e;
  Cq* cq = e.cq(8);
  cq->cons_index = 0x1000005;
  EXPECT_EQ(0, e.ops.req_notify_cq(&cq->v.cq, 1));
  EXPECT_EQ(0x01000005u, be(&cq->db[1]));
  EXPECT_EQ(0x01000005u, be(e.uar + 0x20));
  EXPECT_EQ(cq->cqn, be(e.uar + 0x24));
  ASSERT_EQ(1u, calls.doorbells.size());
  EXPECT_EQ(e.uar + 0x20, calls.doorbells[0].first);
  e.ops.cq_event(&cq->v.cq);
  e.ops.cq_event(&cq->v.cq);
  EXPECT_EQ(0, e.ops.req_notify_cq(&cq->v.cq, 0));
  EXPECT_EQ(0x20000005u, be(&cq->db[1]));
  cq->cons_index = 0;
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Cq, DestroyedQpLeavesNoCqe) {
  Env e;
  Cq* cq = e.cq(8);
  auto a = e.attr(cq, cq);
  Qp* x = e.rts(&a);
  Qp* y = e.rts(&a);
  y->sq.wrid[5] = 55;
  y->sq.wrid[6] = 66;
  Env::Producer p{cq};
  auto send = [&](Qp* q, std::uint16_t i) { prm::set<prm::cqe64::sop>(p.push(CqeOpcode::REQ, q->uidx, i), MLX5_OPCODE_SEND); };
  // Start near the end, so that the entries wrap.
  for (int i = 0; i < 14; ++i) send(y, 0);
  for (int i = 0; i < 14; ++i) {
    ++cq->cons_index;
  }
  send(x, 1);
  send(y, 5);
  send(x, 2);
  send(x, 3);
  send(y, 6);
  EXPECT_EQ(0, e.ops.destroy_qp(&x->v.qp));
  ibv_wc wc[8];
  ASSERT_EQ(2, cq_poll(&cq->v.cq, 8, wc));
  EXPECT_EQ(55u, wc[0].wr_id);
  EXPECT_EQ(66u, wc[1].wr_id);
  EXPECT_EQ(19u, be(&cq->db[0]));
  e.ops.destroy_qp(&y->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Cq, ResizeKeepsWhatIsThere) {
  for (int want : {31, 3}) {
    Env e;
    Cq* cq = e.cq(15);
    auto a = e.attr(cq, cq);
    Qp* qp = e.rts(&a);
    Env::Producer p{cq};
    ibv_wc wc[16];
    for (int i = 0; i < 14; ++i) prm::set<prm::cqe64::sop>(p.push(CqeOpcode::REQ, qp->uidx, 0), MLX5_OPCODE_SEND);
    ASSERT_EQ(14, cq_poll(&cq->v.cq, 16, wc));
    qp->sq.wrid[1] = 11;
    qp->sq.wrid[2] = 22;
    prm::set<prm::cqe64::sop>(p.push(CqeOpcode::REQ, qp->uidx, 1), MLX5_OPCODE_SEND);
    prm::set<prm::cqe64::sop>(p.push(CqeOpcode::REQ, qp->uidx, 2), MLX5_OPCODE_SEND);
    ASSERT_EQ(0, e.ops.resize_cq(&cq->v.cq, want));
    EXPECT_EQ(want, cq->v.cq.cqe);
    ASSERT_EQ(2, cq_poll(&cq->v.cq, 16, wc));
    EXPECT_EQ(11u, wc[0].wr_id);
    EXPECT_EQ(22u, wc[1].wr_id);
    EXPECT_EQ(0, cq_poll(&cq->v.cq, 16, wc));
    EXPECT_EQ(EINVAL, e.ops.resize_cq(&cq->v.cq, -1));
    e.ops.destroy_qp(&qp->v.qp);
    e.ops.destroy_cq(&cq->v.cq);
  }
}

TEST(Srq, LinksFollowCompletions) {
  Env e;
  ibv_srq_init_attr attr = {};
  attr.attr = {3, 2, 0};
  ibv_srq* ibsrq = e.ops.create_srq(&e.pd.pd, &attr);
  ASSERT_NE(nullptr, ibsrq);
  EXPECT_EQ(3u, attr.attr.max_wr);
  EXPECT_EQ(3u, attr.attr.max_sge);
  Srq* srq = to_srq(ibsrq);
  ibv_sge sge[4] = {{0x1000, 8, 1}, {0x2000, 8, 2}, {0x3000, 8, 3}, {0x4000, 8, 4}};
  ibv_recv_wr wr = {};
  wr.sg_list = sge;
  wr.num_sge = 2;
  ibv_recv_wr* bad = nullptr;
  for (int i = 0; i < 3; ++i) {
    wr.wr_id = static_cast<std::uint64_t>(i);
    ASSERT_EQ(0, srq_post_recv(ibsrq, &wr, &bad)) << i;
  }
  EXPECT_EQ(ENOMEM, srq_post_recv(ibsrq, &wr, &bad));
  EXPECT_EQ(&wr, bad);
  wr.num_sge = 4;
  EXPECT_EQ(EINVAL, srq_post_recv(ibsrq, &wr, &bad));
  EXPECT_EQ(3u, be(&srq->db[0]));
  EXPECT_EQ(1u, be(srq->wqe(0)) & 0xffff);
  EXPECT_EQ(0x100u, be(srq->wqe(0) + 16 + 32 + 4));

  Cq* cq = e.cq(8);
  auto a = e.attr(cq, cq);
  a.srq = ibsrq;
  a.cap.max_recv_wr = 0x7fffffff;
  Qp* qp = e.rts(&a);
  ASSERT_NE(nullptr, qp);
  EXPECT_EQ(0u, a.cap.max_recv_wr);
  EXPECT_EQ(0u, calls.qp_in.rq_wqe_count);
  Env::Producer p{cq};
  p.push(CqeOpcode::RESP_SEND, qp->uidx, 1);
  p.push(CqeOpcode::RESP_SEND, qp->uidx, 0x4000);  // no such WQE
  ibv_wc wc[2];
  EXPECT_EQ(-2, cq_poll(&cq->v.cq, 2, wc));
  EXPECT_EQ(1u, wc[0].wr_id);
  EXPECT_EQ(1u, be(srq->wqe(3)) & 0xffff);  // given back behind the tail
  wr.num_sge = 1;
  wr.wr_id = 77;
  ASSERT_EQ(0, srq_post_recv(ibsrq, &wr, &bad));  // WQE 3
  EXPECT_EQ(77u, srq->wrid[3]);
  EXPECT_EQ(ENOMEM, srq_post_recv(ibsrq, &wr, &bad));
  // Entries of a dying QP give their WQEs back too.
  p.push(CqeOpcode::RESP_SEND, qp->uidx, 0);
  e.ops.destroy_qp(&qp->v.qp);
  EXPECT_EQ(0, srq_post_recv(ibsrq, &wr, &bad));
  e.ops.destroy_cq(&cq->v.cq);
  EXPECT_EQ(0, e.ops.destroy_srq(ibsrq));
}

// ---- keys made of pieces of others

TEST(Mkey, ListGoesIntoTheRequest) {
  fake::Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq);
  a.cap.max_inline_data = 64;
  mlx5dv_qp_init_attr dv = {};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
  dv.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
  a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV;
  ibv_qp* ib = create_qp(e.context(), &a, &dv);
  ASSERT_NE(nullptr, ib) << errno;
  Qp* qp = to_qp(ib);
  for (ibv_qp_state s : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) e.modify(qp, s);
  // What mlx5dv_create_mkey hands out begins like this.
  struct {
    mlx5dv_mkey dv{0x12300, 0x12300};
    mlx5dv_devx_obj* obj = nullptr;
    std::uint32_t max_entries = 8;
  } key;
  ibv_qp_ex* q = &qp->v.qp_ex.base;
  ibv_sge list[3] = {{0x1000, 16, 1}, {0x2000, 32, 2}, {0x3000, 64, 3}};
  q->wr_start(q);
  q->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  qp->dv.wr_mr_list(&qp->dv, &key.dv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 3, list);
  ASSERT_EQ(0, q->wr_complete(q));
  const std::uint8_t* wqe = qp->ring.start;
  EXPECT_EQ(static_cast<unsigned>(WqeOpcode::UMR), prm::get<prm::wqe_ctrl_seg::opcode>(wqe));
  EXPECT_EQ(0x12300u, prm::get<prm::wqe_ctrl_seg::imm>(wqe));
  EXPECT_EQ(16u + 48 + 64 + 64, prm::get<prm::wqe_ctrl_seg::ds>(wqe) * 16) << "the list is filled up to 64 bytes";
  EXPECT_EQ(4u, prm::get<prm::wqe_umr_ctrl_seg::klm_octowords>(wqe + 16));
  EXPECT_EQ(112u, prm::get<prm::wqe_mkey_context_seg::len>(wqe + 64));
  EXPECT_EQ(0x2000u, prm::get<prm::wqe_data_seg::addr>(wqe + 128 + 16));
  EXPECT_EQ(0u, prm::get<prm::wqe_data_seg::byte_count>(wqe + 128 + 48));

  // The new calls: a pattern that repeats, and setters that may come once.
  mlx5dv_mkey_conf_attr conf = {};
  mlx5dv_mr_interleaved pattern[8] = {{0x1000, 16, 16, 1}, {0x8000, 8, 0, 2}};
  q->wr_start(q);
  qp->dv.wr_mkey_configure(&qp->dv, &key.dv, 2, &conf);
  qp->dv.wr_set_mkey_access_flags(&qp->dv, IBV_ACCESS_LOCAL_WRITE);
  qp->dv.wr_set_mkey_layout_interleaved(&qp->dv, 2, 2, pattern);
  ASSERT_EQ(0, q->wr_complete(q));
  wqe = qp->ring.block(3);
  EXPECT_EQ(48u, prm::get<prm::wqe_mkey_context_seg::len>(wqe + 64));
  EXPECT_EQ(0x400u, prm::get<prm::wqe_data_seg::lkey>(wqe + 128)) << "a pattern";
  EXPECT_EQ(std::uint64_t{2} << 32 | 2, prm::get<prm::wqe_data_seg::addr>(wqe + 128));
  EXPECT_EQ(32u << 16 | 16, prm::get<prm::wqe_data_seg::byte_count>(wqe + 128 + 16));
  EXPECT_EQ(0x8000u, prm::get<prm::wqe_data_seg::addr>(wqe + 128 + 32));

  auto refused = [&](auto build) {
    q->wr_start(q);
    build();
    return q->wr_complete(q);
  };
  EXPECT_EQ(EINVAL, refused([&] {
              qp->dv.wr_mkey_configure(&qp->dv, &key.dv, 2, &conf);
              qp->dv.wr_set_mkey_access_flags(&qp->dv, IBV_ACCESS_LOCAL_WRITE);
              qp->dv.wr_set_mkey_access_flags(&qp->dv, IBV_ACCESS_LOCAL_WRITE);
            }));
  EXPECT_EQ(EINVAL, refused([&] { qp->dv.wr_set_mkey_access_flags(&qp->dv, 0); })) << "outside";
  EXPECT_EQ(EINVAL, refused([&] { qp->dv.wr_mr_list(&qp->dv, &key.dv, IBV_ACCESS_MW_BIND, 1, list); }));
  EXPECT_EQ(ENOMEM, refused([&] { qp->dv.wr_mr_interleaved(&qp->dv, &key.dv, 0, 5, 8, pattern); })) << "more than the key has room for";
  EXPECT_EQ(EOPNOTSUPP, refused([&] {
              qp->dv.wr_mkey_configure(&qp->dv, &key.dv, 1, &conf);
              qp->dv.wr_set_mkey_sig_block(&qp->dv, nullptr);
            }));
  EXPECT_EQ(EINVAL, refused([&] {
              q->wr_local_inv(q, key.dv.rkey);
              qp->dv.wr_set_mkey_access_flags(&qp->dv, IBV_ACCESS_LOCAL_WRITE);
            }))
      << "the key of a request that was given up";
  EXPECT_EQ(EOPNOTSUPP, refused([&] {
              q->wr_flags = 0;
              qp->dv.wr_mr_list(&qp->dv, &key.dv, 0, 1, list);
            }));
  EXPECT_EQ(0, e.ops.destroy_qp(ib));
  EXPECT_EQ(0, e.ops.destroy_cq(&cq->v.cq));
}

// ---- DC

mlx5dv_qp_init_attr dc_attr(mlx5dv_dc_type type) {
  mlx5dv_qp_init_attr a = {};
  a.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  a.dc_init_attr.dc_type = type;
  return a;
}

TEST(Dc, EachRequestNamesItsTarget) {
  fake::Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq, IBV_QPT_DRIVER);
  a.cap.max_recv_wr = a.cap.max_recv_sge = 0;
  a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
  auto dv = dc_attr(MLX5DV_DCTYPE_DCI);
  ibv_qp* ib = create_qp(e.context(), &a, &dv);
  ASSERT_NE(nullptr, ib) << errno;
  Qp* qp = to_qp(ib);
  EXPECT_EQ(std::uint32_t{MLX5_QP_FLAG_TYPE_DCI}, fake::calls.qp_in.flags & (MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT));
  EXPECT_EQ(0u, fake::calls.qp_in.flags & MLX5_QP_FLAG_SCATTER_CQE);
  for (ibv_qp_state s : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) e.modify(qp, s);
  Ah ah;
  std::memset(ah.av, 0, sizeof ah.av);
  prm::set<prm::wqe_av::hop_limit>(ah.av, 0x40);
  ibv_qp_ex* q = &qp->v.qp_ex.base;
  q->wr_start(q);
  q->wr_flags = IBV_SEND_SIGNALED;
  q->wr_rdma_write(q, 0x1111, 0x2000);
  qp->dv.wr_set_dc_addr_stream(&qp->dv, &ah.ah, 0xabcdef, 0x0123456789abcdef, 5);
  q->wr_set_sge(q, 7, 0x3000, 64);
  ASSERT_EQ(0, q->wr_complete(q));
  const std::uint8_t* wqe = qp->ring.start;
  EXPECT_EQ(16u + 48 + 16 + 16, prm::get<prm::wqe_ctrl_seg::ds>(wqe) * 16);
  EXPECT_EQ(5u, prm::get<prm::wqe_ctrl_seg::dci_stream_channel_id>(wqe));
  const std::uint8_t* av = wqe + 16;
  EXPECT_EQ(0x0123456789abcdefu, prm::get<prm::wqe_av::qkey_or_dc_key>(av));
  EXPECT_EQ(1u, prm::get<prm::wqe_av::ext>(av));
  EXPECT_EQ(0xabcdefu, prm::get<prm::wqe_av::dqp_dct>(av));
  EXPECT_EQ(0x40u, prm::get<prm::wqe_av::hop_limit>(av));
  EXPECT_EQ(0x2000u, prm::get<prm::wqe_raddr_seg::raddr>(av + prm::wqe_av::kBytes));
  // The old call has no place for a target.
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  EXPECT_EQ(EINVAL, e.ops.post_send(ib, &wr, &bad));
  EXPECT_EQ(0, e.ops.destroy_qp(ib));
  EXPECT_EQ(0, e.ops.destroy_cq(&cq->v.cq));
}

TEST(Dc, AttributesMustNameOneEnd) {
  fake::Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq, IBV_QPT_DRIVER);
  EXPECT_EQ(nullptr, create_qp(e.context(), &a, nullptr));
  EXPECT_EQ(EINVAL, errno);
  auto dv = dc_attr({});
  EXPECT_EQ(nullptr, create_qp(e.context(), &a, &dv));
  EXPECT_EQ(EINVAL, errno);
  dv = dc_attr(MLX5DV_DCTYPE_DCT);
  dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
  EXPECT_EQ(nullptr, create_qp(e.context(), &a, &dv)) << "a target sends nothing";
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(0, e.ops.destroy_cq(&cq->v.cq));
}

TEST(Dc, TargetsHaveNoQueues) {
  fake::Env e;
  Cq* cq = e.cq(16);
  auto a = e.attr(cq, cq, IBV_QPT_DRIVER);
  auto dv = dc_attr(MLX5DV_DCTYPE_DCT);
  dv.dc_init_attr.dct_access_key = 0xfeed;
  ibv_qp* ib = create_qp(e.context(), &a, &dv);
  ASSERT_NE(nullptr, ib) << errno;
  EXPECT_EQ(0xfeedu, fake::calls.qp_in.access_key);
  EXPECT_EQ(0u, fake::calls.qp_in.buf_addr);
  EXPECT_EQ(0, e.ops.destroy_qp(ib));
  EXPECT_EQ(0, e.ops.destroy_cq(&cq->v.cq));
}

TEST(Xrc, CompletionsNameTheSrq) {
  Env e;
  fill_xrc_ops(&e.ops);
  Cq* cq = e.cq(8);
  ibv_xrcd_init_attr xa = {};
  ibv_xrcd* xrcd = e.ops.open_xrcd(e.context(), &xa);
  ASSERT_NE(nullptr, xrcd);
  ibv_srq_init_attr_ex sa = {};
  sa.attr = {3, 2, 0};
  sa.srq_type = IBV_SRQT_XRC;
  sa.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD;
  sa.pd = &e.pd.pd;
  sa.xrcd = xrcd;
  EXPECT_EQ(nullptr, e.ops.create_srq_ex(e.context(), &sa)) << "no CQ";
  EXPECT_EQ(EINVAL, errno);
  sa.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
  sa.cq = &cq->v.cq;
  ibv_srq* ibsrq = e.ops.create_srq_ex(e.context(), &sa);
  ASSERT_NE(nullptr, ibsrq);
  Srq* srq = to_srq(ibsrq);
  EXPECT_EQ(srq->index.uidx, calls.srq_in.uidx);
  ibv_sge sge = {0x1000, 8, 1};
  ibv_recv_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  for (std::uint64_t i = 0; i < 2; ++i) {
    wr.wr_id = 40 + i;
    ASSERT_EQ(0, srq_post_recv(ibsrq, &wr, &bad));
  }
  Env::Producer p{cq};
  prm::set<prm::cqe64::qpn>(p.push(CqeOpcode::RESP_SEND, srq->index.uidx, 1), 0x55);
  ibv_wc wc[2];
  ASSERT_EQ(1, cq_poll(&cq->v.cq, 2, wc));
  EXPECT_EQ(41u, wc[0].wr_id);
  EXPECT_EQ(0x55u, wc[0].qp_num);
  p.push(CqeOpcode::REQ, srq->index.uidx, 0);
  EXPECT_EQ(-2, cq_poll(&cq->v.cq, 2, wc)) << "an SRQ sends nothing";
  // What an SRQ leaves in its CQ goes with it.
  p.push(CqeOpcode::RESP_SEND, srq->index.uidx, 0);
  EXPECT_EQ(0, e.ops.destroy_srq(ibsrq));
  EXPECT_EQ(0, cq_poll(&cq->v.cq, 2, wc));
  EXPECT_EQ(0u, e.ctx->uidx_used[0]);
  EXPECT_EQ(0, e.ops.close_xrcd(xrcd));
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Xrc, InitiatorNamesTheRemoteSrq) {
  Env e;
  Cq* cq = e.cq(8);
  auto a = e.attr(cq, cq, IBV_QPT_XRC_SEND);
  a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_LOCAL_INV;
  Qp* qp = e.rts(&a);
  ASSERT_NE(nullptr, qp);
  EXPECT_EQ(0u, calls.qp_in.rq_wqe_count);
  ibv_qp_ex* q = &qp->v.qp_ex.base;
  q->wr_start(q);
  q->wr_send(q);
  q->wr_set_sge(q, 1, 0x1000, 8);
  q->wr_set_xrc_srqn(q, 0xabc);
  q->wr_local_inv(q, 0x1234);  // nothing of it goes to a peer: no XRC segment
  EXPECT_EQ(0, q->wr_complete(q));
  EXPECT_EQ(0xabcu, be(qp->ring.block(0) + 16));
  EXPECT_EQ(0x1000u, be(qp->ring.block(0) + 32 + 12));
  const std::uint8_t* inv = qp->ring.block(1);
  EXPECT_EQ(prm::kUmrTranslationOffset | prm::kUmrInline | prm::kUmrCheckQpn, inv[16]) << "the UMR control segment comes first";
  e.ops.destroy_qp(&qp->v.qp);
  e.ops.destroy_cq(&cq->v.cq);
}

TEST(Xrc, TargetsHaveNoQueues) {
  Env e;
  fill_xrc_ops(&e.ops);
  ibv_xrcd_init_attr xa = {};
  ibv_xrcd* xrcd = e.ops.open_xrcd(e.context(), &xa);
  ibv_qp_init_attr_ex a = {};
  a.qp_type = IBV_QPT_XRC_RECV;
  EXPECT_EQ(nullptr, e.qp(&a)) << "no domain";
  EXPECT_EQ(EINVAL, errno);
  a.comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  a.xrcd = xrcd;
  EXPECT_EQ(nullptr, e.qp(&a)) << "it sends nothing";
  EXPECT_EQ(EOPNOTSUPP, errno);
  a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  Qp* qp = e.qp(&a);
  ASSERT_NE(nullptr, qp);
  for (ibv_qp_state s : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RESET}) EXPECT_EQ(0, e.modify(qp, s));
  ibv_qp_open_attr oa = {};
  oa.qp_num = qp->v.qp.qp_num;
  oa.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* again = e.ops.open_qp(e.context(), &oa);
  ASSERT_NE(nullptr, again);
  EXPECT_EQ(0, e.ops.destroy_qp(again));
  EXPECT_EQ(0, e.ops.destroy_qp(&qp->v.qp));
  calls.err = EIO;
  EXPECT_EQ(nullptr, e.ops.open_qp(e.context(), &oa));
  EXPECT_EQ(nullptr, e.ops.open_xrcd(e.context(), &xa));
  EXPECT_EQ(EIO, e.ops.close_xrcd(xrcd));
  calls.err = 0;
  EXPECT_EQ(0, e.ops.close_xrcd(xrcd));
}

TEST(Create, FailureLeavesNothing) {
  Env e;
  Cq* cq = e.cq(8);
  auto a = e.attr(cq, cq);
  calls.err = EIO;
  EXPECT_EQ(nullptr, e.qp(&a));
  EXPECT_EQ(EIO, errno);
  EXPECT_EQ(nullptr, e.cq(8));
  ibv_srq_init_attr attr = {};
  attr.attr = {3, 2, 0};
  EXPECT_EQ(nullptr, e.ops.create_srq(&e.pd.pd, &attr));
  EXPECT_EQ(0u, e.ctx->uidx_used[0]);
  calls.err = 0;
  Qp* qp = e.qp(&a);
  ASSERT_NE(nullptr, qp);
  calls.err = EBUSY;
  EXPECT_EQ(EBUSY, e.ops.destroy_qp(&qp->v.qp));
  EXPECT_EQ(1u, e.ctx->uidx_used[0]);
  calls.err = 0;
  EXPECT_EQ(0, e.ops.destroy_qp(&qp->v.qp));
  EXPECT_EQ(0u, e.ctx->uidx_used[0]);
  auto raw = e.attr(cq, cq, static_cast<ibv_qp_type>(7));  // none that exists
  EXPECT_EQ(nullptr, e.qp(&raw));
  EXPECT_EQ(EOPNOTSUPP, errno);
  a.comp_mask |= 1u << 30;
  EXPECT_EQ(nullptr, e.qp(&a));
  EXPECT_EQ(EINVAL, errno);
  e.ops.destroy_cq(&cq->v.cq);
  EXPECT_EQ(nullptr, e.ctx->dbr_pages);
}

TEST(Create, DoorbellRecordsOnLinesOfTheirOwn) {
  Env e;
  std::vector<std::uint32_t*> recs;
  for (int i = 0; i < 130; ++i) recs.push_back(alloc_dbr(e.ctx, nullptr));
  for (std::size_t i = 0; i < recs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      auto d = reinterpret_cast<std::uintptr_t>(recs[i]) / 64;
      EXPECT_NE(d, reinterpret_cast<std::uintptr_t>(recs[j]) / 64);
    }
  for (auto* r : recs) free_dbr(e.ctx, nullptr, r);
  EXPECT_EQ(nullptr, e.ctx->dbr_pages);
}

}  // namespace

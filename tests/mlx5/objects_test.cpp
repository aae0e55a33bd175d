// SPDX-License-Identifier: MIT
#include <cstddef>

#include "base/log.h"
#include "rig.h"

namespace uhca::mlx5test {
namespace {

TEST(Device, ProbeAndRemoveCycles) {
  auto slot = plug();
  ASSERT_NE(nullptr, slot);
  for (int i = 0; i < 3; ++i) {
    auto dev = mlx5_ib_probe(*slot);
    ASSERT_TRUE(dev.ok()) << dev.code();
    EXPECT_EQ("mlx5_0", (*dev)->name);
    EXPECT_EQ(*dev, ib_device_by_name("mlx5_0"));
    mlx5_ib_remove(*dev);
    EXPECT_EQ(nullptr, ib_device_by_name("mlx5_0"));
  }
}

TEST_F(DeviceTest, SaysWhatItIs) {
  EXPECT_EQ(0x15b3, dev->pci_vendor);
  EXPECT_EQ(0x101d, dev->pci_device);
  EXPECT_EQ("MT4125", dev->hca_type);
  EXPECT_EQ("lo", dev->netdev);
  EXPECT_FALSE(dev->board_id.empty());
  EXPECT_NE(0u, dev->node_guid);
  ib_device_attr a;
  ASSERT_TRUE(dev->ops.query_device(*dev, a, nullptr).ok());
  EXPECT_EQ(0x2c9u, a.vendor_id);
  EXPECT_EQ(0x101du, a.vendor_part_id);
  EXPECT_EQ(1u << 15, a.max_qp_wr);
  EXPECT_EQ(30u, a.max_send_sge);
  EXPECT_EQ(30u, a.max_sge_rd);
  EXPECT_EQ(1u, a.atomic_cap);
  EXPECT_EQ(16u, a.max_qp_rd_atom);
  ib_port_attr p;
  ASSERT_TRUE(dev->ops.query_port(*dev, 1, p).ok());
  EXPECT_EQ(4, p.state);
  EXPECT_EQ(5, p.active_mtu);  // 4096 fits into the loopback's 65536
  EXPECT_EQ(1, p.pkey_tbl_len);
  EXPECT_EQ(256u, p.gid_tbl_len);
  EXPECT_GT(p.speed_100mbps, 0u);
  EXPECT_EQ(EINVAL, dev->ops.query_port(*dev, 2, p).code());
  EXPECT_EQ(0xffff, *dev->ops.query_pkey(*dev, 1, 0));
  EXPECT_EQ(EINVAL, dev->ops.query_pkey(*dev, 1, 1).code());
}

TEST_F(DeviceTest, QueryDeviceAnswersAsFarAsThereIsRoom) {
  ib_device_attr a;
  for (std::size_t room : {std::size_t{4}, std::size_t{8}, std::size_t{20}, sizeof(mlx5_ib_query_device_resp), std::size_t{200}}) {
    struct Big {
      mlx5_ib_query_device_resp r;
      char more[200];
    };
    Call<int, Big> call(0, room);
    ASSERT_TRUE(dev->ops.query_device(*dev, a, &call.udata).ok());
    EXPECT_LE(call.out.r.response_length, room);
    if (room >= 8) {
      EXPECT_GE(call.out.r.response_length, 8u);
    }
    if (room >= sizeof call.out.r) {
      EXPECT_EQ(sizeof call.out.r, call.out.r.response_length);
    }
  }
}

TEST_F(DeviceTest, ContextVariants) {
  EXPECT_EQ(0u, uctx_resp.tot_bfregs);
  EXPECT_EQ(0u, uctx_resp.bf_reg_size);
  EXPECT_EQ(1, uctx_resp.cqe_version);
  EXPECT_EQ(12u, uctx_resp.log_uar_size);
  EXPECT_EQ(sizeof uctx_resp, uctx_resp.response_length);
  using Req = mlx5_ib_alloc_ucontext_req_v2;
  auto open = [&](std::size_t inlen, std::size_t outlen, auto change) {
    Call<Req, mlx5_ib_alloc_ucontext_resp> call(inlen, outlen);
    call.in.total_num_bfregs = 16;
    call.in.num_low_latency_bfregs = 4;
    call.in.max_cqe_version = 1;
    change(call.in);
    auto c = dev->ops.alloc_ucontext(*dev, call.udata);
    if (c) dev->ops.dealloc_ucontext(**c);
    return std::pair(c.code(), call.out);
  };
  auto nothing = [](Req&) {};
  EXPECT_EQ(0, open(32, 72, [](Req& r) { r.flags = MLX5_IB_ALLOC_UCTX_DEVX; }).first);
  EXPECT_EQ(EOPNOTSUPP, open(32, 72, [](Req& r) { r.flags = 2; }).first);
  EXPECT_EQ(EOPNOTSUPP, open(32, 72, [](Req& r) { r.comp_mask = 1; }).first);
  EXPECT_EQ(EINVAL, open(4, 72, nothing).first);
  EXPECT_EQ(EINVAL, open(32, 72, [](Req& r) { r.total_num_bfregs = 0; }).first);
  EXPECT_EQ(EINVAL, open(32, 72, [](Req& r) { r.num_low_latency_bfregs = 16; }).first);
  EXPECT_EQ(ENOMEM, open(32, 72, [](Req& r) { r.total_num_bfregs = 4096; }).first);
  // Short requests have static UARs: two registers a page.
  for (std::size_t inlen : {8, 16, 24}) {
    auto [err, resp] = open(inlen, 24, nothing);
    EXPECT_EQ(0, err) << inlen;
    EXPECT_EQ(16u, resp.tot_bfregs);
    EXPECT_EQ(0u, resp.response_length) << "beyond the room";
  }
  Call<Req, mlx5_ib_alloc_ucontext_resp> bad;
  bad.in.total_num_bfregs = 16;
  bad.udata.outbuf = 8;
  EXPECT_EQ(EFAULT, dev->ops.alloc_ucontext(*dev, bad.udata).code());
}

TEST_F(DeviceTest, UarPagesAreMappedByTheirCookie) {
  EXPECT_EQ(0x900u, uar->pgoff);
  auto t = dev->ops.mmap(*ctx, uar->pgoff, 4096, PROT_WRITE);
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(uar->page_id, t->uar_index);
  EXPECT_EQ(std::uint64_t{uar->page_id} * 4096, t->offset);
  void* p = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, static_cast<off_t>(t->offset));
  ASSERT_NE(MAP_FAILED, p);
  munmap(p, 4096);
  EXPECT_EQ(EINVAL, dev->ops.mmap(*ctx, uar->pgoff, 8192, PROT_WRITE).code());
  EXPECT_EQ(EINVAL, dev->ops.mmap(*ctx, uar->pgoff + 1, 4096, PROT_WRITE).code());
  EXPECT_EQ(EINVAL, dev->ops.mmap(*ctx, 0, 4096, PROT_WRITE).code());
  EXPECT_EQ(ENOSYS, dev->ops.mmap(*ctx, 1 << 8, 4096, PROT_WRITE).code());
  auto second = alloc_uar_entry(to_mucontext(*ctx));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(0x901u, (*second)->pgoff);
  std::uint64_t old = (*second)->pgoff;
  ASSERT_TRUE(free_uar_entry(to_mucontext(*ctx), **second).ok());
  EXPECT_EQ(EINVAL, dev->ops.mmap(*ctx, old, 4096, PROT_WRITE).code());
}

TEST_F(DeviceTest, MemoryRegions) {
  Pages mem(8 * 4096);
  Udata none;
  auto mr = ib_reg_user_mr(*pd, up(mem.p) + 100, 5000, up(mem.p) + 100, kAccessLocalWrite | kAccessRemoteRead, &none);
  ASSERT_TRUE(mr.ok()) << mr.code();
  EXPECT_EQ((*mr)->lkey, (*mr)->rkey);
  EXPECT_NE(0u, (*mr)->lkey);
  EXPECT_EQ(EBUSY, ib_dealloc_pd(*pd).code());
  // The same memory again, and at other iovas.
  auto again = ib_reg_user_mr(*pd, up(mem.p), 4096, up(mem.p), kAccessLocalWrite, &none);
  ASSERT_TRUE(again.ok());
  EXPECT_NE((*mr)->lkey, (*again)->lkey);
  for (std::uint64_t iova : {std::uint64_t{0}, std::uint64_t{0x123000}, ~std::uint64_t{0} - 0xffff}) {
    auto m = ib_reg_user_mr(*pd, up(mem.p), 2 * 4096, iova & ~0xfffull, 0, &none);
    ASSERT_TRUE(m.ok()) << std::hex << iova;
    EXPECT_TRUE(ib_dereg_mr(**m).ok());
  }
  EXPECT_TRUE(ib_dereg_mr(**again).ok());
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
  EXPECT_EQ(EINVAL, ib_reg_user_mr(*pd, up(mem.p), 4096, 8, 0, &none).code());
  EXPECT_EQ(EINVAL, ib_reg_user_mr(*pd, up(mem.p), 0, up(mem.p), 0, &none).code());
  EXPECT_EQ(EFAULT, ib_reg_user_mr(*pd, 0, 4096, 0, 0, &none).code());
  EXPECT_EQ(EINVAL, ib_reg_user_mr(*pd, up(mem.p), 4096, up(mem.p), kAccessRemoteWrite, &none).code());
  mprotect(mem.p, 4096, PROT_READ);
  EXPECT_EQ(EFAULT, ib_reg_user_mr(*pd, up(mem.p), 4096, up(mem.p), kAccessLocalWrite, &none).code());
  auto ro = ib_reg_user_mr(*pd, up(mem.p), 4096, up(mem.p), kAccessRemoteRead, &none);
  ASSERT_TRUE(ro.ok());
  EXPECT_TRUE(ib_dereg_mr(**ro).ok());
}

TEST_F(DeviceTest, HugeMemoryRegion) {
  Pages mem((std::size_t{5} << 30) + 4096);
  ASSERT_NE(MAP_FAILED, static_cast<void*>(mem.p));
  Udata none;
  auto mr = ib_reg_user_mr(*pd, up(mem.p) + 1, (std::size_t{5} << 30) + 1, up(mem.p) + 1, kAccessLocalWrite, &none);
  ASSERT_TRUE(mr.ok()) << mr.code();
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
}

TEST_F(DeviceTest, RegistrationThatTheDeviceRefusesLeavesNothing) {
  Pages mem(4096);
  Udata none;
  std::size_t before = dev->mdev->domain().live_ranges();
  CommandFault fault;
  fault.opcode = static_cast<std::uint16_t>(prm::Opcode::CREATE_MKEY);
  fault.status = prm::CmdStatus::LIM;
  dev->mdev->cmd().inject(fault);
  EXPECT_EQ(ENOMEM, ib_reg_user_mr(*pd, up(mem.p), 4096, up(mem.p), 0, &none).code());
  EXPECT_EQ(before, dev->mdev->domain().live_ranges());
  // A key that cannot be destroyed keeps its memory.
  auto mr = ib_reg_user_mr(*pd, up(mem.p), 4096, up(mem.p), 0, &none);
  ASSERT_TRUE(mr.ok());
  fault.opcode = static_cast<std::uint16_t>(prm::Opcode::DESTROY_MKEY);
  fault.status = prm::CmdStatus::RES_BUSY;
  dev->mdev->cmd().inject(fault);
  EXPECT_EQ(EBUSY, ib_dereg_mr(**mr).code());
  EXPECT_NE(nullptr, dev->mdev->domain().translate(to_mmr(**mr).umem->dma(), 1, pci::DmaDir::kToDevice, nullptr, nullptr));
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
}

TEST_F(DeviceTest, UnmappedMemoryIsNamedByItsKey) {
  Pages mem(4096);
  Udata none;
  auto mr = ib_reg_user_mr(*pd, up(mem.p), 4096, up(mem.p), 0, &none);
  ASSERT_TRUE(mr.ok());
  dev->invalidate_range(up(mem.p), 4096, "munmap()ed");
  const char* why = nullptr;
  EXPECT_EQ(nullptr, dev->mdev->domain().translate(to_mmr(**mr).umem->dma(), 1, pci::DmaDir::kToDevice, nullptr, &why));
  EXPECT_NE(nullptr, std::strstr(why, fmt::format("MR lkey {:#x} ", (*mr)->lkey).c_str())) << why;
  EXPECT_TRUE(ib_dereg_mr(**mr).ok());
}

TEST_F(DeviceTest, CompletionQueues) {
  Pages mem(64 * 4096), db(4096);
  for (std::uint32_t size : {64u, 128u}) {
    auto cq = make_cq(100, mem.p, db.p + 64, size);
    ASSERT_TRUE(cq.ok()) << cq.code();
    EXPECT_EQ(127, (*cq)->cqe);
    EXPECT_NE(0u, (*cq)->hw_cqn());
    EXPECT_TRUE(ib_destroy_cq(**cq).ok());
  }
  auto odd = make_cq(1, mem.p + 64, db.p);
  EXPECT_TRUE(odd.ok());
  EXPECT_TRUE(ib_destroy_cq(**odd).ok());
  EXPECT_EQ(EINVAL, make_cq(0, mem.p, db.p).code());
  EXPECT_EQ(EINVAL, make_cq(1u << 30, mem.p, db.p).code());
  EXPECT_EQ(EINVAL, make_cq(10, mem.p, db.p, 32).code());
  EXPECT_EQ(EINVAL, make_cq(10, mem.p + 8, db.p).code());
  EXPECT_EQ(EINVAL, make_cq(10, mem.p, db.p + 4).code());
  EXPECT_EQ(EFAULT, make_cq(10, nullptr, db.p).code());
  EXPECT_EQ(EFAULT, make_cq(10, mem.p, nullptr).code());
  EXPECT_EQ(EFAULT, make_cq(64 * 64, mem.p, db.p).code());  // rounds up to twice what is there
  auto try_flags = [&](auto change, std::size_t inlen = sizeof(mlx5_ib_create_cq)) {
    Call<mlx5_ib_create_cq, mlx5_ib_create_cq_resp> call(inlen);
    call.in.buf_addr = up(mem.p);
    call.in.db_addr = up(db.p);
    call.in.cqe_size = 64;
    call.in.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    call.in.uar_page_index = static_cast<std::uint16_t>(uar->page_id);
    ib_cq_init_attr attr;
    attr.cqe = 10;
    change(call.in, attr);
    auto cq = ib_create_cq(*dev, ctx.get(), attr, &call.udata);
    if (cq) {
      EXPECT_TRUE(ib_destroy_cq(**cq).ok());
    }
    return cq.code();
  };
  EXPECT_EQ(0, try_flags([](auto&, auto&) {}));
  EXPECT_EQ(EINVAL, try_flags([](auto& in, auto&) { in.flags = 0; }));  // dynamic UARs need an index
  EXPECT_EQ(EINVAL, try_flags([](auto& in, auto&) { in.flags |= 0x80; }));
  auto compressed = [](unsigned format) {
    return [format](auto& in, auto&) {
      in.cqe_comp_en = 1;
      in.cqe_comp_res_format = static_cast<std::uint8_t>(format);
    };
  };
  EXPECT_EQ(EINVAL, try_flags(compressed(0)));
  for (unsigned format : {MLX5_IB_CQE_RES_FORMAT_HASH, MLX5_IB_CQE_RES_FORMAT_CSUM, MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX})
    EXPECT_EQ(0, try_flags(compressed(format))) << format;
  EXPECT_EQ(EOPNOTSUPP, try_flags([](auto& in, auto&) { in.flags |= MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD; })) << "of 64 bytes";
  EXPECT_EQ(EINVAL, try_flags([](auto&, auto& a) { a.comp_vector = 1000; }));
  EXPECT_EQ(EOPNOTSUPP, try_flags([](auto&, auto& a) { a.flags = 0x10; }));
  EXPECT_EQ(EINVAL, try_flags([](auto&, auto&) {}, 8));
  EXPECT_NE(0, try_flags([](auto& in, auto&) { in.uar_page_index = 0x1fff; }));
}

TEST_F(DeviceTest, QueuePairCreation) {
  Pages mem(64 * 4096), cqmem(4096), db(4096);
  auto cq = make_cq(60, cqmem.p, db.p);
  ASSERT_TRUE(cq.ok());
  auto base = qp_request(mem.p, db.p + 64);
  for (auto type : {ib_qp_type::RC, ib_qp_type::UC, ib_qp_type::UD}) {
    auto qp = make_qp(base, **cq, type);
    ASSERT_TRUE(qp.ok()) << static_cast<int>(type);
    EXPECT_NE(0u, (*qp)->qp_num);
    EXPECT_EQ(EBUSY, ib_destroy_cq(**cq).code());
    EXPECT_TRUE(ib_destroy_qp(**qp).ok());
  }
  auto with = [&](auto change, std::size_t inlen = sizeof(mlx5_ib_create_qp), ib_qp_type type = ib_qp_type::RC) {
    auto in = base;
    change(in);
    auto qp = make_qp(in, **cq, type, inlen);
    if (qp) {
      EXPECT_TRUE(ib_destroy_qp(**qp).ok());
    }
    return qp.code();
  };
  EXPECT_EQ(0, with([](auto& in) { in.sq_wqe_count = 0; }));
  EXPECT_EQ(0, with([](auto& in) { in.rq_wqe_count = 0; }));
  EXPECT_EQ(0, with([](auto& in) { in.flags |= MLX5_QP_FLAG_SCATTER_CQE; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.sq_wqe_count = 48; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.sq_wqe_count = 1u << 20; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.rq_wqe_count = 33; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.rq_wqe_shift = 40; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.rq_wqe_shift = 2; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.flags |= 1u << 30; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.flags |= MLX5_QP_FLAG_TYPE_DCT; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.flags = 0; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.uidx = 1u << 24; }));
  EXPECT_EQ(EINVAL, with([](auto&) {}, offsetof(mlx5_ib_create_qp, uidx)));
  EXPECT_EQ(EINVAL, with([](auto&) {}, 16));
  EXPECT_EQ(EFAULT, with([](auto& in) { in.buf_addr = 4096; }));
  EXPECT_EQ(EFAULT, with([](auto& in) { in.db_addr = 4096; }));
  EXPECT_EQ(EINVAL, with([](auto& in) { in.buf_addr += 32; }));
  EXPECT_NE(0, with([](auto& in) { in.bfreg_index = 0x1fff; }));
  EXPECT_TRUE(ib_destroy_cq(**cq).ok());
}

TEST_F(DeviceTest, QueuePairStates) {
  Pages mem(64 * 4096), cqmem(4096), db(4096);
  auto cq = make_cq(60, cqmem.p, db.p);
  ASSERT_TRUE(cq.ok());
  auto made = make_qp(qp_request(mem.p, db.p + 64), **cq);
  ASSERT_TRUE(made.ok());
  ib_qp& qp = **made;
  ib_gid_attr local = rdma_gid_table(*dev, 1).at(0);

  auto state = [&] {
    ib_qp_attr a;
    ib_qp_init_attr i;
    EXPECT_TRUE(dev->ops.query_qp(qp, a, ~0u, i).ok());
    EXPECT_EQ(ib_qp_type::RC, i.qp_type);
    return a;
  };
  EXPECT_EQ(ib_qp_state::RESET, state().qp_state);
  ib_qp_attr a;
  a.qp_state = ib_qp_state::INIT;
  a.port_num = 1;
  a.qp_access_flags = kAccessRemoteRead | kAccessRemoteWrite;
  std::uint32_t init = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, IB_QP_STATE | IB_QP_PORT, nullptr).code());
  a.port_num = 2;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, init, nullptr).code());
  a.port_num = 1;
  a.pkey_index = 200;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, init, nullptr).code());
  a.pkey_index = 0;
  ASSERT_TRUE(ib_modify_qp(qp, a, init, nullptr).ok());
  EXPECT_EQ(ib_qp_state::INIT, state().qp_state);
  ASSERT_TRUE(ib_modify_qp(qp, a, init, nullptr).ok());  // INIT -> INIT

  a.qp_state = ib_qp_state::RTR;
  a.path_mtu = 3;
  a.dest_qp_num = qp.qp_num;
  a.rq_psn = 0x123456;
  a.max_dest_rd_atomic = 4;
  a.min_rnr_timer = 12;
  a.ah_attr.is_global = true;
  a.ah_attr.dgid = local.gid;
  a.ah_attr.sgid_index = static_cast<std::uint8_t>(local.index);
  a.ah_attr.hop_limit = 64;
  a.ah_attr.traffic_class = 0x20;
  a.ah_attr.port_num = 1;
  std::uint32_t rtr =
      IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
  a.max_dest_rd_atomic = 17;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, rtr, nullptr).code());
  a.max_dest_rd_atomic = 4;
  a.path_mtu = 6;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, rtr, nullptr).code());
  a.path_mtu = 3;
  auto no_grh = a;
  no_grh.ah_attr.is_global = false;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, no_grh, rtr, nullptr).code());
  ASSERT_TRUE(ib_modify_qp(qp, a, rtr, nullptr).ok());
  auto got = state();
  EXPECT_EQ(ib_qp_state::RTR, got.qp_state);
  EXPECT_EQ(3, got.path_mtu);
  EXPECT_EQ(0x123456u, got.rq_psn);
  EXPECT_EQ(qp.qp_num, got.dest_qp_num);
  EXPECT_EQ(4, got.max_dest_rd_atomic);
  EXPECT_EQ(12, got.min_rnr_timer);
  EXPECT_EQ(local.gid, got.ah_attr.dgid);
  EXPECT_EQ(0x20, got.ah_attr.traffic_class);
  EXPECT_EQ(64, got.ah_attr.hop_limit);
  EXPECT_EQ(kAccessRemoteRead | kAccessRemoteWrite, got.qp_access_flags);

  a.qp_state = ib_qp_state::RTS;
  a.sq_psn = 0x654321;
  a.timeout = 14;
  a.retry_cnt = 6;
  a.rnr_retry = 7;
  std::uint32_t rts = IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
  ib_device_attr da;
  ASSERT_TRUE(dev->ops.query_device(*dev, da, nullptr).ok());
  a.max_rd_atomic = static_cast<std::uint8_t>(da.max_qp_init_rd_atom + 1);  // B11
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, rts, nullptr).code());
  a.max_rd_atomic = static_cast<std::uint8_t>(da.max_qp_init_rd_atom);
  ASSERT_TRUE(ib_modify_qp(qp, a, rts, nullptr).ok());
  got = state();
  EXPECT_EQ(ib_qp_state::RTS, got.qp_state);
  EXPECT_EQ(0x654321u, got.sq_psn);
  EXPECT_EQ(14, got.timeout);
  EXPECT_EQ(6, got.retry_cnt);
  EXPECT_EQ(7, got.rnr_retry);
  EXPECT_EQ(da.max_qp_init_rd_atom, got.max_rd_atomic);

  a.min_rnr_timer = 20;
  ASSERT_TRUE(ib_modify_qp(qp, a, IB_QP_STATE | IB_QP_MIN_RNR_TIMER, nullptr).ok());  // RTS -> RTS
  EXPECT_EQ(20, state().min_rnr_timer);
  a.qp_state = ib_qp_state::INIT;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, init, nullptr).code());
  a.qp_state = ib_qp_state::ERR;
  ASSERT_TRUE(ib_modify_qp(qp, a, IB_QP_STATE, nullptr).ok());
  EXPECT_EQ(ib_qp_state::ERR, state().qp_state);
  a.qp_state = ib_qp_state::RESET;
  ASSERT_TRUE(ib_modify_qp(qp, a, IB_QP_STATE, nullptr).ok());
  EXPECT_EQ(ib_qp_state::RESET, state().qp_state);
  ASSERT_TRUE(ib_modify_qp(qp, a, IB_QP_STATE, nullptr).ok());

  // The firmware's refusal leaves the state as it was.
  CommandFault fault;
  fault.opcode = static_cast<std::uint16_t>(prm::Opcode::RST2INIT_QP);
  fault.status = prm::CmdStatus::BAD_QP_STATE;
  dev->mdev->cmd().inject(fault);
  a.qp_state = ib_qp_state::INIT;
  EXPECT_EQ(EINVAL, ib_modify_qp(qp, a, init, nullptr).code());
  EXPECT_EQ(ib_qp_state::RESET, state().qp_state);
  EXPECT_TRUE(ib_destroy_qp(qp).ok());
  EXPECT_TRUE(ib_destroy_cq(**cq).ok());
}

TEST_F(DeviceTest, AddressHandlesReturnTheMac) {
  Call<int, mlx5_ib_create_ah_resp> call(0);
  rdma_ah_attr ah;
  ah.is_global = true;
  ah.dmac = {1, 2, 3, 4, 5, 6};
  auto made = dev->ops.create_user_ah(*pd, ah, &call.udata);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(0, std::memcmp(call.out.dmac, ah.dmac.data(), 6));
  EXPECT_EQ(10u, call.out.response_length);
  ah.is_global = false;
  EXPECT_EQ(EINVAL, dev->ops.create_user_ah(*pd, ah, &call.udata).code());
}

}  // namespace
}  // namespace uhca::mlx5test

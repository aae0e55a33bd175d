// SPDX-License-Identifier: MIT
// Opening a context, domains, memory regions and address handles, against a kernel that answers what the test wants.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mlx5dv/fake_verbs.h"

extern "C" const struct uhca_provider* const uhca_provider;

namespace {
using namespace fake;

class Open : public ::testing::Test {
 protected:
  void SetUp() override {
    calls = Calls{};
    auto& r = calls.context_resp;
    r.cache_line_size = 64;
    r.max_sq_desc_sz = 1024;
    r.max_rq_desc_sz = 512;
    r.max_send_wqebb = 32768;
    r.max_recv_wr = 32768;
    r.max_srq_recv_wr = 32768;
    r.num_ports = 1;
    r.cqe_version = 1;
    r.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
    r.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY;
    r.dump_fill_mkey = 0x99;
    device_ = uhca_provider->alloc_device(nullptr);
    device_->provider = uhca_provider;
  }
  void TearDown() override {
    uhca_provider->uninit_device(device_);
    EXPECT_EQ(0, calls.contexts);
    EXPECT_EQ(-1, calls.cmd_fd);
  }
  int fd() {
    int f = memfd_create("uar", MFD_CLOEXEC);
    EXPECT_EQ(0, ftruncate(f, 1 << 20));
    return f;
  }
  Context* open(void* attr = nullptr) {
    verbs_context_v65* v = uhca_provider->alloc_context(&device_->device, fd(), attr);
    return v ? reinterpret_cast<Context*>(v) : nullptr;
  }
  verbs_device* device_ = nullptr;
};

TEST_F(Open, DynamicUar) {
  Context* c = open();
  ASSERT_NE(nullptr, c);
  ASSERT_EQ(1u, calls.get_contexts.size());
  EXPECT_EQ(32u, calls.get_contexts[0].first);
  EXPECT_EQ(std::uint32_t{MLX5_IB_ALLOC_UCTX_DEVX}, calls.get_contexts[0].second);
  EXPECT_TRUE(c->devx);
  EXPECT_EQ(0x55u, c->nc_uar.page_id);
  EXPECT_EQ(c->nc_uar.page + 0x800, c->nc_uar.reg);
  EXPECT_EQ(0x99u, c->dump_fill_mkey);
  EXPECT_EQ(IBV_ATOMIC_HCA, c->atomic_cap);
  EXPECT_EQ(nullptr, c->doorbell_hook);  // no device in this process
  ibv_device_attr_ex attr = {};
  EXPECT_EQ(0, calls.ops.query_device_ex(to_ibv(c), nullptr, &attr, sizeof attr));
  EXPECT_STREQ("28.39.1002", attr.orig_attr.fw_ver);
  ibv_values_ex values = {};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(EOPNOTSUPP, calls.ops.query_rt_values(to_ibv(c), &values));
  values.comp_mask = 1u << 20;
  EXPECT_EQ(EINVAL, calls.ops.query_rt_values(to_ibv(c), &values));
  calls.ops.free_context(to_ibv(c));
}

TEST_F(Open, ClockPages) {
  calls.context_resp.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
  calls.context_resp.hca_core_clock_offset = 0x10;
  calls.context_resp.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1;
  Context* c = open();
  ASSERT_NE(nullptr, c);
  // The pages of commands 5 and 7 in what stands for the device file.
  const std::uint32_t timer[2] = {htobe32(3), htobe32(4)};
  ASSERT_EQ(8, pwrite(calls.cmd_fd, timer, 8, (5 << 8) * 4096 + 0x10));
  ibv_values_ex values = {};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(0, calls.ops.query_rt_values(to_ibv(c), &values));
  EXPECT_EQ(3L << 32 | 4, values.raw_clock.tv_nsec);
  mlx5_ib_clock_info ci = {};
  ci.sign = 2;
  ci.nsec = 1000;
  ci.mult = 7;
  ASSERT_EQ(static_cast<ssize_t>(sizeof ci), pwrite(calls.cmd_fd, &ci, sizeof ci, (7 << 8) * 4096));
  mlx5dv_clock_info info = {};
  EXPECT_EQ(0, read_clock_info(c, &info));
  EXPECT_EQ(1000u, info.nsec);
  EXPECT_EQ(7u, info.mult);
  ci.sign = 3;
  ASSERT_EQ(static_cast<ssize_t>(sizeof ci), pwrite(calls.cmd_fd, &ci, sizeof ci, (7 << 8) * 4096));
  EXPECT_EQ(EBUSY, read_clock_info(c, &info));
  calls.ops.free_context(to_ibv(c));
}

TEST_F(Open, OlderKernelsAndNoDevx) {
  calls.refuse_get_contexts = 3;
  Context* c = open();
  ASSERT_NE(nullptr, c);
  ASSERT_EQ(4u, calls.get_contexts.size());
  EXPECT_EQ((std::pair<std::size_t, std::uint32_t>{24, 1}), calls.get_contexts[1]);
  EXPECT_EQ((std::pair<std::size_t, std::uint32_t>{16, 1}), calls.get_contexts[2]);
  EXPECT_EQ((std::pair<std::size_t, std::uint32_t>{32, 0}), calls.get_contexts[3]);
  EXPECT_FALSE(c->devx);
  calls.ops.free_context(to_ibv(c));
  // A program that insists on DEVX gets an error instead.
  calls.get_contexts.clear();
  calls.refuse_get_contexts = 3;
  mlx5dv_context_attr attr = {};
  attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  EXPECT_EQ(nullptr, open(&attr));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(3u, calls.get_contexts.size());
}

TEST_F(Open, Refusals) {
  auto good = calls.context_resp;
  calls.context_resp.cqe_version = 0;
  EXPECT_EQ(nullptr, open());
  EXPECT_EQ(ENOTSUP, errno);
  calls.context_resp = good;
  calls.context_resp.tot_bfregs = 16;
  EXPECT_EQ(nullptr, open());
  EXPECT_EQ(ENOTSUP, errno);
  calls.context_resp = good;
  calls.context_resp.cache_line_size = 48;
  EXPECT_EQ(nullptr, open());
  EXPECT_EQ(EINVAL, errno);
  calls.context_resp = good;
  calls.ioctl_err = ENOSPC;
  EXPECT_EQ(nullptr, open());
  EXPECT_EQ(ENOSPC, errno);
  calls.ioctl_err = 0;
  mlx5dv_context_attr attr = {};
  attr.comp_mask = 1 << 10;
  EXPECT_EQ(nullptr, open(&attr));
  EXPECT_EQ(EINVAL, errno);
  setenv("MLX5_TOTAL_UUARS", "0", 1);
  EXPECT_EQ(nullptr, open());
  EXPECT_EQ(EINVAL, errno);
  unsetenv("MLX5_TOTAL_UUARS");
}

TEST_F(Open, Import) {
  verbs_context_v65* v = uhca_provider->import_context(&device_->device, fd());
  ASSERT_NE(nullptr, v);
  ibv_pd* pd = calls.ops.import_pd(&v->v.context, 5);
  ASSERT_NE(nullptr, pd);
  EXPECT_EQ(5u, pd->handle);
  EXPECT_EQ(0x66u, to_pd(pd)->pdn);
  calls.ops.unimport_pd(pd);
  calls.ops.free_context(&v->v.context);
}

TEST_F(Open, Domains) {
  Context* c = open();
  ibv_pd* pd = calls.ops.alloc_pd(to_ibv(c));
  ASSERT_NE(nullptr, pd);
  EXPECT_EQ(0x77u, to_pd(pd)->pdn);
  ibv_td_init_attr ta = {};
  ibv_td* td = calls.ops.alloc_td(to_ibv(c), &ta);
  ASSERT_NE(nullptr, td);
  static int allocated;
  allocated = 0;
  ibv_parent_domain_init_attr pa = {};
  pa.pd = pd;
  pa.td = td;
  pa.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  pa.alloc = [](ibv_pd*, void*, std::size_t size, std::size_t align, std::uint64_t) -> void* {
    ++allocated;
    return std::aligned_alloc(align, align_up(size, align));
  };
  pa.free = [](ibv_pd*, void*, void* p, std::uint64_t) {
    --allocated;
    std::free(p);
  };
  ibv_pd* parent = calls.ops.alloc_parent_domain(to_ibv(c), &pa);
  ASSERT_NE(nullptr, parent);
  EXPECT_EQ(EBUSY, calls.ops.dealloc_pd(pd));
  EXPECT_EQ(EBUSY, calls.ops.dealloc_td(td));
  ibv_cq* cq = calls.ops.create_cq(to_ibv(c), 7, nullptr, 0);
  ibv_qp_init_attr a = {};
  a.qp_type = IBV_QPT_RC;
  a.send_cq = a.recv_cq = cq;
  a.cap = {1, 1, 1, 1, 0};
  ibv_qp* qp = calls.ops.create_qp(parent, &a);
  ASSERT_NE(nullptr, qp);
  EXPECT_EQ(2, allocated);  // the queues and the doorbell record
  EXPECT_EQ(EBUSY, calls.ops.dealloc_pd(parent));
  EXPECT_EQ(0, calls.ops.destroy_qp(qp));
  EXPECT_EQ(0, allocated);
  pa.comp_mask = 1u << 9;
  EXPECT_EQ(nullptr, calls.ops.alloc_parent_domain(to_ibv(c), &pa));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(0, calls.ops.dealloc_pd(parent));
  EXPECT_EQ(0, calls.ops.dealloc_td(td));
  EXPECT_EQ(0, calls.ops.dealloc_pd(pd));
  EXPECT_EQ(0, calls.pds);
  EXPECT_EQ(0, calls.ops.destroy_cq(cq));
  calls.ops.free_context(to_ibv(c));
}

TEST_F(Open, Regions) {
  Context* c = open();
  ibv_pd* pd = calls.ops.alloc_pd(to_ibv(c));
  char mem[64];
  ibv_mr* mr = calls.ops.reg_mr(pd, mem, sizeof mem, 0, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(0, calls.ops.dereg_mr(verbs_get_mr(mr)));
  ibv_mr* null_mr = calls.ops.alloc_null_mr(pd);
  ASSERT_NE(nullptr, null_mr);
  EXPECT_EQ(0x99u, null_mr->lkey);
  EXPECT_EQ(0, calls.ops.dereg_mr(verbs_get_mr(null_mr)));
  EXPECT_EQ(0, calls.mrs);
  calls.err = EFAULT;
  EXPECT_EQ(nullptr, calls.ops.reg_mr(pd, mem, sizeof mem, 0, 0));
  EXPECT_EQ(EFAULT, errno);
  calls.err = 0;
  c->dump_fill_mkey = prm::kInvalidLkey;
  EXPECT_EQ(nullptr, calls.ops.alloc_null_mr(pd));
  EXPECT_EQ(ENOTSUP, errno);
  ibv_buf* buf = nullptr;
  auto* p = static_cast<char*>(calls.ops.alloc_buf(pd, 100, &buf));
  ASSERT_NE(nullptr, p);
  p[99] = 1;
  EXPECT_EQ(-1, buf->dmabuf_fd);
  EXPECT_EQ(100u, buf->size);
  calls.ops.free_buf(buf);
  EXPECT_EQ(nullptr, calls.ops.alloc_buf(pd, 0, &buf));
  EXPECT_EQ(EINVAL, errno);
  calls.ops.dealloc_pd(pd);
  calls.ops.free_context(to_ibv(c));
}

TEST_F(Open, AddressHandles) {
  Context* c = open();
  ibv_pd* pd = calls.ops.alloc_pd(to_ibv(c));
  ibv_ah_attr a = {};
  a.port_num = 1;
  EXPECT_EQ(nullptr, calls.ops.create_ah(pd, &a));  // RoCE needs a GRH
  EXPECT_EQ(EINVAL, errno);
  a.is_global = 1;
  a.sl = 5;
  a.grh.sgid_index = 3;
  a.grh.hop_limit = 64;
  a.grh.traffic_class = 0x28;
  a.grh.flow_label = 0x12345;
  for (int i = 0; i < 16; ++i) a.grh.dgid.raw[i] = static_cast<std::uint8_t>(i);
  ibv_ah* ah = calls.ops.create_ah(pd, &a);
  ASSERT_NE(nullptr, ah);
  const auto* av = reinterpret_cast<const mlx5_wqe_av*>(to_ah(ah)->av);
  EXPECT_EQ(5 << 1, av->stat_rate_sl);
  EXPECT_EQ(htobe16(ibv_flow_label_to_udp_sport(0x12345)), av->rlid);
  EXPECT_EQ(0x28, av->tclass);
  EXPECT_EQ(64, av->hop_limit);
  EXPECT_EQ(htobe32(3u << 20 | 0x12345), av->grh_gid_fl);
  EXPECT_EQ(0, std::memcmp(av->rgid, a.grh.dgid.raw, 16));
  EXPECT_EQ(0, std::memcmp(av->rmac, "\x02\0\0\x01\x02\x03", 6));
  EXPECT_EQ(1, calls.ahs);
  EXPECT_EQ(0, calls.ops.destroy_ah(ah));
  EXPECT_EQ(0, calls.ahs);
  // RoCE v1 has no UDP port; an old kernel leaves the MAC to the library.
  calls.gid_type = IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
  c->cmds_supp_uhw = 0;
  ah = calls.ops.create_ah(pd, &a);
  ASSERT_NE(nullptr, ah);
  av = reinterpret_cast<const mlx5_wqe_av*>(to_ah(ah)->av);
  EXPECT_EQ(0, av->rlid);
  EXPECT_EQ(0x42, av->rmac[5]);
  EXPECT_EQ(0, calls.ops.destroy_ah(ah));
  a.port_num = 2;
  EXPECT_EQ(nullptr, calls.ops.create_ah(pd, &a));
  // InfiniBand.
  c->link_layer[0] = IBV_LINK_LAYER_INFINIBAND;
  a.port_num = 1;
  a.dlid = 0x1234;
  a.src_path_bits = 0x85;
  ah = calls.ops.create_ah(pd, &a);
  ASSERT_NE(nullptr, ah);
  av = reinterpret_cast<const mlx5_wqe_av*>(to_ah(ah)->av);
  EXPECT_EQ(htobe16(0x1234), av->rlid);
  EXPECT_EQ(5, av->fl_mlid);
  EXPECT_EQ(htobe32(1u << 30 | 3u << 20 | 0x12345), av->grh_gid_fl);
  EXPECT_EQ(0, calls.ops.destroy_ah(ah));
  calls.ops.dealloc_pd(pd);
  calls.ops.free_context(to_ibv(c));
}

}  // namespace

// SPDX-License-Identifier: MIT
// A slot with an HCA on the loopback netdev, and the program's side of the driver's calls.
#pragma once

#include <gtest/gtest.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <vector>

#include "device/pci/inproc.h"
#include "kernel/mlx5_ib/mlx5_ib.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"

namespace uhca::mlx5test {

using namespace uhca::kernel;
using namespace uhca::kernel::mlx5;

inline UserPtr up(const void* p) {
  return reinterpret_cast<UserPtr>(p);
}

// Anonymous memory of the "program", with a page behind it that nobody may touch.
struct Pages {
  explicit Pages(std::size_t n) : bytes(n) {
    p = static_cast<std::uint8_t*>(::mmap(nullptr, n + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mprotect(p + ((n + 4095) & ~std::size_t{4095}), 4096, PROT_NONE);
  }
  ~Pages() { munmap(p, bytes + 4096); }
  Pages(const Pages&) = delete;
  std::size_t bytes;
  std::uint8_t* p;
};

// Driver data of a call.
template <class In, class Out>
struct Call {
  In in{};
  Out out{};
  Udata udata;
  explicit Call(std::size_t inlen = sizeof(In), std::size_t outlen = sizeof(Out)) {
    udata.inbuf = up(&in);
    udata.inlen = inlen;
    udata.outbuf = up(&out);
    udata.outlen = outlen;
  }
  Call(const Call&) = delete;
};

inline std::unique_ptr<pci::InprocEndpoint> plug() {
  pci::SlotConfig c;
  c.netdev = "lo";
  return pci::plug_in_hca(c);
}

// A device with one context (dynamic UARs), a UAR page and a PD.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    slot = plug();
    ASSERT_NE(nullptr, slot);
    auto r = mlx5_ib_probe(*slot);
    ASSERT_TRUE(r.ok()) << r.code();
    dev = &to_mdev(**r);
    ranges_before = dev->mdev->domain().live_ranges();
    Call<mlx5_ib_alloc_ucontext_req_v2, mlx5_ib_alloc_ucontext_resp> call;
    call.in.total_num_bfregs = 16;
    call.in.num_low_latency_bfregs = 4;
    call.in.max_cqe_version = 1;
    call.in.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
    auto c = dev->ops.alloc_ucontext(*dev, call.udata);
    ASSERT_TRUE(c.ok()) << c.code();
    ctx = std::move(c).value();
    uctx_resp = call.out;
    auto u = alloc_uar_entry(to_mucontext(*ctx));
    ASSERT_TRUE(u.ok());
    uar = std::move(u).value();
    Call<int, mlx5_ib_alloc_pd_resp> pc(0);
    auto p = ib_alloc_pd(*dev, ctx.get(), &pc.udata);
    ASSERT_TRUE(p.ok());
    pd = std::move(p).value();
    EXPECT_EQ(to_mpd(*pd).pdn, pc.out.pdn);
  }
  void TearDown() override {
    if (pd) {
      EXPECT_TRUE(ib_dealloc_pd(*pd).ok());
    }
    if (uar) {
      EXPECT_TRUE(free_uar_entry(to_mucontext(*ctx), *uar).ok());
    }
    if (ctx) dev->ops.dealloc_ucontext(*ctx);
    if (dev) {
      // Nothing that a test made keeps memory mapped for DMA. (Mailbox pools may have grown by a chunk or two.)
      EXPECT_LE(dev->mdev->domain().live_ranges(), ranges_before + 2);
      mlx5_ib_remove(dev);
    }
  }

  Result<std::unique_ptr<ib_cq>> make_cq(std::uint32_t cqe, void* buf, void* db, std::uint32_t cqe_size = 64) {
    Call<mlx5_ib_create_cq, mlx5_ib_create_cq_resp> call;
    call.in.buf_addr = up(buf);
    call.in.db_addr = up(db);
    call.in.cqe_size = cqe_size;
    call.in.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    call.in.uar_page_index = static_cast<std::uint16_t>(uar->page_id);
    ib_cq_init_attr attr;
    attr.cqe = cqe;
    return ib_create_cq(*dev, ctx.get(), attr, &call.udata);
  }
  mlx5_ib_create_qp qp_request(void* buf, void* db) const {
    mlx5_ib_create_qp in{};
    in.buf_addr = up(buf);
    in.db_addr = up(db);
    in.sq_wqe_count = 64;
    in.rq_wqe_count = 32;
    in.rq_wqe_shift = 5;
    in.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
    in.bfreg_index = uar->page_id;
    in.uidx = 7;
    return in;
  }
  Result<std::unique_ptr<ib_qp>> make_qp(const mlx5_ib_create_qp& in, ib_cq& cq, ib_qp_type type = ib_qp_type::RC,
                                         std::size_t inlen = sizeof(mlx5_ib_create_qp)) {
    Call<mlx5_ib_create_qp, mlx5_ib_create_qp_resp> call(inlen);
    call.in = in;
    ib_qp_init_attr attr;
    attr.send_cq = attr.recv_cq = &cq;
    attr.qp_type = type;
    attr.cap.max_send_wr = 16;
    attr.cap.max_recv_wr = in.rq_wqe_count;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    return ib_create_qp(*pd, attr, &call.udata);
  }

  std::unique_ptr<pci::InprocEndpoint> slot;
  mlx5_ib_dev* dev = nullptr;
  std::unique_ptr<ib_ucontext> ctx;
  std::unique_ptr<UarEntry> uar;
  std::unique_ptr<ib_pd> pd;
  mlx5_ib_alloc_ucontext_resp uctx_resp{};
  std::size_t ranges_before = 0;
};

}  // namespace uhca::mlx5test

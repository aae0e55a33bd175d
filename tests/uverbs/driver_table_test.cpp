// SPDX-License-Identifier: MIT
// The whole of what mlx5 offers, with the driver's own objects and attributes, on the real driver and device.
#include <arpa/inet.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "kernel/uverbs/write_cmds.h"
#include "uverbs/method_table.h"
#include "uverbs/real_device.h"

namespace uhca::kernel::test {
namespace {

class DriverTable : public RealDevice {
 protected:
  TableHandles h{};

  void SetUp() override {
    RealDevice::SetUp();
    begin();
  }
  void begin() {
    open(true);
    h = {pd(), xrcd()};
  }
  const UapiTree& tree() { return static_cast<UverbsFile&>(*f).tree(); }
  template <class Req, class Resp>
  std::uint32_t make(std::uint32_t command, Req req, Resp resp) {
    std::uint64_t driver[4] = {};
    EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
                  .val64(UVERBS_ATTR_WRITE_CMD, command)
                  .ptr(UVERBS_ATTR_CORE_IN, &req, sizeof req)
                  .ptr(UVERBS_ATTR_CORE_OUT, &resp, sizeof resp)
                  .ptr(UVERBS_ATTR_UHW_OUT, driver, 8)
                  .run(*f),
              0);
    std::uint32_t handle;
    std::memcpy(&handle, &resp, sizeof handle);
    return handle;
  }
  int destroy(std::uint32_t command, std::uint32_t handle) {
    return Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        .val64(UVERBS_ATTR_WRITE_CMD, command)
        .raw(UVERBS_ATTR_CORE_IN, 4, handle)
        .run(*f);
  }
  std::uint32_t pd() { return make(IB_USER_VERBS_CMD_ALLOC_PD, ::ib_uverbs_alloc_pd{}, ::ib_uverbs_alloc_pd_resp{}); }
  std::uint32_t xrcd() {
    ::ib_uverbs_open_xrcd req{};
    req.fd = ~0u;
    return make(IB_USER_VERBS_CMD_OPEN_XRCD, req, ::ib_uverbs_open_xrcd_resp{});
  }
  std::vector<unsigned> counts() {
    std::vector<unsigned> v;
    for (auto& n : dev->restrack) v.push_back(n.load());
    return v;
  }
};

TEST_F(DriverTable, IoctlAttributes) {
  const std::size_t before = slot->live_objects();
  const auto kept = counts();
  int of_driver = 0;
  for (const ApiObject* o : objects_of(tree())) of_driver += o->id >= uapi::UVERBS_ID_DRIVER_NS ? 1 : 0;
  EXPECT_GE(of_driver, 7) << "DEVX objects, umems, events, UARs, VARs, packet pacing, matchers, ...";
  EXPECT_GT(wrong_attributes(*f, tree(), h), 200);
  EXPECT_EQ(slot->live_objects(), before);
  EXPECT_EQ(counts(), kept);
}

// Two threads for each kind make and destroy objects of one file; numbers and counts are as before.
TEST_F(DriverTable, ThreadsOfEveryKind) {
  const double seconds = std::getenv("UHCA_LONG") != nullptr ? 60 : 1.5;
  alignas(4096) static std::uint8_t pages[4096 * 4];
  auto reg_mr = [&] {
    ::ib_uverbs_reg_mr req{};
    req.start = req.hca_va = uptr(pages), req.length = sizeof pages, req.pd_handle = h.pd, req.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE;
    return make(IB_USER_VERBS_CMD_REG_MR, req, ::ib_uverbs_reg_mr_resp{});
  };
  ASSERT_EQ(destroy(IB_USER_VERBS_CMD_DEREG_MR, reg_mr()), 0);  // the driver has made what it needs for itself
  const std::size_t before = slot->live_objects();
  const auto kept = counts();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  auto while_time = [&](auto once) {
    return [once, end] {
      for (long n = 0; n < 20 || std::chrono::steady_clock::now() < end; ++n) once();
    };
  };
  auto by_handle = [&](Ioctl create, std::uint16_t object, std::uint16_t method, std::uint16_t attr) {
    ASSERT_EQ(create.run(*f), 0);
    ASSERT_EQ(Ioctl(object, method).obj(attr, create.attr(0).data).run(*f), 0);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back(while_time([&] { EXPECT_EQ(destroy(IB_USER_VERBS_CMD_DEALLOC_PD, pd()), 0); }));
    threads.emplace_back(while_time([&] { EXPECT_EQ(destroy(IB_USER_VERBS_CMD_CLOSE_XRCD, xrcd()), 0); }));
    threads.emplace_back(while_time([&] { EXPECT_EQ(destroy(IB_USER_VERBS_CMD_DEREG_MR, reg_mr()), 0); }));
    threads.emplace_back(while_time([&] {
      ::ib_uverbs_alloc_mw req{};
      req.pd_handle = h.pd, req.mw_type = 2;
      EXPECT_EQ(destroy(IB_USER_VERBS_CMD_DEALLOC_MW, make(IB_USER_VERBS_CMD_ALLOC_MW, req, ::ib_uverbs_alloc_mw_resp{})), 0);
    }));
    threads.emplace_back(while_time([&] {
      std::uint64_t offset;
      std::uint32_t length, id;
      Ioctl c(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
      c.obj(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
          .val64(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
          .ptr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, 8)
          .ptr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, 4)
          .ptr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &id, 4);
      by_handle(c, MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
    }));
    threads.emplace_back(while_time([&] {
      std::uint32_t id;
      Ioctl c(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
      c.obj(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
          .val64(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, uptr(pages))
          .val64(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, sizeof pages)
          .val(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, IB_UVERBS_ACCESS_LOCAL_WRITE)
          .ptr(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, &id, 4);
      by_handle(c, MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
    }));
    threads.emplace_back(while_time([&] {
      std::uint32_t in[4] = {htonl(0x816u << 16)}, out[4];  // ALLOC_TRANSPORT_DOMAIN
      Ioctl c(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
      c.obj(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
          .ptr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in, sizeof in)
          .ptr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out, sizeof out);
      by_handle(c, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
    }));
    // Files, too.
    threads.emplace_back(while_time([&] {
      auto file = uverbs_open(dev->uverbs_minor);
      ASSERT_TRUE(file.ok());
      (*file)->release();
    }));
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(slot->live_objects(), before);
  EXPECT_EQ(counts(), kept);
}

// Methods called with most of what they want, against the real driver: whatever they make goes with the file.
TEST_F(DriverTable, Fuzz) {
  const char* text = std::getenv("UHCA_FUZZ_SECONDS");
  const char* seed_text = std::getenv("UHCA_FUZZ_SEED");
  const double seconds = text != nullptr ? std::atof(text) : 3;
  const unsigned seed = seed_text != nullptr ? static_cast<unsigned>(std::atoi(seed_text)) : std::random_device{}();
  SCOPED_TRACE("UHCA_FUZZ_SEED=" + std::to_string(seed));
  std::mt19937_64 rnd(seed);
  auto pick = [&](std::size_t n) { return static_cast<std::size_t>(rnd() % n); };
  static std::uint64_t area[16384];
  f->release();
  const std::size_t before = slot->live_objects();
  const auto kept = counts();
  long ok = 0, lives = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    ++lives;
    begin();
    const auto all = objects_of(tree());
    for (int i = 0; i < 500; ++i) {
      for (std::size_t k = 0; k < 64; ++k) area[k] = pick(3) ? pick(8) : pick(2) ? uptr(area) + 4096 * pick(8) : rnd();
      const ApiObject& o = *all[pick(all.size())];
      // Descriptors would pile up.
      if (o.methods.empty() || o.id == UVERBS_OBJECT_ASYNC_EVENT || o.id == UVERBS_OBJECT_COMP_CHANNEL) continue;
      const ApiMethod& m = o.methods[pick(o.methods.size())];
      if (o.id == UVERBS_OBJECT_DEVICE && m.id == UVERBS_METHOD_INVOKE_WRITE) continue;
      Ioctl c(o.id, m.id);
      bool descriptor = false;
      for (const uverbs_attr_def* a : m.attrs) {
        if (pick(a->mandatory() ? 30 : 3) == 0) continue;
        descriptor = descriptor || (a->type == UVERBS_ATTR_TYPE_FD && a->access == UVERBS_ACCESS_NEW);
        const bool plain = a->type == UVERBS_ATTR_TYPE_PTR_IN || a->type == UVERBS_ATTR_TYPE_PTR_OUT;
        std::size_t len = plain ? a->size.min : a->type == UVERBS_ATTR_TYPE_IDRS_ARRAY ? 4 * pick(4) : 0;
        if (plain && pick(8) == 0) len = pick(80);
        std::uint64_t v = len > 8 || a->type == UVERBS_ATTR_TYPE_PTR_OUT ? (pick(20) ? uptr(area) : kBadPtr) : pick(3) ? pick(40) : rnd();
        c.raw(a->id, static_cast<std::uint16_t>(len), v);
      }
      if (!descriptor) ok += c.run(*f) == 0;
    }
    f->release();
    f.reset();
    ASSERT_EQ(slot->live_objects(), before);
    ASSERT_EQ(counts(), kept);
  }
  EXPECT_GT(ok, lives * 5);
}

}  // namespace
}  // namespace uhca::kernel::test

// SPDX-License-Identifier: MIT
// The whole of what mlx5 offers, with the driver's own objects and attributes, on the real driver and device.
#include <rdma/ib_user_ioctl_verbs.h>

#include <chrono>
#include <cstdlib>
#include <random>

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

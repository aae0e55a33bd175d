// SPDX-License-Identifier: MIT
#include <thread>

#include "prm/cmd_object.h"
#include "rig.h"

namespace uhca::mlx5test {
namespace {

// Forwards to a slot, and looks at what is mapped when the driver lets go of its IOMMU domain.
class WatchedEndpoint final : public pci::Endpoint {
 public:
  explicit WatchedEndpoint(pci::Endpoint& slot) : slot_(slot) {}
  std::uint16_t vendor_id() const override { return slot_.vendor_id(); }
  std::uint16_t device_id() const override { return slot_.device_id(); }
  std::uint32_t read32(std::uint64_t o) override {
    if (o == 0x4 && forged_revision) return byteswap(forged_revision << 16);
    return slot_.read32(o);
  }
  void write32(std::uint64_t o, std::uint32_t v) override { slot_.write32(o, v); }
  void write64(std::uint64_t o, std::uint64_t v) override { slot_.write64(o, v); }
  int bar_fd() const override { return slot_.bar_fd(); }
  unsigned num_vectors() const override { return slot_.num_vectors(); }
  void request_irq(unsigned v, IrqHandler h, void* c) override {
    ++irqs;
    slot_.request_irq(v, h, c);
  }
  void free_irq(unsigned v) override {
    --irqs;
    slot_.free_irq(v);
  }
  void attach_iommu(pci::Iommu* iommu) override {
    if (iommu == nullptr && domain_ != nullptr) left = domain_->live_ranges();
    domain_ = static_cast<mm::IommuDomain*>(iommu);
    slot_.attach_iommu(iommu);
  }
  void reset() override { slot_.reset(); }

  int irqs = 0;
  std::size_t left = 0;
  std::uint32_t forged_revision = 0;

 private:
  pci::Endpoint& slot_;
  mm::IommuDomain* domain_ = nullptr;
};

// The command queue's page and one chunk of mailboxes live until the very end.
constexpr std::size_t kOwnMemory = 2;

TEST(Core, ProbeAndRemoveLeaveNothing) {
  auto slot = plug();
  ASSERT_NE(nullptr, slot);
  WatchedEndpoint ep(*slot);
  for (int i = 0; i < 5; ++i) {
    auto dev = mlx5_core_dev::probe(ep);
    ASSERT_TRUE(dev.ok()) << dev.code();
    EXPECT_GT((*dev)->num_comp_vectors(), 0u);
    EXPECT_GT(ep.irqs, 1);
    EXPECT_EQ(EINVAL, (*dev)->comp_eqn((*dev)->num_comp_vectors()).code());
    *dev = nullptr;
    EXPECT_EQ(0, ep.irqs);
    EXPECT_LE(ep.left, kOwnMemory);
  }
}

TEST(Core, EveryCommandOfBringUpMayFail) {
  auto slot = plug();
  ASSERT_NE(nullptr, slot);
  WatchedEndpoint ep(*slot);
  std::uint64_t commands;
  {
    auto dev = mlx5_core_dev::probe(ep);
    ASSERT_TRUE(dev.ok());
    commands = (*dev)->cmd().issued();
  }
  EXPECT_GT(commands, 20u);
  for (std::uint64_t n = 0; n < commands; ++n) {
    CommandFault fault;
    fault.skip = n;
    fault.status = prm::CmdStatus::NO_RES;
    auto dev = mlx5_core_dev::probe(ep, &fault);
    EXPECT_EQ(EAGAIN, dev.code()) << "command " << n;
    EXPECT_EQ(0, ep.irqs) << "command " << n;
    EXPECT_LE(ep.left, kOwnMemory) << "command " << n;
  }
  EXPECT_TRUE(mlx5_core_dev::probe(ep).ok());
}

TEST(Core, UnknownInterfaceRevisionIsRefused) {
  auto slot = plug();
  WatchedEndpoint ep(*slot);
  ep.forged_revision = 4;
  EXPECT_EQ(EINVAL, mlx5_core_dev::probe(ep).code());
}

TEST(Core, StatusBecomesErrno) {
  using prm::CmdStatus;
  const std::pair<CmdStatus, int> table[] = {{CmdStatus::OK, 0},
                                             {CmdStatus::INT_ERR, EIO},
                                             {CmdStatus::BAD_OP, EINVAL},
                                             {CmdStatus::BAD_PARAM, EINVAL},
                                             {CmdStatus::BAD_SYS_STATE, EIO},
                                             {CmdStatus::BAD_RES, EINVAL},
                                             {CmdStatus::RES_BUSY, EBUSY},
                                             {CmdStatus::LIM, ENOMEM},
                                             {CmdStatus::BAD_RES_STATE, EINVAL},
                                             {CmdStatus::IX, EINVAL},
                                             {CmdStatus::NO_RES, EAGAIN},
                                             {CmdStatus::BAD_QP_STATE, EINVAL},
                                             {CmdStatus::BAD_PKT, EINVAL},
                                             {CmdStatus::BAD_SIZE_OUTS_CQES, EINVAL},
                                             {CmdStatus::BAD_INP_LEN, EIO},
                                             {CmdStatus::BAD_OUTP_LEN, EIO}};
  for (auto [status, err] : table) EXPECT_EQ(err, cmd_status_to_err(static_cast<std::uint8_t>(status))) << static_cast<int>(status);
  EXPECT_EQ(EIO, cmd_status_to_err(0x77));
}

TEST(Core, TheDeviceRefusesAndTheErrnoFollows) {
  auto slot = plug();
  auto dev = mlx5_core_dev::probe(*slot);
  ASSERT_TRUE(dev.ok());
  EXPECT_NE(0, (*dev)->dealloc_pd(0x123456).code());
  EXPECT_NE(0, (*dev)->destroy_mkey(0xffffff00).code());
  std::uint8_t in[16] = {}, out[16] = {};
  in[0] = 0x0f;  // no such opcode
  in[1] = 0xff;
  EXPECT_EQ(EINVAL, (*dev)->cmd().exec(in, sizeof in, out, sizeof out).code());
  ASSERT_TRUE((*dev)->cmd().exec_raw(in, sizeof in, out, sizeof out).ok());
  EXPECT_EQ(static_cast<int>(prm::CmdStatus::BAD_OP), out[0]);
  EXPECT_EQ(EINVAL, (*dev)->cmd().exec(in, 4, out, sizeof out).code());
}

TEST(Core, CommandsFromManyThreads) {
  auto slot = plug();
  auto probed = mlx5_core_dev::probe(*slot);
  ASSERT_TRUE(probed.ok());
  auto& dev = **probed;
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        auto pd = dev.alloc_pd();
        if (!pd || !dev.create_pa_mkey(*pd).ok()) ++failed;
        // The key holds the PD.
        if (pd && dev.dealloc_pd(*pd).ok()) ++failed;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(0, failed.load());
}

TEST(Core, PagesComeBack) {
  auto slot = plug();
  auto dev = mlx5_core_dev::probe(*slot);
  ASSERT_TRUE(dev.ok());
  std::size_t given = (*dev)->pages().outstanding();
  EXPECT_GT(given, 0u);
  // What the device asks for in an event is served before the next command.
  (*dev)->pages().request(3);
  auto pd = (*dev)->alloc_pd();
  ASSERT_TRUE(pd.ok());
  EXPECT_EQ(given + 3, (*dev)->pages().outstanding());
  EXPECT_TRUE((*dev)->dealloc_pd(*pd).ok());
}

TEST(Core, PortAndVport) {
  auto slot = plug();
  auto dev = mlx5_core_dev::probe(*slot);
  ASSERT_TRUE(dev.ok());
  auto vport = (*dev)->query_nic_vport();
  ASSERT_TRUE(vport.ok());
  EXPECT_NE(0u, vport->node_guid);
  ASSERT_TRUE((*dev)->set_roce(true).ok());
  EXPECT_TRUE((*dev)->query_nic_vport()->roce_en);
  ASSERT_TRUE((*dev)->set_roce(false).ok());
  EXPECT_FALSE((*dev)->query_nic_vport()->roce_en);
  EXPECT_TRUE((*dev)->query_port_speed().ok());
  EXPECT_TRUE((*dev)->query_port_mtu().ok());
  EXPECT_TRUE((*dev)->query_vport_state().ok());
  EXPECT_TRUE((*dev)->query_special_contexts().ok());
}

}  // namespace
}  // namespace uhca::mlx5test

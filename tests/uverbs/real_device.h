// SPDX-License-Identifier: MIT
// mlx5_ib on a device of ours, and a file of it.
#pragma once

#include <gtest/gtest.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <memory>
#include <vector>

#include "device/pci/inproc.h"
#include "kernel/mlx5_ib/mlx5_ib.h"
#include "uverbs/context_request.h"
#include "uverbs/harness.h"

namespace uhca::kernel::test {

class RealDevice : public ::testing::Test {
 protected:
  std::unique_ptr<pci::InprocEndpoint> slot;
  ib_device* dev = nullptr;
  std::shared_ptr<VerbsFile> f;
  std::vector<int> fds;

  void SetUp() override {
    pci::SlotConfig c;
    c.netdev = "lo";
    slot = pci::plug_in_hca(c);
    ASSERT_NE(slot, nullptr);
    auto r = mlx5_ib_probe(*slot);
    ASSERT_TRUE(r.ok());
    dev = *r;
  }
  void TearDown() override {
    if (f) f->release();
    f.reset();
    for (int fd : fds) close(fd);
    if (dev) mlx5_ib_remove(dev);
  }
  void open(bool devx) {
    auto r = uverbs_open(dev->uverbs_minor);
    ASSERT_TRUE(r.ok());
    f = *r;
    ::mlx5_ib_alloc_ucontext_req_v2 req = context_request(devx);
    mlx5_ib_alloc_ucontext_resp resp{};
    ASSERT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
                  .ptr(UVERBS_ATTR_UHW_IN, &req, sizeof req)
                  .ptr(UVERBS_ATTR_UHW_OUT, &resp, sizeof resp)
                  .run(*f),
              0);
  }
};

}  // namespace uhca::kernel::test

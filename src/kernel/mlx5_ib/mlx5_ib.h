// SPDX-License-Identifier: MIT
// The RDMA driver of the HCA. Linux: drivers/infiniband/hw/mlx5.
#pragma once

#include "base/result.h"
#include "device/pci/inproc.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {

// Brings up the HCA in `slot` and registers its ib_device "mlx5_N". The slot must outlive the device. On failure nothing is left.
Result<ib_device*> mlx5_ib_probe(pci::InprocEndpoint& slot);

// Unregisters and destroys the device; no object of it may exist any more. `dev` came from mlx5_ib_probe.
void mlx5_ib_remove(ib_device* dev);

}  // namespace uhca::kernel

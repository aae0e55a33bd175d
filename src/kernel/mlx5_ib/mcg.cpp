// SPDX-License-Identifier: MIT
// Multicast groups of UD QPs. Linux: hw/mlx5/main.c (mlx5_ib_mcg_attach), cmd.c.
#include <cstring>

#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "prm/cmd_qp.h"

namespace uhca::kernel::mlx5 {
namespace {

// ATTACH_TO_MCG and DETACH_FROM_MCG look alike.
static_assert(prm::attach_to_mcg_in::kBytes == prm::detach_from_mcg_in::kBytes &&
              prm::byte_of<prm::attach_to_mcg_in::multicast_gid> == prm::byte_of<prm::detach_from_mcg_in::multicast_gid>);

Status command(ib_qp& qp, const ib_gid& gid, prm::Opcode op) {
  using In = prm::attach_to_mcg_in;
  std::uint8_t in[In::kBytes] = {}, out[prm::attach_to_mcg_out::kBytes] = {};
  prm::set<In::opcode>(in, static_cast<std::uint16_t>(op));
  prm::set<In::qpn>(in, qp.qp_num);
  std::memcpy(in + prm::byte_of<In::multicast_gid>, gid.data(), gid.size());
  return to_mdev(*qp.device).mdev->cmd().exec(in, sizeof in, out, sizeof out);
}

}  // namespace

// RoCE has no LIDs: the group is its GID.
Status attach_mcast(ib_qp& qp, const ib_gid& gid, std::uint16_t) {
  return command(qp, gid, prm::Opcode::ATTACH_TO_MCG);
}
Status detach_mcast(ib_qp& qp, const ib_gid& gid, std::uint16_t) {
  return command(qp, gid, prm::Opcode::DETACH_FROM_MCG);
}

}  // namespace uhca::kernel::mlx5

// SPDX-License-Identifier: MIT
// Capabilities: what the device can, what this driver asks of it. Linux: core/main.c (handle_hca_cap*), core/fw.c.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "kernel/mlx5_core/mlx5_core.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::size_t kCapBytes = 4096;
constexpr std::uint32_t kLogMaxQp = 18;       // the driver profile's limit (Linux: profile 2)
constexpr std::uint32_t kHostEndianness = 1;  // atomic_req_8B_endianness_mode: host order

std::uint16_t op_mod(CapType type, bool maximum) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(type) << 1 | (maximum ? 0 : 1));
}

}  // namespace

Status mlx5_core_dev::query_cap(CapType type, bool maximum, void* capability) {
  std::uint8_t in[prm::query_hca_cap_in::kBytes] = {};
  std::vector<std::uint8_t> out(prm::query_hca_cap_out::kBytes);
  prm::set<prm::query_hca_cap_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_HCA_CAP));
  prm::set<prm::query_hca_cap_in::op_mod>(in, op_mod(type, maximum));
  UHCA_CHECK(cmd_.exec(in, sizeof in, out.data(), out.size()));
  std::memcpy(capability, prm::at<prm::query_hca_cap_out::capability>(out.data()), kCapBytes);
  return success();
}

Status mlx5_core_dev::set_cap(CapType type, const void* capability) {
  std::vector<std::uint8_t> in(prm::set_hca_cap_in::kBytes);
  std::uint8_t out[prm::set_hca_cap_out::kBytes] = {};
  prm::set<prm::set_hca_cap_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::SET_HCA_CAP));
  prm::set<prm::set_hca_cap_in::op_mod>(in.data(), static_cast<unsigned>(type) << 1);
  std::memcpy(prm::at<prm::set_hca_cap_in::capability>(in.data()), capability, kCapBytes);
  return cmd_.exec(in.data(), in.size(), out, sizeof out);
}

Status mlx5_core_dev::negotiate_caps() {
  std::vector<std::uint8_t> cur(kCapBytes), max(kCapBytes);
  UHCA_CHECK(query_cap(CapType::GENERAL, false, cur.data()));
  UHCA_CHECK(query_cap(CapType::GENERAL, true, max.data()));
  bool atomic = prm::get<prm::cmd_hca_cap::atomic>(max.data()), roce = prm::get<prm::cmd_hca_cap::roce>(max.data());

  prm::set<prm::cmd_hca_cap::log_max_qp>(cur.data(),
                                         std::min<std::uint32_t>(kLogMaxQp, prm::get<prm::cmd_hca_cap::log_max_qp>(max.data())));
  prm::set<prm::cmd_hca_cap::cmdif_checksum>(cur.data(), 0);
  if (prm::get<prm::cmd_hca_cap::uar_4k>(max.data())) prm::set<prm::cmd_hca_cap::uar_4k>(cur.data(), 1);
  prm::set<prm::cmd_hca_cap::log_uar_page_sz>(cur.data(), 0);  // PAGE_SHIFT - 12
  UHCA_CHECK(set_cap(CapType::GENERAL, cur.data()));

  if (atomic) {
    UHCA_CHECK(query_cap(CapType::ATOMIC, false, cur.data()));
    UHCA_CHECK(query_cap(CapType::ATOMIC, true, max.data()));
    if (prm::get<prm::atomic_caps::supported_atomic_req_8B_endianness_mode_1>(max.data())) {
      prm::set<prm::atomic_caps::atomic_req_8B_endianness_mode>(cur.data(), kHostEndianness);
      UHCA_CHECK(set_cap(CapType::ATOMIC, cur.data()));
    }
  }
  if (roce) {
    UHCA_CHECK(query_cap(CapType::ROCE, false, cur.data()));
    UHCA_CHECK(query_cap(CapType::ROCE, true, max.data()));
    if (!prm::get<prm::roce_cap::sw_r_roce_src_udp_port>(cur.data()) && prm::get<prm::roce_cap::sw_r_roce_src_udp_port>(max.data())) {
      prm::set<prm::roce_cap::sw_r_roce_src_udp_port>(cur.data(), 1);
      UHCA_CHECK(set_cap(CapType::ROCE, cur.data()));
    }
  }
  return success();
}

Status mlx5_core_dev::query_caps() {
  auto query = [this](CapType t) { return query_cap(t, false, caps_[slot(t)].data()); };
  UHCA_CHECK(query(CapType::GENERAL));
  if (cap_gen<prm::cmd_hca_cap::eth_net_offloads>()) UHCA_CHECK(query(CapType::ETHERNET));
  if (cap_gen<prm::cmd_hca_cap::nic_flow_table>()) UHCA_CHECK(query(CapType::FLOW_TABLE));
  if (cap_gen<prm::cmd_hca_cap::atomic>()) UHCA_CHECK(query(CapType::ATOMIC));
  if (cap_gen<prm::cmd_hca_cap::roce>()) UHCA_CHECK(query(CapType::ROCE));
  if (cap_gen<prm::cmd_hca_cap::qos>()) UHCA_CHECK(query(CapType::QOS));
  if (has_vars()) UHCA_CHECK(query(CapType::VDPA_EMULATION));
  if (cap_gen<prm::cmd_hca_cap::device_memory>()) UHCA_CHECK(query(CapType::DEV_MEM));
  if (cap_gen<prm::cmd_hca_cap::pg>()) UHCA_CHECK(query(CapType::ODP));
  if (cap_gen<prm::cmd_hca_cap::log_max_eq>() < 2) return refuse(EIO, "the device has fewer than 4 event queues");
  return success();
}

}  // namespace uhca::kernel::mlx5

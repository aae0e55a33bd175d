// SPDX-License-Identifier: MIT
#include "device/hca/address_vector.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "device/hca/qp_context.h"
#include "prm/wqe.h"

namespace uhca::hca {

bool resolve_path(const Lane& lane, const Qp& qp, const SendWqe& w, wire::NetHeader& path) {
  const std::uint8_t* av = av_of(w);
  if (prm::get<prm::wqe_av::ext>(av) == 0) {
    static_cast<void>(refuse(EINVAL, "QP {:#x}: send WQE {}: its address vector has no GID", qp.qpn, w.index));
    return false;
  }
  std::uint32_t gid_fl = prm::get<prm::wqe_av::grh_gid_fl>(av);
  const RoceAddress& own = lane.objects.roce_addresses[gid_fl >> 20 & 0xff];
  if (!own.valid) {
    static_cast<void>(refuse(EINVAL, "QP {:#x}: send WQE {}: RoCE address {} is not set", qp.qpn, w.index, gid_fl >> 20 & 0xff));
    return false;
  }
  path.smac = own.mac;
  path.sgid = own.gid;
  path.ipv6 = own.ipv6;
  path.vlan = own.vlan;
  if (own.vlan != 0xffff) {
    path.vlan = static_cast<std::uint16_t>(own.vlan | (prm::get<prm::wqe_av::stat_rate_sl>(av) >> 1 & 7) << 13);
  }
  store_be<std::uint32_t>(path.dmac.data(), prm::get<prm::wqe_av::rmac_47_16>(av));
  store_be<std::uint16_t>(path.dmac.data() + 4, static_cast<std::uint16_t>(prm::get<prm::wqe_av::rmac_15_0>(av)));
  std::memcpy(path.dgid.data(), prm::at<prm::wqe_av::rgid>(static_cast<const void*>(av)), path.dgid.size());
  path.traffic_class = static_cast<std::uint8_t>(prm::get<prm::wqe_av::tclass>(av));
  path.hop_limit = static_cast<std::uint8_t>(prm::get<prm::wqe_av::hop_limit>(av));
  path.flow_label = gid_fl & 0xfffff;
  path.udp_sport = static_cast<std::uint16_t>(prm::get<prm::wqe_av::rlid>(av));  // RoCE: the same field
  if (path.udp_sport == 0) path.udp_sport = udp_source_port(path.flow_label, qp.qpn, prm::get<prm::wqe_av::dqp_dct>(av));
  return true;
}

bool own_address(const Lane& lane, const wire::Gid& gid) {
  const auto& table = lane.objects.roce_addresses;
  return std::any_of(table.begin(), table.end(), [&](const RoceAddress& a) { return a.valid && a.gid == gid; });
}

}  // namespace uhca::hca

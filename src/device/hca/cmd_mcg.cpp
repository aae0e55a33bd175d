// SPDX-License-Identifier: MIT
// Multicast groups: which UD QPs receive what is sent to a multicast GID.
#include <algorithm>
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "prm/cmd_qp.h"

namespace uhca::hca::cmd {
namespace {

wire::Gid gid_of(Command& c) {
  wire::Gid g;
  std::memcpy(g.data(), c.at<prm::attach_to_mcg_in::multicast_gid>(), g.size());
  return g;
}

// ff00::/8, or an IPv4 group 224.0.0.0/4 as a mapped address.
bool is_multicast(const wire::Gid& g) {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return g[0] == 0xff || (std::memcmp(g.data(), kMapped, sizeof kMapped) == 0 && g[12] >> 4 == 0xe);
}

}  // namespace

Status attach_to_mcg(Command& c) {
  std::uint32_t n = c.get<prm::attach_to_mcg_in::qpn>();
  Qp* qp = c.objects().qp(n);
  if (qp == nullptr) return c.no_such("QP", n);
  if (qp->type != QpType::kUd) return c.refuse(Status::BAD_PARAM, "QP {:#x} is not UD", n);
  wire::Gid gid = gid_of(c);
  if (!is_multicast(gid)) return c.refuse(Status::BAD_PARAM, "not a multicast GID");
  auto& qpns = c.objects().multicast[gid];
  if (std::find(qpns.begin(), qpns.end(), n) != qpns.end()) return Status::OK;
  if (qpns.size() >= kMaxQpPerMulticast) return c.refuse(Status::LIM, "{} QPs are attached", qpns.size());
  qpns.push_back(n);
  if (qpns.size() == 1) c.hca.port().want_group(gid, true);
  return Status::OK;
}

Status detach_from_mcg(Command& c) {
  std::uint32_t n = c.get<prm::detach_from_mcg_in::qpn>();
  auto it = c.objects().multicast.find(gid_of(c));
  if (it == c.objects().multicast.end() || std::erase(it->second, n) == 0)
    return c.refuse(Status::BAD_PARAM, "QP {:#x} is not attached to this group", n);
  if (it->second.empty()) {
    c.hca.port().want_group(it->first, false);
    c.objects().multicast.erase(it);
  }
  return Status::OK;
}

}  // namespace uhca::hca::cmd

// SPDX-License-Identifier: MIT
// The arrows of the architecture (docs/architecture.md), for its two checks: #include lines and link lines.
#pragma once

#include <map>
#include <set>
#include <string>

namespace uhca::test {

inline const std::set<std::string> kShared = {"base", "prm", "uapi"};

// Folder -> folders of the project (besides itself and the shared ones) whose headers it may include.
inline const std::map<std::string, std::set<std::string>> kMay = {
    {"base", {}},
    {"uapi", {}},
    {"prm", {}},
    {"wire/roce", {"wire/net"}},
    {"wire/net", {"wire/roce"}},
    {"device/pci", {"wire/net"}},
    {"device/hca", {"device/pci", "wire/net", "wire/roce"}},
    {"kernel/mm", {"device/pci"}},
    {"kernel/core", {"kernel/mm"}},
    {"kernel/mlx5_core", {"kernel/mm", "device/pci"}},
    {"kernel/mlx5_ib", {"kernel/mlx5_core", "kernel/core", "kernel/uverbs", "kernel/mm", "device/pci"}},
    {"kernel/uverbs", {"kernel/core", "kernel/mm"}},
    {"kernel/cm", {"kernel/core", "kernel/mm"}},
    {"kernel/gpu", {"kernel/mm"}},
    {"kernel/sys", {"kernel/uverbs", "kernel/cm", "kernel/gpu", "kernel/core", "kernel/mlx5_ib", "kernel/mm", "device/pci"}},
    {"user/verbs", {}},
    {"user/mlx5", {"user/verbs"}},
    {"user/cuda", {}},
    {"user/stubs/efa", {}},
    {"user/stubs/hns", {}},
    {"check", {}},
    {"tool", {"device/pci", "wire/net"}},
};

// Shared folders that a floor must do without: hardware layouts are no business of the user API or the core.
inline const std::map<std::string, std::set<std::string>> kMayNotShare = {
    {"base", {"prm", "uapi"}},       {"prm", {"uapi"}},        {"wire/roce", {"prm", "uapi"}}, {"wire/net", {"prm", "uapi"}},
    {"device/pci", {"prm", "uapi"}}, {"device/hca", {"uapi"}}, {"kernel/core", {"prm"}},       {"kernel/uverbs", {"prm"}}, {"kernel/gpu", {"prm"}},
    {"kernel/mm", {"prm", "uapi"}},  {"user/verbs", {"prm"}},
};

inline bool forbidden_share(const std::string& from, const std::string& to) {
  auto no = kMayNotShare.find(from);
  return no != kMayNotShare.end() && no->second.count(to);
}

}  // namespace uhca::test

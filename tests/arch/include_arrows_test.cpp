// SPDX-License-Identifier: MIT
// The arrows of the architecture, from the #include lines: a folder may include itself, the public headers of the floor directly
// below it, and the shared folders. A failure names the offending pair.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace fs = std::filesystem;

namespace {

const std::set<std::string> kShared = {"base", "prm", "uapi"};

// Folder -> folders of the project (besides itself and the shared ones) whose headers it may include.
const std::map<std::string, std::set<std::string>> kMay = {
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
    {"kernel/sys", {"kernel/uverbs", "kernel/cm", "kernel/core", "kernel/mlx5_ib", "kernel/mm", "device/pci"}},
    {"user/verbs", {}},
    {"user/mlx5", {"user/verbs"}},
    {"user/stubs/efa", {}},
    {"user/stubs/hns", {}},
    {"tool", {"device/pci"}},
};

// Shared folders that a floor must do without: hardware layouts are no business of the user API or the core.
const std::map<std::string, std::set<std::string>> kMayNotShare = {
    {"base", {"prm", "uapi"}},        {"prm", {"uapi"}},         {"wire/roce", {"prm", "uapi"}}, {"wire/net", {"prm", "uapi"}},
    {"device/pci", {"prm", "uapi"}},  {"device/hca", {"uapi"}},  {"kernel/core", {"prm"}},       {"kernel/uverbs", {"prm"}},
    {"kernel/mm", {"prm", "uapi"}},   {"user/verbs", {"prm"}},
};

std::string folder_of(const std::string& relative) {
  std::string best;
  for (const auto& [folder, _] : kMay)
    if (relative.compare(0, folder.size() + 1, folder + "/") == 0 && folder.size() > best.size()) best = folder;
  return best;
}

}  // namespace

TEST(Architecture, IncludesFollowTheArrows) {
  const fs::path src = fs::path(UHCA_SOURCE_DIR) / "src";
  const std::regex include(R"re(^\s*#\s*include\s+"([^"]+)")re");
  int checked = 0;
  for (const auto& entry : fs::recursive_directory_iterator(src)) {
    const std::string ext = entry.path().extension().string();
    if (ext != ".h" && ext != ".cpp" && ext != ".inc") continue;
    const std::string file = fs::relative(entry.path(), src).string();
    const std::string from = folder_of(file);
    ASSERT_FALSE(from.empty()) << file << " lies in no folder of the architecture";
    std::ifstream in(entry.path());
    std::string line;
    while (std::getline(in, line)) {
      std::smatch m;
      if (!std::regex_search(line, m, include)) continue;
      ++checked;
      const std::string target = m[1];
      std::string to = folder_of(target);
      if (to.empty() && fs::exists(entry.path().parent_path() / target)) to = from;  // "layout.h" beside it
      ASSERT_FALSE(to.empty()) << file << " includes \"" << target << "\", which is in no folder of the architecture";
      if (to == from) continue;
      if (kShared.count(to)) {
        auto no = kMayNotShare.find(from);
        EXPECT_FALSE(no != kMayNotShare.end() && no->second.count(to)) << "arrow " << from << " -> " << to << " (" << file << ")";
        continue;
      }
      EXPECT_TRUE(kMay.at(from).count(to)) << "arrow " << from << " -> " << to << " is not in the architecture (" << file << " includes \""
                                           << target << "\")";
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Architecture, EveryFolderHasAReadme) {
  for (const auto& [folder, _] : kMay) {
    if (folder.rfind("user/stubs", 0) == 0) continue;
    EXPECT_TRUE(fs::exists(fs::path(UHCA_SOURCE_DIR) / "src" / folder / "README.md")) << folder;
  }
}

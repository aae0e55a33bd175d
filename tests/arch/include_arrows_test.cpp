// SPDX-License-Identifier: MIT
// The arrows of the architecture, from the #include lines: a folder may include itself, the public headers of the floor directly
// below it, and the shared folders. A failure names the offending pair.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "arch/arrows.h"

namespace fs = std::filesystem;

using namespace uhca::test;

namespace {

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
        EXPECT_FALSE(forbidden_share(from, to)) << "arrow " << from << " -> " << to << " (" << file << ")";
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

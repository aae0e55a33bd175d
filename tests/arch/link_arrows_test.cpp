// SPDX-License-Identifier: MIT
// The arrows of the architecture, from the targets' link libraries as the build states them (link_arrows.txt, written by
// cmake/folders.cmake): a folder links what it may include and nothing else. A failure names the offending pair.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "arch/arrows.h"

using namespace uhca::test;

namespace {

using Graph = std::map<std::string, std::set<std::string>>;

// Where floors meet at a link line without an #include: libuhca.so is the whole machine below the system calls, and the command holds the
// device for `uhca pci`.
const Graph kLinkOnly = {{"kernel/sys", {"kernel/mlx5_core", "device/hca", "wire/net", "wire/roce"}},
                         {"tool", {"device/hca", "wire/net", "wire/roce"}}};

// Libraries that are not of the project.
const Graph kForeign = {{"wire/roce", {"isal"}},
                        {"kernel/sys", {"Threads::Threads", "dl"}},
                        {"user/verbs", {"Threads::Threads", "dl"}},
                        {"user/mlx5", {"Threads::Threads", "dl"}},
                        {"check", {"Threads::Threads", "dl"}},
                        {"tool", {"Threads::Threads"}}};

bool lists(const Graph& g, const std::string& from, const std::string& to) {
  auto row = g.find(from);
  return row != g.end() && row->second.count(to);
}

Graph links() {
  Graph g;
  std::ifstream in(UHCA_BUILD_DIR "/link_arrows.txt");
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string from, to;
    words >> from >> to;
    auto& row = g[from];
    if (!to.empty()) row.insert(to);
  }
  return g;
}

void reach(const Graph& g, const std::string& from, std::set<std::string>* seen) {
  auto row = g.find(from);
  if (row == g.end()) return;
  for (const auto& to : row->second)
    if (seen->insert(to).second) reach(g, to, seen);
}

}  // namespace

TEST(Architecture, EveryFolderIsATarget) {
  const Graph g = links();
  for (const auto& [folder, _] : kMay) {
    if (folder == "uapi") continue;  // headers only
    EXPECT_TRUE(g.count(folder)) << folder << " is built by no target";
  }
  for (const auto& [from, _] : g) EXPECT_TRUE(kMay.count(from)) << from << " is in no folder of the architecture";
}

TEST(Architecture, LinksFollowTheArrows) {
  int checked = 0;
  for (const auto& [from, row] : links()) {
    if (!kMay.count(from)) continue;  // reported above
    for (const auto& to : row) {
      ++checked;
      if (kShared.count(to)) {
        EXPECT_FALSE(forbidden_share(from, to)) << "link " << from << " -> " << to;
      } else if (kMay.count(to)) {
        EXPECT_TRUE(kMay.at(from).count(to) || lists(kLinkOnly, from, to))
            << "link " << from << " -> " << to << " is not in the architecture";
      } else {
        EXPECT_TRUE(lists(kForeign, from, to)) << "link " << from << " -> " << to << ": a library of no folder";
      }
    }
  }
  EXPECT_GT(checked, 40);
}

// What a library drags in behind another library's back counts as well.
TEST(Architecture, NothingFromBelowReachesTheUserLibraries) {
  const Graph g = links();
  const std::set<std::string> below = {"kernel/", "device/", "wire/"};
  std::map<std::string, std::set<std::string>> never = {{"device/hca", {"kernel/", "user/"}}, {"tool", {"kernel/", "user/"}}};
  for (const char* library : {"user/verbs", "user/mlx5", "user/stubs/efa", "user/stubs/hns"}) never[library] = below;
  for (const auto& [from, floors] : never) {
    std::set<std::string> all;
    reach(g, from, &all);
    for (const auto& to : all)
      for (const auto& floor : floors) EXPECT_NE(0u, to.find(floor)) << "link " << from << " -> .. -> " << to;
  }
}

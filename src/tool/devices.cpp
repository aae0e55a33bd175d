// SPDX-License-Identifier: MIT
// Lists devices by looking at /sys as any program would, from a child that has uhca underneath.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tool/commands.h"

namespace uhca::tool {
namespace {

namespace fs = std::filesystem;

std::string read_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

int list() {
  const std::string root = "/sys/class/infiniband";
  std::error_code ec;
  int found = 0;
  for (const auto& dev : fs::directory_iterator(root, ec)) {
    ++found;
    const std::string base = dev.path().string();
    std::printf("%s  node_guid %s  fw %s  board %s\n", dev.path().filename().c_str(), read_line(base + "/node_guid").c_str(),
                read_line(base + "/fw_ver").c_str(), read_line(base + "/board_id").c_str());
    const std::string port = base + "/ports/1";
    std::printf("  port 1: %s, %s, %s\n", read_line(port + "/state").c_str(), read_line(port + "/rate").c_str(),
                read_line(port + "/link_layer").c_str());
    for (const auto& net : fs::directory_iterator(base + "/device/net", ec)) std::printf("  netdev %s\n", net.path().filename().c_str());
    for (int i = 0; i < 256; ++i) {
      const std::string index = std::to_string(i);
      std::string gid = read_line(port + "/gids/" + index);
      std::string type = read_line(port + "/gid_attrs/types/" + index);
      if (!type.empty() && !gid.empty()) std::printf("  GID %3d  %s  %s\n", i, gid.c_str(), type.c_str());
    }
  }
  if (found == 0) std::fprintf(stderr, "uhca: no device: run with --log stderr (uhca run --log stderr -- ls /sys/class/infiniband) to see why\n");
  return found ? 0 : 1;
}

}  // namespace

int devices(const std::string& netdev) {
  // The second time we are the child with the library underneath.
  if (std::getenv("UHCA_TOOL_INNER")) return list();
  LaunchOptions options;
  options.netdev = netdev;
  std::error_code ec;
  options.program = {fs::read_symlink("/proc/self/exe", ec).string(), "devices"};
  setenv("UHCA_TOOL_INNER", "1", 1);
  return exec_program(options);
}

}  // namespace uhca::tool

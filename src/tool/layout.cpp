// SPDX-License-Identifier: MIT
// The hardware's structures as src/prm declares them: what the provider, the driver and the device of this build use.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "prm/all.h"
#include "tool/commands.h"

namespace uhca::tool {
namespace {

// Where a field lies: byte offset of its 32-bit word and bits in it, as mlx5's manuals draw them (bit 31 is the first).
std::string place(const prm::Field& f) {
  if (f.width > 32 || f.width == 0) {
    return fmt::format("{:#06x}  {:>8}", f.offset / 8, fmt::format("{} B", f.width / 8));
  }
  unsigned high = 31 - f.offset % 32;
  unsigned low = high + 1 - f.width;
  return fmt::format("{:#06x}  {:>8}", f.offset / 32 * 4, high == low ? fmt::format("[{}]", high) : fmt::format("[{}:{}]", high, low));
}

void print(const prm::LayoutInfo& l) {
  std::printf("%s: %u bytes\n", l.name, l.bits / 8);
  for (std::size_t i = 0; i < l.nfields; ++i) {
    const auto& [name, f] = l.fields[i];
    std::string count = f.count == 1 ? "" : f.count == 0 ? " x n" : fmt::format(" x {}", f.count);
    std::printf("  %s  %s%s\n", place(f).c_str(), name, count.c_str());
  }
}

}  // namespace

int layout(const std::string& name) {
  if (name.empty()) {
    for (const auto* l : prm::all_layouts()) std::printf("%s\n", l->name);
    return 0;
  }
  if (const auto* l = prm::find_layout(name.c_str())) {
    print(*l);
    return 0;
  }
  std::fprintf(stderr, "uhca: no structure %s; without a name, 'uhca layout' lists all\n", name.c_str());
  return 1;
}

}  // namespace uhca::tool

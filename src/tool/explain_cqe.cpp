// SPDX-License-Identifier: MIT
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tool/commands.h"
#include "tool/cqe_dump.h"

namespace uhca::tool {
namespace {

bool read_all(std::FILE* f, std::string* out) {
  char buf[4096];
  for (std::size_t n; (n = std::fread(buf, 1, sizeof buf, f)) > 0;) out->append(buf, n);
  return std::ferror(f) == 0;
}

bool read_file(const std::string& path, std::string* out) {
  std::FILE* f = std::fopen(path.c_str(), "re");
  bool ok = f != nullptr && read_all(f, out);
  if (!ok) std::fprintf(stderr, "uhca: %s: %s\n", path.c_str(), std::strerror(errno));
  if (f != nullptr) std::fclose(f);
  return ok;
}

}  // namespace

int explain_cqe(const std::vector<std::string>& words) {
  std::string text;
  struct stat st {};
  if (words.empty() || (words.size() == 1 && words[0] == "-")) {
    if (!read_all(stdin, &text)) return 1;
  } else if (words.size() == 1 && stat(words[0].c_str(), &st) == 0) {
    if (!read_file(words[0], &text)) return 1;
  } else {
    for (const std::string& w : words) text += w + " ";
  }
  auto cqes = find_cqes(text);
  for (const auto& c : cqes) {
    Explanation e = explain(c);
    std::printf("%s\n", e.what.c_str());
    if (!e.cause.empty()) std::printf("  %s\n", e.cause.c_str());
  }
  if (cqes.empty())
    std::fprintf(stderr,
                 "uhca: no CQE found: expected lines that end in four words (00000000 93005204 0a0019a1 c0921cd2) or in 16 bytes\n");
  return cqes.empty() ? 1 : 0;
}

}  // namespace uhca::tool

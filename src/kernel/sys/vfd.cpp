// SPDX-License-Identifier: MIT
#include "kernel/sys/vfd.h"

#include <sys/mman.h>

#include <cstring>

#include "kernel/sys/raw.h"

namespace uhca::sys::vfd {
namespace {
constexpr std::string_view kPrefix = "/memfd:uhca:";
constexpr std::string_view kSuffix = " (deleted)";
constexpr std::size_t kMaxName = 249;  // memfd_create(2)
}  // namespace

int make(Kind kind, std::string_view rest, std::string_view text, bool cloexec) {
  char name[kMaxName + 1];
  std::size_t n = rest.size() < kMaxName - 7 ? rest.size() : kMaxName - 7;
  std::memcpy(name, "uhca:", 5);
  name[5] = static_cast<char>(kind);
  name[6] = ':';
  std::memcpy(name + 7, rest.data(), n);
  name[7 + n] = 0;
  auto fd = static_cast<int>(raw::call(SYS_memfd_create, raw::arg(name), MFD_ALLOW_SEALING | (cloexec ? MFD_CLOEXEC : 0)));
  if (fd < 0) return fd;
  std::size_t done = 0;
  while (done < text.size()) {
    long w = raw::call(SYS_pwrite64, fd, raw::arg(text.data() + done), static_cast<long>(text.size() - done), static_cast<long>(done));
    if (w <= 0) {
      if (w == -EINTR) continue;
      raw::close(fd);
      return w < 0 ? static_cast<int>(w) : -ENOSPC;
    }
    done += static_cast<std::size_t>(w);
  }
  raw::call(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  return fd;
}

Kind identify(int fd, char* rest, std::size_t size, struct stat* st) {
  struct stat local;
  if (!st) st = &local;
  if (fd < 0 || raw::fstat(fd, st) < 0 || !plausible(*st)) return Kind::kNone;
  char link[512];
  long n = raw::fd_link(fd, link, sizeof link);
  if (n < 0) return Kind::kNone;
  std::string_view text(link, static_cast<std::size_t>(n));
  if (text.substr(0, kPrefix.size()) != kPrefix) return Kind::kNone;
  text.remove_prefix(kPrefix.size());
  if (text.size() > kSuffix.size() && text.substr(text.size() - kSuffix.size()) == kSuffix) text.remove_suffix(kSuffix.size());
  if (text.size() < 2 || text[1] != ':') return Kind::kNone;
  auto kind = static_cast<Kind>(text[0]);
  if (kind != Kind::kVerbs && kind != Kind::kGpu && kind != Kind::kFile && kind != Kind::kDir && kind != Kind::kCwd) return Kind::kNone;
  if (rest && size) {
    text.remove_prefix(2);
    std::size_t copy = text.size() < size - 1 ? text.size() : size - 1;
    std::memcpy(rest, text.data(), copy);
    rest[copy] = 0;
  }
  return kind;
}

}  // namespace uhca::sys::vfd

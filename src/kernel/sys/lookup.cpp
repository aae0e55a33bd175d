// SPDX-License-Identifier: MIT
#include "kernel/sys/lookup.h"

#include <cstring>

#include "kernel/sys/cwd.h"
#include "kernel/sys/gpu_file.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/vfd.h"

namespace uhca::sys {
namespace {

bool has_gpu_hint(const char* path) {
  for (const char* hint : {"kfd", "dri", "drm", "uhca_gpu", "226:128", kGpuPciAddress})
    if (std::strstr(path, hint)) return true;
  return false;
}

// Every virtual path holds one of these.
bool has_hint(const char* path) {
  return std::strstr(path, "infiniband") || std::strstr(path, kPciAddress) || std::strstr(path, "231:192") ||
         std::strstr(path, "rdma_cm") || std::strstr(path, kRdmaCmDevno) || (gpu_shown() && has_gpu_hint(path));
}

// Lexically: does the path end up below /sys or /dev? Nothing else can make us build an instance.
bool below_our_roots(std::string_view path) {
  std::string_view first;
  int depth = 0;
  while (!path.empty()) {
    std::size_t n = path.find('/');
    std::string_view c = path.substr(0, n);
    path.remove_prefix(n == std::string_view::npos ? path.size() : n + 1);
    if (c.empty() || c == ".") continue;
    if (c == "..") {
      if (depth > 0) --depth;
    } else if (depth++ == 0) {
      first = c;
    }
  }
  return depth > 0 && (first == "sys" || first == "dev");
}

Where found(std::string_view absolute, bool follow) {
  Where w;
  if (!below_our_roots(absolute)) return w;
  Instance* i = hint();
  if (!i) return w;
  int saved = errno;
  auto f = i->view->find(absolute, follow);
  errno = saved;
  w.view = i->view;
  switch (f.what) {
    case View::Found::kReal:
      w.kind = Where::kReal;
      w.path = std::move(f.real);
      break;
    case View::Found::kNode:
      w.kind = Where::kNode;
      w.node = f.node;
      break;
    case View::Found::kError:
      w.kind = Where::kError;
      w.err = f.err;
      break;
  }
  return w;
}

}  // namespace

Where where(int dirfd, const char* path, bool follow) {
  // A pointer into the zero page is the kernel's to refuse.
  if (reinterpret_cast<std::uintptr_t>(path) < 4096 || inside::active()) return {};
  if (path[0] == '/') {
    // Programs mostly ask for real files: look at the first letters before anything else.
    if (__builtin_expect(!has_hint(path), 1)) return {};
    Where w = found(path, follow);
    if (w.real() && w.path == path) w.kind = Where::kPass;
    return w;
  }
  if (path[0] == 0) return {};
  std::string base;
  bool from_virtual = false;
  if (dirfd == AT_FDCWD) {
    if (!virtual_cwd(nullptr)) {
      if (__builtin_expect(!has_hint(path), 1)) return {};
      char real[4096];
      long n = raw::call(SYS_getcwd, raw::arg(real), sizeof real);
      if (n <= 0 || (std::strncmp(real, "/sys", 4) != 0 && std::strncmp(real, "/dev", 4) != 0 && std::strcmp(real, "/") != 0)) return {};
      base = real;
    } else {
      virtual_cwd(&base);
      from_virtual = true;
    }
  } else {
    char rest[512];
    if (vfd::identify(dirfd, rest, sizeof rest) == vfd::Kind::kDir) {
      base = rest;
      from_virtual = true;
    } else {
      if (__builtin_expect(!has_hint(path), 1)) return {};
      char real[4096];
      long n = raw::fd_link(dirfd, real, sizeof real);
      if (n <= 0 || (std::strncmp(real, "/sys", 4) != 0 && std::strncmp(real, "/dev", 4) != 0 && std::strcmp(real, "/") != 0)) return {};
      base = real;
    }
  }
  base += '/';
  base += path;
  Where w = found(base, follow);
  if (w.pass() && from_virtual) {
    // Out of the tree by "..": the real current directory is another one.
    w.kind = Where::kReal;
    w.path = std::move(base);
  }
  return w;
}

const Node* directory_of(int fd) {
  if (fd < 0 || inside::active()) return nullptr;
  char rest[512];
  if (vfd::identify(fd, rest, sizeof rest) != vfd::Kind::kDir) return nullptr;
  Instance* i = hint();
  if (!i) return nullptr;
  auto f = i->view->find(rest, true);
  return f.what == View::Found::kNode && f.node->kind == NodeKind::kDir ? f.node : nullptr;
}

}  // namespace uhca::sys

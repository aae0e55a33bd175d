// SPDX-License-Identifier: MIT
#include "kernel/sys/view.h"

#include <dirent.h>
#include <sys/sysmacros.h>

#include <ctime>

#include "kernel/sys/gpu_file.h"
#include "kernel/sys/raw.h"

namespace uhca::sys {
namespace {

// Splits the first component off; empty at the end.
std::string_view next_component(std::string_view& rest) {
  while (!rest.empty() && rest.front() == '/') rest.remove_prefix(1);
  std::size_t n = rest.find('/');
  std::string_view c = rest.substr(0, n);
  rest.remove_prefix(c.size());
  return c;
}

bool only_slashes(std::string_view s) {
  return s.find_first_not_of('/') == std::string_view::npos;
}

bool real_directory(const std::string& path) {
  struct stat st;
  return raw::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

// ... and so must those of a GPU, if there is one.
bool is_gpus(std::string_view name) {
  return gpu_shown() && (name == "kfd" || name == "dri" || name == "drm" || name == kGpuPciAddress);
}

std::uint64_t hash(std::string_view s) {
  std::uint64_t h = 14695981039346656037u;
  for (char c : s) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h >> 1 | 1;
}

}  // namespace

std::string Node::path() const {
  if (!parent) return "/";
  std::string p = parent->parent ? parent->path() : std::string{};
  p += '/';
  p += name;
  return p;
}

View::View(kernel::ib_device& dev) : dev_(dev) {
  root_.merged = true;
  root_.mode = 0755;
  struct stat st;
  if (raw::stat("/sys", &st) == 0) sys_dev_ = st.st_dev;
  if (raw::stat("/dev", &st) == 0) dev_dev_ = st.st_dev;
  clock_gettime(CLOCK_REALTIME, &born_);
  build_tree(*this);
}

Node& View::make(std::string_view path, NodeKind kind) {
  Node* at = &root_;
  std::string_view rest = path;
  while (true) {
    std::string_view c = next_component(rest);
    if (c.empty()) return *at;
    auto it = at->children.find(c);
    if (it == at->children.end()) {
      auto node = std::make_unique<Node>();
      node->name = c;
      node->parent = at;
      bool last = only_slashes(rest);
      node->kind = last ? kind : NodeKind::kDir;
      node->mode = node->kind == NodeKind::kDir ? 0755 : node->kind == NodeKind::kLink ? 0777 : 0444;
      // The directories that only we provide must be ours alone, even on a host with RDMA hardware.
      bool ours = c.find("infiniband") != std::string_view::npos || c == kPciAddress || c == dev_.pci_address || is_gpus(c);
      node->merged = node->kind == NodeKind::kDir && at->merged && !ours && real_directory(node->path());
      it = at->children.emplace(std::string(c), std::move(node)).first;
    }
    at = it->second.get();
  }
}

Node& View::dir(std::string_view path) {
  return make(path, NodeKind::kDir);
}

void View::file(std::string_view path, std::string text, mode_t mode) {
  Node& n = make(path, NodeKind::kFile);
  n.text = std::move(text);
  n.mode = mode;
}

void View::file(std::string_view path, Node::Generator generate, unsigned arg, mode_t mode) {
  Node& n = make(path, NodeKind::kFile);
  n.generate = generate;
  n.arg = arg;
  n.mode = mode;
}

void View::link(std::string_view path, std::string target) {
  make(path, NodeKind::kLink).text = std::move(target);
}

void View::character(std::string_view path, dev_t rdev, mode_t mode) {
  Node& n = make(path, NodeKind::kChar);
  n.rdev = rdev;
  n.mode = mode;
}

View::Found View::find(std::string_view path, bool follow) const {
  std::string pending(path);
  const Node* at = &root_;
  std::string real;  // when at == nullptr: where we are outside the tree
  int links = 0;
  std::string_view rest = pending;
  bool trailing = false;
  while (true) {
    bool slash = !rest.empty() && rest.front() == '/';
    std::string_view c = next_component(rest);
    if (c.empty()) {
      trailing = slash;
      break;
    }
    if (c == ".") {
      if (at && at->kind != NodeKind::kDir) return {Found::kError, nullptr, {}, ENOTDIR};
      continue;
    }
    if (!at) {
      if (c != "..") {
        (real += '/') += c;
        continue;
      }
      real.resize(real.rfind('/') == std::string::npos ? 0 : real.rfind('/'));
      // Back at a directory that we share with the system?
      const Node* shared = &root_;
      std::string_view walk = real;
      while (shared) {
        std::string_view step = next_component(walk);
        if (step.empty()) break;
        auto it = shared->children.find(step);
        shared = it == shared->children.end() ? nullptr : it->second.get();
      }
      at = shared;
      continue;
    }
    if (at->kind != NodeKind::kDir) return {Found::kError, nullptr, {}, ENOTDIR};
    if (c == "..") {
      if (at->parent) at = at->parent;
      continue;
    }
    auto it = at->children.find(c);
    if (it == at->children.end()) {
      if (!at->merged) return {Found::kError, nullptr, {}, ENOENT};
      real = at->parent ? at->path() : std::string{};
      (real += '/') += c;
      at = nullptr;
      continue;
    }
    const Node* child = it->second.get();
    if (child->kind == NodeKind::kLink && (follow || !rest.empty())) {
      if (++links > 40) return {Found::kError, nullptr, {}, ELOOP};
      std::string tail(rest);
      pending = child->text + tail;
      rest = pending;
      if (pending.front() == '/') at = &root_;
      continue;
    }
    at = child;
  }
  if (!at || at->merged) {
    std::string r = at ? at->path() : real;
    if (trailing && r != "/") r += '/';
    return {Found::kReal, at, r.empty() ? "/" : std::move(r), 0};
  }
  if (trailing && at->kind != NodeKind::kDir) return {Found::kError, nullptr, {}, ENOTDIR};
  return {Found::kNode, at, {}, 0};
}

Result<std::string> View::read(const Node& node) const {
  if (node.generate) return node.generate(dev_, node.arg);
  return node.text;
}

void View::fill(const Node& node, struct stat* st) const {
  *st = {};
  std::string path = node.path();
  bool in_dev = path.compare(0, 5, "/dev/") == 0;
  st->st_dev = in_dev ? dev_dev_ : sys_dev_;
  st->st_ino = hash(path);
  st->st_blksize = 4096;
  st->st_atim = st->st_mtim = st->st_ctim = born_;
  st->st_nlink = 1;
  switch (node.kind) {
    case NodeKind::kDir:
      st->st_mode = S_IFDIR | node.mode;
      st->st_nlink = 2;
      for (auto& [name, child] : node.children) st->st_nlink += child->kind == NodeKind::kDir;
      break;
    case NodeKind::kFile:
      st->st_mode = S_IFREG | node.mode;
      // sysfs attributes are a page long, whatever they hold; binary ones say their length.
      st->st_size = node.text.size() == 256 ? 256 : 4096;
      break;
    case NodeKind::kLink: st->st_mode = S_IFLNK | 0777; break;
    case NodeKind::kChar:
      st->st_mode = S_IFCHR | node.mode;
      st->st_rdev = node.rdev;
      break;
  }
}

std::string View::real_ancestor(const Node& node) {
  const Node* n = &node;
  while (n && !n->merged) n = n->parent;
  return n ? n->path() : "/";
}

// With a GPU.
static const ExtraEntry* extra_gpu_entries(std::string_view real_dir) {
  static constexpr ExtraEntry kDev[] = {{"infiniband", DT_DIR}, {"kfd", DT_CHR}, {"dri", DT_DIR}, {"uhca_gpu0", DT_CHR}, {nullptr, 0}};
  static constexpr ExtraEntry kClass[] = {
      {"infiniband", DT_DIR}, {"infiniband_verbs", DT_DIR}, {"kfd", DT_DIR}, {"drm", DT_DIR}, {nullptr, 0}};
  static constexpr ExtraEntry kBus[] = {{kPciAddress, DT_LNK}, {kGpuPciAddress, DT_LNK}, {nullptr, 0}};
  static constexpr ExtraEntry kRoot[] = {{kPciAddress, DT_DIR}, {kGpuPciAddress, DT_DIR}, {nullptr, 0}};
  static constexpr ExtraEntry kChar[] = {{"231:192", DT_LNK}, {kRdmaCmDevno, DT_LNK}, {"226:128", DT_LNK}, {nullptr, 0}};
  static constexpr ExtraEntry kVirtual[] = {{"kfd", DT_DIR}, {nullptr, 0}};
  if (real_dir == "/dev") return kDev;
  if (real_dir == "/sys/class") return kClass;
  if (real_dir == "/sys/bus/pci/devices") return kBus;
  if (real_dir == kPciRoot) return kRoot;
  if (real_dir == "/sys/dev/char") return kChar;
  if (real_dir == "/sys/devices/virtual") return kVirtual;
  return nullptr;
}

const ExtraEntry* extra_entries(std::string_view real_dir) {
  static constexpr ExtraEntry kDev[] = {{"infiniband", DT_DIR}, {nullptr, 0}};
  static constexpr ExtraEntry kClass[] = {{"infiniband", DT_DIR}, {"infiniband_verbs", DT_DIR}, {nullptr, 0}};
  static constexpr ExtraEntry kBus[] = {{kPciAddress, DT_LNK}, {nullptr, 0}};
  static constexpr ExtraEntry kRoot[] = {{kPciAddress, DT_DIR}, {nullptr, 0}};
  static constexpr ExtraEntry kDevices[] = {{kHostPci, DT_DIR}, {nullptr, 0}};
  static constexpr ExtraEntry kChar[] = {{"231:192", DT_LNK}, {kRdmaCmDevno, DT_LNK}, {nullptr, 0}};
  static constexpr ExtraEntry kMisc[] = {{"rdma_cm", DT_LNK}, {nullptr, 0}};
  static constexpr ExtraEntry kVirtualMisc[] = {{"rdma_cm", DT_DIR}, {nullptr, 0}};
  while (real_dir.size() > 1 && real_dir.back() == '/') real_dir.remove_suffix(1);
  if (gpu_shown())
    if (const ExtraEntry* e = extra_gpu_entries(real_dir)) return e;
  if (real_dir == "/dev") return kDev;
  if (real_dir == "/sys/class") return kClass;
  if (real_dir == "/sys/bus/pci/devices") return kBus;
  if (real_dir == kPciRoot) return kRoot;
  if (real_dir == "/sys/devices") return kDevices;
  if (real_dir == "/sys/dev/char") return kChar;
  if (real_dir == "/sys/class/misc") return kMisc;
  if (real_dir == "/sys/devices/virtual/misc") return kVirtualMisc;
  return nullptr;
}

}  // namespace uhca::sys

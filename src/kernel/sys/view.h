// SPDX-License-Identifier: MIT
// The virtual files that a program sees: a tree of directories, generated texts, links and character devices, laid over the
// real /sys and /dev. Pure data: no descriptor, no system call.
#pragma once

#include <sys/stat.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::sys {

enum class NodeKind : std::uint8_t { kDir, kFile, kLink, kChar };

struct Node {
  // The text of the file at this moment, or the errno that read(2) would give.
  using Generator = Result<std::string> (*)(kernel::ib_device& dev, unsigned arg);

  NodeKind kind = NodeKind::kDir;
  // A directory that the system has too: our entries are added to its own.
  bool merged = false;
  mode_t mode = 0555;
  std::string name;
  const Node* parent = nullptr;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> children;  // kDir
  std::string text;                                                    // kFile without generator; kLink: the target
  Generator generate = nullptr;                                        // kFile
  unsigned arg = 0;
  dev_t rdev = 0;  // kChar

  std::string path() const;
};

class View {
 public:
  explicit View(kernel::ib_device& dev);

  // Where an absolute path leads. Virtual links are followed (the last component only with `follow`), ".." goes to the virtual
  // parent; a path that leaves the tree comes back as the real path that it means.
  struct Found {
    enum What : std::uint8_t { kReal, kNode, kError } what;
    const Node* node = nullptr;
    std::string real;
    int err = 0;
  };
  Found find(std::string_view path, bool follow) const;

  Result<std::string> read(const Node& node) const;
  // As lstat of the node. Times are those of the view's creation.
  void fill(const Node& node, struct stat* st) const;
  // The nearest ancestor directory that exists for real ("/sys/class" for /sys/class/infiniband/mlx5_0).
  static std::string real_ancestor(const Node& node);

  kernel::ib_device& device() const { return dev_; }

  // Building blocks, used by view_tree.cpp only. Missing directories of `path` are made; those that exist for real are merged.
  Node& dir(std::string_view path);
  void file(std::string_view path, std::string text, mode_t mode = 0444);
  void file(std::string_view path, Node::Generator generate, unsigned arg = 0, mode_t mode = 0444);
  void link(std::string_view path, std::string target);
  void character(std::string_view path, dev_t rdev, mode_t mode);

 private:
  Node& make(std::string_view path, NodeKind kind);

  kernel::ib_device& dev_;
  Node root_;
  dev_t sys_dev_ = 0, dev_dev_ = 0;
  timespec born_{};
};

// Fills the tree from the device (view_tree.cpp).
void build_tree(View& view);

// Known before any instance exists, since a hint must be recognised without one.
inline constexpr const char* kPciAddress = "0000:03:00.0";
inline constexpr const char* kGpuPciAddress = "0000:04:00.0";
inline constexpr const char* kPciRoot = "/sys/devices/pci0000:00";
inline constexpr const char* kHostPci = "pci0000:00";
// rdma_cm is a misc device with a dynamic minor; 122 is a typical one.
inline constexpr unsigned kMiscMajor = 10, kRdmaCmMinor = 122;
inline constexpr const char* kRdmaCmDevno = "10:122";
inline constexpr unsigned kVerbsMajor = 231, kVerbsMinorBase = 192;  // Linux: uverbs_main.c IB_UVERBS_MAJOR, IB_UVERBS_BASE_MINOR

// Entries that we add to a real directory, known without an instance. nullptr-terminated; nullptr when it is none of ours.
struct ExtraEntry {
  const char* name;
  unsigned char d_type;
};
const ExtraEntry* extra_entries(std::string_view real_dir);

}  // namespace uhca::sys

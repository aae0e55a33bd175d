// SPDX-License-Identifier: MIT
// The little that the command asks of a program's ELF file. Source: the System V ABI, <elf.h>.
#pragma once

#include <string>
#include <vector>

namespace uhca::tool {

class ElfFile {
 public:
  // false: not an ELF file, or not readable.
  bool load(const std::string& path);
  bool is_x86_64() const { return x86_64_; }
  bool has_interpreter() const { return interpreter_; }
  const std::vector<std::string>& needed() const { return needed_; }
  // The first DT_NEEDED entry that begins so, or "".
  std::string needed_with_prefix(const std::string& prefix) const;

 private:
  bool x86_64_ = false;
  bool interpreter_ = false;
  std::vector<std::string> needed_;
};

}  // namespace uhca::tool

// SPDX-License-Identifier: MIT
// A file into which all processes of a program write, whatever descriptors they close.
#pragma once

#include <string>

namespace uhca::tool {

class TemporaryFile {
 public:
  explicit TemporaryFile(const char* stem);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  bool ok() const { return ok_; }  // else errno says why
  const std::string& path() const { return path_; }
  // From `offset` to the present end.
  std::string text(std::size_t offset = 0) const;

 private:
  std::string path_;
  bool ok_ = false;
};

}  // namespace uhca::tool

// SPDX-License-Identifier: MIT
#include "tool/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace uhca::tool {

TemporaryFile::TemporaryFile(const char* stem) {
  const char* folder = std::getenv("TMPDIR");
  path_ = std::string(folder && *folder ? folder : "/tmp") + "/" + stem + "-XXXXXX";
  int fd = mkostemp(path_.data(), O_CLOEXEC);
  ok_ = fd >= 0;
  if (ok_) close(fd);
}

TemporaryFile::~TemporaryFile() {
  if (ok_) unlink(path_.c_str());
}

std::string TemporaryFile::text(std::size_t offset) const {
  std::ifstream in(path_);
  in.seekg(static_cast<std::streamoff>(offset));
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace uhca::tool

// SPDX-License-Identifier: MIT
// Reading small sysfs files; SYSFS_PATH moves the tree (not for set-uid programs).
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {
char sysfs_path[IBV_SYSFS_PATH_MAX] = "/sys";
pthread_once_t sysfs_once = PTHREAD_ONCE_INIT;

void find_sysfs() {
  const char* env = getuid() == geteuid() ? std::getenv("SYSFS_PATH") : nullptr;
  if (!env) return;
  std::size_t n = std::strlen(env);
  if (n >= sizeof sysfs_path) n = sizeof sysfs_path - 1;
  while (n && env[n - 1] == '/') --n;
  std::memcpy(sysfs_path, env, n);
  sysfs_path[n] = '\0';
}
}  // namespace

namespace uhca::verbs {

int read_sysfs_file_at(int dirfd, const char* file, char* buf, std::size_t size) {
  int fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, buf, size);
  int saved = errno;
  close(fd);
  errno = saved;
  if (n > 0) {
    if (buf[n - 1] == '\n')
      buf[--n] = '\0';
    else if (static_cast<std::size_t>(n) < size)
      buf[n] = '\0';
    else
      return -1;  // would have to be cut
  }
  return static_cast<int>(n);
}

}  // namespace uhca::verbs

UHCA_EXPORT const char* ibv_get_sysfs_path() {
  pthread_once(&sysfs_once, find_sysfs);
  return sysfs_path;
}

UHCA_EXPORT int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, std::size_t size) {
  char path[2 * IBV_SYSFS_PATH_MAX];
  int n = std::snprintf(path, sizeof path, "%s/%s", dir, file);
  if (n < 0 || static_cast<std::size_t>(n) >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  return read_sysfs_file_at(AT_FDCWD, path, buf, size);
}

UHCA_EXPORT int ibv_read_ibdev_sysfs_file(char* buf, std::size_t size, verbs_sysfs_dev* dev, const char* file) {
  if (!dev) {
    errno = EINVAL;
    return -1;
  }
  return ibv_read_sysfs_file(dev->ibdev_path, file, buf, size);
}

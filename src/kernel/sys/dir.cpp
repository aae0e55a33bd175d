// SPDX-License-Identifier: MIT
// opendir, readdir and their family. A virtual directory is a stream of our own; a real directory to which we add entries keeps its
// real stream, and ours are appended.
#include "kernel/sys/dir.h"

#include <fcntl.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel/sys/lookup.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/vfd.h"

static_assert(sizeof(dirent) == sizeof(dirent64));

namespace uhca::sys {
namespace {

UHCA_NEXT(opendir, DIR*(const char*));
UHCA_NEXT(fdopendir, DIR*(int));
UHCA_NEXT(closedir, int(DIR*));
UHCA_NEXT(readdir, dirent*(DIR*));
UHCA_NEXT(readdir_r, int(DIR*, dirent*, dirent**));
UHCA_NEXT(rewinddir, void(DIR*));
UHCA_NEXT(seekdir, void(DIR*, long));
UHCA_NEXT(telldir, long(DIR*));
UHCA_NEXT(dirfd, int(DIR*));

struct Entry {
  std::string name;
  unsigned char type;
  ino_t ino;
  bool seen = false;  // the real directory has it too
};

struct Stream {
  DIR* real = nullptr;  // nullptr: all of it is virtual
  bool real_done = false;
  int fd = -1;  // of a virtual one
  std::vector<Entry> entries;
  std::size_t at = 0;
  dirent buffer{};
};

constexpr long kOurs = 1L << 62;  // telldir positions in the appended part

// Streams alive. A DIR* that is not here is libc's. Usually empty, which is one load.
constinit std::atomic<int> alive{0};
constinit std::mutex lock;
std::unordered_map<const DIR*, std::shared_ptr<Stream>>& streams() {
  static auto* m = new std::unordered_map<const DIR*, std::shared_ptr<Stream>>;
  return *m;
}

std::shared_ptr<Stream> stream_of(const DIR* d) {
  if (__builtin_expect(alive.load(std::memory_order_acquire) == 0, 1)) return nullptr;
  std::lock_guard l(lock);
  auto it = streams().find(d);
  return it == streams().end() ? nullptr : it->second;
}

DIR* enlist(std::shared_ptr<Stream> s) {
  auto* key = s->real ? s->real : reinterpret_cast<DIR*>(s.get());
  std::lock_guard l(lock);
  streams()[key] = std::move(s);
  alive.fetch_add(1);
  return key;
}

unsigned char type_of(NodeKind k) {
  switch (k) {
    case NodeKind::kDir: return DT_DIR;
    case NodeKind::kFile: return DT_REG;
    case NodeKind::kLink: return DT_LNK;
    case NodeKind::kChar: return DT_CHR;
  }
  return DT_UNKNOWN;
}

DIR* open_virtual(const View& view, const Node& node, int fd) {
  auto s = std::make_shared<Stream>();
  s->fd = fd;
  struct stat st;
  auto add = [&](std::string name, const Node& n) {
    view.fill(n, &st);
    s->entries.push_back({std::move(name), type_of(n.kind), st.st_ino});
  };
  add(".", node);
  add("..", node.parent ? *node.parent : node);
  for (auto& [name, child] : node.children) add(name, *child);
  return enlist(std::move(s));
}

// A real stream: are there entries of ours to append?
DIR* maybe_merge(DIR* d) {
  if (!d) return d;
  int saved = errno;
  char path[256];
  long n = raw::fd_link(next_dirfd(d), path, sizeof path);
  const ExtraEntry* extra = n > 3 && (!std::strncmp(path, "/sys", 4) || !std::strncmp(path, "/dev", 4))
                                ? extra_entries({path, static_cast<std::size_t>(n)})
                                : nullptr;
  if (extra) {
    auto s = std::make_shared<Stream>();
    s->real = d;
    std::uint64_t ino = 0x75686361;
    for (; extra->name; ++extra) s->entries.push_back({extra->name, extra->d_type, ino++});
    enlist(std::move(s));
  }
  errno = saved;
  return d;
}

dirent* read_stream(Stream& s) {
  if (s.real && !s.real_done) {
    if (dirent* e = next_readdir(s.real)) {
      for (Entry& ours : s.entries)
        if (ours.name == e->d_name) ours.seen = true;
      return e;
    }
    s.real_done = true;
  }
  while (s.at < s.entries.size() && s.entries[s.at].seen) ++s.at;
  if (s.at >= s.entries.size()) return nullptr;
  const Entry& e = s.entries[s.at++];
  s.buffer.d_ino = e.ino;
  s.buffer.d_type = e.type;
  s.buffer.d_off = kOurs + static_cast<long>(s.at);
  s.buffer.d_reclen = sizeof(dirent);
  std::size_t n = e.name.size() < sizeof s.buffer.d_name - 1 ? e.name.size() : sizeof s.buffer.d_name - 1;
  std::memcpy(s.buffer.d_name, e.name.data(), n);
  s.buffer.d_name[n] = 0;
  return &s.buffer;
}

DIR* fd_open(int fd) {
  if (const Node* node = directory_of(fd)) return open_virtual(*instance()->view, *node, fd);
  return maybe_merge(next_fdopendir(fd));
}

int dir_read_r(DIR* d, dirent* entry, dirent** result) {
  auto s = stream_of(d);
  if (!s) return next_readdir_r(d, entry, result);
  dirent* e = read_stream(*s);
  if (e) std::memcpy(entry, e, e->d_reclen);
  *result = e ? entry : nullptr;
  return 0;
}

}  // namespace

DIR* dir_open(const char* path) {
  Where w = where(AT_FDCWD, path, true);
  if (w.pass() || w.real()) return maybe_merge(next_opendir(w.real() ? w.path.c_str() : path));
  if (w.kind == Where::kError || w.node->kind != NodeKind::kDir) {
    errno = w.kind == Where::kError ? w.err : ENOTDIR;
    return nullptr;
  }
  int fd = vfd::make(vfd::Kind::kDir, w.node->path(), {}, true);
  if (fd < 0) {
    errno = -fd;
    return nullptr;
  }
  return open_virtual(*w.view, *w.node, fd);
}

dirent* dir_read(DIR* d) {
  auto s = stream_of(d);
  return s ? read_stream(*s) : next_readdir(d);
}

int dir_close(DIR* d) {
  std::shared_ptr<Stream> s;
  if (alive.load(std::memory_order_acquire) != 0) {
    std::lock_guard l(lock);
    auto it = streams().find(d);
    if (it != streams().end()) {
      s = std::move(it->second);
      streams().erase(it);
      alive.fetch_sub(1);
    }
  }
  if (!s || s->real) return next_closedir(d);
  int r = raw::close(s->fd);
  if (r < 0) errno = -r;
  return r < 0 ? -1 : 0;
}

}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT DIR* opendir(const char* path) {
  return dir_open(path);
}
UHCA_EXPORT DIR* fdopendir(int fd) {
  return fd_open(fd);
}
UHCA_EXPORT int closedir(DIR* d) {
  return dir_close(d);
}
UHCA_EXPORT dirent* readdir(DIR* d) {
  return dir_read(d);
}
UHCA_EXPORT dirent64* readdir64(DIR* d) {
  return reinterpret_cast<dirent64*>(dir_read(d));
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
UHCA_EXPORT int readdir_r(DIR* d, dirent* e, dirent** r) {
  return dir_read_r(d, e, r);
}
UHCA_EXPORT int readdir64_r(DIR* d, dirent64* e, dirent64** r) {
  return dir_read_r(d, reinterpret_cast<dirent*>(e), reinterpret_cast<dirent**>(r));
}
#pragma GCC diagnostic pop
UHCA_EXPORT void rewinddir(DIR* d) {
  auto s = stream_of(d);
  if (!s) return next_rewinddir(d);
  s->at = 0;
  s->real_done = false;
  if (s->real) next_rewinddir(s->real);
}
UHCA_EXPORT void seekdir(DIR* d, long where_to) {
  auto s = stream_of(d);
  if (!s) return next_seekdir(d, where_to);
  bool ours = where_to >= kOurs;
  s->at = ours ? static_cast<std::size_t>(where_to - kOurs) : 0;
  s->real_done = ours;
  if (s->real && !ours) next_seekdir(s->real, where_to);
}
UHCA_EXPORT long telldir(DIR* d) {
  auto s = stream_of(d);
  if (!s) return next_telldir(d);
  return s->real && !s->real_done ? next_telldir(s->real) : kOurs + static_cast<long>(s->at);
}
UHCA_EXPORT int dirfd(DIR* d) {
  auto s = stream_of(d);
  return s && !s->real ? s->fd : next_dirfd(d);
}

// SPDX-License-Identifier: MIT
#include "kernel/mm/procmap.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/log.h"

namespace uhca::kernel::mm {
namespace {

// struct procmap_query and PROCMAP_QUERY of include/uapi/linux/fs.h, Linux >= 6.11; Debian 12's headers are older.
struct procmap_query {
  std::uint64_t size;
  std::uint64_t query_flags;
  std::uint64_t query_addr;
  std::uint64_t vma_start;
  std::uint64_t vma_end;
  std::uint64_t vma_flags;
  std::uint64_t vma_page_size;
  std::uint64_t vma_offset;
  std::uint64_t inode;
  std::uint32_t dev_major;
  std::uint32_t dev_minor;
  std::uint32_t vma_name_size;
  std::uint32_t build_id_size;
  std::uint64_t vma_name_addr;
  std::uint64_t build_id_addr;
};
constexpr std::uint64_t kVmaReadable = 0x1, kVmaWritable = 0x2;  // enum procmap_query_flags
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, procmap_query);

CoverageResult judge(UserPtr at, bool readable, bool is_writable, bool want_write) {
  if (!readable) return {Coverage::kNotReadable, at};
  if (want_write && !is_writable) return {Coverage::kNotWritable, at};
  return {};
}

// Walks "start-end perms ..." lines as they come in pieces.
class LineWalker {
 public:
  LineWalker(UserPtr begin, UserPtr end, bool writable) : at_(begin), end_(end), writable_(writable) {}

  // True when the answer is known.
  bool feed(char c) {
    switch (part_) {
      case Part::kStart:
        if (c == '-') {
          part_ = Part::kEnd;
        } else {
          start_ = start_ << 4 | digit(c);
        }
        return false;
      case Part::kEnd:
        if (c == ' ') {
          part_ = Part::kRead;
        } else {
          stop_ = stop_ << 4 | digit(c);
        }
        return false;
      case Part::kRead:
        read_ = c == 'r';
        part_ = Part::kWrite;
        return false;
      case Part::kWrite: part_ = Part::kRest; return line(c == 'w');
      case Part::kRest:
        if (c == '\n') {
          part_ = Part::kStart;
          start_ = stop_ = 0;
        }
        return false;
    }
    return false;
  }
  CoverageResult answer() const { return result_; }
  UserPtr at() const { return at_; }

 private:
  enum class Part : std::uint8_t { kStart, kEnd, kRead, kWrite, kRest };

  static std::uint64_t digit(char c) { return static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10); }

  bool line(bool write) {
    if (stop_ <= at_) return false;
    if (start_ > at_) {
      result_ = {Coverage::kHole, at_};
      return true;
    }
    result_ = judge(at_, read_, write, writable_);
    if (result_.what != Coverage::kOk) return true;
    at_ = stop_;
    return at_ >= end_;
  }

  UserPtr at_, end_;
  bool writable_;
  Part part_ = Part::kStart;
  std::uint64_t start_ = 0, stop_ = 0;
  bool read_ = false;
  CoverageResult result_;
};

}  // namespace

int ProcMaps::open_maps() {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0));
}

ProcMaps::~ProcMaps() {
  if (fd_ >= 0) fd::close(fd_);
}

Result<CoverageResult> ProcMaps::check_by_query(UserPtr begin, UserPtr end, bool writable) {
  if (__atomic_load_n(&no_query_, __ATOMIC_RELAXED)) return Errno{EOPNOTSUPP};
  int f = __atomic_load_n(&fd_, __ATOMIC_ACQUIRE);
  if (f < 0) {
    int fresh = open_maps();
    if (fresh < 0) return Errno{errno};
    fresh = fd::adopt(fresh);
    if (fresh < 0) return Errno{EMFILE};
    if (__atomic_compare_exchange_n(&fd_, &f, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      f = fresh;
    } else {
      fd::close(fresh);
    }
  }
  for (UserPtr at = begin; at < end;) {
    procmap_query q{};
    q.size = sizeof q;
    q.query_addr = at;
    if (syscall(SYS_ioctl, f, kProcmapQuery, &q) != 0) {
      if (errno == ENOENT) return CoverageResult{Coverage::kHole, at};
      if (errno == ENOTTY || errno == EINVAL) __atomic_store_n(&no_query_, true, __ATOMIC_RELAXED);
      return Errno{EOPNOTSUPP};
    }
    CoverageResult r = judge(at, (q.vma_flags & kVmaReadable) != 0, (q.vma_flags & kVmaWritable) != 0, writable);
    if (r.what != Coverage::kOk) return r;
    at = q.vma_end;
  }
  return CoverageResult{};
}

Result<CoverageResult> ProcMaps::check_by_text(UserPtr begin, UserPtr end, bool writable) {
  int f = open_maps();
  if (f < 0) return Errno{errno};
  LineWalker walker(begin, end, writable);
  char buf[4096];
  bool known = false;
  int err = 0;
  while (!known) {
    long got = syscall(SYS_read, f, buf, sizeof buf);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) err = errno;
    if (got <= 0) break;
    for (long i = 0; i < got && !known; ++i) known = walker.feed(buf[i]);
  }
  syscall(SYS_close, f);
  if (err != 0) return Errno{err};
  if (!known) return CoverageResult{Coverage::kHole, walker.at()};
  return walker.answer();
}

Result<CoverageResult> ProcMaps::check(UserPtr begin, UserPtr end, bool writable) {
  auto fast = check_by_query(begin, end, writable);
  if (fast.ok() || fast.code() != EOPNOTSUPP) return fast;
  return check_by_text(begin, end, writable);
}

}  // namespace uhca::kernel::mm

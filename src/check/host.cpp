// SPDX-License-Identifier: MIT
#include "check/host.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace uhca::check {

struct Host::Table {
  static constexpr unsigned kQps = 1 << 14, kKeys = 1 << 11;
  struct QpEntry {
    std::atomic<std::uint32_t> qpn, pid, own_receives;
    std::atomic<std::uint64_t> posted;
  };
  struct KeyEntry {
    std::atomic<std::uint32_t> pid, rkey, what;
    char where[116];
  };
  std::atomic<std::uint32_t> next_key, keys_used;
  QpEntry qps[kQps];
  KeyEntry keys[kKeys];

  QpEntry& qp(std::uint32_t qpn) { return qps[(qpn ^ qpn >> 12) % kQps]; }  // who meets another there is not known
};

Host::Table* Host::table() {
  if (tried_) return table_;
  tried_ = true;
  struct stat ns {};
  if (stat("/proc/self/ns/net", &ns) != 0) return nullptr;
  path_ = "/dev/shm/uhca-check." + std::to_string(geteuid()) + "." + std::to_string(ns.st_ino);
  for (int i = 0; i < 10; ++i) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) return nullptr;
    struct stat mine {
    }, named{};
    // Between the two somebody may have removed it.
    if (flock(fd_, LOCK_SH) == 0 && fstat(fd_, &mine) == 0 && stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
        mine.st_uid == geteuid()) {
      if (ftruncate(fd_, sizeof(Table)) != 0) break;
      void* p = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
      if (p != MAP_FAILED) table_ = static_cast<Table*>(p);
      if (!table_) break;
      // An earlier process of this number.
      for (auto& e : table_->keys)
        if (e.pid == static_cast<std::uint32_t>(getpid())) e.what = 0;
      return table_;
    }
    close(fd_);
  }
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  return nullptr;
}

void Host::leave() {
  if (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0) unlink(path_.c_str());
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void Host::add_qp(std::uint32_t qpn, bool own_receives) {
  Table* t = table();
  if (!t) return;
  auto& e = t->qp(qpn);
  e.posted = 0;
  e.own_receives = own_receives;
  e.pid = static_cast<std::uint32_t>(getpid());
  e.qpn = qpn;
}

void Host::remove_qp(std::uint32_t qpn) {
  if (Table* t = table(); t && t->qp(qpn).qpn == qpn) t->qp(qpn).qpn = 0;
}

void Host::posted_receives(std::uint32_t qpn, unsigned n) {
  if (Table* t = table(); t && t->qp(qpn).qpn == qpn) t->qp(qpn).posted += n;
}

void Host::reset_receives(std::uint32_t qpn) {
  if (Table* t = table(); t && t->qp(qpn).qpn == qpn) t->qp(qpn).posted = 0;
}

std::int64_t Host::receives_of(std::uint32_t qpn) {
  Table* t = table();
  if (!t) return -1;
  auto& e = t->qp(qpn);
  const std::int64_t n = static_cast<std::int64_t>(e.posted.load());
  return e.qpn == qpn && e.own_receives ? n : -1;
}

int Host::owner_of(std::uint32_t qpn) {
  Table* t = table();
  return t && t->qp(qpn).qpn == qpn ? static_cast<int>(t->qp(qpn).pid) : 0;
}

void Host::note_key(KeyIs what, std::uint32_t rkey, const std::string& where, int pid) {
  Table* t = table();
  if (!t) return;
  forget_key(rkey, pid);
  auto& e = t->keys[t->next_key++ % Table::kKeys];
  e.what = 0;
  std::snprintf(e.where, sizeof e.where, "%s", where.c_str());
  e.rkey = rkey;
  e.pid = static_cast<std::uint32_t>(pid ? pid : getpid());
  e.what = static_cast<std::uint32_t>(what);
  t->keys_used = 1;
}

void Host::forget_key(std::uint32_t rkey, int pid) {
  Table* t = table();
  if (!t || !t->keys_used) return;
  const auto owner = static_cast<std::uint32_t>(pid ? pid : getpid());
  for (auto& e : t->keys)
    if (e.rkey == rkey && e.pid == owner) e.what = 0;
}

Host::KeyIs Host::ask_key(int pid, std::uint32_t rkey, std::string* where) {
  Table* t = table();
  if (!t || !t->keys_used || pid == 0) return KeyIs::kNothing;
  for (auto& e : t->keys) {
    if (e.rkey != rkey || e.pid != static_cast<std::uint32_t>(pid) || e.what == 0) continue;
    if (where) where->assign(e.where, strnlen(e.where, sizeof e.where));
    return static_cast<KeyIs>(e.what.load());
  }
  return KeyIs::kNothing;
}

}  // namespace uhca::check

// SPDX-License-Identifier: MIT
// What on this machine helps or hinders.
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "tool/commands.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace uhca::tool {
namespace {

namespace fs = std::filesystem;

class Report {
 public:
  void good(const std::string& what, const std::string& detail) { line("ok  ", what, detail); }
  void note(const std::string& what, const std::string& detail) { line("note", what, detail); }
  void bad(const std::string& what, const std::string& detail) {
    line("BAD ", what, detail);
    ++bad_;
  }
  int status() const { return bad_ ? 1 : 0; }

 private:
  static void line(const char* mark, const std::string& what, const std::string& detail) {
    std::printf("%s  %-22s %s\n", mark, what.c_str(), detail.c_str());
  }
  int bad_ = 0;
};

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string l;
  std::getline(in, l);
  return l;
}

void check_library(Report& r) {
  std::string folder = library_folder();
  if (folder.empty()) return r.bad("libraries", "libuhca.so is not beside this command (../lib/uhca)");
  for (const char* lib : {"libuhca.so", "libibverbs.so.1", "libmlx5.so.1"})
    if (access((folder + "/" + lib).c_str(), R_OK) != 0) return r.bad("libraries", folder + "/" + lib + " is missing");
  r.good("libraries", folder);
}

// Does a dynamic program really get the device? Asked of a child, through the list command.
void check_preload(Report& r) {
  int p[2];
  if (pipe(p) != 0) return;
  pid_t child = fork();
  if (child == 0) {
    dup2(p[1], 1);
    close(p[0]);
    close(p[1]);
    std::_Exit(devices(""));
  }
  close(p[1]);
  std::string out;
  char buf[512];
  for (ssize_t n; (n = read(p[0], buf, sizeof buf)) > 0;) out.append(buf, static_cast<std::size_t>(n));
  close(p[0]);
  int status = 0;
  waitpid(child, &status, 0);
  std::string first = out.substr(0, out.find('\n'));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !first.empty())
    r.good("device", first);
  else
    r.bad("device", "a program started here sees no device; `uhca run --log stderr -- ls /sys/class/infiniband` says why");
}

void check_cross_process(Report& r) {
  // A child of ours is not the general case: Yama level 1 allows tracing descendants. Read the level, then try a sibling.
  std::string yama = first_line("/proc/sys/kernel/yama/ptrace_scope");
  int p[2];
  if (pipe(p) != 0) return;
  static volatile long magic = 0x75686361;
  pid_t victim = fork();
  if (victim == 0) {
    close(p[1]);
    char c;
    [[maybe_unused]] ssize_t n = read(p[0], &c, 1);
    std::_Exit(0);
  }
  pid_t reader = fork();
  if (reader == 0) {
    long copy = 0;
    iovec local{&copy, sizeof copy};
    iovec remote{const_cast<long*>(&magic), sizeof copy};
    std::_Exit(process_vm_readv(victim, &local, 1, &remote, 1, 0) == sizeof copy && copy == magic ? 0 : errno);
  }
  int status = 0;
  waitpid(reader, &status, 0);
  close(p[0]);
  close(p[1]);
  waitpid(victim, nullptr, 0);
  int err = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
  std::string level = yama.empty() ? "no Yama" : "yama/ptrace_scope " + yama;
  if (err == 0)
    r.good("cross-process access", "process_vm_readv between unrelated processes of this user works (" + level + ")");
  else
    r.note("cross-process access", std::string("process_vm_readv: ") + std::strerror(err) + " (" + level +
                                       "): payload will travel through the shared-memory rings");
}

void check_limits(Report& r) {
  rlimit rl{};
  getrlimit(RLIMIT_MEMLOCK, &rl);
  r.good("memlock", (rl.rlim_cur == RLIM_INFINITY ? std::string("unlimited") : std::to_string(rl.rlim_cur / 1024) + " KiB") +
                        "; uhca pins nothing by default, so it does not bind");
  getrlimit(RLIMIT_NOFILE, &rl);
  if (rl.rlim_cur < 256)
    r.note("open files", std::to_string(rl.rlim_cur) + ": few descriptors are left for the program");
  else
    r.good("open files", std::to_string(rl.rlim_cur));
}

void check_kernel(Report& r) {
  utsname u{};
  uname(&u);
  r.good("kernel", std::string(u.release));
  int fd = static_cast<int>(syscall(SYS_memfd_create, "uhca-doctor", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (fd < 0)
    r.bad("memfd_create", std::strerror(errno));
  else
    close(fd);
  int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK);
  if (nl < 0)
    r.note("netlink usersock", std::string(std::strerror(errno)) + ": device discovery falls back to sysfs; the rdma tool will not work");
  else
    close(nl);
  int uffd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
  if (uffd < 0)
    r.note("userfaultfd", std::string(std::strerror(errno)) + ": doorbells of programs that ring them themselves are polled");
  else {
    r.good("userfaultfd", "user-mode-only is allowed");
    close(uffd);
  }
  std::string instances = first_line("/proc/sys/fs/inotify/max_user_instances");
  if (!instances.empty()) r.good("inotify instances", instances + " a user (one for each open device)");
}

void check_namespaces(Report& r) {
  char link[64] = {};
  [[maybe_unused]] ssize_t n = readlink("/proc/self/ns/net", link, sizeof link - 1);
  r.good("host", std::string(link) + ": programs in the same network namespace share one adapter");
  ifaddrs* list = nullptr;
  std::set<std::string> usable;
  if (getifaddrs(&list) == 0) {
    for (ifaddrs* a = list; a; a = a->ifa_next)
      if (a->ifa_addr && (a->ifa_flags & IFF_UP) && (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6))
        usable.insert(a->ifa_name);
    freeifaddrs(list);
  }
  std::string names;
  for (const auto& u : usable) names += (names.empty() ? "" : ", ") + u;
  if (usable.empty())
    r.bad("netdev", "no interface is up with an address: there would be no GID (try: ip link set lo up)");
  else
    r.good("netdev", names);
  std::ifstream unix_sockets("/proc/net/unix");
  std::string l;
  int functions = 0;
  while (std::getline(unix_sockets, l))
    if (l.find(" @uhca/v1/fn/") != std::string::npos) ++functions;
  r.good("functions", std::to_string(functions) + " QPN block(s) of running programs on this host");
}

// The process that has a socket with this inode open, if we may see it.
std::string holder_of(const std::string& inode) {
  const std::string want = "socket:[" + inode + "]";
  std::error_code ec;
  for (const auto& proc : fs::directory_iterator("/proc", ec)) {
    const std::string pid = proc.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code ec2;
    for (const auto& fd : fs::directory_iterator(proc.path() / "fd", ec2)) {
      std::error_code ec3;
      if (fs::read_symlink(fd.path(), ec3).string() == want) return first_line("/proc/" + pid + "/comm") + " (pid " + pid + ")";
    }
  }
  return "a process that this user cannot see";
}

void check_port(Report& r) {
  std::set<std::string> holders;
  for (const char* table : {"/proc/net/udp", "/proc/net/udp6"}) {
    std::ifstream in(table);
    std::string l;
    std::getline(in, l);
    while (std::getline(in, l)) {
      std::istringstream words(l);
      std::string w[10];
      for (auto& s : w) words >> s;
      if (w[1].size() > 5 && w[1].substr(w[1].find(':') + 1) == "12B7") holders.insert(holder_of(w[9]));  // 0x12b7 = 4791
    }
  }
  int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int one = 1;
  setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(4791);
  bool bound = bind(s, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0;
  int err = errno;
  close(s);
  std::string names;
  for (const auto& h : holders) names += (names.empty() ? "" : ", ") + h;
  if (bound)
    r.good("UDP port 4791", names.empty() ? "free" : "shared with " + names);
  else
    r.note("UDP port 4791", std::string(std::strerror(err)) + ", held by " + (names.empty() ? "a kernel socket (rdma_rxe?)" : names) +
                                ": frames from other hosts reach us only if a uhca program holds it");
}

}  // namespace

int doctor(const std::string& program) {
  Report r;
  check_kernel(r);
  check_library(r);
  check_preload(r);
  check_cross_process(r);
  check_limits(r);
  check_namespaces(r);
  check_port(r);
  if (!program.empty()) {
    std::string file = resolve_program(program);
    if (file.empty())
      r.bad("program", program + ": command not found");
    else if (std::string why = launch_obstacle(file); !why.empty())
      r.bad("program", file + " " + why);
    else
      r.good("program", file + " can be run");
  }
  return r.status();
}

}  // namespace uhca::tool

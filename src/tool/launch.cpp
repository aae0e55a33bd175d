// SPDX-License-Identifier: MIT
#include "tool/launch.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tool/elf_file.h"

namespace uhca::tool {
namespace fs = std::filesystem;

std::string library_folder() {
  std::error_code ec;
  fs::path self = fs::read_symlink("/proc/self/exe", ec);
  if (ec) return {};
  fs::path folder = self.parent_path().parent_path() / "lib" / "uhca";
  if (fs::exists(folder / "libuhca.so", ec)) return folder.string();
  return {};
}

std::string resolve_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : std::string{};
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    std::size_t colon = rest.find(':');
    std::string_view part = rest.substr(0, colon);
    std::string candidate = std::string(part.empty() ? "." : part) + "/" + name;
    struct stat st {};
    if (stat(candidate.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string_view::npos) return {};
    rest.remove_prefix(colon + 1);
  }
}

std::string launch_obstacle(const std::string& path) {
  struct stat st {};
  if (stat(path.c_str(), &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)) && geteuid() != 0)
    return "is set-user-ID or set-group-ID: the dynamic loader ignores LD_PRELOAD for it";
  ElfFile elf;
  if (!elf.load(path)) return {};  // a script: its interpreter counts, and exec finds it
  if (!elf.is_x86_64()) return "is not an x86-64 program";
  // Nor has the dynamic loader itself, started by its name: it preloads for the program that it is given.
  if (!elf.has_interpreter() && !fs::path(path).filename().string().starts_with("ld-linux"))
    return "is statically linked (or a Go program): there is no dynamic loader to preload uhca into; link it dynamically";
  return {};
}

int exec_program(const LaunchOptions& options) {
  std::string folder = library_folder();
  if (folder.empty()) {
    std::fprintf(stderr, "uhca: libuhca.so not found beside the command (expected in ../lib/uhca)\n");
    return 127;
  }
  std::string file = resolve_program(options.program.front());
  if (file.empty()) {
    std::fprintf(stderr, "uhca: %s: command not found\n", options.program.front().c_str());
    return 127;
  }
  if (std::string why = launch_obstacle(file); !why.empty()) {
    std::fprintf(stderr, "uhca: %s %s\n", file.c_str(), why.c_str());
    return 126;
  }
  std::string preload = folder + "/libuhca.so";
  // AddressSanitizer's runtime insists on being the first library, whether the program needs it or a sanitized libuhca.so does; a sanitizer
  // build puts clang's, which no search path finds, beside the library.
  for (const std::string& who : {file, preload}) {
    ElfFile elf;
    if (!elf.load(who)) continue;
    std::string asan = elf.needed_with_prefix("libasan.so");
    if (asan.empty()) asan = elf.needed_with_prefix("libclang_rt.asan");
    if (asan.empty()) continue;
    std::error_code ec;
    preload = (fs::exists(folder + "/" + asan, ec) ? folder + "/" + asan : asan) + ":" + preload;
    break;
  }
  if (!options.check_file.empty()) {
    // First of ours: it wraps what the others show to the program.
    preload.insert(preload.rfind(folder + "/libuhca.so"), folder + "/libuhca_check.so:");
    setenv("UHCA_CHECK", options.check_file.c_str(), 1);
  }
  if (const char* old = std::getenv("LD_PRELOAD"); old && *old) preload += ":" + std::string(old);
  setenv("LD_PRELOAD", preload.c_str(), 1);
  if (!options.system_rdma_core) {
    std::string libs = folder;
    if (const char* old = std::getenv("LD_LIBRARY_PATH"); old && *old) libs += ":" + std::string(old);
    setenv("LD_LIBRARY_PATH", libs.c_str(), 1);
  }
  // UCX and Open MPI overwrite the code of mmap and its family, whose first definition is ours, to learn of memory that goes away; what
  // they call instead are bare system calls, which know nothing of our files. Who asks for these hooks gets them.
  setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0);
  setenv("OMPI_MCA_memory", "^patcher", 0);
  // With DEVX, UCX makes its receive queues as RMPs, which the device does not offer; without, as SRQs.
  setenv("UCX_IB_MLX5_DEVX", "n", 0);
  if (!options.netdev.empty()) setenv("UHCA_NETDEV", options.netdev.c_str(), 1);
  if (options.framed) setenv("UHCA_PATH", "framed", 1);
  if (options.pin) setenv("UHCA_PIN", "1", 1);
  if (!options.impair.empty()) setenv("UHCA_IMPAIR", options.impair.c_str(), 1);
  if (options.no_congestion_control) setenv("UHCA_CONGESTION", "off", 1);
  if (!options.gpu.empty()) {
    setenv("UHCA_GPU", options.gpu.c_str(), 1);
    if (options.gpu.starts_with("nvidia")) {
      std::string libs = folder + "/nvidia";
      if (const char* old = std::getenv("LD_LIBRARY_PATH"); old && *old) libs += ":" + std::string(old);
      setenv("LD_LIBRARY_PATH", libs.c_str(), 1);
    }
  }
  if (!options.faults.empty()) {
    std::string rules;
    for (const std::string& f : options.faults) rules += (rules.empty() ? "" : ";") + f;
    setenv("UHCA_FAULT", rules.c_str(), 1);
  }
  if (!options.remove_after.empty()) setenv("UHCA_REMOVE_AFTER", options.remove_after.c_str(), 1);
  if (!options.log.empty()) setenv("UHCA_LOG", options.log.c_str(), 1);
  if (!options.log_level.empty()) setenv("UHCA_LOG_LEVEL", options.log_level.c_str(), 1);
  if (options.trace_fd >= 0) setenv("UHCA_TRACE_FD", std::to_string(options.trace_fd).c_str(), 1);
  if (!options.pcap.empty()) setenv("UHCA_PCAP", fs::absolute(options.pcap).c_str(), 1);

  std::vector<char*> argv;
  for (const std::string& a : options.program) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execv(file.c_str(), argv.data());
  int err = errno;
  std::fprintf(stderr, "uhca: %s: %s\n", file.c_str(), std::strerror(err));
  return err == ENOENT ? 127 : 126;
}

}  // namespace uhca::tool

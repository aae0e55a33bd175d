// SPDX-License-Identifier: MIT
#include "check/report.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "check/state.h"

namespace uhca::check {

thread_local int Inside::depth_ = 0;

namespace {

_Unwind_Reason_Code step(_Unwind_Context* context, void* arg) {
  Site& s = *static_cast<Site*>(arg);
  if (s.depth == Site::kDepth) return _URC_END_OF_STACK;
  if (auto ip = _Unwind_GetIP(context)) s.frames[s.depth++] = reinterpret_cast<void*>(ip);
  return _URC_NO_REASON;
}

bool ours(void* frame) {
  static void* const base = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&here), &info);
    return info.dli_fbase;
  }();
  Dl_info info{};
  return dladdr(frame, &info) != 0 && info.dli_fbase == base;
}

int first_outside(const Site& s) {
  int i = 0;
  while (i < s.depth && ours(s.frames[i])) ++i;
  return i;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += ' ';
    else
      out += c;
  }
  return out + '"';
}

// The loader knows the program by what it was called as, which may be no path from here.
std::string file_of(const Dl_info& info) {
  if (info.dli_fname[0] == '/') return info.dli_fname;
  char exe[4096];
  const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe);
  return n > 0 ? std::string(exe, static_cast<std::size_t>(n)) : info.dli_fname;
}

// A return address: the call lies before it.
std::string frame_json(void* frame) {
  Dl_info info{};
  char text[64];
  if (dladdr(static_cast<char*>(frame) - 1, &info) == 0 || !info.dli_fname) {
    std::snprintf(text, sizeof text, "{\"offset\":%lu}", reinterpret_cast<unsigned long>(frame));
    return text;
  }
  std::string out = "{\"module\":" + quoted(file_of(info));
  std::snprintf(text, sizeof text, ",\"offset\":%lu",
                static_cast<unsigned long>(static_cast<char*>(frame) - static_cast<char*>(info.dli_fbase) - 1));
  out += text;
  if (info.dli_sname) {
    std::snprintf(text, sizeof text, ",\"plus\":%lu",
                  static_cast<unsigned long>(static_cast<char*>(frame) - static_cast<char*>(info.dli_saddr)));
    out += ",\"symbol\":" + quoted(info.dli_sname) + text;
  }
  return out + "}";
}

}  // namespace

Site here() {
  Site s;
  _Unwind_Backtrace(step, &s);
  return s;
}

std::string one_line(const Site& site) {
  const int i = first_outside(site);
  if (i == site.depth) return "?";
  Dl_info info{};
  auto* at = static_cast<char*>(site.frames[i]);
  if (dladdr(at - 1, &info) == 0 || !info.dli_fname) return "?";
  std::string_view module = info.dli_fname;
  module.remove_prefix(module.rfind('/') + 1);
  char text[192];
  const auto offset = static_cast<unsigned long>(at - static_cast<char*>(info.dli_fbase));
  if (info.dli_sname)
    std::snprintf(text, sizeof text, "%.60s+%#lx (%.*s+%#lx)", info.dli_sname,
                  static_cast<unsigned long>(at - static_cast<char*>(info.dli_saddr)), static_cast<int>(module.size()), module.data(),
                  offset);
  else
    std::snprintf(text, sizeof text, "%.*s+%#lx", static_cast<int>(module.size()), module.data(), offset);
  return text;
}

bool called_from(const Site& site, std::string_view library) {
  const int i = first_outside(site);
  Dl_info info{};
  return i < site.depth && dladdr(site.frames[i], &info) != 0 && info.dli_fname &&
         std::string_view(info.dli_fname).find(library) != std::string_view::npos;
}

void found(const char* rule, const std::string& text, std::initializer_list<Labelled> sites) {
  const int saved = errno;
  Inside inside;
  static const char* const path = std::getenv("UHCA_CHECK");
  {
    // A place where the same thing goes wrong in a loop is told once.
    static auto* seen = new std::set<std::pair<std::string_view, void*>>;
    std::lock_guard lock(state().found_lock);
    const Site* s = sites.size() ? sites.begin()->site : nullptr;
    const int i = s ? first_outside(*s) : 0;
    const bool told = s && i < s->depth && !seen->insert({rule, s->frames[i]}).second;
    if (!told && path && *path) {
      std::string line =
          "{\"pid\":" + std::to_string(getpid()) + ",\"rule\":" + quoted(rule) + ",\"text\":" + quoted(text) + ",\"sites\":[";
      for (const Labelled& l : sites) {
        if (&l != sites.begin()) line += ',';
        line += "{\"label\":" + quoted(l.label) + ",\"frames\":[";
        const int first = first_outside(*l.site);
        for (int k = first; k < l.site->depth; ++k) line += (k > first ? "," : "") + frame_json(l.site->frames[k]);
        line += "]}";
      }
      line += "]}\n";
      // Opened each time: programs close what they do not know.
      const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
      if (fd >= 0) {
        [[maybe_unused]] ssize_t n = write(fd, line.data(), line.size());
        close(fd);
      }
    }
  }
  errno = saved;
}

}  // namespace uhca::check

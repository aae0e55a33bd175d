// SPDX-License-Identifier: MIT
// Call sites, and what is found.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace uhca::check {

// Who called us, from the inside out; names are looked up only when something is found.
struct Site {
  static constexpr int kDepth = 14;
  void* frames[kDepth];
  int depth = 0;
};
Site here();
// "name+0x12 (program+0x3456)" of the innermost frame that is not ours.
std::string one_line(const Site& site);
// Whether the innermost frame outside of this library lies in a library of this name ("librdmacm.so").
bool called_from(const Site& site, std::string_view library);

struct Labelled {
  const char* label;
  const Site* site;
};
// Appends a finding to the file that UHCA_CHECK names. Each pair of rule and first site once in a process. errno is preserved. Called
// without the lock.
void found(const char* rule, const std::string& text, std::initializer_list<Labelled> sites);

// On this thread, what we call is not ours to check; nor is what a signal handler does that has interrupted us.
class Inside {
 public:
  Inside() : outermost_(depth_++ == 0) {}
  ~Inside() { --depth_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool active() { return depth_ != 0; }

 private:
  static thread_local int depth_ __attribute__((tls_model("initial-exec")));
  bool outermost_;
};

}  // namespace uhca::check

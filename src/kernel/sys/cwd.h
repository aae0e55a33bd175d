// SPDX-License-Identifier: MIT
// The current directory when it is a virtual one. The real one then is the nearest real ancestor, and a descriptor that stays open
// over exec tells children (`cd /sys/class/infiniband; ls`).
#pragma once

#include <string>
#include <string_view>

namespace uhca::sys {

// True while the current directory is virtual; `path` (if not null) receives it. Async-signal-safe with a null path.
bool virtual_cwd(std::string* path);
// After the real chdir to real_ancestor succeeded.
void set_virtual_cwd(std::string_view path);
void leave_virtual_cwd();
void cwd_after_fork();

}  // namespace uhca::sys

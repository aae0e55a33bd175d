// SPDX-License-Identifier: MIT
#include "tool/commands.h"

namespace uhca::tool {

int run_program(const LaunchOptions& options) { return exec_program(options); }

}  // namespace uhca::tool

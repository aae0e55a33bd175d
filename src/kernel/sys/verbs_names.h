// SPDX-License-Identifier: MIT
// Names for the syscall events of the trace.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel/mm/uaccess.h"

namespace uhca::sys {

// The first word of a write: IB_USER_VERBS_CMD_*, extended commands included.
std::string_view write_command_name(std::uint32_t command);
// One "ioctl" event: object, method, attributes by name. Reads the program's header again, after the call.
void trace_verbs_ioctl(int fd, kernel::UserPtr arg, int err);

}  // namespace uhca::sys

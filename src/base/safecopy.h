// SPDX-License-Identifier: MIT
// Copies that survive bad addresses (DESIGN, decision 7): a fault inside them is fixed up by a signal handler that asks
// fixup(); where that handler is not in place, process_vm_readv/writev on oneself does the same, slower.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uhca::safecopy {

// Installed by kernel/sys once its SIGSEGV/SIGBUS handler is in place (it keeps it in front of the program's). Until then, and
// after set_handler_ready(false), copies go through process_vm_*.
void set_handler_ready(bool ready);
bool handler_ready();

// For processes of our own: takes SIGSEGV and SIGBUS for the copies (any other fault ends the process as usual) and declares the
// handler ready.
void install_handler();

// For a signal handler: if `pc` lies in one of the copy loops, returns the address to continue at, else 0. A continuing
// copy reports the fault to its caller.
std::uintptr_t fixup(std::uintptr_t pc);

// Bytes that were NOT copied (0: all). No signal escapes; errno is preserved.
std::size_t copy(void* dst, const void* src, std::size_t n);
// Single aligned accesses. false: fault.
bool load32(const void* src, std::uint32_t* value);          // acquire
bool store32(void* dst, std::uint32_t value);                // release
bool cas64(void* dst, std::uint64_t* expected, std::uint64_t desired);
// The last byte becomes visible last.
bool copy_last_byte_last(void* dst, const void* src, std::size_t n);

}  // namespace uhca::safecopy

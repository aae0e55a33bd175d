// SPDX-License-Identifier: MIT
// Access to the program's memory that never faults: bad pointers give EFAULT (DESIGN, decision 7). Linux: <linux/uaccess.h>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace uhca::kernel {

// A pointer that a program handed in; never dereferenced directly.
using UserPtr = std::uint64_t;

Status copy_from_user(void* dst, UserPtr src, std::size_t n);      // EFAULT
Status copy_to_user(UserPtr dst, const void* src, std::size_t n);  // EFAULT
Status clear_user(UserPtr dst, std::size_t n);                     // EFAULT
// EFAULT if not every byte is readable; true when all bytes are zero.
Result<bool> user_is_zero(UserPtr src, std::size_t n);

struct uverbs_attr_bundle;  // kernel/uverbs/attr_bundle.h

// The driver-private part of a command (Linux: struct ib_udata).
struct Udata {
  UserPtr inbuf = 0;
  UserPtr outbuf = 0;
  std::size_t inlen = 0;
  std::size_t outlen = 0;
  // A copy of short inputs that came inline in an ioctl attribute (len <= 8); inbuf then points here.
  std::uint64_t inline_in = 0;
  // The attributes of the ioctl that this belongs to; nullptr: a kernel caller.
  uverbs_attr_bundle* bundle = nullptr;

  // Copies min(n, inlen) bytes and clears the rest of dst.
  Status copy_in(void* dst, std::size_t n) const;
  // Copies min(n, outlen) bytes. Larger user buffers keep their tail.
  Status copy_out(const void* src, std::size_t n) const;
  // EOPNOTSUPP if the input holds non-zero bytes beyond `known`.
  Status check_in_tail(std::size_t known) const;
};

}  // namespace uhca::kernel

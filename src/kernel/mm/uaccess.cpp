// SPDX-License-Identifier: MIT
#include "kernel/mm/uaccess.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/safecopy.h"

namespace uhca::kernel {
namespace {

void* pointer(UserPtr p) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(p));
}

// A range that wraps is no memory; the copy loops would run into it from the top.
bool wraps(UserPtr p, std::size_t n) {
  return p + n < p;
}

}  // namespace

Status copy_from_user(void* dst, UserPtr src, std::size_t n) {
  if (n == 0) return success();
  if (wraps(src, n) || safecopy::copy(dst, pointer(src), n) != 0)
    return refuse(EFAULT, "{} bytes at {:#x} are not readable by this process", n, src);
  return success();
}

Status copy_to_user(UserPtr dst, const void* src, std::size_t n) {
  if (n == 0) return success();
  if (wraps(dst, n) || safecopy::copy(pointer(dst), src, n) != 0)
    return refuse(EFAULT, "{} bytes at {:#x} are not writable by this process", n, dst);
  return success();
}

Status clear_user(UserPtr dst, std::size_t n) {
  static constexpr char zeros[256] = {};
  if (wraps(dst, n)) return refuse(EFAULT, "{} bytes at {:#x} wrap around the address space", n, dst);
  while (n > 0) {
    std::size_t chunk = std::min(n, sizeof zeros);
    UHCA_CHECK(copy_to_user(dst, zeros, chunk));
    dst += chunk;
    n -= chunk;
  }
  return success();
}

Result<bool> user_is_zero(UserPtr src, std::size_t n) {
  if (wraps(src, n)) return refuse(EFAULT, "{} bytes at {:#x} wrap around the address space", n, src);
  bool zero = true;
  while (n > 0) {
    unsigned char buf[256];
    std::size_t chunk = std::min(n, sizeof buf);
    UHCA_CHECK(copy_from_user(buf, src, chunk));
    zero = zero && std::all_of(buf, buf + chunk, [](unsigned char c) { return c == 0; });
    src += chunk;
    n -= chunk;
  }
  return zero;
}

Status Udata::copy_in(void* dst, std::size_t n) const {
  std::size_t have = std::min(n, inlen);
  UHCA_CHECK(copy_from_user(dst, inbuf, have));
  std::memset(static_cast<char*>(dst) + have, 0, n - have);
  return success();
}

Status Udata::copy_out(const void* src, std::size_t n) const {
  return copy_to_user(outbuf, src, std::min(n, outlen));
}

Status Udata::check_in_tail(std::size_t known) const {
  if (inlen <= known) return success();
  if (!UHCA_TRY(user_is_zero(inbuf + known, inlen - known)))
    return refuse(EOPNOTSUPP, "driver data: bytes {}..{} are not zero, but only {} bytes are known", known, inlen - 1, known);
  return success();
}

}  // namespace uhca::kernel

// SPDX-License-Identifier: MIT
#include "base/safecopy.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

extern "C" {
extern const char uhca_safecopy_begin[], uhca_safecopy_end[];
extern const char uhca_safecopy_movsb[], uhca_safecopy_movsb_fault[], uhca_safecopy_words_fault[];
extern const char uhca_safecopy_lines_fault[];
extern const char uhca_safe_fault[];
std::size_t uhca_safecopy_words(void* dst, const void* src, std::size_t n);
std::size_t uhca_safecopy_lines(void* dst, const void* src, std::size_t n);
int uhca_safe_load32(const std::uint32_t* src, std::uint32_t* value);
int uhca_safe_store32(std::uint32_t* dst, std::uint32_t value);
int uhca_safe_store8(std::uint8_t* dst, std::uint8_t value);
int uhca_safe_line_last_word(void* dst, const void* src);
int uhca_safe_cas64(std::uint64_t* dst, std::uint64_t* expected, std::uint64_t desired);
}

namespace uhca::safecopy {
namespace {

constinit std::atomic<bool> ready{false};

// Between the two, vector moves beat rep movsb.
constexpr std::size_t kLine = 64, kMostLines = 1024;

using MovsbFn = std::size_t (*)(void*, const void*, std::size_t);
inline std::size_t movsb(void* d, const void* s, std::size_t n) {
  return reinterpret_cast<MovsbFn>(reinterpret_cast<std::uintptr_t>(uhca_safecopy_movsb))(d, s, n);
}

// Without our handler: the kernel does the checking. Reading and writing go through a bounce buffer, since either side may be bad.
std::size_t copy_by_kernel(void* dst, const void* src, std::size_t n) {
  int saved = errno;
  auto pid = static_cast<pid_t>(syscall(SYS_getpid));
  char bounce[1024];
  std::size_t done = 0;
  // syscall() is variadic: its last argument lies on the stack, where an int leaves half of the word undefined, so the flags are 0UL.
  while (done < n) {
    std::size_t chunk = n - done < sizeof bounce ? n - done : sizeof bounce;
    iovec local{bounce, chunk};
    iovec remote{const_cast<char*>(static_cast<const char*>(src)) + done, chunk};
    long got = syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0UL);
    if (got <= 0) break;
    local.iov_len = static_cast<std::size_t>(got);
    remote = {static_cast<char*>(dst) + done, static_cast<std::size_t>(got)};
    long put = syscall(SYS_process_vm_writev, pid, &local, 1, &remote, 1, 0UL);
    if (put <= 0) break;
    done += static_cast<std::size_t>(put);
    if (put < got || static_cast<std::size_t>(got) < chunk) break;
  }
  errno = saved;
  return n - done;
}

}  // namespace

void set_handler_ready(bool r) {
  ready.store(r);
}
bool handler_ready() {
  return ready.load(std::memory_order_relaxed);
}

std::uintptr_t fixup(std::uintptr_t pc) {
  auto addr = [](const char* label) { return reinterpret_cast<std::uintptr_t>(label); };
  if (pc < addr(uhca_safecopy_begin) || pc >= addr(uhca_safecopy_end)) return 0;
  if (pc < addr(uhca_safecopy_movsb_fault)) return addr(uhca_safecopy_movsb_fault);
  if (pc < addr(uhca_safecopy_words_fault)) return addr(uhca_safecopy_words_fault);
  if (pc < addr(uhca_safecopy_lines_fault)) return addr(uhca_safecopy_lines_fault);
  return addr(uhca_safe_fault);
}

std::size_t copy(void* dst, const void* src, std::size_t n) {
  if (__builtin_expect(!handler_ready(), 0)) return copy_by_kernel(dst, src, n);
  if (n >= kLine && n <= kMostLines) {
    std::size_t lines = n & ~(kLine - 1);
    std::size_t left = uhca_safecopy_lines(dst, src, lines);
    std::size_t done = lines - left;
    if (left == 0 && lines == n) return 0;
    dst = static_cast<char*>(dst) + done;
    src = static_cast<const char*>(src) + done;
    n -= done;
    if (left != 0) return movsb(dst, src, n);
  }
  if (n < kLine) {
    std::size_t words = n & ~std::size_t{7};
    std::size_t left = uhca_safecopy_words(dst, src, words);
    if (left == 0 && n > words && words != 0) {
      // The last word, which lies over the one before it in part.
      if (uhca_safecopy_words(static_cast<char*>(dst) + n - 8, static_cast<const char*>(src) + n - 8, 8) == 0) return 0;
    }
    // After a fault (rare) the rest goes byte by byte: the residue is exact.
    std::size_t tail = left + (n - words);
    words -= left;
    return tail ? movsb(static_cast<char*>(dst) + words, static_cast<const char*>(src) + words, tail) : 0;
  }
  return movsb(dst, src, n);
}

bool load32(const void* src, std::uint32_t* value) {
  if (__builtin_expect(!handler_ready(), 0)) {
    bool ok = copy_by_kernel(value, src, 4) == 0;
    std::atomic_thread_fence(std::memory_order_acquire);
    return ok;
  }
  bool ok = uhca_safe_load32(static_cast<const std::uint32_t*>(src), value) == 0;
  std::atomic_thread_fence(std::memory_order_acquire);
  return ok;
}

bool store32(void* dst, std::uint32_t value) {
  std::atomic_thread_fence(std::memory_order_release);
  if (__builtin_expect(!handler_ready(), 0)) return copy_by_kernel(dst, &value, 4) == 0;
  return uhca_safe_store32(static_cast<std::uint32_t*>(dst), value) == 0;
}

bool cas64(void* dst, std::uint64_t* expected, std::uint64_t desired) {
  if (__builtin_expect(!handler_ready(), 0)) {
    // Probe that the word is there and writable by writing nothing different, then operate on it directly: whoever unmaps it
    // in between races with an atomic operation in flight.
    std::uint64_t probe;
    if (copy_by_kernel(&probe, dst, sizeof probe) != 0) return false;
    auto* word = static_cast<std::uint64_t*>(dst);
    __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return true;
  }
  return uhca_safe_cas64(static_cast<std::uint64_t*>(dst), expected, desired) != 1;
}

bool copy_last_byte_last(void* dst, const void* src, std::size_t n) {
  if (n == 0) return true;
  if (reinterpret_cast<std::uintptr_t>(dst) % 8 == 0 && (n == kLine || n == 8) && __builtin_expect(handler_ready(), 1)) {
    std::atomic_thread_fence(std::memory_order_release);
    return n == 8 ? uhca_safecopy_words(dst, src, 8) == 0 : uhca_safe_line_last_word(dst, src) == 0;  // a word is one store
  }
  if (copy(dst, src, n - 1) != 0) return false;
  std::atomic_thread_fence(std::memory_order_release);
  auto last = static_cast<const std::uint8_t*>(src)[n - 1];
  if (__builtin_expect(!handler_ready(), 0)) return copy_by_kernel(static_cast<char*>(dst) + n - 1, &last, 1) == 0;
  return uhca_safe_store8(static_cast<std::uint8_t*>(dst) + n - 1, last) == 0;
}

}  // namespace uhca::safecopy

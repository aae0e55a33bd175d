// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/result.h"
#include "base/safecopy.h"
#include "base/trace.h"
#include "base/types.h"

using namespace uhca;

namespace {

Result<int> half(int v) {
  if (v % 2) return Errno{EINVAL};
  return v / 2;
}
Result<int> quarter(int v) {
  int h = UHCA_TRY(half(v));
  return half(h);
}

TEST(Result, PropagatesValuesAndErrors) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).code(), EINVAL);
  EXPECT_EQ(quarter(7).code(), EINVAL);
  Result<std::unique_ptr<int>> r = std::make_unique<int>(5);
  std::unique_ptr<int> taken = std::move(r).value();
  EXPECT_EQ(*taken, 5);
}

TEST(BigEndian, StaysBigEndianInMemory) {
  be32 v = 0x11223344u;
  std::uint8_t b[4];
  std::memcpy(b, &v, 4);
  EXPECT_EQ(b[0], 0x11);
  EXPECT_EQ(b[3], 0x44);
  EXPECT_EQ(static_cast<std::uint32_t>(v), 0x11223344u);
}

void on_fault(int sig, siginfo_t*, void* context) {
  auto* uc = static_cast<ucontext_t*>(context);
  auto pc = static_cast<std::uintptr_t>(uc->uc_mcontext.gregs[REG_RIP]);
  if (std::uintptr_t to = safecopy::fixup(pc)) {
    uc->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(to);
    return;
  }
  signal(sig, SIG_DFL);
}

// Both ways of surviving: our handler, and the kernel's checks.
class SafeCopy : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      struct sigaction sa {};
      sa.sa_sigaction = on_fault;
      sa.sa_flags = SA_SIGINFO | SA_NODEFER;
      sigaction(SIGSEGV, &sa, &old_segv_);
      sigaction(SIGBUS, &sa, &old_bus_);
    }
    safecopy::set_handler_ready(GetParam());
    page_ = static_cast<char*>(mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(page_ + 4096, 4096);  // [page_, +4096) ok, hole, [page_ + 8192, ...) ok
  }
  void TearDown() override {
    safecopy::set_handler_ready(false);
    if (GetParam()) {
      sigaction(SIGSEGV, &old_segv_, nullptr);
      sigaction(SIGBUS, &old_bus_, nullptr);
    }
    munmap(page_, 4096);
    munmap(page_ + 8192, 4096);
  }
  char* page_ = nullptr;
  struct sigaction old_segv_ {
  }, old_bus_{};
};

TEST_P(SafeCopy, CopiesEverySize) {
  std::vector<char> src(5000), dst(5000);
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<char>(i * 7);
  for (std::size_t n = 0; n < 1200; ++n) {
    std::fill(dst.begin(), dst.end(), '\x5a');
    ASSERT_EQ(safecopy::copy(dst.data() + 1, src.data() + 3, n), 0u);
    ASSERT_EQ(std::memcmp(dst.data() + 1, src.data() + 3, n), 0);
    ASSERT_EQ(dst[0], '\x5a');
    ASSERT_EQ(dst[n + 1], '\x5a');
  }
  EXPECT_EQ(safecopy::copy(dst.data(), src.data(), 5000), 0u);
  EXPECT_EQ(dst, src);
}

TEST_P(SafeCopy, ReportsWhatIsLeftOfABadSource) {
  char dst[512];
  for (std::size_t n : {1u, 8u, 40u, 63u, 64u, 200u, 511u}) {
    errno = 77;
    EXPECT_EQ(safecopy::copy(dst, page_ + 4096 - n / 2, n), n - n / 2) << n;
    EXPECT_EQ(errno, 77);
  }
  EXPECT_EQ(safecopy::copy(dst, nullptr, 100), 100u);
  EXPECT_EQ(safecopy::copy(dst, reinterpret_cast<void*>(0x7fff'ffff'f000), 10), 10u);
}

TEST_P(SafeCopy, ReportsABadDestination) {
  char src[128] = "x";
  EXPECT_NE(safecopy::copy(page_ + 4096, src, sizeof src), 0u);
  mprotect(page_, 4096, PROT_READ);
  EXPECT_NE(safecopy::copy(page_, src, sizeof src), 0u);
}

TEST_P(SafeCopy, WordsAndCompareAndSwap) {
  auto* w = reinterpret_cast<std::uint64_t*>(page_);
  *w = 42;
  std::uint64_t expected = 41;
  EXPECT_TRUE(safecopy::cas64(w, &expected, 1));
  EXPECT_EQ(expected, 42u);
  EXPECT_TRUE(safecopy::cas64(w, &expected, 1));
  EXPECT_EQ(*w, 1u);
  std::uint32_t v = 0;
  EXPECT_TRUE(safecopy::store32(page_, 0xabcd));
  EXPECT_TRUE(safecopy::load32(page_, &v));
  EXPECT_EQ(v, 0xabcdu);
  EXPECT_FALSE(safecopy::store32(page_ + 4096, 1));
  EXPECT_FALSE(safecopy::load32(page_ + 4096, &v));
  EXPECT_FALSE(safecopy::cas64(page_ + 4096, &expected, 1));
  EXPECT_TRUE(safecopy::copy_last_byte_last(page_, "hello", 6));
  EXPECT_STREQ(page_, "hello");
  EXPECT_FALSE(safecopy::copy_last_byte_last(page_ + 4090, "0123456789", 10));
  // A line: in one piece where its last word is aligned.
  char line[64];
  for (int i = 0; i < 64; ++i) line[i] = static_cast<char>(i + 1);
  for (int at : {64, 72, 100, 3997, 4032}) {
    EXPECT_TRUE(safecopy::copy_last_byte_last(page_ + at, line, sizeof line));
    EXPECT_EQ(std::memcmp(page_ + at, line, sizeof line), 0) << at;
  }
  EXPECT_FALSE(safecopy::copy_last_byte_last(page_ + 4040, line, sizeof line));
  EXPECT_FALSE(safecopy::copy_last_byte_last(page_, page_ + 4040, sizeof line));
}

TEST_P(SafeCopy, SurvivesATruncatedFile) {
  int fd = memfd_create("t", 0);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  char* p = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_EQ(ftruncate(fd, 0), 0);
  char dst[64];
  EXPECT_EQ(safecopy::copy(dst, p, sizeof dst), sizeof dst);  // SIGBUS
  munmap(p, 4096);
  close(fd);
}

INSTANTIATE_TEST_SUITE_P(HandlerOrKernel, SafeCopy, testing::Bool());

TEST(Fd, SealedMemoryKeepsItsSize) {
  auto fd = fd::sealed_memfd("uhca-test", 8192);
  ASSERT_TRUE(fd.ok());
  EXPECT_TRUE(fd::is_internal(*fd));
  EXPECT_EQ(lseek(*fd, 0, SEEK_END), 8192);
  EXPECT_EQ(ftruncate(*fd, 4096), -1);
  EXPECT_EQ(ftruncate(*fd, 16384), -1);
  EXPECT_EQ(fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(pwrite(*fd, "x", 1, 8191), 1);
  fd::close(*fd);
  // Refused: neither descriptor nor reason is lost.
  const int next = fd::next_internal(0);
  EXPECT_EQ(fd::sealed_memfd(std::string(300, 'x').c_str(), 4096).code(), EINVAL);
  EXPECT_EQ(fd::sealed_memfd("uhca-test", ~std::size_t{0}).code(), EINVAL);
  EXPECT_EQ(fd::next_internal(0), next);
}

TEST(Fd, InternalDescriptorsLiveHigh) {
  int fd = fd::adopt(open("/dev/null", O_RDONLY));
  ASSERT_GE(fd, 100);
  EXPECT_TRUE(fd::is_internal(fd));
  EXPECT_EQ(fd::next_internal(0), fd);
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  fd::close(fd);
  EXPECT_FALSE(fd::is_internal(fd));
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(fd::adopt(-1), -1);
}

std::atomic<int> raised{0};

TEST(Inside, DeferredSignalsAreRaisedByTheOutermostGuard) {
  inside::raise_deferred.store([] {
    ++raised;
    inside::state.deferred = 0;
  });
  {
    inside::Guard a;
    EXPECT_TRUE(inside::active());
    {
      inside::Guard b;
      inside::state.deferred = 1;
    }
    EXPECT_EQ(raised.load(), 0);
  }
  EXPECT_EQ(raised.load(), 1);
  EXPECT_FALSE(inside::active());
  { inside::Guard c; }
  EXPECT_EQ(raised.load(), 1);
  inside::raise_deferred.store(nullptr);
}

std::string held;

TEST(Inside, AsynchronousCancellationIsHeldByTheOutermostGuardAndComesBeforeSignals) {
  inside::hold_cancellation.store([](bool on) { held += on ? '+' : '-'; });
  inside::raise_deferred.store([] {
    held += 's';
    inside::state.deferred = 0;
  });
  { inside::Guard a; }
  EXPECT_EQ(held, "") << "a thread that is cancelled at cancellation points only";
  inside::state.cancelable = 1;
  {
    inside::EngineGuard a;
    EXPECT_TRUE(inside::in_engine());
    inside::Guard b;
    inside::state.deferred = 1;
    EXPECT_EQ(held, "+");
  }
  EXPECT_EQ(held, "+-s");
  EXPECT_FALSE(inside::in_engine());
  inside::state.cancelable = 0;
  inside::hold_cancellation.store(nullptr);
  inside::raise_deferred.store(nullptr);
}

TEST(Trace, EventsAreWholeJsonLines) {
  int p[2];
  ASSERT_EQ(pipe(p), 0);
  EXPECT_FALSE(trace::on());
  trace::set_fd(p[1]);
  EXPECT_TRUE(trace::on());
  trace::Event("api", "test").num("neg", -5).unum("big", ~0ull).hex("h", 0xbeef).str("s", "a\"b\\c\n").flag("f", true);
  {
    trace::Event e("api", "long");
    for (int i = 0; i < 100; ++i) e.str("key", "0123456789012345678901234567890123456789");
  }
  trace::set_fd(-1);
  close(p[1]);
  char buf[8192];
  ssize_t n = read(p[0], buf, sizeof buf - 1);
  ASSERT_GT(n, 0);
  buf[n] = 0;
  close(p[0]);
  std::string text(buf);
  std::string first = text.substr(0, text.find('\n'));
  EXPECT_NE(first.find("\"layer\":\"api\",\"name\":\"test\",\"neg\":-5,\"big\":18446744073709551615,\"h\":\"0xbeef\",\"s\":"
                       "\"a\\\"b\\\\c\\u000a\",\"f\":true}"),
            std::string::npos)
      << first;
  EXPECT_EQ(text.substr(text.size() - 13), ",\"cut\":true}\n");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

}  // namespace

// SPDX-License-Identifier: MIT
// `uhca run --pin`: pages come in, stay, and count.
#include "kernel/mm/pinned_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "kernel/mm/umem.h"

namespace uhca::kernel::mm {
namespace {

constexpr std::size_t kPage = 4096;

UserPtr fresh(std::size_t pages) {
  return reinterpret_cast<UserPtr>(mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
// Of the host's kernel.
unsigned long locked_pages() {
  FILE* f = fopen("/proc/self/status", "r");
  char line[256];
  unsigned long kib = ~0ul;
  while (fgets(line, sizeof line, f))
    if (sscanf(line, "VmLck: %lu", &kib) == 1) break;
  fclose(f);
  return kib / 4;
}
// In a process of its own: limits and privileges cannot be taken back.
int in_child(const std::function<int()>& what) {
  pid_t pid = fork();
  if (pid == 0) {
    PinnedPages::forget_after_fork();
    _exit(what());
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

struct PinnedPagesTest : ::testing::Test {
  void SetUp() override { PinnedPages::enable(true); }
  void TearDown() override { PinnedPages::enable(false); }
};

TEST_F(PinnedPagesTest, ComeInAtOnceAndStay) {
  EXPECT_EQ(0, in_child([] {
              UserPtr p = fresh(20);
              unsigned char in[20] = {};
              IommuDomain domain;
              auto umem = domain.pin(p + 100, 10 * kPage, true, "MR");
              if (!umem.ok() || PinnedPages::counted() != 11 || locked_pages() != 11) return 1;
              if (mincore(reinterpret_cast<void*>(p), 20 * kPage, in) != 0) return 2;
              for (int i = 0; i < 20; ++i)
                if ((in[i] & 1) != (i < 11)) return 3;
              umem->reset();
              return PinnedPages::counted() == 0 && locked_pages() == 0 ? 0 : 4;
            }));
}

TEST_F(PinnedPagesTest, EachTakingCountsAndTheLastOneLetsGo) {
  EXPECT_EQ(0, in_child([] {
              UserPtr p = fresh(16);
              auto take = [&](std::uint64_t a, std::uint64_t b) { return PinnedPages::take(p + a * kPage, p + b * kPage, "MR").ok(); };
              auto release = [&](std::uint64_t a, std::uint64_t b) { PinnedPages::release(p + a * kPage, p + b * kPage); };
              if (!take(0, 8) || !take(4, 12) || !take(6, 7) || PinnedPages::counted() != 17 || locked_pages() != 12) return 1;
              release(0, 8);
              if (PinnedPages::counted() != 9 || locked_pages() != 8) return 2;
              release(4, 12);
              if (PinnedPages::counted() != 1 || locked_pages() != 1) return 3;
              if (!take(0, 16)) return 4;
              release(6, 7);
              if (locked_pages() != 16) return 5;
              release(0, 16);
              return PinnedPages::counted() == 0 && locked_pages() == 0 ? 0 : 6;
            }));
}

TEST_F(PinnedPagesTest, TheLimitIsForThoseWithoutThePrivilege) {
  auto run = [](bool privileged) {
    return in_child([privileged] {
      rlimit small{16 * kPage, 16 * kPage};
      if (setrlimit(RLIMIT_MEMLOCK, &small) != 0) return 1;
      if (!privileged && geteuid() == 0 && setuid(65534) != 0) return 2;
      UserPtr p = fresh(64);
      IommuDomain domain;
      auto first = domain.pin(p, 10 * kPage, true, "MR");
      if (!first.ok()) return 3;
      auto second = domain.pin(p, 7 * kPage, true, "MR");  // the same pages, and they count again
      if (privileged) return second.ok() && domain.pin(p, 64 * kPage, true, "MR").ok() ? 0 : 4;
      if (second.code() != ENOMEM || PinnedPages::counted() != 10) return 5;
      if (!domain.pin(p, 6 * kPage, true, "MR").ok()) return 6;
      first->reset();
      return domain.pin(p + 32 * kPage, 16 * kPage, true, "MR").ok() ? 0 : 7;
    });
  };
  EXPECT_EQ(0, run(false));
  if (geteuid() == 0) {
    EXPECT_EQ(0, run(true));
  }
}

TEST_F(PinnedPagesTest, OffUnlessAskedFor) {
  PinnedPages::enable(false);
  UserPtr p = fresh(4);
  unsigned char in[4] = {1, 1, 1, 1};
  IommuDomain domain;
  auto umem = domain.pin(p, 4 * kPage, true, "MR");
  ASSERT_TRUE(umem.ok());
  EXPECT_EQ(0u, PinnedPages::counted());
  mincore(reinterpret_cast<void*>(p), 4 * kPage, in);
  EXPECT_EQ(0, in[0] & 1) << "nothing is touched";
  umem->reset();
  munmap(reinterpret_cast<void*>(p), 4 * kPage);
}

}  // namespace
}  // namespace uhca::kernel::mm

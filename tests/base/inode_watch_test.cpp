// SPDX-License-Identifier: MIT
#include "base/inode_watch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "base/fd.h"

namespace uhca {
namespace {

std::vector<int> drained(InodeWatch& w) {
  std::vector<int> all;
  w.drain([&](int number) { all.push_back(number); });
  return all;
}

int file() {
  return memfd_create("watched", MFD_CLOEXEC);
}

TEST(InodeWatch, TellsTheLastCloseOnce) {
  InodeWatch w;
  int a = file(), b = file(), again = dup(a);
  const int first = w.watch(a), second = w.watch(b);
  ASSERT_GE(first, 0);
  ASSERT_GE(second, 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, w.watch(again)) << "the same inode";
  close(a);
  EXPECT_TRUE(drained(w).empty());
  close(again);
  EXPECT_EQ(std::vector<int>{first}, drained(w));
  close(b);
  EXPECT_EQ(std::vector<int>{second}, drained(w));
  EXPECT_TRUE(drained(w).empty());
}

TEST(InodeWatch, TellsMoreThanOneReadHolds) {
  InodeWatch w;
  std::vector<int> fds, numbers;
  for (int i = 0; i < 200; ++i) {
    fds.push_back(file());
    numbers.push_back(w.watch(fds.back()));
    ASSERT_GE(numbers.back(), 0);
  }
  for (int fd : fds) close(fd);
  EXPECT_EQ(numbers, drained(w));
}

TEST(InodeWatch, TheInstanceIsInternalAndComesWithTheFirstFile) {
  InodeWatch w;
  EXPECT_TRUE(drained(w).empty());
  EXPECT_EQ(-1, w.watch(-1));
  EXPECT_NE(-1, fd::next_internal(0));
  w.forget();
  EXPECT_TRUE(drained(w).empty());
  int f = file();
  EXPECT_GE(w.watch(f), 0) << "a new one after a fork";
  close(f);
  EXPECT_EQ(1u, drained(w).size());
}

}  // namespace
}  // namespace uhca

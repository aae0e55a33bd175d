// SPDX-License-Identifier: MIT
#include "kernel/mm/uaccess.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace uhca::kernel {
namespace {

UserPtr up(const void* p) {
  return reinterpret_cast<UserPtr>(p);
}

// Two pages of which the second is not there.
struct HalfMapped {
  char* p = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  HalfMapped() { munmap(p + 4096, 4096); }
  ~HalfMapped() { munmap(p, 4096); }
};

TEST(Uaccess, CopiesBothWays) {
  char a[100], b[100] = {};
  for (int i = 0; i < 100; ++i) a[i] = static_cast<char>(i);
  ASSERT_TRUE(copy_from_user(b, up(a), 100));
  EXPECT_EQ(0, std::memcmp(a, b, 100));
  std::memset(a, 0, sizeof a);
  ASSERT_TRUE(copy_to_user(up(a), b, 100));
  EXPECT_EQ(0, std::memcmp(a, b, 100));
  EXPECT_TRUE(copy_from_user(b, 0, 0));
}

TEST(Uaccess, BadPointersAreEfault) {
  HalfMapped h;
  char buf[64];
  EXPECT_EQ(EFAULT, copy_from_user(buf, 0, 1).code());
  EXPECT_EQ(EFAULT, copy_from_user(buf, up(h.p) + 4090, 16).code());
  EXPECT_EQ(EFAULT, copy_to_user(up(h.p) + 4090, buf, 16).code());
  EXPECT_EQ(EFAULT, copy_to_user(~UserPtr{0} - 3, buf, 16).code());
  EXPECT_EQ(EFAULT, copy_from_user(buf, UserPtr{1} << 63, 16).code());
  EXPECT_EQ(EFAULT, clear_user(up(h.p) + 4000, 200).code());
  EXPECT_EQ(EFAULT, user_is_zero(up(h.p) + 4000, 200).code());
  mprotect(h.p, 4096, PROT_READ);
  EXPECT_EQ(EFAULT, copy_to_user(up(h.p), buf, 16).code());
  EXPECT_TRUE(copy_from_user(buf, up(h.p), 16));
}

TEST(Uaccess, ClearAndZeroCheck) {
  std::vector<char> v(1000, 1);
  ASSERT_TRUE(clear_user(up(v.data()) + 1, 998));
  EXPECT_EQ(1, v[0]);
  EXPECT_EQ(1, v[999]);
  EXPECT_TRUE(*user_is_zero(up(v.data()) + 1, 998));
  EXPECT_FALSE(*user_is_zero(up(v.data()) + 1, 999));
  EXPECT_FALSE(*user_is_zero(up(v.data()), 5));
}

TEST(Udata, ShortAndLong) {
  std::uint32_t in[3] = {1, 2, 0}, out[3] = {9, 9, 9};
  Udata u;
  u.inbuf = up(in);
  u.inlen = 8;
  u.outbuf = up(out);
  u.outlen = 8;
  std::uint32_t got[3] = {7, 7, 7};
  ASSERT_TRUE(u.copy_in(got, sizeof got));
  EXPECT_EQ(2u, got[1]);
  EXPECT_EQ(0u, got[2]);
  std::uint32_t answer[3] = {4, 5, 6};
  ASSERT_TRUE(u.copy_out(answer, sizeof answer));
  EXPECT_EQ(5u, out[1]);
  EXPECT_EQ(9u, out[2]);
  EXPECT_EQ(EOPNOTSUPP, u.check_in_tail(4).code());
  EXPECT_TRUE(u.check_in_tail(8));
  u.inlen = 12;
  EXPECT_TRUE(u.check_in_tail(8));
}

}  // namespace
}  // namespace uhca::kernel

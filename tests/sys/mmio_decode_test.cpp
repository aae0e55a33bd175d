// SPDX-License-Identifier: MIT
// Instructions that touch device memory, as accesses: encodings by hand (Intel SDM, volume 2).
#include "kernel/sys/mmio_decode.h"

#include <gtest/gtest.h>
#include <ucontext.h>

#include <cstring>
#include <vector>

namespace uhca::sys {
namespace {

struct Machine {
  ucontext_t uc{};
  std::vector<std::uint8_t> code;
  explicit Machine(std::vector<std::uint8_t> c) : code(std::move(c)) {
    reg(REG_RIP) = reinterpret_cast<greg_t>(code.data());
    reg(REG_RAX) = 0x1122334455667788;
    reg(REG_RCX) = static_cast<greg_t>(0xaabbccddeeff0011);
    reg(REG_R9) = 0x0102030405060708;
  }
  greg_t& reg(int r) { return uc.uc_mcontext.gregs[r]; }
  std::uint64_t at() { return static_cast<std::uint64_t>(reg(REG_RIP)) - reinterpret_cast<std::uint64_t>(code.data()); }
};

struct Store {
  std::vector<std::uint8_t> code;
  unsigned size;
  std::uint64_t value;
};

TEST(MmioDecode, Stores) {
  const std::uint64_t rax = 0x1122334455667788, r9 = 0x0102030405060708;
  for (const Store& s : {
           Store{{0x88, 0x07}, 1, rax},                                                                // mov %al,(%rdi)
           Store{{0x88, 0x27}, 1, rax >> 8},                                                           // mov %ah,(%rdi)
           Store{{0x66, 0x89, 0x07}, 2, rax},                                                          // mov %ax,(%rdi)
           Store{{0x89, 0x47, 0x10}, 4, rax},                                                          // mov %eax,16(%rdi)
           Store{{0x48, 0x89, 0x87, 0, 1, 0, 0}, 8, rax},                                              // mov %rax,256(%rdi)
           Store{{0x4c, 0x89, 0x0c, 0xf7}, 8, r9},                                                     // mov %r9,(%rdi,%rsi,8)
           Store{{0x44, 0x88, 0x0d, 1, 2, 3, 4}, 1, r9},                                               // mov %r9b,disp(%rip)
           Store{{0xc6, 0x07, 0xfe}, 1, ~std::uint64_t{1}},                                            // movb $0xfe,(%rdi)
           Store{{0x66, 0xc7, 0x07, 0x34, 0x12}, 2, 0x1234},                                           // movw $0x1234,(%rdi)
           Store{{0xc7, 0x44, 0x24, 8, 1, 0, 0, 0}, 4, 1},                                             // movl $1,8(%rsp)
           Store{{0x48, 0xc7, 0x04, 0x25, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 8, ~std::uint64_t{0}},  // movq $-1,0
       }) {
    Machine m(s.code);
    MmioAccess a;
    ASSERT_TRUE(mmio_decode(&m.uc, &a)) << std::hex << +s.code[0];
    EXPECT_TRUE(a.write);
    EXPECT_EQ(s.size, a.size);
    const std::uint64_t mask = s.size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * s.size)) - 1;
    EXPECT_EQ(s.value & mask, a.value & mask) << std::hex << +s.code[0];
    mmio_complete(&m.uc, a, 0);
    EXPECT_EQ(s.code.size(), m.at());
    EXPECT_EQ(0x1122334455667788, m.reg(REG_RAX));
  }
}

struct Load {
  std::vector<std::uint8_t> code;
  unsigned size;
  int reg;
  std::uint64_t after;  // of a load of 0x...8182838485868788
};

TEST(MmioDecode, Loads) {
  for (const Load& l : {
           Load{{0x8a, 0x06}, 1, REG_RAX, 0x1122334455667788},              // mov (%rsi),%al
           Load{{0x8a, 0x26}, 1, REG_RAX, 0x1122334455668888},              // mov (%rsi),%ah
           Load{{0x66, 0x8b, 0x06}, 2, REG_RAX, 0x1122334455668788},        // mov (%rsi),%ax
           Load{{0x8b, 0x0e}, 4, REG_RCX, 0x85868788},                      // mov (%rsi),%ecx
           Load{{0x4c, 0x8b, 0x4e, 0x08}, 8, REG_R9, 0x8182838485868788},   // mov 8(%rsi),%r9
           Load{{0x0f, 0xb6, 0x0e}, 1, REG_RCX, 0x88},                      // movzbl (%rsi),%ecx
           Load{{0x0f, 0xb7, 0x0e}, 2, REG_RCX, 0x8788},                    // movzwl (%rsi),%ecx
           Load{{0x0f, 0xbe, 0x0e}, 1, REG_RCX, 0xffffff88},                // movsbl (%rsi),%ecx
           Load{{0x48, 0x0f, 0xbf, 0x0e}, 2, REG_RCX, 0xffffffffffff8788},  // movswq (%rsi),%rcx
           Load{{0x48, 0x63, 0x0e}, 4, REG_RCX, 0xffffffff85868788},        // movslq (%rsi),%rcx
       }) {
    Machine m(l.code);
    MmioAccess a;
    ASSERT_TRUE(mmio_decode(&m.uc, &a));
    EXPECT_FALSE(a.write);
    EXPECT_EQ(l.size, a.size);
    mmio_complete(&m.uc, a, 0x8182838485868788);
    EXPECT_EQ(l.after, static_cast<std::uint64_t>(m.reg(l.reg))) << std::hex << +l.code[0];
    EXPECT_EQ(l.code.size(), m.at());
  }
}

TEST(MmioDecode, OthersAreNotUnderstood) {
  for (const std::vector<std::uint8_t>& code : {
           std::vector<std::uint8_t>{0x0f, 0x10, 0x06},  // movups
           {0xf3, 0xa4},                                 // rep movsb
           {0x01, 0x07},                                 // add %eax,(%rdi)
           {0x87, 0x07},                                 // xchg
           {0x89, 0xc7},                                 // between registers
           {0xc7, 0x4f, 0, 0, 0, 0, 0},                  // /1
       }) {
    Machine m(code);
    MmioAccess a;
    EXPECT_FALSE(mmio_decode(&m.uc, &a)) << std::hex << +code[0];
  }
}

}  // namespace
}  // namespace uhca::sys

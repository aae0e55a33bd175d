// SPDX-License-Identifier: MIT
#include "kernel/sys/mmio_decode.h"

#include <ucontext.h>

#include <cstring>

namespace uhca::sys {
namespace {

constexpr int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// The bytes of an instruction, one after another: none behind its end is looked at.
class Code {
 public:
  explicit Code(greg_t ip) : start_(reinterpret_cast<const std::uint8_t*>(ip)), at_(start_) {}
  std::uint8_t next() { return *at_++; }
  void skip(unsigned n) { at_ += n; }
  std::uint64_t constant(unsigned n) {
    std::int32_t v = 0;
    if (n == 1) v = static_cast<std::int8_t>(*at_);
    if (n == 2) {
      std::int16_t w;
      std::memcpy(&w, at_, 2);
      v = w;
    }
    if (n == 4) std::memcpy(&v, at_, 4);
    at_ += n;
    return static_cast<std::uint64_t>(std::int64_t{v});
  }
  unsigned length() const { return static_cast<unsigned>(at_ - start_); }

 private:
  const std::uint8_t* start_;
  const std::uint8_t* at_;
};

struct Prefixes {
  bool operand = false;
  std::uint8_t rex = 0;
};

// The first byte of the opcode, behind the prefixes.
std::uint8_t opcode(Code& code, Prefixes& p) {
  for (;;) {
    std::uint8_t b = code.next();
    switch (b) {
      case 0x66: p.operand = true; continue;
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
      case 0x64:
      case 0x65:
      case 0x67: continue;  // segment and address size: the fault says where
      default: break;
    }
    if ((b & 0xf0) != 0x40) return b;
    p.rex = b;
    return code.next();  // REX comes last
  }
}

// Behind a ModRM byte that names memory: SIB and displacement.
void skip_address(Code& code, std::uint8_t modrm) {
  const unsigned mod = modrm >> 6, rm = modrm & 7;
  unsigned base = rm;
  if (rm == 4) base = code.next() & 7;
  if (mod == 1) code.skip(1);
  if (mod == 2 || (mod == 0 && base == 5)) code.skip(4);
}

}  // namespace

bool mmio_decode(const void* ucontext, MmioAccess* out) {
  const greg_t* regs = static_cast<const ucontext_t*>(ucontext)->uc_mcontext.gregs;
  Code code(regs[REG_RIP]);
  Prefixes p;
  const std::uint8_t op = opcode(code, p);
  const unsigned word = (p.rex & 8) != 0 ? 8 : p.operand ? 2 : 4;
  MmioAccess a;
  a.reg_size = word;
  bool constant = false;
  switch (op) {
    case 0x88: a.write = true; [[fallthrough]];
    case 0x8a: a.size = a.reg_size = 1; break;
    case 0x89: a.write = true; [[fallthrough]];
    case 0x8b: a.size = word; break;
    case 0xc6:
      a.size = 1;
      a.write = constant = true;
      break;
    case 0xc7:
      a.size = word;
      a.write = constant = true;
      break;
    case 0x63:
      a.size = 4;
      a.sign = true;
      break;
    case 0x0f: {
      const std::uint8_t second = code.next();
      if ((second & 0xf6) != 0xb6) return false;  // b6, b7, be, bf
      a.size = second & 1 ? 2 : 1;
      a.sign = second & 8;
      break;
    }
    default: return false;
  }
  const std::uint8_t modrm = code.next();
  if (modrm >> 6 == 3) return false;
  const unsigned field = modrm >> 3 & 7;
  skip_address(code, modrm);
  if (constant) {
    if (field != 0) return false;
    a.value = code.constant(a.size == 8 ? 4 : a.size);
  } else {
    a.reg = field | ((p.rex & 4) != 0 ? 8 : 0);
    // Without REX, byte registers 4 to 7 are the second bytes of the first four.
    a.high_byte = op != 0x0f && a.size == 1 && p.rex == 0 && a.reg >= 4;
    if (a.high_byte) a.reg -= 4;
    if (a.write) a.value = static_cast<std::uint64_t>(regs[kRegisters[a.reg]]) >> (a.high_byte ? 8 : 0);
  }
  a.length = code.length();
  *out = a;
  return true;
}

void mmio_complete(void* ucontext, const MmioAccess& a, std::uint64_t value) {
  greg_t* regs = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs;
  regs[REG_RIP] += a.length;
  if (a.write) return;
  const unsigned bits = a.size * 8;
  if (bits < 64) value &= (std::uint64_t{1} << bits) - 1;
  if (a.sign && (value >> (bits - 1) & 1) != 0) value |= ~std::uint64_t{0} << (bits - 1);
  greg_t& r = regs[kRegisters[a.reg]];
  auto old = static_cast<std::uint64_t>(r);
  switch (a.reg_size) {
    case 1: {
      const unsigned shift = a.high_byte ? 8 : 0;
      old = (old & ~(std::uint64_t{0xff} << shift)) | (value & 0xff) << shift;
      break;
    }
    case 2: old = (old & ~std::uint64_t{0xffff}) | (value & 0xffff); break;
    case 4: old = value & 0xffff'ffff; break;
    default: old = value; break;
  }
  r = static_cast<greg_t>(old);
}

}  // namespace uhca::sys

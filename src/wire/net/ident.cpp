// SPDX-License-Identifier: MIT
#include "wire/net/ident.h"

#include <atomic>

namespace uhca::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0xedb88320;  // IEEE 802.3, reflected: bit 31 is x^0
constexpr std::uint64_t kOrder = 0xffffffff;       // the polynomial is primitive: x^(2^32 - 1) = 1

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r = 0;
  for (int i = 31; i >= 0; --i) {
    if (a >> i & 1) r ^= b;
    b = (b >> 1) ^ (kPolynomial & (0u - (b & 1)));
  }
  return r;
}

constexpr std::uint32_t power_of_x(std::uint64_t e) {
  std::uint32_t r = 1u << 31, square = 1u << 30;
  for (e %= kOrder; e; e >>= 1) {
    if (e & 1) r = multiply(r, square);
    square = multiply(square, square);
  }
  return r;
}

static_assert(power_of_x(kOrder) == 1u << 31);
static_assert(multiply(power_of_x(8 * 1000), power_of_x(kOrder - 8 * 1000)) == 1u << 31);

// x^(8n) and x^(-8n), filled as lengths occur. 0: not computed yet (no power of x is 0).
constexpr std::size_t kCached = 4400;
constinit std::atomic<std::uint32_t> forward[kCached]{};
constinit std::atomic<std::uint32_t> backward[kCached]{};

std::uint32_t shift_factor(std::int64_t bytes) {
  bool back = bytes < 0;
  auto n = static_cast<std::uint64_t>(back ? -bytes : bytes);
  std::uint64_t e = 8 * n % kOrder;
  if (back) e = kOrder - e;
  if (n >= kCached) return power_of_x(e);
  std::atomic<std::uint32_t>& slot = (back ? backward : forward)[n];
  std::uint32_t f = slot.load(std::memory_order_relaxed);
  if (f == 0) {
    f = power_of_x(e);
    slot.store(f, std::memory_order_relaxed);
  }
  return f;
}

}  // namespace

std::uint32_t crc_of_difference(std::uint32_t difference, std::int64_t distance) {
  return multiply(difference, shift_factor(distance));
}

Identification solve_identification(std::uint32_t received, std::uint32_t computed, std::size_t ip_bytes) {
  constexpr std::size_t kIdOffset = 4;
  if (ip_bytes < 20) return {};
  std::uint32_t v = crc_of_difference(received ^ computed, -static_cast<std::int64_t>(ip_bytes - kIdOffset));
  std::uint32_t flags = v >> 16;  // low byte: the byte with the flags
  if (flags != 0 && flags != 0x40) return {};
  return {true, static_cast<std::uint16_t>((v & 0xff) << 8 | (v >> 8 & 0xff)), flags == 0};
}

IdentMemory::Entry& IdentMemory::entry(std::uint32_t ipv4) {
  Entry& e = entries_[(ipv4 * 2654435761u) >> 26];
  if (e.ipv4 != ipv4) e = {ipv4, 0, 0};
  return e;
}

bool IdentMemory::may_solve(std::uint32_t ipv4) {
  Entry& e = entry(ipv4);
  if (e.matches < kTrustAfter) return true;
  if (++e.strikes < kStrikes) return false;
  e = {ipv4, 0, 0};
  return true;
}

void IdentMemory::matched_guess(std::uint32_t ipv4) {
  Entry& e = entry(ipv4);
  if (e.matches < kTrustAfter) ++e.matches;
  e.strikes = 0;
}

void IdentMemory::was_solved(std::uint32_t ipv4) {
  entry(ipv4) = {ipv4, 0, 0};
}

}  // namespace uhca::wire

// SPDX-License-Identifier: MIT
// The ICRC is linear: what a changed header field does to it can be computed without the packet, and undone.
//
// A UDP socket hides the IPv4 Identification and the DF flag of what it received, but the ICRC covers both. So the receiver
// computes the ICRC with a guess (0, DF) and explains the difference by the two fields: the difference, run backwards
// to their place in the packet, is nothing but their 16 + 1 bits, or the packet is damaged. 2^17 of 2^32 differences can
// be explained, so a damaged packet passes with probability 2^-15 where the solver has to be asked, and 2^-26 where the peer
// is known to leave the Identification to a kernel that counts segments (see IdentMemory).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/roce/roce.h"

namespace uhca::wire {

// `difference`: up to four bytes (the first in the low byte) that were XORed into a packet `distance` bytes before the end of
// what the CRC covers. Returns what that XORs into the CRC-32. A negative distance runs backwards.
std::uint32_t crc_of_difference(std::uint32_t difference, std::int64_t distance);

struct Identification {
  bool solved = false;
  std::uint16_t id = 0;
  bool dont_fragment = true;
};

// `ip_bytes`: the IP packet without the ICRC. `computed`: its ICRC with Identification 0 and DF set. Both as icrc() returns it.
Identification solve_identification(std::uint32_t received, std::uint32_t computed, std::size_t ip_bytes);

// Which peers always send DF and an Identification that is 0, or counts the segments of a datagram (Linux UDP sockets that probe the path
// MTU, so this project's own ports): from those, anything else is damage. Direct-mapped by address; forgets on collision.
class IdentMemory {
 public:
  // Whether a packet of this peer whose guess failed may be explained by the solver.
  bool may_solve(std::uint32_t ipv4);
  void matched_guess(std::uint32_t ipv4);
  void was_solved(std::uint32_t ipv4);

  static constexpr unsigned kTrustAfter = 64;  // matches in a row until the guess binds
  static constexpr unsigned kStrikes = 8;      // failures in a row that end it (the peer changed its stack)

 private:
  struct Entry {
    std::uint32_t ipv4 = 0;
    std::uint8_t matches = 0;
    std::uint8_t strikes = 0;
  };
  Entry& entry(std::uint32_t ipv4);
  std::array<Entry, 64> entries_{};
};

}  // namespace uhca::wire

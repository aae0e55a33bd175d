// SPDX-License-Identifier: MIT
// UDP sockets of both families, for udp.cpp and udp_send.cpp.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/fd.h"

namespace uhca::wire {

inline void set_option(int s, int level, int option, int value) {
  setsockopt(s, level, option, &value, sizeof value);
}

// Bytes of a socket's buffer, beyond the host's limit where the program may do so.
inline void set_buffer(int s, int force, int plain) {
  constexpr int kBuffer = 4 << 20;
  if (setsockopt(s, SOL_SOCKET, force, &kBuffer, sizeof kBuffer) != 0) setsockopt(s, SOL_SOCKET, plain, &kBuffer, sizeof kBuffer);
}

// The descriptor, or -1 with errno.
inline int udp_socket(bool ipv6) {
  return fd::adopt(static_cast<int>(syscall(SYS_socket, ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
}

inline int bind_any(int s, bool ipv6, std::uint16_t port) {
  sockaddr_in a4{};
  a4.sin_family = AF_INET;
  a4.sin_port = htons(port);
  sockaddr_in6 a6{};
  a6.sin6_family = AF_INET6;
  a6.sin6_port = htons(port);
  return ipv6 ? bind(s, reinterpret_cast<sockaddr*>(&a6), sizeof a6) : bind(s, reinterpret_cast<sockaddr*>(&a4), sizeof a4);
}

}  // namespace uhca::wire

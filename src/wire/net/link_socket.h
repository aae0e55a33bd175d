// SPDX-License-Identifier: MIT
// What the host switch does with sockets: the names of slots, messages with a descriptor, wake-ups, and the memory files that are passed.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>

namespace uhca::wire {

// The abstract name of a slot: prefix and number. The prefix is ours and short.
struct SlotName {
  SlotName(const std::string& prefix, unsigned slot);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t length;
};

// A new socket of the kind that links are made of; -1 and errno.
int seqpacket();

// A byte on the link's socket. When its buffer is full, the peer has wake-ups enough.
void send_wake(int fd);

// One message with at most one descriptor. Returns what recvmsg does; *fd: the first descriptor (others are closed), or -1; *fds: how many
// there were.
long receive_with_fd(int socket, void* buffer, std::size_t bytes, int* fd, unsigned* fds);
bool send_with_fd(int socket, const void* message, std::size_t bytes, int fd);

// Whether `memfd` is a memory file of that size which nobody can resize or make unwritable: nullptr, or what is wrong.
const char* unfit(int memfd, std::size_t bytes);

// A ring's memory, which a child does not inherit; nullptr and errno. `at`: an address range that is to be taken over, or nullptr.
void* map_ring(int memfd, void* at = nullptr);

}  // namespace uhca::wire

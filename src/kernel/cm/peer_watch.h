// SPDX-License-Identifier: MIT
// Functions of this host at which our connections end. A kernel says goodbye for a process that is killed; here the connection manager dies
// with it. So each function stays on the line with those that it has connections with: a line that breaks is a death, and whoever notices
// hears the last words that the dead one's kernel would have said (IbCm::last_words).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace uhca::kernel::cm {

class PeerWatch {
 public:
  // The first bytes of a caller that stays on the line.
  static constexpr std::uint32_t kGreeting = 0x7568'7761;
  static constexpr std::size_t kMostListeners = 1024;

  // `watch`: a descriptor is to be polled for reading, or no longer. `prefix`: of functions' names (exchange.h).
  PeerWatch(std::string prefix, void (*watch)(void* context, int fd, bool on), void* context)
      : prefix_(std::move(prefix)), watch_(watch), context_(context) {}
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // One that has no name any more has died.
  void add(std::uint32_t function);
  // A caller that greeted so; the descriptor is ours from now on. Beyond kMostListeners, or a quarter of our descriptors, they are told
  // that they will not hear.
  void stays(int caller_fd);
  // Whether it is a line of ours; what it had to say is done.
  bool readable(int fd);
  bool any_dead() const { return !dead_.empty(); }
  // Each death is reported once.
  std::vector<std::uint32_t> dead();

 private:
  void hang_up(int fd);

  const std::string prefix_;
  void (*const watch_)(void*, int, bool);
  void* const context_;
  std::map<std::uint32_t, int> lines_;      // to functions
  std::map<int, std::uint32_t> functions_;  // of these lines
  std::set<int> listeners_;
  std::vector<std::uint32_t> dead_;
};

}  // namespace uhca::kernel::cm

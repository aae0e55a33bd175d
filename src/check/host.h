// SPDX-License-Identifier: MIT
// What the checked programs of one user and network namespace tell each other: a file in /dev/shm with a table of QPs and one of keys. It
// may be wrong (processes die, others write it); what comes of that is a finding too few.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace uhca::check {

class Host {
 public:
  enum class KeyIs : std::uint32_t { kNothing = 0, kDead, kWeaklyOrdered };

  // Removes the file when nobody else has it.
  void leave();

  // Own QPs.
  void add_qp(std::uint32_t qpn, bool own_receives);
  void remove_qp(std::uint32_t qpn);
  void posted_receives(std::uint32_t qpn, unsigned n);
  void reset_receives(std::uint32_t qpn);
  // Of any QP of this host: receives posted since it was made; -1: not known, or it has an SRQ.
  std::int64_t receives_of(std::uint32_t qpn);
  // Whose it is; 0: not known.
  int owner_of(std::uint32_t qpn);

  // Keys: of this process (pid 0) or of another that is known.
  void note_key(KeyIs what, std::uint32_t rkey, const std::string& where, int pid = 0);
  void forget_key(std::uint32_t rkey, int pid = 0);
  KeyIs ask_key(int pid, std::uint32_t rkey, std::string* where);

 private:
  struct Table;
  Table* table();
  Table* table_ = nullptr;
  int fd_ = -1;
  bool tried_ = false;
  std::string path_;
};

}  // namespace uhca::check

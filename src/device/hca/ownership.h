// SPDX-License-Identifier: MIT
// Who owns an object: user contexts (UCTX) are numbered by a uid, which every command carries in its header; 0 is the driver.
//
// A command with a uid may name objects of that uid and objects of the driver, which answers for what it lets a program name; never
// those of another uid. The driver may name everything. What an object holds (umems) is counted here too.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "prm/layout.h"
#include "prm/opcode.h"

namespace uhca::hca {

// Linux's driver marks what all of its contexts use with this uid (MLX5_SHARED_RESOURCE_UID); such objects are the driver's.
inline constexpr std::uint16_t kSharedUid = 0xffff;

// Number spaces. SRQ: also RMP and XRC SRQ; raw queue: SQ and RQ.
enum class Kind : std::uint8_t {
  kPd,
  kUar,
  kTransportDomain,
  kXrcd,
  kMkey,
  kEq,
  kCq,
  kQp,
  kSrq,
  kDct,
  kTis,
  kTir,
  kRqt,
  kRawQueue,
  kCounterSet,
  kFlowTable,
  kFlowGroup,
  kFlowCounter,
  kUmem,
  kGeneralObject,
};
const char* kind_name(Kind k);

// What a command does to an object, and where it says which: in its output (create) or input.
enum class Role : std::uint8_t { kCreate, kUse, kDestroy };
struct ObjectRole {
  prm::Opcode opcode;
  Kind kind;
  Role role;
  prm::Field number;
};
// nullptr: the command is about no single object.
const ObjectRole* role_of(std::uint16_t opcode);

class Ownership {
 public:
  bool user_exists(std::uint16_t uid) const { return uid == 0 || users_.contains(uid); }
  // A user context with these capabilities (prm::kUctxCap*). false: none left.
  bool create_user(std::uint16_t* uid, std::uint32_t caps);
  // The driver has them all.
  bool has_cap(std::uint16_t uid, std::uint32_t cap) const;
  // Objects that live in it.
  unsigned objects_of(std::uint16_t uid) const;
  void destroy_user(std::uint16_t uid) { users_.erase(uid); }

  bool may_use(Kind k, std::uint32_t number, std::uint16_t uid) const;
  void created(Kind k, std::uint32_t number, std::uint16_t uid, std::vector<std::uint32_t> umems);
  // The umems that it held.
  std::vector<std::uint32_t> destroyed(Kind k, std::uint32_t number);
  void forget_objects();
  std::size_t users() const { return users_.size(); }

 private:
  struct Record {
    std::uint16_t uid = 0;
    std::vector<std::uint32_t> umems;
  };
  static std::uint64_t key(Kind k, std::uint32_t number) { return std::uint64_t{static_cast<std::uint8_t>(k)} << 32 | number; }

  std::unordered_map<std::uint64_t, Record> records_;  // of objects with a uid or umems only
  struct User {
    std::uint32_t caps = 0;
    unsigned objects = 0;
  };
  std::unordered_map<std::uint16_t, User> users_;  // by uid
  std::uint16_t last_uid_ = 0;
};

}  // namespace uhca::hca

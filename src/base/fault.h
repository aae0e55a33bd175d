// SPDX-License-Identifier: MIT
// Rules that make the nth of something fail: of the firmware's commands, of the driver's allocations, of the pinnings of a program's pages
// (DESIGN, decision 12). `uhca run --fault`; tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace uhca::fault {

enum class Point : std::uint8_t { kCommand, kPin, kAlloc };

struct Rule {
  Point point = Point::kCommand;
  std::string command;  // its name, as prm::opcode_name says; empty: any
  std::string status;   // of the command: a name, as prm::cmd_status_name says, or a number; empty: INT_ERR
  unsigned nth = 1;     // 1: the next one
  int err = 0;          // errno of the others: ENOMEM unless the rule says another one
};

// "cmd=CREATE_QP,nth=2,status=NO_RES;pin,nth=3,errno=EFAULT;alloc". "cmd=any" is any command. EINVAL names what is wrong.
Result<std::vector<Rule>> parse(std::string_view text);

// For kPin and kAlloc: from now on the nth fails. Rules count together; each fires once.
void arm(Point point, unsigned nth, int err);
// How many have not fired; they are gone.
unsigned disarm();
// To be asked at the place: the errno with which this one has to fail, or 0. Cheap while no rule is armed. Any thread.
int due(Point point);

}  // namespace uhca::fault

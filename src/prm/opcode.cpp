// SPDX-License-Identifier: MIT
#include "prm/opcode.h"

#include <cstdlib>
#include <cstring>

namespace uhca::prm {

const char* opcode_name(std::uint16_t opcode) {
  switch (opcode) {
#define UHCA_X(name_, value_) \
  case value_:                \
    return #name_;
    UHCA_PRM_CMD_OPCODES(UHCA_X)
#undef UHCA_X
  }
  return nullptr;
}

const char* cmd_status_name(CmdStatus s) {
  switch (s) {
    case CmdStatus::OK: return "OK";
    case CmdStatus::INT_ERR: return "INT_ERR";
    case CmdStatus::BAD_OP: return "BAD_OP";
    case CmdStatus::BAD_PARAM: return "BAD_PARAM";
    case CmdStatus::BAD_SYS_STATE: return "BAD_SYS_STATE";
    case CmdStatus::BAD_RES: return "BAD_RES";
    case CmdStatus::RES_BUSY: return "RES_BUSY";
    case CmdStatus::LIM: return "LIM";
    case CmdStatus::BAD_RES_STATE: return "BAD_RES_STATE";
    case CmdStatus::IX: return "IX";
    case CmdStatus::NO_RES: return "NO_RES";
    case CmdStatus::BAD_QP_STATE: return "BAD_QP_STATE";
    case CmdStatus::BAD_PKT: return "BAD_PKT";
    case CmdStatus::BAD_SIZE_OUTS_CQES: return "BAD_SIZE_OUTS_CQES";
    case CmdStatus::BAD_INP_LEN: return "BAD_INP_LEN";
    case CmdStatus::BAD_OUTP_LEN: return "BAD_OUTP_LEN";
  }
  return "?";
}

bool opcode_of(const char* name, Opcode* op) {
  for (std::uint16_t n = 0; n < kOpcodes; ++n) {
    const char* known = opcode_name(n);
    if (known == nullptr || std::strcmp(known, name) != 0) continue;
    *op = static_cast<Opcode>(n);
    return true;
  }
  return false;
}

bool cmd_status_of(const char* text, CmdStatus* s) {
  char* end = nullptr;
  const unsigned long number = std::strtoul(text, &end, 0);
  const bool is_number = *text >= '0' && *text <= '9' && *end == 0;
  for (unsigned n = 1; n < 0x100; ++n) {
    const char* known = cmd_status_name(static_cast<CmdStatus>(n));
    if (is_number ? n != number : std::strcmp(known, "?") == 0 || std::strcmp(known, text) != 0) continue;
    *s = static_cast<CmdStatus>(n);
    return true;
  }
  return false;
}

}  // namespace uhca::prm

// SPDX-License-Identifier: MIT
// BTH opcodes as a table: one constexpr row per opcode (DESIGN, decision 9). Opcodes and property masks are distinct types.
// Source: IBTA Architecture Specification vol. 1, table 38 (OpCode field).
#pragma once

#include <array>
#include <cstdint>

namespace uhca::wire {

enum class Opcode : std::uint8_t {};  // service << 5 | operation

// kDC: dynamically connected. Its packets are not published; they travel here as operations of the reliable service in the opcode range
// that IBTA leaves to manufacturers, with a header of our own (roce.h: DcEth).
enum class Service : std::uint8_t { kRC = 0, kUC = 1, kRD = 2, kUD = 3, kCNP = 4, kXRC = 5, kDC = 6 };

// The low five bits.
enum class Op : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImm = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kResync = 0x15,
  kSendLastInv = 0x16,
  kSendOnlyInv = 0x17,
};

constexpr Opcode make_opcode(Service s, Op o) {
  return static_cast<Opcode>(static_cast<unsigned>(s) << 5 | static_cast<unsigned>(o));
}
constexpr Service service_of(Opcode o) {
  return static_cast<Service>(static_cast<unsigned>(o) >> 5);
}
constexpr Op op_of(Opcode o) {
  return static_cast<Op>(static_cast<unsigned>(o) & 0x1f);
}
inline constexpr Opcode kCnp = static_cast<Opcode>(0x81);

// Properties of an opcode.
enum class Prop : std::uint32_t {
  kNone = 0,
  kRequest = 1 << 0,
  kResponse = 1 << 1,  // READ response, ACK, atomic ACK
  kSend = 1 << 2,
  kWrite = 1 << 3,
  kRead = 1 << 4,  // READ request
  kReadResponse = 1 << 5,
  kAtomic = 1 << 6,
  kAck = 1 << 7,
  kFirst = 1 << 8,     // FIRST or ONLY: begins a message
  kLast = 1 << 9,      // LAST or ONLY: ends a message
  kPayload = 1 << 10,  // carries payload
  kReth = 1 << 11,
  kAeth = 1 << 12,
  kDeth = 1 << 13,
  kAtomicEth = 1 << 14,
  kAtomicAckEth = 1 << 15,
  kImm = 1 << 16,
  kIeth = 1 << 17,
  kConsumesRecv = 1 << 18,  // the packet that takes a receive WQE: FIRST/ONLY of a SEND, LAST/ONLY of a WRITE with immediate
  kXrcEth = 1 << 19,        // XRCETH directly behind BTH (every XRC request)
  kDcEth = 1 << 20,         // DcEth directly behind BTH (every DC request)
};
constexpr Prop operator|(Prop a, Prop b) {
  return static_cast<Prop>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr bool has(Prop set, Prop p) {
  return (static_cast<std::uint32_t>(set) & static_cast<std::uint32_t>(p)) == static_cast<std::uint32_t>(p);
}

struct OpcodeInfo {
  const char* name = nullptr;  // "RC_SEND_ONLY"; nullptr: no such opcode
  Prop props = Prop::kNone;
  std::uint8_t ext_bytes = 0;  // bytes of extension headers behind BTH
};

// The longest run of extension headers: DcEth + AtomicETH.
inline constexpr std::uint8_t kMaxExtBytes = 44;

// Indexed by the opcode byte (opcode.cpp holds the rows and static_asserts about them).
extern const std::array<OpcodeInfo, 256> kOpcodeTable;
inline const OpcodeInfo& info(Opcode o) {
  return kOpcodeTable[static_cast<std::uint8_t>(o)];
}

// AETH syndrome (IBTA 9.7.5.1, table 45): bits 6:5 type, 4:0 value.
inline constexpr std::uint8_t kAethAck = 0x00;     // | credit count; 0x1f: credits invalid
inline constexpr std::uint8_t kAethRnrNak = 0x20;  // | timer code
inline constexpr std::uint8_t kAethNak = 0x60;     // | code
enum class NakCode : std::uint8_t {
  kPsnSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperational = 3,
  kInvalidRdRequest = 4
};

}  // namespace uhca::wire

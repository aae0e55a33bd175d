// SPDX-License-Identifier: MIT
// The rows of the opcode table, and what must hold between them.
// Sources: IBTA vol. 1, table 38 (opcodes and the headers that follow), section 9.2 (header sizes), annex A14 (XRC), annex A17 (CNP).
#include "wire/roce/opcode.h"

namespace uhca::wire {
namespace {

using enum Prop;

constexpr std::uint8_t ext_bytes(Prop p) {
  unsigned n = 0;
  if (has(p, kXrcEth)) n += 4;
  if (has(p, kDcEth)) n += 16;
  if (has(p, kDeth)) n += 8;
  if (has(p, kReth)) n += 16;
  if (has(p, kAtomicEth)) n += 28;
  if (has(p, kAeth)) n += 4;
  if (has(p, kAtomicAckEth)) n += 8;
  if (has(p, kImm)) n += 4;
  if (has(p, kIeth)) n += 4;
  return static_cast<std::uint8_t>(n);
}

constexpr OpcodeInfo row(const char* name, Prop p) {
  return {name, p, ext_bytes(p)};
}

constexpr Prop kOnly = kFirst | kLast;
constexpr Prop kSendReq = kRequest | kSend | kPayload;
constexpr Prop kWriteReq = kRequest | kWrite | kPayload;
constexpr Prop kReadResp = kResponse | kReadResponse | kPayload;

constexpr std::array<OpcodeInfo, 256> make_table() {
  std::array<OpcodeInfo, 256> t{};
  auto set = [&t](Service s, Op o, const char* name, Prop p) { t[static_cast<std::uint8_t>(make_opcode(s, o))] = row(name, p); };

#define UHCA_SEND_AND_WRITE(S, X)                                                                            \
  set(Service::k##S, Op::kSendFirst, #S "_SEND_FIRST", kSendReq | kFirst | kConsumesRecv | X);               \
  set(Service::k##S, Op::kSendMiddle, #S "_SEND_MIDDLE", kSendReq | X);                                      \
  set(Service::k##S, Op::kSendLast, #S "_SEND_LAST", kSendReq | kLast | X);                                  \
  set(Service::k##S, Op::kSendLastImm, #S "_SEND_LAST_IMM", kSendReq | kLast | kImm | X);                    \
  set(Service::k##S, Op::kSendOnly, #S "_SEND_ONLY", kSendReq | kOnly | kConsumesRecv | X);                  \
  set(Service::k##S, Op::kSendOnlyImm, #S "_SEND_ONLY_IMM", kSendReq | kOnly | kImm | kConsumesRecv | X);    \
  set(Service::k##S, Op::kWriteFirst, #S "_WRITE_FIRST", kWriteReq | kFirst | kReth | X);                    \
  set(Service::k##S, Op::kWriteMiddle, #S "_WRITE_MIDDLE", kWriteReq | X);                                   \
  set(Service::k##S, Op::kWriteLast, #S "_WRITE_LAST", kWriteReq | kLast | X);                               \
  set(Service::k##S, Op::kWriteLastImm, #S "_WRITE_LAST_IMM", kWriteReq | kLast | kImm | kConsumesRecv | X); \
  set(Service::k##S, Op::kWriteOnly, #S "_WRITE_ONLY", kWriteReq | kOnly | kReth | X);                       \
  set(Service::k##S, Op::kWriteOnlyImm, #S "_WRITE_ONLY_IMM", kWriteReq | kOnly | kReth | kImm | kConsumesRecv | X)

#define UHCA_RELIABLE(S, X)                                                                                                  \
  set(Service::k##S, Op::kReadRequest, #S "_READ_REQUEST", kRequest | kRead | kOnly | kReth | X);                            \
  set(Service::k##S, Op::kReadResponseFirst, #S "_READ_RESPONSE_FIRST", kReadResp | kFirst | kAeth);                         \
  set(Service::k##S, Op::kReadResponseMiddle, #S "_READ_RESPONSE_MIDDLE", kReadResp);                                        \
  set(Service::k##S, Op::kReadResponseLast, #S "_READ_RESPONSE_LAST", kReadResp | kLast | kAeth);                            \
  set(Service::k##S, Op::kReadResponseOnly, #S "_READ_RESPONSE_ONLY", kReadResp | kOnly | kAeth);                            \
  set(Service::k##S, Op::kAcknowledge, #S "_ACKNOWLEDGE", kResponse | kAck | kOnly | kAeth);                                 \
  set(Service::k##S, Op::kAtomicAcknowledge, #S "_ATOMIC_ACKNOWLEDGE", kResponse | kAtomic | kOnly | kAeth | kAtomicAckEth); \
  set(Service::k##S, Op::kCompareSwap, #S "_COMPARE_SWAP", kRequest | kAtomic | kOnly | kAtomicEth | X);                     \
  set(Service::k##S, Op::kFetchAdd, #S "_FETCH_ADD", kRequest | kAtomic | kOnly | kAtomicEth | X);                           \
  set(Service::k##S, Op::kSendLastInv, #S "_SEND_LAST_INV", kSendReq | kLast | kIeth | X);                                   \
  set(Service::k##S, Op::kSendOnlyInv, #S "_SEND_ONLY_INV", kSendReq | kOnly | kIeth | kConsumesRecv | X)

  UHCA_SEND_AND_WRITE(RC, kNone);
  UHCA_RELIABLE(RC, kNone);
  UHCA_SEND_AND_WRITE(UC, kNone);
  UHCA_SEND_AND_WRITE(XRC, kXrcEth);
  UHCA_RELIABLE(XRC, kXrcEth);
  UHCA_SEND_AND_WRITE(DC, kDcEth);
  UHCA_RELIABLE(DC, kDcEth);
  set(Service::kUD, Op::kSendOnly, "UD_SEND_ONLY", kSendReq | kOnly | kDeth | kConsumesRecv);
  set(Service::kUD, Op::kSendOnlyImm, "UD_SEND_ONLY_IMM", kSendReq | kOnly | kDeth | kImm | kConsumesRecv);
#undef UHCA_SEND_AND_WRITE
#undef UHCA_RELIABLE

  // Congestion notification: neither request nor response; 16 reserved bytes behind BTH (annex A17).
  t[static_cast<std::uint8_t>(kCnp)] = OpcodeInfo{"CNP", kNone, 16};
  return t;
}

constexpr auto kTable = make_table();

constexpr OpcodeInfo at(Service s, Op o) {
  return kTable[static_cast<std::uint8_t>(make_opcode(s, o))];
}

constexpr int rows(Service s) {
  int n = 0;
  for (unsigned o = 0; o < 32; ++o) n += at(s, static_cast<Op>(o)).name != nullptr;
  return n;
}

// Every row: a request or a response, never both (CNP is neither); IMM and IETH only at the end of a message; whatever consumes a receive
// WQE is a SEND that begins, or a WRITE that ends with immediate data.
constexpr bool consistent() {
  for (unsigned o = 0; o < 256; ++o) {
    const auto& r = kTable[o];
    if (!r.name) {
      if (r.props != kNone || r.ext_bytes) return false;
      continue;
    }
    if (static_cast<Opcode>(o) == kCnp) continue;
    if (has(r.props, kRequest) == has(r.props, kResponse)) return false;
    if ((has(r.props, kImm) || has(r.props, kIeth)) && !has(r.props, kLast)) return false;
    if (has(r.props, kImm) && has(r.props, kIeth)) return false;
    bool consumes = (has(r.props, kSend) && has(r.props, kFirst)) || (has(r.props, kWrite) && has(r.props, kImm));
    if (consumes != has(r.props, kConsumesRecv)) return false;
    if (has(r.props, kWrite) && has(r.props, kFirst) != has(r.props, kReth)) return false;
    if (r.ext_bytes > kMaxExtBytes || r.ext_bytes % 4) return false;
  }
  return true;
}

static_assert(consistent());
static_assert(rows(Service::kRC) == 23 && rows(Service::kXRC) == 23 && rows(Service::kDC) == 23);
static_assert(rows(Service::kUC) == 12);
static_assert(rows(Service::kUD) == 2);
static_assert(rows(Service::kRD) == 0);
static_assert(rows(Service::kCNP) == 1);
static_assert(at(Service::kRC, Op::kReadRequest).ext_bytes == 16);
static_assert(at(Service::kRC, Op::kWriteOnlyImm).ext_bytes == 20);
static_assert(at(Service::kRC, Op::kAtomicAcknowledge).ext_bytes == 12);
static_assert(at(Service::kRC, Op::kCompareSwap).ext_bytes == 28);
static_assert(at(Service::kUD, Op::kSendOnlyImm).ext_bytes == 12);
static_assert(at(Service::kXRC, Op::kFetchAdd).ext_bytes == 32);
static_assert(at(Service::kDC, Op::kFetchAdd).ext_bytes == kMaxExtBytes);
static_assert(at(Service::kXRC, Op::kReadResponseMiddle).ext_bytes == 0);

}  // namespace

constinit const std::array<OpcodeInfo, 256> kOpcodeTable = kTable;

}  // namespace uhca::wire

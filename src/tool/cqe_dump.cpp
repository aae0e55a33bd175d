// SPDX-License-Identifier: MIT
#include "tool/cqe_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "prm/cqe_names.h"

namespace uhca::tool {
namespace {

using Row = std::array<std::uint8_t, 16>;
using prm::CqeOpcode;
using prm::CqeSyndrome;

bool hex_token(const std::string& t, std::size_t digits) {
  return t.size() == digits && t.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

// The numbers that end a line, 16 bytes a row.
std::vector<Row> rows_of(const std::string& line) {
  std::vector<std::string> tokens;
  std::istringstream in(line);
  for (std::string t; in >> t;) tokens.push_back(t);
  for (std::size_t digits : {8u, 2u}) {
    const std::size_t per_row = 32 / digits;
    std::size_t n = 0;
    while (n < tokens.size() && hex_token(tokens[tokens.size() - 1 - n], digits)) ++n;
    n -= n % per_row;
    if (n == 0) continue;
    std::vector<Row> rows;
    std::string all;
    for (std::size_t i = tokens.size() - n; i < tokens.size(); ++i) all += tokens[i];
    for (std::size_t at = 0; at < all.size(); at += 32) {
      Row& r = rows.emplace_back();
      for (std::size_t b = 0; b < 16; ++b) r[b] = static_cast<std::uint8_t>(std::strtoul(all.substr(at + 2 * b, 2).c_str(), nullptr, 16));
    }
    return rows;
  }
  return {};
}

bool is_error(CqeOpcode o) {
  return o == CqeOpcode::REQ_ERR || o == CqeOpcode::RESP_ERR;
}

CqeOpcode opcode_of(const DumpedCqe& c) {
  return static_cast<CqeOpcode>(prm::get<prm::cqe64::opcode>(c.bytes.data()));
}
CqeSyndrome syndrome_of(const DumpedCqe& c) {
  return static_cast<CqeSyndrome>(prm::get<prm::err_cqe::syndrome>(c.bytes.data()));
}

DumpedCqe assemble(const std::vector<Row>& rows) {
  DumpedCqe c;
  c.whole = rows.size() == 4;
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), c.bytes.begin() + static_cast<std::ptrdiff_t>(16 * (4 - rows.size() + i)));
  return c;
}

// A row that reads as the end of an error CQE ends one, however many rows came before: last lines may have been cut out and put together.
bool ends_error_cqe(const Row& r) {
  DumpedCqe c = assemble({r});
  return is_error(opcode_of(c)) && prm::syndrome_name(syndrome_of(c)) != nullptr;
}

const char* usual_cause(CqeSyndrome s, bool requester) {
  switch (s) {
    case CqeSyndrome::LOCAL_LENGTH:
      return requester ? "The message is longer than the transport allows."
                       : "The message is longer than the buffers of the receive that it met; the sender sees a remote invalid request.";
    case CqeSyndrome::LOCAL_QP_OP:
      return "The work request does not fit its QP: an opcode, size or address handle that this QP cannot use.";
    case CqeSyndrome::LOCAL_PROT:
      return requester
                 ? "An SGE's lkey is wrong, deregistered or of another PD, or does not cover addr..addr+length (a READ or atomic also "
                   "needs LOCAL_WRITE)."
                 : "An SGE of the receive has an lkey that is wrong, deregistered, of another PD, without LOCAL_WRITE, or too short.";
    case CqeSyndrome::WR_FLUSH:
      return "The QP was in the error state. The cause is the first completion with another status, or a modify_qp.";
    case CqeSyndrome::MW_BIND:
      return "The memory window cannot be bound: the MR lacks MW_BIND, the range or the access, or the PDs differ.";
    case CqeSyndrome::BAD_RESP: return "The peer's response does not belong to the request: different PSNs or lengths, or a broken peer.";
    case CqeSyndrome::LOCAL_ACCESS: return "Incoming data met a local key that does not allow it.";
    case CqeSyndrome::REMOTE_INVAL_REQ:
      return "The peer rejected the request as such: a SEND longer than its receive, an operation that its QP does not allow, or more "
             "READs "
             "and atomics than its max_dest_rd_atomic.";
    case CqeSyndrome::REMOTE_ACCESS:
      return "The rkey is wrong, deregistered or of another PD than the peer's QP, does not cover the range, or lacks REMOTE_READ, _WRITE "
             "or "
             "_ATOMIC (on the MR or in the peer's qp_access_flags).";
    case CqeSyndrome::REMOTE_OP: return "The peer could not carry out the request: look at its own error completion or async event.";
    case CqeSyndrome::TRANSPORT_RETRY_EXC:
      return "No answer to retry_cnt repetitions: wrong destination QPN, GID or MAC, a peer QP that is gone or not in RTR, or a lossy way.";
    case CqeSyndrome::RNR_RETRY_EXC: return "The peer had no receive posted, and rnr_retry repetitions ran out (7 means for ever).";
    case CqeSyndrome::REMOTE_ABORTED: return "The peer gave the operation up.";
  }
  return "";
}

}  // namespace

std::vector<DumpedCqe> find_cqes(const std::string& text) {
  std::vector<DumpedCqe> found;
  std::vector<Row> rows;
  auto end = [&] {
    // Rows without their end say nothing, unless a lone row is all there is.
    if (rows.size() == 1 || rows.size() == 4) found.push_back(assemble(rows));
    rows.clear();
  };
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    auto next = rows_of(line);
    if (next.empty()) end();
    for (const Row& r : next) {
      rows.push_back(r);
      if (ends_error_cqe(r) && rows.size() < 4) {
        found.push_back(assemble({r}));
        rows.clear();
      } else if (rows.size() == 4) {
        end();
      }
    }
  }
  end();
  return found;
}

Explanation explain(const DumpedCqe& c) {
  const std::uint8_t* p = c.bytes.data();
  const CqeOpcode opcode = opcode_of(c);
  const char* name = prm::cqe_opcode_name(opcode);
  std::string head = fmt::format("{} ({:#x}): ", name ? name : "unknown opcode", static_cast<unsigned>(opcode));
  const unsigned qpn = prm::get<prm::cqe64::qpn>(p);
  const unsigned counter = prm::get<prm::cqe64::wqe_counter>(p);
  const auto op = static_cast<prm::WqeOpcode>(prm::get<prm::cqe64::sop>(p));
  const char* op_name = prm::wqe_opcode_name(op);
  std::string request = op_name ? op_name : fmt::format("opcode {:#x}", static_cast<unsigned>(op));

  if (!is_error(opcode)) {
    if (opcode == CqeOpcode::INVALID) return {head + "an entry that the device has not written", ""};
    if (opcode == CqeOpcode::REQ) return {head + fmt::format("{} on QP {:#x}, WQE {:#x}: completed", request, qpn, counter), ""};
    return {head + fmt::format("QP {:#x}, WQE {:#x}: not an error", qpn, counter), ""};
  }

  const bool requester = opcode == CqeOpcode::REQ_ERR;
  const CqeSyndrome syndrome = syndrome_of(c);
  const auto* s = prm::syndrome_name(syndrome);
  std::string what =
      head + fmt::format("{} on QP {:#x}, WQE {:#x}: {} ({}, syndrome {:#04x}), vendor error {:#04x}", requester ? request : "receive", qpn,
                         counter, s ? s->phrase : "unknown error", s ? s->wc_status : "IBV_WC_GENERAL_ERR", static_cast<unsigned>(syndrome),
                         prm::get<prm::err_cqe::vendor_err_synd>(p));
  if (unsigned hw = prm::get<prm::err_cqe::hw_error_syndrome>(p))
    what += fmt::format(", hardware syndrome {:#04x} type {:#x}", hw, prm::get<prm::err_cqe::hw_synd_type>(p));
  if (c.whole && prm::get<prm::err_cqe::srqn>(p)) what += fmt::format(", SRQ or user index {:#x}", prm::get<prm::err_cqe::srqn>(p));
  return {what, s ? usual_cause(syndrome, requester) : ""};
}

}  // namespace uhca::tool

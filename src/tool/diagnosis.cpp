// SPDX-License-Identifier: MIT
#include "tool/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

namespace uhca::tool {
namespace {

using Events = std::vector<TraceEvent>;

// Statuses by number (enum ibv_wc_status), as the trace names them.
constexpr std::array kStatuses{
    "SUCCESS",       "LOC_LEN_ERR",       "LOC_QP_OP_ERR",    "LOC_EEC_OP_ERR",     "LOC_PROT_ERR",   "WR_FLUSH_ERR",
    "MW_BIND_ERR",   "BAD_RESP_ERR",      "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",    "REM_ACCESS_ERR", "REM_OP_ERR",
    "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",  "INV_EECN_ERR"};

int status_number(const std::string& name) {
  auto it = std::find(kStatuses.begin(), kStatuses.end(), name);
  return it == kStatuses.end() ? -1 : static_cast<int>(it - kStatuses.begin());
}

bool is_poll(const TraceEvent& e) {
  return e.layer == "api" && e.name.rfind("ibv_poll_cq", 0) == 0;
}

bool failed_completion(const TraceEvent& e) {
  return is_poll(e) && !e.text("status").empty() && e.text("status") != "SUCCESS" && e.text("status") != "WR_FLUSH_ERR";
}

// The errno that a call gave; 0: it succeeded.
int failed_call(const TraceEvent& e) {
  if (e.layer != "api" || is_poll(e)) return 0;
  const std::string ret = e.text("ret"), err = e.text("errno");
  int v = std::atoi((ret.empty() ? err : ret).c_str());
  return v < 0 ? -v : v;
}

bool mentions(const std::string& reason, std::string_view what, std::uint64_t number) {
  const std::string text = fmt::format("{} {:#x}", what, number);
  for (std::size_t at = 0; (at = reason.find(text, at)) != std::string::npos; at += text.size())
    if (at + text.size() == reason.size() || !std::isxdigit(static_cast<unsigned char>(reason[at + text.size()]))) return true;
  return false;
}

std::string address_text(const std::string& gid) {
  if (gid.size() != 32) return gid;
  auto byte = [&](std::size_t i) { return std::strtoul(gid.substr(2 * i, 2).c_str(), nullptr, 16); };
  if (gid.rfind("00000000000000000000ffff", 0) == 0) return fmt::format("{}.{}.{}.{}", byte(12), byte(13), byte(14), byte(15));
  std::string out;
  for (std::size_t i = 0; i < 32; i += 4) out += (i ? ":" : "") + gid.substr(i, 4);
  return out;
}

struct Peer {
  std::uint64_t qpn = 0;
  std::string address;
};

class Story {
 public:
  Story(const Events& events, const std::vector<LoggedRefusal>& log, bool calls) : events_(events), log_(log), calls_(calls) {}

  std::string tell() const {
    std::size_t at = first_failure();
    if (at == events_.size()) return {};
    return failed_completion(events_[at]) ? about_completion(at) : about_call(at);
  }

 private:
  // Per process, what failed last is what it could not live with; of several processes, the earliest began it.
  std::size_t first_failure() const {
    std::map<int, std::size_t> last;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const TraceEvent& e = events_[i];
      // After a failed completion all that follows is its consequence.
      if (auto it = last.find(e.pid); it != last.end() && failed_completion(events_[it->second])) continue;
      if (failed_completion(e) || (calls_ && failed_call(e))) last[e.pid] = i;
    }
    std::size_t best = events_.size();
    for (const auto& [pid, i] : last) best = std::min(best, i);
    return best;
  }

  // ---- calls

  std::string about_call(std::size_t at) const {
    const TraceEvent& e = events_[at];
    const int err = failed_call(e);
    const char* err_name = strerrorname_np(err);
    const std::string verb = e.name.rfind("ibv_", 0) == 0 ? e.name.substr(4) : e.name;
    std::string head = fmt::format("{} {}", verb, err_name ? err_name : std::to_string(err));
    if (verb == "post_send" && err == ENOMEM)
      if (std::string why = about_full_queue(at); !why.empty()) return head + ": " + why;
    std::string reason = reason_of_call(at, verb);
    if (reason.empty()) return head + ": no reason was recorded (the refusal came from outside of uhca)";
    if (reason.rfind(verb + ": ", 0) == 0) reason.erase(0, verb.size() + 2);
    if (reason.rfind(verb + " on ", 0) == 0) reason.erase(0, verb.size() + 1);
    return head + ": " + reason;
  }

  // The kernel's and the device's refusals lie on the calling thread, between its previous call and this one's return. The user libraries'
  // are in the log and name the verb.
  std::string reason_of_call(std::size_t at, const std::string& verb) const {
    for (std::size_t i = at; i-- > 0;) {
      const TraceEvent& e = events_[i];
      if (e.tid != events_[at].tid) continue;
      if (e.layer == "refuse") return e.text("reason");
      // A function of the API that is made of another (ibv_reg_mr of ibv_reg_mr_iova2) has its event behind that one's.
      if (e.layer == "api" && (failed_call(e) != failed_call(events_[at]) || e.name.rfind(events_[at].name, 0) != 0)) break;
    }
    for (auto it = log_.rbegin(); it != log_.rend(); ++it)
      if (it->pid == events_[at].pid && it->reason.rfind(verb, 0) == 0) return it->reason;
    return {};
  }

  // Empty: the queue is not what was full.
  std::string about_full_queue(std::size_t at) const {
    const int pid = events_[at].pid;
    const auto qpn = events_[at].number("qpn");
    std::size_t posted = 0, unsignaled = 0, written = 0, polled = 0;
    for (std::size_t i = 0; i < at; ++i) {
      const TraceEvent& e = events_[i];
      if (e.pid != pid || e.number("qpn") != qpn) continue;
      if (e.layer == "api" && e.name == "ibv_post_send" && !failed_call(e)) {
        ++posted;
        constexpr std::uint64_t kSignaled = 2;  // IBV_SEND_SIGNALED
        unsignaled = e.number("send_flags").value_or(0) & kSignaled ? 0 : unsignaled + 1;
      } else if (e.layer == "cqe" && e.name == "SEND_QUEUE") {
        ++written;
      } else if (is_poll(e) && e.text("opcode").rfind("RECV", 0) != 0) {
        ++polled;
      }
    }
    const bool full = std::any_of(log_.begin(), log_.end(), [&](const LoggedRefusal& r) {
      return r.pid == pid && mentions(r.reason, "post_send on QP", qpn.value_or(0)) && r.reason.find("is full") != std::string::npos;
    });
    // The system's own provider leaves no reason; that all places are taken can be counted.
    if (!full && (log_has_post_refusal(pid) || posted == 0)) return {};
    if (written > polled)
      return fmt::format("the send queue of QP {:#x} is full, and {} of its completions wait in the CQ: poll it", qpn.value_or(0),
                         written - polled);
    if (written == 0 && unsignaled == posted)
      return fmt::format("{} unsignalled requests fill the queue of QP {:#x}, no completion can free it: signal one now and then",
                         unsignaled, qpn.value_or(0));
    if (polled > 0 && unsignaled > 0)
      return fmt::format("{} unsignalled requests behind the last signalled one fill the queue of QP {:#x}, no completion can free it",
                         unsignaled, qpn.value_or(0));
    if (polled == 0) return fmt::format("the send queue of QP {:#x} is full, and nobody has polled its CQ", qpn.value_or(0));
    return fmt::format("the requests in the send queue of QP {:#x} fill it and have not completed yet", qpn.value_or(0));
  }

  bool log_has_post_refusal(int pid) const {
    return std::any_of(log_.begin(), log_.end(), [&](auto& r) { return r.pid == pid && r.reason.rfind("post_send", 0) == 0; });
  }

  // ---- completions

  std::string about_completion(std::size_t at) const {
    const TraceEvent& e = events_[at];
    const std::uint64_t qpn = e.number("qpn").value_or(0);
    std::string head = fmt::format("completion status {} ({})", status_number(e.text("status")), e.text("status"));
    if (qpn) head += fmt::format(" on QP {:#x}", qpn);
    const Peer peer = peer_of(at, qpn);
    if (peer.qpn && e.text("status") == "RETRY_EXC_ERR")
      if (std::string why = about_silence(at, peer); !why.empty()) return head + ": " + why;

    std::string own = last_reason(at, [&](const TraceEvent& r) { return r.pid == e.pid && mentions(r.text("reason"), "QP", qpn); });
    // Of the peer: what its device refused in requests for this QP.
    std::string other = last_reason(at, [&](const TraceEvent& r) {
      return peer.qpn && (mentions(r.text("reason"), "QP", peer.qpn) || mentions(r.text("reason"), "for QPN", peer.qpn)) &&
             !mentions(r.text("reason"), "QP", qpn);
    });
    if (other.empty() && own.empty()) return head + ": no reason was recorded here; run the peer under uhca why as well";
    // What the peer says is more than "it refused".
    if (!other.empty()) return head + ": at the peer, " + other;
    const std::string prefix = fmt::format("QP {:#x}: ", qpn);
    if (own.rfind(prefix, 0) == 0) own.erase(0, prefix.size());
    return head + ": " + own;
  }

  // Nobody answered: does the QP exist, and is it ready?
  std::string about_silence(std::size_t at, const Peer& peer) const {
    for (std::size_t i = at; i-- > 0;) {
      const TraceEvent& r = events_[i];
      if (r.layer != "refuse" || !mentions(r.text("reason"), "for QPN", peer.qpn)) continue;
      const std::string reason = r.text("reason");
      if (reason.find("no such QP") == std::string::npos)
        return fmt::format("QP {:#x} at {} does not answer: {}", peer.qpn, peer.address, reason.substr(reason.find("dropped: ") + 9));
      std::string has;
      for (const TraceEvent& c : events_)
        if (c.pid == r.pid && c.layer == "api" && c.name.find("create_qp") != std::string::npos && c.number("qpn"))
          has += fmt::format("{}{:#x}", has.empty() ? "" : ", ", *c.number("qpn"));
      return fmt::format("QP {:#x} does not exist at {}, which has {}", peer.qpn, peer.address, has.empty() ? "none" : has);
    }
    return {};
  }

  // Where the QP was connected to.
  Peer peer_of(std::size_t at, std::uint64_t qpn) const {
    for (std::size_t i = at; i-- > 0;) {
      const TraceEvent& e = events_[i];
      if (e.layer == "cmd" && e.name == "INIT2RTR_QP" && e.pid == events_[at].pid && e.number("qpn") == qpn && e.number("remote_qpn"))
        return {*e.number("remote_qpn"), address_text(e.text("rgid_rip"))};
    }
    return {};
  }

  template <class F>
  std::string last_reason(std::size_t at, F f) const {
    for (std::size_t i = at; i-- > 0;)
      if (events_[i].layer == "refuse" && f(events_[i])) return events_[i].text("reason");
    return {};
  }

  const Events& events_;
  const std::vector<LoggedRefusal>& log_;
  bool calls_;
};

}  // namespace

std::vector<LoggedRefusal> parse_refusals(const std::string& log) {
  std::vector<LoggedRefusal> out;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    // uhca[PID] warn: refused (ERRNO): REASON
    const std::size_t open = line.find("refused ("), close = line.find("): ", open);
    if (line.rfind("uhca[", 0) != 0 || open == std::string::npos || close == std::string::npos) continue;
    out.push_back({std::atoi(line.c_str() + 5), line.substr(open + 9, close - open - 9), line.substr(close + 3)});
  }
  return out;
}

std::string diagnose(const std::vector<TraceEvent>& events, const std::vector<LoggedRefusal>& log, bool calls) {
  return Story(events, log, calls).tell();
}

}  // namespace uhca::tool

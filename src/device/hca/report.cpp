// SPDX-License-Identifier: MIT
// What `uhca top` shows of a function: its counters, and where its QPs stand. A real adapter's counterpart: resource dumps and counters
// that tools read past the driver (mstdump, rdma statistic).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "device/hca/data_path.h"
#include "device/hca/hca.h"
#include "device/hca/qp_states.h"
#include "prm/context.h"
#include "prm/counter_names.h"

namespace uhca::hca {
namespace {

// Who asks holds a lock of the port, which polls may want, and so may a command that holds the lane: the lane is not waited for, the tool
// comes again.
constexpr int kTries = 1000;
constexpr std::size_t kMostQps = 4096;  // shown; they are looked at with the lane held

struct QpReport {
  std::uint32_t qpn, remote_qpn;
  QpType type;
  QpState state;
  std::array<std::uint8_t, prm::qpc::kBytes> qpc{};
};

const char* type_name(QpType t) {
  switch (t) {
    case QpType::kRc: return "RC";
    case QpType::kUc: return "UC";
    case QpType::kUd: return "UD";
    case QpType::kXrc: return "XRC";
    case QpType::kDci: return "DCI";
    case QpType::kQp0: return "SMI";
    case QpType::kQp1: return "GSI";
    case QpType::kRegUmr: return "UMR";
    case QpType::kDctSession: return "DCT";
  }
  return "?";
}

}  // namespace

std::string Hca::report() {
  for (int i = 0; !lane_.try_lock(); ++i) {
    if (i == kTries) return {};
    __builtin_ia32_pause();
  }
  std::vector<QpReport> qps;
  std::size_t all = 0;
  for (const auto& [qpn, qp] : objects_.qps) {
    if (qp->transport == nullptr || qp->type == QpType::kRegUmr || ++all > kMostQps) continue;
    QpReport& r = qps.emplace_back(QpReport{qpn, qp->remote_qpn, qp->type, qp->state});
    data_path_->fill_qpc(*qp, r.qpc.data());
  }
  const Counters c = data_path_->counters();
  lane_.unlock();

  std::sort(qps.begin(), qps.end(), [](const QpReport& a, const QpReport& b) { return a.qpn < b.qpn; });
  std::string out = "{\"port\":{";
  auto number = [&](const char* name, std::uint64_t v) { out += fmt::format("\"{}\":{},", name, v); };
  number("tx_packets", c.rdma_tx.all_packets());
  number("tx_bytes", c.rdma_tx.all_octets());
  number("rx_packets", c.rdma_rx.all_packets());
  number("rx_bytes", c.rdma_rx.all_octets());
  number("rx_bad_icrc", c.rx_bad_icrc);
  number("rx_malformed", c.rx_malformed);
  number("rx_no_qp", c.rx_no_qp);
  number("rx_wrong_path", c.rx_wrong_path);
  number("rx_bad_qkey", c.rx_bad_qkey);
  number("np_ecn_marked_roce_packets", c.np_ecn_marked);
  number("np_cnp_sent", c.np_cnp_sent);
  number("rp_cnp_handled", c.rp_cnp_handled);
  out.back() = '}';
  out += ",\"hw_counters\":{";
  for (const prm::FieldInfo& q : prm::kQCounterNames) number(q.name, prm::get(c.totals.raw.data(), q.field));
  out.back() = '}';
  out += fmt::format(",\"qps_in_all\":{},\"qps\":[", all);
  for (const QpReport& q : qps) {
    using f = prm::qpc;
    auto get = [&](prm::Field field) { return prm::get(q.qpc.data(), field); };
    out += fmt::format(
        "{}{{\"qpn\":{},\"type\":\"{}\",\"state\":\"{}\",\"remote_qpn\":{},\"next_send_psn\":{},\"unacked_psn\":{},\"next_rcv_psn\":{},"
        "\"msn\":{},\"sq_posted\":{},\"sq_done\":{},\"rq_posted\":{},\"rq_done\":{}}}",
        &q == &qps.front() ? "" : ",", q.qpn, type_name(q.type), qp_state_name(q.state), q.remote_qpn, get(f::next_send_psn),
        (get(f::last_acked_psn) + 1) & 0xffffff, get(f::next_rcv_psn), get(f::rmsn), get(f::sw_sq_wqebb_counter),
        get(f::hw_sq_wqebb_counter), get(f::sw_rq_counter), get(f::hw_rq_counter));
  }
  return out + "]}";
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
// What the data path counts. Per QP: mlx5's Q counters (prm::query_q_counter_out) in the QP's counter set and in the lane's totals. Per
// lane: frames that never reached a QP.
#pragma once

#include <cstdint>

#include "device/hca/objects.h"
#include "prm/cmd_object.h"

namespace uhca::hca {

using Qc = prm::query_q_counter_out;

struct Counters {
  CounterSet totals;  // over all QPs, those without a counter set too
  std::uint64_t rx_frames = 0;
  std::uint64_t tx_frames = 0;
  std::uint64_t tx_busy = 0;  // the port had no room
  std::uint64_t rx_bad_icrc = 0;
  std::uint64_t rx_malformed = 0;   // every other parse error
  std::uint64_t rx_no_qp = 0;       // no such QP, or one that takes no frames in its state
  std::uint64_t rx_wrong_path = 0;  // addresses, P_Key or service are not the QP's
  std::uint64_t rx_bad_qkey = 0;    // datagrams with a Q_Key that is not the QP's
  std::uint64_t eq_overruns = 0;
};

template <prm::Field F>
void count(Counters& c, Objects& objects, const Qp& qp) {
  c.totals.add<F>();
  if (qp.counter_set == 0) return;
  if (CounterSet* set = objects.counter_set(qp.counter_set)) set->add<F>();
}

}  // namespace uhca::hca

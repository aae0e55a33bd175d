// SPDX-License-Identifier: MIT
// What the Ethernet half of a lane keeps between doorbells and frames.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "device/hca/eth_wqe.h"
#include "device/hca/flow_steering.h"
#include "device/hca/objects.h"
#include "device/hca/wqe_fetch.h"

namespace uhca::hca {

struct EthPath {
  std::deque<RawQueue*> work;        // SQs with something to send: the port was busy, or others had their turn
  std::vector<RawQueue*> error_rqs;  // RQs whose posts are flushed
  EthSendWqe send_wqe;
  RecvWqe recv_wqe;
  Steering::Deliveries deliveries;

  void schedule(RawQueue& q) {
    if (std::find(work.begin(), work.end(), &q) == work.end()) work.push_back(&q);
  }
  void forget(RawQueue& q) {
    std::erase(work, &q);
    std::erase(error_rqs, &q);
  }
  void reset() {
    work.clear();
    error_rqs.clear();
  }
};

}  // namespace uhca::hca

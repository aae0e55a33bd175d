// SPDX-License-Identifier: MIT
// Names of enumerators, as programs print (and scripts parse) them.
#include "user/verbs/internal.h"

namespace {

template <std::size_t N>
const char* name_of(const char* const (&table)[N], int value) {
  return value >= 0 && static_cast<std::size_t>(value) < N && table[value] ? table[value] : "unknown";
}

}  // namespace

UHCA_EXPORT const char* ibv_node_type_str(enum ibv_node_type node_type) {
  static constexpr const char* kNames[] = {
      nullptr, "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC", "usNIC", "usNIC UDP", "unspecified"};
  static_assert(IBV_NODE_CA == 1 && IBV_NODE_UNSPECIFIED == 7);
  return name_of(kNames, node_type);
}

UHCA_EXPORT const char* ibv_port_state_str(enum ibv_port_state port_state) {
  static constexpr const char* kNames[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
  static_assert(IBV_PORT_NOP == 0 && IBV_PORT_ACTIVE_DEFER == 5);
  return name_of(kNames, port_state);
}

UHCA_EXPORT const char* ibv_event_type_str(enum ibv_event_type event) {
  static constexpr const char* kNames[] = {"CQ error",
                                           "local work queue catastrophic error",
                                           "invalid request local work queue error",
                                           "local access violation work queue error",
                                           "communication established",
                                           "send queue drained",
                                           "path migrated",
                                           "path migration request error",
                                           "local catastrophic error",
                                           "port active",
                                           "port error",
                                           "LID change",
                                           "P_Key change",
                                           "SM change",
                                           "SRQ catastrophic error",
                                           "SRQ limit reached",
                                           "last WQE reached",
                                           "client reregistration",
                                           "GID table change",
                                           "WQ fatal",
                                           "Device link speed change"};
  static_assert(IBV_EVENT_WQ_FATAL == 19 && IBV_EVENT_DEVICE_SPEED_CHANGE_V65 == 20);
  return name_of(kNames, event);
}

UHCA_EXPORT const char* ibv_wc_status_str(enum ibv_wc_status status) {
  static constexpr const char* kNames[] = {"success",
                                           "local length error",
                                           "local QP operation error",
                                           "local EE context operation error",
                                           "local protection error",
                                           "Work Request Flushed Error",
                                           "memory management operation error",
                                           "bad response error",
                                           "local access error",
                                           "remote invalid request error",
                                           "remote access error",
                                           "remote operation error",
                                           "transport retry counter exceeded",
                                           "RNR retry counter exceeded",
                                           "local RDD violation error",
                                           "remote invalid RD request",
                                           "aborted error",
                                           "invalid EE context number",
                                           "invalid EE context state",
                                           "fatal error",
                                           "response timeout error",
                                           "general error",
                                           "TM error",
                                           "TM software rendezvous"};
  static_assert(IBV_WC_TM_RNDV_INCOMPLETE == 23);
  return name_of(kNames, status);
}

// In v65's header, but exported only under the private node.
UHCA_EXPORT const char* ibv_wr_opcode_str(enum ibv_wr_opcode opcode) {
  static constexpr const char* kNames[] = {"rdma-write",
                                           "rdma-write-with-imm",
                                           "send",
                                           "send-with-imm",
                                           "rdma-read",
                                           "atomic-cmp-and-swp",
                                           "atomic-fetch-and-add",
                                           "local-inv",
                                           "bind-mw",
                                           "send-with-inv",
                                           "tso",
                                           "driver1",
                                           nullptr,
                                           nullptr,
                                           "flush",
                                           "atomic-write"};
  static_assert(IBV_WR_DRIVER1 == 11);
  return name_of(kNames, opcode);
}

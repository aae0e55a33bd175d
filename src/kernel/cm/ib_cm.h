// SPDX-License-Identifier: MIT
// The communication manager: connection establishment by MADs. IBTA vol. 1, chapter 12. Linux: drivers/infiniband/core/cm.c,
// <rdma/ib_cm.h>; states, timeouts and answers as there.
//
// No locks, no threads, no clock of its own: the caller holds one lock over all calls (service.h does), hands in received MADs and
// the time. Handlers run inside those calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "kernel/cm/cm_msgs.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel::cm {

enum class CmState : std::uint8_t {
  IDLE,
  LISTEN,
  REQ_SENT,
  REQ_RCVD,
  MRA_REQ_SENT,
  MRA_REQ_RCVD,
  REP_SENT,
  REP_RCVD,
  MRA_REP_SENT,
  MRA_REP_RCVD,
  ESTABLISHED,
  DREQ_SENT,
  DREQ_RCVD,
  TIMEWAIT,
  SIDR_REQ_SENT,
  SIDR_REQ_RCVD
};
const char* to_string(CmState s);

enum class CmEventType : std::uint8_t {
  REQ_ERROR,  // no answer to a REQ
  REQ_RECEIVED,
  REP_ERROR,
  REP_RECEIVED,
  RTU_RECEIVED,
  USER_ESTABLISHED,
  DREQ_ERROR,
  DREQ_RECEIVED,
  DREP_RECEIVED,
  TIMEWAIT_EXIT,
  MRA_RECEIVED,
  REJ_RECEIVED,
  SIDR_REQ_ERROR,
  SIDR_REQ_RECEIVED,
  SIDR_REP_RECEIVED
};

// Linux: struct sa_path_rec, what a RoCE path has of it.
struct PathRec {
  ib_gid dgid{}, sgid{};
  bool roce_v2 = true;
  std::uint32_t flow_label = 0;
  std::uint16_t pkey = 0xffff;
  std::uint8_t hop_limit = 0, traffic_class = 0, sl = 0;
  std::uint8_t mtu = 0;  // enum ib_mtu
  std::uint8_t rate = 0, packet_life_time = 0;
};

// Enhanced connection establishment: vendor options that travel with REQ and REP.
struct Ece {
  std::uint32_t vendor_id = 0, attr_mod = 0;
};

struct CmReqParam {
  PathRec path;
  ib_gid_attr sgid_attr;
  std::uint64_t service_id = 0;
  std::uint32_t qp_num = 0;
  ib_qp_type qp_type = ib_qp_type::RC;
  std::uint32_t starting_psn = 0;
  std::span<const std::uint8_t> private_data;
  std::uint8_t responder_resources = 0, initiator_depth = 0, remote_cm_response_timeout = 0, flow_control = 0,
               local_cm_response_timeout = 0, retry_count = 0, rnr_retry_count = 0, max_cm_retries = 0, srq = 0;
  Ece ece;
};

struct CmRepParam {
  std::uint32_t qp_num = 0, starting_psn = 0;
  std::span<const std::uint8_t> private_data;
  std::uint8_t responder_resources = 0, initiator_depth = 0, flow_control = 0, rnr_retry_count = 0, srq = 0;
  Ece ece;
};

struct CmSidrReqParam {
  PathRec path;
  ib_gid_attr sgid_attr;
  std::uint64_t service_id = 0;
  Nanos timeout = 0;
  std::span<const std::uint8_t> private_data;
  std::uint8_t max_cm_retries = 0;
};

struct CmSidrRepParam {
  std::uint32_t qp_num = 0, qkey = 0;
  CmSidrStatus status = CmSidrStatus::SUCCESS;
  std::span<const std::uint8_t> private_data;
  Ece ece;
};

struct CmId;

// Only the fields of its type are filled. `private_data` points into the MAD: valid during the call, always of the message's full size.
struct CmEvent {
  CmEventType type{};
  std::span<const std::uint8_t> private_data;

  // REQ_RECEIVED, SIDR_REQ_RECEIVED
  std::uint64_t service_id = 0;
  PathRec path;  // from the receiver's point of view
  ib_gid_attr sgid_attr;
  // REQ_RECEIVED, REP_RECEIVED: as seen from the receiver
  std::uint32_t remote_qpn = 0, starting_psn = 0;
  ib_qp_type qp_type = ib_qp_type::RC;
  std::uint8_t responder_resources = 0, initiator_depth = 0, flow_control = 0, retry_count = 0, rnr_retry_count = 0, srq = 0;
  Ece ece;
  // REJ_RECEIVED
  std::uint16_t rej_reason = 0;
  // SIDR_REP_RECEIVED
  std::uint8_t sidr_status = 0;
  std::uint32_t qkey = 0;
};

class CmHandler {
 public:
  virtual ~CmHandler() = default;
  // An event of `id`. For REQ_RECEIVED and SIDR_REQ_RECEIVED the id is a new one: the handler takes it over by setting its own handler,
  // or refuses it. An error destroys the id after the call, with a REJ of reason CONSUMER_DEFINED where one is due; ENOMEM: without
  // an answer, so that the peer's retry may succeed.
  virtual Status cm_event(CmId& id, const CmEvent& event) = 0;
};

struct CmAv {
  rdma_ah_attr ah;
  std::uint16_t pkey_index = 0;
  std::uint8_t timeout = 0;  // local ACK timeout, 4.096 us * 2^n
};

struct CmId {
  std::uint32_t local_id = 0, remote_id = 0;
  std::uint64_t service_id = 0;
  CmState state = CmState::IDLE;
  CmHandler* handler = nullptr;

  // The rest is the communication manager's.
  CmAv av;
  std::uint64_t tid = 0;
  std::uint64_t remote_ca_guid = 0;
  std::uint32_t local_qpn = 0, remote_qpn = 0, sq_psn = 0, rq_psn = 0;
  std::uint16_t pkey = 0xffff;
  ib_qp_type qp_type = ib_qp_type::RC;
  std::uint8_t initiator_depth = 0, responder_resources = 0, retry_count = 0, rnr_retry_count = 0, path_mtu = 0, max_cm_retries = 0,
               target_ack_delay = 0;
  bool in_remote_id_table = false, in_remote_qp_table = false;
  Nanos timeout = 0;                       // of one try
  std::vector<std::uint8_t> private_data;  // of the last answer, for duplicates
  // A message that waits for its answer.
  std::unique_ptr<Mad> msg;
  unsigned retries_left = 0;
  Nanos msg_timeout = 0, msg_deadline = 0;
  unsigned listen_sharecount = 0;
};

// What the communication manager needs of the device under it.
class CmDevice {
 public:
  virtual ~CmDevice() = default;
  virtual std::uint64_t node_guid() const = 0;  // host order
  virtual std::uint8_t local_ca_ack_delay() const = 0;
  virtual std::uint8_t port_num() const = 0;
  // ENOENT: the port has no such GID.
  virtual Result<ib_gid_attr> find_gid(const ib_gid& gid, bool roce_v2) = 0;
  // ENOENT
  virtual Result<std::uint16_t> find_pkey(std::uint16_t pkey) = 0;
  virtual MadTransport& transport() = 0;
  // A connection begins to exist whose other end is that function of this host.
  virtual void met(std::uint32_t function) { (void)function; }
};

class IbCm {
 public:
  // Communication ids of this instance have `id_prefix` in their upper 12 bits: the function's number on its host, by which others
  // hand MADs on (exchange.h). `seed`: where the lower 20 bits start.
  IbCm(CmDevice& device, std::uint32_t id_prefix, std::uint32_t seed);
  ~IbCm();
  IbCm(const IbCm&) = delete;
  IbCm& operator=(const IbCm&) = delete;

  static constexpr unsigned kIdBits = 20;

  void set_now(Nanos now) { now_ = now; }

  CmId& create_id(CmHandler* handler);
  // Tells the peer whatever its state calls for. `quiet`: no REJ for a request that was not answered yet.
  void destroy_id(CmId& id, bool quiet = false);

  // Further listens on one service id share the first one's id (Linux: ib_cm_insert_listen) if they have the same handler; EINVAL.
  Result<CmId*> insert_listen(CmHandler& handler, std::uint64_t service_id);
  bool listens(std::uint64_t service_id) const { return listens_.count(service_id) != 0; }

  // EINVAL: state, or private data too long; ENOENT: no such GID or P_Key at this port.
  Status send_req(CmId& id, const CmReqParam& param);
  Status send_rep(CmId& id, const CmRepParam& param);
  Status send_rtu(CmId& id, std::span<const std::uint8_t> private_data);
  Status send_dreq(CmId& id, std::span<const std::uint8_t> private_data);
  Status send_drep(CmId& id, std::span<const std::uint8_t> private_data);
  Status send_rej(CmId& id, CmRej reason, std::span<const std::uint8_t> ari, std::span<const std::uint8_t> private_data);
  // Duplicates of the peer's message are answered with an MRA from now on, until the answer goes out.
  Status prepare_mra(CmId& id);
  Status send_sidr_req(CmId& id, const CmSidrReqParam& param);
  Status send_sidr_rep(CmId& id, const CmSidrRepParam& param);
  // COMM_EST: a message on the QP came before the RTU. EISCONN: established already.
  Status notify(CmId& id, std::uint32_t ib_event);
  // What the QP's transition to INIT, RTR or RTS takes in this state. attr.qp_state is the target.
  Status init_qp_attr(const CmId& id, ib_qp_attr& attr, std::uint32_t& mask);

  void receive(const Mad& mad, const MadInfo& info);
  // A function of this host has died: what its kernel would have said to each of its connections arrives now.
  void last_words(std::uint32_t function);
  // Retries and timewaits that are due.
  void run_timers();
  Nanos next_deadline() const;

  std::size_t live_ids() const { return ids_.size(); }

  struct Counters {
    std::uint64_t sent = 0, retried = 0, received = 0, duplicates = 0, dropped = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Timewait {
    std::uint32_t local_id, remote_id, remote_qpn;
  };
  using RemoteKey = std::pair<std::uint64_t, std::uint32_t>;

  CmId& new_id();
  // remote_id 0: the peer's is not known yet.
  CmId* acquire(std::uint32_t local_id, std::uint32_t remote_id);
  Result<CmAv> av_by_path(const PathRec& path, const ib_gid_attr& sgid_attr);
  Result<CmAv> av_for_response(const MadInfo& info);
  std::uint64_t form_tid(const CmId& id) const { return id.local_id; }

  Status post(const Mad& mad, const CmAv& av);
  // Keeps the message and sends it again until cancel_msg() or the last timeout.
  Status post_with_retries(CmId& id, const Mad& mad);
  void cancel_msg(CmId& id);
  void send_failed(CmId& id);
  void issue_rej(const Mad& mad, const MadInfo& info, CmRej reason, CmResponse msg_rejected);
  void issue_drep(const Mad& mad, const MadInfo& info);
  void issue_dreq(CmId& id);
  Mad format_rej(const CmId& id, CmState state, CmRej reason, std::span<const std::uint8_t> ari,
                 std::span<const std::uint8_t> private_data);
  Mad format_dreq(const CmId& id, std::span<const std::uint8_t> private_data);
  Mad format_drep(const CmId& id);
  Mad format_mra(const CmId& id, CmResponse message);
  Mad format_rtu(const CmId& id);
  void reply(const Mad& mad, const MadInfo& info);

  bool on_this_host(const CmId& id);
  Mad last_word(const CmId& id);
  void remove_remote(CmId& id);
  // The connection that is there already; nullptr: inserted.
  CmId* insert_remote_id(CmId& id);
  CmId* insert_remote_qpn(CmId& id);
  void enter_timewait(CmId& id);
  void reset_to_idle(CmId& id);
  void set_state(CmId& id, CmState s);
  void deliver(CmId& id, const CmEvent& event);

  void req_handler(const Mad& mad, const MadInfo& info);
  void dup_req_handler(CmId& id, const Mad& mad, const MadInfo& info);
  void rep_handler(const Mad& mad, const MadInfo& info);
  void dup_rep_handler(const Mad& mad, const MadInfo& info);
  void rtu_handler(const Mad& mad);
  void mra_handler(const Mad& mad);
  void rej_handler(const Mad& mad);
  void dreq_handler(const Mad& mad, const MadInfo& info);
  void drep_handler(const Mad& mad);
  void sidr_req_handler(const Mad& mad, const MadInfo& info);
  void sidr_rep_handler(const Mad& mad);

  CmDevice& device_;
  const std::uint32_t id_prefix_;
  std::uint32_t next_id_;
  Nanos now_ = 0;
  std::unordered_map<std::uint32_t, std::unique_ptr<CmId>> ids_;
  std::map<std::uint64_t, CmId*> listens_;
  std::map<RemoteKey, CmId*> remote_ids_, remote_qpns_;
  std::map<std::pair<ib_gid, std::uint32_t>, CmId*> remote_sidrs_;
  std::set<std::pair<Nanos, std::uint32_t>> msg_timers_;  // deadline, local id
  std::multimap<Nanos, Timewait> timewaits_;
  Counters counters_;
};

// 4.096 us * 2^n, roughly, as Linux counts it.
Nanos cm_time(unsigned iba_time);
// 4.096 us * 2^n = CA ACK delay + 2 * packet life time (IBTA vol. 1, 12.7.34), rounded as Linux rounds it.
std::uint8_t cm_ack_timeout(std::uint8_t ca_ack_delay, std::uint8_t packet_life_time);

}  // namespace uhca::kernel::cm

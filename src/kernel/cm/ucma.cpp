// SPDX-License-Identifier: MIT
// Dispatch, identifiers, events.
#include "kernel/cm/ucma.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/cm/file.h"
#include "kernel/cm/ucma_cmd.h"

namespace uhca::kernel::cm {
namespace {

constexpr int kMaxBacklog = 1024;  // Linux: sysctl net/rdma_ucm/max_backlog

constexpr const char* kNames[] = {"CREATE_ID",     "DESTROY_ID", "BIND_IP",    "RESOLVE_IP",   "RESOLVE_ROUTE", "QUERY_ROUTE",
                                  "CONNECT",       "LISTEN",     "ACCEPT",     "REJECT",       "DISCONNECT",    "INIT_QP_ATTR",
                                  "GET_EVENT",     "GET_OPTION", "SET_OPTION", "NOTIFY",       "JOIN_IP_MCAST", "LEAVE_MCAST",
                                  "MIGRATE_ID",    "QUERY",      "BIND",       "RESOLVE_ADDR", "JOIN_MCAST",    "RESOLVE_IB_SERVICE",
                                  "WRITE_CM_EVENT"};

void put_private_data(std::uint8_t* to, std::uint8_t* len, std::span<const std::uint8_t> from) {
  std::size_t n = std::min<std::size_t>(from.size(), 255);
  if (n) std::memcpy(to, from.data(), n);
  *len = static_cast<std::uint8_t>(n);
}

}  // namespace

const char* rdma_cm_command_name(std::uint32_t cmd) {
  return cmd < std::size(kNames) ? kNames[cmd] : "?";
}

const UcmaFile::Handler UcmaFile::kHandlers[] = {
    &UcmaFile::create_id,      &UcmaFile::destroy_id,
    &UcmaFile::bind_ip,        &UcmaFile::resolve_ip,
    &UcmaFile::resolve_route,  &UcmaFile::query_route,
    &UcmaFile::connect,        &UcmaFile::listen,
    &UcmaFile::accept,         &UcmaFile::reject,
    &UcmaFile::disconnect,     &UcmaFile::init_qp_attr,
    &UcmaFile::get_event,      nullptr,
    &UcmaFile::set_option,     &UcmaFile::notify,
    &UcmaFile::join_ip_mcast,  &UcmaFile::leave_mcast,
    &UcmaFile::migrate_id,     &UcmaFile::query,
    &UcmaFile::bind,           &UcmaFile::resolve_addr,
    &UcmaFile::join_mcast,     &UcmaFile::resolve_ib_service,
    &UcmaFile::write_cm_event,
};

Result<std::size_t> UcmaFile::write(UserPtr buf, std::size_t count, FileOf file_of, void* file_of_context) {
  ::rdma_ucm_cmd_hdr hdr;
  if (count < sizeof hdr) return refuse(EINVAL, "rdma_cm: a write of {} bytes is shorter than the header", count);
  UHCA_CHECK(copy_from_user(&hdr, buf, sizeof hdr));
  // Whoever waits for an event while another thread closes the channel goes on waiting, as in Linux, where its call keeps the file (rping
  // closes the channel under its event thread, which would end the program with an error).
  if (closed_ && hdr.cmd != RDMA_USER_CM_CMD_GET_EVENT) return refuse(EBADF, "rdma_cm: the event channel is closed");
  if (hdr.cmd >= std::size(kHandlers)) return refuse(EINVAL, "rdma_cm: no command {}", hdr.cmd);
  if (hdr.in + sizeof hdr > count) return refuse(EINVAL, "rdma_cm: {}: {} bytes of input in a write of {}", kNames[hdr.cmd], hdr.in, count);
  if (!kHandlers[hdr.cmd]) return refuse(ENOSYS, "rdma_cm: {} does not exist", kNames[hdr.cmd]);
  file_of_ = file_of;
  file_of_context_ = file_of_context;
  UHCA_CHECK((this->*kHandlers[hdr.cmd])(buf + sizeof hdr, hdr.in, hdr.out));
  return count;
}

// ---------------------------------------------------------------- contexts

UcmaContext& Ucma::new_context(UcmaFile& file) {
  std::uint32_t n = 0;
  for (auto& [used, c] : contexts_) {
    if (used != n) break;
    ++n;
  }
  auto c = std::make_unique<UcmaContext>();
  c->id = n;
  c->file = &file;
  UcmaContext& ref = *c;
  contexts_.emplace(n, std::move(c));
  return ref;
}

UcmaMulticast& Ucma::new_multicast(UcmaContext& ctx) {
  std::uint32_t n = 0;
  for (auto& [used, m] : multicasts_) {
    if (used != n) break;
    ++n;
  }
  auto m = std::make_unique<UcmaMulticast>();
  m->id = n;
  m->ctx = &ctx;
  UcmaMulticast& ref = *m;
  multicasts_.emplace(n, std::move(m));
  return ref;
}

void UcmaFile::drained() {
  if (events_.empty()) ready_(ready_context_, false);
}

void UcmaFile::drop_context_events(UcmaContext& ctx) {
  std::list<UcmaContext*> unseen;
  events_.remove_if([&](const UcmaEvent& e) {
    if (e.ctx == &ctx && e.conn_req_ctx) unseen.push_back(e.conn_req_ctx);
    return e.ctx == &ctx || e.conn_req_ctx == &ctx;
  });
  drained();
  for (UcmaContext* c : unseen) ucma_.destroy_context(*c);
}

void UcmaFile::drop_multicast_events(UcmaMulticast& mc) {
  events_.remove_if([&](const UcmaEvent& e) { return e.mc == &mc; });
  drained();
}

std::uint32_t Ucma::destroy_context(UcmaContext& ctx) {
  if (ctx.cm_id) cma_.destroy_id(*std::exchange(ctx.cm_id, nullptr));
  ctx.file->drop_context_events(ctx);
  for (auto it = multicasts_.begin(); it != multicasts_.end();) it = it->second->ctx == &ctx ? multicasts_.erase(it) : std::next(it);
  std::uint32_t reported = ctx.events_reported;
  contexts_.erase(ctx.id);
  return reported;
}

UcmaFile::~UcmaFile() {
  if (!closed_) close();
}

void UcmaFile::close() {
  closed_ = true;
  for (bool again = true; again;) {
    again = false;
    for (auto& [n, c] : ucma_.contexts_) {
      if (c->file != this) continue;
      ucma_.destroy_context(*c);
      again = true;
      break;
    }
  }
}

Result<UcmaContext*> UcmaFile::find_ctx(std::uint32_t id) {
  auto it = ucma_.contexts_.find(id);
  if (it == ucma_.contexts_.end()) return refuse(ENOENT, "rdma_cm: no id {}", id);
  if (it->second->file != this) return refuse(EINVAL, "rdma_cm: id {} belongs to another event channel", id);
  return it->second.get();
}

Result<UcmaContext*> UcmaFile::get_ctx(std::uint32_t id) {
  UcmaContext* ctx = UHCA_TRY(find_ctx(id));
  if (ctx->cm_id == nullptr) return refuse(ENXIO, "rdma_cm: the device of id {} was removed", id);
  return ctx;
}

Result<UcmaContext*> UcmaFile::get_ctx_dev(std::uint32_t id) {
  UcmaContext* ctx = UHCA_TRY(get_ctx(id));
  if (!ctx->cm_id->bound) return refuse(EINVAL, "rdma_cm: id {} is not bound to a device", id);
  return ctx;
}

Status UcmaFile::create_id(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_create_id cmd;
  ::rdma_ucm_create_id_resp resp{};
  if (out_len < sizeof resp) return Errno{ENOSPC};
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  ib_qp_type type;
  switch (cmd.ps) {
    case kPsTcp: type = ib_qp_type::RC; break;
    case kPsUdp:
    case kPsIpoib: type = ib_qp_type::UD; break;
    case kPsIb: type = static_cast<ib_qp_type>(cmd.qp_type); break;
    default: return refuse(EINVAL, "rdma_cm: no port space {:#x}", cmd.ps);
  }
  UcmaContext& ctx = ucma_.new_context(*this);
  ctx.uid = cmd.uid;
  ctx.cm_id = &ucma_.cma_.create_id(ucma_, cmd.ps, type);
  ctx.cm_id->context = &ctx;
  resp.id = ctx.id;
  if (Status s = copy_to_user(cmd.response, &resp, sizeof resp); !s) {
    ucma_.destroy_context(ctx);
    return s;
  }
  return success();
}

Status UcmaFile::destroy_id(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_destroy_id cmd;
  ::rdma_ucm_destroy_id_resp resp{};
  if (out_len < sizeof resp) return Errno{ENOSPC};
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaContext* ctx = UHCA_TRY(find_ctx(cmd.id));
  resp.events_reported = ucma_.destroy_context(*ctx);
  return copy_to_user(cmd.response, &resp, sizeof resp);
}

Status UcmaFile::migrate_id(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_migrate_id cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaFile* from = UHCA_TRY(file_of_(file_of_context_, static_cast<int>(cmd.fd)));
  UcmaContext* ctx = UHCA_TRY(from->get_ctx(cmd.id));
  ctx->file = this;
  if (from != this) {
    for (auto it = from->events_.begin(); it != from->events_.end();) {
      auto next = std::next(it);
      if (it->ctx == ctx) {
        if (it->conn_req_ctx) it->conn_req_ctx->file = this;  // the new id that nobody has seen goes where its event goes
        events_.splice(events_.end(), from->events_, it);
      }
      it = next;
    }
    from->drained();
    if (!events_.empty()) ready_(ready_context_, true);
  }
  ::rdma_ucm_migrate_resp resp{ctx->events_reported};
  return copy_to_user(cmd.response, &resp, sizeof resp);
}

// ---------------------------------------------------------------- events

void UcmaFile::push(UcmaEvent event) {
  events_.push_back(std::move(event));
  ready_(ready_context_, true);
}

Status Ucma::rdma_event(RdmaId& id, const RdmaEvent& event) {
  if (event.type != RdmaEventType::DEVICE_REMOVAL) return report(id, event);
  auto* ctx = static_cast<UcmaContext*>(id.context);
  UHCA_CHECK(report(id, event));
  cma_.destroy_id(*std::exchange(ctx->cm_id, nullptr));
  return success();
}

Status Ucma::report(RdmaId& id, const RdmaEvent& event) {
  UcmaEvent e;
  UcmaContext* conn = nullptr;
  if (event.type == RdmaEventType::CONNECT_REQUEST) {
    auto* listener = static_cast<UcmaContext*>(event.listen_id->context);
    if (listener->backlog == 0) return refuse(ENOMEM, "rdma_cm: the backlog of id {} is full: the request is dropped", listener->id);
    --listener->backlog;
    conn = &new_context(*listener->file);
    conn->cm_id = &id;
    id.context = conn;
    e.ctx = listener;
    e.conn_req_ctx = conn;
  } else {
    e.ctx = static_cast<UcmaContext*>(id.context);
    // A new connection that the program has not accepted yet has no uid: its accept will fail, which tells it enough.
    if (!e.ctx->uid) return success();
  }
  if (event.type == RdmaEventType::MULTICAST_JOIN || event.type == RdmaEventType::MULTICAST_ERROR) {
    e.mc = static_cast<UcmaMulticast*>(event.multicast);
    e.resp.uid = e.mc->uid;
    e.resp.id = e.mc->id;
  } else {
    e.resp.uid = e.ctx->uid;
    e.resp.id = conn ? conn->id : e.ctx->id;
  }
  e.resp.event = static_cast<std::uint32_t>(event.type);
  e.resp.status = static_cast<std::uint32_t>(event.status);
  if (id.qp_type == ib_qp_type::UD) {
    auto& ud = e.resp.param.ud;
    put_private_data(ud.private_data, &ud.private_data_len, event.ud.private_data);
    copy_ah_attr(ud.ah_attr, event.ud.ah_attr);
    ud.qp_num = event.ud.qp_num;
    ud.qkey = event.ud.qkey;
  } else {
    auto& c = e.resp.param.conn;
    put_private_data(c.private_data, &c.private_data_len, event.conn.private_data);
    c.responder_resources = event.conn.responder_resources;
    c.initiator_depth = event.conn.initiator_depth;
    c.flow_control = event.conn.flow_control;
    c.retry_count = event.conn.retry_count;
    c.rnr_retry_count = event.conn.rnr_retry_count;
    c.srq = event.conn.srq;
    c.qp_num = event.conn.qp_num;
  }
  e.resp.ece.vendor_id = event.ece.vendor_id;
  e.resp.ece.attr_mod = event.ece.attr_mod;
  UcmaFile& file = *e.ctx->file;
  file.push(std::move(e));
  return success();
}

Status UcmaFile::get_event(UserPtr in, std::size_t, std::size_t out_len) {
  ::rdma_ucm_get_event cmd;
  // Programs of old do not send the last eight bytes, nor the padding before.
  if (out_len < sizeof(::rdma_ucm_event_resp) - sizeof(::rdma_ucm_event_resp::reserved) - sizeof(::rdma_ucm_event_resp::ece))
    return refuse(ENOSPC, "rdma_cm: GET_EVENT: {} bytes for an event of {}", out_len, sizeof(::rdma_ucm_event_resp));
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  if (events_.empty()) return Errno{EAGAIN};
  UcmaEvent& e = events_.front();
  UHCA_CHECK(copy_to_user(cmd.response, &e.resp, std::min(out_len, sizeof e.resp)));
  ++e.ctx->events_reported;
  if (e.mc) ++e.mc->events_reported;
  if (e.conn_req_ctx) ++e.ctx->backlog;
  events_.pop_front();
  drained();
  return success();
}

Status UcmaFile::write_cm_event(UserPtr in, std::size_t, std::size_t) {
  // rdma_user_cm.h of Linux 6.18 and later.
  struct Cmd {
    std::uint32_t id, reserved, event, status;
    union {
      ::rdma_ucm_conn_param conn;
      ::rdma_ucm_ud_param ud;
      std::uint64_t arg;
    } param;
  } cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  if (cmd.event != static_cast<std::uint32_t>(RdmaEventType::USER) && cmd.event != static_cast<std::uint32_t>(RdmaEventType::INTERNAL))
    return refuse(EINVAL, "rdma_cm: WRITE_CM_EVENT of event {}; a program may write USER and INTERNAL", cmd.event);
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  if (!ctx->uid) return refuse(EINVAL, "rdma_cm: WRITE_CM_EVENT to id {}, which has no uid", cmd.id);
  UcmaEvent e;
  e.ctx = ctx;
  e.resp.uid = ctx->uid;
  e.resp.id = ctx->id;
  e.resp.event = cmd.event;
  e.resp.status = cmd.status;
  std::memcpy(&e.resp.param, &cmd.param.arg, sizeof cmd.param.arg);
  push(std::move(e));
  return success();
}

// ---------------------------------------------------------------- connecting

namespace {

RdmaConnParam conn_param(const RdmaId& id, const ::rdma_ucm_conn_param& src) {
  RdmaConnParam p;
  p.private_data = {src.private_data, src.private_data_len};
  p.responder_resources = src.responder_resources;
  p.initiator_depth = src.initiator_depth;
  p.flow_control = src.flow_control;
  p.retry_count = src.retry_count;
  p.rnr_retry_count = src.rnr_retry_count;
  p.srq = src.srq;
  p.qp_num = src.qp_num & 0xffffff;
  p.qkey = id.src.family() == kAfIb ? src.qkey : 0;
  return p;
}

// connect and accept: the command may end before `ece`, where programs of old end it.
template <class Cmd>
Status read_with_ece(Cmd* cmd, UserPtr in, std::size_t in_len, Ece* ece) {
  *cmd = {};
  if (in_len < offsetof(Cmd, ece)) return refuse(EINVAL, "rdma_cm: {} bytes of input, at least {} are needed", in_len, offsetof(Cmd, ece));
  UHCA_CHECK(copy_from_user(cmd, in, std::min(in_len, sizeof *cmd)));
  if (in_len >= sizeof *cmd) *ece = {cmd->ece.vendor_id, cmd->ece.attr_mod};
  return success();
}

}  // namespace

Status UcmaFile::connect(UserPtr in, std::size_t in_len, std::size_t) {
  ::rdma_ucm_connect cmd;
  Ece ece;
  UHCA_CHECK(read_with_ece(&cmd, in, in_len, &ece));
  if (!cmd.conn_param.valid) return refuse(EINVAL, "rdma_cm: CONNECT without connection parameters");
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  return ucma_.cma_.connect(*ctx->cm_id, conn_param(*ctx->cm_id, cmd.conn_param), ece);
}

Status UcmaFile::listen(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_listen cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaContext* ctx = UHCA_TRY(get_ctx(cmd.id));
  auto backlog = static_cast<int>(cmd.backlog);
  ctx->backlog = backlog <= 0 || backlog > kMaxBacklog ? kMaxBacklog : backlog;
  return ucma_.cma_.listen(*ctx->cm_id);
}

Status UcmaFile::accept(UserPtr in, std::size_t in_len, std::size_t) {
  ::rdma_ucm_accept cmd;
  Ece ece;
  UHCA_CHECK(read_with_ece(&cmd, in, in_len, &ece));
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  if (!cmd.conn_param.valid) return ucma_.cma_.accept(*ctx->cm_id, nullptr, ece);
  RdmaConnParam p = conn_param(*ctx->cm_id, cmd.conn_param);
  UHCA_CHECK(ucma_.cma_.accept(*ctx->cm_id, &p, ece));
  ctx->uid = cmd.uid;
  return success();
}

Status UcmaFile::reject(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_reject cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  auto reason = cmd.reason ? static_cast<CmRej>(cmd.reason) : CmRej::CONSUMER_DEFINED;
  if (reason != CmRej::CONSUMER_DEFINED && reason != CmRej::VENDOR_OPTION_NOT_SUPPORTED)
    return refuse(EINVAL, "rdma_cm: REJECT with reason {}; a program may give 28 and 35", cmd.reason);
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  return ucma_.cma_.reject(*ctx->cm_id, {cmd.private_data, cmd.private_data_len}, reason);
}

Status UcmaFile::disconnect(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_disconnect cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  return ucma_.cma_.disconnect(*ctx->cm_id);
}

Status UcmaFile::notify(UserPtr in, std::size_t, std::size_t) {
  ::rdma_ucm_notify cmd;
  UHCA_CHECK(copy_from_user(&cmd, in, sizeof cmd));
  UcmaContext* ctx = UHCA_TRY(get_ctx_dev(cmd.id));
  return ucma_.cma_.notify(*ctx->cm_id, cmd.event);
}

}  // namespace uhca::kernel::cm

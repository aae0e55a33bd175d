// SPDX-License-Identifier: MIT
// The commands of /dev/infiniband/rdma_cm over rdma_cm.h. Linux: drivers/infiniband/core/ucma.c; checks in the same order with the same
// errnos. The caller holds one lock over all calls.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "kernel/cm/rdma_cm.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel::cm {

class UcmaFile;

struct UcmaContext {
  std::uint32_t id = 0;
  UcmaFile* file = nullptr;
  RdmaId* cm_id = nullptr;
  std::uint64_t uid = 0;
  int backlog = 0;
  std::uint32_t events_reported = 0;
};

struct UcmaMulticast {
  std::uint32_t id = 0;
  UcmaContext* ctx = nullptr;
  std::uint64_t uid = 0;
  std::uint32_t events_reported = 0;
  Sockaddr addr;
};

struct UcmaEvent {
  UcmaContext* ctx = nullptr;
  UcmaContext* conn_req_ctx = nullptr;
  UcmaMulticast* mc = nullptr;
  ::rdma_ucm_event_resp resp{};
};

// The contexts and multicast groups of all files: their numbers are global, as in Linux.
class Ucma final : public RdmaEventHandler {
 public:
  Ucma(RdmaCm& cma, ib_device& dev) : cma_(cma), dev_(dev) {}
  // After DEVICE_REMOVAL the id is gone; its context stays until the program destroys it. Linux: ucma_event_handler, ucma_close_id.
  Status rdma_event(RdmaId& id, const RdmaEvent& event) override;

  RdmaCm& cma() { return cma_; }
  ib_device& device() { return dev_; }
  std::size_t contexts() const { return contexts_.size(); }

 private:
  friend class UcmaFile;
  UcmaContext& new_context(UcmaFile& file);
  UcmaMulticast& new_multicast(UcmaContext& ctx);
  Status report(RdmaId& id, const RdmaEvent& event);
  // The events that were reported for it.
  std::uint32_t destroy_context(UcmaContext& ctx);

  RdmaCm& cma_;
  ib_device& dev_;
  std::map<std::uint32_t, std::unique_ptr<UcmaContext>> contexts_;
  std::map<std::uint32_t, std::unique_ptr<UcmaMulticast>> multicasts_;
};

class UcmaFile {
 public:
  // `ready(context, on)`: events wait, or no longer do.
  UcmaFile(Ucma& ucma, void (*ready)(void*, bool), void* context) : ucma_(ucma), ready_(ready), ready_context_(context) {}
  ~UcmaFile();
  UcmaFile(const UcmaFile&) = delete;
  UcmaFile& operator=(const UcmaFile&) = delete;

  // EAGAIN: GET_EVENT found none. `file_of` finds the file behind a descriptor number for MIGRATE_ID: nullptr with ENOENT or EINVAL.
  using FileOf = Result<UcmaFile*> (*)(void* context, int fd);
  // EBADF: it is closed, and this is not GET_EVENT.
  Result<std::size_t> write(UserPtr buf, std::size_t count, FileOf file_of, void* file_of_context);
  // Destroys all its contexts; there will be no others. What then destroys the file need not hold the lock.
  void close();
  bool has_events() const { return !events_.empty(); }

 private:
  friend class Ucma;
  using Handler = Status (UcmaFile::*)(UserPtr in, std::size_t in_len, std::size_t out_len);
  static const Handler kHandlers[];

  Result<UcmaContext*> find_ctx(std::uint32_t id);     // ENOENT, EINVAL: of another file
  Result<UcmaContext*> get_ctx(std::uint32_t id);      // also ENXIO: its device was removed
  Result<UcmaContext*> get_ctx_dev(std::uint32_t id);  // also EINVAL: not bound to a device
  void push(UcmaEvent event);
  // Takes out the unread events of a context that goes away. A CONNECT_REQUEST among them ends the new id that nobody has seen.
  void drop_context_events(UcmaContext& ctx);
  void drop_multicast_events(UcmaMulticast& mc);
  void drained();

  Status create_id(UserPtr, std::size_t, std::size_t);
  Status destroy_id(UserPtr, std::size_t, std::size_t);
  Status bind_ip(UserPtr, std::size_t, std::size_t);
  Status bind(UserPtr, std::size_t, std::size_t);
  Status resolve_ip(UserPtr, std::size_t, std::size_t);
  Status resolve_addr(UserPtr, std::size_t, std::size_t);
  Status resolve_route(UserPtr, std::size_t, std::size_t);
  Status resolve_ib_service(UserPtr, std::size_t, std::size_t);
  Status query_route(UserPtr, std::size_t, std::size_t);
  Status query(UserPtr, std::size_t, std::size_t);
  Status query_addr(UcmaContext&, UserPtr response, std::size_t out_len);
  Status query_path(UcmaContext&, UserPtr response, std::size_t out_len);
  Status query_gid(UcmaContext&, UserPtr response, std::size_t out_len);
  Status connect(UserPtr, std::size_t, std::size_t);
  Status listen(UserPtr, std::size_t, std::size_t);
  Status accept(UserPtr, std::size_t, std::size_t);
  Status reject(UserPtr, std::size_t, std::size_t);
  Status disconnect(UserPtr, std::size_t, std::size_t);
  Status init_qp_attr(UserPtr, std::size_t, std::size_t);
  Status get_event(UserPtr, std::size_t, std::size_t);
  Status set_option(UserPtr, std::size_t, std::size_t);
  Status set_option_id(UcmaContext&, std::uint32_t name, const std::uint8_t* value, std::size_t len);
  Status set_ib_path(UcmaContext&, const std::uint8_t* value, std::size_t len);
  Status notify(UserPtr, std::size_t, std::size_t);
  Status join_ip_mcast(UserPtr, std::size_t, std::size_t);
  Status join_mcast(UserPtr, std::size_t, std::size_t);
  Status process_join(const ::rdma_ucm_join_mcast& cmd, std::size_t out_len);
  Status leave_mcast(UserPtr, std::size_t, std::size_t);
  Status migrate_id(UserPtr, std::size_t, std::size_t);
  Status write_cm_event(UserPtr, std::size_t, std::size_t);

  Ucma& ucma_;
  void (*ready_)(void*, bool);
  void* ready_context_;
  FileOf file_of_ = nullptr;
  void* file_of_context_ = nullptr;
  std::list<UcmaEvent> events_;
  bool closed_ = false;
};

}  // namespace uhca::kernel::cm

// SPDX-License-Identifier: MIT
// The data path of the HCA: doorbells, WQE fetch, transport, completion and event entries. Called with the lane's lock held.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "device/hca/congestion.h"
#include "device/hca/counters.h"
#include "device/hca/objects.h"
#include "device/pci/idle_watch.h"
#include "wire/net/port.h"

namespace uhca::hca {

class Hca;

class DataPath {
 public:
  explicit DataPath(Hca& hca);
  ~DataPath();
  DataPath(const DataPath&) = delete;
  DataPath& operator=(const DataPath&) = delete;

  // ---- from the command interface: objects come, change, go
  // The QP's fields hold the new values; `from` is the state that it left.
  void qp_created(Qp& qp);
  void qp_state_changed(Qp& qp, QpState from);
  // Before the object is erased: forgets timers, queued frames, references. To RESET likewise through qp_state_changed.
  void qp_destroyed(Qp& qp);
  void cq_destroyed(Cq& cq);
  void cq_moderation_changed();   // of any CQ: events that were held back may be due
  void mkey_changed(Mkey& mkey);  // or new
  void mkey_destroyed(Mkey& mkey);
  // The limit was set; before the object is erased.
  void srq_armed(Srq& srq);
  void srq_destroyed(Srq& srq);
  void raw_queue_state_changed(RawQueue& q, RawQueue::State from);
  void raw_queue_destroyed(RawQueue& q);
  // Its sessions end.
  void dct_drained(Dct& dct);
  // For QUERY_QP: writes the live values (PSNs, counters, state) into the context.
  void fill_qpc(Qp& qp, void* qpc);

  // ---- doorbells (the stored bytes as a little-endian number; hints only)
  void uar_store(std::uint64_t offset_in_page, std::uint32_t uar_index, std::uint64_t value);
  void blue_flame_write(std::uint64_t offset_in_page, std::uint32_t uar_index, const std::array<std::uint64_t, 8>& words);
  void look_at_send_queue(Qp& qp);
  void look_at_raw_queue(RawQueue& q);
  void look_at_cq(Cq& cq);

  // ---- running
  // Nothing that was sent waits any longer (Lane::flush).
  void flush();
  bool drive(bool thorough);
  void set_idle_watch(pci::IdleWatch* watch);
  void note_work();  // at the end of every entry but drive()
  Nanos next_deadline() const;
  unsigned armed_cqs() const;
  // Frames and errors of all QPs (per QP: its counter set, Objects::counter_sets).
  Counters& counters();
  CongestionSettings& congestion();
  void reset();

  // ---- events: used by both halves
  // Puts an EQE of this type with 28 bytes of event data into every EQ that subscribes to it (completion EQEs: the CQ's own EQ).
  void async_event(std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len);
  void write_eqe(Eq& eq, std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len);
  void eq_doorbell(Eq& eq, std::uint32_t ci, bool arm);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uhca::hca

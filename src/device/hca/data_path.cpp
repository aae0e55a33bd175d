// SPDX-License-Identifier: MIT
#include "device/hca/data_path.h"

#include "device/hca/hca.h"
#include "device/hca/qp_transport.h"

namespace uhca::hca {

Qp::Qp() = default;
Qp::~Qp() = default;

struct DataPath::Impl {
  explicit Impl(Hca& h) : hca(h) {}
  Hca& hca;
};

DataPath::DataPath(Hca& hca) : impl_(std::make_unique<Impl>(hca)) {}
DataPath::~DataPath() = default;
void DataPath::qp_created(Qp&) {}
void DataPath::qp_state_changed(Qp&, QpState) {}
void DataPath::qp_destroyed(Qp&) {}
void DataPath::cq_destroyed(Cq&) {}
void DataPath::mkey_destroyed(Mkey&) {}
void DataPath::fill_qpc(const Qp&, void*) {}
void DataPath::uar_store(std::uint64_t, std::uint32_t, std::uint64_t) {}
void DataPath::look_at_send_queue(Qp&) {}
void DataPath::look_at_cq(Cq&) {}
bool DataPath::drive(bool) { return false; }
Nanos DataPath::next_deadline() const { return kNever; }
unsigned DataPath::armed_cqs() const { return 0; }
void DataPath::reset() {}
void DataPath::async_event(std::uint8_t, std::uint8_t, const void*, std::size_t) {}
void DataPath::write_eqe(Eq&, std::uint8_t, std::uint8_t, const void*, std::size_t) {}
void DataPath::eq_doorbell(Eq&, std::uint32_t, bool) {}

}  // namespace uhca::hca

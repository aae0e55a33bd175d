// SPDX-License-Identifier: MIT
// Shared receive queues as a driver keeps them: WQEs linked by index, a counter of posts in the doorbell record.
#pragma once

#include "hca/dp_harness.h"
#include "prm/cmd_qp.h"

namespace uhca::hcatest {

struct SrqHandle {
  std::uint32_t srqn = 0;
  pci::DmaAddr buf = 0, dbr = 0;
  unsigned log_size = 0, log_stride = 6;
  std::uint16_t head = 0, tail = 0, counter = 0;
};

class SrqTest : public DpTest {
 protected:
  SrqHandle srq_memory(unsigned log_size) {
    SrqHandle h;
    h.log_size = log_size;
    h.buf = bench.bus.alloc(std::size_t{1} << (log_size + h.log_stride));
    h.dbr = bench.bus.alloc(64);
    h.tail = static_cast<std::uint16_t>((1u << log_size) - 1);
    for (unsigned i = 0; i < 1u << log_size; ++i) link(h, i, (i + 1) & h.tail);
    return h;
  }
  SrqHandle create_rmp(unsigned log_size, std::uint32_t pd = 0) {
    SrqHandle h = srq_memory(log_size);
    std::size_t bytes = std::size_t{1} << (log_size + h.log_stride);
    Request<prm::create_rmp_in> r(prm::Opcode::CREATE_RMP, 0, Bench::pas_bytes(bytes));
    void* c = r.at<prm::create_rmp_in::ctx>();
    prm::set<prm::rmpc::state>(c, 1);
    void* wq = prm::at<prm::rmpc::wq>(c);
    prm::set<prm::wq::log_wq_sz>(wq, log_size);
    prm::set<prm::wq::log_wq_stride>(wq, h.log_stride);
    prm::set<prm::wq::pd>(wq, pd ? pd : bench.pd);
    prm::set<prm::wq::dbr_addr>(wq, h.dbr);
    put_pages(r.bytes.data() + prm::create_rmp_in::kBytes, h.buf, bytes);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    h.srqn = out.get<prm::create_rmp_out::rmpn>();
    return h;
  }
  SrqHandle create_xrc_srq(unsigned log_size, std::uint32_t xrcd, std::uint32_t cqn, std::uint32_t user_index) {
    SrqHandle h = srq_memory(log_size);
    std::size_t bytes = std::size_t{1} << (log_size + h.log_stride);
    Request<prm::create_xrc_srq_in> r(prm::Opcode::CREATE_XRC_SRQ, 0, Bench::pas_bytes(bytes));
    void* c = r.at<prm::create_xrc_srq_in::xrc_srq_context_entry>();
    prm::set<prm::xrc_srqc::log_xrc_srq_size>(c, log_size);
    prm::set<prm::xrc_srqc::log_rq_stride>(c, h.log_stride - 4);
    prm::set<prm::xrc_srqc::pd>(c, bench.pd);
    prm::set<prm::xrc_srqc::xrcd>(c, xrcd);
    prm::set<prm::xrc_srqc::cqn>(c, cqn);
    prm::set<prm::xrc_srqc::user_index>(c, user_index);
    prm::set<prm::xrc_srqc::db_record_addr_h>(c, h.dbr >> 32);
    prm::set<prm::xrc_srqc::db_record_addr_l>(c, (h.dbr & 0xffffffff) >> 2);
    put_pages(r.bytes.data() + prm::create_xrc_srq_in::kBytes, h.buf, bytes);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    h.srqn = out.get<prm::create_xrc_srq_out::xrc_srqn>();
    return h;
  }
  Reply arm_rmp(const SrqHandle& h, unsigned limit) {
    Request<prm::modify_rmp_in> r(prm::Opcode::MODIFY_RMP);
    r.set<prm::modify_rmp_in::rmpn>(h.srqn).set<prm::modify_rmp_in::rmp_state>(1);
    prm::set<prm::rmpc::state>(r.at<prm::modify_rmp_in::ctx>(), 1);
    prm::set<prm::rmp_bitmask::lwm>(r.at<prm::modify_rmp_in::bitmask>(), 1);
    prm::set<prm::wq::lwm>(prm::at<prm::rmpc::wq>(r.at<prm::modify_rmp_in::ctx>()), limit);
    return bench.cmd.exec(r);
  }
  unsigned queried_limit(const SrqHandle& h) {
    Request<prm::query_rmp_in> q(prm::Opcode::QUERY_RMP);
    q.set<prm::query_rmp_in::rmpn>(h.srqn);
    Reply r = bench.cmd.exec(q, prm::query_rmp_out::kBytes);
    EXPECT_TRUE(r.ok());
    return prm::get<prm::wq::lwm>(prm::at<prm::rmpc::wq>(r.at<prm::query_rmp_out::rmp_context>()));
  }
  std::uint16_t post_srq(SrqHandle& h, const std::vector<Sge>& sges) {
    std::uint16_t index = h.head;
    h.head = next_of(h, index);
    std::uint8_t* w = wqe(h, index) + 16;
    unsigned j = 0;
    for (const Sge& s : sges) put_segment(w + 16 * j++, s.len, s.lkey, s.addr);
    if (j < (1u << h.log_stride) / 16 - 1) put_segment(w + 16 * j, 0, prm::kInvalidLkey, 0);
    bench.bus.put_be32(h.dbr, ++h.counter);
    return index;
  }
  // The WQE has completed: software links it behind the last free one.
  void free_srq(SrqHandle& h, std::uint16_t index) {
    link(h, h.tail, index);
    h.tail = index;
  }
  std::uint8_t* wqe(const SrqHandle& h, unsigned index) { return bench.bus.host(h.buf) + (std::size_t{index} << h.log_stride); }
  void link(const SrqHandle& h, unsigned index, unsigned next) { prm::set<prm::wqe_srq_next_seg::next_wqe_index>(wqe(h, index), next); }
  std::uint16_t next_of(const SrqHandle& h, unsigned index) {
    return static_cast<std::uint16_t>(prm::get<prm::wqe_srq_next_seg::next_wqe_index>(wqe(h, index)));
  }

 private:
  static void put_segment(std::uint8_t* p, std::uint32_t len, std::uint32_t lkey, std::uint64_t addr) {
    prm::set<prm::wqe_data_seg::byte_count>(p, len);
    prm::set<prm::wqe_data_seg::lkey>(p, lkey);
    prm::set<prm::wqe_data_seg::addr>(p, addr);
  }
  static void put_pages(std::uint8_t* p, pci::DmaAddr buf, std::size_t bytes) {
    for (std::size_t i = 0; i < (bytes + 4095) / 4096; ++i) store_be<std::uint64_t>(p + i * 8, buf + i * 4096);
  }
};

}  // namespace uhca::hcatest

// SPDX-License-Identifier: MIT
// The handlers of all commands, by family; named in the dispatch table (cmd_table.cpp).
#pragma once

#include "device/hca/cmd_if.h"

namespace uhca::hca::cmd {

using Status = prm::CmdStatus;

// cmd_core.cpp
Status enable_hca(Command&);
Status disable_hca(Command&);
Status query_issi(Command&);
Status set_issi(Command&);
Status query_pages(Command&);
Status manage_pages(Command&);
Status query_hca_cap(Command&);
Status set_hca_cap(Command&);
Status init_hca(Command&);
Status teardown_hca(Command&);
Status query_adapter(Command&);
Status nop(Command&);
Status query_special_contexts(Command&);
Status set_driver_version(Command&);
// cmd_user.cpp
Status create_uctx(Command&);
Status destroy_uctx(Command&);
Status create_umem(Command&);
Status destroy_umem(Command&);
// cmd_congestion.cpp
Status query_cong_status(Command&);
Status modify_cong_status(Command&);
Status query_cong_params(Command&);
Status modify_cong_params(Command&);
Status query_cong_statistics(Command&);
// cmd_qos.cpp
Status create_general_object(Command&);
Status query_general_object(Command&);
Status modify_general_object(Command&);
Status destroy_general_object(Command&);
Status set_pp_rate_limit(Command&);
// What INIT2INIT_QP and RTS2RTS_QP may change beyond the first 32 optional parameters.
Status check_extended(Command&, const Qp& qp, std::uint64_t mask);
void apply_extended(Command&, Qp& qp, std::uint64_t mask, const std::uint8_t* qpc);
void leave_queue_groups(Command&, Qp& qp);
// cmd_pd_uar_td.cpp
Status alloc_pd(Command&);
Status dealloc_pd(Command&);
Status alloc_uar(Command&);
Status dealloc_uar(Command&);
Status alloc_transport_domain(Command&);
Status dealloc_transport_domain(Command&);
Status alloc_xrcd(Command&);
Status dealloc_xrcd(Command&);
Status alloc_q_counter(Command&);
Status dealloc_q_counter(Command&);
Status query_q_counter(Command&);
// cmd_mkey.cpp
Status create_mkey(Command&);
Status query_mkey(Command&);
Status destroy_mkey(Command&);
// cmd_memic.cpp
Status alloc_memic(Command&);
Status dealloc_memic(Command&);
Status modify_memic(Command&);
// cmd_eq.cpp
Status create_eq(Command&);
Status query_eq(Command&);
Status destroy_eq(Command&);
// cmd_cq.cpp
Status create_cq(Command&);
Status query_cq(Command&);
Status modify_cq(Command&);
Status destroy_cq(Command&);
// cmd_qp.cpp
Status create_qp(Command&);
Status destroy_qp(Command&);
Status modify_qp(Command&);
Status query_qp(Command&);
// cmd_mcg.cpp
Status attach_to_mcg(Command&);
Status detach_from_mcg(Command&);
// cmd_srq_rmp.cpp
Status create_srq(Command&);
Status query_srq(Command&);
Status destroy_srq(Command&);
Status arm_rq(Command&);
Status create_xrc_srq(Command&);
Status query_xrc_srq(Command&);
Status destroy_xrc_srq(Command&);
Status arm_xrc_srq(Command&);
Status create_rmp(Command&);
Status modify_rmp(Command&);
Status query_rmp(Command&);
Status destroy_rmp(Command&);
// cmd_dct.cpp
Status create_dct(Command&);
Status drain_dct(Command&);
Status query_dct(Command&);
Status destroy_dct(Command&);
// cmd_eth.cpp
Status create_tis(Command&);
Status modify_tis(Command&);
Status query_tis(Command&);
Status destroy_tis(Command&);
Status create_tir(Command&);
Status modify_tir(Command&);
Status query_tir(Command&);
Status destroy_tir(Command&);
Status create_rqt(Command&);
Status modify_rqt(Command&);
Status query_rqt(Command&);
Status destroy_rqt(Command&);
// cmd_raw_queue.cpp
Status create_rq(Command&);
Status modify_rq(Command&);
Status query_rq(Command&);
Status destroy_rq(Command&);
Status create_sq(Command&);
Status modify_sq(Command&);
Status query_sq(Command&);
Status destroy_sq(Command&);
// cmd_flow.cpp
Status create_flow_table(Command&);
Status modify_flow_table(Command&);
Status query_flow_table(Command&);
Status destroy_flow_table(Command&);
Status set_flow_table_root(Command&);
Status create_flow_group(Command&);
Status query_flow_group(Command&);
Status destroy_flow_group(Command&);
Status set_fte(Command&);
Status query_fte(Command&);
Status delete_fte(Command&);
Status alloc_flow_counter(Command&);
Status dealloc_flow_counter(Command&);
Status query_flow_counter(Command&);
// cmd_vport.cpp
Status query_nic_vport_context(Command&);
Status modify_nic_vport_context(Command&);
Status query_vport_state(Command&);
Status modify_vport_state(Command&);
Status query_vport_counter(Command&);
Status query_hca_vport_context(Command&);
Status query_hca_vport_gid(Command&);
Status query_hca_vport_pkey(Command&);
Status set_roce_address(Command&);
Status query_roce_address(Command&);
Status set_l2_table_entry(Command&);
Status delete_l2_table_entry(Command&);
// cmd_reg.cpp
Status access_reg(Command&);
// cmd_mad.cpp
Status mad_ifc(Command&);

// ---- shared by the families
// Decodes a list of page addresses (big-endian 64 bits each) behind the fixed part of the input. `log_page`: bytes of a page, log2;
// `page_offset`: in units of page size / 64, as every context counts it.
Status take_queue_buffer(Command& c, std::span<const std::uint8_t> pas, unsigned log_page, unsigned page_offset, std::uint64_t bytes,
                         QueueBuffer& out);
// The same, of a umem that the program names: `bytes` at `offset` in there.
Status take_umem_buffer(Command& c, std::uint32_t id, std::uint64_t offset, std::uint64_t bytes, QueueBuffer& out);
// A doorbell record in a umem.
Status take_umem_dbr(Command& c, std::uint32_t id, std::uint64_t offset, pci::DmaAddr& dbr);
// Doorbell record and queue of a wq context, listed or in umems.
Status take_wq_memory(Command& c, const void* wq, std::span<const std::uint8_t> pas, std::uint64_t bytes, pci::DmaAddr& dbr,
                      QueueBuffer& out);
// Writes page addresses for a QUERY, as far as the output has room from byte `from` on.
void put_pages(Command& c, std::size_t from, const QueueBuffer& buf);
// A doorbell record must be 8-byte aligned and not null.
bool bad_dbr(pci::DmaAddr dbr);
// Tells the driver that the port went up or down (Linux device.h: MLX5_PORT_CHANGE_SUBTYPE_*).
void port_change_event(Hca& hca, bool up);

}  // namespace uhca::hca::cmd

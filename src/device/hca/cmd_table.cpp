// SPDX-License-Identifier: MIT
// Which commands there are: opcode, handler, least lengths, layouts for the trace.
#include <algorithm>
#include <array>

#include "device/hca/cmd_handlers.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/cmd_vport.h"
#include "prm/congestion.h"
#include "prm/memic.h"
#include "prm/reg.h"

namespace uhca::hca {
namespace {

// min_out: where callers need not have room for the whole answer.
#define UHCA_CMD_CUT(op_, handler_, needs_, in_, out_, min_out_)                                                                    \
  CommandInfo {                                                                                                                     \
    prm::Opcode::op_, cmd::handler_, prm::in_::kBytes, min_out_, Needs::needs_, &prm::in_##_table::kInfo, &prm::out_##_table::kInfo \
  }
#define UHCA_CMD(op_, handler_, needs_, in_, out_)                                                                 \
  CommandInfo {                                                                                                    \
    prm::Opcode::op_, cmd::handler_, prm::in_::kBytes, prm::out_::kBytes, Needs::needs_, &prm::in_##_table::kInfo, \
        &prm::out_##_table::kInfo                                                                                  \
  }
// min_in: where callers may leave out the end of the input.
#define UHCA_CMD_SHORT(op_, handler_, needs_, in_, out_, min_in_)                                                                   \
  CommandInfo {                                                                                                                     \
    prm::Opcode::op_, cmd::handler_, min_in_, prm::out_::kBytes, Needs::needs_, &prm::in_##_table::kInfo, &prm::out_##_table::kInfo \
  }
// Where the layout's name is the handler's.
#define UHCA_CMD_N(op_, name_) UHCA_CMD(op_, name_, kInitialized, name_##_in, name_##_out)

// Sorted by opcode.
constexpr CommandInfo kTable[] = {
    UHCA_CMD_CUT(QUERY_HCA_CAP, query_hca_cap, kEnabled, query_hca_cap_in, query_hca_cap_out,
                 prm::byte_of<prm::query_hca_cap_out::capability>),
    UHCA_CMD(QUERY_ADAPTER, query_adapter, kEnabled, query_adapter_in, query_adapter_out),
    UHCA_CMD_SHORT(INIT_HCA, init_hca, kEnabled, init_hca_in, init_hca_out, prm::byte_of<prm::init_hca_in::sw_owner_id>),
    UHCA_CMD(TEARDOWN_HCA, teardown_hca, kInitialized, teardown_hca_in, teardown_hca_out),
    UHCA_CMD(ENABLE_HCA, enable_hca, kNothing, enable_hca_in, enable_hca_out),
    UHCA_CMD(DISABLE_HCA, disable_hca, kEnabled, disable_hca_in, disable_hca_out),
    UHCA_CMD(QUERY_PAGES, query_pages, kEnabled, query_pages_in, query_pages_out),
    UHCA_CMD(MANAGE_PAGES, manage_pages, kEnabled, manage_pages_in, manage_pages_out),
    UHCA_CMD(SET_HCA_CAP, set_hca_cap, kEnabled, set_hca_cap_in, set_hca_cap_out),
    UHCA_CMD(QUERY_ISSI, query_issi, kEnabled, query_issi_in, query_issi_out),
    UHCA_CMD(SET_ISSI, set_issi, kEnabled, set_issi_in, set_issi_out),
    UHCA_CMD(SET_DRIVER_VERSION, set_driver_version, kEnabled, set_driver_version_in, set_driver_version_out),
    UHCA_CMD_N(CREATE_MKEY, create_mkey),
    UHCA_CMD_N(QUERY_MKEY, query_mkey),
    UHCA_CMD_N(DESTROY_MKEY, destroy_mkey),
    UHCA_CMD_N(QUERY_SPECIAL_CONTEXTS, query_special_contexts),
    UHCA_CMD_N(ALLOC_MEMIC, alloc_memic),
    UHCA_CMD_N(DEALLOC_MEMIC, dealloc_memic),
    UHCA_CMD_N(MODIFY_MEMIC, modify_memic),
    UHCA_CMD_N(CREATE_EQ, create_eq),
    UHCA_CMD_N(DESTROY_EQ, destroy_eq),
    UHCA_CMD_N(QUERY_EQ, query_eq),
    UHCA_CMD_N(CREATE_CQ, create_cq),
    UHCA_CMD_N(DESTROY_CQ, destroy_cq),
    UHCA_CMD_N(QUERY_CQ, query_cq),
    UHCA_CMD_N(MODIFY_CQ, modify_cq),
    UHCA_CMD_N(CREATE_QP, create_qp),
    UHCA_CMD_N(DESTROY_QP, destroy_qp),
    UHCA_CMD(RST2INIT_QP, modify_qp, kInitialized, rst2init_qp_in, rst2init_qp_out),
    UHCA_CMD(INIT2RTR_QP, modify_qp, kInitialized, init2rtr_qp_in, init2rtr_qp_out),
    UHCA_CMD(RTR2RTS_QP, modify_qp, kInitialized, rtr2rts_qp_in, rtr2rts_qp_out),
    UHCA_CMD(RTS2RTS_QP, modify_qp, kInitialized, rts2rts_qp_in, rts2rts_qp_out),
    UHCA_CMD(SQERR2RTS_QP, modify_qp, kInitialized, sqerr2rts_qp_in, sqerr2rts_qp_out),
    UHCA_CMD(TO_2ERR_QP, modify_qp, kInitialized, qp_2err_in, qp_2err_out),
    UHCA_CMD(TO_2RST_QP, modify_qp, kInitialized, qp_2rst_in, qp_2rst_out),
    UHCA_CMD_N(QUERY_QP, query_qp),
    UHCA_CMD(SQD_RTS_QP, modify_qp, kInitialized, sqd2rts_qp_in, sqd2rts_qp_out),
    UHCA_CMD_N(MAD_IFC, mad_ifc),
    UHCA_CMD(INIT2INIT_QP, modify_qp, kInitialized, init2init_qp_in, init2init_qp_out),
    UHCA_CMD_N(CREATE_SRQ, create_srq),
    UHCA_CMD_N(DESTROY_SRQ, destroy_srq),
    UHCA_CMD_N(QUERY_SRQ, query_srq),
    UHCA_CMD_N(ARM_RQ, arm_rq),
    UHCA_CMD_N(CREATE_XRC_SRQ, create_xrc_srq),
    UHCA_CMD_N(DESTROY_XRC_SRQ, destroy_xrc_srq),
    UHCA_CMD_N(QUERY_XRC_SRQ, query_xrc_srq),
    UHCA_CMD_N(ARM_XRC_SRQ, arm_xrc_srq),
    UHCA_CMD_N(CREATE_DCT, create_dct),
    UHCA_CMD_N(DESTROY_DCT, destroy_dct),
    UHCA_CMD_N(DRAIN_DCT, drain_dct),
    UHCA_CMD_N(QUERY_DCT, query_dct),
    UHCA_CMD_N(QUERY_VPORT_STATE, query_vport_state),
    UHCA_CMD_N(MODIFY_VPORT_STATE, modify_vport_state),
    UHCA_CMD_N(QUERY_NIC_VPORT_CONTEXT, query_nic_vport_context),
    UHCA_CMD_N(MODIFY_NIC_VPORT_CONTEXT, modify_nic_vport_context),
    UHCA_CMD_N(QUERY_ROCE_ADDRESS, query_roce_address),
    UHCA_CMD_N(SET_ROCE_ADDRESS, set_roce_address),
    UHCA_CMD_N(QUERY_HCA_VPORT_CONTEXT, query_hca_vport_context),
    UHCA_CMD_N(QUERY_HCA_VPORT_GID, query_hca_vport_gid),
    UHCA_CMD_N(QUERY_HCA_VPORT_PKEY, query_hca_vport_pkey),
    UHCA_CMD_N(QUERY_VPORT_COUNTER, query_vport_counter),
    UHCA_CMD_N(ALLOC_Q_COUNTER, alloc_q_counter),
    UHCA_CMD_N(DEALLOC_Q_COUNTER, dealloc_q_counter),
    UHCA_CMD_N(QUERY_Q_COUNTER, query_q_counter),
    UHCA_CMD_N(SET_PP_RATE_LIMIT, set_pp_rate_limit),
    UHCA_CMD_N(ALLOC_PD, alloc_pd),
    UHCA_CMD_N(DEALLOC_PD, dealloc_pd),
    UHCA_CMD_N(ALLOC_UAR, alloc_uar),
    UHCA_CMD_N(DEALLOC_UAR, dealloc_uar),
    UHCA_CMD(ACCESS_REG, access_reg, kEnabled, access_register_in, access_register_out),
    UHCA_CMD_N(ATTACH_TO_MCG, attach_to_mcg),
    UHCA_CMD_N(DETACH_FROM_MCG, detach_from_mcg),
    UHCA_CMD(NOP, nop, kNothing, nop_in, nop_out),
    UHCA_CMD_N(ALLOC_XRCD, alloc_xrcd),
    UHCA_CMD_N(DEALLOC_XRCD, dealloc_xrcd),
    UHCA_CMD_N(ALLOC_TRANSPORT_DOMAIN, alloc_transport_domain),
    UHCA_CMD_N(DEALLOC_TRANSPORT_DOMAIN, dealloc_transport_domain),
    UHCA_CMD_N(QUERY_CONG_STATUS, query_cong_status),
    UHCA_CMD_N(MODIFY_CONG_STATUS, modify_cong_status),
    UHCA_CMD_N(QUERY_CONG_PARAMS, query_cong_params),
    UHCA_CMD_N(MODIFY_CONG_PARAMS, modify_cong_params),
    UHCA_CMD_N(QUERY_CONG_STATISTICS, query_cong_statistics),
    UHCA_CMD_N(SET_L2_TABLE_ENTRY, set_l2_table_entry),
    UHCA_CMD_N(DELETE_L2_TABLE_ENTRY, delete_l2_table_entry),
    UHCA_CMD_N(CREATE_TIR, create_tir),
    UHCA_CMD_N(MODIFY_TIR, modify_tir),
    UHCA_CMD_N(DESTROY_TIR, destroy_tir),
    UHCA_CMD_N(QUERY_TIR, query_tir),
    UHCA_CMD_N(CREATE_SQ, create_sq),
    UHCA_CMD_N(MODIFY_SQ, modify_sq),
    UHCA_CMD_N(DESTROY_SQ, destroy_sq),
    UHCA_CMD_N(QUERY_SQ, query_sq),
    UHCA_CMD_N(CREATE_RQ, create_rq),
    UHCA_CMD_N(MODIFY_RQ, modify_rq),
    UHCA_CMD_N(DESTROY_RQ, destroy_rq),
    UHCA_CMD_N(QUERY_RQ, query_rq),
    UHCA_CMD_N(CREATE_RMP, create_rmp),
    UHCA_CMD_N(MODIFY_RMP, modify_rmp),
    UHCA_CMD_N(DESTROY_RMP, destroy_rmp),
    UHCA_CMD_N(QUERY_RMP, query_rmp),
    UHCA_CMD_N(CREATE_TIS, create_tis),
    UHCA_CMD_N(MODIFY_TIS, modify_tis),
    UHCA_CMD_N(DESTROY_TIS, destroy_tis),
    UHCA_CMD_N(QUERY_TIS, query_tis),
    UHCA_CMD_N(CREATE_RQT, create_rqt),
    UHCA_CMD_N(MODIFY_RQT, modify_rqt),
    UHCA_CMD_N(DESTROY_RQT, destroy_rqt),
    UHCA_CMD_N(QUERY_RQT, query_rqt),
    UHCA_CMD_N(SET_FLOW_TABLE_ROOT, set_flow_table_root),
    UHCA_CMD_N(CREATE_FLOW_TABLE, create_flow_table),
    UHCA_CMD_N(DESTROY_FLOW_TABLE, destroy_flow_table),
    UHCA_CMD_N(QUERY_FLOW_TABLE, query_flow_table),
    UHCA_CMD_N(CREATE_FLOW_GROUP, create_flow_group),
    UHCA_CMD_N(DESTROY_FLOW_GROUP, destroy_flow_group),
    UHCA_CMD_N(QUERY_FLOW_GROUP, query_flow_group),
    UHCA_CMD(SET_FLOW_TABLE_ENTRY, set_fte, kInitialized, set_fte_in, set_fte_out),
    UHCA_CMD(QUERY_FLOW_TABLE_ENTRY, query_fte, kInitialized, query_fte_in, query_fte_out),
    UHCA_CMD(DELETE_FLOW_TABLE_ENTRY, delete_fte, kInitialized, delete_fte_in, delete_fte_out),
    UHCA_CMD_N(ALLOC_FLOW_COUNTER, alloc_flow_counter),
    UHCA_CMD_N(DEALLOC_FLOW_COUNTER, dealloc_flow_counter),
    UHCA_CMD_N(QUERY_FLOW_COUNTER, query_flow_counter),
    UHCA_CMD_N(MODIFY_FLOW_TABLE, modify_flow_table),
    UHCA_CMD(CREATE_GENERAL_OBJECT, create_general_object, kInitialized, general_obj_in_cmd_hdr, general_obj_out_cmd_hdr),
    UHCA_CMD(MODIFY_GENERAL_OBJECT, modify_general_object, kInitialized, general_obj_in_cmd_hdr, general_obj_out_cmd_hdr),
    UHCA_CMD(QUERY_GENERAL_OBJECT, query_general_object, kInitialized, general_obj_in_cmd_hdr, general_obj_out_cmd_hdr),
    UHCA_CMD(DESTROY_GENERAL_OBJECT, destroy_general_object, kInitialized, general_obj_in_cmd_hdr, general_obj_out_cmd_hdr),
    UHCA_CMD_N(CREATE_UCTX, create_uctx),
    UHCA_CMD_N(DESTROY_UCTX, destroy_uctx),
    UHCA_CMD_N(CREATE_UMEM, create_umem),
    UHCA_CMD_N(DESTROY_UMEM, destroy_umem),
};
#undef UHCA_CMD
#undef UHCA_CMD_CUT
#undef UHCA_CMD_N

constexpr bool sorted() {
  for (std::size_t i = 1; i < std::size(kTable); ++i)
    if (kTable[i - 1].opcode >= kTable[i].opcode) return false;
  return true;
}
static_assert(sorted());

}  // namespace

const CommandInfo* find_command(std::uint16_t opcode) {
  const auto* end = std::end(kTable);
  const auto* it = std::lower_bound(std::begin(kTable), end, opcode,
                                    [](const CommandInfo& i, std::uint16_t op) { return static_cast<std::uint16_t>(i.opcode) < op; });
  return it != end && static_cast<std::uint16_t>(it->opcode) == opcode ? it : nullptr;
}

std::span<const CommandInfo> all_commands() {
  return kTable;
}

}  // namespace uhca::hca

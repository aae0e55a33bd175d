// SPDX-License-Identifier: MIT
// Commands of bring-up and tear-down, pages, capabilities, adapter.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_initial_seg(F) \
  F(fw_rev_minor, 0x0, 0x10, 1) \
  F(fw_rev_major, 0x10, 0x10, 1) \
  F(cmd_interface_rev, 0x20, 0x10, 1) \
  F(fw_rev_subminor, 0x30, 0x10, 1) \
  F(cmdq_phy_addr_63_32, 0x80, 0x20, 1) \
  F(cmdq_phy_addr_31_12, 0xa0, 0x14, 1) \
  F(nic_interface, 0xb6, 0x2, 1) \
  F(log_cmdq_size, 0xb8, 0x4, 1) \
  F(log_cmdq_stride, 0xbc, 0x4, 1) \
  F(command_doorbell_vector, 0xc0, 0x20, 1) \
  F(initializing, 0xfe0, 0x1, 1) \
  F(nic_interface_supported, 0xfe5, 0x3, 1) \
  F(embedded_cpu, 0xfe8, 0x1, 1) \
  F(health_buffer, 0x1000, 0x200, 1) \
  F(no_dram_nic_offset, 0x1200, 0x20, 1) \
  F(clear_int, 0x807f, 0x1, 1) \
  F(health_syndrome, 0x8080, 0x8, 1) \
  F(health_counter, 0x8088, 0x18, 1)
UHCA_PRM_LAYOUT(initial_seg, 0x20060)

#define UHCA_PRM_health_buffer(F) \
  F(assert_existptr, 0x100, 0x20, 1) \
  F(assert_callra, 0x120, 0x20, 1) \
  F(time, 0x160, 0x20, 1) \
  F(fw_version, 0x180, 0x20, 1) \
  F(hw_id, 0x1a0, 0x20, 1) \
  F(rfr, 0x1c0, 0x1, 1) \
  F(valid, 0x1c4, 0x1, 1) \
  F(severity, 0x1c5, 0x3, 1) \
  F(irisc_index, 0x1e0, 0x8, 1) \
  F(synd, 0x1e8, 0x8, 1) \
  F(ext_synd, 0x1f0, 0x10, 1)
UHCA_PRM_LAYOUT(health_buffer, 0x200)

#define UHCA_PRM_cmd_queue_entry(F) \
  F(type, 0x0, 0x8, 1) \
  F(input_length, 0x20, 0x20, 1) \
  F(input_mailbox_pointer_63_32, 0x40, 0x20, 1) \
  F(input_mailbox_pointer_31_9, 0x60, 0x17, 1) \
  F(command_input_inline_data, 0x80, 0x8, 16) \
  F(command_output_inline_data, 0x100, 0x8, 16) \
  F(output_mailbox_pointer_63_32, 0x180, 0x20, 1) \
  F(output_mailbox_pointer_31_9, 0x1a0, 0x17, 1) \
  F(output_length, 0x1c0, 0x20, 1) \
  F(token, 0x1e0, 0x8, 1) \
  F(signature, 0x1e8, 0x8, 1) \
  F(status, 0x1f8, 0x7, 1) \
  F(ownership, 0x1ff, 0x1, 1)
UHCA_PRM_LAYOUT(cmd_queue_entry, 0x200)

#define UHCA_PRM_cmd_if_box(F) \
  F(mailbox_data, 0x0, 0x8, 512) \
  F(next_pointer_63_32, 0x1180, 0x20, 1) \
  F(next_pointer_31_10, 0x11a0, 0x16, 1) \
  F(block_number, 0x11c0, 0x20, 1) \
  F(token, 0x11e8, 0x8, 1) \
  F(ctrl_signature, 0x11f0, 0x8, 1) \
  F(signature, 0x11f8, 0x8, 1)
UHCA_PRM_LAYOUT(cmd_if_box, 0x1200)

#define UHCA_PRM_cmd_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(command, 0x40, 0x20, 0)
UHCA_PRM_LAYOUT(cmd_in, 0x40)

#define UHCA_PRM_cmd_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(command_output, 0x40, 0x20, 1)
UHCA_PRM_LAYOUT(cmd_out, 0x60)

#define UHCA_PRM_enable_hca_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(embedded_cpu_function, 0x40, 0x1, 1) \
  F(function_id, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(enable_hca_in, 0x80)

#define UHCA_PRM_enable_hca_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(enable_hca_out, 0x60)

#define UHCA_PRM_disable_hca_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(embedded_cpu_function, 0x40, 0x1, 1) \
  F(function_id, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(disable_hca_in, 0x80)

#define UHCA_PRM_disable_hca_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(disable_hca_out, 0x60)

#define UHCA_PRM_query_issi_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(query_issi_in, 0x80)

#define UHCA_PRM_query_issi_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(current_issi, 0x50, 0x10, 1) \
  F(supported_issi_dw0, 0x360, 0x20, 1)
UHCA_PRM_LAYOUT(query_issi_out, 0x380)

#define UHCA_PRM_set_issi_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(current_issi, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(set_issi_in, 0x80)

#define UHCA_PRM_set_issi_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_issi_out, 0x80)

#define UHCA_PRM_query_pages_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(embedded_cpu_function, 0x40, 0x1, 1) \
  F(function_id, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(query_pages_in, 0x80)

#define UHCA_PRM_query_pages_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(embedded_cpu_function, 0x40, 0x1, 1) \
  F(function_id, 0x50, 0x10, 1) \
  F(num_pages, 0x60, 0x20, 1)
UHCA_PRM_LAYOUT(query_pages_out, 0x80)

#define UHCA_PRM_manage_pages_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(embedded_cpu_function, 0x40, 0x1, 1) \
  F(function_id, 0x50, 0x10, 1) \
  F(input_num_entries, 0x60, 0x20, 1) \
  F(pas, 0x80, 0x40, 0)
UHCA_PRM_LAYOUT(manage_pages_in, 0x80)

#define UHCA_PRM_manage_pages_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(output_num_entries, 0x40, 0x20, 1) \
  F(pas, 0x80, 0x40, 0)
UHCA_PRM_LAYOUT(manage_pages_out, 0x80)

#define UHCA_PRM_query_hca_cap_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_function, 0x40, 0x1, 1) \
  F(function_id, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(query_hca_cap_in, 0x80)

#define UHCA_PRM_query_hca_cap_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(capability, 0x80, 0x8000, 1)
UHCA_PRM_LAYOUT(query_hca_cap_out, 0x8080)

#define UHCA_PRM_set_hca_cap_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(other_function, 0x40, 0x1, 1) \
  F(function_id, 0x50, 0x10, 1) \
  F(capability, 0x80, 0x8000, 1)
UHCA_PRM_LAYOUT(set_hca_cap_in, 0x8080)

#define UHCA_PRM_set_hca_cap_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_hca_cap_out, 0x80)

#define UHCA_PRM_init_hca_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(sw_vhca_id, 0x62, 0xe, 1) \
  F(sw_owner_id, 0x80, 0x20, 4)
UHCA_PRM_LAYOUT(init_hca_in, 0x100)

#define UHCA_PRM_init_hca_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(init_hca_out, 0x80)

#define UHCA_PRM_teardown_hca_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(profile, 0x50, 0x10, 1)
UHCA_PRM_LAYOUT(teardown_hca_in, 0x80)

#define UHCA_PRM_teardown_hca_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(state, 0x7f, 0x1, 1)
UHCA_PRM_LAYOUT(teardown_hca_out, 0x80)

#define UHCA_PRM_query_adapter_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(query_adapter_in, 0x80)

#define UHCA_PRM_query_adapter_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(query_adapter_struct, 0x80, 0x800, 1)
UHCA_PRM_LAYOUT(query_adapter_out, 0x880)

#define UHCA_PRM_query_adapter_param_block(F) \
  F(ieee_vendor_id, 0xc8, 0x18, 1) \
  F(vsd_vendor_id, 0xf0, 0x10, 1) \
  F(vsd, 0x100, 0x8, 208) \
  F(vsd_contd_psid, 0x780, 0x8, 16)
UHCA_PRM_LAYOUT(query_adapter_param_block, 0x800)

#define UHCA_PRM_set_driver_version_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(driver_version, 0x80, 0x8, 64)
UHCA_PRM_LAYOUT(set_driver_version_in, 0x280)

#define UHCA_PRM_set_driver_version_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(set_driver_version_out, 0x80)

#define UHCA_PRM_nop_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(nop_in, 0x80)

#define UHCA_PRM_nop_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(nop_out, 0x80)

#define UHCA_PRM_query_special_contexts_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1)
UHCA_PRM_LAYOUT(query_special_contexts_in, 0x80)

#define UHCA_PRM_query_special_contexts_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(dump_fill_mkey, 0x40, 0x20, 1) \
  F(resd_lkey, 0x60, 0x20, 1) \
  F(null_mkey, 0x80, 0x20, 1)
UHCA_PRM_LAYOUT(query_special_contexts_out, 0x100)

// clang-format on

#define UHCA_PRM_LAYOUTS_cmd_core(L) \
  L(initial_seg) \
  L(health_buffer) \
  L(cmd_queue_entry) \
  L(cmd_if_box) \
  L(cmd_in) \
  L(cmd_out) \
  L(enable_hca_in) \
  L(enable_hca_out) \
  L(disable_hca_in) \
  L(disable_hca_out) \
  L(query_issi_in) \
  L(query_issi_out) \
  L(set_issi_in) \
  L(set_issi_out) \
  L(query_pages_in) \
  L(query_pages_out) \
  L(manage_pages_in) \
  L(manage_pages_out) \
  L(query_hca_cap_in) \
  L(query_hca_cap_out) \
  L(set_hca_cap_in) \
  L(set_hca_cap_out) \
  L(init_hca_in) \
  L(init_hca_out) \
  L(teardown_hca_in) \
  L(teardown_hca_out) \
  L(query_adapter_in) \
  L(query_adapter_out) \
  L(query_adapter_param_block) \
  L(set_driver_version_in) \
  L(set_driver_version_out) \
  L(nop_in) \
  L(nop_out) \
  L(query_special_contexts_in) \
  L(query_special_contexts_out)

// SPDX-License-Identifier: MIT
// Commands in the trace: fields by name, from the same tables that the handlers use.
#include <cstring>

#include "base/trace.h"
#include "device/hca/cmd_if.h"
#include "prm/all.h"

namespace uhca::hca {
namespace {

// Which layout an embedded field has.
const char* embedded(const char* layout, const char* field) {
  struct Row {
    const char* layout;  // nullptr: any
    const char* field;
    const char* is;
  };
  static constexpr Row kRows[] = {
      {nullptr, "qpc", "qpc"},
      {nullptr, "cq_context", "cqc"},
      {nullptr, "eq_context_entry", "eqc"},
      {nullptr, "memory_key_mkey_entry", "mkc"},
      {nullptr, "primary_address_path", "ads"},
      {nullptr, "wq", "wq"},
      {nullptr, "srq_context_entry", "srqc"},
      {nullptr, "xrc_srq_context_entry", "xrc_srqc"},
      {nullptr, "dct_context_entry", "dctc"},
      {nullptr, "rqt_context", "rqtc"},
      {nullptr, "roce_address", "roce_addr_layout"},
      {nullptr, "nic_vport_context", "nic_vport_context"},
      {nullptr, "flow_table_context", "flow_table_context"},
      {nullptr, "flow_context", "flow_context"},
      {"create_tis_in", "ctx", "tisc"},
      {"modify_tis_in", "ctx", "tisc"},
      {"create_tir_in", "ctx", "tirc"},
      {"modify_tir_in", "ctx", "tirc"},
      {"modify_rqt_in", "ctx", "rqtc"},
      {"create_rq_in", "ctx", "rqc"},
      {"modify_rq_in", "ctx", "rqc"},
      {"create_sq_in", "ctx", "sqc"},
      {"modify_sq_in", "ctx", "sqc"},
      {"create_rmp_in", "ctx", "rmpc"},
      {"modify_rmp_in", "ctx", "rmpc"},
  };
  for (const Row& r : kRows)
    if (std::strcmp(r.field, field) == 0 && (r.layout == nullptr || std::strcmp(r.layout, layout) == 0)) return r.is;
  return nullptr;
}

void put_fields(trace::Event& e, const prm::LayoutInfo& layout, std::span<const std::uint8_t> bytes, unsigned depth) {
  for (std::size_t i = 0; i < layout.nfields; ++i) {
    const prm::FieldInfo& f = layout.fields[i];
    if (std::strcmp(f.name, "opcode") == 0 || std::strcmp(f.name, "status") == 0 || std::strcmp(f.name, "syndrome") == 0) continue;
    std::size_t width = std::size_t{f.field.width} * (f.field.count == 0 ? 1 : f.field.count);
    if ((f.field.offset + width + 7) / 8 > bytes.size()) continue;
    if (f.field.width == 8 && f.field.count == 16) {  // GIDs
      auto raw = std::as_bytes(bytes.subspan(f.field.offset / 8, 16));
      for (std::byte b : raw) {
        if (b == std::byte{0}) continue;
        e.bytes(f.name, raw);
        break;
      }
      continue;
    }
    if (f.field.width <= 32 || f.field.width == 64) {
      if (const char* is = embedded(layout.name, f.name); is == nullptr) {
        if (f.field.count != 1) continue;
        // Words at the end of the input are read as whole 32-bit words.
        if (f.field.width != 64 && (f.field.offset / 32 + 1) * 4 > bytes.size()) continue;
        if (std::uint64_t v = prm::get(bytes.data(), f.field); v != 0) e.hex(f.name, v);
        continue;
      }
    }
    if (depth == 0) continue;
    const char* is = embedded(layout.name, f.name);
    const prm::LayoutInfo* inner = is == nullptr ? nullptr : prm::find_layout(is);
    if (inner != nullptr) put_fields(e, *inner, bytes.subspan(f.field.offset / 8, f.field.width / 8), depth - 1);
  }
}

}  // namespace

void trace_command(const CommandInfo* info, const Command& c, prm::CmdStatus status) {
  trace::Event e("cmd", c.name);
  e.str("status", prm::cmd_status_name(status));
  if (status != prm::CmdStatus::OK) e.hex("syndrome", c.syndrome);
  if (info == nullptr) {
    e.hex("opcode", prm::get<prm::cmd_in::opcode>(c.in()));
    return;
  }
  // What was created comes first: long commands are cut at the end.
  if (status == prm::CmdStatus::OK && info->out->bits <= 0x80) put_fields(e, *info->out, c.out_bytes, 0);
  if (info->opcode == prm::Opcode::CREATE_MKEY && status == prm::CmdStatus::OK) {
    const auto* mkc =
        static_cast<const std::uint8_t*>(prm::at<prm::create_mkey_in::memory_key_mkey_entry>(static_cast<const void*>(c.in())));
    e.hex("mkey", prm::get<prm::create_mkey_out::mkey_index>(c.out()) << 8 | prm::get<prm::mkc::mkey_7_0>(mkc));
  }
  put_fields(e, *info->in, c.in_bytes, 3);
}

}  // namespace uhca::hca

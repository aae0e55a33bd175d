// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/devx_cmd.h"

#include <algorithm>
#include <cstring>

#include "kernel/mlx5_core/eq.h"
#include "prm/cmd_core.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/cmd_vport.h"
#include "prm/context.h"
#include "prm/event.h"
#include "prm/queue_context.h"

namespace uhca::kernel::mlx5::devx {
namespace {

using prm::Field;
using Op = prm::Opcode;

// Where most commands have their number; wider ones count up to 32 bits.
constexpr Field kNumber{0x48, 0x18, 1}, kWide{0x40, 0x20, 1}, kByte{0x58, 0x8, 1};

// Objects: their number in the create command's answer (`in_input`: in its input), and in the destroy command.
struct Object {
  Op create, destroy;
  Field number, destroy_number;
  bool in_input = false;
};
constexpr Object kObjects[] = {
    {Op::CREATE_GENERAL_OBJECT, Op::DESTROY_GENERAL_OBJECT, kWide, kWide},
    {Op::CREATE_MKEY, Op::DESTROY_MKEY, kNumber, kNumber},
    {Op::CREATE_CQ, Op::DESTROY_CQ, kNumber, kNumber},
    {Op::ALLOC_PD, Op::DEALLOC_PD, kNumber, kNumber},
    {Op::ALLOC_TRANSPORT_DOMAIN, Op::DEALLOC_TRANSPORT_DOMAIN, kNumber, kNumber},
    {Op::CREATE_RMP, Op::DESTROY_RMP, kNumber, kNumber},
    {Op::CREATE_SQ, Op::DESTROY_SQ, kNumber, kNumber},
    {Op::CREATE_RQ, Op::DESTROY_RQ, kNumber, kNumber},
    {Op::CREATE_RQT, Op::DESTROY_RQT, kNumber, kNumber},
    {Op::CREATE_TIR, Op::DESTROY_TIR, kNumber, kNumber},
    {Op::CREATE_TIS, Op::DESTROY_TIS, kNumber, kNumber},
    {Op::ALLOC_Q_COUNTER, Op::DEALLOC_Q_COUNTER, kByte, kByte},
    {Op::CREATE_FLOW_TABLE, Op::DESTROY_FLOW_TABLE, kNumber, prm::destroy_flow_table_in::table_id},
    {Op::CREATE_FLOW_GROUP, Op::DESTROY_FLOW_GROUP, kNumber, prm::destroy_flow_group_in::group_id},
    {Op::SET_FLOW_TABLE_ENTRY, Op::DELETE_FLOW_TABLE_ENTRY, prm::set_fte_in::flow_index, prm::delete_fte_in::flow_index, true},
    {Op::ALLOC_FLOW_COUNTER, Op::DEALLOC_FLOW_COUNTER, kWide, kWide},
    {Op::ALLOC_PACKET_REFORMAT_CONTEXT, Op::DEALLOC_PACKET_REFORMAT_CONTEXT, kWide, kWide},
    {Op::ALLOC_MODIFY_HEADER_CONTEXT, Op::DEALLOC_MODIFY_HEADER_CONTEXT, kWide, kWide},
    {Op::CREATE_SCHEDULING_ELEMENT, Op::DESTROY_SCHEDULING_ELEMENT, {0x80, 0x20, 1}, {0x60, 0x20, 1}},
    {Op::ADD_VXLAN_UDP_DPORT, Op::DELETE_VXLAN_UDP_DPORT, {0x70, 0x10, 1}, {0x70, 0x10, 1}, true},
    {Op::SET_L2_TABLE_ENTRY, Op::DELETE_L2_TABLE_ENTRY, prm::set_l2_table_entry_in::table_index, prm::delete_l2_table_entry_in::table_index,
     true},
    {Op::CREATE_QP, Op::DESTROY_QP, kNumber, kNumber},
    {Op::CREATE_SRQ, Op::DESTROY_SRQ, kNumber, kNumber},
    {Op::CREATE_XRC_SRQ, Op::DESTROY_XRC_SRQ, kNumber, kNumber},
    {Op::CREATE_DCT, Op::DESTROY_DCT, kNumber, kNumber},
    {Op::CREATE_XRQ, Op::DESTROY_XRQ, kNumber, kNumber},
    {Op::ATTACH_TO_MCG, Op::DETACH_FROM_MCG, kNumber, kNumber, true},
    {Op::ALLOC_XRCD, Op::DEALLOC_XRCD, kNumber, kNumber},
    {Op::CREATE_PSV, Op::DESTROY_PSV, {0x88, 0x18, 1}, kNumber},
};

// Commands about an object, by the opcode that creates it.
enum class Use : std::uint8_t { kQuery, kModify };
struct About {
  Op op, create;
  Field number;
  Use use;
};
constexpr About kAbout[] = {
    {Op::QUERY_GENERAL_OBJECT, Op::CREATE_GENERAL_OBJECT, kWide, Use::kQuery},
    {Op::MODIFY_GENERAL_OBJECT, Op::CREATE_GENERAL_OBJECT, kWide, Use::kModify},
    {Op::QUERY_MKEY, Op::CREATE_MKEY, kNumber, Use::kQuery},
    {Op::QUERY_CQ, Op::CREATE_CQ, kNumber, Use::kQuery},
    {Op::MODIFY_CQ, Op::CREATE_CQ, kNumber, Use::kModify},
    {Op::QUERY_SQ, Op::CREATE_SQ, kNumber, Use::kQuery},
    {Op::MODIFY_SQ, Op::CREATE_SQ, kNumber, Use::kModify},
    {Op::QUERY_RQ, Op::CREATE_RQ, kNumber, Use::kQuery},
    {Op::MODIFY_RQ, Op::CREATE_RQ, kNumber, Use::kModify},
    {Op::QUERY_RMP, Op::CREATE_RMP, kNumber, Use::kQuery},
    {Op::MODIFY_RMP, Op::CREATE_RMP, kNumber, Use::kModify},
    {Op::QUERY_RQT, Op::CREATE_RQT, kNumber, Use::kQuery},
    {Op::MODIFY_RQT, Op::CREATE_RQT, kNumber, Use::kModify},
    {Op::QUERY_TIR, Op::CREATE_TIR, kNumber, Use::kQuery},
    {Op::MODIFY_TIR, Op::CREATE_TIR, kNumber, Use::kModify},
    {Op::QUERY_TIS, Op::CREATE_TIS, kNumber, Use::kQuery},
    {Op::MODIFY_TIS, Op::CREATE_TIS, kNumber, Use::kModify},
    {Op::QUERY_FLOW_TABLE, Op::CREATE_FLOW_TABLE, prm::query_flow_table_in::table_id, Use::kQuery},
    {Op::MODIFY_FLOW_TABLE, Op::CREATE_FLOW_TABLE, prm::modify_flow_table_in::table_id, Use::kModify},
    {Op::QUERY_FLOW_GROUP, Op::CREATE_FLOW_GROUP, prm::query_flow_group_in::group_id, Use::kQuery},
    {Op::QUERY_FLOW_TABLE_ENTRY, Op::SET_FLOW_TABLE_ENTRY, prm::query_fte_in::flow_index, Use::kQuery},
    {Op::SET_FLOW_TABLE_ENTRY, Op::SET_FLOW_TABLE_ENTRY, prm::set_fte_in::flow_index, Use::kModify},
    {Op::QUERY_Q_COUNTER, Op::ALLOC_Q_COUNTER, prm::query_q_counter_in::counter_set_id, Use::kQuery},
    {Op::QUERY_FLOW_COUNTER, Op::ALLOC_FLOW_COUNTER, prm::query_flow_counter_in::flow_counter_id, Use::kQuery},
    {Op::QUERY_MODIFY_HEADER_CONTEXT, Op::ALLOC_MODIFY_HEADER_CONTEXT, kWide, Use::kQuery},
    {Op::QUERY_PACKET_REFORMAT_CONTEXT, Op::ALLOC_PACKET_REFORMAT_CONTEXT, kWide, Use::kQuery},
    {Op::QUERY_SCHEDULING_ELEMENT, Op::CREATE_SCHEDULING_ELEMENT, {0x60, 0x20, 1}, Use::kQuery},
    {Op::MODIFY_SCHEDULING_ELEMENT, Op::CREATE_SCHEDULING_ELEMENT, {0x60, 0x20, 1}, Use::kModify},
    {Op::ADD_VXLAN_UDP_DPORT, Op::ADD_VXLAN_UDP_DPORT, {0x70, 0x10, 1}, Use::kModify},
    {Op::QUERY_L2_TABLE_ENTRY, Op::SET_L2_TABLE_ENTRY, prm::set_l2_table_entry_in::table_index, Use::kQuery},
    {Op::SET_L2_TABLE_ENTRY, Op::SET_L2_TABLE_ENTRY, prm::set_l2_table_entry_in::table_index, Use::kModify},
    {Op::QUERY_QP, Op::CREATE_QP, kNumber, Use::kQuery},
    {Op::RST2INIT_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::INIT2INIT_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::INIT2RTR_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::RTR2RTS_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::RTS2RTS_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::SQERR2RTS_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::TO_2ERR_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::TO_2RST_QP, Op::CREATE_QP, kNumber, Use::kModify},
    {Op::QUERY_DCT, Op::CREATE_DCT, kNumber, Use::kQuery},
    {Op::ARM_DCT_FOR_KEY_VIOLATION, Op::CREATE_DCT, kNumber, Use::kModify},
    {Op::QUERY_XRQ, Op::CREATE_XRQ, kNumber, Use::kQuery},
    {Op::QUERY_XRQ_DC_PARAMS_ENTRY, Op::CREATE_XRQ, kNumber, Use::kQuery},
    {Op::QUERY_XRQ_ERROR_PARAMS, Op::CREATE_XRQ, kNumber, Use::kQuery},
    {Op::ARM_XRQ, Op::CREATE_XRQ, kNumber, Use::kModify},
    {Op::SET_XRQ_DC_PARAMS_ENTRY, Op::CREATE_XRQ, kNumber, Use::kModify},
    {Op::RELEASE_XRQ_ERROR, Op::CREATE_XRQ, kNumber, Use::kModify},
    {Op::MODIFY_XRQ, Op::CREATE_XRQ, kNumber, Use::kModify},
    {Op::QUERY_XRC_SRQ, Op::CREATE_XRC_SRQ, kNumber, Use::kQuery},
    {Op::ARM_XRC_SRQ, Op::CREATE_XRC_SRQ, kNumber, Use::kModify},
    {Op::QUERY_SRQ, Op::CREATE_SRQ, kNumber, Use::kQuery},
    {Op::ARM_RQ, Op::CREATE_RQ, kNumber, Use::kModify},
};

// What a flow object's destroy command repeats of its create command, at the same place: port and table.
constexpr Field kVport{0x40, 0x20, 1}, kTableType{0x80, 0x8, 1}, kTableId{0xa8, 0x18, 1};

constexpr std::uint16_t kGeneralStart = 0xb00, kGeneralEnd = 0xd00;  // MLX5_CMD_OP_GENERAL_START, _END

std::uint32_t value(const Input& in, Field f) {
  return (f.offset + f.width + 7) / 8 <= in.size ? static_cast<std::uint32_t>(prm::get(in.data, f)) : 0;
}
std::uint32_t op_mod(const Input& in) {
  return value(in, prm::cmd_in::op_mod);
}
std::uint32_t object_type(const Input& in) {
  return value(in, prm::general_obj_in_cmd_hdr::obj_type);
}

const Object* object_of(Op op) {
  auto it = std::find_if(std::begin(kObjects), std::end(kObjects), [op](const Object& o) { return o.create == op; });
  return it == std::end(kObjects) ? nullptr : it;
}
const About* about(Op op, Use use) {
  auto it = std::find_if(std::begin(kAbout), std::end(kAbout), [op, use](const About& a) { return a.op == op && a.use == use; });
  return it == std::end(kAbout) ? nullptr : it;
}

std::uint32_t created_number(const Object& o, const Input& in, const std::uint8_t* out) {
  return o.in_input ? value(in, o.number) : static_cast<std::uint32_t>(prm::get(out, o.number));
}

void set_bit(std::vector<std::uint8_t>& in, std::size_t context, Field f) {
  if (context + f.offset / 8 + 4 <= in.size()) prm::set(in.data() + context, f, 1);
}
// A wq context in the context that begins at `context`.
void set_wq(std::vector<std::uint8_t>& in, std::size_t wq) {
  set_bit(in, wq, prm::wq::dbr_umem_valid);
  set_bit(in, wq, prm::wq::wq_umem_valid);
}

}  // namespace

Op opcode_of(const Input& in) {
  return static_cast<Op>(value(in, prm::general_obj_in_cmd_hdr::opcode));
}

bool is_whitelisted(Op op) {
  return op == Op::QUERY_HCA_CAP || op == Op::QUERY_HCA_VPORT_CONTEXT || op == Op::QUERY_ESW_VPORT_CONTEXT || op == Op::QUERY_ESW_FUNCTIONS;
}

bool is_general(Op op) {
  auto n = static_cast<std::uint16_t>(op);
  if (n >= kGeneralStart && n < kGeneralEnd) return true;
  switch (op) {
    case Op::QUERY_HCA_CAP:
    case Op::QUERY_HCA_VPORT_CONTEXT:
    case Op::QUERY_ESW_VPORT_CONTEXT:
    case Op::QUERY_VPORT_STATE:
    case Op::QUERY_ADAPTER:
    case Op::QUERY_ISSI:
    case Op::QUERY_NIC_VPORT_CONTEXT:
    case Op::QUERY_ROCE_ADDRESS:
    case Op::QUERY_VNIC_ENV:
    case Op::QUERY_VPORT_COUNTER:
    case Op::GET_DROPPED_PACKET_LOG:
    case Op::NOP:
    case Op::QUERY_CONG_STATUS:
    case Op::QUERY_CONG_PARAMS:
    case Op::QUERY_CONG_STATISTICS:
    case Op::QUERY_LAG:
    case Op::QUERY_ESW_FUNCTIONS: return true;
    default: return false;
  }
}

bool is_create(const Input& in) {
  Op op = opcode_of(in);
  if (op == Op::SET_FLOW_TABLE_ENTRY) return op_mod(in) == 0;
  if (op == Op::CREATE_PSV) return value(in, prm::create_psv_in::num_psv) == 1;
  return object_of(op) != nullptr;
}

bool is_modify(const Input& in) {
  Op op = opcode_of(in);
  if (op == Op::SET_FLOW_TABLE_ENTRY) return op_mod(in) == 1;
  return about(op, Use::kModify) != nullptr;
}

bool is_query(const Input& in) {
  return about(opcode_of(in), Use::kQuery) != nullptr;
}

std::uint64_t created_id(const Input& in, const std::uint8_t* out) {
  const Object* o = object_of(opcode_of(in));
  if (o == nullptr) return 0;
  auto op = static_cast<std::uint32_t>(o->create);
  if (o->create == Op::CREATE_GENERAL_OBJECT) op |= object_type(in) << 16;
  return encode(op, created_number(*o, in, out));
}

std::uint64_t named_id(const Input& in) {
  Op op = opcode_of(in);
  const About* a = about(op, Use::kQuery);
  if (a == nullptr) a = about(op, Use::kModify);
  if (a == nullptr) return 0;
  auto create = static_cast<std::uint32_t>(a->create);
  if (a->create == Op::CREATE_GENERAL_OBJECT) create |= object_type(in) << 16;
  return encode(create, value(in, a->number));
}

std::vector<std::uint8_t> destroy_command(const Input& in, const std::uint8_t* out) {
  const Object* o = object_of(opcode_of(in));
  if (o == nullptr) return {};
  std::vector<std::uint8_t> d(prm::destroy_flow_table_in::kBytes);  // the longest of them
  auto copy = [&](Field f) { prm::set(d.data(), f, value(in, f)); };
  switch (o->create) {
    case Op::SET_FLOW_TABLE_ENTRY:
    case Op::CREATE_FLOW_GROUP: copy(kTableId); [[fallthrough]];
    case Op::CREATE_FLOW_TABLE:
      copy(kVport);
      copy(kTableType);
      break;
    case Op::ATTACH_TO_MCG:
      d.resize(prm::detach_from_mcg_in::kBytes);
      if (in.size >= prm::attach_to_mcg_in::kBytes)
        std::memcpy(prm::at<prm::detach_from_mcg_in::multicast_gid>(static_cast<void*>(d.data())),
                    prm::at<prm::attach_to_mcg_in::multicast_gid>(static_cast<const void*>(in.data)), 16);
      break;
    case Op::CREATE_SCHEDULING_ELEMENT: copy({0x40, 0x8, 1}); break;  // scheduling_hierarchy
    case Op::CREATE_GENERAL_OBJECT: copy(prm::general_obj_in_cmd_hdr::obj_type); break;
    default: d.resize(prm::general_obj_in_cmd_hdr::kBytes);
  }
  prm::set<prm::general_obj_in_cmd_hdr::opcode>(d.data(), static_cast<std::uint16_t>(o->destroy));
  prm::set<prm::general_obj_in_cmd_hdr::uid>(d.data(), value(in, prm::general_obj_in_cmd_hdr::uid));
  prm::set(d.data(), o->destroy_number, created_number(*o, in, out));
  return d;
}

void set_umem_valid(std::vector<std::uint8_t>& in) {
  switch (opcode_of({in.data(), in.size()})) {
    case Op::CREATE_CQ:
      set_bit(in, 0, prm::create_cq_in::cq_umem_valid);
      set_bit(in, prm::byte_of<prm::create_cq_in::cq_context>, prm::cqc::dbr_umem_valid);
      break;
    case Op::MODIFY_CQ: set_bit(in, 0, prm::modify_cq_in::cq_umem_valid); break;
    case Op::CREATE_QP:
      set_bit(in, prm::byte_of<prm::create_qp_in::qpc>, prm::qpc::dbr_umem_valid);
      set_bit(in, 0, prm::create_qp_in::wq_umem_valid);
      break;
    case Op::CREATE_RQ: set_wq(in, prm::byte_of<prm::create_rq_in::ctx> + prm::byte_of<prm::rqc::wq>); break;
    case Op::CREATE_SQ: set_wq(in, prm::byte_of<prm::create_sq_in::ctx> + prm::byte_of<prm::sqc::wq>); break;
    case Op::CREATE_RMP: set_wq(in, prm::byte_of<prm::create_rmp_in::ctx> + prm::byte_of<prm::rmpc::wq>); break;
    case Op::CREATE_XRC_SRQ:
      set_bit(in, 0, prm::create_xrc_srq_in::xrc_srq_umem_valid);
      set_bit(in, prm::byte_of<prm::create_xrc_srq_in::xrc_srq_context_entry>, prm::xrc_srqc::dbr_umem_valid);
      break;
    default: break;
  }
}

namespace {
constexpr EventType kObjectEvents[] = {EventType::COMP,
                                       EventType::PATH_MIG,
                                       EventType::COMM_EST,
                                       EventType::SQ_DRAINED,
                                       EventType::CQ_ERROR,
                                       EventType::WQ_CATAS_ERROR,
                                       EventType::PATH_MIG_FAILED,
                                       EventType::WQ_INVAL_REQ_ERROR,
                                       EventType::WQ_ACCESS_ERROR,
                                       EventType::SRQ_CATAS_ERROR,
                                       EventType::SRQ_LAST_WQE,
                                       EventType::SRQ_RQ_LIMIT,
                                       EventType::XRQ_ERROR,
                                       EventType::DCT_DRAINED,
                                       EventType::DCT_KEY_VIOLATION};
}  // namespace

bool is_object_event(std::uint16_t event) {
  return std::any_of(std::begin(kObjectEvents), std::end(kObjectEvents),
                     [event](EventType t) { return static_cast<std::uint16_t>(t) == event; });
}
bool is_device_event(std::uint16_t event) {
  return event == static_cast<std::uint16_t>(EventType::PORT_CHANGE);
}

std::uint16_t event_object_type(std::uint64_t id, std::uint16_t event) {
  if (!is_object_event(event)) return 0;
  switch (creator_of(id)) {
    case Op::CREATE_RQ:
    case Op::CREATE_RMP: return prm::kEventQueueRq;
    case Op::CREATE_SQ: return prm::kEventQueueSq;
    case Op::CREATE_DCT: return prm::kEventQueueDct;
    default: return 0;  // QP is 0 too
  }
}

}  // namespace uhca::kernel::mlx5::devx

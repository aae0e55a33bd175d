// SPDX-License-Identifier: MIT
// The order of the real driver (replay_trace.h), command by command through the BAR and a bus that checks every access.
#include <cstdlib>
#include <map>
#include <string>

#include "hca/harness.h"
#include "hca/replay_trace.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/hca_cap.h"
#include "prm/other_caps.h"
#include "prm/reg.h"

namespace uhca::hcatest {
namespace {

using Op = prm::Opcode;

// "n=0x10 log=8 ..." as numbers and strings.
class Args {
 public:
  explicit Args(const char* s) {
    std::string text = s;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = std::min(text.find(' ', at), text.size());
      std::string word = text.substr(at, end - at);
      if (std::size_t eq = word.find('='); eq != std::string::npos) values_[word.substr(0, eq)] = word.substr(eq + 1);
      at = end + 1;
    }
  }
  std::uint64_t num(const char* key) const {
    auto it = values_.find(key);
    return it == values_.end() ? 0 : std::strtoull(it->second.c_str(), nullptr, 0);
  }
  std::string str(const char* key) const {
    auto it = values_.find(key);
    return it == values_.end() ? std::string() : it->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

class Replay : public ::testing::Test {
 protected:
  Bench bench;
  std::vector<std::uint8_t> in;
  // The recording's numbers to ours, by kind of object.
  std::map<std::string, std::map<std::uint64_t, std::uint32_t>> numbers;
  std::map<std::string, unsigned> created, destroyed;
  std::vector<pci::DmaAddr> given;
  EqHandle cmd_eq;
  std::uint32_t cmd_eq_ci = 0, cmd_eq_uar = 0;
  unsigned events = 0;

  std::uint32_t ours(const char* kind, std::uint64_t recorded) {
    auto& m = numbers[kind];
    auto it = m.find(recorded);
    if (it == m.end()) {
      ADD_FAILURE() << kind << " " << recorded << " is not alive";
      return 0;
    }
    return it->second;
  }
  template <prm::Field F>
  void set(std::uint64_t v, std::size_t i = 0) {
    prm::set<F>(in.data(), v, i);
  }
  template <prm::Field F>
  void* at() {
    return prm::at<F>(static_cast<void*>(in.data()));
  }
  void put_pages(std::size_t from, std::uint64_t n) {
    pci::DmaAddr buf = bench.bus.alloc(n * 4096);
    for (std::uint64_t i = 0; i < n; ++i) store_be<std::uint64_t>(in.data() + from + i * 8, buf + i * 4096);
  }
  // Which kind a create, alloc, dealloc or destroy is about; "" for others.
  static const char* kind(Op op) {
    switch (op) {
      case Op::ALLOC_UAR:
      case Op::DEALLOC_UAR: return "uar";
      case Op::ALLOC_PD:
      case Op::DEALLOC_PD: return "pd";
      case Op::ALLOC_TRANSPORT_DOMAIN:
      case Op::DEALLOC_TRANSPORT_DOMAIN: return "td";
      case Op::ALLOC_XRCD:
      case Op::DEALLOC_XRCD: return "xrcd";
      case Op::ALLOC_Q_COUNTER:
      case Op::DEALLOC_Q_COUNTER: return "counter";
      case Op::CREATE_MKEY:
      case Op::DESTROY_MKEY: return "mkey";
      case Op::CREATE_EQ:
      case Op::DESTROY_EQ: return "eq";
      case Op::CREATE_CQ:
      case Op::DESTROY_CQ: return "cq";
      case Op::CREATE_QP:
      case Op::DESTROY_QP: return "qp";
      case Op::CREATE_XRC_SRQ:
      case Op::DESTROY_XRC_SRQ:
      case Op::CREATE_RMP:
      case Op::DESTROY_RMP: return "srq";
      case Op::CREATE_TIS:
      case Op::DESTROY_TIS: return "tis";
      case Op::CREATE_TIR:
      case Op::DESTROY_TIR: return "tir";
      case Op::CREATE_RQT:
      case Op::DESTROY_RQT: return "rqt";
      case Op::CREATE_RQ:
      case Op::DESTROY_RQ: return "rq";
      case Op::CREATE_SQ:
      case Op::DESTROY_SQ: return "sq";
      case Op::CREATE_FLOW_TABLE:
      case Op::DESTROY_FLOW_TABLE: return "table";
      case Op::CREATE_FLOW_GROUP:
      case Op::DESTROY_FLOW_GROUP: return "group";
      default: return "";
    }
  }
  static bool is_create(Op op) {
    std::string n = prm::opcode_name(static_cast<std::uint16_t>(op));
    return *kind(op) != 0 && (n.rfind("CREATE", 0) == 0 || n.rfind("ALLOC", 0) == 0);
  }
  // The number that a create answers: 24 bits at 0x48, but 8 bits at 0x58 for EQs and counter sets.
  static std::uint32_t number_of(Op op, const Reply& r) {
    bool small = op == Op::CREATE_EQ || op == Op::ALLOC_Q_COUNTER;
    return small ? prm::get<prm::create_eq_out::eq_number>(r.out.data()) : prm::get<prm::alloc_pd_out::pd>(r.out.data());
  }

  void build(const ReplayStep& s, const Args& a);
  void build_qp_context(void* qpc, const Args& a);
  void check(const ReplayStep& s, const Args& a, const Reply& r);
  // The command EQ must hold exactly one EQE for this command, with its bit.
  void take_command_event(const char* name) {
    if (cmd_eq.eqn == 0) return;
    const std::uint8_t* e = bench.bus.host(cmd_eq.buf) + (cmd_eq_ci & ((1u << cmd_eq.log_size) - 1)) * 64;
    ASSERT_EQ(prm::get<prm::eqe::owner>(e), cmd_eq_ci >> cmd_eq.log_size & 1) << name << ": no event";
    EXPECT_EQ(prm::get<prm::eqe::event_type>(e), 0x0au) << name;
    EXPECT_EQ(load_be<std::uint32_t>(e + prm::eqe::event_data.offset / 8), 1u) << name;
    ++cmd_eq_ci;
    ++events;
    bench.hca.mmio_write(cmd_eq_uar * 4096 + 0x40, byteswap(cmd_eq.eqn << 24 | (cmd_eq_ci & 0xffffff)), 4);
    EXPECT_EQ(bench.bus.take_raised(), std::vector<unsigned>{0}) << name;
  }
};

void Replay::build_qp_context(void* qpc, const Args& a) {
  using f = prm::qpc;
  prm::set<f::st>(qpc, a.num("st"));
  prm::set<f::pm_state>(qpc, 3);
  prm::set<f::user_index>(qpc, a.num("uidx"));
  prm::set<f::log_sq_size>(qpc, a.num("log_sq"));
  prm::set<f::log_rq_size>(qpc, a.num("log_rq"));
  prm::set<f::log_rq_stride>(qpc, 0);
  prm::set<f::rq_type>(qpc, a.num("rqt"));
  prm::set<f::no_sq>(qpc, a.num("no_sq"));
  prm::set<f::uar_page>(qpc, ours("uar", a.num("uar")));
  if (a.num("pd") != 0) prm::set<f::pd>(qpc, ours("pd", a.num("pd")));
  prm::set<f::cqn_snd>(qpc, ours("cq", a.num("cq_s")));
  prm::set<f::cqn_rcv>(qpc, ours("cq", a.num("cq_r")));
  prm::set<f::dbr_addr>(qpc, bench.bus.alloc(64));
}

void Replay::build(const ReplayStep& s, const Args& a) {
  in.assign(s.in_len, 0);
  set<prm::cmd_in::opcode>(static_cast<std::uint16_t>(s.opcode));
  set<prm::cmd_in::op_mod>(s.op_mod);
  const std::size_t kHead = 272;  // the fixed part of every create with a page list
  if (*kind(s.opcode) != 0 && !is_create(s.opcode)) {
    std::uint32_t n = ours(kind(s.opcode), a.num("n"));
    // Flow objects have their numbers elsewhere.
    if (s.opcode == Op::DESTROY_FLOW_TABLE) {
      set<prm::destroy_flow_table_in::table_id>(n);
    } else if (s.opcode == Op::DESTROY_FLOW_GROUP) {
      set<prm::destroy_flow_group_in::group_id>(n);
      set<prm::destroy_flow_group_in::table_id>(numbers["table of group"][n]);
    } else {
      set<prm::dealloc_pd_in::pd>(n);
    }
    return;
  }
  switch (s.opcode) {
    case Op::SET_ISSI: set<prm::set_issi_in::current_issi>(1); break;
    case Op::MANAGE_PAGES: {
      set<prm::manage_pages_in::input_num_entries>(a.num("n"));
      for (std::uint64_t i = 0; s.op_mod == 1 && i < a.num("n"); ++i) {
        given.push_back(bench.bus.alloc(4096));
        set<prm::manage_pages_in::pas>(given.back(), i);
      }
      break;
    }
    case Op::SET_HCA_CAP: {
      Reply q = bench.cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, 0), 4112);
      std::memcpy(at<prm::set_hca_cap_in::capability>(), q.at<prm::query_hca_cap_out::capability>(), 4096);
      prm::set<prm::cmd_hca_cap::log_max_qp>(at<prm::set_hca_cap_in::capability>(), 17);
      break;
    }
    case Op::ACCESS_REG:
      set<prm::access_register_in::register_id>(a.num("reg"));
      prm::set<prm::paos_reg::local_port>(in.data() + 16, 1);
      if (a.num("reg") == 0x5004) prm::set<prm::ptys_reg::proto_mask>(in.data() + 16, 4);
      if (a.num("reg") == 0x5003) prm::set<prm::pmtu_reg::admin_mtu>(in.data() + 16, 1522);
      if (a.num("reg") == 0x5006) {
        prm::set<prm::paos_reg::ase>(in.data() + 16, 1);
        prm::set<prm::paos_reg::admin_status>(in.data() + 16, 1);
      }
      break;
    case Op::CREATE_EQ: {
      void* c = at<prm::create_eq_in::eq_context_entry>();
      prm::set<prm::eqc::log_eq_size>(c, a.num("log"));
      prm::set<prm::eqc::intr>(c, a.num("intr"));
      prm::set<prm::eqc::uar_page>(c, ours("uar", a.num("uar")));
      set<prm::create_eq_in::event_bitmask>(a.num("mask"));
      put_pages(kHead, a.num("npa"));
      pci::DmaAddr buf = load_be<std::uint64_t>(in.data() + kHead);
      for (std::size_t i = 0; i < std::size_t{1} << a.num("log"); ++i) bench.bus.host(buf)[i * 64 + 63] = 1;
      break;
    }
    case Op::CREATE_CQ: {
      void* c = at<prm::create_cq_in::cq_context>();
      prm::set<prm::cqc::log_cq_size>(c, a.num("log"));
      prm::set<prm::cqc::c_eqn_or_apu_element>(c, ours("eq", a.num("eqn")));
      prm::set<prm::cqc::uar_page>(c, ours("uar", a.num("uar")));
      prm::set<prm::cqc::dbr_addr>(c, bench.bus.alloc(64));
      put_pages(kHead, a.num("npas"));
      break;
    }
    case Op::CREATE_MKEY: {
      void* c = at<prm::create_mkey_in::memory_key_mkey_entry>();
      prm::set<prm::mkc::access_mode_1_0>(c, a.num("mode"));
      prm::set<prm::mkc::free>(c, a.num("free"));
      prm::set<prm::mkc::umr_en>(c, a.num("umr_en"));
      prm::set<prm::mkc::length64>(c, a.num("len64"));
      prm::set<prm::mkc::pd>(c, ours("pd", a.num("pd")));
      prm::set<prm::mkc::qpn>(c, 0xffffff);
      prm::set<prm::mkc::mkey_7_0>(c, a.num("n") & 0xff);
      prm::set<prm::mkc::start_addr>(c, a.num("start"));
      prm::set<prm::mkc::len>(c, a.num("len64") ? 0 : a.num("len"));
      prm::set<prm::mkc::log_page_size>(c, a.num("pgsh"));
      std::uint64_t n = a.num("nmtt");
      prm::set<prm::mkc::translations_octword_size>(c, (n + 1) / 2);
      set<prm::create_mkey_in::translations_octword_actual_size>((n + 1) / 2);
      if (n != 0) put_pages(kHead, n);
      break;
    }
    case Op::CREATE_QP:
      build_qp_context(at<prm::create_qp_in::qpc>(), a);
      put_pages(kHead, a.num("npas"));
      break;
    case Op::RST2INIT_QP:
    case Op::INIT2RTR_QP:
    case Op::RTR2RTS_QP: {
      set<prm::rst2init_qp_in::qpn>(ours("qp", a.num("n")));
      void* qpc = at<prm::rst2init_qp_in::qpc>();
      prm::set<prm::qpc::mtu>(qpc, 3);
      prm::set<prm::qpc::log_msg_max>(qpc, 30);
      // The two ping-pong QPs talk to each other; the recording creates the second one after the first one's INIT.
      std::uint64_t peer = a.num("n") >= 0x82 && s.opcode != Op::RST2INIT_QP ? a.num("n") ^ 1 : a.num("n");
      prm::set<prm::qpc::remote_qpn>(qpc, ours("qp", peer));
      prm::set<prm::qpc::retry_count>(qpc, 7);
      void* ads = prm::at<prm::qpc::primary_address_path>(qpc);
      prm::set<prm::ads::src_addr_index>(ads, 1);
      prm::set<prm::ads::ack_timeout>(ads, 14);
      wire::Gid gid = Bench::ipv4_gid(10, 9, 0, 1);
      std::memcpy(prm::at<prm::ads::rgid_rip>(ads), gid.data(), 16);
      break;
    }
    case Op::TO_2ERR_QP:
    case Op::TO_2RST_QP:
    case Op::QUERY_QP: set<prm::query_qp_in::qpn>(ours("qp", a.num("n"))); break;
    case Op::CREATE_XRC_SRQ: {
      void* c = at<prm::create_xrc_srq_in::xrc_srq_context_entry>();
      prm::set<prm::xrc_srqc::log_xrc_srq_size>(c, 2);
      prm::set<prm::xrc_srqc::log_rq_stride>(c, 1);
      prm::set<prm::xrc_srqc::cqn>(c, ours("cq", 0x42));
      prm::set<prm::xrc_srqc::xrcd>(c, ours("xrcd", 0x10));
      prm::set<prm::xrc_srqc::pd>(c, ours("pd", 0x12));
      store_be<std::uint64_t>(static_cast<std::uint8_t*>(c) + prm::xrc_srqc::db_record_addr_h.offset / 8, bench.bus.alloc(64));
      put_pages(kHead, 1);
      break;
    }
    case Op::CREATE_RMP: {
      void* c = at<prm::create_rmp_in::ctx>();
      prm::set<prm::rmpc::state>(c, 1);
      void* wq = prm::at<prm::rmpc::wq>(c);
      prm::set<prm::wq::log_wq_sz>(wq, 2);
      prm::set<prm::wq::log_wq_stride>(wq, 5);
      prm::set<prm::wq::pd>(wq, ours("pd", 0x12));
      prm::set<prm::wq::dbr_addr>(wq, bench.bus.alloc(64));
      put_pages(kHead, 1);
      break;
    }
    case Op::CREATE_TIS: prm::set<prm::tisc::transport_domain>(at<prm::create_tis_in::ctx>(), ours("td", 1)); break;
    case Op::CREATE_RQ:
    case Op::CREATE_SQ: {
      bool send = s.opcode == Op::CREATE_SQ;
      void* c = at<prm::create_rq_in::ctx>();
      prm::set<prm::rqc::cqn>(c, ours("cq", a.num("cq")));
      if (a.num("tis") != 0) {
        prm::set<prm::sqc::tis_lst_sz>(c, 1);
        prm::set<prm::sqc::tis_num_0>(c, ours("tis", a.num("tis")));
      }
      void* wq = prm::at<prm::rqc::wq>(c);
      prm::set<prm::wq::wq_type>(wq, send ? 1 : a.num("type"));
      prm::set<prm::wq::log_wq_sz>(wq, a.num("log"));
      prm::set<prm::wq::log_wq_stride>(wq, send ? a.num("stride") : 4);
      prm::set<prm::wq::pd>(wq, a.num("n") == 0x10 && !send ? 0 : ours("pd", 0x10));  // the drop RQ has no PD
      if (send) prm::set<prm::wq::uar_page>(wq, ours("uar", a.num("uar")));
      prm::set<prm::wq::dbr_addr>(wq, bench.bus.alloc(64));
      put_pages(kHead, a.num("npas"));
      break;
    }
    case Op::MODIFY_RQ:
    case Op::MODIFY_SQ:
      set<prm::modify_rq_in::rqn>(ours(s.opcode == Op::MODIFY_RQ ? "rq" : "sq", a.num("n")));
      prm::set<prm::rqc::state>(at<prm::modify_rq_in::ctx>(), 1);
      break;
    case Op::CREATE_RQT:
    case Op::MODIFY_RQT: {
      std::size_t n = (s.in_len - kHead) / 4;
      std::uint32_t rqn = ours("rq", s.opcode == Op::CREATE_RQT ? a.num("rq0") : a.num("rq"));
      void* c = at<prm::create_rqt_in::rqt_context>();
      prm::set<prm::rqtc::rqt_max_size>(c, a.num("max"));
      prm::set<prm::rqtc::rqt_actual_size>(c, n);
      for (std::size_t i = 0; i < n; ++i) store_be<std::uint32_t>(in.data() + kHead + i * 4, rqn);
      if (s.opcode == Op::MODIFY_RQT) {
        set<prm::modify_rqt_in::rqtn>(ours("rqt", a.num("n")));
        prm::set<prm::rqt_bitmask::rqn_list>(at<prm::modify_rqt_in::bitmask>(), 1);
      }
      break;
    }
    case Op::CREATE_TIR: {
      void* c = at<prm::create_tir_in::ctx>();
      prm::set<prm::tirc::disp_type>(c, a.num("disp"));
      prm::set<prm::tirc::indirect_table>(c, ours("rqt", a.num("rqt")));
      prm::set<prm::tirc::rx_hash_fn>(c, a.num("fn"));
      prm::set<prm::tirc::transport_domain>(c, ours("td", a.num("td")));
      prm::set<prm::tirc::rx_hash_field_selector_outer>(c, a.num("hash_outer"));
      break;
    }
    case Op::MODIFY_TIR:
      set<prm::modify_tir_in::tirn>(ours("tir", a.num("n")));
      prm::set<prm::modify_tir_bitmask::self_lb_en>(at<prm::modify_tir_in::bitmask>(), 1);
      break;
    case Op::CREATE_FLOW_TABLE: {
      void* c = at<prm::create_flow_table_in::flow_table_context>();
      prm::set<prm::flow_table_context::level>(c, a.num("level"));
      prm::set<prm::flow_table_context::log_size>(c, a.num("log"));
      prm::set<prm::flow_table_context::table_miss_action>(c, a.num("miss_act"));
      if (a.num("miss_id") != 0) prm::set<prm::flow_table_context::table_miss_id>(c, ours("table", a.num("miss_id")));
      break;
    }
    case Op::SET_FLOW_TABLE_ROOT: set<prm::set_flow_table_root_in::table_id>(ours("table", a.num("table"))); break;
    case Op::CREATE_FLOW_GROUP:
      set<prm::create_flow_group_in::table_id>(ours("table", a.num("table")));
      set<prm::create_flow_group_in::start_flow_index>(a.num("start"));
      set<prm::create_flow_group_in::end_flow_index>(a.num("end"));
      set<prm::create_flow_group_in::match_criteria_enable>(a.num("crit"));
      break;
    case Op::SET_FLOW_TABLE_ENTRY: {
      set<prm::set_fte_in::table_id>(ours("table", a.num("table")));
      set<prm::set_fte_in::flow_index>(a.num("idx"));
      void* c = at<prm::set_fte_in::flow_context>();
      prm::set<prm::flow_context::group_id>(c, ours("group", a.num("group")));
      prm::set<prm::flow_context::action>(c, a.num("action"));
      prm::set<prm::flow_context::destination_list_size>(c, 1);
      std::uint8_t* d = in.data() + prm::set_fte_in::kBytes;
      prm::set<prm::dest_format_struct::destination_type>(d, a.num("dtype"));
      prm::set<prm::dest_format_struct::destination_id>(d, ours(a.num("dtype") == 1 ? "table" : "tir", a.num("dest")));
      break;
    }
    case Op::DELETE_FLOW_TABLE_ENTRY:
      set<prm::delete_fte_in::table_id>(ours("table", a.num("table")));
      set<prm::delete_fte_in::flow_index>(a.num("idx"));
      break;
    case Op::QUERY_Q_COUNTER: set<prm::query_q_counter_in::counter_set_id>(ours("counter", a.num("n"))); break;
    case Op::MODIFY_NIC_VPORT_CONTEXT: {
      set<prm::modify_nic_vport_context_in::field_select>(a.num("select"));
      void* c = at<prm::modify_nic_vport_context_in::nic_vport_context>();
      prm::set<prm::nic_vport_context::mtu>(c, a.num("mtu"));
      prm::set<prm::nic_vport_context::roce_en>(c, a.num("roce_en"));
      prm::set<prm::nic_vport_context::allowed_list_size>(c, (s.in_len - 512) / 8);
      break;
    }
    case Op::SET_ROCE_ADDRESS: {
      set<prm::set_roce_address_in::roce_address_index>(a.num("gid"));
      void* r = at<prm::set_roce_address_in::roce_address>();
      prm::set<prm::roce_addr_layout::roce_version>(r, a.num("ver"));
      prm::set<prm::roce_addr_layout::roce_l3_type>(r, a.num("l3"));
      std::string ip = a.str("ip");
      for (std::size_t i = 0; i < 16; ++i)
        static_cast<std::uint8_t*>(r)[i] = static_cast<std::uint8_t>(std::stoul(ip.substr(i * 2, 2), nullptr, 16));
      std::uint64_t mac = std::strtoull(a.str("mac").c_str(), nullptr, 16);
      prm::set<prm::roce_addr_layout::source_mac_47_32>(r, mac >> 32);
      prm::set<prm::roce_addr_layout::source_mac_31_0>(r, mac & 0xffffffff);
      break;
    }
    case Op::MAD_IFC: {
      auto* mad = static_cast<std::uint8_t*>(at<prm::mad_ifc_in::mad>());
      mad[0] = 1;  // base version
      mad[1] = 1;  // SMP, LID routed
      mad[2] = 1;
      mad[3] = 1;                                 // Get
      store_be<std::uint16_t>(mad + 16, 0xff90);  // extended port info, vendor specific
      set<prm::mad_ifc_in::port>(1);
      break;
    }
    default: break;
  }
}

void Replay::check(const ReplayStep& s, const Args& a, const Reply& r) {
  switch (s.opcode) {
    case Op::QUERY_ISSI: EXPECT_EQ(r.get<prm::query_issi_out::supported_issi_dw0>(), 3u); break;
    case Op::QUERY_PAGES: EXPECT_EQ(r.get<prm::query_pages_out::num_pages>(), s.op_mod == 1 ? 3u : 5u); break;
    case Op::MANAGE_PAGES: {
      if (s.op_mod != 2) break;
      std::vector<pci::DmaAddr> back;
      for (std::uint32_t i = 0; i < r.get<prm::manage_pages_out::output_num_entries>(); ++i)
        back.push_back(r.get<prm::manage_pages_out::pas>(i));
      std::sort(back.begin(), back.end());
      std::sort(given.begin(), given.end());
      EXPECT_EQ(back, given);
      EXPECT_EQ(bench.hca.held_pages(), 0u);
      break;
    }
    case Op::QUERY_HCA_CAP: {
      const void* c = r.at<prm::query_hca_cap_out::capability>();
      if (a.num("cap") == 0) {
        EXPECT_EQ(prm::get<prm::cmd_hca_cap::port_type>(c), 1u);
        EXPECT_EQ(prm::get<prm::cmd_hca_cap::num_ports>(c), 1u);
        EXPECT_EQ(prm::get<prm::cmd_hca_cap::xrc>(c), 1u);
        EXPECT_EQ(prm::get<prm::cmd_hca_cap::log_bf_reg_size>(c), 9u);
        // SET_HCA_CAP takes effect on "current" only.
        bool changed = bench.hca.held_pages() == 8;
        EXPECT_EQ(prm::get<prm::cmd_hca_cap::log_max_qp>(c), changed && s.op_mod == 1 ? 17u : 18u);
      } else if (a.num("cap") == 4) {
        EXPECT_EQ(prm::get<prm::roce_cap::l3_type>(c), 6u);
        EXPECT_EQ(prm::get<prm::roce_cap::roce_version>(c), 5u);
        EXPECT_EQ(prm::get<prm::roce_cap::r_roce_dest_udp_port>(c), 4791u);
        EXPECT_GE(prm::get<prm::roce_cap::roce_address_table_size>(c), 1u);
      } else if (a.num("cap") == 7) {
        const void* rx = prm::at<prm::flow_table_nic_cap::flow_table_properties_nic_receive>(c);
        EXPECT_EQ(prm::get<prm::flow_table_prop_layout::ft_support>(rx), 1u);
        EXPECT_EQ(prm::get<prm::flow_table_prop_layout::max_ft_level>(rx), 64u);
      }
      break;
    }
    case Op::QUERY_NIC_VPORT_CONTEXT: {
      const void* c = r.at<prm::query_nic_vport_context_out::nic_vport_context>();
      EXPECT_EQ(prm::get<prm::nic_vport_context::mtu>(c), 1522u);
      EXPECT_EQ(prm::get<prm::nic_vport_context::min_wqe_inline_mode>(c), 1u);
      EXPECT_EQ(prm::get<prm::nic_vport_context::node_guid>(c), bench.config.node_guid);
      const void* mac = prm::at<prm::nic_vport_context::permanent_address>(c);
      EXPECT_EQ(prm::get<prm::mac_address_layout::mac_addr_47_32>(mac), 0x0210u);
      EXPECT_EQ(prm::get<prm::mac_address_layout::mac_addr_31_0>(mac), 0x20304050u);
      break;
    }
    case Op::QUERY_VPORT_STATE:
      EXPECT_EQ(r.get<prm::query_vport_state_out::admin_state>(), 1u);
      EXPECT_EQ(r.get<prm::query_vport_state_out::state>(), 1u);
      break;
    case Op::QUERY_HCA_VPORT_PKEY: EXPECT_EQ(prm::get<prm::pkey::pkey_>(r.out.data() + 16), 0xffffu); break;
    case Op::ACCESS_REG:
      if (a.num("reg") == 0x5004) {
        EXPECT_NE(prm::get<prm::ptys_reg::eth_proto_oper>(r.out.data() + 16), 0u);
      }
      break;
    case Op::QUERY_QP: {
      const void* c = r.at<prm::query_qp_out::qpc>();
      EXPECT_EQ(prm::get<prm::qpc::state>(c), 0u);
      EXPECT_EQ(prm::get<prm::qpc::log_rq_size>(c), 9u);
      EXPECT_NE(r.get<prm::query_qp_out::pas>(2), 0u);
      break;
    }
    case Op::MAD_IFC: {
      const auto* mad = static_cast<const std::uint8_t*>(r.at<prm::mad_ifc_out::response_mad_packet>());
      EXPECT_EQ(mad[3], 0x81);
      EXPECT_NE(load_be<std::uint16_t>(mad + 4), 0);  // not known here: the driver goes without
      break;
    }
    default: break;
  }
}

TEST_F(Replay, LoadPingPongUnload) {
  EXPECT_EQ(bench.cmd.read_reg(0x0), 0x230016u);
  EXPECT_EQ(bench.cmd.read_reg(0x4), 0x503e8u);
  EXPECT_EQ(bench.cmd.read_reg(0x14) & 0xfff, 0x56u);
  EXPECT_EQ(bench.cmd.read_reg(0x1fc), 0u);
  unsigned done = 0;
  for (const ReplayStep& s : kReplay) {
    const char* name = prm::opcode_name(static_cast<std::uint16_t>(s.opcode));
    Args a(s.args);
    bool was_events = cmd_eq.eqn != 0;
    build(s, a);
    Reply r = bench.cmd.exec(in, s.out_len);
    ASSERT_TRUE(r.completed) << name;
    ASSERT_EQ(r.delivery, prm::DeliveryStatus::OK) << name;
    ASSERT_EQ(r.status(), prm::CmdStatus::OK) << "step " << done << ": " << name << " " << s.args;
    if (is_create(s.opcode)) {
      std::uint32_t n = number_of(s.opcode, r);
      ASSERT_NE(n, 0u) << name;
      numbers[kind(s.opcode)][a.num("n")] = n;
      ++created[kind(s.opcode)];
      if (s.opcode == Op::CREATE_FLOW_GROUP) numbers["table of group"][n] = ours("table", a.num("table"));
      if (s.opcode == Op::CREATE_EQ && a.num("mask") == 0x400) {
        cmd_eq.eqn = n;
        cmd_eq.log_size = static_cast<unsigned>(a.num("log"));
        cmd_eq.buf = load_be<std::uint64_t>(in.data() + 272);
        cmd_eq_uar = ours("uar", a.num("uar"));
        bench.hca.mmio_write(cmd_eq_uar * 4096 + 0x40, byteswap(cmd_eq.eqn << 24), 4);  // armed
        // Nothing was told about the command that created the queue.
        EXPECT_EQ(bench.bus.host(cmd_eq.buf)[63], 1);
        EXPECT_TRUE(bench.bus.take_raised().empty());
      }
    } else if (*kind(s.opcode) != 0) {
      if (s.opcode == Op::DESTROY_EQ && ours("eq", a.num("n")) == cmd_eq.eqn) cmd_eq.eqn = 0;
      numbers[kind(s.opcode)].erase(a.num("n"));
      ++destroyed[kind(s.opcode)];
    }
    if (was_events) take_command_event(name);
    if (HasFatalFailure()) return;
    check(s, a, r);
    ++done;
  }
  EXPECT_EQ(done, std::size(kReplay));
  EXPECT_GT(events, 300u);
  EXPECT_EQ(bench.bus.faults(), 0u);
  EXPECT_EQ(created, destroyed);
  EXPECT_EQ(bench.hca.live_objects(), 0u);
  EXPECT_EQ(created["qp"], 4u);
  EXPECT_EQ(created["cq"], 10u);
  EXPECT_EQ(created["tir"], 12u);
  // QPNs, SQNs and RQNs are disjoint: QPNs come from the leased block.
  EXPECT_EQ(bench.lease.leased, 1u);
}

}  // namespace
}  // namespace uhca::hcatest

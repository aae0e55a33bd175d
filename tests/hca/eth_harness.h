// SPDX-License-Identifier: MIT
// An Ethernet driver in miniature: transport domain, TIS, SQ, RQs, RQT, TIRs and flow tables on a bench, frames in and out, and an
// independent way to check checksums.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/hca/data_path.h"
#include "hca/harness.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/queue_context.h"
#include "prm/wqe.h"

namespace uhca::hcatest {

using Bytes = FakePort::Bytes;

// Frames in text: "ff ff 08 00" and so on; anything but hexadecimal digits separates.
inline Bytes hex(const std::string& text) {
  Bytes out;
  std::string digits;
  for (char c : text)
    if (std::isxdigit(static_cast<unsigned char>(c))) digits += c;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) out.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return out;
}
inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline std::uint16_t u16(const Bytes& f, std::size_t at) {
  return load_be<std::uint16_t>(f.data() + at);
}
inline std::uint32_t u32(const Bytes& f, std::size_t at) {
  return load_be<std::uint32_t>(f.data() + at);
}
inline unsigned u8(const Bytes& f, std::size_t at) {
  return std::to_integer<unsigned>(f[at]);
}
inline Bytes be16(unsigned v) {
  return {static_cast<std::byte>(v >> 8), static_cast<std::byte>(v)};
}

// RFC 1071 word by word, unlike the device's.
inline std::uint16_t plain_sum(const Bytes& b) {
  std::uint32_t s = 0;
  for (std::size_t i = 0; i < b.size(); ++i) s += i % 2 == 0 ? u8(b, i) << 8 : u8(b, i);
  while (s >> 16) s = (s & 0xffff) + (s >> 16);
  return static_cast<std::uint16_t>(s);
}
inline Bytes part(const Bytes& f, std::size_t from, std::size_t len) {
  return Bytes(f.begin() + static_cast<std::ptrdiff_t>(from), f.begin() + static_cast<std::ptrdiff_t>(from + len));
}
inline Bytes counting(std::size_t n, unsigned seed = 1) {
  Bytes b;
  for (std::size_t i = 0; i < n; ++i) b.push_back(static_cast<std::byte>(seed + i * 7 + (i >> 8) * 3));
  return b;
}

inline const std::string kMyMac = "02 10 20 30 40 50", kPeerMac = "02 10 20 30 40 51";

// Ethernet and IPv4 headers before `l4`, all checksums of the IP layer right.
inline Bytes ipv4_frame(unsigned protocol, const Bytes& l4, const std::string& tag = "", const std::string& dmac = kMyMac,
                        const std::string& frag = "4000") {
  Bytes ip = hex("45 00") + be16(static_cast<unsigned>(20 + l4.size())) + hex("12 34" + frag + "40") +
             Bytes{static_cast<std::byte>(protocol)} + hex("00 00 0a 09 00 01 0a 09 00 02");
  std::uint16_t sum = static_cast<std::uint16_t>(~plain_sum(ip));
  store_be(ip.data() + 10, sum);
  return hex(dmac + kPeerMac + tag + "08 00") + ip + l4;
}
inline Bytes ipv6_frame(unsigned next, const Bytes& l4) {
  return hex(kMyMac + kPeerMac + "86 dd 60 00 00 00") + be16(static_cast<unsigned>(l4.size())) + Bytes{static_cast<std::byte>(next)} +
         hex("40 fe80000000000000 0000000000000001 fe80000000000000 0000000000000002") + l4;
}
// A TCP header with the checksum 0, ports 0x1111 and 0x2222.
inline Bytes tcp(const Bytes& data, const std::string& flags = "10") {
  return hex("11 11 22 22 00 00 00 64 00 00 00 c8 50" + flags + "ff ff 00 00 00 00") + data;
}
inline Bytes udp(const Bytes& data, const std::string& ports = "11 11 22 22") {
  return hex(ports) + be16(static_cast<unsigned>(8 + data.size())) + hex("00 00") + data;
}
// What a sum over pseudo header and segment gives; 0xffff: right.
inline std::uint16_t l4_check(const Bytes& f, std::size_t l3, std::size_t l4, unsigned protocol, bool ipv6 = false) {
  std::size_t end = ipv6 ? l3 + 40 + u16(f, l3 + 4) : l3 + u16(f, l3 + 2);
  Bytes pseudo = ipv6 ? part(f, l3 + 8, 32) : part(f, l3 + 12, 8);
  return plain_sum(pseudo + be16(protocol) + be16(static_cast<unsigned>(end - l4)) + part(f, l4, end - l4));
}

struct RawQueueHandle {
  std::uint32_t number = 0;
  pci::DmaAddr buf = 0, dbr = 0;
  unsigned log_size = 0, log_stride = 6;
  CqHandle cq;
  std::uint32_t ci = 0;  // of the CQ
  std::uint16_t pi = 0;  // WQEs or basic blocks
};

struct EthCqe {
  prm::CqeOpcode opcode{};
  std::uint8_t raw[64];
  template <prm::Field F>
  std::uint32_t get() const {
    return static_cast<std::uint32_t>(prm::get<F>(raw));
  }
};

class EthTest : public ::testing::Test {
 protected:
  using Op = prm::Opcode;
  using S = prm::CmdStatus;
  Bench bench;
  std::uint32_t td = 0, tisn = 0, lkey = 0;

  void SetUp() override {
    bench.bring_up();
    Reply r = bench.cmd.exec(Request<prm::alloc_transport_domain_in>(Op::ALLOC_TRANSPORT_DOMAIN));
    ASSERT_TRUE(r.ok());
    td = r.get<prm::alloc_transport_domain_out::transport_domain>();
    Request<prm::create_tis_in> t(Op::CREATE_TIS);
    prm::set<prm::tisc::transport_domain>(t.at<prm::create_tis_in::ctx>(), td);
    Reply tis = bench.cmd.exec(t);
    ASSERT_TRUE(tis.ok());
    tisn = tis.get<prm::create_tis_out::tisn>();
    lkey = bench.create_pa_mkey();
    set_roce(true);
  }

  void set_roce(bool on) {
    Request<prm::modify_nic_vport_context_in> m(Op::MODIFY_NIC_VPORT_CONTEXT);
    m.set<prm::modify_nic_vport_context_in::field_select>(1 << 1);
    prm::set<prm::nic_vport_context::roce_en>(m.at<prm::modify_nic_vport_context_in::nic_vport_context>(), on);
    ASSERT_TRUE(bench.cmd.exec(m).ok());
  }

  void set_local_loopback(bool on) {
    Request<prm::modify_nic_vport_context_in> m(Op::MODIFY_NIC_VPORT_CONTEXT);
    void* sel = m.at<prm::modify_nic_vport_context_in::field_select>();
    prm::set<prm::modify_nic_vport_field_select::disable_uc_local_lb>(sel, 1);
    prm::set<prm::modify_nic_vport_field_select::disable_mc_local_lb>(sel, 1);
    void* v = m.at<prm::modify_nic_vport_context_in::nic_vport_context>();
    prm::set<prm::nic_vport_context::disable_uc_local_lb>(v, !on);
    prm::set<prm::nic_vport_context::disable_mc_local_lb>(v, !on);
    ASSERT_TRUE(bench.cmd.exec(m).ok());
  }

  // ---- queues
  template <class In>
  Request<In> queue_request(Op op, RawQueueHandle& q) {
    std::size_t bytes = std::size_t{1} << (q.log_size + q.log_stride);
    q.cq = bench.create_cq(6);
    q.buf = bench.bus.alloc(bytes);
    q.dbr = bench.bus.alloc(64);
    Request<In> r(op, 0, Bench::pas_bytes(bytes));
    void* c = r.template at<In::ctx>();
    prm::set<prm::rqc::cqn>(c, q.cq.cqn);
    prm::set<prm::rqc::user_index>(c, 0xabc);
    void* wq = prm::at<prm::rqc::wq>(c);
    prm::set<prm::wq::wq_type>(wq, 1);
    prm::set<prm::wq::pd>(wq, bench.pd);
    prm::set<prm::wq::uar_page>(wq, bench.uar);
    prm::set<prm::wq::dbr_addr>(wq, q.dbr);
    prm::set<prm::wq::log_wq_stride>(wq, q.log_stride);
    prm::set<prm::wq::log_wq_sz>(wq, q.log_size);
    for (std::size_t i = 0; i < (bytes + 4095) / 4096; ++i) store_be<std::uint64_t>(r.bytes.data() + In::kBytes + i * 8, q.buf + i * 4096);
    return r;
  }
  RawQueueHandle create_sq(bool with_tis = true, unsigned log_size = 6) {
    RawQueueHandle q;
    q.log_size = log_size;
    auto r = queue_request<prm::create_sq_in>(Op::CREATE_SQ, q);
    void* c = r.at<prm::create_sq_in::ctx>();
    prm::set<prm::sqc::flush_in_error_en>(c, 1);
    prm::set<prm::sqc::tis_lst_sz>(c, with_tis);
    prm::set<prm::sqc::tis_num_0>(c, with_tis ? tisn : 0);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    q.number = out.get<prm::create_sq_out::sqn>();
    EXPECT_EQ(modify_sq(q, 0, 1), S::OK);
    return q;
  }
  RawQueueHandle create_rq(unsigned log_size = 4, unsigned log_stride = 5, bool vsd = false, std::uint32_t counter_set = 0) {
    RawQueueHandle q;
    q.log_size = log_size;
    q.log_stride = log_stride;
    auto r = queue_request<prm::create_rq_in>(Op::CREATE_RQ, q);
    void* c = r.at<prm::create_rq_in::ctx>();
    prm::set<prm::rqc::flush_in_error_en>(c, 1);
    prm::set<prm::rqc::vsd>(c, vsd);
    prm::set<prm::rqc::counter_set_id>(c, counter_set);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    q.number = out.get<prm::create_rq_out::rqn>();
    EXPECT_EQ(modify_rq(q, 0, 1), S::OK);
    return q;
  }
  S modify_sq(const RawQueueHandle& q, unsigned from, unsigned to) {
    Request<prm::modify_sq_in> r(Op::MODIFY_SQ);
    r.set<prm::modify_sq_in::sqn>(q.number).set<prm::modify_sq_in::sq_state>(from);
    prm::set<prm::sqc::state>(r.at<prm::modify_sq_in::ctx>(), to);
    return bench.cmd.exec(r).status();
  }
  S modify_rq(const RawQueueHandle& q, unsigned from, unsigned to, std::uint64_t mask = 0, bool vsd = false) {
    Request<prm::modify_rq_in> r(Op::MODIFY_RQ);
    r.set<prm::modify_rq_in::rqn>(q.number).set<prm::modify_rq_in::rq_state>(from);
    prm::set(r.bytes.data(), prm::modify_rq_in::modify_bitmask, mask);
    prm::set<prm::rqc::state>(r.at<prm::modify_rq_in::ctx>(), to);
    prm::set<prm::rqc::vsd>(r.at<prm::modify_rq_in::ctx>(), vsd);
    return bench.cmd.exec(r).status();
  }

  // ---- sending
  struct SendSpec {
    prm::WqeOpcode op = prm::WqeOpcode::SEND;
    Bytes inlined;
    std::vector<Bytes> data;  // one data segment each
    unsigned cs_flags = 0, mss = 0;
    unsigned insert = 0, tci = 0;
    bool signaled = true;
    std::uint32_t lkey = 0;  // 0: the PA key
  };
  void post_send(RawQueueHandle& sq, const SendSpec& s, bool ring = true) {
    std::uint8_t raw[1024] = {};
    std::size_t at = 16;
    if (s.op != prm::WqeOpcode::NOP) {
      std::uint8_t* e = raw + 16;
      e[4] = static_cast<std::uint8_t>(s.cs_flags);
      store_be<std::uint16_t>(e + 6, static_cast<std::uint16_t>(s.mss));
      store_be<std::uint16_t>(e + 12, static_cast<std::uint16_t>(s.insert ? s.insert : s.inlined.size()));
      if (s.insert) store_be<std::uint16_t>(e + 14, static_cast<std::uint16_t>(s.tci));
      if (!s.inlined.empty()) std::memcpy(e + 14, s.inlined.data(), s.inlined.size());
      at = std::max<std::size_t>(32, (30 + s.inlined.size() + 15) / 16 * 16);
      for (const Bytes& d : s.data) {
        pci::DmaAddr mem = bench.bus.alloc(d.size());
        std::memcpy(bench.bus.host(mem), d.data(), d.size());
        prm::set<prm::wqe_data_seg::byte_count>(raw + at, d.size());
        prm::set<prm::wqe_data_seg::lkey>(raw + at, s.lkey ? s.lkey : lkey);
        prm::set<prm::wqe_data_seg::addr>(raw + at, mem);
        at += 16;
      }
    }
    prm::set<prm::wqe_ctrl_seg::wqe_index>(raw, sq.pi);
    prm::set<prm::wqe_ctrl_seg::opcode>(raw, static_cast<unsigned>(s.op));
    prm::set<prm::wqe_ctrl_seg::qpn>(raw, sq.number);
    prm::set<prm::wqe_ctrl_seg::ds>(raw, at / 16);
    prm::set<prm::wqe_ctrl_seg::fm_ce_se>(raw, s.signaled ? prm::kWqeCtrlCqUpdate : 0);
    post_raw(sq, raw, at, ring);
  }
  void post_raw(RawQueueHandle& sq, const std::uint8_t* raw, std::size_t bytes, bool ring = true) {
    unsigned size = 1u << sq.log_size, blocks = static_cast<unsigned>((bytes + 63) / 64);
    for (unsigned i = 0; i < blocks; ++i) std::memcpy(bench.bus.host(sq.buf) + ((sq.pi + i) & (size - 1)) * 64, raw + i * 64, 64);
    sq.pi = static_cast<std::uint16_t>(sq.pi + blocks);
    bench.bus.put_be32(sq.dbr + 4, sq.pi);
    if (!ring) return;
    std::uint64_t v;
    std::memcpy(&v, raw, 8);
    bench.hca.mmio_write(std::uint64_t{bench.uar} * 4096 + 0x800, v, 8);
  }

  // ---- receiving
  // Posts a buffer of this many bytes, in pieces; returns where they lie.
  std::vector<pci::DmaAddr> post_recv(RawQueueHandle& rq, const std::vector<std::uint32_t>& pieces, std::uint32_t key = 0) {
    std::vector<pci::DmaAddr> at;
    std::uint8_t* w = bench.bus.host(rq.buf) + (std::size_t{rq.pi & ((1u << rq.log_size) - 1)} << rq.log_stride);
    std::size_t room = (std::size_t{1} << rq.log_stride) / 16;
    for (std::size_t i = 0; i < room; ++i, w += 16) {
      bool used = i < pieces.size();
      if (used) at.push_back(bench.bus.alloc(pieces[i]));
      // With the flag that mlx5e sets in each of them (MLX5_HW_START_PADDING).
      prm::set<prm::wqe_data_seg::byte_count>(w, used ? pieces[i] | 1u << 31 : 0);
      prm::set<prm::wqe_data_seg::lkey>(w, used ? (key ? key : lkey) : prm::kInvalidLkey);
      prm::set<prm::wqe_data_seg::addr>(w, used ? at.back() : 0);
    }
    ++rq.pi;
    bench.bus.put_be32(rq.dbr, rq.pi);
    return at;
  }
  Bytes memory(pci::DmaAddr at, std::size_t len) {
    Bytes b(len);
    std::memcpy(b.data(), bench.bus.host(at), len);
    return b;
  }
  void arrive(Bytes frame) {
    bench.port.inject(std::move(frame));
    while (bench.hca.drive(true)) {
    }
  }
  std::optional<EthCqe> poll(RawQueueHandle& q) {
    const std::uint8_t* e = bench.bus.host(q.cq.buf) + (q.ci & ((1u << q.cq.log_size) - 1)) * 64;
    if (e[63] >> 4 == 15 || (e[63] & 1) != ((q.ci >> q.cq.log_size) & 1)) return {};
    EthCqe c;
    std::memcpy(c.raw, e, 64);
    c.opcode = static_cast<prm::CqeOpcode>(e[63] >> 4);
    ++q.ci;
    bench.bus.put_be32(q.cq.dbr, q.ci & 0xffffff);
    return c;
  }

  // ---- where frames go
  std::uint32_t create_rqt(const std::vector<std::uint32_t>& rqns) {
    Request<prm::create_rqt_in> r(Op::CREATE_RQT, 0, rqns.size() * 4);
    void* c = r.at<prm::create_rqt_in::rqt_context>();
    prm::set<prm::rqtc::rqt_max_size>(c, rqns.size());
    prm::set<prm::rqtc::rqt_actual_size>(c, rqns.size());
    for (std::size_t i = 0; i < rqns.size(); ++i) store_be<std::uint32_t>(r.bytes.data() + prm::create_rqt_in::kBytes + i * 4, rqns[i]);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    return out.get<prm::create_rqt_out::rqtn>();
  }
  // selector: l3_prot_type << 31 | l4_prot_type << 30 | fields; direct when rqt is 0.
  std::uint32_t create_tir(std::uint32_t rqt, std::uint32_t rqn, unsigned fn = 0, std::uint32_t selector = 0, const Bytes& key = {},
                           bool symmetric = false, unsigned self_loopback = 0) {
    Request<prm::create_tir_in> r(Op::CREATE_TIR);
    void* c = r.at<prm::create_tir_in::ctx>();
    prm::set<prm::tirc::disp_type>(c, rqt != 0);
    prm::set<prm::tirc::indirect_table>(c, rqt);
    prm::set<prm::tirc::inline_rqn>(c, rqt ? 0 : rqn);
    prm::set<prm::tirc::transport_domain>(c, td);
    prm::set<prm::tirc::rx_hash_fn>(c, fn);
    prm::set<prm::tirc::rx_hash_symmetric>(c, symmetric);
    prm::set<prm::tirc::self_lb_block>(c, self_loopback);
    prm::set<prm::tirc::rx_hash_field_selector_outer>(c, selector);
    if (!key.empty()) std::memcpy(prm::at<prm::tirc::rx_hash_toeplitz_key>(c), key.data(), 40);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    return out.get<prm::create_tir_out::tirn>();
  }
  std::uint32_t create_table(unsigned level, unsigned log_size, std::uint32_t miss = 0) {
    Request<prm::create_flow_table_in> r(Op::CREATE_FLOW_TABLE);
    void* c = r.at<prm::create_flow_table_in::flow_table_context>();
    prm::set<prm::flow_table_context::level>(c, level);
    prm::set<prm::flow_table_context::log_size>(c, log_size);
    prm::set<prm::flow_table_context::table_miss_action>(c, miss != 0);
    prm::set<prm::flow_table_context::table_miss_id>(c, miss);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    return out.get<prm::create_flow_table_out::table_id>();
  }
  void set_root(std::uint32_t table) {
    Request<prm::set_flow_table_root_in> r(Op::SET_FLOW_TABLE_ROOT);
    EXPECT_TRUE(bench.cmd.exec(r.set<prm::set_flow_table_root_in::table_id>(table)).ok());
  }
  using Match = std::function<void(void* outer, void* misc)>;
  Reply try_group(std::uint32_t table, unsigned from, unsigned to, const Match& mask, unsigned criteria) {
    Request<prm::create_flow_group_in> r(Op::CREATE_FLOW_GROUP);
    r.set<prm::create_flow_group_in::table_id>(table).set<prm::create_flow_group_in::start_flow_index>(from);
    r.set<prm::create_flow_group_in::end_flow_index>(to).set<prm::create_flow_group_in::match_criteria_enable>(criteria);
    auto* m = static_cast<std::uint8_t*>(r.at<prm::create_flow_group_in::match_criteria>());
    if (mask) mask(m, m + 64);
    return bench.cmd.exec(r);
  }
  std::uint32_t create_group(std::uint32_t table, unsigned from, unsigned to, const Match& mask = {}, unsigned criteria = 1) {
    Reply out = try_group(table, from, to, mask, mask ? criteria : 0);
    EXPECT_TRUE(out.ok());
    return out.get<prm::create_flow_group_out::group_id>();
  }
  struct Dest {
    unsigned type;  // 1 table, 2 TIR
    std::uint32_t id;
  };
  S set_entry(std::uint32_t table, unsigned index, std::uint32_t group, const Match& value, const std::vector<Dest>& dests,
              unsigned action = 4, std::uint32_t counter = 0, std::uint32_t tag = 0, std::uint16_t op_mod = 0, bool any_level = false) {
    if (counter) action |= 8;
    Request<prm::set_fte_in> r(Op::SET_FLOW_TABLE_ENTRY, op_mod, (dests.size() + (counter != 0)) * 8);
    r.set<prm::set_fte_in::table_id>(table).set<prm::set_fte_in::flow_index>(index).set<prm::set_fte_in::modify_enable_mask>(op_mod ? 4
                                                                                                                                    : 0);
    r.set<prm::set_fte_in::ignore_flow_level>(any_level);
    void* c = r.at<prm::set_fte_in::flow_context>();
    prm::set<prm::flow_context::group_id>(c, group);
    prm::set<prm::flow_context::action>(c, action);
    prm::set<prm::flow_context::flow_tag>(c, tag);
    prm::set<prm::flow_context::destination_list_size>(c, dests.size());
    prm::set<prm::flow_context::flow_counter_list_size>(c, counter != 0);
    auto* m = static_cast<std::uint8_t*>(prm::at<prm::flow_context::match_value>(c));
    if (value) value(m, m + 64);
    std::uint8_t* list = r.bytes.data() + prm::set_fte_in::kBytes;
    for (const Dest& d : dests) {
      prm::set<prm::dest_format_struct::destination_type>(list, d.type);
      prm::set<prm::dest_format_struct::destination_id>(list, d.id);
      list += 8;
    }
    if (counter) prm::set<prm::flow_counter_list::flow_counter_id>(list, counter);
    return bench.cmd.exec(r).status();
  }
  // One table whose only entry sends everything to this TIR.
  void everything_to(std::uint32_t tir) {
    std::uint32_t t = create_table(1, 2);
    EXPECT_EQ(set_entry(t, 0, create_group(t, 0, 0), {}, {{2, tir}}), S::OK);
    set_root(t);
  }
};

}  // namespace uhca::hcatest

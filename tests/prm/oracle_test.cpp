// SPDX-License-Identifier: MIT
// src/prm against independent oracles: the kernel's mlx5_ifc.h (from Debian's linux-headers package, read when the test runs) and
// the structures of <infiniband/mlx5dv.h>.
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <cctype>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "prm/all.h"
#include "prm/context.h"
#include "prm/cqe.h"
#include "prm/opcode.h"
#include "prm/wqe.h"

namespace fs = std::filesystem;
using namespace uhca;

namespace {

// A little reader of mlx5_ifc.h: `struct mlx5_ifc_X_bits { u8 name[0xN]; struct mlx5_ifc_Y_bits z; union { ... } ...; };`
class Ifc {
 public:
  struct Placed {
    std::uint64_t offset, width, count;
  };
  using Fields = std::map<std::string, Placed>;

  explicit Ifc(const std::string& text) { tokenize(text); }

  // Byte-exact layout of a structure by its full name, or nullptr.
  const Fields* fields(const std::string& name) {
    auto it = structs_.find(name);
    if (it == structs_.end()) return nullptr;
    if (!it->second.done) {
      it->second.done = true;
      std::size_t p = it->second.body;
      it->second.bits = walk(p, it->second.is_union, 0, &it->second.fields);
    }
    return &it->second.fields;
  }
  std::uint64_t bits(const std::string& name) {
    fields(name);
    return structs_.count(name) ? structs_[name].bits : 0;
  }

 private:
  struct Struct {
    bool is_union = false, done = false;
    std::size_t body = 0;  // token after '{'
    std::uint64_t bits = 0;
    Fields fields;
  };

  void tokenize(const std::string& text) {
    for (std::size_t i = 0; i < text.size();) {
      if (text.compare(i, 2, "/*") == 0) {
        i = text.find("*/", i) + 2;
      } else if (text[i] == '#') {
        while (i < text.size() && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
      } else if (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_') {
        std::size_t s = i;
        while (i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_')) ++i;
        tokens_.push_back(text.substr(s, i - s));
      } else {
        if (std::string("{}[];").find(text[i]) != std::string::npos) tokens_.push_back(std::string(1, text[i]));
        ++i;
      }
    }
    for (std::size_t i = 0, depth = 0; i + 2 < tokens_.size(); ++i) {
      if (depth == 0 && (tokens_[i] == "struct" || tokens_[i] == "union") && tokens_[i + 2] == "{")
        structs_[tokens_[i + 1]] = {tokens_[i] == "union", false, i + 3, 0, {}};
      if (tokens_[i] == "{") ++depth;
      if (tokens_[i] == "}") --depth;
    }
  }

  std::vector<std::uint64_t> dims(std::size_t& p) {
    std::vector<std::uint64_t> d;
    while (tokens_[p] == "[") {
      if (tokens_[p + 1] == "]") {
        d.push_back(0);
        p += 2;
      } else {
        d.push_back(std::strtoull(tokens_[p + 1].c_str(), nullptr, 0));
        p += 3;
      }
    }
    return d;
  }

  // Walks one body up to and over its '}', placing fields; returns its size in bits.
  std::uint64_t walk(std::size_t& p, bool is_union, std::uint64_t base, Fields* out) {
    std::uint64_t off = base, largest = 0;
    while (tokens_[p] != "}") {
      std::uint64_t size = 0;
      std::string what = tokens_[p];
      if (what == "u8") {
        std::string name = tokens_[p + 1];
        p += 2;
        auto d = dims(p);
        ++p;  // ;
        size = d.empty() ? 8 : 1;
        for (auto n : d) size *= n;
        Placed place{off, size, 1};
        if (d.size() == 2) place = {off, d[1], d[0]};
        if (out) out->emplace(name, place);
      } else if (tokens_[p + 1] == "{") {
        p += 2;
        size = walk(p, what == "union", off, out);
        if (tokens_[p] != ";") ++p;  // a name
        ++p;
      } else {
        std::string type = tokens_[p + 1], name = tokens_[p + 2];
        p += 3;
        auto d = dims(p);
        ++p;
        std::uint64_t one = bits(type), n = d.empty() ? 1 : d[0];
        size = one * n;
        if (out) out->emplace(name, Placed{off, one, n});
      }
      largest = std::max(largest, size);
      if (!is_union) off += size;
    }
    ++p;
    return is_union ? largest : off - base;
  }

  std::vector<std::string> tokens_;
  std::map<std::string, Struct> structs_;
};

std::string kernel_headers() {
  std::string text;
  for (const auto& e : fs::directory_iterator("/usr/src")) {
    fs::path dir = e.path() / "include/linux/mlx5";
    if (!fs::exists(dir / "mlx5_ifc.h")) continue;
    for (const char* f : {"mlx5_ifc_fpga.h", "mlx5_ifc_vdpa.h", "mlx5_ifc.h"}) {
      std::ifstream in(dir / f);
      std::stringstream ss;
      ss << in.rdbuf();
      text += ss.str();
    }
    break;
  }
  return text;
}

}  // namespace

TEST(PrmOracle, EveryFieldLiesWhereTheKernelPutsIt) {
  std::string text = kernel_headers();
  ASSERT_FALSE(text.empty()) << "install linux-headers-amd64";
  Ifc ifc(text);
  const std::set<std::string> elsewhere = {"wqe_ctrl_seg",         "wqe_raddr_seg",   "wqe_atomic_seg", "wqe_data_seg",
                                           "wqe_inline_seg",       "wqe_av",          "wqe_eth_seg",    "wqe_srq_next_seg",
                                           "wqe_umr_ctrl_seg",     "wqe_umr_klm_seg", "wqe_xrc_seg",    "wqe_umr_mkey_seg",
                                           "wqe_mkey_context_seg", "cqe64",           "err_cqe"};
  int layouts = 0, fields = 0;
  for (const prm::LayoutInfo* layout : prm::all_layouts()) {
    const std::string name = std::string("mlx5_ifc_") + layout->name + "_bits";
    const Ifc::Fields* theirs = ifc.fields(name);
    if (!theirs) {
      EXPECT_TRUE(elsewhere.count(layout->name)) << layout->name << " has no oracle";
      continue;
    }
    ++layouts;
    // Headers of Debian 12 without its security updates know less of this register: its first twelve words of data.
    bool older = std::string(layout->name) == "mcia_reg" && ifc.bits(name) == 0x200;
    if (!older) {
      EXPECT_EQ(layout->bits, ifc.bits(name)) << layout->name;
    }
    for (std::size_t i = 0; i < layout->nfields; ++i) {
      const prm::FieldInfo& f = layout->fields[i];
      std::string field = f.name;
      auto it = theirs->find(field);
      if (it == theirs->end() && !field.empty() && field.back() == '_') it = theirs->find(field.substr(0, field.size() - 1));
      // 64 bits are two halves there.
      if (auto low = theirs->find(field + "_low"); it == theirs->end() && low != theirs->end()) {
        it = theirs->find(field + "_high");
        ASSERT_NE(it, theirs->end()) << layout->name << "." << field;
        EXPECT_EQ(f.field.offset, it->second.offset) << layout->name << "." << field;
        EXPECT_EQ(f.field.offset + 32, low->second.offset) << layout->name << "." << field;
        EXPECT_EQ(f.field.width, it->second.width + low->second.width) << layout->name << "." << field;
        ++fields;
        continue;
      }
      ASSERT_NE(it, theirs->end()) << layout->name << "." << field << " is not in the kernel's header";
      EXPECT_EQ(f.field.offset, it->second.offset) << layout->name << "." << field;
      EXPECT_EQ(f.field.width, it->second.width) << layout->name << "." << field;
      EXPECT_EQ(f.field.count, it->second.count) << layout->name << "." << field;
      ++fields;
    }
  }
  EXPECT_GT(layouts, 250);
  EXPECT_GT(fields, 2000);
}

// Offsets in bits of the members of mlx5dv.h's structures.
#define AT(type_, member_) (offsetof(type_, member_) * 8)

TEST(PrmOracle, WorkQueueEntries) {
  using namespace prm;
  EXPECT_EQ(wqe_ctrl_seg::kBytes, sizeof(mlx5_wqe_ctrl_seg));
  EXPECT_EQ(wqe_ctrl_seg::qpn.offset, AT(mlx5_wqe_ctrl_seg, qpn_ds));
  EXPECT_EQ(wqe_ctrl_seg::signature.offset, AT(mlx5_wqe_ctrl_seg, signature));
  EXPECT_EQ(wqe_ctrl_seg::dci_stream_channel_id.offset, AT(mlx5_wqe_ctrl_seg, dci_stream_channel_id));
  EXPECT_EQ(wqe_ctrl_seg::fm_ce_se.offset, AT(mlx5_wqe_ctrl_seg, fm_ce_se));
  EXPECT_EQ(wqe_ctrl_seg::imm.offset, AT(mlx5_wqe_ctrl_seg, imm));
  EXPECT_EQ(wqe_raddr_seg::kBytes, sizeof(mlx5_wqe_raddr_seg));
  EXPECT_EQ(wqe_raddr_seg::raddr.offset, AT(mlx5_wqe_raddr_seg, raddr));
  EXPECT_EQ(wqe_raddr_seg::rkey.offset, AT(mlx5_wqe_raddr_seg, rkey));
  EXPECT_EQ(wqe_atomic_seg::compare.offset, AT(mlx5_wqe_atomic_seg, compare));
  EXPECT_EQ(wqe_data_seg::kBytes, sizeof(mlx5_wqe_data_seg));
  EXPECT_EQ(wqe_data_seg::lkey.offset, AT(mlx5_wqe_data_seg, lkey));
  EXPECT_EQ(wqe_data_seg::addr.offset, AT(mlx5_wqe_data_seg, addr));
  EXPECT_EQ(wqe_inline_seg::kBytes, sizeof(mlx5_wqe_inl_data_seg));
  EXPECT_EQ(wqe_av::kBytes, sizeof(mlx5_wqe_datagram_seg));
  EXPECT_EQ(wqe_av::stat_rate_sl.offset, AT(mlx5_wqe_av, stat_rate_sl));
  EXPECT_EQ(wqe_av::fl_mlid.offset, AT(mlx5_wqe_av, fl_mlid));
  EXPECT_EQ(wqe_av::rmac_47_16.offset, AT(mlx5_wqe_av, rmac));
  EXPECT_EQ(wqe_av::tclass.offset, AT(mlx5_wqe_av, tclass));
  EXPECT_EQ(wqe_av::hop_limit.offset, AT(mlx5_wqe_av, hop_limit));
  EXPECT_EQ(wqe_av::grh_gid_fl.offset, AT(mlx5_wqe_av, grh_gid_fl));
  EXPECT_EQ(wqe_av::rgid.offset, AT(mlx5_wqe_av, rgid));
  EXPECT_EQ(wqe_eth_seg::cs_flags.offset, AT(mlx5_wqe_eth_seg, cs_flags));
  EXPECT_EQ(wqe_eth_seg::mss.offset, AT(mlx5_wqe_eth_seg, mss));
  EXPECT_EQ(wqe_eth_seg::inline_hdr_sz.offset, AT(mlx5_wqe_eth_seg, inline_hdr_sz));
  EXPECT_EQ(wqe_eth_seg::inline_hdr_start.offset, AT(mlx5_wqe_eth_seg, inline_hdr_start));
  EXPECT_EQ(kEthWqeL3Csum, MLX5_ETH_WQE_L3_CSUM);
  EXPECT_EQ(kEthWqeL4Csum, MLX5_ETH_WQE_L4_CSUM);
  EXPECT_EQ(wqe_srq_next_seg::next_wqe_index.offset, AT(mlx5_wqe_srq_next_seg, next_wqe_index));
  EXPECT_EQ(wqe_srq_next_seg::signature.offset, AT(mlx5_wqe_srq_next_seg, signature));
  // What mlx5dv.h's own helper writes must read back.
  mlx5_wqe_ctrl_seg seg{};
  mlx5dv_set_ctrl_seg(&seg, 0xabcd, MLX5_OPCODE_RDMA_WRITE_IMM, 0x5a, 0x123456, MLX5_WQE_CTRL_CQ_UPDATE, 7, 0x9c, htobe32(0xdeadbeef));
  EXPECT_EQ(get<wqe_ctrl_seg::wqe_index>(&seg), 0xabcdu);
  EXPECT_EQ(get<wqe_ctrl_seg::opcode>(&seg), static_cast<unsigned>(WqeOpcode::RDMA_WRITE_IMM));
  EXPECT_EQ(get<wqe_ctrl_seg::opmod>(&seg), 0x5au);
  EXPECT_EQ(get<wqe_ctrl_seg::qpn>(&seg), 0x123456u);
  EXPECT_EQ(get<wqe_ctrl_seg::ds>(&seg), 7u);
  EXPECT_EQ(get<wqe_ctrl_seg::signature>(&seg), 0x9cu);
  EXPECT_EQ(get<wqe_ctrl_seg::fm_ce_se>(&seg), kWqeCtrlCqUpdate);
  EXPECT_EQ(get<wqe_ctrl_seg::imm>(&seg), 0xdeadbeefu);
  EXPECT_EQ(kWqeCtrlSolicited, MLX5_WQE_CTRL_SOLICITED);
  EXPECT_EQ(kWqeCtrlFence, MLX5_WQE_CTRL_FENCE);
  EXPECT_EQ(kWqeCtrlInitiatorSmallFence, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
  EXPECT_EQ(kSendWqeBb, static_cast<unsigned>(MLX5_SEND_WQE_BB));
  EXPECT_EQ(kInvalidLkey, static_cast<unsigned>(MLX5_INVALID_LKEY));
}

TEST(PrmOracle, CompletionQueueEntries) {
  using namespace prm;
  EXPECT_EQ(cqe64::kBytes, sizeof(mlx5_cqe64));
  EXPECT_EQ(cqe64::wqe_id.offset, AT(mlx5_cqe64, wqe_id));
  EXPECT_EQ(cqe64::srqn_uidx.offset, AT(mlx5_cqe64, srqn_uidx));
  EXPECT_EQ(cqe64::imm_inval_pkey.offset, AT(mlx5_cqe64, imm_inval_pkey));
  EXPECT_EQ(cqe64::byte_cnt.offset, AT(mlx5_cqe64, byte_cnt));
  EXPECT_EQ(cqe64::timestamp.offset, AT(mlx5_cqe64, timestamp));
  EXPECT_EQ(cqe64::sop_drop_qpn.offset, AT(mlx5_cqe64, sop_drop_qpn));
  EXPECT_EQ(cqe64::wqe_counter.offset, AT(mlx5_cqe64, wqe_counter));
  EXPECT_EQ(cqe64::signature.offset, AT(mlx5_cqe64, signature));
  EXPECT_EQ(cqe64::op_own.offset, AT(mlx5_cqe64, op_own));
  EXPECT_EQ(cqe64::flags_rqpn.offset, AT(mlx5_cqe64, flags_rqpn));
  EXPECT_EQ(cqe64::slid.offset, AT(mlx5_cqe64, slid));
  EXPECT_EQ(cqe64::l4_hdr_type_etc.offset, AT(mlx5_cqe64, l4_hdr_type_etc));
  EXPECT_EQ(cqe64::vlan_info.offset, AT(mlx5_cqe64, vlan_info));
  EXPECT_EQ(err_cqe::srqn.offset, AT(mlx5_err_cqe, srqn));
  EXPECT_EQ(err_cqe::vendor_err_synd.offset, AT(mlx5_err_cqe, vendor_err_synd));
  EXPECT_EQ(err_cqe::syndrome.offset, AT(mlx5_err_cqe, syndrome));
  EXPECT_EQ(err_cqe::s_wqe_opcode.offset, AT(mlx5_err_cqe, s_wqe_opcode_qpn));
  EXPECT_EQ(err_cqe::wqe_counter.offset, AT(mlx5_err_cqe, wqe_counter));
  EXPECT_EQ(static_cast<int>(CqeOpcode::REQ), MLX5_CQE_REQ);
  EXPECT_EQ(static_cast<int>(CqeOpcode::RESP_SEND_INV), MLX5_CQE_RESP_SEND_INV);
  EXPECT_EQ(static_cast<int>(CqeOpcode::REQ_ERR), MLX5_CQE_REQ_ERR);
  EXPECT_EQ(static_cast<int>(CqeOpcode::INVALID), MLX5_CQE_INVALID);
  EXPECT_EQ(static_cast<int>(CqeSyndrome::TRANSPORT_RETRY_EXC), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  EXPECT_EQ(static_cast<int>(CqeSyndrome::REMOTE_ACCESS), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  EXPECT_EQ(static_cast<int>(CqeSyndrome::RNR_RETRY_EXC), MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
}

TEST(PrmOracle, CommandOpcodes) {
  std::string text = kernel_headers();
  int found = 0;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    char name[128];
    unsigned value;
    if (std::sscanf(line.c_str(), " MLX5_CMD_OP_%127[A-Z0-9_] = %x,", name, &value) != 2) continue;
    std::string n = name;
    if (n == "MAX" || n.rfind("GENERAL_", 0) == 0) continue;
    if (std::isdigit(static_cast<unsigned char>(n[0]))) n = "TO_" + n;
    const char* ours = prm::opcode_name(static_cast<std::uint16_t>(value));
    ASSERT_NE(ours, nullptr) << name;
    EXPECT_EQ(n, ours);
    ++found;
  }
  EXPECT_GT(found, 150);
}

TEST(PrmLayout, SetAndGetRoundTrip) {
  std::uint8_t image[64] = {};
  prm::set<prm::cqc::log_cq_size>(image, 0x15);
  EXPECT_EQ(prm::get<prm::cqc::log_cq_size>(image), 0x15u);
  prm::set<prm::cqc::log_cq_size>(image, 0);
  for (std::uint8_t b : image) EXPECT_EQ(b, 0);
  // A field never disturbs its neighbours.
  std::fill(std::begin(image), std::end(image), 0xff);
  prm::set<prm::cqc::status>(image, 0);
  EXPECT_EQ(image[0], 0x0f);
  EXPECT_EQ(image[1], 0xff);
}

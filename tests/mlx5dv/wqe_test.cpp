// SPDX-License-Identifier: MIT
// WQE segments against the structures and inline functions of <infiniband/mlx5dv.h>.
#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <vector>

#include "user/mlx5/wqe_build.h"

namespace {
using namespace uhca;
using namespace uhca::mlx5;

struct alignas(64) Seg {
  std::uint8_t b[64];
  Seg() { std::memset(b, 0xa5, sizeof b); }
  template <class T>
  const T& as() const {
    return *reinterpret_cast<const T*>(b);
  }
};

TEST(Wqe, ControlSegment) {
  struct Row {
    WqeOpcode op;
    std::uint8_t mlx5;
  };
  const Row rows[] = {{WqeOpcode::SEND, MLX5_OPCODE_SEND},
                      {WqeOpcode::SEND_IMM, MLX5_OPCODE_SEND_IMM},
                      {WqeOpcode::SEND_INVAL, MLX5_OPCODE_SEND_INVAL},
                      {WqeOpcode::RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE},
                      {WqeOpcode::RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_WRITE_IMM},
                      {WqeOpcode::RDMA_READ, MLX5_OPCODE_RDMA_READ},
                      {WqeOpcode::ATOMIC_CS, MLX5_OPCODE_ATOMIC_CS},
                      {WqeOpcode::ATOMIC_FA, MLX5_OPCODE_ATOMIC_FA},
                      {WqeOpcode::UMR, MLX5_OPCODE_UMR},
                      {WqeOpcode::NOP, MLX5_OPCODE_NOP}};
  for (const Row& r : rows) {
    Seg ours, theirs;
    CtrlSeg c;
    c.opcode = r.op;
    c.opmod = 3;
    c.index = 0xfedc;
    c.qpn = 0x12abcd;
    c.ds = 63;
    c.fm_ce_se = prm::kWqeCtrlFence | prm::kWqeCtrlCqUpdate | prm::kWqeCtrlSolicited;
    c.imm = 0x89abcdef;
    put_ctrl(ours.b, c);
    std::memset(theirs.b, 0, 16);
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(theirs.b), 0xfedc, r.mlx5, 3, 0x12abcd,
                        MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED, 63, 0, htobe32(0x89abcdef));
    EXPECT_EQ(0, std::memcmp(ours.b, theirs.b, 16)) << "opcode " << int{r.mlx5};
    EXPECT_EQ(0xa5, ours.b[16]);
  }
  EXPECT_EQ(prm::kWqeCtrlInitiatorSmallFence, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
}

TEST(Wqe, ControlSegmentBytesByHand) {
  Seg s;
  CtrlSeg c;
  c.opcode = WqeOpcode::SEND;
  c.index = 0x0102;
  c.qpn = 0x030405;
  c.ds = 2;
  c.fm_ce_se = 0x08;
  put_ctrl(s.b, c);
  const std::uint8_t want[16] = {0x00, 0x01, 0x02, 0x0a, 0x03, 0x04, 0x05, 0x02, 0, 0, 0, 0x08, 0, 0, 0, 0};
  EXPECT_EQ(0, std::memcmp(s.b, want, 16));
}

TEST(Wqe, DataSegments) {
  Seg ours, theirs;
  put_data(ours.b, 0x01020304, 0x1122, 0x7fff12345678);
  mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(theirs.b), 0x01020304, 0x1122, 0x7fff12345678);
  EXPECT_EQ(0, std::memcmp(ours.b, theirs.b, 16));
  put_data_end(ours.b);
  EXPECT_EQ(0u, ours.as<mlx5_wqe_data_seg>().byte_count);
  EXPECT_EQ(htobe32(MLX5_INVALID_LKEY), ours.as<mlx5_wqe_data_seg>().lkey);
  EXPECT_EQ(0u, ours.as<mlx5_wqe_data_seg>().addr);
}

TEST(Wqe, RemoteAddressAndAtomic) {
  Seg s;
  put_raddr(s.b, 0x1122334455667788, 0xaabbccdd);
  EXPECT_EQ(htobe64(0x1122334455667788), s.as<mlx5_wqe_raddr_seg>().raddr);
  EXPECT_EQ(htobe32(0xaabbccdd), s.as<mlx5_wqe_raddr_seg>().rkey);
  EXPECT_EQ(0u, s.as<mlx5_wqe_raddr_seg>().reserved);
  put_atomic(s.b, 0x10, 0x20);
  EXPECT_EQ(htobe64(0x10), s.as<mlx5_wqe_atomic_seg>().swap_add);
  EXPECT_EQ(htobe64(0x20), s.as<mlx5_wqe_atomic_seg>().compare);
}

TEST(Wqe, InlineHeader) {
  Seg s;
  put_inline_header(s.b, 60);
  EXPECT_EQ(htobe32(MLX5_INLINE_SEG | 60), s.as<std::uint32_t>());
}

TEST(Wqe, Datagram) {
  std::uint8_t av[48] = {};
  for (int i = 0; i < 48; ++i) av[i] = static_cast<std::uint8_t>(i);
  Seg s;
  put_datagram(s.b, av, 0x123456, 0x11111111);
  const auto& d = s.as<mlx5_wqe_av>();
  EXPECT_EQ(htobe32(0x11111111), d.key.qkey.qkey);
  EXPECT_EQ(0u, d.key.qkey.reserved);
  EXPECT_EQ(htobe32(0x123456 | 0x80000000), d.dqp_dct);
  EXPECT_EQ(0, std::memcmp(s.b + 12, av + 12, 36));
}

TEST(Wqe, AddressVectorFields) {
  using S = prm::wqe_av;
  EXPECT_EQ(prm::byte_of<S::dqp_dct>, offsetof(mlx5_wqe_av, dqp_dct) + 1);
  EXPECT_EQ(prm::byte_of<S::stat_rate_sl>, offsetof(mlx5_wqe_av, stat_rate_sl));
  EXPECT_EQ(prm::byte_of<S::rlid>, offsetof(mlx5_wqe_av, rlid));
  EXPECT_EQ(prm::byte_of<S::rmac_47_16>, offsetof(mlx5_wqe_av, rmac));
  EXPECT_EQ(prm::byte_of<S::tclass>, offsetof(mlx5_wqe_av, tclass));
  EXPECT_EQ(prm::byte_of<S::hop_limit>, offsetof(mlx5_wqe_av, hop_limit));
  EXPECT_EQ(prm::byte_of<S::grh_gid_fl>, offsetof(mlx5_wqe_av, grh_gid_fl));
  EXPECT_EQ(prm::byte_of<S::rgid>, offsetof(mlx5_wqe_av, rgid));
  EXPECT_EQ(S::kBytes, sizeof(mlx5_wqe_av));
}

TEST(Wqe, LocalInvalidate) {
  std::uint8_t buf[256];
  std::memset(buf, 0xa5, sizeof buf);
  SqRing ring{buf, buf + sizeof buf};
  WqeCursor w(ring, buf);
  w.take(16);
  put_umr_bind(w, UmrBind{});
  EXPECT_EQ(8u, w.ds());
  const auto& u = *reinterpret_cast<const mlx5_wqe_umr_ctrl_seg*>(buf + 16);
  EXPECT_EQ(MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN, u.flags);
  EXPECT_EQ(0u, u.klm_octowords);
  EXPECT_EQ(htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY | MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN), u.mkey_mask);
  const auto& m = *reinterpret_cast<const mlx5_wqe_mkey_context_seg*>(buf + 64);
  EXPECT_EQ(MLX5_WQE_MKEY_CONTEXT_FREE, m.free);
  EXPECT_EQ(htobe32(0xffffff00), m.qpn_mkey);
  EXPECT_EQ(0xa5, buf[128]);
}

TEST(Wqe, BindWindowWraps) {
  std::uint8_t buf[256];
  std::memset(buf, 0xa5, sizeof buf);
  SqRing ring{buf, buf + sizeof buf};
  WqeCursor w(ring, buf + 128);  // 192 bytes from here: the KLM lands at the ring's start
  w.take(16);
  UmrBind u;
  u.new_key = 0x1234567a;
  u.qpn = 0x42;
  u.addr = 0x7000;
  u.length = 0x80000000;
  u.lkey = 0x55;
  u.remote_write = u.remote_atomic = true;
  put_umr_bind(w, u);
  EXPECT_EQ(12u, w.ds());
  const auto& c = *reinterpret_cast<const mlx5_wqe_umr_ctrl_seg*>(buf + 144);
  EXPECT_EQ(MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE, c.flags);
  EXPECT_EQ(htobe16(4), c.klm_octowords);
  const auto& m = *reinterpret_cast<const mlx5_wqe_mkey_context_seg*>(buf + 192);
  EXPECT_EQ(htobe32(0x427a), m.qpn_mkey);
  EXPECT_EQ(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE | MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC, m.access_flags);
  EXPECT_EQ(htobe64(0x7000), m.start_addr);
  EXPECT_EQ(htobe64(0x80000000), m.len);
  const auto& k = *reinterpret_cast<const mlx5_wqe_umr_klm_seg*>(buf);
  EXPECT_EQ(htobe32(0x80000000), k.byte_count);
  EXPECT_EQ(htobe32(0x55), k.mkey);
  EXPECT_EQ(htobe64(0x7000), k.address);
  EXPECT_EQ(0xa5, buf[64]);
}

TEST(Wqe, InlineCopyWraps) {
  std::uint8_t buf[128];
  std::memset(buf, 0, sizeof buf);
  SqRing ring{buf, buf + sizeof buf};
  WqeCursor w(ring, buf + 64);
  w.take(16);
  w.take(16);
  std::uint8_t* header = w.take_inline_header();
  std::uint8_t data[50];
  for (int i = 0; i < 50; ++i) data[i] = static_cast<std::uint8_t>(i + 1);
  w.copy(data, 20);
  w.copy(data + 20, 30);
  w.add_inline_ds(50);
  EXPECT_EQ(buf + 96, header);
  EXPECT_EQ(0, std::memcmp(buf + 100, data, 28));
  EXPECT_EQ(0, std::memcmp(buf, data + 28, 22));
  EXPECT_EQ(2u + 4u, w.ds());
}

TEST(Wqe, ReceiveListEndsAndSkipsEmpty) {
  ibv_sge list[3] = {{0x1000, 10, 1}, {0x2000, 0, 2}, {0x3000, 30, 3}};
  Seg s;
  put_recv_list(s.b, list, 3, 4);
  const auto* d = reinterpret_cast<const mlx5_wqe_data_seg*>(s.b);
  EXPECT_EQ(htobe32(10), d[0].byte_count);
  EXPECT_EQ(htobe32(30), d[1].byte_count);
  EXPECT_EQ(htobe32(3), d[1].lkey);
  EXPECT_EQ(htobe32(MLX5_INVALID_LKEY), d[2].lkey);
  Seg full;
  ibv_sge four[4] = {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}};
  put_recv_list(full.b, four, 4, 4);
  EXPECT_EQ(htobe64(4), reinterpret_cast<const mlx5_wqe_data_seg*>(full.b)[3].addr);
}

TEST(Wqe, EthernetSegmentWithHeadersThatWrap) {
  alignas(64) std::uint8_t ring[128];
  std::memset(ring, 0xee, sizeof ring);
  SqRing r{ring, ring + sizeof ring};
  std::uint8_t headers[54];
  for (unsigned i = 0; i < sizeof headers; ++i) headers[i] = static_cast<std::uint8_t>(i + 1);
  WqeCursor w(r, ring + 64);
  w.take(prm::wqe_ctrl_seg::kBytes);
  put_ethernet(w, prm::kEthWqeL3Csum, 1000, headers, sizeof headers);
  // Control 1, Ethernet 1, 52 bytes in 4.
  EXPECT_EQ(6u, w.ds());
  const std::uint8_t* seg = ring + 64 + 16;
  EXPECT_EQ(prm::kEthWqeL3Csum, prm::get<prm::wqe_eth_seg::cs_flags>(seg));
  EXPECT_EQ(1000u, prm::get<prm::wqe_eth_seg::mss>(seg));
  EXPECT_EQ(54u, prm::get<prm::wqe_eth_seg::inline_hdr_sz>(seg));
  EXPECT_EQ(0, std::memcmp(seg + 14, headers, 2 + 32));
  EXPECT_EQ(0, std::memcmp(ring, headers + 34, 20));
  EXPECT_EQ(ring + 32, w.take(16));
  // Without headers it is one segment.
  WqeCursor plain(r, ring);
  put_ethernet(plain, 0, 0, nullptr, 0);
  EXPECT_EQ(1u, plain.ds());
  EXPECT_EQ(0u, prm::get<prm::wqe_eth_seg::inline_hdr_sz>(ring));
}

}  // namespace

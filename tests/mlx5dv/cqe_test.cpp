// SPDX-License-Identifier: MIT
// CQEs: every syndrome and opcode, ownership, payload inside the CQE. The oracle is <infiniband/mlx5dv.h>.
#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <cstring>

#include "user/mlx5/cqe_parse.h"

namespace {
using namespace uhca;
using namespace uhca::mlx5;

TEST(Cqe, EverySyndrome) {
  struct Row {
    std::uint8_t syndrome;
    ibv_wc_status status;
  };
  const Row rows[] = {
      {MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, IBV_WC_LOC_LEN_ERR},
      {MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR},
      {MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, IBV_WC_LOC_PROT_ERR},
      {MLX5_CQE_SYNDROME_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR},
      {MLX5_CQE_SYNDROME_MW_BIND_ERR, IBV_WC_MW_BIND_ERR},
      {MLX5_CQE_SYNDROME_BAD_RESP_ERR, IBV_WC_BAD_RESP_ERR},
      {MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR},
      {MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, IBV_WC_REM_INV_REQ_ERR},
      {MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR},
      {MLX5_CQE_SYNDROME_REMOTE_OP_ERR, IBV_WC_REM_OP_ERR},
      {MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR},
      {MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR},
      {MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR, IBV_WC_REM_ABORT_ERR},
  };
  int known = 0;
  for (int s = 0; s < 256; ++s) {
    ibv_wc_status want = IBV_WC_GENERAL_ERR;
    for (const Row& r : rows)
      if (r.syndrome == s) want = r.status, ++known;
    EXPECT_EQ(want, wc_status(static_cast<std::uint8_t>(s))) << s;
  }
  EXPECT_EQ(13, known);
}

TEST(Cqe, ErrorFields) {
  mlx5_err_cqe e = {};
  e.vendor_err_synd = 0x81;
  e.syndrome = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
  e.s_wqe_opcode_qpn = htobe32(0x0a000000u | 0x1234);
  e.wqe_counter = htobe16(0xc092);
  e.op_own = MLX5_CQE_REQ_ERR << 4 | 1;
  CqeView v(reinterpret_cast<const std::uint8_t*>(&e));
  EXPECT_EQ(CqeOpcode::REQ_ERR, v.opcode());
  EXPECT_EQ(0x81, v.vendor_err());
  EXPECT_EQ(0x15, v.syndrome());
  EXPECT_EQ(0x1234u, v.qpn());
  EXPECT_EQ(0xc092, v.wqe_counter());
}

// A dump from a real device (last 16 bytes of a CQE): "00000000 93005204 0a0019a1 c0921cd2".
TEST(Cqe, RealDump) {
  std::uint8_t b[64] = {};
  const std::uint32_t last[4] = {0x00000000, 0x93005204, 0x0a0019a1, 0xc0921cd2};
  for (int i = 0; i < 4; ++i) store_be<std::uint32_t>(b + 48 + 4 * i, last[i]);
  CqeView v(b);
  EXPECT_EQ(CqeOpcode::REQ_ERR, v.opcode());
  EXPECT_EQ(IBV_WC_LOC_PROT_ERR, wc_status(v.syndrome()));
  EXPECT_EQ(0x52, v.vendor_err());
  EXPECT_EQ(0x19a1u, v.qpn());
  EXPECT_EQ(0xc092, v.wqe_counter());
  EXPECT_EQ(MLX5_OPCODE_SEND, v.wqe_opcode());
}

TEST(Cqe, Fields) {
  mlx5_cqe64 c = {};
  c.srqn_uidx = htobe32(0xab123456);
  c.imm_inval_pkey = htobe32(0x89abcdef);
  c.byte_cnt = htobe32(4136);
  c.timestamp = htobe64(0x1122334455667788);
  c.sop_drop_qpn = htobe32(0x00abcdef);
  c.flags_rqpn = htobe32(1u << 28 | 5u << 24 | 0x654321);
  c.slid = htobe16(0x1122);
  c.ml_path = 0xff;
  c.vlan_info = htobe16(0x3344);
  c.op_own = MLX5_CQE_RESP_SEND_IMM << 4;
  CqeView v(reinterpret_cast<const std::uint8_t*>(&c));
  EXPECT_EQ(0x123456u, v.uidx());
  EXPECT_EQ(0x89abcdefu, v.imm_inval());
  EXPECT_EQ(htobe32(0x89abcdef), v.imm_be());
  EXPECT_EQ(4136u, v.byte_cnt());
  EXPECT_EQ(0x1122334455667788u, v.timestamp());
  EXPECT_EQ(0xabcdefu, v.qpn());
  EXPECT_EQ(0x654321u, v.src_qp());
  EXPECT_EQ(5, v.sl());
  EXPECT_TRUE(v.grh());
  EXPECT_EQ(0x1122, v.slid());
  EXPECT_EQ(0x7f, v.dlid_path_bits());
  EXPECT_EQ(0x3344, v.cvlan());
}

TEST(Cqe, Opcodes) {
  EXPECT_EQ(IBV_WC_SEND, wc_opcode_request(MLX5_OPCODE_SEND, 0));
  EXPECT_EQ(IBV_WC_SEND, wc_opcode_request(MLX5_OPCODE_SEND_IMM, 0));
  EXPECT_EQ(IBV_WC_SEND, wc_opcode_request(MLX5_OPCODE_SEND_INVAL, 0));
  EXPECT_EQ(IBV_WC_RDMA_WRITE, wc_opcode_request(MLX5_OPCODE_RDMA_WRITE, 0));
  EXPECT_EQ(IBV_WC_RDMA_WRITE, wc_opcode_request(MLX5_OPCODE_RDMA_WRITE_IMM, 0));
  EXPECT_EQ(IBV_WC_RDMA_READ, wc_opcode_request(MLX5_OPCODE_RDMA_READ, 0));
  EXPECT_EQ(IBV_WC_COMP_SWAP, wc_opcode_request(MLX5_OPCODE_ATOMIC_CS, 0));
  EXPECT_EQ(IBV_WC_FETCH_ADD, wc_opcode_request(MLX5_OPCODE_ATOMIC_FA, 0));
  EXPECT_EQ(IBV_WC_LOCAL_INV, wc_opcode_request(MLX5_OPCODE_UMR, IBV_WC_LOCAL_INV));
  EXPECT_EQ(IBV_WC_BIND_MW, wc_opcode_request(MLX5_OPCODE_UMR, IBV_WC_BIND_MW));
  EXPECT_EQ(IBV_WC_RECV_RDMA_WITH_IMM, wc_opcode_response(CqeOpcode::RESP_WR_IMM));
  EXPECT_EQ(IBV_WC_RECV, wc_opcode_response(CqeOpcode::RESP_SEND_INV));
  EXPECT_EQ(unsigned{IBV_WC_WITH_IMM}, wc_flags_response(CqeOpcode::RESP_WR_IMM));
  EXPECT_EQ(unsigned{IBV_WC_WITH_IMM}, wc_flags_response(CqeOpcode::RESP_SEND_IMM));
  EXPECT_EQ(unsigned{IBV_WC_WITH_INV}, wc_flags_response(CqeOpcode::RESP_SEND_INV));
  EXPECT_EQ(0u, wc_flags_response(CqeOpcode::RESP_SEND));
}

TEST(Cqe, OwnershipFlipsEachPass) {
  EXPECT_FALSE(cqe_owned_by_sw(prm::kCqeOwnerInitial, 0, 8));
  EXPECT_FALSE(cqe_owned_by_sw(prm::kCqeOwnerInitial | 1, 8, 8));
  EXPECT_TRUE(cqe_owned_by_sw(0x00, 7, 8));
  EXPECT_FALSE(cqe_owned_by_sw(0x01, 7, 8));
  EXPECT_TRUE(cqe_owned_by_sw(0x01, 8, 8));
  EXPECT_FALSE(cqe_owned_by_sw(0x00, 15, 8));
  EXPECT_TRUE(cqe_owned_by_sw(0x20, 0, 8));
}

TEST(Cqe, ScatterFromCqe) {
  std::uint8_t cqe[128];
  for (int i = 0; i < 128; ++i) cqe[i] = static_cast<std::uint8_t>(i);
  cqe[127] = MLX5_CQE_RESP_SEND << 4 | MLX5_INLINE_SCATTER_64;
  CqeView v(cqe + 64);
  EXPECT_TRUE(v.has_inline_data());
  EXPECT_EQ(cqe, v.inline_data());
  cqe[127] = MLX5_CQE_RESP_SEND << 4 | MLX5_INLINE_SCATTER_32;
  EXPECT_EQ(cqe + 64, v.inline_data());

  std::uint8_t a[10] = {}, b[10] = {}, dropped[10] = {};
  std::uint8_t list[48];
  auto put = [&](int i, void* p, std::uint32_t n, std::uint32_t lkey) {
    mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(list + 16 * i), n, lkey, reinterpret_cast<std::uintptr_t>(p));
  };
  put(0, a, 4, 1);
  put(1, dropped, 6, 0x99);
  put(2, b, 10, 1);
  const std::uint8_t* src = cqe;
  std::uint32_t size = 15;
  EXPECT_TRUE(scatter_from_cqe(list, 3, src, size, 0x99));
  EXPECT_EQ(0, std::memcmp(a, cqe, 4));
  EXPECT_EQ(0, dropped[0]);
  EXPECT_EQ(0, std::memcmp(b, cqe + 10, 5));
  EXPECT_EQ(0, b[5]);
  src = cqe;
  size = 21;
  EXPECT_FALSE(scatter_from_cqe(list, 3, src, size, 0x99));
  EXPECT_EQ(1u, size);
}

}  // namespace

// SPDX-License-Identifier: MIT
// DEVX through ioctls, on the real driver and device.
#include "kernel/mlx5_ib/devx.h"

#include <fcntl.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "device/pci/inproc.h"
#include "harness.h"
#include "kernel/mlx5_ib/dev_resources.h"
#include "kernel/mlx5_ib/devx_cmd.h"
#include "kernel/mlx5_ib/mlx5_ib.h"
#include "mm/moving_buffer.h"
#include "prm/cmd_core.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"
#include "prm/event.h"
#include "prm/queue_context.h"
#include "prm/umem_ref.h"
#include "uverbs/real_device.h"

namespace uhca::kernel::test {
namespace {

using Op = prm::Opcode;
constexpr std::size_t kOut = 16;

struct Cmd {
  std::vector<std::uint8_t> in, out;
  Cmd(Op op, std::size_t inlen = 16, std::size_t outlen = kOut, std::uint16_t op_mod = 0) : in(inlen), out(outlen) {
    prm::set<prm::cmd_in::opcode>(in.data(), static_cast<std::uint16_t>(op));
    prm::set<prm::cmd_in::op_mod>(in.data(), op_mod);
  }
  Cmd& number(std::uint32_t n) {
    prm::set<prm::destroy_cq_in::cqn>(in.data(), n);
    return *this;
  }
  std::uint32_t answered() const { return prm::get<prm::alloc_pd_out::pd>(out.data()); }
  unsigned status() const { return prm::get<prm::cmd_out::status>(out.data()); }
};

class Devx : public RealDevice {
 protected:
  int other(Cmd& c) {
    return Ioctl(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)
        .ptr(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, c.in.data(), c.in.size())
        .ptr(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, c.out.data(), c.out.size())
        .run(*f);
  }
  int create(Cmd& c, std::uint32_t* handle = nullptr) {
    Ioctl i(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    i.obj(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
        .ptr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, c.in.data(), c.in.size())
        .ptr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, c.out.data(), c.out.size());
    int err = i.run(*f);
    if (handle) *handle = static_cast<std::uint32_t>(i.attr(0).data);
    return err;
  }
  int destroy(std::uint32_t handle) {
    return Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY).obj(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, handle).run(*f);
  }
  int query(std::uint32_t handle, Cmd& c) {
    return Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY)
        .obj(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, handle)
        .ptr(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, c.in.data(), c.in.size())
        .ptr(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, c.out.data(), c.out.size())
        .run(*f);
  }
  int modify(std::uint32_t handle, Cmd& c) {
    return Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
        .obj(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, handle)
        .ptr(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, c.in.data(), c.in.size())
        .ptr(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, c.out.data(), c.out.size())
        .run(*f);
  }
  int fd_object(std::uint16_t object, std::uint16_t method, std::uint16_t attr, std::uint64_t flags, bool has_flags, int* fd) {
    Ioctl i(object, method);
    i.obj(attr);
    if (has_flags) i.val64(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, flags);
    int err = i.run(*f);
    if (err == 0) {
      *fd = static_cast<int>(i.attr(0).data);
      fds.push_back(*fd);
      fcntl(*fd, F_SETFL, O_NONBLOCK);
    }
    return err;
  }
  // Of memory, or at an offset of a dma-buf.
  int alloc_uar(std::uint32_t* page_id) {
    std::uint64_t offset;
    std::uint32_t length;
    return Ioctl(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
        .obj(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
        .val64(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
        .ptr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, 8)
        .ptr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, 4)
        .ptr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page_id, 4)
        .run(*f);
  }
  int query_eqn(std::uint32_t vector, std::uint32_t* eqn) {
    return Ioctl(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN)
        .val(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, vector)
        .ptr(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn, 4)
        .run(*f);
  }
  int umem_reg(void* p, std::size_t n, std::uint64_t access, std::uint64_t bitmap, std::uint32_t* handle, std::uint32_t* id) {
    return umem_reg(uptr(p), n, access, bitmap, handle, id, nullptr);
  }
  int umem_reg(std::uint64_t at, std::size_t n, std::uint64_t access, std::uint64_t bitmap, std::uint32_t* handle, std::uint32_t* id,
               const int* fd) {
    Ioctl i(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
    i.obj(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
        .val64(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, at)
        .val64(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, n)
        .val64(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, access)
        .ptr(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, id, sizeof *id);
    if (bitmap) i.val64(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, bitmap);
    if (fd) i.obj(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, static_cast<std::uint64_t>(*fd));
    int err = i.run(*f);
    *handle = static_cast<std::uint32_t>(i.attr(0).data);
    return err;
  }
};

TEST_F(Devx, GeneralCommandsAndTheirWhitelist) {
  open(true);
  Cmd cap(Op::QUERY_HCA_CAP, 16, 16 + 4096, 1);
  EXPECT_EQ(other(cap), 0);
  EXPECT_EQ(cap.status(), 0u);
  Cmd vport(Op::QUERY_NIC_VPORT_CONTEXT, 16, 272);
  EXPECT_EQ(other(vport), 0);
  // What is about an object, or the driver's alone, is none.
  for (Op op : {Op::CREATE_CQ, Op::DESTROY_CQ, Op::ALLOC_PD, Op::INIT_HCA, Op::TEARDOWN_HCA, Op::MANAGE_PAGES, Op::CREATE_UCTX,
                Op::CREATE_UMEM, Op::ACCESS_REG, Op::SET_ROCE_ADDRESS, Op::QUERY_CQ}) {
    Cmd c(op);
    EXPECT_EQ(other(c), EINVAL) << prm::opcode_name(static_cast<std::uint16_t>(op));
  }
  // The firmware's refusal comes back with its answer.
  Cmd bad(Op::QUERY_HCA_CAP, 16, 16 + 4096, 0x7f << 1);
  EXPECT_EQ(other(bad), EREMOTEIO);
  EXPECT_NE(bad.status(), 0u);
  EXPECT_NE(prm::get<prm::cmd_out::syndrome>(bad.out.data()), 0u);
  Cmd lag(Op::QUERY_LAG);  // allowed; this device has none
  EXPECT_EQ(other(lag), EREMOTEIO);
  Cmd tunnel(Op::QUERY_HCA_CAP, 16, 16 + 4096, 1);
  prm::set<prm::general_obj_in_cmd_hdr::vhca_tunnel_id>(tunnel.in.data(), 1);
  EXPECT_EQ(other(tunnel), EINVAL);
  Cmd short_in(Op::NOP, 15);
  EXPECT_EQ(other(short_in), EINVAL);
}

TEST_F(Devx, WithoutAUserContextOnlyWhitelistedQueries) {
  open(false);
  Cmd cap(Op::QUERY_HCA_CAP, 16, 16 + 4096, 1);
  EXPECT_EQ(other(cap), 0);
  Cmd nop(Op::NOP);
  EXPECT_EQ(other(nop), EINVAL);
  Cmd pd(Op::ALLOC_PD);
  EXPECT_EQ(create(pd), EINVAL);
  std::uint32_t handle, id;
  alignas(4096) static char memory[4096];
  EXPECT_EQ(umem_reg(memory, sizeof memory, 1, 0, &handle, &id), EINVAL);
}

TEST_F(Devx, ObjectsLiveAndDie) {
  open(true);
  Cmd pd(Op::ALLOC_PD);
  std::uint32_t handle;
  ASSERT_EQ(create(pd, &handle), 0);
  EXPECT_NE(pd.answered(), 0u);
  Cmd wrong(Op::DEALLOC_PD);
  EXPECT_EQ(create(wrong), EINVAL);  // creates nothing
  Cmd refused(Op::CREATE_CQ, prm::create_cq_in::kBytes);
  EXPECT_EQ(create(refused), EREMOTEIO);
  EXPECT_NE(refused.status(), 0u);
  Cmd unknown(Op::CREATE_XRQ, 0x110);
  EXPECT_EQ(create(unknown), EREMOTEIO);  // passed on; the device has none
  Cmd short_key(Op::CREATE_MKEY, 64);
  EXPECT_EQ(create(short_key), EINVAL);
  // Queries and changes must be of the kind, and about the handle's object.
  Cmd q(Op::QUERY_CQ, 16, prm::query_cq_out::kBytes);
  EXPECT_EQ(query(handle, q), EINVAL);
  EXPECT_EQ(query(handle, pd), EINVAL);
  Cmd m(Op::MODIFY_CQ, prm::modify_cq_in::kBytes);
  EXPECT_EQ(modify(handle, m), EINVAL);
  EXPECT_EQ(modify(handle, q), EINVAL);
  EXPECT_EQ(query(handle + 50, q), ENOENT);
  EXPECT_EQ(destroy(handle), 0);
  EXPECT_EQ(destroy(handle), ENOENT);
  // What is left goes with the file.
  Cmd more(Op::ALLOC_PD);
  EXPECT_EQ(create(more), 0);
}

TEST_F(Devx, UmemsQueuesAndEvents) {
  open(true);
  auto* memory = static_cast<std::uint8_t*>(::mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::uint32_t buf_handle, buf, dbr_handle, dbr, bad;
  EXPECT_EQ(umem_reg(memory, 8192, 2, 0, &bad, &buf), EINVAL);       // remote write without local write
  EXPECT_EQ(umem_reg(memory, 8192, 1 << 6, 0, &bad, &buf), EINVAL);  // on demand: no such flag here
  EXPECT_EQ(umem_reg(memory, 8192, 1, 0x800, &bad, &buf), EINVAL);   // pages of 2 KiB
  EXPECT_EQ(umem_reg(nullptr, 8192, 1, 0, &bad, &buf), EFAULT);
  EXPECT_EQ(umem_reg(memory, 0, 1, 0, &bad, &buf), EINVAL);
  ASSERT_EQ(umem_reg(memory, 8192, 1, 0, &buf_handle, &buf), 0);
  ASSERT_EQ(umem_reg(memory + 8200, 8, 1, 0, &dbr_handle, &dbr), 0);

  std::uint32_t page_id = 0;
  ASSERT_EQ(alloc_uar(&page_id), 0);
  std::uint32_t eqn = 0;
  EXPECT_EQ(query_eqn(1000, &eqn), EINVAL);
  ASSERT_EQ(query_eqn(0, &eqn), 0);
  std::uint32_t uar_index;
  EXPECT_EQ(Ioctl(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR)
                .val(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, 0)
                .ptr(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, &uar_index, 4)
                .run(*f),
            EINVAL);

  Cmd cq(Op::CREATE_CQ, prm::create_cq_in::kBytes);
  void* cqc = prm::at<prm::create_cq_in::cq_context>(static_cast<void*>(cq.in.data()));
  prm::set<prm::cqc::log_cq_size>(cqc, 6);
  prm::set<prm::cqc::uar_page>(cqc, page_id);
  prm::set<prm::cqc::c_eqn_or_apu_element>(cqc, eqn);
  prm::set(cqc, prm::umem_ref::cqc_dbr_umem_id, dbr);
  prm::set(cq.in.data(), prm::umem_ref::cq_umem_id, buf);
  std::uint32_t handle;
  ASSERT_EQ(create(cq, &handle), 0);  // the valid bits are the driver's to set
  Cmd q(Op::QUERY_CQ, 16, prm::query_cq_out::kBytes);
  EXPECT_EQ(query(handle, q.number(cq.answered())), 0);
  EXPECT_EQ(prm::get<prm::cqc::log_cq_size>(prm::at<prm::query_cq_out::cq_context>(static_cast<const void*>(q.out.data()))), 6u);
  EXPECT_EQ(query(handle, q.number(cq.answered() + 1)), EINVAL);
  Cmd m(Op::MODIFY_CQ, prm::modify_cq_in::kBytes);
  prm::set<prm::modify_cq_in::modify_field_select_resize_field_select>(m.in.data(), 1);
  EXPECT_EQ(modify(handle, m.number(cq.answered())), 0);
  // Destroying the memory below it is the firmware's refusal: EINVAL.
  EXPECT_EQ(Ioctl(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG).obj(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, buf_handle).run(*f),
            EINVAL);

  // Asynchronous query.
  int fd;
  ASSERT_EQ(fd_object(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE,
                      0, false, &fd),
            0);
  EXPECT_TRUE(uverbs_is_message_fd(fd));
  std::vector<std::uint8_t> answer(8 + prm::query_cq_out::kBytes);
  EXPECT_EQ(uverbs_message_read(fd, uptr(answer.data()), answer.size()).code(), EAGAIN);
  auto async_query = [&](std::uint32_t n, std::uint64_t outlen) {
    q.number(n);
    std::uint64_t wr_id = 0x1122334455667788;
    return Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY)
        .obj(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, handle)
        .ptr(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, q.in.data(), q.in.size())
        .obj(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, static_cast<std::uint64_t>(fd))
        .val64(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, wr_id)
        .val64(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, outlen)
        .run(*f);
  };
  EXPECT_EQ(async_query(cq.answered() + 1, prm::query_cq_out::kBytes), EINVAL);
  EXPECT_EQ(async_query(cq.answered(), 0x10000), EINVAL);  // 16 bits
  ASSERT_EQ(async_query(cq.answered(), prm::query_cq_out::kBytes), 0);
  pollfd p{fd, POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 1);
  EXPECT_EQ(uverbs_message_read(fd, uptr(answer.data()), 100).code(), ENOSPC);  // and it stays
  auto got = uverbs_message_read(fd, uptr(answer.data()), answer.size());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, answer.size());
  std::uint64_t wr_id;
  std::memcpy(&wr_id, answer.data(), 8);
  EXPECT_EQ(wr_id, 0x1122334455667788u);
  EXPECT_EQ(answer[8], 0);  // status
  unsigned accepted = 0;
  while (async_query(cq.answered(), 0xffff) == 0) ++accepted;
  EXPECT_EQ(accepted, 16u);  // 1 MiB of unread answers

  // Events.
  int events, cookies;
  EXPECT_EQ(fd_object(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
                      MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 2, true, &events),
            EINVAL);
  ASSERT_EQ(fd_object(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
                      MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 0, true, &events),
            0);
  ASSERT_EQ(fd_object(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
                      MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 1, true, &cookies),
            0);
  int signalled = eventfd(0, EFD_NONBLOCK);
  fds.push_back(signalled);
  auto subscribe = [&](int to, std::vector<std::uint16_t> list, bool of_object, std::uint64_t cookie, int redirect = -1) {
    Ioctl i(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT);
    i.obj(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, static_cast<std::uint64_t>(to));
    if (of_object) i.obj(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, handle);
    std::uint64_t inline_list = 0;
    if (list.size() <= 4) {
      std::memcpy(&inline_list, list.data(), list.size() * 2);
      i.raw(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, static_cast<std::uint16_t>(list.size() * 2), inline_list);
    } else {
      i.ptr(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, list.data(), list.size() * 2);
    }
    if (cookie) i.val64(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, cookie);
    if (redirect >= 0) i.val(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, static_cast<std::uint32_t>(redirect));
    return i.run(*f);
  };
  EXPECT_EQ(subscribe(events, {0x09}, true, 0), EINVAL);   // the port's event is no object's
  EXPECT_EQ(subscribe(events, {0x04}, false, 0), EINVAL);  // and the other way round
  EXPECT_EQ(subscribe(events, std::vector<std::uint16_t>(17, 0x04), true, 0), EINVAL);
  EXPECT_EQ(subscribe(events, {0x04}, true, 1, signalled), EINVAL);  // a cookie has no place in an eventfd
  EXPECT_EQ(subscribe(events, {0x04}, true, 0, 900), EBADF);
  EXPECT_EQ(subscribe(events, {0x04}, true, 0, fd), EINVAL);
  EXPECT_EQ(subscribe(1000, {0x04}, true, 0), EBADF);
  ASSERT_EQ(subscribe(events, {0x09}, false, 0xabc), 0);
  ASSERT_EQ(subscribe(cookies, {0x09}, false, 0xdef), 0);
  ASSERT_EQ(subscribe(events, {0x09}, false, 0, signalled), 0);
  EXPECT_EQ(subscribe(events, {0x00, 0x04}, true, 0x123), 0);

  EXPECT_EQ(destroy(handle), 0);
  EXPECT_EQ(Ioctl(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG).obj(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, buf_handle).run(*f),
            0);
  // Unread answers go with the file.
  f->release();
  EXPECT_EQ(uverbs_message_read(fd, uptr(answer.data()), answer.size()).code(), EBADF);
  munmap(memory, 1 << 16);
}

// DCTs must be drained before they can be destroyed, by the handle and with the file; the event says when that is done.
TEST_F(Devx, DctsAreDrainedAndDestroyed) {
  open(true);
  auto have = mlx5::to_mdev(*dev).devr->get();
  ASSERT_TRUE(have.ok());
  Cmd create_dct(Op::CREATE_DCT, prm::create_dct_in::kBytes);
  void* ctx = prm::at<prm::create_dct_in::dct_context_entry>(static_cast<void*>(create_dct.in.data()));
  prm::set<prm::dctc::pd>(ctx, have->p0);
  prm::set<prm::dctc::cqn>(ctx, have->c0);
  prm::set<prm::dctc::srqn_xrqn>(ctx, have->s1);
  prm::set<prm::dctc::mtu>(ctx, 3);
  std::uint32_t first, second, third;
  ASSERT_EQ(create(create_dct, &first), 0);
  ASSERT_EQ(create(create_dct, &second), 0);
  const std::uint32_t number = create_dct.answered();
  int events;
  ASSERT_EQ(fd_object(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
                      MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 0, true, &events),
            0);
  ASSERT_EQ(Ioctl(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT)
                .obj(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, static_cast<std::uint64_t>(events))
                .obj(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, second)
                .raw(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, 2, 0x1c)
                .val64(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, 0xdc)
                .run(*f),
            0);
  Cmd q(Op::QUERY_DCT, 16, prm::query_dct_out::kBytes);
  EXPECT_EQ(query(second, q.number(number)), 0);
  EXPECT_EQ(destroy(first), 0);
  EXPECT_EQ(destroy(first), ENOENT);
  EXPECT_EQ(query(second, q.number(number)), 0) << "the other one lives";
  EXPECT_EQ(destroy(second), 0);
  std::uint8_t got[8 + prm::eqe::kBytes];
  auto n = uverbs_message_read(events, uptr(got), sizeof got);
  ASSERT_TRUE(n.ok()) << n.code();
  EXPECT_EQ(got[0], 0xdc);
  const void* data = prm::at<prm::eqe::event_data>(static_cast<const void*>(got + 8));
  EXPECT_EQ(prm::get<prm::eqe::event_type>(got + 8), 0x1cu);
  EXPECT_EQ(prm::get<prm::dct_events::dct_number>(data), number);
  // The device has none of these numbers any more, and none is left behind by a file that closes.
  ASSERT_EQ(create(create_dct, &third), 0);
  const std::uint32_t last = create_dct.answered();
  f->release();
  auto& cmd = mlx5::to_mdev(*dev).mdev->cmd();
  for (std::uint32_t gone : {number, last}) {
    q.number(gone);
    ASSERT_TRUE(cmd.exec_raw(q.in.data(), q.in.size(), q.out.data(), q.out.size()).ok());
    EXPECT_EQ(q.status(), static_cast<unsigned>(prm::CmdStatus::BAD_RES));
  }
}

TEST_F(Devx, UmemsHaveABound) {
  open(true);
  constexpr std::size_t kHuge = std::size_t{1} << 40;
  // Not aligned to more than a page, so that only pages of 4 KiB fit.
  void* memory = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::uint32_t handle, id;
  EXPECT_EQ(umem_reg(memory, kHuge, 1, 0x1000, &handle, &id), ENOMEM);
  EXPECT_EQ(umem_reg(memory, 1 << 20, 1, 0x1000, &handle, &id), 0);
  f->release();
  munmap(memory, kHuge);
}

TEST_F(Devx, UmemsOfDmabufsArePinned) {
  open(true);
  mm::MovingBuffer b(4 * 4096), fixed(4096);
  std::uint32_t handle, id, cq_handle;
  int none = -1;
  EXPECT_EQ(EBADF, umem_reg(std::uint64_t{0}, 4096, 1, 0, &handle, &id, &none));
  EXPECT_EQ(EINVAL, umem_reg(4096, 4 * 4096, 1, 0, &handle, &id, &b.fd)) << "past its end";
  EXPECT_EQ(EINVAL, umem_reg(std::uint64_t{0}, 4096, 1, 0x800, &handle, &id, &b.fd)) << "no such page size";
  fixed.exporter->refuse_pin = EOPNOTSUPP;
  EXPECT_EQ(EOPNOTSUPP, umem_reg(std::uint64_t{0}, 4096, 1, 0, &handle, &id, &fixed.fd));
  EXPECT_EQ(0, b.seen.pinned + b.seen.attached + b.seen.mapped + fixed.seen.attached);
  ASSERT_EQ(0, umem_reg(4096, 2 * 4096, 1, 0, &handle, &id, &b.fd));
  EXPECT_EQ(1, b.seen.pinned);
  // A queue whose memory and record lie in it.
  std::uint32_t page_id = 0;
  ASSERT_EQ(alloc_uar(&page_id), 0);
  Cmd cq(Op::CREATE_CQ, prm::create_cq_in::kBytes);
  void* cqc = prm::at<prm::create_cq_in::cq_context>(static_cast<void*>(cq.in.data()));
  std::uint32_t eqn = 0;
  ASSERT_EQ(query_eqn(0, &eqn), 0);
  prm::set<prm::cqc::log_cq_size>(cqc, 6);
  prm::set<prm::cqc::uar_page>(cqc, page_id);
  prm::set<prm::cqc::c_eqn_or_apu_element>(cqc, eqn);
  prm::set(cqc, prm::umem_ref::cqc_dbr_umem_id, id);
  prm::set<prm::cqc::dbr_addr>(cqc, 4096);
  prm::set(cq.in.data(), prm::umem_ref::cq_umem_id, id);
  ASSERT_EQ(0, create(cq, &cq_handle));
  EXPECT_EQ(0, destroy(cq_handle));
  b.close();
  EXPECT_EQ(0, b.seen.released) << "the umem keeps it";
  EXPECT_EQ(0, Ioctl(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG).obj(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, handle).run(*f));
  EXPECT_EQ(1, b.seen.released);
  EXPECT_EQ(0, b.seen.pinned + b.seen.attached + b.seen.mapped);
}

// Verbs objects whose number a command may name.
TEST(DevxCommands, VerbsSrqsAreWhatTheyAreInTheDevice) {
  mlx5::mlx5_ib_srq srq;
  srq.srqn = 0x77;
  ib_uobject u;
  u.type_id = UVERBS_OBJECT_SRQ;
  u.object = static_cast<ib_srq*>(&srq);
  mlx5::DevxCommand rmp{Cmd(Op::QUERY_RMP).number(0x77).in, {}}, xrc{Cmd(Op::QUERY_XRC_SRQ).number(0x77).in, {}};
  srq.kind = mlx5::SrqKind::kRmp;
  EXPECT_TRUE(mlx5::devx_is_about(u, rmp));
  EXPECT_FALSE(mlx5::devx_is_about(u, xrc));
  srq.kind = mlx5::SrqKind::kXrc;
  EXPECT_FALSE(mlx5::devx_is_about(u, rmp));
  EXPECT_TRUE(mlx5::devx_is_about(u, xrc));
  srq.srqn = 0x78;
  EXPECT_FALSE(mlx5::devx_is_about(u, xrc));
}

TEST(DevxCommands, DestroyFollowsFromCreate) {
  namespace x = mlx5::devx;
  Cmd c(Op::CREATE_QP, prm::create_qp_in::kBytes);
  prm::set<prm::create_qp_in::uid>(c.in.data(), 5);
  prm::set<prm::create_qp_out::qpn>(c.out.data(), 0x123456);
  x::Input in{c.in.data(), c.in.size()};
  auto d = x::destroy_command(in, c.out.data());
  EXPECT_EQ(prm::get<prm::destroy_qp_in::opcode>(d.data()), static_cast<unsigned>(Op::DESTROY_QP));
  EXPECT_EQ(prm::get<prm::destroy_qp_in::uid>(d.data()), 5u);
  EXPECT_EQ(prm::get<prm::destroy_qp_in::qpn>(d.data()), 0x123456u);
  EXPECT_EQ(x::created_id(in, c.out.data()), x::encode(Op::CREATE_QP, 0x123456));
  Cmd m(Op::RTR2RTS_QP, prm::rtr2rts_qp_in::kBytes);
  EXPECT_EQ(x::named_id({m.number(0x123456).in.data(), m.in.size()}), x::encode(Op::CREATE_QP, 0x123456));
  EXPECT_TRUE(x::is_modify({m.in.data(), m.in.size()}));
  EXPECT_FALSE(x::is_query({m.in.data(), m.in.size()}));
  // Flow entries are made and changed by one opcode; op_mod tells.
  Cmd fte(Op::SET_FLOW_TABLE_ENTRY, 64);
  EXPECT_TRUE(x::is_create({fte.in.data(), fte.in.size()}));
  EXPECT_FALSE(x::is_modify({fte.in.data(), fte.in.size()}));
  prm::set<prm::cmd_in::op_mod>(fte.in.data(), 1);
  EXPECT_FALSE(x::is_create({fte.in.data(), fte.in.size()}));
  EXPECT_TRUE(x::is_modify({fte.in.data(), fte.in.size()}));
  // General objects differ by type.
  Cmd g(Op::CREATE_GENERAL_OBJECT), h(Op::CREATE_GENERAL_OBJECT);
  prm::set<prm::general_obj_in_cmd_hdr::obj_type>(h.in.data(), 0x13);
  EXPECT_NE(x::created_id({g.in.data(), g.in.size()}, g.out.data()), x::created_id({h.in.data(), h.in.size()}, h.out.data()));
  // Nothing is read behind a short command.
  Cmd tiny(Op::CREATE_QP);
  x::set_umem_valid(tiny.in);
  EXPECT_EQ(tiny.in.size(), 16u);
}

}  // namespace
}  // namespace uhca::kernel::test

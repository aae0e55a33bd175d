// SPDX-License-Identifier: MIT
// The ioctl's checks: each alone, and in the kernel's order.
#include <sys/mman.h>

#include "uverbs/harness.h"

namespace uhca::kernel::test {
namespace {

class UverbsIoctl : public Uverbs {
 protected:
  Ioctl odd() { return Ioctl(kPrivObject, kPrivOdd); }
};

TEST_F(UverbsIoctl, HeaderChecksInOrder) {
  EXPECT_EQ(f->ioctl(0x1234, kBadPtr).code(), ENOTTY);  // before the pointer is looked at
  EXPECT_EQ(f->ioctl(RDMA_VERBS_IOCTL, kBadPtr).code(), EFAULT);
  // Everything is wrong: length first, then reserved, then driver, then object.
  Ioctl c(0xfff, 0xfff);
  c.hdr().length = 25;
  c.hdr().reserved1 = 1;
  c.hdr().driver_id = 99;
  EXPECT_EQ(c.run(*f), EINVAL);
  c.hdr().length = 24;
  EXPECT_EQ(c.run(*f), EPROTONOSUPPORT);
  c.hdr().reserved1 = 0;
  c.hdr().reserved2 = 1;
  EXPECT_EQ(c.run(*f), EPROTONOSUPPORT);
  c.hdr().reserved2 = 0;
  EXPECT_EQ(c.run(*f), EINVAL);
  c.hdr().driver_id = ::RDMA_DRIVER_MLX5;
  EXPECT_EQ(c.run(*f), EPROTONOSUPPORT);
  c.hdr().object_id = UVERBS_OBJECT_DEVICE;
  EXPECT_EQ(c.run(*f), EPROTONOSUPPORT);
  // 4096 bytes at most.
  Ioctl big(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
  for (int i = 0; i < 255; ++i) big.raw(0x900, 0, 0, 0);
  EXPECT_EQ(big.run(*f), EINVAL);
}

TEST_F(UverbsIoctl, AttributeArrayMustBeReadable) {
  long page = sysconf(_SC_PAGESIZE);
  auto* p = static_cast<std::byte*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(p, MAP_FAILED);
  munmap(p + page, page);
  Ioctl c(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
  c.val(0x900, 0);
  std::byte* at = p + page - sizeof(::ib_uverbs_ioctl_hdr);
  std::memcpy(at, c.buf.data(), sizeof(::ib_uverbs_ioctl_hdr));
  EXPECT_EQ(f->ioctl(RDMA_VERBS_IOCTL, uptr(at)).code(), EFAULT);
  munmap(p, page);
}

TEST_F(UverbsIoctl, MissingOpsMakeMethodsAndAttributesDisappear) {
  ASSERT_EQ(context(), 0);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG).run(*f), EPROTONOSUPPORT);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR).run(*f), EPROTONOSUPPORT);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY).run(*f), EPROTONOSUPPORT);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC).run(*f), EPROTONOSUPPORT);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, uapi::UVERBS_METHOD_QUERY_PORT_SPEED).run(*f), EPROTONOSUPPORT);
  EXPECT_EQ(Ioctl(kPrivObject, 0x1003).run(*f), EPROTONOSUPPORT);  // its mandatory object is missing
  EXPECT_EQ(odd().obj(0x1007, 0).run(*f), EPROTONOSUPPORT);        // an optional one: unknown attribute
}

TEST_F(UverbsIoctl, UnknownAttributes) {
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT).raw(0x55, 8, 0, UVERBS_ATTR_F_MANDATORY).run(*f), EPROTONOSUPPORT);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT).raw(0x55, 8, 0, 0).run(*f), 0);
}

TEST_F(UverbsIoctl, PtrIn) {
  ASSERT_EQ(context(), 0);
  std::uint64_t buf[6] = {};
  EXPECT_EQ(odd().ptr(0x1000, buf, 7).run(*f), EINVAL);           // too short
  EXPECT_EQ(odd().ptr(0x1000, buf, 16).run(*f), EINVAL);          // fine; the handler's EPROTONOSUPPORT reads EINVAL
  EXPECT_EQ(odd().raw(0x1000, 24, kBadPtr).run(*f), EOPNOTSUPP);  // the tail cannot be read
  buf[2] = 1;
  EXPECT_EQ(odd().ptr(0x1000, buf, 24).run(*f), EOPNOTSUPP);  // longer than known and not zero
  buf[2] = 0;
  EXPECT_EQ(odd().ptr(0x1000, buf, 24).run(*f), EINVAL);                       // zero: accepted, handler ran
  EXPECT_EQ(odd().ptr(0x1000, buf, 16).ptr(0x1000, buf, 16).run(*f), EINVAL);  // twice
  Ioctl r = odd().ptr(0x1000, buf, 16);
  r.attr(0).attr_data.reserved = 1;
  EXPECT_EQ(r.run(*f), EINVAL);
  EXPECT_EQ(odd().raw(0x1001, 100, kBadPtr).run(*f), EFAULT);  // alloc_and_copy
  EXPECT_EQ(odd().raw(0x1001, 3, 0).run(*f), EINVAL);
}

TEST_F(UverbsIoctl, EnumRawFdArraysAndObjects) {
  ASSERT_EQ(context(), 0);
  Ioctl e = odd().val(0x1002, 0);
  e.attr(0).attr_data.enum_data.elem_id = 2;
  EXPECT_EQ(e.run(*f), EOPNOTSUPP);
  e.attr(0).attr_data.enum_data.elem_id = 0;
  e.attr(0).attr_data.enum_data.reserved = 1;
  EXPECT_EQ(e.run(*f), EINVAL);
  Ioctl fd = odd().obj(0x1003, 0x1'0000'0000);
  EXPECT_EQ(fd.run(*f), EINVAL);  // no int
  EXPECT_EQ(odd().raw(0x1003, 4, 1).run(*f), EINVAL);

  std::uint32_t a = pd(), b = pd();
  EXPECT_EQ(a, 0u);
  EXPECT_EQ(b, 1u);
  std::uint32_t ids[5] = {a, b, a, a, a};
  EXPECT_EQ(odd().raw(0x1004, 6, 0).run(*f), EINVAL);
  EXPECT_EQ(odd().raw(0x1004, 0, 0).run(*f), EINVAL);
  EXPECT_EQ(odd().ptr(0x1004, ids, 20).run(*f), EINVAL);
  EXPECT_EQ(odd().raw(0x1004, 12, kBadPtr).run(*f), EFAULT);
  ids[1] = 77;
  EXPECT_EQ(odd().ptr(0x1004, ids, 12).run(*f), ENOENT);
  // Whatever was taken was given back: an exclusive lock works.
  EXPECT_EQ(odd().obj(0x1008, a).run(*f), EINVAL);
  EXPECT_EQ(odd().obj(0x1008, a).obj(0x1006, a).run(*f), EBUSY);  // write, then read of the same
  EXPECT_EQ(odd().obj(0x1006, a).obj(0x1008, a).run(*f), EBUSY);  // read, then write

  EXPECT_EQ(odd().obj(0x1006, static_cast<std::uint64_t>(-1)).run(*f), EINVAL);
  EXPECT_EQ(odd().obj(0x1006, 1000).run(*f), ENOENT);
  EXPECT_EQ(odd().obj(0x1006, 0x1'0000'0000).run(*f), ENOENT);
  EXPECT_EQ(odd().raw(0x1006, 4, a).run(*f), EINVAL);  // objects have no length
  std::uint32_t c = cq();
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY).obj(UVERBS_ATTR_DESTROY_PD_HANDLE, c).run(*f), EINVAL);  // wrong type

  EXPECT_EQ(odd().obj(0x1005, 0x1'0000'0000).run(*f), EINVAL);
  EXPECT_EQ(odd().obj(0x1005, 0).run(*f), EBADF);
  EXPECT_EQ(odd().obj(0x1005, static_cast<std::uint64_t>(-1)).run(*f), EBADF);
  int as = async_fd();
  EXPECT_EQ(odd().obj(0x1005, static_cast<std::uint64_t>(as)).run(*f), EBADF);  // an async file is no channel
  close(as);
}

TEST_F(UverbsIoctl, ContextRules) {
  EXPECT_EQ(f->mmap(4096, PROT_READ, MAP_SHARED, 9 * 4096).code(), EINVAL);
  std::uint64_t out;
  EXPECT_EQ(Ioctl(kPrivObject, kPrivCreate).obj(0x1000).val64(0x1001, 0).ptr(0x1002, &out, 8).run(*f), EINVAL);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT).run(*f), EINVAL);
  dev.fail["alloc_ucontext"] = ENOMEM;
  EXPECT_EQ(context(), ENOMEM);
  std::uint32_t vectors = 0;
  std::uint64_t support = 0;
  Ioctl c(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
  c.ptr(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, 4).ptr(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &support, 8);
  EXPECT_EQ(c.run(*f), 0);
  EXPECT_EQ(vectors, 2u);
  EXPECT_EQ(support, 1u);
  EXPECT_TRUE(c.attr(0).flags & UVERBS_ATTR_F_VALID_OUTPUT);
  EXPECT_EQ(context(), EINVAL);  // twice
  EXPECT_EQ(f->mmap(4096, PROT_READ, MAP_PRIVATE, 9 * 4096).code(), EINVAL);
  EXPECT_EQ(f->mmap(4096, PROT_READ, MAP_SHARED, 8 * 4096).code(), EINVAL);
  auto m = f->mmap(4096, PROT_READ, MAP_SHARED, 9 * 4096);
  ASSERT_TRUE(m.ok());
  EXPECT_EQ(m->offset, 4096u);
}

TEST_F(UverbsIoctl, MissingMandatoryAndOutputs) {
  ASSERT_EQ(context(), 0);
  std::uint64_t out = 0;
  EXPECT_EQ(Ioctl(kPrivObject, kPrivCreate).obj(0x1000).ptr(0x1002, &out, 8).run(*f), EINVAL);
  EXPECT_EQ(Ioctl(kPrivObject, kPrivCreate).obj(0x1000).val(0x1001, 1).ptr(0x1002, &out, 8).run(*f), EINVAL);  // constants have 8 bytes
  EXPECT_EQ(Ioctl(kPrivObject, kPrivCreate).obj(0x1000).val64(0x1001, 1ull << 40).ptr(0x1002, &out, 8).run(*f), EINVAL);  // does not fit
  EXPECT_EQ(dev.live["priv"], 0);  // created and aborted
  EXPECT_EQ(Ioctl(kPrivObject, kPrivCreate).obj(0x1000).val64(0x1001, 1).raw(0x1002, 8, kBadPtr).run(*f), EFAULT);
  EXPECT_EQ(dev.live["priv"], 0);
  Ioctl c(kPrivObject, kPrivCreate);
  c.obj(0x1000).val64(0x1001, 1).ptr(0x1002, &out, 8);
  ASSERT_EQ(c.run(*f), 0);
  EXPECT_EQ(out, 0x1122334455667788u);
  EXPECT_EQ(c.attr(0).data, 0u);  // the id, first free
  EXPECT_TRUE(c.attr(2).flags & UVERBS_ATTR_F_VALID_OUTPUT);
  EXPECT_EQ(dev.live["priv"], 1);
}

TEST_F(UverbsIoctl, DriverMethodOnCoreObjectAndDriverAttribute) {
  ASSERT_EQ(context(), 0);
  std::uint32_t p = pd(), pdn = 0, cqe = 0;
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_PD, 0x1000).obj(0x1000, p).ptr(0x1001, &pdn, 4).run(*f), 0);
  EXPECT_EQ(pdn, 42u);
  Ioctl c(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
  c.obj(UVERBS_ATTR_CREATE_CQ_HANDLE).val(UVERBS_ATTR_CREATE_CQ_CQE, 4).val64(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 1);
  c.val(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 1).ptr(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe, 4).val(0x1002, 0xbeef);
  EXPECT_EQ(c.run(*f), 0);
  EXPECT_EQ(dev.cq_uar_index, 0xbeefu);
}

TEST_F(UverbsIoctl, CreateCqChecks) {
  ASSERT_EQ(context(), 0);
  auto make = [&](std::uint32_t cqe, std::uint32_t vector, std::uint64_t flags) {
    std::uint32_t out = 0;
    return Ioctl(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)
        .obj(UVERBS_ATTR_CREATE_CQ_HANDLE)
        .val(UVERBS_ATTR_CREATE_CQ_CQE, cqe)
        .val64(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 1)
        .val(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, vector)
        .val64(UVERBS_ATTR_CREATE_CQ_FLAGS, flags)
        .ptr(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &out, 4)
        .run(*f);
  };
  EXPECT_EQ(make(0, 0, 0), EINVAL);
  EXPECT_EQ(make(4, 2, 0), EINVAL);
  EXPECT_EQ(make(4, 1, 4), EINVAL);
  EXPECT_EQ(make(4, 1, 3), 0);
}

TEST_F(UverbsIoctl, RegMr) {
  ASSERT_EQ(context(), 0);
  std::uint32_t p = pd(), lkey = 0, rkey = 0;
  auto reg = [&](std::uint64_t addr, std::uint64_t iova, std::uint64_t access, bool with_addr = true, int fd = -1) {
    Ioctl c(UVERBS_OBJECT_MR, uapi::UVERBS_METHOD_REG_MR);
    c.obj(uapi::UVERBS_ATTR_REG_MR_HANDLE).obj(uapi::UVERBS_ATTR_REG_MR_PD_HANDLE, p).val64(uapi::UVERBS_ATTR_REG_MR_IOVA, iova);
    c.val64(uapi::UVERBS_ATTR_REG_MR_LENGTH, 100).val64(uapi::UVERBS_ATTR_REG_MR_ACCESS_FLAGS, access);
    c.ptr(uapi::UVERBS_ATTR_REG_MR_RESP_LKEY, &lkey, 4).ptr(uapi::UVERBS_ATTR_REG_MR_RESP_RKEY, &rkey, 4);
    if (with_addr) c.val64(uapi::UVERBS_ATTR_REG_MR_ADDR, addr);
    if (fd >= 0) c.obj(uapi::UVERBS_ATTR_REG_MR_FD, static_cast<std::uint64_t>(fd));
    return c.run(*f);
  };
  EXPECT_EQ(reg(0x1000, 0x1001, 1), EINVAL);           // differ within a page
  EXPECT_EQ(reg(0x1000, 0x5000, 2), EINVAL);           // remote write without local write
  EXPECT_EQ(reg(0x1000, 0x5000, 1 << 15), EINVAL);     // unknown bit
  EXPECT_EQ(reg(0x1000, 0x5000, 1 << 6), EOPNOTSUPP);  // ODP
  EXPECT_EQ(reg(0, 0x5000, 1, false), EINVAL);         // neither address nor descriptor
  EXPECT_EQ(reg(0x1000, 0x5000, 1, true, 0), EINVAL);  // both
  dev.fail["reg_mr"] = ENOMEM;
  EXPECT_EQ(reg(0x1000, 0x5000, 1), ENOMEM);
  EXPECT_EQ(reg(0x1000, 0x5000, 1 << 20 | 1), 0);
  EXPECT_EQ(lkey, 0x101u);
  EXPECT_EQ(rkey, 0x102u);
}

TEST_F(UverbsIoctl, QueryMethods) {
  ASSERT_EQ(context(), 0);
  uapi::ib_uverbs_query_port_resp_ex port{};
  Ioctl c(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
  c.val64(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1).ptr(UVERBS_ATTR_QUERY_PORT_RESP, &port, sizeof port);
  EXPECT_EQ(c.run(*f), 0);
  EXPECT_EQ(port.legacy_resp.link_layer, 2);
  EXPECT_EQ(port.active_speed_ex, 0x80u);
  c.attr(0).data = 2;
  EXPECT_EQ(c.run(*f), EINVAL);
  c.attr(0).data = 256;  // does not fit into 8 bits
  EXPECT_EQ(c.run(*f), EINVAL);

  ::ib_uverbs_gid_entry e{};
  Ioctl g(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY);
  g.val64(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 1).val64(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 0).val(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0);
  g.ptr(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &e, sizeof e);
  EXPECT_EQ(g.run(*f), ENODATA);  // the fake has no netdev
  g.attr(1).data = 256;
  EXPECT_EQ(g.run(*f), EINVAL);
  g.attr(2).data = 1;
  EXPECT_EQ(g.run(*f), EINVAL);

  std::uint32_t a = pd(), b = pd(), total = 0, list[4] = {};
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES)
                .val64(UVERBS_ATTR_INFO_OBJECT_ID, UVERBS_OBJECT_PD)
                .ptr(UVERBS_ATTR_INFO_TOTAL_HANDLES, &total, 4)
                .ptr(UVERBS_ATTR_INFO_HANDLES_LIST, list, sizeof list)
                .run(*f),
            0);
  EXPECT_EQ(total, 2u);
  EXPECT_EQ(list[0] + list[1], a + b);
}

}  // namespace
}  // namespace uhca::kernel::test

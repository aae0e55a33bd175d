// SPDX-License-Identifier: MIT
// dma-bufs through uverbs: registering one, exporting pages as one; which check comes first; what happens to the descriptor.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>

#include "kernel/mm/dma_buf.h"
#include "uverbs/harness.h"

namespace uhca::kernel::test {
namespace {

class UverbsDmabuf : public Uverbs {
 protected:
  void SetUp() override {
    Uverbs::SetUp();
    ASSERT_EQ(context(), 0);
    p = pd();
  }
  // What the program reads back from the descriptor attribute, or an errno.
  int exported(std::uint64_t pgoff, int* fd) {
    Ioctl c(uapi::UVERBS_OBJECT_DMABUF, uapi::UVERBS_METHOD_DMABUF_ALLOC);
    c.obj(uapi::UVERBS_ATTR_ALLOC_DMABUF_HANDLE).val64(uapi::UVERBS_ATTR_ALLOC_DMABUF_PGOFF, pgoff);
    int e = c.run(*f);
    *fd = e ? -1 : static_cast<int>(c.attr(0).data);
    return e;
  }
  int reg(std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd, std::uint64_t access) {
    Ioctl c(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
    c.obj(UVERBS_ATTR_REG_DMABUF_MR_HANDLE).obj(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, p);
    c.val64(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset).val64(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length);
    c.val64(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova).val(UVERBS_ATTR_REG_DMABUF_MR_FD, static_cast<std::uint32_t>(fd));
    c.val64(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, access);
    c.ptr(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey, 4).ptr(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey, 4);
    return c.run(*f);
  }
  // REG_MR with the attributes that are wanted.
  struct Parts {
    std::optional<std::uint64_t> addr, fd_offset;
    std::optional<int> fd;
    std::uint64_t iova = 0, length = 4096, access = 1;
  };
  int reg_mr(const Parts& w) {
    Ioctl c(UVERBS_OBJECT_MR, uapi::UVERBS_METHOD_REG_MR);
    c.obj(uapi::UVERBS_ATTR_REG_MR_HANDLE).obj(uapi::UVERBS_ATTR_REG_MR_PD_HANDLE, p).val64(uapi::UVERBS_ATTR_REG_MR_IOVA, w.iova);
    c.val64(uapi::UVERBS_ATTR_REG_MR_LENGTH, w.length).val64(uapi::UVERBS_ATTR_REG_MR_ACCESS_FLAGS, w.access);
    c.ptr(uapi::UVERBS_ATTR_REG_MR_RESP_LKEY, &lkey, 4).ptr(uapi::UVERBS_ATTR_REG_MR_RESP_RKEY, &rkey, 4);
    if (w.addr) c.val64(uapi::UVERBS_ATTR_REG_MR_ADDR, *w.addr);
    if (w.fd_offset) c.val64(uapi::UVERBS_ATTR_REG_MR_FD_OFFSET, *w.fd_offset);
    if (w.fd) c.obj(uapi::UVERBS_ATTR_REG_MR_FD, static_cast<std::uint64_t>(*w.fd));
    return c.run(*f);
  }
  std::uint32_t p = 0, lkey = 0, rkey = 0;
};

TEST_F(UverbsDmabuf, WhatComesFirst) {
  EXPECT_EQ(EBADF, reg(0, 0, 0, -1, 0)) << "the probe of programs";
  dev.calls.clear();
  EXPECT_EQ(EINVAL, reg(0, 0, 1, -1, 0)) << "offset and iova within a page";
  EXPECT_EQ(EINVAL, reg(0, 0, 0, -1, 1 << 4)) << "windows cannot be bound";
  EXPECT_EQ(EINVAL, reg(0, 0, 0, -1, 1 << 5)) << "zero-based";
  EXPECT_EQ(EINVAL, reg(0, 0, 0, -1, 1 << 6)) << "on demand";
  EXPECT_EQ(EINVAL, reg(0, 0, 0, -1, 1 << 7)) << "huge pages";
  EXPECT_EQ(EINVAL, reg(0, 0, 0, -1, 2)) << "remote write without local write";
  EXPECT_TRUE(dev.calls.empty()) << "the driver is asked last";
  EXPECT_EQ(EBADF, reg(0, 0, 0, -1, 1 << 20 | 0xf)) << "relaxed ordering";
  int memfd = memfd_create("memory", 0);
  EXPECT_EQ(EINVAL, reg(0, 4096, 0, memfd, 1));
  ::close(memfd);
}

TEST_F(UverbsDmabuf, RegMrByAddressOrByDescriptor) {
  EXPECT_EQ(0, reg_mr({.addr = 0x1000, .iova = 0x5000}));
  EXPECT_EQ(EINVAL, reg_mr({.iova = 0x5000})) << "neither";
  EXPECT_EQ(EINVAL, reg_mr({.addr = 0x1000, .fd_offset = 0, .iova = 0x5000}));
  EXPECT_EQ(EINVAL, reg_mr({.addr = 0x1000, .fd_offset = 0, .fd = -1})) << "both";
  EXPECT_EQ(EINVAL, reg_mr({.fd = -1})) << "a descriptor without offset";
  EXPECT_EQ(EINVAL, reg_mr({.fd_offset = 8, .fd = -1})) << "offset and iova within a page";
  EXPECT_EQ(EINVAL, reg_mr({.fd_offset = 0, .fd = -1, .access = 1 << 6}));
  EXPECT_EQ(EBADF, reg_mr({.fd_offset = 0, .fd = -1}));
  int fd;
  ASSERT_EQ(0, exported(7 * 4096, &fd));
  EXPECT_EQ(0, reg_mr({.fd_offset = 4096, .fd = fd, .iova = 0x10000}));
  EXPECT_EQ(0x101u, lkey);
  EXPECT_EQ(EINVAL, reg_mr({.fd_offset = 4096, .fd = fd, .length = 4097})) << "past its end";
  ::close(fd);
  mm::dma_buf_reap();
}

TEST_F(UverbsDmabuf, ExportedPages) {
  int fd, none;
  EXPECT_EQ(EINVAL, exported(8 * 4096, &none)) << "nothing is mapped from there";
  dev.fail["export"] = EOPNOTSUPP;
  EXPECT_EQ(EOPNOTSUPP, exported(7 * 4096, &none));
  const int lowest = dup(0);
  ::close(lowest);
  EXPECT_FALSE(mm::dma_buf_any_files()) << "refused: nothing stays";
  ASSERT_EQ(0, exported(7 * 4096, &fd));
  EXPECT_EQ(lowest, fd) << "nor did a descriptor";
  EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
  EXPECT_EQ(8192, lseek(fd, 0, SEEK_END));
  EXPECT_EQ(0, reg(0, 8192, 0, fd, 1));
  // It is no object of the file's: closing the file leaves it.
  f->release();
  f = nullptr;
  EXPECT_TRUE(mm::dma_buf_get(fd).ok());
  ::close(fd);
  mm::dma_buf_reap();
  EXPECT_FALSE(mm::dma_buf_any_files());
}

}  // namespace
}  // namespace uhca::kernel::test

// SPDX-License-Identifier: MIT
// SRQs by ioctl and write command; XRC domains, with and without a file; shared target QPs.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "uverbs/harness.h"

namespace uhca::kernel::test {
namespace {

class UverbsXrc : public Uverbs {
 protected:
  void SetUp() override {
    Uverbs::SetUp();
    ASSERT_EQ(context(), 0);
    p = pd();
    c = cq();
  }
  int open_xrcd(int fd, std::uint32_t oflags, std::uint32_t* handle) {
    ::ib_uverbs_open_xrcd req{};
    ::ib_uverbs_open_xrcd_resp resp{};
    req.fd = static_cast<std::uint32_t>(fd);
    req.oflags = oflags;
    int e = invoke(IB_USER_VERBS_CMD_OPEN_XRCD, req, resp);
    *handle = resp.xrcd_handle;
    return e;
  }
  int close_xrcd(std::uint32_t h) {
    return Ioctl(UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY).obj(UVERBS_ATTR_DESTROY_XRCD_HANDLE, h).run(*f);
  }
  // What is not given is left out.
  int create_srq(std::uint64_t type, std::int64_t cq_handle, std::int64_t xrcd, std::uint32_t* handle, std::uint32_t* srqn = nullptr,
                 std::uint32_t* max_wr = nullptr) {
    std::uint32_t wr = 0, sge = 0, n = 0;
    Ioctl i(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
    i.obj(UVERBS_ATTR_CREATE_SRQ_HANDLE)
        .obj(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, p)
        .val64(UVERBS_ATTR_CREATE_SRQ_TYPE, type)
        .val64(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0x55)
        .val(UVERBS_ATTR_CREATE_SRQ_MAX_WR, 16)
        .val(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 1)
        .val(UVERBS_ATTR_CREATE_SRQ_LIMIT, 0)
        .ptr(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &wr, 4)
        .ptr(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &sge, 4);
    if (type == IB_UVERBS_SRQT_XRC) i.ptr(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &n, 4);
    if (cq_handle >= 0) i.obj(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, static_cast<std::uint64_t>(cq_handle));
    if (xrcd >= 0) i.obj(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, static_cast<std::uint64_t>(xrcd));
    int e = i.run(*f);
    *handle = static_cast<std::uint32_t>(i.attr(0).data);
    if (srqn) *srqn = n;
    if (max_wr) *max_wr = wr;
    return e;
  }
  int destroy_srq(std::uint32_t h, std::uint32_t* events) {
    ::ib_uverbs_destroy_srq_resp resp{};
    int e = Ioctl(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY)
                .obj(UVERBS_ATTR_DESTROY_SRQ_HANDLE, h)
                .ptr(UVERBS_ATTR_DESTROY_SRQ_RESP, &resp, sizeof resp)
                .run(*f);
    *events = resp.events_reported;
    return e;
  }
  // The objects that `a` does not name are left out.
  struct QpObjects {
    std::int64_t pd = -1, send_cq = -1, recv_cq = -1, srq = -1, xrcd = -1;
  };
  int create_qp(std::uint64_t type, const QpObjects& a, std::uint32_t* handle, std::uint32_t* qpn) {
    ::ib_uverbs_qp_cap cap{8, 8, 1, 1, 0};
    Ioctl i(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    i.obj(UVERBS_ATTR_CREATE_QP_HANDLE)
        .val64(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0x9b)
        .ptr(UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof cap)
        .val64(UVERBS_ATTR_CREATE_QP_TYPE, type)
        .ptr(UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap, sizeof cap)
        .ptr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qpn, 4);
    auto add = [&i](std::uint16_t id, std::int64_t h) {
      if (h >= 0) i.obj(id, static_cast<std::uint64_t>(h));
    };
    add(UVERBS_ATTR_CREATE_QP_PD_HANDLE, a.pd);
    add(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, a.send_cq);
    add(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, a.recv_cq);
    add(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, a.srq);
    add(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, a.xrcd);
    int e = i.run(*f);
    *handle = static_cast<std::uint32_t>(i.attr(0).data);
    return e;
  }
  int open_qp(std::uint32_t xrcd, std::uint32_t qpn, std::uint8_t type, std::uint32_t* handle) {
    ::ib_uverbs_open_qp req{};
    ::ib_uverbs_create_qp_resp resp{};
    req.pd_handle = xrcd, req.qpn = qpn, req.qp_type = type, req.user_handle = 0x0d;
    int e = invoke(IB_USER_VERBS_CMD_OPEN_QP, req, resp);
    *handle = resp.qp_handle;
    return e;
  }
  std::uint32_t p = 0, c = 0;
};

TEST_F(UverbsXrc, BasicSrqByIoctlAndWrite) {
  std::uint32_t s = 0, wr = 0, events = 0, q = 0, qpn = 0;
  int async = async_fd();
  ASSERT_EQ(create_srq(IB_UVERBS_SRQT_BASIC, -1, -1, &s, nullptr, &wr), 0);
  EXPECT_EQ(wr, 32u) << "the driver's answer";
  EXPECT_EQ(create_srq(7, -1, -1, &q), EINVAL);
  EXPECT_EQ(create_srq(IB_UVERBS_SRQT_TM, c, -1, &q), ENOENT) << "no tag count";
  EXPECT_EQ(create_qp(IB_UVERBS_QPT_RC, {p, c, c, s}, &q, &qpn), 0);
  EXPECT_EQ(destroy_srq(s, &events), EBUSY) << "a QP uses it";
  EXPECT_EQ(destroy_qp(q, &events), 0);

  // Its limit event reaches the async file and is counted.
  dev.srqs[0]->event_handler(dev.srqs[0], 15, dev.srqs[0]->srq_context);
  ::ib_uverbs_async_event_desc d{};
  ASSERT_EQ(read(async, &d, sizeof d), static_cast<ssize_t>(sizeof d));
  EXPECT_EQ(d.element, 0x55u);
  EXPECT_EQ(d.event_type, 15u);
  EXPECT_EQ(destroy_srq(s, &events), 0);
  EXPECT_EQ(events, 1u);

  ::ib_uverbs_create_srq req{};
  ::ib_uverbs_create_srq_resp resp{};
  req.pd_handle = p, req.max_wr = 8, req.max_sge = 2;
  ASSERT_EQ(invoke(IB_USER_VERBS_CMD_CREATE_SRQ, req, resp), 0);
  EXPECT_EQ(resp.max_wr, 16u);
  ::ib_uverbs_query_srq qreq{};
  ::ib_uverbs_query_srq_resp qresp{};
  qreq.srq_handle = resp.srq_handle;
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_QUERY_SRQ, qreq, qresp), 0);
  EXPECT_EQ(qresp.srq_limit, 5u);
  ::ib_uverbs_modify_srq mreq{};
  mreq.srq_handle = resp.srq_handle, mreq.attr_mask = IB_SRQ_LIMIT;
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_MODIFY_SRQ, mreq), 0);
  dev.fail["create_srq"] = ENOMEM;
  int before = dev.total();
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_CREATE_SRQ, req, resp), ENOMEM);
  req.pd_handle = 99;
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_CREATE_SRQ, req, resp), ENOENT);
  EXPECT_EQ(dev.total(), before);
  close(async);
}

TEST_F(UverbsXrc, DomainOutlivesWhatIsInIt) {
  std::uint32_t x = 0, s = 0, srqn = 0, events = 0, q = 0, qpn = 0;
  ASSERT_EQ(open_xrcd(-1, 0, &x), 0);
  EXPECT_EQ(create_srq(IB_UVERBS_SRQT_XRC, -1, x, &s), ENOENT) << "no CQ";
  EXPECT_EQ(create_srq(IB_UVERBS_SRQT_XRC, c, -1, &s), ENOENT) << "no domain";
  ASSERT_EQ(create_srq(IB_UVERBS_SRQT_XRC, c, x, &s, &srqn), 0);
  EXPECT_EQ(srqn, 0x77u);
  EXPECT_EQ(close_xrcd(x), EBUSY);
  ::ib_uverbs_destroy_cq_resp r{};
  EXPECT_EQ(destroy_cq(c, &r), EBUSY) << "the SRQ reports to it";
  EXPECT_EQ(create_qp(IB_UVERBS_QPT_RC, {p, c, c, s}, &q, &qpn), EINVAL) << "an XRC SRQ belongs to no QP";
  EXPECT_EQ(destroy_srq(s, &events), 0);
  EXPECT_EQ(close_xrcd(x), 0);
  EXPECT_EQ(close_xrcd(x), ENOENT);
  dev.fail["alloc_xrcd"] = ENOMEM;
  int before = dev.total();
  EXPECT_EQ(open_xrcd(-1, 0, &x), ENOMEM);
  EXPECT_EQ(dev.total(), before);
}

TEST_F(UverbsXrc, QpTypesAndTheirObjects) {
  std::uint32_t x = 0, q = 0, qpn = 0, events = 0;
  ASSERT_EQ(open_xrcd(-1, 0, &x), 0);
  EXPECT_EQ(create_qp(IB_UVERBS_QPT_XRC_TGT, {}, &q, &qpn), EINVAL) << "no domain";
  EXPECT_EQ(create_qp(IB_UVERBS_QPT_XRC_TGT, {.pd = p, .xrcd = x}, &q, &qpn), EINVAL) << "a PD";
  EXPECT_EQ(create_qp(IB_UVERBS_QPT_XRC_TGT, {.send_cq = c, .xrcd = x}, &q, &qpn), EINVAL) << "a CQ";
  EXPECT_EQ(create_qp(IB_UVERBS_QPT_XRC_INI, {.pd = p}, &q, &qpn), EINVAL) << "no CQ";
  EXPECT_EQ(create_qp(IB_UVERBS_QPT_XRC_INI, {.pd = p, .send_cq = c, .recv_cq = c}, &q, &qpn), EINVAL) << "a receive CQ";
  EXPECT_EQ(create_qp(99, {.pd = p, .send_cq = c, .recv_cq = c}, &q, &qpn), EINVAL);
  ASSERT_EQ(create_qp(IB_UVERBS_QPT_XRC_INI, {.pd = p, .send_cq = c}, &q, &qpn), 0);
  EXPECT_EQ(destroy_qp(q, &events), 0);
}

TEST_F(UverbsXrc, SharedTargetLivesUntilItsLastOpeningCloses) {
  std::uint32_t x = 0, first = 0, second = 0, qpn = 0, events = 0;
  int async = async_fd();
  ASSERT_EQ(open_xrcd(-1, 0, &x), 0);
  ASSERT_EQ(create_qp(IB_UVERBS_QPT_XRC_TGT, {.xrcd = x}, &first, &qpn), 0);
  EXPECT_EQ(open_qp(x, qpn + 1, IB_UVERBS_QPT_XRC_TGT, &second), EINVAL);
  EXPECT_EQ(open_qp(x, qpn, IB_UVERBS_QPT_RC, &second), EINVAL);
  EXPECT_EQ(open_qp(p, qpn, IB_UVERBS_QPT_XRC_TGT, &second), EINVAL) << "no domain";
  ASSERT_EQ(open_qp(x, qpn, IB_UVERBS_QPT_XRC_TGT, &second), 0);
  ib_qp* real = dev.qps[0];
  real->event_handler(real, 4, real->qp_context);
  std::uint64_t elements = 0;
  for (int i = 0; i < 2; ++i) {
    ::ib_uverbs_async_event_desc d{};
    ASSERT_EQ(read(async, &d, sizeof d), static_cast<ssize_t>(sizeof d));
    elements |= d.element;
  }
  EXPECT_EQ(elements, 0x9bu | 0x0du) << "both openings heard of it";
  EXPECT_EQ(close_xrcd(x), EBUSY);
  EXPECT_EQ(destroy_qp(first, &events), 0);
  EXPECT_EQ(events, 1u);
  EXPECT_EQ(dev.live["qp"], 1);
  dev.fail["destroy_qp"] = EIO;
  EXPECT_EQ(destroy_qp(second, &events), EIO);
  EXPECT_EQ(dev.live["qp"], 1);
  EXPECT_EQ(destroy_qp(second, &events), 0);
  EXPECT_EQ(dev.live["qp"], 0);
  EXPECT_EQ(open_qp(x, qpn, IB_UVERBS_QPT_XRC_TGT, &second), EINVAL);
  EXPECT_EQ(close_xrcd(x), 0);
  close(async);
}

TEST_F(UverbsXrc, FileStandsForADomain) {
  int fd = memfd_create("domain", 0), other = memfd_create("other", 0);
  std::uint32_t a = 0, b = 0;
  EXPECT_EQ(open_xrcd(9999, O_CREAT, &a), EBADF);
  EXPECT_EQ(open_xrcd(fd, 0, &a), EAGAIN) << "the file has none yet";
  ASSERT_EQ(open_xrcd(fd, O_CREAT, &a), 0);
  EXPECT_EQ(open_xrcd(fd, O_CREAT | O_EXCL, &b), EINVAL);
  EXPECT_EQ(open_xrcd(other, 0, &b), EAGAIN);
  ASSERT_EQ(open_xrcd(fd, 0, &b), 0);
  EXPECT_EQ(dev.live["xrcd"], 1) << "one domain, two handles";
  // A QP of one handle is found by way of the other.
  std::uint32_t q = 0, again = 0, qpn = 0, events = 0;
  ASSERT_EQ(create_qp(IB_UVERBS_QPT_XRC_TGT, {.xrcd = a}, &q, &qpn), 0);
  ASSERT_EQ(open_qp(b, qpn, IB_UVERBS_QPT_XRC_TGT, &again), 0);
  EXPECT_EQ(close_xrcd(a), EBUSY);
  EXPECT_EQ(destroy_qp(q, &events), 0);
  EXPECT_EQ(close_xrcd(a), 0);
  EXPECT_EQ(dev.live["xrcd"], 1);
  EXPECT_EQ(destroy_qp(again, &events), 0);
  dev.fail["dealloc_xrcd"] = EIO;
  EXPECT_EQ(close_xrcd(b), EIO);
  EXPECT_EQ(close_xrcd(b), 0);
  EXPECT_EQ(dev.live["xrcd"], 0);
  EXPECT_EQ(open_xrcd(fd, 0, &a), EAGAIN);
  close(fd);
  close(other);
}

// The table's lock is held across the driver's call; a child forked just then must not wait for a thread that it does not have.
TEST_F(UverbsXrc, ForkedChildHasItsOwnTableOfFiles) {
  static constinit pid_t child = -1;
  static int in_child = -1;
  static decltype(this) self;
  self = this;
  dev.ops.alloc_xrcd = [](ib_device& d, Udata*) -> Result<std::unique_ptr<ib_xrcd>> {
    child = fork();
    if (child != 0) return Errno{ENOSPC};
    alarm(60);  // ends a child that hangs: then it has a signal to report instead of its answer
    uverbs_forget_after_fork();
    d.ops.alloc_xrcd = [](ib_device&, Udata*) -> Result<std::unique_ptr<ib_xrcd>> { return Errno{ENFILE}; };
    std::uint32_t x = 0;
    int answer = self->open_xrcd(in_child, O_CREAT, &x);
    _exit(answer == ENFILE ? 0 : 1);
  };
  int fd = in_child = memfd_create("domain", 0);
  std::uint32_t x = 0;
  EXPECT_EQ(open_xrcd(fd, O_CREAT, &x), ENOSPC);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(fd);
}

TEST_F(UverbsXrc, CloseTakesEverythingAlong) {
  std::uint32_t x = 0, s = 0, q = 0, qpn = 0;
  ASSERT_EQ(open_xrcd(-1, 0, &x), 0);
  ASSERT_EQ(create_srq(IB_UVERBS_SRQT_XRC, c, x, &s), 0);
  ASSERT_EQ(create_qp(IB_UVERBS_QPT_XRC_TGT, {.xrcd = x}, &q, &qpn), 0);
  f->release();
  f.reset();
  EXPECT_EQ(dev.total(), 0);
}

}  // namespace
}  // namespace uhca::kernel::test

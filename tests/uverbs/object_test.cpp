// SPDX-License-Identifier: MIT
// Life of objects: ids, failures, EBUSY, close; events.
#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <span>

#include "kernel/uverbs/event_file.h"
#include "uverbs/harness.h"

namespace uhca::kernel::test {
namespace {

class UverbsObject : public Uverbs {
 protected:
  void SetUp() override {
    Uverbs::SetUp();
    ASSERT_EQ(context(), 0);
  }
  int destroy_pd(std::uint32_t h) {
    return Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY).obj(UVERBS_ATTR_DESTROY_PD_HANDLE, h).run(*f);
  }
  int destroy_mr(std::uint32_t h) {
    return Ioctl(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY).obj(UVERBS_ATTR_DESTROY_MR_HANDLE, h).run(*f);
  }
};

TEST_F(UverbsObject, OneIdSpaceLowestFree) {
  EXPECT_EQ(pd(), 0u);
  EXPECT_EQ(cq(), 1u);
  EXPECT_EQ(pd(), 2u);
  EXPECT_EQ(destroy_pd(0), 0);
  EXPECT_EQ(destroy_pd(0), ENOENT);
  EXPECT_EQ(cq(), 0u);
  EXPECT_EQ(f->cqn_of_handle(0), dev.cqs[1]->n);
  EXPECT_EQ(f->cqn_of_handle(2), 0u);  // a PD
  EXPECT_EQ(f->qpn_of_handle(99), 0u);
}

TEST_F(UverbsObject, ParentsInUseAreBusy) {
  std::uint32_t p = pd(), c = cq(), m = 0, events = 0;
  ASSERT_EQ(mr(p, &m), 0);
  std::uint32_t q = qp(p, c);
  EXPECT_EQ(f->qpn_of_handle(q), dev.qps[0]->qp_num);
  ::ib_uverbs_destroy_cq_resp r{};
  EXPECT_EQ(destroy_pd(p), EBUSY);
  EXPECT_EQ(destroy_cq(c, &r), EBUSY);
  EXPECT_EQ(destroy_mr(m), 0);
  EXPECT_EQ(destroy_pd(p), EBUSY);  // the QP
  dev.fail["destroy_qp"] = EIO;
  EXPECT_EQ(destroy_qp(q, &events), EIO);  // stays
  EXPECT_EQ(destroy_qp(q, &events), 0);
  EXPECT_EQ(destroy_cq(c, &r), 0);
  EXPECT_EQ(destroy_pd(p), 0);
  EXPECT_EQ(dev.total(), 1);  // the context
}

TEST_F(UverbsObject, FailuresLeaveNothingBehind) {
  std::uint32_t p = pd(), c = cq(), m = 0;
  int before = dev.total();
  for (const char* op : {"alloc_pd", "reg_mr", "create_cq", "create_qp", "priv_create", "priv_create_late"}) {
    dev.fail[op] = ENOMEM;
    ::ib_uverbs_alloc_pd req{};
    ::ib_uverbs_alloc_pd_resp resp{};
    std::uint64_t out = 0;
    std::string o = op;
    int e = 0;
    if (o == "alloc_pd") e = invoke(IB_USER_VERBS_CMD_ALLOC_PD, req, resp);
    if (o == "reg_mr") e = mr(p, &m);
    if (o == "create_cq") {
      ::ib_uverbs_create_cq cr{};
      ::ib_uverbs_create_cq_resp rr{};
      cr.cqe = 4, cr.comp_channel = -1;
      e = invoke(IB_USER_VERBS_CMD_CREATE_CQ, cr, rr);
    }
    if (o == "create_qp") {
      ::ib_uverbs_create_qp cr{};
      ::ib_uverbs_create_qp_resp rr{};
      cr.pd_handle = p, cr.send_cq_handle = cr.recv_cq_handle = c, cr.qp_type = 2;
      e = invoke(IB_USER_VERBS_CMD_CREATE_QP, cr, rr);
    }
    if (o.rfind("priv", 0) == 0) e = Ioctl(kPrivObject, kPrivCreate).obj(0x1000).val64(0x1001, 1).ptr(0x1002, &out, 8).run(*f);
    EXPECT_EQ(e, ENOMEM) << op;
    EXPECT_EQ(dev.total(), before) << op;
    EXPECT_TRUE(dev.fail.empty()) << op;
  }
  // Bad response pointers: the object is destroyed again.
  ::ib_uverbs_alloc_pd req{};
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
                .val64(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_ALLOC_PD)
                .raw(UVERBS_ATTR_CORE_IN, 8, 0)
                .raw(UVERBS_ATTR_CORE_OUT, 4, kBadPtr)
                .run(*f),
            EFAULT);
  (void)req;
  EXPECT_EQ(dev.total(), before);
  // Every id is free again: PD 0 and CQ 1 are the only ones.
  EXPECT_EQ(pd(), 2u);
}

TEST_F(UverbsObject, CloseDestroysNewestFirstAndRetriesTheBusy) {
  std::uint32_t p = pd(), c = cq(), m = 0;
  ASSERT_EQ(mr(p, &m), 0);
  qp(p, c);
  dev.calls.clear();
  dev.fail["destroy_qp"] = EBUSY;  // first pass: CQ and PD are busy behind it
  f->release();
  EXPECT_EQ(dev.calls, (std::vector<std::string>{"destroy_qp", "dereg_mr", "destroy_qp", "destroy_cq", "dealloc_pd", "dealloc_ucontext"}));
  EXPECT_EQ(f->ioctl(RDMA_VERBS_IOCTL, 0).code(), EIO);
  EXPECT_EQ(f->write(0, 100).code(), EIO);
  EXPECT_EQ(f->mmap(4096, 1, 1, 0).code(), EIO);
}

TEST_F(UverbsObject, ChannelGivesOneEventPerRead) {
  int ch = channel();
  EXPECT_TRUE(uverbs_is_event_fd(ch));
  EXPECT_FALSE(uverbs_is_event_fd(0));
  std::uint32_t a = cq(ch, 0xaaaa), b = cq(ch, 0xbbbb);
  auto fire = [&](int i) { dev.cqs[i]->comp_handler(dev.cqs[i], dev.cqs[i]->cq_context); };
  pollfd pfd{ch, POLLIN, 0};
  EXPECT_EQ(poll(&pfd, 1, 0), 0);
  fcntl(ch, F_SETFL, O_NONBLOCK);
  std::uint64_t v[4];
  EXPECT_EQ(read(ch, v, 8), -1);
  EXPECT_EQ(errno, EAGAIN);
  fire(0), fire(1), fire(0);
  EXPECT_EQ(poll(&pfd, 1, 0), 1);
  EXPECT_EQ(read(ch, v, sizeof v), 8);
  EXPECT_EQ(v[0], 0xaaaau);
  EXPECT_EQ(uverbs_event_read_check(ch, 7).code(), EINVAL);
  EXPECT_TRUE(uverbs_event_read_check(ch, 8).ok());
  EXPECT_EQ(uverbs_event_read_check(0, 8).code(), EBADF);
  // One of a's two events was read; the other goes with the CQ, b's stays.
  ::ib_uverbs_destroy_cq_resp r{};
  EXPECT_EQ(destroy_cq(a, &r), 0);
  EXPECT_EQ(r.comp_events_reported, 1u);
  EXPECT_EQ(read(ch, v, 8), 8);
  EXPECT_EQ(v[0], 0xbbbbu);
  EXPECT_EQ(read(ch, v, 8), -1);
  EXPECT_EQ(destroy_cq(b, &r), 0);
  EXPECT_EQ(r.comp_events_reported, 1u);
  close(ch);
}

TEST_F(UverbsObject, ChannelBacklogKeepsOrderAndLosesNothing) {
  int ch = channel();
  std::uint32_t a = cq(ch, 1), b = cq(ch, 2);
  for (int i = 0; i < 100; ++i) dev.cqs[i % 2]->comp_handler(dev.cqs[i % 2], dev.cqs[i % 2]->cq_context);
  std::uint64_t v;
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(read(ch, &v, 8), 8);
    ASSERT_EQ(v, static_cast<std::uint64_t>(i % 2 + 1)) << i;
  }
  ::ib_uverbs_destroy_cq_resp r{};
  EXPECT_EQ(destroy_cq(a, &r), 0);
  EXPECT_EQ(r.comp_events_reported, 30u);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(read(ch, &v, 8), 8);
    ASSERT_EQ(v, 2u);
  }
  EXPECT_EQ(destroy_cq(b, &r), 0);
  EXPECT_EQ(r.comp_events_reported, 50u);
  close(ch);
}

TEST_F(UverbsObject, ChannelClosedByTheProgramIsHarmless) {
  int ch = channel();
  cq(ch);
  close(ch);
  for (int i = 0; i < 40; ++i) dev.cqs[0]->comp_handler(dev.cqs[0], dev.cqs[0]->cq_context);  // no SIGPIPE, nothing kept
  ::ib_uverbs_destroy_cq_resp r{};
  EXPECT_EQ(destroy_cq(0, &r), 0);
  EXPECT_EQ(r.comp_events_reported, 0u);
}

TEST_F(UverbsObject, AsyncEventsOfObjectsAndDevice) {
  int as = async_fd();  // becomes the default
  int other = async_fd();
  std::uint32_t p = pd(), c = cq();
  std::uint32_t q = qp(p, c), q2 = qp(p, c, other);
  dev.qps[0]->event_handler(dev.qps[0], 1, dev.qps[0]->qp_context);
  dev.qps[1]->event_handler(dev.qps[1], 2, dev.qps[1]->qp_context);
  ib_dispatch_event(dev, 9, 1);
  ::ib_uverbs_async_event_desc e{};
  ASSERT_EQ(read(as, &e, sizeof e), 16);
  EXPECT_EQ(e.element, 0x9bu);
  EXPECT_EQ(e.event_type, 1u);
  ASSERT_EQ(read(as, &e, sizeof e), 16);
  EXPECT_EQ(e.element, 1u);  // the port
  EXPECT_EQ(e.event_type, 9u);
  ASSERT_EQ(read(other, &e, sizeof e), 16);
  EXPECT_EQ(e.event_type, 2u);
  dev.cqs[0]->event_handler(dev.cqs[0], 0, dev.cqs[0]->cq_context);  // unread: does not count
  std::uint32_t events = 0;
  EXPECT_EQ(destroy_qp(q, &events), 0);
  EXPECT_EQ(events, 1u);
  EXPECT_EQ(destroy_qp(q2, &events), 0);
  EXPECT_EQ(events, 1u);
  ::ib_uverbs_destroy_cq_resp r{};
  EXPECT_EQ(destroy_cq(c, &r), 0);
  EXPECT_EQ(r.async_events_reported, 0u);
  // Close: what is unread goes, readers get EIO through the check and the end of the file from the pipe.
  f->release();
  EXPECT_EQ(read(as, &e, sizeof e), 0);
  EXPECT_EQ(uverbs_event_read_check(as, 16).code(), EBADF);  // the file is gone with its last reference
  close(as);
  close(other);
}

// ---------------------------------------------------------------- write

struct Plain {
  ::ib_uverbs_cmd_hdr h{};
  std::uint64_t body[30] = {};
};

TEST_F(UverbsObject, WriteHeaderChecksInOrder) {
  Plain w;
  std::uint64_t resp[60] = {};
  auto put = [&](std::size_t n) { return f->write(uptr(&w), n).code(); };
  EXPECT_EQ(f->write(uptr(&w), 7).code(), EINVAL);
  EXPECT_EQ(f->write(kBadPtr, 8).code(), EFAULT);
  w.h.command = 0x100;
  EXPECT_EQ(put(8), EINVAL);
  w.h.command = 0x7f;
  EXPECT_EQ(put(8), EOPNOTSUPP);              // beyond the table, sizes not looked at
  w.h.command = IB_USER_VERBS_CMD_CREATE_AH;  // a hole here
  EXPECT_EQ(put(8), EINVAL);                  // header checks run first
  w.h.in_words = 2;
  EXPECT_EQ(put(8), EOPNOTSUPP);
  w.h.command = IB_USER_VERBS_CMD_QUERY_DEVICE;
  w.h.in_words = 3;
  EXPECT_EQ(put(16), EINVAL);
  w.h.in_words = 3;
  EXPECT_EQ(put(12), ENOSPC);
  w.h.in_words = 4;
  w.h.out_words = 1;
  EXPECT_EQ(put(16), ENOSPC);
  w.h.out_words = sizeof(::ib_uverbs_query_device_resp) / 4;
  w.body[0] = kBadPtr;
  EXPECT_EQ(put(16), EFAULT);
  w.body[0] = uptr(resp);
  auto r = f->write(uptr(&w), 16);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(*r, 16u);
  auto* d = reinterpret_cast<::ib_uverbs_query_device_resp*>(resp);
  EXPECT_EQ(d->phys_port_cnt, 1);
  // The data path commands belong to kernel QPs.
  w.h.command = IB_USER_VERBS_CMD_POLL_CQ;
  EXPECT_EQ(put(16), EOPNOTSUPP);
}

TEST_F(UverbsObject, WriteExtendedHeader) {
  struct {
    ::ib_uverbs_cmd_hdr h{};
    ::ib_uverbs_ex_cmd_hdr ex{};
    std::uint64_t body[4] = {};
  } w;
  std::uint64_t resp[50];
  w.h.command = IB_USER_VERBS_EX_CMD_QUERY_DEVICE | IB_USER_VERBS_CMD_FLAG_EXTENDED;
  auto put = [&](std::size_t n) { return f->write(uptr(&w), n).code(); };
  EXPECT_EQ(put(16), EINVAL);
  w.h.in_words = 2;
  EXPECT_EQ(put(32), EINVAL);
  w.h.in_words = 0;
  EXPECT_EQ(put(24), ENOSPC);
  w.h.in_words = 1;
  w.ex.cmd_hdr_reserved = 1;
  EXPECT_EQ(put(32), EINVAL);
  w.ex.cmd_hdr_reserved = 0;
  w.h.out_words = 1;
  EXPECT_EQ(put(32), EINVAL);  // room without a pointer
  w.ex.response = uptr(resp);
  EXPECT_EQ(put(32), ENOSPC);
  w.h.out_words = 0;
  EXPECT_EQ(put(32), EINVAL);  // a pointer without room
  w.h.out_words = 40;
  w.ex.response = ~0ull << 48;
  EXPECT_EQ(put(32), EFAULT);
  w.ex.response = uptr(resp);
  w.body[0] = 1;  // comp_mask
  EXPECT_EQ(put(32), EINVAL);
  w.body[0] = 0;
  w.h.in_words = 2;
  w.body[1] = 5;  // beyond the known request
  EXPECT_EQ(put(40), EOPNOTSUPP);
  w.body[1] = 0;
  w.ex.provider_out_words = 1;
  std::memset(resp, 0xff, sizeof resp);
  EXPECT_EQ(put(40), 0);
  auto* d = reinterpret_cast<::ib_uverbs_ex_query_device_resp*>(resp);
  EXPECT_EQ(d->response_length, sizeof *d);
  EXPECT_EQ(d->base.max_sge, 5u);
  EXPECT_EQ(d->timestamp_mask, 0xabcu);
  EXPECT_EQ(resp[sizeof *d / 8], 0u);  // room beyond the response is cleared
  std::uint32_t tag;
  std::memcpy(&tag, &resp[40], 4);
  EXPECT_EQ(tag, 0x5a5au);  // the driver's part
}

TEST_F(UverbsObject, WriteDestroyCqOfOldRdmaCore) {
  std::uint32_t c = cq();
  struct {
    ::ib_uverbs_cmd_hdr h{IB_USER_VERBS_CMD_DESTROY_CQ, 4, 2};
    ::ib_uverbs_destroy_cq body{};
  } w;
  ::ib_uverbs_destroy_cq_resp r{};
  w.body.response = uptr(&r);
  w.body.cq_handle = c;
  EXPECT_EQ(f->write(uptr(&w), 16).code(), 0);
  EXPECT_EQ(dev.live["cq"], 0);
}

TEST_F(UverbsObject, InvokeWriteSizesAndErrors) {
  Ioctl probe(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
  probe.val64(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_QUERY_DEVICE);
  EXPECT_EQ(probe.run(*f), ENOSPC);  // what rdma-core probes for
  probe.attr(0).data = 0x200;
  EXPECT_EQ(probe.run(*f), EINVAL);
  probe.attr(0).data = 0x7f;
  EXPECT_EQ(probe.run(*f), EOPNOTSUPP);
  ::ib_uverbs_dealloc_pd d{33};
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_DEALLOC_PD, d), ENOENT);
}

TEST_F(UverbsObject, ModifyQpChecks) {
  std::uint32_t p = pd(), c = cq(), q = qp(p, c);
  ::ib_uverbs_modify_qp m{};
  m.qp_handle = q;
  auto run = [&] { return invoke(IB_USER_VERBS_CMD_MODIFY_QP, m); };
  m.attr_mask = 1u << 22;
  EXPECT_EQ(run(), EOPNOTSUPP);
  m.attr_mask = IB_QP_PORT;
  m.port_num = 2;
  EXPECT_EQ(run(), EINVAL);
  m.attr_mask = IB_QP_STATE;
  m.qp_state = 7;
  EXPECT_EQ(run(), EINVAL);
  m.attr_mask = IB_QP_STATE | IB_QP_PORT;
  m.port_num = 1, m.qp_state = 1;
  EXPECT_EQ(run(), 0);
  m.attr_mask = IB_QP_STATE | IB_QP_AV;
  m.qp_state = 2;
  EXPECT_EQ(run(), EINVAL);  // the address vector names no port
  m.dest.port_num = 1;
  EXPECT_EQ(run(), EINVAL);  // no GRH on RoCE
  m.dest.is_global = 1;
  EXPECT_EQ(run(), ENODATA);  // empty GID index
  m.attr_mask = IB_QP_STATE | IB_QP_RQ_PSN;
  m.rq_psn = 0xff123456;
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(dev.last_attr.rq_psn, 0x123456u);
  m.qp_handle = 50;
  EXPECT_EQ(run(), ENOENT);
  ::ib_uverbs_query_qp query{};
  ::ib_uverbs_query_qp_resp r{};
  query.qp_handle = q;
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_QUERY_QP, query, r), 0);
  EXPECT_EQ(r.qp_state, 3);
  EXPECT_EQ(r.dest.sgid_index, 3);
  EXPECT_EQ(r.sq_sig_all, 1);
}

// ---------------------------------------------------------------- event files that the program closes

// All of this process, wherever the library keeps its own.
std::size_t all_fds() {
  std::size_t n = 0;
  for ([[maybe_unused]] auto& e : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

TEST_F(UverbsObject, ClosedChannelsGoAway) {
  const std::size_t before = all_fds();
  std::size_t most = 0;
  for (int i = 0; i < 2000; ++i) {
    close(channel());
    if (i % 100 == 99) most = std::max(most, all_fds());
  }
  EXPECT_LE(most, before + 16);
  // A channel that is open, one that a descriptor elsewhere can still read, and one that a CQ writes to: all stay.
  int open_one = channel(), kept = channel(), copy = dup(kept), used = channel();
  close(kept);
  std::uint32_t c = cq(used);
  dev.cqs.back()->comp_handler(dev.cqs.back(), dev.cqs.back()->cq_context);
  close(used);
  for (int i = 0; i < 100; ++i) close(channel());
  std::uint32_t on_open = cq(open_one), on_copy = cq(copy);
  ::ib_uverbs_destroy_cq_resp resp{};
  EXPECT_EQ(destroy_cq(c, &resp), 0);
  EXPECT_EQ(resp.comp_events_reported, 0u) << "nobody has read the event";
  EXPECT_EQ(destroy_cq(on_open, &resp), 0);
  EXPECT_EQ(destroy_cq(on_copy, &resp), 0);
  close(open_one);
  close(copy);
}

TEST(UverbsMessages, DroppedMessageMayComeAgain) {
  int fd = -1;
  auto file = EventFile::create_messages(ENOSPC, &fd);
  ASSERT_TRUE(file.ok());
  auto flag = std::make_shared<std::atomic<bool>>(true);
  int room = 0;
  for (; flag->load() && room < (1 << 17); ++room) (*file)->post(std::vector<std::byte>(8), room < 4 ? nullptr : flag);
  EXPECT_GT(room, 4);
  EXPECT_FALSE(flag->load()) << "its subscription would be silent for ever";
  std::byte m[8];
  EXPECT_EQ((*file)->read_message(fd, uptr(m), sizeof m).code(), EOVERFLOW);
  close(fd);
}

// ---------------------------------------------------------------- fuzz

int open_fds() {
  int n = 0;
  for (int i = 0; i < 4096; ++i) n += fcntl(i, F_GETFD) >= 0;
  return n;
}

TEST_F(UverbsObject, FuzzIoctlAndWriteLeakNothing) {
  std::mt19937_64 rnd(20260101);
  // Outputs may be as long as they say (64 KiB): only the beginning is filled, all of it may be written.
  static std::uint64_t area[16384];
  std::span<std::uint64_t> scratch(area, 64);
  int fds = open_fds();
  long ok = 0;
  auto value = [&]() -> std::uint64_t {
    switch (rnd() % 6) {
      case 0: return rnd() % 8;
      case 1: return uptr(area);
      case 2: return rnd();
      case 3: return kBadPtr;
      case 4: return static_cast<std::uint64_t>(-1);
      default: return rnd() % 64;
    }
  };
  constexpr std::uint16_t objects[] = {0, 1, 2, 3, 4, 7, 16, 0x1000, 5, 14};
  constexpr std::uint16_t lens[] = {0, 4, 8, 16, 20, 24, 32, 48, 56, 128, 256, 0xffff};
  for (int i = 0; i < 100'000; ++i) {
    for (auto& s : scratch) s = rnd() % 3 ? rnd() % 4 : rnd();
    if (i % 3) {
      std::uint16_t o = objects[rnd() % std::size(objects)];
      auto m = static_cast<std::uint16_t>(rnd() % 10);
      if (o == 0x1000) m = static_cast<std::uint16_t>(m | 0x1000);
      // FD objects would pile descriptors up.
      if (o == UVERBS_OBJECT_ASYNC_EVENT) continue;
      Ioctl c(o, m);
      int n = static_cast<int>(rnd() % 12);
      for (int a = 0; a < n; ++a) {
        auto id = static_cast<std::uint16_t>(rnd() % 4 ? a : rnd() % 20);
        if (o == 0x1000 || rnd() % 8 == 0) id = static_cast<std::uint16_t>(id | 0x1000);
        std::uint64_t v = value();
        // INVOKE_WRITE of commands that make descriptors: same reason.
        if (o == 0 && m == 0 && id == UVERBS_ATTR_WRITE_CMD && (v == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL || v == 0)) v = 3;
        c.raw(id, lens[rnd() % std::size(lens)], v, static_cast<std::uint16_t>(rnd() % 2));
      }
      ok += c.run(*f) == 0;
    } else {
      Plain w;
      w.h.command = static_cast<std::uint32_t>(rnd() % 60) | (rnd() % 3 ? 0 : IB_USER_VERBS_CMD_FLAG_EXTENDED);
      if (w.h.command == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL || w.h.command == IB_USER_VERBS_CMD_GET_CONTEXT) continue;
      std::size_t words = 2 + rnd() % 58;
      w.h.in_words = static_cast<std::uint16_t>(rnd() % 4 ? words : rnd());
      w.h.out_words = static_cast<std::uint16_t>(rnd() % 4 ? 60 + rnd() % 40 : rnd() % 8);
      for (auto& b : w.body) b = value();
      if (rnd() % 2) w.body[0] = uptr(area);
      ok += f->write(uptr(&w), words * 4).ok();
    }
  }
  EXPECT_GT(ok, 100);
  f->release();
  EXPECT_EQ(open_fds(), fds);
}

}  // namespace
}  // namespace uhca::kernel::test

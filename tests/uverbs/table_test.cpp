// SPDX-License-Identifier: MIT
// Every write command and every ioctl method, each done wrong in every way that its declaration allows to see: what the kernel answers.
// And random calls, many of them nearly right.
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "kernel/uverbs/ufile.h"
#include "kernel/uverbs/write_cmds.h"
#include "uverbs/harness.h"
#include "uverbs/method_table.h"

namespace uhca::kernel::test {
namespace {

// Two pages of which the second is not there.
struct Edge {
  Edge() {
    p = static_cast<std::byte*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(p + kPage, kPage);
  }
  ~Edge() { munmap(p, kPage); }
  Edge(const Edge&) = delete;
  static constexpr std::size_t kPage = 4096;
  std::byte* p;
};

class UverbsTable : public Uverbs {
 protected:
  std::uint32_t pd_h = 0, cq_h = 0, qp_h = 0, mr_h = 0;
  Edge edge;

  void SetUp() override {
    Uverbs::SetUp();
    open();
  }
  void open() {
    ASSERT_EQ(context(), 0);
    pd_h = pd();
    cq_h = cq();
    qp_h = qp(pd_h, cq_h);
    ASSERT_EQ(mr(pd_h, &mr_h), 0);
  }
  const UapiTree& tree() { return static_cast<UverbsFile&>(*f).tree(); }
  std::vector<const ApiObject*> objects() { return objects_of(tree()); }
  bool supported(const WriteCmd& c) { return c.handler && (!c.supported || c.supported(dev)); }
  std::uint32_t last(bool ex) {
    std::uint32_t n = 0;
    for (const WriteCmd& c : uverbs_write_cmds())
      if (c.ex == ex && supported(c)) n = std::max(n, c.number);
    return n;
  }
};

struct Plain {
  ::ib_uverbs_cmd_hdr h{};
  std::uint64_t body[60] = {};
};
struct Extended {
  ::ib_uverbs_cmd_hdr h{};
  ::ib_uverbs_ex_cmd_hdr ex{};
  std::uint64_t body[60] = {};
};

TEST_F(UverbsTable, PlainWriteCommands) {
  std::uint64_t resp[60] = {};
  int before = dev.total();
  for (const WriteCmd& c : uverbs_write_cmds()) {
    if (c.ex) continue;
    SCOPED_TRACE(c.name);
    Plain w;
    auto put = [&](std::size_t words, std::size_t out) {
      w.h.in_words = static_cast<std::uint16_t>(words);
      w.h.out_words = static_cast<std::uint16_t>(out);
      return f->write(uptr(&w), words * 4).code();
    };
    w.h.command = c.number;
    w.body[0] = uptr(resp);
    std::size_t need = (sizeof w.h + c.req_size) / 4;
    if (!supported(c)) {
      EXPECT_EQ(put(need, 0), EOPNOTSUPP);
      if (c.number < last(false)) {
        w.h.in_words = static_cast<std::uint16_t>(need + 1);
        EXPECT_EQ(f->write(uptr(&w), need * 4).code(), EINVAL) << "the header is looked at first";
      }
      continue;
    }
    w.h.in_words = static_cast<std::uint16_t>(need + 1);
    EXPECT_EQ(f->write(uptr(&w), need * 4).code(), EINVAL);
    if (c.req_size && !(c.number == IB_USER_VERBS_CMD_DESTROY_CQ && need == 5)) {
      EXPECT_EQ(put(need - 1, 100), ENOSPC);
    }
    if (c.resp_size) {
      EXPECT_EQ(put(need, c.resp_size / 4 - 1), ENOSPC);
    }
    // The header is there, the request is not.
    w.h.in_words = static_cast<std::uint16_t>(need);
    w.h.out_words = 100;
    std::byte* at = edge.p + Edge::kPage - sizeof w.h;
    std::memcpy(at, &w.h, sizeof w.h);
    EXPECT_EQ(f->write(uptr(at), need * 4).code(), EFAULT);
    if (c.has_udata || std::size_t{c.req_size} + 8 > sizeof w.body || c.number == IB_USER_VERBS_CMD_GET_CONTEXT) continue;
    // More than is known, and not zero.
    std::memset(reinterpret_cast<std::byte*>(w.body) + c.req_size, 0xff, 8);
    EXPECT_EQ(put(need + 2, 100), EOPNOTSUPP);
  }
  EXPECT_EQ(dev.total(), before);
}

TEST_F(UverbsTable, ExtendedWriteCommands) {
  std::uint64_t resp[60] = {};
  int before = dev.total();
  for (const WriteCmd& c : uverbs_write_cmds()) {
    if (!c.ex) continue;
    SCOPED_TRACE(c.name);
    Extended w;
    w.h.command = c.number | IB_USER_VERBS_CMD_FLAG_EXTENDED;
    auto put = [&](std::size_t in, std::size_t out, std::uint64_t response, std::size_t more = 0) {
      w.h.in_words = static_cast<std::uint16_t>(in);
      w.h.out_words = static_cast<std::uint16_t>(out);
      w.ex.response = response;
      return f->write(uptr(&w), 24 + in * 8 + more).code();
    };
    std::size_t need = (c.req_size + 7u) / 8, room = (c.resp_size + 7u) / 8;
    if (!supported(c)) {
      // A hole in the table is no extended command: its header is read as a plain one.
      EXPECT_EQ(put(need, 0, 0), c.number > last(true) ? EOPNOTSUPP : EINVAL);
      continue;
    }
    EXPECT_EQ(f->write(uptr(&w), 23).code(), EINVAL);
    EXPECT_EQ(put(need, 0, 0, 8), EINVAL);
    EXPECT_EQ(put(need - 1, 40, uptr(resp)), ENOSPC);
    w.ex.cmd_hdr_reserved = 1;
    EXPECT_EQ(put(need, 40, uptr(resp)), EINVAL);
    w.ex.cmd_hdr_reserved = 0;
    EXPECT_EQ(put(need, 0, uptr(resp)), EINVAL);
    EXPECT_EQ(put(need, 40, 0), EINVAL);
    EXPECT_EQ(put(need, 40, std::uint64_t{1} << 63), EFAULT);
    if (room > 1) {
      EXPECT_EQ(put(need, room - 1, uptr(resp)), ENOSPC);
    }
    std::byte* at = edge.p + Edge::kPage - sizeof w.h;
    std::memcpy(at, &w.h, sizeof w.h);
    EXPECT_EQ(f->write(uptr(at), 24 + need * 8).code(), EFAULT);
  }
  EXPECT_EQ(dev.total(), before);
}

TEST_F(UverbsTable, CommandNumbers) {
  Plain w;
  w.h.in_words = 2;
  auto put = [&](std::uint32_t command) {
    w.h.command = command;
    return f->write(uptr(&w), 8).code();
  };
  EXPECT_EQ(put(0x100), EINVAL);
  EXPECT_EQ(put(0x40000000), EINVAL);
  EXPECT_EQ(put(200), EOPNOTSUPP);
  EXPECT_EQ(put(IB_USER_VERBS_CMD_FLAG_EXTENDED | 200), EOPNOTSUPP);
  EXPECT_EQ(put(IB_USER_VERBS_CMD_MODIFY_AH), EOPNOTSUPP) << "a number that no kernel ever had";
}

TEST_F(UverbsTable, DestroyCommandsAndHandles) {
  struct {
    std::uint32_t command;
    std::uint32_t wrong;  // an object of another kind
    bool response;
  } const cases[] = {
      {IB_USER_VERBS_CMD_DEALLOC_PD, cq_h, false}, {IB_USER_VERBS_CMD_DEREG_MR, pd_h, false},   {IB_USER_VERBS_CMD_DESTROY_CQ, pd_h, true},
      {IB_USER_VERBS_CMD_DESTROY_QP, pd_h, true},  {IB_USER_VERBS_CMD_DESTROY_SRQ, pd_h, true}, {IB_USER_VERBS_CMD_CLOSE_XRCD, pd_h, false},
  };
  std::uint64_t resp[4];
  for (auto& c : cases) {
    SCOPED_TRACE(c.command);
    auto put = [&](std::uint32_t handle) {
      Plain w;
      w.h.command = c.command;
      std::size_t n = sizeof w.h + (c.response ? 16 : 4);
      w.h.in_words = static_cast<std::uint16_t>(n / 4);
      w.h.out_words = c.response ? 4 : 0;
      w.body[0] = c.response ? uptr(resp) : handle;
      w.body[1] = handle;
      return f->write(uptr(&w), n).code();
    };
    EXPECT_EQ(put(kStale), ENOENT);
    EXPECT_EQ(put(c.wrong), EINVAL);
  }
  auto other = uverbs_open(dev.uverbs_minor);
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT).run(**other), 0);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY).obj(UVERBS_ATTR_DESTROY_MR_HANDLE, mr_h).run(**other), ENOENT)
      << "handles are of their file";
  (*other)->release();
}

TEST_F(UverbsTable, IoctlAttributes) {
  int before = dev.total();
  EXPECT_GT(wrong_attributes(*f, tree(), {pd_h, cq_h}), 100);
  EXPECT_EQ(dev.total(), before);
}

// Capabilities are the calling thread's.
TEST_F(UverbsTable, WithoutCapNetRaw) {
  std::thread([&] {
    ::ib_uverbs_create_qp raw{};
    raw.pd_handle = pd_h, raw.send_cq_handle = raw.recv_cq_handle = cq_h, raw.qp_type = IB_UVERBS_QPT_RAW_PACKET;
    ::ib_uverbs_create_qp_resp resp{};
    ::ib_uverbs_modify_qp qkey{};
    qkey.qp_handle = qp_h, qkey.attr_mask = IB_QP_QKEY, qkey.qkey = 0x80000001;
    ::__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    ::__user_cap_data_struct data[2] = {};
    ASSERT_EQ(syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1u << CAP_NET_RAW);
    ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
    EXPECT_EQ(invoke(IB_USER_VERBS_CMD_CREATE_QP, raw, resp), EPERM);
    EXPECT_EQ(Ioctl(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
                  .obj(UVERBS_ATTR_CREATE_QP_HANDLE)
                  .val64(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 1)
                  .raw(UVERBS_ATTR_CREATE_QP_CAP, sizeof(::ib_uverbs_qp_cap), uptr(&resp))
                  .val64(UVERBS_ATTR_CREATE_QP_TYPE, IB_UVERBS_QPT_RAW_PACKET)
                  .raw(UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof(::ib_uverbs_qp_cap), uptr(&resp))
                  .raw(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, uptr(&resp))
                  .run(*f),
              EPERM);
    EXPECT_EQ(invoke(IB_USER_VERBS_CMD_MODIFY_QP, qkey), EPERM);
    qkey.qkey = 1;
    EXPECT_NE(invoke(IB_USER_VERBS_CMD_MODIFY_QP, qkey), EPERM);
  }).join();
}

// Methods called with most of what they want. After every life of the file nothing is left.
TEST_F(UverbsTable, Fuzz) {
  const char* text = std::getenv("UHCA_FUZZ_SECONDS");
  const char* seed_text = std::getenv("UHCA_FUZZ_SEED");
  double seconds = text != nullptr ? std::atof(text) : 3;
  unsigned seed = seed_text != nullptr ? static_cast<unsigned>(std::atoi(seed_text)) : std::random_device{}();
  SCOPED_TRACE("UHCA_FUZZ_SEED=" + std::to_string(seed));
  std::mt19937_64 rnd(seed);
  auto pick = [&](std::size_t n) { return static_cast<std::size_t>(rnd() % n); };
  // Outputs may be as long as they say (64 KiB).
  static std::uint64_t area[16384];
  auto value = [&](std::size_t len) -> std::uint64_t {
    if (len <= 8) return pick(3) ? pick(32) : rnd();
    return pick(12) ? uptr(area) : kBadPtr;
  };
  long calls = 0, ok = 0, lives = 0;
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    ++lives;
    auto all = objects();
    for (int i = 0; i < 3000; ++i, ++calls) {
      for (std::size_t k = 0; k < 64; ++k) area[k] = pick(3) ? pick(8) : rnd();
      if (pick(3) == 0) {
        auto cmds = uverbs_write_cmds();
        const WriteCmd& c = cmds[pick(cmds.size())];
        // Descriptors would pile up.
        if (!c.ex && (c.number == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL || c.number == IB_USER_VERBS_CMD_GET_CONTEXT)) continue;
        Extended e;
        Plain p;
        for (std::size_t k = 0; k < 40; ++k) p.body[k] = e.body[k] = value(pick(2) ? 8 : 64);
        std::size_t out = c.resp_size / 4 + pick(8);
        if (c.ex) {
          e.h = {c.number | IB_USER_VERBS_CMD_FLAG_EXTENDED, static_cast<std::uint16_t>(c.req_size / 8 + pick(3)),
                 static_cast<std::uint16_t>(out)};
          e.ex.provider_in_words = static_cast<std::uint16_t>(pick(8));
          e.ex.response = uptr(area);
          ok += f->write(uptr(&e), 24 + (e.h.in_words + e.ex.provider_in_words) * 8u - (pick(9) == 0)).ok();
        } else {
          p.h = {c.number, static_cast<std::uint16_t>(2 + c.req_size / 4 + pick(8)), static_cast<std::uint16_t>(out)};
          if (c.has_resp) p.body[0] = pick(12) ? uptr(area) : kBadPtr;
          ok += f->write(uptr(&p), p.h.in_words * 4u - (pick(9) == 0)).ok();
        }
        continue;
      }
      const ApiObject& o = *all[pick(all.size())];
      if (o.methods.empty() || o.id == UVERBS_OBJECT_ASYNC_EVENT) continue;
      const ApiMethod& m = o.methods[pick(o.methods.size())];
      Ioctl c(o.id, m.id);
      for (const uverbs_attr_def* a : m.attrs) {
        if (pick(a->mandatory() ? 20 : 3) == 0) continue;
        bool plain = a->type == UVERBS_ATTR_TYPE_PTR_IN || a->type == UVERBS_ATTR_TYPE_PTR_OUT;
        std::size_t len = plain ? a->size.min : a->type == UVERBS_ATTR_TYPE_IDRS_ARRAY ? 4 * pick(4) : 0;
        if (plain && pick(8) == 0) len = pick(80);
        std::uint64_t v = a->type == UVERBS_ATTR_TYPE_PTR_OUT ? (pick(12) ? uptr(area) : kBadPtr) : value(len);
        if (a->id == UVERBS_ATTR_WRITE_CMD && o.id == UVERBS_OBJECT_DEVICE && m.id == UVERBS_METHOD_INVOKE_WRITE &&
            (v == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL || v == IB_USER_VERBS_CMD_GET_CONTEXT))
          continue;
        c.raw(pick(40) ? a->id : static_cast<std::uint16_t>(pick(20)), static_cast<std::uint16_t>(len), v);
        if (pick(60) == 0) c.raw(a->id, static_cast<std::uint16_t>(len), v, 0);
      }
      ok += c.run(*f) == 0;
    }
    f->release();
    ASSERT_EQ(dev.total(), 0);
    for (auto& n : dev.restrack) ASSERT_EQ(n.load(), 0u);
    dev.calls.clear();
    dev.cqs.clear(), dev.qps.clear(), dev.srqs.clear();
    auto again = uverbs_open(dev.uverbs_minor);
    ASSERT_TRUE(again.ok());
    f = *again;
    open();
  }
  EXPECT_GT(ok, lives * 50);
  RecordProperty("calls", static_cast<int>(calls));
}

}  // namespace
}  // namespace uhca::kernel::test

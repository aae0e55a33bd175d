// SPDX-License-Identifier: MIT
// The built libibverbs.so.1 against its own table of support, against Debian's library, and against the contracts of the inline functions
// in <infiniband/verbs.h>.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "abi/elf_symbols.h"
#include "user/verbs/cmd.h"

namespace {

const char kLibrary[] = UHCA_BUILD_DIR "/lib/uhca/libibverbs.so.1";
const char kDebian[] = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";

enum class Support { SUPPORTED, UNSUPPORTED };
enum class Answer { NONE, INT, POINTER, MINUS_ONE, ZERO, VOID };
struct Row {
  const char *name, *node;
  Support support;
  Answer answer;
};
const Row kRows[] = {
#define UHCA_VERBS(name, node, support, answer) {#name, node, Support::support, Answer::answer},
#include "user/verbs/support.inc"
#undef UHCA_VERBS
};

void* library() {
  static void* h = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  return h;
}
void* debian() {
  static void* h = dlopen(kDebian, RTLD_NOW | RTLD_LOCAL);
  return h;
}
template <class F>
F* function(const char* name, const char* node) {
  return reinterpret_cast<F*>(dlvsym(library(), name, node));
}
#define FN(name, node) function<decltype(name)>(#name, node)

// A context on an arbitrary descriptor, made as a provider makes one.
struct FakeContext {
  explicit FakeContext(int fd) {
    dev.refcount = 1;
    dev.sysfs = &sysfs;
    auto* init =
        function<void*(ibv_device*, int, std::size_t, std::size_t, std::uint32_t)>("_verbs_init_and_alloc_context", "IBVERBS_PRIVATE_65");
    vctx = static_cast<verbs_context_v65*>(init(&dev.device, fd, sizeof(verbs_context_v65), 0, 1));
    context = &vctx->v.context;
  }
  ~FakeContext() {
    FN(verbs_uninit_context, "IBVERBS_PRIVATE_65")(vctx);
    free(vctx);
    EXPECT_EQ(dev.refcount, 1);
  }
  void set(const verbs_context_ops& ops) { FN(verbs_set_ops, "IBVERBS_PRIVATE_65")(vctx, &ops); }

  verbs_sysfs_dev sysfs{};
  verbs_device dev{};
  verbs_context_v65* vctx;
  ibv_context* context;
};
int dev_null() {
  return open("/dev/null", O_RDWR | O_CLOEXEC);
}

std::string pair(const Row& r) {
  return std::string(r.name) + "@" + r.node;
}

}  // namespace

TEST(Symbols, EveryRowOfTheTableIsThere) {
  ASSERT_NE(library(), nullptr) << dlerror();
  for (const Row& r : kRows) EXPECT_NE(dlvsym(library(), r.name, r.node), nullptr) << pair(r);
}

TEST(Symbols, TheTableNamesEveryExportedSymbolAndNoOther) {
  std::set<std::string> table;
  for (const Row& r : kRows) EXPECT_TRUE(table.insert(pair(r)).second) << "twice: " << pair(r);
  EXPECT_EQ(uhca::test::exported_symbols(kLibrary), table);
}

TEST(Symbols, AllPublicPairsOfV65) {
  int count = 0, only_1_0 = 0, refused_1_0 = 0;
  for (const Row& r : kRows) {
    if (std::strncmp(r.node, "IBVERBS_PRIVATE", 15) == 0) continue;
    ++count;
    if (std::strcmp(r.node, "IBVERBS_1.0") == 0) (r.support == Support::SUPPORTED ? only_1_0 : refused_1_0)++;
  }
  EXPECT_EQ(count, 128);
  EXPECT_EQ(only_1_0, 9);
  EXPECT_EQ(refused_1_0, 33);
}

TEST(Symbols, EveryPublicSymbolOfDebiansLibraryExistsHere) {
  const auto theirs = uhca::test::exported_symbols(kDebian), ours = uhca::test::exported_symbols(kLibrary);
  ASSERT_FALSE(theirs.empty()) << "no " << kDebian << ": install libibverbs1";
  int checked = 0;
  for (const std::string& s : theirs) {
    if (s.find("@IBVERBS_PRIVATE") != std::string::npos) continue;
    EXPECT_TRUE(ours.count(s)) << s;
    ++checked;
  }
  EXPECT_EQ(checked, 109);
  EXPECT_TRUE(ours.count("ibv_query_gid_type@IBVERBS_PRIVATE_34"));
}

// ---- refusals
// --------------------------------------------------------------------------------------------------------------------------------------

// Objects enough for every unsupported function: each of them only looks for a context.
TEST(Unsupported, EachAnswersInItsOwnForm) {
  FakeContext ctx(dev_null());
  ibv_dm dm{};
  dm.context = ctx.context;
  ibv_dmah dmah{ctx.context};
  ibv_comp_cntr cntr{ctx.context, 0};
  verbs_qp qp{};
  qp.qp.context = ctx.context;
  std::uint64_t scratch[64] = {};
  auto first_argument = [&](const std::string& n) -> void* {
    if (n == "ibv_unimport_dm") return &dm;
    if (n == "ibv_dealloc_dmah") return &dmah;
    if (n == "ibv_qp_attach_comp_cntr") return &qp;
    if (n.find("comp_cntr") != std::string::npos && n != "ibv_create_comp_cntr" && n != "_ibv_query_comp_cntr_caps") return &cntr;
    return ctx.context;
  };
  int called = 0;
  for (const Row& r : kRows) {
    if (r.support != Support::UNSUPPORTED) continue;
    void* f = dlvsym(library(), r.name, r.node);
    ASSERT_NE(f, nullptr) << pair(r);
    void* arg = first_argument(r.name);
    errno = 0;
    switch (r.answer) {
      case Answer::INT: EXPECT_EQ(reinterpret_cast<int (*)(void*, void*, std::size_t)>(f)(arg, scratch, 16), EOPNOTSUPP) << pair(r); break;
      case Answer::POINTER:
        EXPECT_EQ(reinterpret_cast<void* (*)(void*, void*)>(f)(arg, scratch), nullptr) << pair(r);
        EXPECT_EQ(errno, EOPNOTSUPP) << pair(r);
        break;
      case Answer::MINUS_ONE:
        EXPECT_EQ(reinterpret_cast<int (*)(void*, void*)>(f)(arg, scratch), -1) << pair(r);
        EXPECT_EQ(errno, EOPNOTSUPP) << pair(r);
        break;
      case Answer::ZERO:
        EXPECT_EQ(reinterpret_cast<std::uint64_t (*)(void*)>(f)(arg), 0u) << pair(r);
        EXPECT_EQ(errno, EOPNOTSUPP) << pair(r);
        break;
      case Answer::VOID: reinterpret_cast<void (*)(void*, void*)>(f)(arg, scratch); break;
      case Answer::NONE: ADD_FAILURE() << pair(r) << " is unsupported without an answer";
    }
    ++called;
  }
  EXPECT_EQ(called, 33 + 1 + 2 + 10);  // 1.0 forms, register_driver, DMA handles, completion counters
}

TEST(Unsupported, AContextWithoutOperationsRefusesEveryVerb) {
  FakeContext ctx(dev_null());
  ibv_pd pd{ctx.context, 0};
  ibv_qp_init_attr qp_attr{};
  ibv_device_attr attr;
  EXPECT_EQ(FN(ibv_alloc_pd, "IBVERBS_1.1")(ctx.context), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(FN(ibv_create_qp, "IBVERBS_1.1")(&pd, &qp_attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(FN(ibv_query_device, "IBVERBS_1.1")(ctx.context, &attr), EOPNOTSUPP);
  ibv_cq cq{};
  cq.context = ctx.context;
  EXPECT_EQ(ctx.context->ops.poll_cq(&cq, 1, nullptr), EOPNOTSUPP);
  verbs_mr mr{};
  mr.mr.context = ctx.context;
  EXPECT_EQ(FN(ibv_rereg_mr, "IBVERBS_1.1")(&mr.mr, IBV_REREG_MR_CHANGE_PD, &pd, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(FN(ibv_rereg_mr, "IBVERBS_1.1")(&mr.mr, 1 << 20, &pd, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  qp_attr = {};
  verbs_qp qp{};
  qp.qp.context = ctx.context;
  ibv_ece ece{};
  EXPECT_EQ(FN(ibv_set_ece, "IBVERBS_1.10")(&qp.qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(FN(ibv_qp_to_qp_ex, "IBVERBS_1.6")(&qp.qp), nullptr);
  qp.comp_mask = VERBS_QP_EX;
  EXPECT_EQ(static_cast<void*>(FN(ibv_qp_to_qp_ex, "IBVERBS_1.6")(&qp.qp)), &qp);
}

// ---- contracts of the inline functions
// ---------------------------------------------------------------------------------------------------

TEST(Context, IsMarkedAsExtendedWithTheSizeOfV65) {
  FakeContext ctx(dev_null());
  EXPECT_EQ(ctx.context->abi_compat, __VERBS_ABI_IS_EXTENDED);
  EXPECT_EQ(ctx.vctx->v.sz, 696u);
  EXPECT_EQ(ctx.context->async_fd, -1);
  EXPECT_NE(verbs_get_ctx_op(ctx.context, create_qp_ex), nullptr);
}

namespace {

int fill_port(ibv_context*, std::uint8_t port, ibv_port_attr_v65* attr) {
  std::memset(static_cast<void*>(attr), 0x5a, sizeof *attr);
  attr->base.lid = port;
  attr->active_speed_ex = 0x80;
  return 0;
}
int fill_device(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr, std::size_t size) {
  std::memset(static_cast<void*>(attr), 0x5a, size);
  return 0;
}

}  // namespace

TEST(Context, QueryDeviceFillsNoMoreThanTheOldStructure) {
  FakeContext ctx(dev_null());
  verbs_context_ops ops{};
  ops.query_device_ex = fill_device;
  ctx.set(ops);
  unsigned char buf[sizeof(ibv_device_attr) + 16];
  std::memset(buf, 0xee, sizeof buf);
  EXPECT_EQ(FN(ibv_query_device, "IBVERBS_1.1")(ctx.context, reinterpret_cast<ibv_device_attr*>(buf)), 0);
  EXPECT_EQ(buf[sizeof(ibv_device_attr) - 1], 0x5a);
  EXPECT_EQ(buf[sizeof(ibv_device_attr)], 0xee);
}

TEST(Context, TheExportedQueryPortWritesTheOldestStructureOnly) {
  FakeContext ctx(dev_null());
  verbs_context_ops ops{};
  ops.query_port = fill_port;
  ctx.set(ops);
  unsigned char buf[64];
  std::memset(buf, 0xee, sizeof buf);
  auto* f = function<int(ibv_context*, std::uint8_t, void*)>("ibv_query_port", "IBVERBS_1.1");
  EXPECT_EQ(f(ctx.context, 7, buf), 0);
  EXPECT_EQ(buf[47], 0x5a);
  EXPECT_EQ(buf[48], 0xee);
  EXPECT_EQ(reinterpret_cast<ibv_port_attr*>(buf)->lid, 7);
}

// ---- commands over write(): a file in place of the kernel shows what is sent ----------------------------------------------------------

namespace {

class Recorder {
 public:
  Recorder() : fd_(memfd_create("uverbs", MFD_CLOEXEC)), ctx(dup(fd_)) {}
  ~Recorder() { close(fd_); }
  // What has been written since the last call, as 32-bit words.
  std::vector<std::uint32_t> sent() {
    const off_t end = lseek(fd_, 0, SEEK_END);
    std::vector<std::uint32_t> words(static_cast<std::size_t>(end) / 4);
    EXPECT_EQ(pread(fd_, words.data(), words.size() * 4, 0), end);
    EXPECT_EQ(ftruncate(fd_, 0), 0);
    lseek(fd_, 0, SEEK_SET);
    return words;
  }

 private:
  int fd_;

 public:
  FakeContext ctx;
};

}  // namespace

TEST(LegacyWrite, AllocPdWithDriverData) {
  Recorder r;
  std::uint32_t in[2] = {0x11, 0x22}, out[2] = {};
  verbs_udata u{in, sizeof in, out, sizeof out};
  ibv_pd pd{};
  EXPECT_EQ(FN(ibv_cmd_alloc_pd, "IBVERBS_PRIVATE_65")(r.ctx.context, &pd, &u), 0);
  EXPECT_EQ(pd.context, r.ctx.context);
  auto w = r.sent();
  ASSERT_EQ(w.size(), 6u);
  EXPECT_EQ(w[0], std::uint32_t{IB_USER_VERBS_CMD_ALLOC_PD});
  EXPECT_EQ(w[1], 6u | 3u << 16);  // six words in; out: pd_handle and the driver's two
  EXPECT_EQ(w[4], 0x11u);
  EXPECT_EQ(w[5], 0x22u);
}

TEST(LegacyWrite, ExtendedQueryDevice) {
  Recorder r;
  ibv_device_attr_ex attr;
  EXPECT_EQ(FN(ibv_cmd_query_device_any, "IBVERBS_PRIVATE_65")(r.ctx.context, nullptr, &attr, sizeof attr, nullptr, nullptr, nullptr), 0);
  auto w = r.sent();
  ASSERT_EQ(w.size(), 8u);
  EXPECT_EQ(w[0], IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE);
  EXPECT_EQ(w[1], 1u | (sizeof(ib_uverbs_ex_query_device_resp) / 8) << 16);
  EXPECT_EQ(w[4], 0u);  // no driver words
  EXPECT_EQ(w[5], 0u);
  EXPECT_EQ(FN(ibv_cmd_query_device_any, "IBVERBS_PRIVATE_65")(r.ctx.context, nullptr, &attr, 8, nullptr, nullptr, nullptr), EINVAL);
  ibv_query_device_ex_input input{1};
  EXPECT_EQ(FN(ibv_cmd_query_device_any, "IBVERBS_PRIVATE_65")(r.ctx.context, &input, &attr, sizeof attr, nullptr, nullptr, nullptr),
            EINVAL);
  EXPECT_TRUE(r.sent().empty());
}

TEST(LegacyWrite, CreateCqNeedsTheExtendedCommandForFlagsAndTheIoctlForDriverAttributes) {
  Recorder r;
  auto* create = FN(ibv_cmd_create_cq_ex, "IBVERBS_PRIVATE_65");
  verbs_cq cq{};
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 63;
  EXPECT_EQ(create(r.ctx.context, &attr, &cq, nullptr, 0, nullptr), 0);
  EXPECT_EQ(r.sent()[0], std::uint32_t{IB_USER_VERBS_CMD_CREATE_CQ});

  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  EXPECT_EQ(create(r.ctx.context, &attr, &cq, nullptr, 0, nullptr), 0);
  EXPECT_EQ(r.sent()[0], IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_CQ);

  ibv_command_buffer driver(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
  driver.in_u32(0x1002, 1);
  EXPECT_EQ(create(r.ctx.context, &attr, &cq, nullptr, 0, &driver), EOPNOTSUPP);
  attr.comp_mask = 1u << 31;
  EXPECT_EQ(create(r.ctx.context, &attr, &cq, nullptr, 0, nullptr), EOPNOTSUPP);
  EXPECT_TRUE(r.sent().empty());
}

TEST(LegacyWrite, ModifyQpSendsOnlyWhatTheMaskNames) {
  Recorder r;
  ibv_qp qp{};
  qp.context = r.ctx.context;
  qp.handle = 9;
  ibv_qp_attr attr;
  std::memset(&attr, 0xff, sizeof attr);
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  auto* modify = FN(ibv_cmd_modify_qp, "IBVERBS_PRIVATE_65");
  EXPECT_EQ(modify(&qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
  auto w = r.sent();
  ASSERT_EQ(w.size(), 2 + sizeof(ib_uverbs_modify_qp) / 4);
  ib_uverbs_modify_qp expected{};
  expected.qp_handle = 9;
  expected.attr_mask = IBV_QP_STATE | IBV_QP_PORT;
  expected.qp_state = IBV_QPS_INIT;
  expected.port_num = 1;
  EXPECT_EQ(std::memcmp(w.data() + 2, &expected, sizeof expected), 0);
  EXPECT_EQ(w[1], static_cast<std::uint32_t>(w.size()));  // no response
  EXPECT_EQ(modify(&qp, &attr, IBV_QP_RATE_LIMIT), EOPNOTSUPP);
}

TEST(Commands, CreateQpRefusesWhatNoKernelWouldSee) {
  Recorder r;
  auto* create = FN(ibv_cmd_create_qp_ex, "IBVERBS_PRIVATE_65");
  ibv_pd pd{r.ctx.context, 0};
  ibv_cq cq{};
  verbs_qp qp{};
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = &cq;
  EXPECT_EQ(create(r.ctx.context, &qp, &attr, nullptr, nullptr), EINVAL);  // no PD
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = &pd;
  attr.recv_cq = nullptr;
  EXPECT_EQ(create(r.ctx.context, &qp, &attr, nullptr, nullptr), EINVAL);
  attr.recv_cq = &cq;
  attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.create_flags = 1u << 31;
  EXPECT_EQ(create(r.ctx.context, &qp, &attr, nullptr, nullptr), EINVAL);
  attr.comp_mask = 1u << 31;
  EXPECT_EQ(create(r.ctx.context, &qp, &attr, nullptr, nullptr), EINVAL);
  EXPECT_TRUE(r.sent().empty());
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  EXPECT_EQ(create(r.ctx.context, &qp, &attr, nullptr, nullptr), 0);
  EXPECT_EQ(r.sent()[0], std::uint32_t{IB_USER_VERBS_CMD_CREATE_QP});
  EXPECT_EQ(qp.qp.state, IBV_QPS_RESET);
}

TEST(Commands, TooManyAttributesAreRefusedNotWrittenPastTheEnd) {
  FakeContext ctx(dev_null());
  ibv_command_buffer cmd(1, 1);
  for (unsigned i = 0; i < ibv_command_buffer::kMaxAttrs; ++i) cmd.in_u32(static_cast<std::uint16_t>(i), i);
  EXPECT_FALSE(cmd.invalid);
  cmd.in_u32(99, 1);
  EXPECT_TRUE(cmd.invalid);
  EXPECT_EQ(FN(execute_ioctl, "IBVERBS_PRIVATE_65")(ctx.context, &cmd), EINVAL);
  ibv_command_buffer one(1, 1);
  EXPECT_EQ(FN(execute_ioctl, "IBVERBS_PRIVATE_65")(ctx.context, &one), ENOTTY);
}

// ---- events
// ----------------------------------------------------------------------------------------------------------------------------------------

TEST(Events, AsyncEventOfEachElementAndItsAcknowledgement) {
  FakeContext ctx(dev_null());
  int p[2];
  ASSERT_EQ(pipe(p), 0);
  ctx.context->async_fd = p[0];
  ibv_qp qp{};
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
  ib_uverbs_async_event_desc d{};
  d.element = reinterpret_cast<std::uintptr_t>(&qp);
  d.event_type = IBV_EVENT_QP_FATAL;
  ASSERT_EQ(write(p[1], &d, sizeof d), static_cast<ssize_t>(sizeof d));
  ibv_async_event event{};
  ASSERT_EQ(FN(ibv_get_async_event, "IBVERBS_1.1")(ctx.context, &event), 0);
  EXPECT_EQ(event.element.qp, &qp);
  FN(ibv_ack_async_event, "IBVERBS_1.1")(&event);
  EXPECT_EQ(qp.events_completed, 1u);

  d.element = 1;
  d.event_type = IBV_EVENT_PORT_ACTIVE;
  ASSERT_EQ(write(p[1], &d, sizeof d), static_cast<ssize_t>(sizeof d));
  ASSERT_EQ(FN(ibv_get_async_event, "IBVERBS_1.1")(ctx.context, &event), 0);
  EXPECT_EQ(event.element.port_num, 1);
  FN(ibv_ack_async_event, "IBVERBS_1.1")(&event);
  close(p[1]);
  EXPECT_EQ(FN(ibv_get_async_event, "IBVERBS_1.1")(ctx.context, &event), -1);  // end of file
}

TEST(Channels, AreBusyWhileACqUsesThem) {
  Recorder r;  // write() answers zeros: the channel's fd is 0, which must not be closed here
  ibv_comp_channel* channel = FN(ibv_create_comp_channel, "IBVERBS_1.0")(r.ctx.context);
  ASSERT_NE(channel, nullptr);
  channel->fd = dev_null();
  ibv_cq cq{};
  FN(verbs_init_cq, "IBVERBS_PRIVATE_65")(&cq, r.ctx.context, channel, &cq);
  EXPECT_EQ(FN(ibv_destroy_comp_channel, "IBVERBS_1.0")(channel), EBUSY);
  verbs_context_ops ops{};
  ops.destroy_cq = [](ibv_cq*) { return 0; };
  r.ctx.set(ops);
  EXPECT_EQ(FN(ibv_destroy_cq, "IBVERBS_1.1")(&cq), 0);
  EXPECT_EQ(FN(ibv_destroy_comp_channel, "IBVERBS_1.0")(channel), 0);
}

// ---- memory
// ----------------------------------------------------------------------------------------------------------------------------------------

TEST(Buffers, AreAllocatedRegisteredByRangeAndFreed) {
  FakeContext ctx(dev_null());
  ibv_pd pd{ctx.context, 0}, other{ctx.context, 1};
  auto* alloc = function<void*(ibv_pd*, std::size_t, ibv_buf**)>("ibv_alloc_buf", "IBVERBS_1.17");
  auto* reg = function<ibv_mr*(ibv_pd*, ibv_buf*, void*, std::size_t, int)>("ibv_reg_buf_mr", "IBVERBS_1.17");
  ibv_buf* buf = nullptr;
  EXPECT_EQ(alloc(&pd, 0, &buf), nullptr);
  EXPECT_EQ(errno, EINVAL);
  auto* p = static_cast<char*>(alloc(&pd, 8192, &buf));
  ASSERT_NE(p, nullptr);
  static verbs_mr mr;
  static std::size_t registered;
  verbs_context_ops ops{};
  ops.reg_mr = [](ibv_pd*, void*, std::size_t length, std::uint64_t, int) {
    registered = length;
    return &mr.mr;
  };
  ctx.set(ops);
  EXPECT_EQ(reg(&pd, buf, p + 4096, 4096, 0), &mr.mr);
  EXPECT_EQ(registered, 4096u);
  for (auto [addr, len] : {std::pair{p + 4096, 4097}, std::pair{p - 1, 1}, std::pair{p + 8193, 0}}) {
    errno = 0;
    EXPECT_EQ(reg(&pd, buf, addr, static_cast<std::size_t>(len), 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  EXPECT_EQ(reg(&other, buf, p, 1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(function<int(ibv_buf*)>("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18")(buf), -1);
  EXPECT_EQ(errno, ENODATA);
  function<void(ibv_buf*)>("ibv_free_buf", "IBVERBS_1.17")(buf);
}

TEST(Memory, OptionalAccessBitsAreHiddenFromOldKernels) {
  FakeContext ctx(dev_null());
  ibv_pd pd{ctx.context, 0};
  static int seen;
  static verbs_mr mr;
  verbs_context_ops ops{};
  ops.reg_mr = [](ibv_pd*, void*, std::size_t, std::uint64_t, int access) {
    seen = access;
    return &mr.mr;
  };
  ctx.set(ops);
  auto* reg = FN(ibv_reg_mr_iova2, "IBVERBS_1.8");
  char byte;
  ASSERT_NE(reg(&pd, &byte, 1, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING), nullptr);
  EXPECT_EQ(seen, IBV_ACCESS_LOCAL_WRITE);
  ctx.dev.core_support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
  ASSERT_NE(reg(&pd, &byte, 1, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING), nullptr);
  EXPECT_EQ(seen, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
}

// ---- the same answers as Debian's library ----------------------------------------------------------------------------------------

namespace {

template <class F, class Check>
void compare(const char* name, const char* node, int from, int to, Check check) {
  auto* ours = reinterpret_cast<F*>(dlvsym(library(), name, node));
  auto* theirs = reinterpret_cast<F*>(dlvsym(debian(), name, node));
  ASSERT_TRUE(ours && theirs) << name;
  for (int i = from; i <= to; ++i) check(ours, theirs, i);
}

}  // namespace

TEST(SameAsDebian, StringsAndRates) {
  ASSERT_TRUE(debian()) << dlerror();
  ASSERT_EQ(dlvsym(debian(), "ibv_alloc_buf", "IBVERBS_1.17"), nullptr) << "this is not the other library";
  auto same_string = [](auto* ours, auto* theirs, int i) { EXPECT_STREQ(ours(i), theirs(i)) << i; };
  compare<const char*(int)>("ibv_node_type_str", "IBVERBS_1.1", -2, 10, same_string);
  compare<const char*(int)>("ibv_port_state_str", "IBVERBS_1.1", -2, 10, same_string);
  compare<const char*(int)>("ibv_wc_status_str", "IBVERBS_1.1", -2, 40, same_string);
  compare<const char*(int)>("ibv_event_type_str", "IBVERBS_1.1", -2, IBV_EVENT_WQ_FATAL, same_string);
  auto same = [](auto* ours, auto* theirs, int i) { EXPECT_EQ(ours(i), theirs(i)) << i; };
  compare<int(int)>("ibv_rate_to_mult", "IBVERBS_1.0", -2, 40, same);
  compare<int(int)>("mult_to_ibv_rate", "IBVERBS_1.0", -2, 500, same);
  compare<int(int)>("ibv_rate_to_mbps", "IBVERBS_1.1", -2, 40, same);
  for (int rate = 0; rate < 40; ++rate) {
    const int mbps = FN(ibv_rate_to_mbps, "IBVERBS_1.1")(static_cast<ibv_rate>(rate));
    compare<int(int)>("mbps_to_ibv_rate", "IBVERBS_1.1", mbps, mbps + 1, same);
  }
  // v65's addition.
  EXPECT_STREQ(FN(ibv_event_type_str, "IBVERBS_1.1")(static_cast<ibv_event_type>(20)), "Device link speed change");
}

TEST(SameAsDebian, MarshallingOfQpAttributes) {
  ASSERT_TRUE(debian()) << dlerror();
  ib_uverbs_qp_attr src;
  for (std::size_t i = 0; i < sizeof src; ++i) reinterpret_cast<unsigned char*>(&src)[i] = static_cast<unsigned char>(i * 7 + 1);
  ibv_qp_attr ours, theirs;
  std::memset(&ours, 0, sizeof ours);
  std::memset(&theirs, 0, sizeof theirs);
  using F = void(ibv_qp_attr*, ib_uverbs_qp_attr*);
  reinterpret_cast<F*>(dlvsym(library(), "ibv_copy_qp_attr_from_kern", "IBVERBS_1.0"))(&ours, &src);
  reinterpret_cast<F*>(dlvsym(debian(), "ibv_copy_qp_attr_from_kern", "IBVERBS_1.0"))(&theirs, &src);
  EXPECT_EQ(std::memcmp(&ours, &theirs, sizeof ours), 0);
}

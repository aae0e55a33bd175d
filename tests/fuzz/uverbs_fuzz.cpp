// SPDX-License-Identifier: MIT
// What a program may write to /dev/infiniband/uverbs0 and ask of it by ioctl, found by coverage (libFuzzer), on the real driver and device.
// An input is a program: a sequence of calls, each built of the bytes that follow. After it the file is closed; whatever it made has to be
// gone.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_ioctl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "device/pci/inproc.h"
#include "kernel/core/ib_verbs.h"
#include "kernel/mlx5_ib/mlx5_ib.h"
#include "kernel/uverbs/file.h"
#include "kernel/uverbs/ufile.h"
#include "kernel/uverbs/write_cmds.h"
#include "uverbs/context_request.h"

namespace {

using namespace uhca;
using namespace uhca::kernel;

// Memory of the "program": what requests point into. Outputs may be as long as they say (64 KiB).
std::uint8_t area[1 << 18];
constexpr std::uint64_t kBad = 8;

struct Bytes {
  const std::uint8_t* p;
  std::size_t left;
  std::uint8_t byte() { return left ? --left, *p++ : 0; }
  std::uint16_t word() {
    const unsigned low = byte();
    return static_cast<std::uint16_t>(low | byte() << 8);
  }
  std::uint64_t eight() {
    std::uint64_t v = 0;
    for (int i = 0; i < 8; ++i) v |= std::uint64_t{byte()} << 8 * i;
    return v;
  }
  // Handles and counts, mostly; pointers; anything.
  std::uint64_t value() {
    const std::uint8_t kind = byte();
    if (kind < 128) return kind;
    if (kind < 200) return reinterpret_cast<std::uintptr_t>(area) + (kind - 128u) * 512;
    return kind < 210 ? kBad : eight();
  }
  void fill(std::uint8_t* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = byte();
  }
};

struct Request {
  static constexpr unsigned kAttrs = 16;
  alignas(8) std::uint8_t bytes[sizeof(::ib_uverbs_ioctl_hdr) + kAttrs * sizeof(::ib_uverbs_attr)] = {};
  ::ib_uverbs_ioctl_hdr& hdr() { return *reinterpret_cast<::ib_uverbs_ioctl_hdr*>(bytes); }
  ::ib_uverbs_attr& attr(unsigned i) { return hdr().attrs[i]; }
  void run(VerbsFile& f) { static_cast<void>(f.ioctl(RDMA_VERBS_IOCTL, reinterpret_cast<std::uintptr_t>(bytes))); }
};

struct Device {
  std::unique_ptr<pci::InprocEndpoint> slot;
  ib_device* dev = nullptr;
  std::vector<std::uint16_t> objects;  // numbers; each file has a tree of its own
  std::size_t live = 0;
  unsigned kept[8] = {};

  Device() {
    pci::SlotConfig c;
    c.netdev = "lo";
    slot = pci::plug_in_hca(c);
    auto probed = slot ? mlx5_ib_probe(*slot) : Result<ib_device*>(Errno{ENODEV});
    if (!probed.ok()) std::abort();
    dev = *probed;
    auto f = file();
    const UapiTree& tree = static_cast<UverbsFile&>(*f).tree();
    for (std::uint32_t id = 0; id < 0x2000; ++id)
      if (tree.object(static_cast<std::uint16_t>(id)) != nullptr) objects.push_back(static_cast<std::uint16_t>(id));
    f->release();
    take_as_given();
  }
  std::shared_ptr<VerbsFile> file() {
    auto f = uverbs_open(dev->uverbs_minor);
    if (!f.ok()) std::abort();
    return *f;
  }
  void count(unsigned (&n)[8]) {
    std::size_t i = 0;
    for (auto& r : dev->restrack)
      if (i < 8) n[i++] = r.load();
  }
  bool as_before() {
    unsigned now[8] = {};
    count(now);
    return slot->live_objects() == live && std::memcmp(now, kept, sizeof now) == 0;
  }
  void take_as_given() {
    live = slot->live_objects();
    count(kept);
  }
};

void context(VerbsFile& f, bool devx) {
  Request c;
  ::mlx5_ib_alloc_ucontext_req_v2 req = test::context_request(devx);
  mlx5_ib_alloc_ucontext_resp resp{};
  c.hdr().length = sizeof(::ib_uverbs_ioctl_hdr) + 2 * sizeof(::ib_uverbs_attr);
  c.hdr().object_id = UVERBS_OBJECT_DEVICE;
  c.hdr().method_id = UVERBS_METHOD_GET_CONTEXT;
  c.hdr().num_attrs = 2;
  c.hdr().driver_id = ::RDMA_DRIVER_MLX5;
  c.attr(0) = {.attr_id = UVERBS_ATTR_UHW_IN, .len = sizeof req, .data = reinterpret_cast<std::uintptr_t>(&req)};
  c.attr(1) = {.attr_id = UVERBS_ATTR_UHW_OUT, .len = sizeof resp, .data = reinterpret_cast<std::uintptr_t>(&resp)};
  c.run(f);
}

// By ioctl: a method of the tree (or none), attributes of its declaration (or none of them).
void call_method(Device& d, VerbsFile& f, Bytes& in) {
  Request c;
  const ApiObject& o = *static_cast<UverbsFile&>(f).tree().object(d.objects[in.byte() % d.objects.size()]);
  const std::uint8_t which = in.byte();
  const ApiMethod* m = o.methods.empty() || which == 255 ? nullptr : &o.methods[which % o.methods.size()];
  // Descriptors that it makes are the process's, and would pile up.
  if (o.id == UVERBS_OBJECT_ASYNC_EVENT || o.id == UVERBS_OBJECT_COMP_CHANNEL) return;
  c.hdr().object_id = o.id;
  c.hdr().method_id = m != nullptr ? m->id : which;
  c.hdr().driver_id = ::RDMA_DRIVER_MLX5;
  std::uint16_t n = 0;
  auto put = [&](std::uint16_t id, std::uint16_t len, std::uint64_t data, std::uint8_t odd) {
    if (n == Request::kAttrs) return;
    c.attr(n) = {.attr_id = id, .len = len, .flags = static_cast<std::uint16_t>(odd & 1 ? 0 : UVERBS_ATTR_F_MANDATORY), .data = data};
    if (odd & 2) c.attr(n).attr_data.reserved = odd;
    ++n;
  };
  if (m != nullptr) {
    for (const uverbs_attr_def* a : m->attrs) {
      const std::uint8_t how = in.byte();
      if (how % 8 == 7) continue;  // left out
      if (a->type == UVERBS_ATTR_TYPE_FD && a->access == UVERBS_ACCESS_NEW) return;
      const bool plain = a->type == UVERBS_ATTR_TYPE_PTR_IN || a->type == UVERBS_ATTR_TYPE_PTR_OUT || a->type == UVERBS_ATTR_TYPE_ENUM_IN;
      std::uint16_t len = plain ? a->size.min : 0;
      if (how % 8 == 6) len = in.byte();
      if (a->type == UVERBS_ATTR_TYPE_IDRS_ARRAY) len = static_cast<std::uint16_t>(4 * (how >> 6));
      std::uint64_t data = in.value();
      if (len > 8 || a->type == UVERBS_ATTR_TYPE_PTR_OUT || a->type == UVERBS_ATTR_TYPE_IDRS_ARRAY)
        if (data < 128) data = reinterpret_cast<std::uintptr_t>(area) + data * 512;
      put(a->id, len, data, how % 8 == 5 ? in.byte() : 0);
    }
  }
  if (which % 16 == 15) put(in.word(), in.word(), in.value(), in.byte());
  c.hdr().num_attrs = n;
  c.hdr().length = static_cast<std::uint16_t>(sizeof(::ib_uverbs_ioctl_hdr) + n * sizeof(::ib_uverbs_attr));
  if (which % 64 == 63) {  // a header that lies
    c.hdr().length = in.word();
    c.hdr().num_attrs = in.word();
    c.hdr().reserved1 = in.byte();
  }
  c.run(f);
}

// By write(2): a command of the table, with sizes that are right or not.
void write_command(VerbsFile& f, Bytes& in) {
  const auto cmds = uverbs_write_cmds();
  const WriteCmd& c = cmds[in.byte() % cmds.size()];
  if (!c.ex && (c.number == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL || c.number == IB_USER_VERBS_CMD_GET_CONTEXT)) return;
  const std::uint8_t how = in.byte();
  alignas(8) std::uint8_t buf[640] = {};
  std::size_t body = c.req_size + (how % 4 == 3 ? in.byte() : how % 4 * 8u), size;
  if (body > 512) body = 512;
  if (c.ex) {
    struct {
      ::ib_uverbs_cmd_hdr h;
      ::ib_uverbs_ex_cmd_hdr ex;
    } h{};
    h.h.command = c.number | IB_USER_VERBS_CMD_FLAG_EXTENDED;
    h.h.in_words = static_cast<std::uint16_t>(c.req_size / 8);
    h.h.out_words = static_cast<std::uint16_t>(c.resp_size / 8 + how / 64);
    h.ex.provider_in_words = static_cast<std::uint16_t>((body - c.req_size) / 8);
    h.ex.response = how % 32 == 31 ? kBad : reinterpret_cast<std::uintptr_t>(area);
    std::memcpy(buf, &h, sizeof h);
    size = sizeof h;
  } else {
    ::ib_uverbs_cmd_hdr h{};
    h.command = c.number;
    h.in_words = static_cast<std::uint16_t>((sizeof h + body) / 4);
    h.out_words = static_cast<std::uint16_t>(c.resp_size / 4 + how / 64 * 4);
    std::memcpy(buf, &h, sizeof h);
    size = sizeof h;
  }
  for (std::size_t i = 0; i < body; i += 8) {
    std::uint64_t v = !c.ex && i == 0 && c.has_resp ? reinterpret_cast<std::uintptr_t>(area) : in.value();
    std::memcpy(buf + size + i, &v, 8);
  }
  size += body;
  if (how % 16 == 15) size = in.word() % sizeof buf;
  static_cast<void>(f.write(reinterpret_cast<std::uintptr_t>(buf), size));
}

void run(Device& d, Bytes in) {
  auto f = d.file();
  const std::uint8_t first = in.byte();
  if (first != 255) context(*f, first % 2 == 0);
  in.fill(area, 64u * (first % 8));
  for (int calls = 0; in.left > 0 && calls < 64; ++calls) in.byte() % 2 ? call_method(d, *f, in) : write_command(*f, in);
  f->release();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Device* d = new Device;
  run(*d, {data, size});
  if (d->as_before()) return 0;
  // The driver makes its own QPs and SRQs when they are needed for the first time: they stay, but do not grow.
  d->take_as_given();
  run(*d, {data, size});
  if (d->as_before()) return 0;
  std::fprintf(stderr, "objects are left: %zu of the device, were %zu\n", d->slot->live_objects(), d->live);
  std::abort();
}

// SPDX-License-Identifier: MIT
// A device whose driver does nothing but count, and builders for ioctl and write commands.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernel/core/ib_verbs.h"
#include "kernel/uverbs/attr_bundle.h"
#include "kernel/uverbs/file.h"
#include "uapi/rdma_next.h"

namespace uhca::kernel::test {

struct FakeCq final : ib_cq {
  std::uint32_t n = 0;
  std::uint32_t hw_cqn() const override { return n; }
};

// A driver-private object: id 0x1000; create (0x1000) and destroy (0x1001); a method on PD (0x1000); an attribute on CQ_CREATE.
inline constexpr std::uint16_t kPrivObject = 0x1000, kPrivCreate = 0x1000, kPrivDestroy = 0x1001, kPrivOdd = 0x1002;

struct FakeDevice final : ib_device {
  // Live objects by kind, and every call in order.
  std::map<std::string, int> live;
  std::vector<std::string> calls;
  std::map<std::string, int> fail;  // next calls of this name answer that errno
  std::vector<FakeCq*> cqs;
  std::vector<ib_qp*> qps;
  std::vector<ib_srq*> srqs;
  std::uint32_t cq_uar_index = 0;
  std::uint32_t last_mask = 0;
  ib_qp_attr last_attr;

  static FakeDevice& of(ib_device& d) { return static_cast<FakeDevice&>(d); }
  Status call(const std::string& op) {
    calls.push_back(op);
    auto f = fail.find(op);
    if (f == fail.end()) return success();
    int e = f->second;
    fail.erase(f);
    return Errno{e};
  }
  int total() const {
    int n = 0;
    for (auto& [_, c] : live) n += c;
    return n;
  }
  FakeDevice();
  ~FakeDevice() override { ib_unregister_device(*this); }
  void doorbell(std::uint64_t, std::uint64_t) override {}
  void look_at_send_queue(std::uint32_t) override {}
  void look_at_cq(std::uint32_t) override {}
  void polled_empty() override {}
  void going_to_sleep() override {}
  void watch_uar(std::uint32_t, bool) override {}
  void invalidate_range(UserPtr, std::size_t, std::string_view) override {}
};

inline UserPtr uptr(const void* p) {
  return reinterpret_cast<UserPtr>(p);
}
inline constexpr UserPtr kBadPtr = 8;  // never mapped

// One ioctl; attributes in the order of the calls.
struct Ioctl {
  std::vector<std::byte> buf = std::vector<std::byte>(sizeof(::ib_uverbs_ioctl_hdr));
  ::ib_uverbs_ioctl_hdr& hdr() { return *reinterpret_cast<::ib_uverbs_ioctl_hdr*>(buf.data()); }
  ::ib_uverbs_attr& attr(std::size_t i) { return hdr().attrs[i]; }

  Ioctl(std::uint16_t object, std::uint16_t method) {
    hdr().object_id = object;
    hdr().method_id = method;
    hdr().driver_id = ::RDMA_DRIVER_MLX5;
    hdr().length = sizeof(::ib_uverbs_ioctl_hdr);
  }
  Ioctl& raw(std::uint16_t id, std::uint16_t len, std::uint64_t data, std::uint16_t flags = UVERBS_ATTR_F_MANDATORY) {
    buf.resize(buf.size() + sizeof(::ib_uverbs_attr));
    ::ib_uverbs_attr& a = attr(hdr().num_attrs++);
    a.attr_id = id;
    a.len = len;
    a.flags = flags;
    a.data = data;
    hdr().length = static_cast<std::uint16_t>(buf.size());
    return *this;
  }
  Ioctl& obj(std::uint16_t id, std::uint64_t handle = 0) { return raw(id, 0, handle); }
  Ioctl& val(std::uint16_t id, std::uint32_t v) { return raw(id, 4, v); }
  Ioctl& val64(std::uint16_t id, std::uint64_t v) { return raw(id, 8, v); }
  Ioctl& ptr(std::uint16_t id, const void* p, std::size_t n) { return raw(id, static_cast<std::uint16_t>(n), uptr(p)); }
  int run(VerbsFile& f) { return f.ioctl(RDMA_VERBS_IOCTL, uptr(buf.data())).code(); }
};

class Uverbs : public ::testing::Test {
 protected:
  FakeDevice dev;
  std::shared_ptr<VerbsFile> f;

  void SetUp() override {
    ASSERT_TRUE(ib_register_device(dev).ok());
    auto r = uverbs_open(dev.uverbs_minor);
    ASSERT_TRUE(r.ok());
    f = *r;
  }
  void TearDown() override {
    if (f) f->release();
    EXPECT_EQ(dev.total(), 0) << "objects left behind";
    for (auto& c : dev.restrack) EXPECT_EQ(c.load(), 0u);
  }

  int context() { return Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT).run(*f); }

  // A plain write command through INVOKE_WRITE: 0 or errno.
  template <class Req, class Resp>
  int invoke(std::uint32_t cmd, const Req& req, Resp& resp) {
    return Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        .val64(UVERBS_ATTR_WRITE_CMD, cmd)
        .ptr(UVERBS_ATTR_CORE_IN, &req, sizeof req)
        .ptr(UVERBS_ATTR_CORE_OUT, &resp, sizeof resp)
        .run(*f);
  }
  template <class Req>
  int invoke(std::uint32_t cmd, const Req& req) {
    std::uint64_t v = 0;
    std::memcpy(&v, &req, sizeof req < 8 ? sizeof req : 8);
    Ioctl c(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    c.val64(UVERBS_ATTR_WRITE_CMD, cmd);
    if (sizeof req <= 8) {
      c.raw(UVERBS_ATTR_CORE_IN, sizeof req, v);
    } else {
      c.ptr(UVERBS_ATTR_CORE_IN, &req, sizeof req);
    }
    return c.run(*f);
  }

  std::uint32_t pd() {
    ::ib_uverbs_alloc_pd req{};
    ::ib_uverbs_alloc_pd_resp resp{};
    EXPECT_EQ(invoke(IB_USER_VERBS_CMD_ALLOC_PD, req, resp), 0);
    return resp.pd_handle;
  }
  int mr(std::uint32_t pd_handle, std::uint32_t* handle, std::uint64_t start = 0x10000, std::uint64_t iova = 0x10000,
         std::uint32_t access = 1) {
    ::ib_uverbs_reg_mr req{};
    req.start = start, req.length = 4096, req.hca_va = iova, req.pd_handle = pd_handle, req.access_flags = access;
    struct {
      std::uint32_t mr_handle, lkey, rkey;
    } resp{};
    int e = invoke(IB_USER_VERBS_CMD_REG_MR, req, resp);
    *handle = resp.mr_handle;
    return e;
  }
  // channel < 0: none.
  std::uint32_t cq(int channel = -1, std::uint64_t user_handle = 0xc0) {
    std::uint32_t cqe = 0;
    Ioctl c(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    c.obj(UVERBS_ATTR_CREATE_CQ_HANDLE)
        .val(UVERBS_ATTR_CREATE_CQ_CQE, 16)
        .val64(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, user_handle)
        .val(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0)
        .ptr(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe, 4);
    if (channel >= 0) c.obj(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, static_cast<std::uint64_t>(channel));
    EXPECT_EQ(c.run(*f), 0);
    EXPECT_EQ(cqe, 15u);
    return static_cast<std::uint32_t>(c.attr(0).data);
  }
  int destroy_cq(std::uint32_t h, ::ib_uverbs_destroy_cq_resp* resp) {
    return Ioctl(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY)
        .obj(UVERBS_ATTR_DESTROY_CQ_HANDLE, h)
        .ptr(UVERBS_ATTR_DESTROY_CQ_RESP, resp, sizeof *resp)
        .run(*f);
  }
  std::uint32_t qp(std::uint32_t pd_h, std::uint32_t cq_h, int async = -1) {
    ::ib_uverbs_qp_cap cap{8, 8, 1, 1, 0};
    std::uint32_t qpn = 0;
    Ioctl c(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    c.obj(UVERBS_ATTR_CREATE_QP_HANDLE)
        .obj(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd_h)
        .obj(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq_h)
        .obj(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq_h)
        .val64(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0x9b)
        .ptr(UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof cap)
        .val64(UVERBS_ATTR_CREATE_QP_TYPE, IB_UVERBS_QPT_RC)
        .ptr(UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap, sizeof cap)
        .ptr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn, 4);
    if (async >= 0) c.obj(UVERBS_ATTR_CREATE_QP_EVENT_FD, static_cast<std::uint64_t>(async));
    EXPECT_EQ(c.run(*f), 0);
    EXPECT_NE(qpn, 0u);
    EXPECT_EQ(cap.max_send_wr, 16u);
    return static_cast<std::uint32_t>(c.attr(0).data);
  }
  int destroy_qp(std::uint32_t h, std::uint32_t* events) {
    ::ib_uverbs_destroy_qp_resp resp{};
    int e = Ioctl(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
                .obj(UVERBS_ATTR_DESTROY_QP_HANDLE, h)
                .ptr(UVERBS_ATTR_DESTROY_QP_RESP, &resp, sizeof resp)
                .run(*f);
    *events = resp.events_reported;
    return e;
  }
  int channel() {
    ::ib_uverbs_create_comp_channel req{};
    ::ib_uverbs_create_comp_channel_resp resp{};
    EXPECT_EQ(invoke(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, req, resp), 0);
    return static_cast<int>(resp.fd);
  }
  int async_fd() {
    Ioctl c(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
    c.obj(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
    EXPECT_EQ(c.run(*f), 0);
    return static_cast<int>(c.attr(0).data);
  }
};

}  // namespace uhca::kernel::test

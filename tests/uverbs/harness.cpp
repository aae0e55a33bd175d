// SPDX-License-Identifier: MIT
#include "uverbs/harness.h"

#include "kernel/mm/umem_dmabuf.h"

namespace uhca::kernel::test {
namespace {

Status priv_create(uverbs_attr_bundle& b) {
  auto& dev = FakeDevice::of(*b.device);
  UHCA_CHECK(dev.call("priv_create"));
  ib_uobject* u = uverbs_attr_get_uobject(b, 0x1000);
  u->object = new int(7);
  ++dev.live["priv"];
  uverbs_finalize_uobj_create(b, 0x1000);
  std::uint32_t type = 0;
  UHCA_CHECK(uverbs_get_const(&type, b, 0x1001));
  UHCA_CHECK(dev.call("priv_create_late"));
  std::uint64_t out = 0x1122334455667788;
  return uverbs_copy_to(b, 0x1002, out);
}

Status priv_destroy(ib_uobject& u, rdma_remove_reason, uverbs_attr_bundle*) {
  auto& dev = FakeDevice::of(*u.device);
  UHCA_CHECK(dev.call("priv_destroy"));
  delete static_cast<int*>(u.object);
  --dev.live["priv"];
  return success();
}

// Accepts everything and says EPROTONOSUPPORT.
Status priv_odd(uverbs_attr_bundle&) {
  return Errno{EPROTONOSUPPORT};
}

constexpr uverbs_attr_def kCreate[] = {
    UVERBS_ATTR_IDR(0x1000, kPrivObject, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_CONST_IN(0x1001, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(0x1002, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kDestroy[] = {UVERBS_ATTR_IDR(0x1000, kPrivObject, UVERBS_ACCESS_DESTROY, UA_MANDATORY)};
struct Two {
  std::uint64_t a, b;
};
constexpr uverbs_size kElems[] = {UVERBS_ATTR_TYPE(std::uint32_t), UVERBS_ATTR_NO_DATA()};
constexpr uverbs_attr_def kOdd[] = {
    UVERBS_ATTR_PTR_IN(0x1000, UVERBS_ATTR_STRUCT(Two, a)),
    UVERBS_ATTR_PTR_IN(0x1001, UVERBS_ATTR_MIN_SIZE(4), UA_ALLOC_AND_COPY),
    UVERBS_ATTR_ENUM_IN(0x1002, kElems),
    UVERBS_ATTR_RAW_FD(0x1003),
    UVERBS_ATTR_IDRS_ARR(0x1004, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, 1, 4),
    UVERBS_ATTR_FD(0x1005, UVERBS_OBJECT_COMP_CHANNEL, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(0x1006, UVERBS_IDR_ANY_OBJECT, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(0x1007, UVERBS_OBJECT_DM, UVERBS_ACCESS_READ),  // the device has none: the attribute is unknown
    UVERBS_ATTR_IDR(0x1008, UVERBS_OBJECT_PD, UVERBS_ACCESS_WRITE),
};
// Needs an object that the device lacks: disabled.
constexpr uverbs_attr_def kNeedsDm[] = {UVERBS_ATTR_IDR(0x1000, UVERBS_OBJECT_DM, UVERBS_ACCESS_READ, UA_MANDATORY)};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(kPrivCreate, kCreate, priv_create),
    UVERBS_METHOD_DESTROY(kPrivDestroy, kDestroy),
    UVERBS_METHOD(kPrivOdd, kOdd, priv_odd),
    UVERBS_METHOD(0x1003, kNeedsDm, priv_odd),
};
constexpr uverbs_obj_type kType = UVERBS_TYPE_ALLOC_IDR(priv_destroy);
constexpr uverbs_object_def kObject = UVERBS_OBJECT(kPrivObject, &kType, kMethods);

Status pd_query(uverbs_attr_bundle& b) {
  std::uint32_t pdn = uverbs_attr_get_obj<ib_pd>(b, 0x1000) ? 42 : 0;
  return uverbs_copy_to(b, 0x1001, pdn);
}
constexpr uverbs_attr_def kPdQuery[] = {
    UVERBS_ATTR_IDR(0x1000, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(0x1001, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_method_def kPdMethods[] = {UVERBS_METHOD(0x1000, kPdQuery, pd_query)};
constexpr uverbs_object_def kPdMore = UVERBS_OBJECT(UVERBS_OBJECT_PD, nullptr, kPdMethods);

constexpr uverbs_attr_def kCqAttr[] = {UVERBS_ATTR_PTR_IN(0x1002, UVERBS_ATTR_TYPE(std::uint32_t))};
constexpr uverbs_method_def kCqMethods[] = {UVERBS_METHOD(UVERBS_METHOD_CQ_CREATE, kCqAttr, nullptr)};
constexpr uverbs_object_def kCqMore = UVERBS_OBJECT(UVERBS_OBJECT_CQ, nullptr, kCqMethods);

const uapi_definition kDefs[] = {{&kObject}, {&kPdMore}, {&kCqMore}, {}};

struct Pd final : ib_pd {};
struct Mr final : ib_mr {};
struct Qp final : ib_qp {};
struct Srq final : ib_srq {};
struct Xrcd final : ib_xrcd {};
struct Ctx final : ib_ucontext {};

}  // namespace

FakeDevice::FakeDevice() {
  name = "fake_%d";
  num_comp_vectors = 2;
  ops.driver_id = ::RDMA_DRIVER_MLX5;
  ops.driver_def = kDefs;
  ops.query_device = [](ib_device&, ib_device_attr& a, Udata* u) -> Status {
    a.max_qp = 77, a.max_send_sge = 5, a.max_recv_sge = 9, a.timestamp_mask = 0xabc;
    if (u && u->outlen >= 4) {
      std::uint32_t tag = 0x5a5a;
      UHCA_CHECK(u->copy_out(&tag, 4));
    }
    return success();
  };
  ops.query_port = [](ib_device&, std::uint32_t, ib_port_attr& a) -> Status {
    a.max_msg_sz = 1 << 30, a.active_speed = 0x80;
    return success();
  };
  ops.alloc_ucontext = [](ib_device& d, Udata&) -> Result<std::unique_ptr<ib_ucontext>> {
    UHCA_CHECK(of(d).call("alloc_ucontext"));
    ++of(d).live["ctx"];
    return std::unique_ptr<ib_ucontext>(new Ctx);
  };
  ops.dealloc_ucontext = [](ib_ucontext& c) {
    (void)of(*c.device).call("dealloc_ucontext");
    --of(*c.device).live["ctx"];
  };
  ops.query_ucontext = [](ib_ucontext& c, uverbs_attr_bundle&) -> Status { return of(*c.device).call("query_ucontext"); };
  ops.mmap = [](ib_ucontext&, std::uint64_t pgoff, std::size_t, int) -> Result<MmapTarget> {
    if (pgoff != 9) return Errno{EINVAL};
    MmapTarget t;
    t.fd = 3, t.offset = 4096;
    return t;
  };
  ops.alloc_pd = [](ib_device& d, ib_ucontext*, Udata*) -> Result<std::unique_ptr<ib_pd>> {
    UHCA_CHECK(of(d).call("alloc_pd"));
    ++of(d).live["pd"];
    return std::unique_ptr<ib_pd>(new Pd);
  };
  ops.dealloc_pd = [](ib_pd& p) -> Status {
    UHCA_CHECK(of(*p.device).call("dealloc_pd"));
    --of(*p.device).live["pd"];
    return success();
  };
  ops.reg_user_mr = [](ib_pd& p, std::uint64_t, std::uint64_t length, std::uint64_t iova, std::uint32_t,
                       Udata*) -> Result<std::unique_ptr<ib_mr>> {
    UHCA_CHECK(of(*p.device).call("reg_mr"));
    auto m = std::make_unique<Mr>();
    m->lkey = 0x101, m->rkey = 0x102, m->length = length, m->iova = iova;
    ++of(*p.device).live["mr"];
    return std::unique_ptr<ib_mr>(std::move(m));
  };
  // Of a buffer as the device's own pages are: it ends with the device, and shows nothing.
  ops.reg_user_mr_dmabuf = [](ib_pd& p, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd, std::uint32_t,
                              uverbs_attr_bundle*) -> Result<std::unique_ptr<ib_mr>> {
    UHCA_CHECK(of(*p.device).call("reg_dmabuf_mr"));
    auto umem = UHCA_TRY(mm::UmemDmabuf::get_pinned(offset, length, fd, true));
    return of(*p.device).ops.reg_user_mr(p, offset, length, iova, 0, nullptr);
  };
  ops.export_mmap = [](ib_ucontext& c, std::uint64_t pgoff) -> Result<std::shared_ptr<mm::DmaBuf>> {
    UHCA_CHECK(of(*c.device).call("export"));
    if (pgoff != 7) return Errno{EINVAL};
    struct Pages : mm::DmaBufExporter {
      Result<std::unique_ptr<mm::SgTable>> map(mm::DmaBufAttachment&) override { return std::make_unique<mm::SgTable>(); }
    };
    return mm::DmaBuf::make(std::make_unique<Pages>(), 8192, "fake");
  };
  ops.dereg_mr = [](ib_mr& m) -> Status {
    UHCA_CHECK(of(*m.device).call("dereg_mr"));
    --of(*m.device).live["mr"];
    return success();
  };
  ops.create_cq = [](ib_device& d, ib_ucontext*, const ib_cq_init_attr& a, Udata* u) -> Result<std::unique_ptr<ib_cq>> {
    UHCA_CHECK(of(d).call("create_cq"));
    if (auto* b = rdma_udata_to_uverbs_attr_bundle(u); b && uverbs_attr_is_valid(*b, 0x1002))
      UHCA_CHECK(uverbs_copy_from(&of(d).cq_uar_index, *b, 0x1002));
    auto c = std::make_unique<FakeCq>();
    c->n = 0x400 + static_cast<std::uint32_t>(of(d).cqs.size());
    c->cqe = static_cast<int>(a.cqe) - 1;
    of(d).cqs.push_back(c.get());
    ++of(d).live["cq"];
    return std::unique_ptr<ib_cq>(std::move(c));
  };
  ops.destroy_cq = [](ib_cq& c) -> Status {
    UHCA_CHECK(of(*c.device).call("destroy_cq"));
    --of(*c.device).live["cq"];
    return success();
  };
  ops.create_qp = [](ib_device& d, ib_pd*, ib_qp_init_attr& a, Udata*) -> Result<std::unique_ptr<ib_qp>> {
    UHCA_CHECK(of(d).call("create_qp"));
    a.cap.max_send_wr *= 2;
    auto q = std::make_unique<Qp>();
    q->qp_num = 0x1000 + static_cast<std::uint32_t>(of(d).qps.size());
    of(d).qps.push_back(q.get());
    ++of(d).live["qp"];
    return std::unique_ptr<ib_qp>(std::move(q));
  };
  ops.modify_qp = [](ib_qp& q, const ib_qp_attr& a, std::uint32_t mask, Udata*) -> Status {
    of(*q.device).last_mask = mask;
    of(*q.device).last_attr = a;
    return of(*q.device).call("modify_qp");
  };
  ops.query_qp = [](ib_qp&, ib_qp_attr& a, std::uint32_t, ib_qp_init_attr& i) -> Status {
    a.qp_state = ib_qp_state::RTS;
    a.ah_attr.is_global = true;
    a.ah_attr.sgid_index = 3;
    i.sq_sig_all = true;
    return success();
  };
  ops.destroy_qp = [](ib_qp& q) -> Status {
    UHCA_CHECK(of(*q.device).call("destroy_qp"));
    --of(*q.device).live["qp"];
    return success();
  };
  ops.create_srq = [](ib_pd& p, ib_srq_init_attr& a, Udata*) -> Result<std::unique_ptr<ib_srq>> {
    UHCA_CHECK(of(*p.device).call("create_srq"));
    a.attr.max_wr *= 2;
    auto s = std::make_unique<Srq>();
    s->srq_num = 0x77;
    of(*p.device).srqs.push_back(s.get());
    ++of(*p.device).live["srq"];
    return std::unique_ptr<ib_srq>(std::move(s));
  };
  ops.modify_srq = [](ib_srq& s, const ib_srq_attr&, std::uint32_t, Udata*) -> Status { return of(*s.device).call("modify_srq"); };
  ops.query_srq = [](ib_srq&, ib_srq_attr& a) -> Status {
    a = {31, 2, 5};
    return success();
  };
  ops.destroy_srq = [](ib_srq& s) -> Status {
    UHCA_CHECK(of(*s.device).call("destroy_srq"));
    --of(*s.device).live["srq"];
    return success();
  };
  ops.alloc_xrcd = [](ib_device& d, Udata*) -> Result<std::unique_ptr<ib_xrcd>> {
    UHCA_CHECK(of(d).call("alloc_xrcd"));
    ++of(d).live["xrcd"];
    return std::unique_ptr<ib_xrcd>(new Xrcd);
  };
  ops.dealloc_xrcd = [](ib_xrcd& x) -> Status {
    UHCA_CHECK(of(*x.device).call("dealloc_xrcd"));
    --of(*x.device).live["xrcd"];
    return success();
  };
}

}  // namespace uhca::kernel::test

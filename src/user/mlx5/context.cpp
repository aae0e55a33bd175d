// SPDX-License-Identifier: MIT
// The provider's entry: matching devices, opening a context, device and port queries.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

namespace {

constexpr std::uint16_t kVendor = 0x15b3;
constexpr std::uint32_t kDefaultBfregs = 16;  // MLX5_DEF_TOT_UUARS
constexpr std::uint32_t kDefaultLowLatency = 4;
constexpr std::uint32_t kMaxBfregs = 512;
constexpr std::uint8_t kInlineL2 = 18;  // MLX5_ETH_L2_INLINE_HEADER_SIZE: addresses, type, a VLAN tag

struct Device {
  verbs_device v;
};

constexpr verbs_match_ent pci(std::uint16_t device) {
  return {VERBS_MATCH_PCI, kVendor, device, 0};
}
constexpr verbs_match_ent kMatch[] = {
    {VERBS_MATCH_DRIVER_ID, 0, 0, RDMA_DRIVER_MLX5},
    pci(0x1011),
    pci(0x1012),
    pci(0x1013),
    pci(0x1014),
    pci(0x1015),
    pci(0x1016),
    pci(0x1017),
    pci(0x1018),
    pci(0x1019),
    pci(0x101a),
    pci(0x101b),
    pci(0x101c),
    pci(0x101d),
    pci(0x101e),
    pci(0x101f),
    pci(0x1021),
    pci(0x1023),
    pci(0x1025),
    pci(0x1027),
    pci(0x2101),
    pci(0xa2d2),
    pci(0xa2d3),
    pci(0xa2d6),
    pci(0xa2dc),
    pci(0xa2df),
    {VERBS_MATCH_SENTINEL, 0, 0, 0},
};

bool env_is(const char* name, const char* value) {
  const char* e = getenv(name);
  return e && !strcmp(e, value);
}

// MLX5_TOTAL_UUARS and MLX5_NUM_LOW_LAT_UUARS only shape the request: with dynamic UARs the kernel ignores them.
int bfreg_counts(std::uint32_t* total, std::uint32_t* low_latency) {
  *total = kDefaultBfregs;
  *low_latency = kDefaultLowLatency;
  if (const char* e = getenv("MLX5_TOTAL_UUARS")) {
    long v = strtol(e, nullptr, 10);
    if (v < 1) return refuse(EINVAL, "MLX5_TOTAL_UUARS={}", e).value;
    if (v > static_cast<long>(kMaxBfregs)) return refuse(ENOMEM, "MLX5_TOTAL_UUARS={}", e).value;
    *total = static_cast<std::uint32_t>(align_up(static_cast<std::uint64_t>(v), 2));
  }
  if (const char* e = getenv("MLX5_NUM_LOW_LAT_UUARS")) {
    long v = strtol(e, nullptr, 10);
    if (v < 0) return refuse(EINVAL, "MLX5_NUM_LOW_LAT_UUARS={}", e).value;
    *low_latency = static_cast<std::uint32_t>(v);
  }
  if (*low_latency > *total - 1) return refuse(ENOMEM, "{} low latency registers of {}", *low_latency, *total).value;
  return 0;
}

// The request's tail grew over time; kernels that do not know it refuse the longer forms.
int get_context(Context* ctx, mlx5_ib_alloc_ucontext_req_v2* req, mlx5_ib_alloc_ucontext_resp* resp, const ibv_fd_arr* fds) {
  constexpr std::size_t kLengths[] = {sizeof *req, offsetof(mlx5_ib_alloc_ucontext_req_v2, lib_caps),
                                      offsetof(mlx5_ib_alloc_ucontext_req_v2, max_cqe_version)};
  int err = 0;
  for (std::size_t len : kLengths) {
    *resp = {};
    verbs_udata udata{req, len, resp, sizeof *resp};
    err = ibv_cmd_get_context(&ctx->vctx, fds, &udata);
    if (!err) return 0;
  }
  return err;
}

int take_response(Context* ctx, const mlx5_ib_alloc_ucontext_resp& r) {
  if (r.cqe_version != 1) return refuse(ENOTSUP, "open: CQE version {} (this library reads version 1)", r.cqe_version).value;
  if (r.tot_bfregs) return refuse(ENOTSUP, "open: the kernel has no dynamic UARs (before Linux 5.8)").value;
  ctx->limits.max_sq_desc_sz = r.max_sq_desc_sz;
  ctx->limits.max_rq_desc_sz = r.max_rq_desc_sz;
  ctx->limits.max_send_wqebb = r.max_send_wqebb;
  ctx->limits.max_recv_wr = r.max_recv_wr;
  ctx->limits.max_srq_recv_wr = r.max_srq_recv_wr;
  ctx->bf_reg_size = r.bf_reg_size;
  ctx->cache_line_size = r.cache_line_size;
  if (!ctx->cache_line_size || (ctx->cache_line_size & (ctx->cache_line_size - 1)) || ctx->cache_line_size > prm::kUarPageSize)
    return refuse(EINVAL, "open: the kernel reports cache lines of {} bytes", r.cache_line_size).value;
  ctx->num_ports = r.num_ports;
  ctx->num_dyn_bfregs = r.num_dyn_bfregs;
  ctx->cmds_supp_uhw = r.cmds_supp_uhw;
  ctx->eth_min_inline = r.eth_min_inline == MLX5_USER_INLINE_MODE_NONE ? 0 : kInlineL2;
  ctx->ece = r.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE;
  ctx->real_time_ts = r.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS;
  ctx->dump_fill_mkey =
      (r.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY) ? r.dump_fill_mkey : std::uint32_t{prm::kInvalidLkey};
  return 0;
}

std::size_t page_size() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// The command of mlx5_ib's mmap offsets stands in bits 8..15 of the page number (rdma/mlx5-abi.h).
off_t mmap_command(std::uint64_t cmd) {
  return static_cast<off_t>((cmd << 8) * page_size());
}

// Programs live without these pages: failure leaves them absent.
void map_clocks(Context* ctx, const mlx5_ib_alloc_ucontext_resp& r) {
  int fd = to_ibv(ctx)->cmd_fd;
  if (r.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET) {
    void* p = mmap(nullptr, page_size(), PROT_READ, MAP_SHARED, fd, mmap_command(MLX5_IB_MMAP_CORE_CLOCK));
    if (p != MAP_FAILED) {
      ctx->hca_core_clock_page = p;
      ctx->hca_core_clock = static_cast<std::uint8_t*>(p) + (r.hca_core_clock_offset & (page_size() - 1));
    } else {
      log::warn("open: no mapping of the device's clock, errno {}", errno);
    }
  }
  if (r.clock_info_versions & (1 << MLX5_IB_CLOCK_INFO_V1)) {
    void* p = mmap(nullptr, page_size(), PROT_READ, MAP_SHARED, fd, mmap_command(MLX5_IB_MMAP_CLOCK_INFO));
    if (p != MAP_FAILED)
      ctx->clock_info = static_cast<const mlx5_ib_clock_info*>(p);
    else
      log::warn("open: no mapping of the clock page, errno {}", errno);
  }
}

void query_caps(Context* ctx) {
  ibv_device_attr_ex attr = {};
  std::uint64_t fw = 0;
  std::size_t got = 0;
  bool uhw = ctx->cmds_supp_uhw & MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE;
  verbs_udata udata{nullptr, 0, &ctx->caps, sizeof ctx->caps};
  if (int err = ibv_cmd_query_device_any(to_ibv(ctx), nullptr, &attr, sizeof attr, &fw, uhw ? &udata : nullptr, &got)) {
    log::warn("open: QUERY_DEVICE failed, errno {}", err);
    return;
  }
  ctx->atomic_cap = attr.orig_attr.atomic_cap;
  ctx->max_dm_size = attr.max_dm_size;
  ctx->raw_csum = attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM;
}

void query_ports(Context* ctx) {
  for (std::uint32_t p = 0; p < ctx->num_ports && p < 2; ++p) {
    ibv_port_attr_v65 attr = {};
    if (ibv_cmd_query_port(to_ibv(ctx), static_cast<std::uint8_t>(p + 1), &attr)) continue;
    ctx->link_layer[p] = attr.base.link_layer;
    ctx->port_flags[p] = attr.base.flags;
  }
}

void find_hooks(Context* ctx) {
  BiasedLock::prepare();
  ctx->doorbell_hook = reinterpret_cast<uhca_doorbell_hook_t>(dlsym(RTLD_DEFAULT, UHCA_DOORBELL_HOOK));
  ctx->poll_hook = reinterpret_cast<uhca_poll_hook_t>(dlsym(RTLD_DEFAULT, UHCA_POLL_HOOK));
  auto attach = reinterpret_cast<uhca_attach_hook_t>(dlsym(RTLD_DEFAULT, UHCA_ATTACH_HOOK));
  if (attach && ctx->doorbell_hook && ctx->poll_hook) attach(to_ibv(ctx)->cmd_fd);
}

void unmap_all(Context* ctx) {
  if (ctx->nc_uar.page) munmap(ctx->nc_uar.page, ctx->nc_uar.length);
  if (ctx->hca_core_clock_page) munmap(ctx->hca_core_clock_page, page_size());
  if (ctx->clock_info) munmap(const_cast<mlx5_ib_clock_info*>(ctx->clock_info), page_size());
  for (auto& table : ctx->uidx_tables) delete[] table.load();
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr, std::size_t size) {
  Context* ctx = to_ctx(context);
  mlx5_ib_query_device_resp resp = {};
  std::uint64_t fw = 0;
  std::size_t got = 0;
  bool uhw = ctx->cmds_supp_uhw & MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE;
  verbs_udata udata{nullptr, 0, &resp, sizeof resp};
  if (int err = ibv_cmd_query_device_any(context, input, attr, size, &fw, uhw ? &udata : nullptr, &got)) return err;
#define UHCA_HAS(member) (size >= offsetof(ibv_device_attr_ex, member) + sizeof attr->member)
  if (UHCA_HAS(tso_caps)) {
    attr->tso_caps.max_tso = resp.tso_caps.max_tso;
    attr->tso_caps.supported_qpts = resp.tso_caps.supported_qpts;
  }
  if (UHCA_HAS(rss_caps)) {
    attr->rss_caps.rx_hash_fields_mask = resp.rss_caps.rx_hash_fields_mask;
    attr->rss_caps.rx_hash_function = resp.rss_caps.rx_hash_function;
  }
  if (UHCA_HAS(packet_pacing_caps)) {
    attr->packet_pacing_caps.qp_rate_limit_min = resp.packet_pacing_caps.qp_rate_limit_min;
    attr->packet_pacing_caps.qp_rate_limit_max = resp.packet_pacing_caps.qp_rate_limit_max;
    attr->packet_pacing_caps.supported_qpts = resp.packet_pacing_caps.supported_qpts;
  }
#undef UHCA_HAS
  snprintf(attr->orig_attr.fw_ver, sizeof attr->orig_attr.fw_ver, "%u.%u.%04u", static_cast<unsigned>(fw >> 32 & 0xffff),
           static_cast<unsigned>(fw >> 16 & 0xffff), static_cast<unsigned>(fw & 0xffff));
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr_v65* attr) {
  return ibv_cmd_query_port(context, port, attr);
}
int query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
  return ibv_cmd_query_port_speed(context, port, speed);
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if (values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK})
    return refuse(EINVAL, "query_rt_values: comp_mask {:#x}", values->comp_mask).value;
  std::uint32_t done = 0;
  int err = 0;
  if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
    std::uint64_t cycles = 0;
    err = read_core_clock(to_ctx(context), &cycles);
    if (!err) {
      values->raw_clock.tv_sec = 0;
      values->raw_clock.tv_nsec = static_cast<long>(cycles);
      done = IBV_VALUES_MASK_RAW_CLOCK;
    }
  }
  values->comp_mask = done;
  return err;
}

void free_context(ibv_context* context) {
  Context* ctx = to_ctx(context);
  unmap_all(ctx);
  verbs_uninit_context(&ctx->vctx);
  free(ctx);
}

verbs_context_v65* give_up(Context* ctx, int err) {
  unmap_all(ctx);
  verbs_uninit_context(&ctx->vctx);
  free(ctx);
  errno = err;
  return nullptr;
}

void set_ops(Context* ctx) {
  verbs_context_ops ops = {};
  ops.free_context = free_context;
  ops.query_device_ex = query_device_ex;
  ops.query_port = query_port;
  ops.query_port_speed = query_port_speed;
  ops.query_rt_values = query_rt_values;
  fill_memory_ops(&ops);
  fill_dm_ops(&ops);
  fill_ah_ops(&ops);
  fill_cq_ops(&ops);
  fill_srq_ops(&ops);
  fill_qp_ops(&ops);
  fill_wq_ops(&ops);
  fill_flow_ops(&ops);
  fill_xrc_ops(&ops);
  verbs_set_ops(&ctx->vctx, &ops);
}

// What follows GET_CONTEXT (or QUERY_CONTEXT of an imported descriptor); 0 or an errno.
int set_up(Context* ctx, const mlx5_ib_alloc_ucontext_resp& resp) {
  if (int err = take_response(ctx, resp)) return err;
  map_clocks(ctx, resp);
  set_ops(ctx);
  query_caps(ctx);
  query_ports(ctx);
  // The one uncached UAR page that CQs and QPs ring.
  if (int err = alloc_uar(ctx, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC, &ctx->nc_uar)) return err;
  find_hooks(ctx);
  return 0;
}

Context* new_context(ibv_device* device, int cmd_fd) {
  auto* ctx =
      static_cast<Context*>(_verbs_init_and_alloc_context(device, cmd_fd, sizeof(Context), offsetof(Context, vctx), RDMA_DRIVER_MLX5));
  if (ctx) ctx->single_threaded = env_is("MLX5_SINGLE_THREADED", "1");
  return ctx;
}

// mlx5dv_context_attr of v65; v44's ends after comp_mask.
struct ContextAttr {
  std::uint32_t flags;
  std::uint64_t comp_mask;
  ibv_fd_arr* fds;
};
constexpr std::uint64_t kMaskFdArray = 1;  // MLX5DV_CONTEXT_ATTR_MASK_FD_ARRAY

verbs_context_v65* alloc_context(ibv_device* device, int cmd_fd, void* private_data) {
  Context* ctx = new_context(device, cmd_fd);
  if (!ctx) return nullptr;
  auto* attr = static_cast<const ContextAttr*>(private_data);
  const ibv_fd_arr* fds = nullptr;
  if (attr && attr->comp_mask) {
    if (attr->comp_mask & ~kMaskFdArray) return give_up(ctx, refuse(EINVAL, "mlx5dv_open_device: comp_mask {:#x}", attr->comp_mask).value);
    fds = attr->fds;
  }
  bool must_devx = attr && attr->flags;
  if (must_devx && (attr->flags & ~std::uint32_t{MLX5DV_CONTEXT_FLAGS_DEVX}))
    return give_up(ctx, refuse(EINVAL, "mlx5dv_open_device: flags {:#x}", attr->flags).value);

  mlx5_ib_alloc_ucontext_req_v2 req = {};
  if (int err = bfreg_counts(&req.total_num_bfregs, &req.num_low_latency_bfregs)) return give_up(ctx, err);
  req.flags = MLX5_IB_ALLOC_UCTX_DEVX;
  req.max_cqe_version = 1;
  req.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
  mlx5_ib_alloc_ucontext_resp resp = {};
  int err = get_context(ctx, &req, &resp, fds);
  ctx->devx = !err;
  if (err && !must_devx) {
    // Without the privilege for DEVX the context is still good for verbs.
    req.flags = 0;
    err = get_context(ctx, &req, &resp, fds);
  }
  if (err) return give_up(ctx, err);
  if ((err = set_up(ctx, resp))) return give_up(ctx, err);
  return &ctx->vctx;
}

verbs_context_v65* import_context(ibv_device* device, int cmd_fd) {
  Context* ctx = new_context(device, cmd_fd);
  if (!ctx) return nullptr;
  mlx5_ib_alloc_ucontext_resp resp = {};
  ibv_command_buffer driver(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
  driver.out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &resp, sizeof resp);
  if (int err = ibv_cmd_query_context(to_ibv(ctx), &driver)) return give_up(ctx, err);
  ctx->devx = true;
  if (int err = set_up(ctx, resp)) return give_up(ctx, err);
  return &ctx->vctx;
}

verbs_device* alloc_device(verbs_sysfs_dev*) {
  Device* d = make<Device>();
  return d ? &d->v : nullptr;
}
void uninit_device(verbs_device* d) {
  delete reinterpret_cast<Device*>(d);
}

constexpr uhca_provider kProvider = {
    sizeof(uhca_provider), "mlx5", 1, 1, kMatch, alloc_device, uninit_device, alloc_context, import_context,
};

}  // namespace

bool is_ours(const ibv_device* device) {
  return device && verbs_get_device(device)->provider == &kProvider;
}

}  // namespace uhca::mlx5

extern "C" __attribute__((visibility("default"))) const struct uhca_provider* const uhca_provider = &uhca::mlx5::kProvider;

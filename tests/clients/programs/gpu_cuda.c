/* SPDX-License-Identifier: MIT
 *
 * GPU memory as CUDA gives it to programs: libcuda.so.1, opened at run time as NCCL, UCX and NVSHMEM do, and verbs.
 *   gpu_cuda api|export|probes|no_route|bar1|none GID     one process
 *   gpu_cuda both GID | server PORT GID | client HOST PORT GID     GPU memory of one to GPU memory of the other
 * Status 0: everything was as with a real driver.
 */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "ends.h"

enum { kPage = 4096, kGpuPage = 65536, kMiB = 1 << 20 };
enum { kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
enum { kNotSupp = 524 };

/* ---- CUDA, by name */

typedef unsigned long long dptr;
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  NOT_FOUND = 500,
  ALREADY_REGISTERED = 712,
  NOT_REGISTERED = 713,
  NOT_SUPPORTED = 801
};
static void* lib;
static int (*GetProcAddress)(const char*, void**, int, unsigned long long, int*);
static int (*Init)(unsigned), (*DeviceGetCount)(int*), (*DeviceGet)(int*, int), (*DeviceGetAttribute)(int*, int, int);
static int (*CtxCreate)(void**, unsigned, int), (*CtxDestroy)(void*), (*CtxSetCurrent)(void*), (*CtxGetCurrent)(void**);
static int (*PrimaryRetain)(void**, int), (*PrimaryRelease)(int);
static int (*MemAlloc)(dptr*, size_t), (*MemFree)(dptr), (*MemGetInfo)(size_t*, size_t*), (*MemGetAddressRange)(dptr*, size_t*, dptr);
static int (*MemAllocHost)(void**, size_t), (*MemFreeHost)(void*), (*HostRegister)(void*, size_t, unsigned), (*HostUnregister)(void*);
static int (*HtoD)(dptr, const void*, size_t), (*DtoH)(void*, dptr, size_t), (*DtoD)(dptr, dptr, size_t), (*Copy)(dptr, dptr, size_t);
static int (*MemsetD32)(dptr, unsigned, size_t), (*PointerGet)(void*, int, dptr), (*PointerSet)(const void*, int, dptr);
static int (*GetHandle)(void*, dptr, size_t, int, unsigned long long), (*ErrorName)(int, const char**);

static void* function(const char* name) {
  void* p = NULL;
  int status = -1;
  NEED(GetProcAddress(name, &p, 12040, 0, &status) == OK);
  if (!p) FAIL("%s: status %d", name, status);
  return p;
}
static int load(void) {
  lib = dlopen("libcuda.so.1", RTLD_NOW);
  if (!lib) return 0;
  NEED(*(void**)& GetProcAddress = dlsym(lib, "cuGetProcAddress_v2"));
#define GET(f, name) *(void**)&f = function(name)
  GET(Init, "cuInit"), GET(DeviceGetCount, "cuDeviceGetCount"), GET(DeviceGet, "cuDeviceGet");
  GET(DeviceGetAttribute, "cuDeviceGetAttribute"), GET(CtxCreate, "cuCtxCreate"), GET(CtxDestroy, "cuCtxDestroy");
  GET(CtxSetCurrent, "cuCtxSetCurrent"), GET(CtxGetCurrent, "cuCtxGetCurrent");
  GET(PrimaryRetain, "cuDevicePrimaryCtxRetain"), GET(PrimaryRelease, "cuDevicePrimaryCtxRelease");
  GET(MemAlloc, "cuMemAlloc"), GET(MemFree, "cuMemFree"), GET(MemGetInfo, "cuMemGetInfo"), GET(MemGetAddressRange, "cuMemGetAddressRange");
  GET(MemAllocHost, "cuMemAllocHost"), GET(MemFreeHost, "cuMemFreeHost");
  GET(HostRegister, "cuMemHostRegister"), GET(HostUnregister, "cuMemHostUnregister");
  GET(HtoD, "cuMemcpyHtoD"), GET(DtoH, "cuMemcpyDtoH"), GET(DtoD, "cuMemcpyDtoD"), GET(Copy, "cuMemcpy");
  GET(MemsetD32, "cuMemsetD32"), GET(PointerGet, "cuPointerGetAttribute"), GET(PointerSet, "cuPointerSetAttribute");
  GET(GetHandle, "cuMemGetHandleForAddressRange"), GET(ErrorName, "cuGetErrorName");
  return 1;
}
static void* start_cuda(void) {
  void* ctx;
  int device;
  NEED(load() && Init(0) == OK && DeviceGet(&device, 0) == OK && CtxCreate(&ctx, 0, device) == OK);
  return ctx;
}
static int export_fd(dptr p, size_t n) {
  int fd = -1;
  NEED(GetHandle(&fd, p, n, 1, 0) == OK && fd >= 0);
  return fd;
}

/* ---- what the driver says */

static int api(int gid) {
  (void)gid;
  int n = 0, device = 7, value = -1, status;
  void *p, *ctx, *primary, *seen;
  const char* name;
  NEED(load());
  NEED(DeviceGetCount(&n) == NOT_INITIALIZED);
  NEED(Init(1) == INVALID_VALUE && Init(0) == OK && Init(0) == OK);
  NEED(DeviceGetCount(&n) == OK && n == 1 && DeviceGet(&device, 1) == INVALID_DEVICE && DeviceGet(&device, 0) == OK && device == 0);
  NEED(DeviceGetAttribute(&value, 124, device) == OK && value == 1); /* DMA_BUF_SUPPORTED */
  NEED(DeviceGetAttribute(&value, 116, device) == OK && value == 0); /* GPU_DIRECT_RDMA_SUPPORTED: nvidia-peermem */
  NEED(DeviceGetAttribute(&value, 9999, device) == INVALID_VALUE && DeviceGetAttribute(&value, 124, 3) == INVALID_DEVICE);
  NEED(GetProcAddress("cuNoSuchThing", &p, 12040, 0, &status) == OK && !p && status == 1);
  NEED(GetProcAddress("cuMemGetHandleForAddressRange", &p, 11000, 0, &status) == OK && !p && status == 2);
  NEED(GetProcAddress("cuNoSuchThing", &p, 12040, 0, NULL) == NOT_FOUND);
  NEED(ErrorName(801, &name) == OK && !strcmp(name, "CUDA_ERROR_NOT_SUPPORTED") && ErrorName(12345, &name) == INVALID_VALUE);

  dptr d, e, base;
  size_t size, free_before, free_after, total;
  NEED(MemAlloc(&d, kMiB) == INVALID_CONTEXT);
  NEED(PrimaryRelease(0) == INVALID_CONTEXT && PrimaryRetain(&primary, 0) == OK && CtxSetCurrent(primary) == OK);
  NEED(CtxGetCurrent(&seen) == OK && seen == primary);
  NEED(MemGetInfo(&free_before, &total) == OK && free_before <= total);
  NEED(MemAlloc(&d, 0) == INVALID_VALUE && MemAlloc(&d, total + kMiB) == OUT_OF_MEMORY);
  NEED(MemAlloc(&d, kMiB + 1) == OK && MemAlloc(&e, kMiB) == OK);
  NEED(MemGetInfo(&free_after, &total) == OK && free_before - free_after >= 2 * kMiB);
  NEED(MemGetAddressRange(&base, &size, d + 77) == OK && base == d && size == kMiB + 1);
  NEED(MemGetAddressRange(&base, &size, 4096) == NOT_FOUND);
  unsigned type = 0, on = 1, memops = 0;
  NEED(PointerGet(&type, 2, d + 5) == OK && type == 2);
  NEED(PointerGet(&type, 2, (dptr)(uintptr_t)&type) == INVALID_VALUE); /* not of CUDA */
  void* context = NULL;
  NEED(PointerGet(&context, 1, d) == OK && context != NULL); /* the current one */
  NEED(PointerSet(&on, 6, d) == OK && PointerGet(&memops, 6, d) == OK && memops == 1);
  NEED(PointerSet(&on, 2, d) == INVALID_VALUE);

  char host[4096], back[4096];
  for (int i = 0; i < 4096; ++i) host[i] = (char)(i * 7);
  NEED(HtoD(d + 100, host, 4096) == OK && DtoD(e, d + 100, 4096) == OK && DtoH(back, e, 4096) == OK && !memcmp(host, back, 4096));
  NEED(Copy((dptr)(uintptr_t)back, d + 101, 10) == OK && !memcmp(back, host + 1, 10));
  NEED(HtoD(d + kMiB, host, 2 * kGpuPage) == INVALID_VALUE && DtoH(back, 64, 1) == INVALID_VALUE);
  NEED(MemsetD32(e, 0x01020304, 16) == OK && DtoH(back, e, 68) == OK && back[63] == 1 && back[64] == host[64]);
  NEED(MemsetD32(e + 2, 0, 1) == INVALID_VALUE);

  void* pinned;
  NEED(MemAllocHost(&pinned, 10000) == OK && PointerGet(&type, 2, (dptr)(uintptr_t)pinned + 9) == OK && type == 1);
  memset(pinned, 'p', 10000);
  NEED(HtoD(e, pinned, 10000) == OK && MemFreeHost(host) == INVALID_VALUE && MemFreeHost(pinned) == OK);
  NEED(HostRegister(host, 4096, 0) == OK && HostRegister(host, 4096, 0) == ALREADY_REGISTERED);
  NEED(HostUnregister(host) == OK && HostUnregister(host) == NOT_REGISTERED);
  NEED(MemFree(d + 1) == INVALID_VALUE && MemFree(0) == OK && MemFree(d) == OK && MemFree(d) == INVALID_VALUE && MemFree(e) == OK);
  NEED(MemGetInfo(&free_after, &total) == OK && free_after == free_before);
  NEED(CtxCreate(&ctx, 0, 0) == OK && CtxGetCurrent(&seen) == OK && seen == ctx && CtxDestroy(ctx) == OK &&
       CtxDestroy(ctx) == INVALID_CONTEXT);

  pid_t child = fork();
  if (child == 0) _exit(MemAlloc(&d, 64) == NOT_INITIALIZED && Init(0) == NOT_INITIALIZED ? 0 : 1);
  NEED(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}

/* Without --gpu nvidia, a program finds the driver of the machine, or none. */
static int none(int gid) {
  (void)gid;
  Dl_info where;
  void* real = dlopen("libcuda.so.1", RTLD_NOW);
  return real && dladdr(dlsym(real, "cuInit"), &where) && strstr(where.dli_fname, "uhca") ? 1 : 0;
}

/* ---- what it exports, and how that lives */

static int reg_errno(struct ibv_pd* pd, uint64_t offset, size_t n, uint64_t iova, int fd, int access) {
  errno = 0;
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(pd, offset, n, iova, fd, access);
  if (!mr) return errno;
  NEED(ibv_dereg_mr(mr) == 0);
  return 0;
}

static int request(struct end* e, enum ibv_wr_opcode op, uint64_t local, uint32_t n, uint32_t lkey, uint64_t remote, uint32_t rkey) {
  struct ibv_sge s = {local, n, lkey};
  post(e, op, 1, s, remote, rkey);
  return next_wc(e->scq).status;
}

static int export(int gid) {
  struct both p;
  dptr d;
  int fd = -1;
  start_cuda();
  connect_within(&p, gid);
  NEED(MemAlloc(&d, kMiB) == OK);
  NEED(GetHandle(&fd, d, kMiB, 2, 0) == INVALID_VALUE && GetHandle(&fd, d, kMiB, 1, 4) == INVALID_VALUE &&
       GetHandle(NULL, d, kMiB, 1, 0) == INVALID_VALUE);
  NEED(GetHandle(&fd, d + 1, kPage, 1, 0) == INVALID_VALUE && GetHandle(&fd, d, 100, 1, 0) == INVALID_VALUE);
  NEED(GetHandle(&fd, d, 2 * kMiB, 1, 0) == INVALID_VALUE && GetHandle(&fd, d, 0, 1, 0) == INVALID_VALUE);
  NEED(GetHandle(&fd, d, kMiB, 1, 1) == NOT_SUPPORTED); /* PCIe only: coherent GPUs know the difference */
  void* host = mmap(NULL, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(GetHandle(&fd, (dptr)(uintptr_t)host, kMiB, 1, 0) == INVALID_VALUE);

  fd = export_fd(d + kGpuPage, 4 * kGpuPage);
  int again = export_fd(d + kGpuPage, 4 * kGpuPage);
  NEED(fcntl(fd, F_GETFD) == FD_CLOEXEC && lseek(fd, 0, SEEK_END) == 4 * kGpuPage);
  errno = 0;
  NEED(mmap(NULL, kPage, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == kNotSupp);
  /* There is no peer-memory client: the pointer itself is no memory that can be pinned. */
  errno = 0;
  NEED(!ibv_reg_mr(p.a.pd, (void*)(uintptr_t)d, kMiB, kAccess) && errno == EFAULT);
  NEED(reg_errno(p.a.pd, 0, 5 * kGpuPage, 0, fd, kAccess) == EINVAL);

  struct ibv_mr* hmr = ibv_reg_mr(p.a.pd, host, kMiB, kAccess);
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(p.a.pd, 0, 4 * kGpuPage, d + kGpuPage, fd, kAccess); /* iova: the pointer, as NVSHMEM */
  struct ibv_mr* second = ibv_reg_dmabuf_mr(p.a.pd, kPage, kPage, 0, again, kAccess);
  NEED(hmr && mr && second);
  close(fd), close(again);
  NEED(MemsetD32(d, 0x11111111, kMiB / 4) == OK);
  memset(host, 0x22, kMiB);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, (uintptr_t)host, kPage, hmr->lkey, d + kGpuPage + 2 * kPage, mr->rkey) == IBV_WC_SUCCESS);
  unsigned char seen[3 * kPage];
  NEED(DtoH(seen, d + kGpuPage + kPage, sizeof seen) == OK && seen[kPage - 1] == 0x11 && seen[kPage] == 0x22 &&
       seen[2 * kPage - 1] == 0x22 && seen[2 * kPage] == 0x11);
  NEED(request(&p.a, IBV_WR_RDMA_READ, (uintptr_t)host, 64, hmr->lkey, 0, second->rkey) == IBV_WC_SUCCESS && *(unsigned char*)host == 0x11);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, d + kGpuPage, 3 * kGpuPage, mr->lkey, (uintptr_t)host, hmr->rkey) == IBV_WC_SUCCESS);

  /* Freed, it lives on behind its keys; the memory comes back with the last of them. */
  size_t before, after, total;
  NEED(MemGetInfo(&before, &total) == OK && MemFree(d) == OK && MemGetInfo(&after, &total) == OK && before == after);
  NEED(request(&p.a, IBV_WR_RDMA_READ, (uintptr_t)host, 64, hmr->lkey, d + kGpuPage + 2 * kPage, mr->rkey) == IBV_WC_SUCCESS);
  NEED(*(unsigned char*)host == 0x22);
  NEED(ibv_dereg_mr(second) == 0 && ibv_dereg_mr(mr) == 0);
  NEED(MemGetInfo(&after, &total) == OK && after == before + kMiB);
  return 0;
}

/* How NCCL, UCX and NVSHMEM find out, and then register. */
static int probes(int gid) {
  struct both p;
  dptr d;
  start_cuda();
  connect_within(&p, gid);
  NEED(reg_errno(p.a.pd, 0, kPage, 0, -1, IBV_ACCESS_LOCAL_WRITE) == EBADF); /* UCX: uct_ib_md_check_dmabuf */
  NEED(reg_errno(p.a.pd, 0, 0, 0, -1, 0) == EBADF);                          /* NCCL: ncclIbDmaBufSupport; NVSHMEM */
  void* mlx5 = dlopen("libmlx5.so.1", RTLD_NOW);
  struct ibv_mr* (*dv)(struct ibv_pd*, uint64_t, size_t, uint64_t, int, int, int) = NULL;
  if (mlx5) *(void**)&dv = dlsym(mlx5, "mlx5dv_reg_dmabuf_mr");
  NEED(MemAlloc(&d, kMiB) == OK);
  int fd = export_fd(d, kMiB);
  if (dv) { /* data direct: there is no such device, and the plain call comes next */
    NEED(!dv(p.a.pd, 0, kMiB, 0, fd, kAccess, 1) && (errno == EINVAL || errno == EOPNOTSUPP));
    struct ibv_mr* mr = dv(p.a.pd, 0, kMiB, d, fd, kAccess, 0);
    NEED(mr && ibv_dereg_mr(mr) == 0);
  }
  struct ibv_mr* nccl = ibv_reg_dmabuf_mr(
      p.a.pd, 0, kMiB, d, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
  struct ibv_mr* ucx = ibv_reg_dmabuf_mr(p.a.pd, kGpuPage, kMiB - kGpuPage, d + kGpuPage, fd, kAccess);
  NEED(nccl && ucx && nccl->addr == NULL && ucx->addr == (void*)(uintptr_t)kGpuPage && nccl->lkey == nccl->rkey);
  NEED(ibv_rereg_mr(nccl, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT);
  close(fd);
  uint64_t one = 41, old = 0;
  NEED(HtoD(d + kGpuPage, &one, 8) == OK);
  struct ibv_mr* hmr = ibv_reg_mr(p.a.pd, &old, 8, kAccess);
  struct ibv_sge s = {(uintptr_t)&old, 8, hmr->lkey};
  struct ibv_send_wr *bad, wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED};
  wr.wr.atomic.remote_addr = d + kGpuPage, wr.wr.atomic.rkey = ucx->rkey, wr.wr.atomic.compare_add = 1;
  NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0 && next_wc(p.a.scq).status == IBV_WC_SUCCESS && old == 41);
  NEED(DtoH(&one, d + kGpuPage, 8) == OK && one == 42);
  return 0;
}

/* The bus does not route: attaching refuses, with an errno that has no name. */
static int no_route(int gid) {
  struct both p;
  dptr d;
  start_cuda();
  connect_within(&p, gid);
  NEED(MemAlloc(&d, kMiB) == OK);
  NEED(reg_errno(p.a.pd, 0, kMiB, 0, export_fd(d, kMiB), kAccess) == kNotSupp);
  return 0;
}

/* BAR 1 (64 MiB of 256) is full: the registration that comes too late fails, and works when another has gone. */
static int bar1(int gid) {
  struct both p;
  dptr d;
  start_cuda();
  connect_within(&p, gid);
  NEED(MemAlloc(&d, 96 * kMiB) == OK);
  int fd = export_fd(d, 96 * kMiB);
  NEED(reg_errno(p.a.pd, 0, kMiB, 0, fd, kAccess) == ENOMEM); /* a dma-buf is mapped as a whole */
  int half = export_fd(d, 48 * kMiB), rest = export_fd(d + 48 * kMiB, 48 * kMiB);
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(p.a.pd, 0, 48 * kMiB, 0, half, kAccess);
  NEED(mr && reg_errno(p.a.pd, 0, 48 * kMiB, 0, rest, kAccess) == ENOMEM);
  NEED(ibv_dereg_mr(mr) == 0 && reg_errno(p.a.pd, 0, 48 * kMiB, 0, rest, kAccess) == 0);
  return 0;
}

/* ---- GPU memory of one program to GPU memory of another */

static void fill(dptr d, unsigned seed) {
  uint32_t* host = malloc(kMiB);
  for (uint32_t i = 0; i < kMiB / 4; ++i) host[i] = i * 2654435761u + seed;
  NEED(HtoD(d, host, kMiB) == OK);
  free(host);
}
static void check(dptr d, unsigned seed, const char* what) {
  uint32_t* host = malloc(kMiB);
  NEED(DtoH(host, d, kMiB) == OK);
  for (uint32_t i = 0; i < kMiB / 4; ++i)
    if (host[i] != i * 2654435761u + seed) FAIL("%s: word %u is %#x", what, i, host[i]);
  free(host);
}

static void gpu_to_gpu(struct end* e) {
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  void* ctx;
  pthread_mutex_lock(&once); /* "both": two ends, one process */
  if (!lib) NEED(load() && Init(0) == OK);
  pthread_mutex_unlock(&once);
  NEED(PrimaryRetain(&ctx, 0) == OK && CtxSetCurrent(ctx) == OK);
  open_end(e);
  dptr d;
  NEED(MemAlloc(&d, 2 * kMiB) == OK);
  int fd = export_fd(d, 2 * kMiB);
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(e->pd, 0, 2 * kMiB, d, fd, kAccess);
  NEED(mr);
  close(fd);
  e->me.va = d;
  e->me.rkey = mr->rkey;
  fill(d, e->a ? 1 : 2);
  NEED(MemsetD32(d + kMiB, 0, kMiB / 4) == OK);
  if (!e->a) {
    /* There before the peer knows. */
    join(e, &kTuning);
    post_receive(e, 9, (struct ibv_sge){d, kMiB, mr->lkey});
    meet(e);
  } else {
    join(e, &kTuning);
    meet(e);
    post(e, IBV_WR_RDMA_WRITE, 1, (struct ibv_sge){d, kMiB, mr->lkey}, e->peer.va + kMiB, e->peer.rkey);
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
    post(e, IBV_WR_RDMA_READ, 2, (struct ibv_sge){d + kMiB, kMiB, mr->lkey}, e->peer.va, e->peer.rkey);
    want(e->scq, 2, IBV_WC_SUCCESS, -1);
    check(d + kMiB, 2, "READ of the peer's GPU");
  }
  meet(e);
  if (!e->a) check(d + kMiB, 1, "what the peer wrote");
  meet(e);
  if (e->a) {
    post(e, IBV_WR_SEND, 3, (struct ibv_sge){d, kMiB, mr->lkey}, 0, 0);
    want(e->scq, 3, IBV_WC_SUCCESS, -1);
  } else {
    want(e->rcq, 9, IBV_WC_SUCCESS, -1);
    check(d, 1, "what the peer sent");
  }
  part(e);
  NEED(ibv_dereg_mr(mr) == 0 && MemFree(d) == OK);
  close_end(e);
  if (e->a) puts("GPU to GPU: WRITE, READ and SEND of 1 MiB each");
}

int main(int argc, char** argv) {
  const struct {
    const char* name;
    int (*run)(int);
  } kCases[] = {{"api", api}, {"export", export}, {"probes", probes}, {"no_route", no_route}, {"bar1", bar1}, {"none", none}};
  for (size_t i = 0; argc == 3 && i < sizeof kCases / sizeof kCases[0]; ++i)
    if (!strcmp(argv[1], kCases[i].name)) return kCases[i].run(atoi(argv[2]));
  return run_ends(argc, argv, gpu_to_gpu);
}

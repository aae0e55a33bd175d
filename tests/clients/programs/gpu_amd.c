/* SPDX-License-Identifier: MIT
 *
 * GPU memory as AMD's stack gives it to programs: /dev/kfd and a DRM render node by their own ioctls, dma-bufs, MRs on them.
 * gpu_amd NAME GID_INDEX [SECONDS], or gpu_amd server PORT GID | client HOST PORT GID: the storm between two programs, of the environment's
 * STORM seconds. Status 0: everything was as with a real card.
 */
#include <drm/amdgpu_drm.h>
#include <drm/drm.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/kfd_ioctl.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "ends.h"

enum { kPage = 4096, kMiB = 1 << 20, kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* Newer than Linux 6.1's header. */
struct export_dmabuf {
  uint64_t handle;
  uint32_t flags, dmabuf_fd;
};
#define EXPORT_DMABUF _IOWR(AMDKFD_IOCTL_BASE, 0x24, struct export_dmabuf)

static int call(int fd, unsigned long request, void* arg) {
  return ioctl(fd, request, arg) == 0 ? 0 : errno;
}

/* ---- the card */

struct card {
  int kfd, drm;
  uint32_t gpu_id;
};

static struct card open_card(void) {
  struct card c = {open("/dev/kfd", O_RDWR | O_CLOEXEC), open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC), 0};
  NEED(c.kfd >= 0 && c.drm >= 0);
  struct kfd_process_device_apertures nodes[4];
  struct kfd_ioctl_get_process_apertures_new_args a = {.kfd_process_device_apertures_ptr = (uintptr_t)nodes, .num_of_nodes = 4};
  NEED(call(c.kfd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &a) == 0 && a.num_of_nodes == 1);
  c.gpu_id = nodes[0].gpu_id;
  return c;
}
static void acquire(struct card* c) {
  struct kfd_ioctl_acquire_vm_args a = {.drm_fd = (uint32_t)c->drm, .gpu_id = c->gpu_id};
  NEED(call(c->kfd, AMDKFD_IOC_ACQUIRE_VM, &a) == 0);
}

static int kfd_alloc(struct card* c, uint64_t va, uint64_t size, uint32_t flags, uint64_t* handle, uint64_t* offset) {
  struct kfd_ioctl_alloc_memory_of_gpu_args a = {.va_addr = va, .size = size, .gpu_id = c->gpu_id, .flags = flags};
  int e = call(c->kfd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &a);
  *handle = a.handle;
  if (offset) *offset = a.mmap_offset;
  return e;
}
static int kfd_free(struct card* c, uint64_t handle) {
  struct kfd_ioctl_free_memory_of_gpu_args a = {.handle = handle};
  return call(c->kfd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &a);
}
static int kfd_map(struct card* c, uint64_t handle, int map) {
  struct kfd_ioctl_map_memory_to_gpu_args a = {.handle = handle, .device_ids_array_ptr = (uintptr_t)&c->gpu_id, .n_devices = 1};
  return call(c->kfd, map ? AMDKFD_IOC_MAP_MEMORY_TO_GPU : AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, &a);
}
static int kfd_export(struct card* c, uint64_t handle, int* fd) {
  struct export_dmabuf a = {.handle = handle, .flags = O_CLOEXEC};
  int e = call(c->kfd, EXPORT_DMABUF, &a);
  *fd = (int)a.dmabuf_fd;
  return e;
}

struct gem {
  uint32_t handle;
  int fd;
  char* cpu;
  uint64_t size;
};

static struct gem gem(struct card* c, uint64_t size, uint64_t domains) {
  struct gem g = {.size = size};
  union drm_amdgpu_gem_create create = {.in = {size, kPage, domains, 0}};
  NEED(call(c->drm, DRM_IOCTL_AMDGPU_GEM_CREATE, &create) == 0);
  g.handle = create.out.handle;
  struct drm_prime_handle prime = {.handle = g.handle, .flags = DRM_CLOEXEC | DRM_RDWR};
  NEED(call(c->drm, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) == 0);
  g.fd = prime.fd;
  union drm_amdgpu_gem_mmap where = {.in = {.handle = g.handle}};
  NEED(call(c->drm, DRM_IOCTL_AMDGPU_GEM_MMAP, &where) == 0);
  g.cpu = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, c->drm, (off_t)where.out.addr_ptr);
  NEED(g.cpu != MAP_FAILED);
  return g;
}
static int gem_close(struct card* c, uint32_t handle) {
  struct drm_gem_close a = {.handle = handle};
  return call(c->drm, DRM_IOCTL_GEM_CLOSE, &a);
}
static uint64_t vram_usage(struct card* c) {
  uint64_t n = ~0ull;
  struct drm_amdgpu_info a = {.return_pointer = (uintptr_t)&n, .return_size = sizeof n, .query = AMDGPU_INFO_VRAM_USAGE};
  NEED(call(c->drm, DRM_IOCTL_AMDGPU_INFO, &a) == 0);
  return n;
}
/* Reading by the CPU brings the buffer to GTT, unless it is pinned. */
static void cpu_reads(int fd) {
  struct dma_buf_sync start = {DMA_BUF_SYNC_READ | DMA_BUF_SYNC_START}, end = {DMA_BUF_SYNC_READ | DMA_BUF_SYNC_END};
  NEED(call(fd, DMA_BUF_IOCTL_SYNC, &start) == 0 && call(fd, DMA_BUF_IOCTL_SYNC, &end) == 0);
}

/* ---- RDMA: one process, pairs of QPs of it */

struct pair {
  struct end a, b;
};
static void connect_pair(struct pair* p, const struct end* opened) {
  p->a = p->b = *opened;
  make_qp(&p->a, &kTuning);
  make_qp(&p->b, &kTuning);
  p->a.peer = p->b.me;
  p->b.peer = p->a.me;
  NEED(to_rts(&p->a, &kTuning) == 0 && to_rts(&p->b, &kTuning) == 0);
}
static int request(struct end* e, enum ibv_wr_opcode op, const void* local, uint32_t n, const struct ibv_mr* mr, uint64_t remote,
                   uint32_t rkey) {
  post(e, op, 1, sge_of(local, n, mr), remote, rkey);
  return next_wc(e->scq).status;
}

/* ---- cases */

/* What kfdtest's ExportDMABufTest holds KFD to, and the errnos. */
static int exports(int gid, double unused) {
  (void)gid, (void)unused;
  struct card c = open_card();
  uint64_t handle, offset, other;
  int fd, again;
  NEED(kfd_alloc(&c, 0x10000000, kMiB, KFD_IOC_ALLOC_MEM_FLAGS_VRAM, &handle, NULL) == EINVAL); /* no VM yet */
  struct kfd_ioctl_acquire_vm_args wrong = {.drm_fd = (uint32_t)c.kfd, .gpu_id = c.gpu_id};
  NEED(call(c.kfd, AMDKFD_IOC_ACQUIRE_VM, &wrong) == EINVAL);
  acquire(&c);
  acquire(&c);
  NEED(kfd_alloc(&c, 0x10000000, 0, KFD_IOC_ALLOC_MEM_FLAGS_VRAM, &handle, NULL) == EINVAL);
  NEED(kfd_alloc(&c, 0x10000000, kMiB, 0, &handle, NULL) == EINVAL);
  NEED(kfd_export(&c, 77, &fd) == EINVAL);
  const uint64_t before = vram_usage(&c);
  const uint32_t kinds[] = {KFD_IOC_ALLOC_MEM_FLAGS_VRAM, KFD_IOC_ALLOC_MEM_FLAGS_GTT};
  for (int k = 0; k < 2; ++k) {
    const uint32_t flags = kinds[k] | KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | (k == 0 ? KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC : 0);
    NEED(kfd_alloc(&c, 0x10000000, kMiB, flags, &handle, &offset) == 0);
    NEED(kfd_map(&c, handle, 1) == 0 && kfd_map(&c, handle, 1) == 0);
    uint32_t* cpu = mmap(NULL, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, c.drm, (off_t)offset);
    NEED(cpu != MAP_FAILED);
    NEED(mmap(NULL, 2 * kMiB, PROT_READ, MAP_SHARED, c.drm, (off_t)offset) == MAP_FAILED && errno == EINVAL);
    for (uint32_t i = 0; i < kMiB / 4; ++i) cpu[i] = i * 3;
    NEED(kfd_export(&c, handle, &fd) == 0 && kfd_export(&c, handle, &again) == 0 && fd != again);
    NEED(fcntl(fd, F_GETFD) == FD_CLOEXEC && lseek(fd, 0, SEEK_END) == kMiB);
    struct kfd_ioctl_get_dmabuf_info_args info = {.dmabuf_fd = (uint32_t)fd};
    NEED(call(c.kfd, AMDKFD_IOC_GET_DMABUF_INFO, &info) == 0 && info.size == kMiB && (info.flags & kinds[k]) && info.gpu_id == c.gpu_id);
    info.dmabuf_fd = (uint32_t)c.drm;
    NEED(call(c.kfd, AMDKFD_IOC_GET_DMABUF_INFO, &info) == EINVAL);
    NEED(kfd_free(&c, handle) == EBUSY);
    NEED(kfd_map(&c, handle, 0) == 0 && munmap(cpu, kMiB) == 0 && kfd_free(&c, handle) == 0 && kfd_free(&c, handle) == EINVAL);
    close(again);
    /* The memory is freed; its buffer lives by the descriptor, and comes back with what was in it. */
    if (k == 0) NEED(vram_usage(&c) == before + kMiB);
    struct kfd_ioctl_import_dmabuf_args import = {.va_addr = 0x20000000, .gpu_id = c.gpu_id, .dmabuf_fd = (uint32_t)fd};
    NEED(call(c.kfd, AMDKFD_IOC_IMPORT_DMABUF, &import) == 0);
    other = import.handle;
    NEED(kfd_map(&c, other, 1) == 0);
    uint32_t* seen = mmap(NULL, kMiB, PROT_READ, MAP_SHARED, fd, 0);
    NEED(seen != MAP_FAILED);
    for (uint32_t i = 0; i < kMiB / 4; ++i) NEED(seen[i] == i * 3);
    munmap(seen, kMiB);
    close(fd);
    NEED(kfd_map(&c, other, 0) == 0 && kfd_free(&c, other) == 0);
    NEED(vram_usage(&c) == before);
  }
  /* Memory of the program, and queues, which there are none. */
  void* page = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct kfd_ioctl_alloc_memory_of_gpu_args u = {.va_addr = (uintptr_t)page,
                                                 .size = kPage,
                                                 .mmap_offset = (uintptr_t)page,
                                                 .gpu_id = c.gpu_id,
                                                 .flags = KFD_IOC_ALLOC_MEM_FLAGS_USERPTR};
  NEED(call(c.kfd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &u) == 0);
  NEED(kfd_export(&c, u.handle, &fd) == EPERM);
  NEED(kfd_free(&c, u.handle) == 0);
  struct kfd_ioctl_create_queue_args q = {.gpu_id = c.gpu_id, .queue_type = KFD_IOC_QUEUE_TYPE_COMPUTE_AQL};
  NEED(call(c.kfd, AMDKFD_IOC_CREATE_QUEUE, &q) == EOPNOTSUPP);
  return 0;
}

/* Descriptor, handle, mapping and file go, in turn; the MR stays and reaches the memory. Then the MR goes, and with it the memory. */
static int lifetimes(int gid, double unused) {
  (void)unused;
  struct card c = open_card();
  struct end e = {.gid_index = gid};
  struct pair p;
  open_end(&e);
  connect_pair(&p, &e);
  char* host = calloc(1, kMiB);
  struct ibv_mr* hmr = ibv_reg_mr(e.pd, host, kMiB, kAccess);
  NEED(hmr);
  const uint64_t before = vram_usage(&c);
  struct gem g = gem(&c, kMiB, AMDGPU_GEM_DOMAIN_VRAM);
  memset(g.cpu, 'g', kMiB);
  NEED(ibv_reg_dmabuf_mr(e.pd, kMiB - kPage, 2 * kPage, 0, g.fd, kAccess) == NULL && errno == EINVAL);
  struct ibv_mr *mr = ibv_reg_dmabuf_mr(e.pd, 0, kMiB, 0x70000000, g.fd, kAccess),
                *second = ibv_reg_dmabuf_mr(e.pd, kPage, kPage, 0, g.fd, kAccess);
  NEED(mr && second && mr->lkey == mr->rkey);
  NEED(close(g.fd) == 0);
  NEED(request(&p.a, IBV_WR_RDMA_READ, host, kMiB, hmr, 0x70000000, mr->rkey) == IBV_WC_SUCCESS && host[kMiB - 1] == 'g');
  NEED(gem_close(&c, g.handle) == 0 && gem_close(&c, g.handle) == EINVAL);
  memset(host, 'n', kMiB);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, host, kMiB, hmr, 0x70000000, mr->rkey) == IBV_WC_SUCCESS);
  NEED(g.cpu[0] == 'n' && g.cpu[kMiB - 1] == 'n');
  NEED(munmap(g.cpu, kMiB) == 0);
  NEED(request(&p.a, IBV_WR_RDMA_READ, host, 64, hmr, 0, second->rkey) == IBV_WC_SUCCESS && host[0] == 'n');
  NEED(ibv_dereg_mr(second) == 0);
  NEED(vram_usage(&c) == before + kMiB);
  NEED(ibv_dereg_mr(mr) == 0);
  NEED(vram_usage(&c) == before);
  NEED(request(&p.a, IBV_WR_RDMA_READ, host, 64, hmr, 0x70000000, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
  return 0;
}

/* A buffer moves under its MR and under the mapping of the CPU, by way of every cause that there is. */
static int moves(int gid, double unused) {
  (void)unused;
  struct card c = open_card();
  struct end e = {.gid_index = gid};
  struct pair p;
  open_end(&e);
  connect_pair(&p, &e);
  char* host = calloc(1, kMiB);
  struct ibv_mr* hmr = ibv_reg_mr(e.pd, host, kMiB, kAccess);
  struct gem g = gem(&c, kMiB, AMDGPU_GEM_DOMAIN_VRAM);
  const uint64_t with = vram_usage(&c);
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(e.pd, 0, kMiB, 0, g.fd, kAccess);
  NEED(hmr && mr);
  for (int i = 0; i < 30; ++i) {
    memset(host, i, kMiB);
    NEED(request(&p.a, IBV_WR_RDMA_WRITE, host, kMiB, hmr, 0, mr->rkey) == IBV_WC_SUCCESS);
    NEED(vram_usage(&c) == with); /* the NIC had it brought back */
    cpu_reads(g.fd);
    NEED(vram_usage(&c) == with - kMiB);
    NEED(g.cpu[0] == i && g.cpu[kMiB - 1] == i);
    memset(g.cpu, i + 100, kMiB);
    NEED(request(&p.a, IBV_WR_RDMA_READ, host, kMiB, hmr, 0, mr->rkey) == IBV_WC_SUCCESS);
    NEED((uint8_t)host[0] == i + 100 && (uint8_t)host[kMiB - 1] == i + 100);
  }
  /* Pressure: others take all of VRAM. */
  struct drm_amdgpu_info_vram_gtt total;
  struct drm_amdgpu_info ask = {.return_pointer = (uintptr_t)&total, .return_size = sizeof total, .query = AMDGPU_INFO_VRAM_GTT};
  NEED(call(c.drm, DRM_IOCTL_AMDGPU_INFO, &ask) == 0);
  union drm_amdgpu_gem_create all = {.in = {total.vram_size, kPage, AMDGPU_GEM_DOMAIN_VRAM, 0}};
  NEED(call(c.drm, DRM_IOCTL_AMDGPU_GEM_CREATE, &all) == 0);
  NEED(vram_usage(&c) == total.vram_size);
  NEED((uint8_t)g.cpu[5] == 129);
  g.cpu[5] = 7;
  NEED(request(&p.a, IBV_WR_RDMA_READ, host, kPage, hmr, 0, mr->rkey) == IBV_WC_SUCCESS && host[5] == 7 && (uint8_t)host[6] == 129);
  NEED(vram_usage(&c) == total.vram_size); /* nothing makes room for it */
  NEED(gem_close(&c, all.out.handle) == 0);
  /* There is room again. What is mapped stays where it is; who maps anew has it brought back. */
  NEED(request(&p.a, IBV_WR_RDMA_READ, host, kPage, hmr, 0, mr->rkey) == IBV_WC_SUCCESS && host[5] == 7);
  NEED(vram_usage(&c) == 0);
  NEED(ibv_dereg_mr(mr) == 0);
  NEED(mr = ibv_reg_dmabuf_mr(p.a.pd, 0, kMiB, 0, g.fd, kAccess));
  NEED(vram_usage(&c) == kMiB);
  NEED(request(&p.a, IBV_WR_RDMA_READ, host, kPage, hmr, 0, mr->rkey) == IBV_WC_SUCCESS && host[5] == 7);
  NEED(ibv_dereg_mr(mr) == 0);
  return 0;
}

/* ---- a thread moves buffers while QPs use them */

enum { kQps = 8, kSlice = 128 * 1024 };
struct storm {
  struct card card;
  struct gem gems[2];
  struct ibv_mr *mrs[2], *hmr;
  struct end opened;
  char* host;
  double until;
  atomic_ulong moved, done;
};
struct worker {
  struct storm* s;
  int index;
};

static void* mover(void* arg) {
  struct storm* s = arg;
  for (unsigned i = 0; seconds() < s->until; ++i) {
    cpu_reads(s->gems[i % 2].fd);
    /* The CPU's mapping is read in the middle of it. */
    NEED(((volatile char*)s->gems[i % 2].cpu)[(i * 4099) % (kQps * kSlice)] >= 0);
    atomic_fetch_add(&s->moved, 1);
  }
  return NULL;
}

/* Rounds of WRITE and READ by one QP, on its slice of either buffer. */
static void rounds(struct storm* s, struct end* e, int index, const uint32_t rkeys[2]) {
  char *out = s->host + 2 * index * kSlice, *in = out + kSlice;
  for (unsigned i = 0; seconds() < s->until; ++i) {
    for (uint32_t k = 0; k < kSlice / 4; ++k) ((uint32_t*)out)[k] = (i * 2654435761u + k * 40503u + (uint32_t)index) & 0x7f7f7f7f;
    const uint64_t at = (uint64_t)index * kSlice;
    int status = request(e, IBV_WR_RDMA_WRITE, out, kSlice, s->hmr, at, rkeys[i % 2]);
    if (status != IBV_WC_SUCCESS) FAIL("round %u: WRITE: %s", i, ibv_wc_status_str((enum ibv_wc_status)status));
    memset(in, 0x55, kSlice);
    status = request(e, IBV_WR_RDMA_READ, in, kSlice, s->hmr, at, rkeys[i % 2]);
    if (status != IBV_WC_SUCCESS) FAIL("round %u: READ: %s", i, ibv_wc_status_str((enum ibv_wc_status)status));
    if (memcmp(out, in, kSlice)) FAIL("round %u of QP %d: bytes differ", i, index);
    atomic_fetch_add(&s->done, 1);
  }
}

static void* worker(void* arg) {
  struct worker* w = arg;
  struct pair p;
  connect_pair(&p, &w->s->opened);
  const uint32_t rkeys[2] = {w->s->mrs[0]->rkey, w->s->mrs[1]->rkey};
  rounds(w->s, &p.a, w->index, rkeys);
  return NULL;
}

static void make_buffers(struct storm* s, struct ibv_pd* pd) {
  s->card = open_card();
  for (int i = 0; i < 2; ++i) {
    s->gems[i] = gem(&s->card, kQps * kSlice, AMDGPU_GEM_DOMAIN_VRAM);
    NEED(s->mrs[i] = ibv_reg_dmabuf_mr(pd, 0, kQps * kSlice, 0, s->gems[i].fd, kAccess));
  }
}
static void make_host_memory(struct storm* s, struct ibv_pd* pd) {
  s->host = aligned_alloc(kPage, 2 * kQps * kSlice);
  memset(s->host, 0, 2 * kQps * kSlice);
  NEED(s->hmr = ibv_reg_mr(pd, s->host, 2 * kQps * kSlice, kAccess));
}

/* The buffers are in one program's GPU, the QPs that use them in another. */
struct far_worker {
  struct storm* s;
  struct end* e;
  int index;
};
static void* far_worker(void* arg) {
  struct far_worker* w = arg;
  const uint32_t rkeys[2] = {w->e->peer.rkey, w->e->peer.spare};
  rounds(w->s, w->e, w->index, rkeys);
  return NULL;
}
static void far_storm(struct end* e) {
  static struct storm s;
  static struct end ends[kQps];
  const char* time = getenv("STORM");
  open_end(e);
  if (e->a)
    make_host_memory(&s, e->pd);
  else
    make_buffers(&s, e->pd);
  for (int i = 0; i < kQps; ++i) {
    ends[i] = *e;
    if (!e->a) ends[i].me.rkey = s.mrs[0]->rkey, ends[i].me.spare = s.mrs[1]->rkey;
    join(&ends[i], &kTuning);
  }
  meet(e);
  s.until = seconds() + (time ? atof(time) : 2);
  if (e->a) {
    pthread_t threads[kQps];
    struct far_worker workers[kQps];
    for (int i = 0; i < kQps; ++i) {
      workers[i] = (struct far_worker){&s, &ends[i], i};
      NEED(pthread_create(&threads[i], NULL, far_worker, &workers[i]) == 0);
    }
    for (int i = 0; i < kQps; ++i) pthread_join(threads[i], NULL);
    printf("%lu rounds over %d QPs\n", s.done, kQps);
    NEED(s.done >= kQps);
  } else {
    mover(&s);
    printf("buffers moved %lu times\n", s.moved);
    NEED(s.moved > 0);
  }
  meet(e);
}

static int storm(int gid, double time) {
  static struct storm s;
  s.opened.gid_index = gid;
  open_end(&s.opened);
  make_host_memory(&s, s.opened.pd);
  make_buffers(&s, s.opened.pd);
  s.until = seconds() + time;
  pthread_t threads[kQps + 1];
  struct worker workers[kQps];
  for (int i = 0; i < kQps; ++i) {
    workers[i] = (struct worker){&s, i};
    NEED(pthread_create(&threads[i], NULL, worker, &workers[i]) == 0);
  }
  NEED(pthread_create(&threads[kQps], NULL, mover, &s) == 0);
  for (int i = 0; i <= kQps; ++i) pthread_join(threads[i], NULL);
  printf("%lu rounds over %d QPs while buffers moved %lu times\n", s.done, kQps, s.moved);
  NEED(s.done >= kQps && s.moved > 0);
  return 0;
}

int main(int argc, char** argv) {
  const struct {
    const char* name;
    int (*run)(int, double);
  } kCases[] = {{"exports", exports}, {"lifetimes", lifetimes}, {"moves", moves}, {"storm", storm}};
  for (size_t i = 0; argc >= 3 && i < sizeof kCases / sizeof kCases[0]; ++i)
    if (!strcmp(argv[1], kCases[i].name)) return kCases[i].run(atoi(argv[2]), argc > 3 ? atof(argv[3]) : 2);
  return run_ends(argc, argv, far_storm);
}

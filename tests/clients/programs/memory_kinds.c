/* SPDX-License-Identifier: MIT
 *
 * Memory regions that are no pinned memory, through verbs alone: device memory, and memory on demand whose mappings come and go.
 * memory_kinds NAME GID_INDEX; ends with status 0 when everything was as on a real device.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "ends.h"

enum { kPage = 4096 };

static int request(struct end* e, enum ibv_wr_opcode op, uint64_t addr, uint32_t length, uint32_t lkey, uint64_t remote, uint32_t rkey) {
  struct ibv_sge sge = {addr, length, lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED}, *bad;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  NEED(ibv_post_send(e->qp, &wr, &bad) == 0);
  return next_wc(e->scq).status;
}

static uint64_t max_dm(struct ibv_context* ctx) {
  struct ibv_device_attr_ex attr;
  NEED(ibv_query_device_ex(ctx, NULL, &attr) == 0);
  return attr.max_dm_size;
}

static struct ibv_dm* alloc_dm(struct ibv_context* ctx, size_t length, uint32_t log_align) {
  struct ibv_alloc_dm_attr attr = {.length = length, .log_align_req = log_align};
  return ibv_alloc_dm(ctx, &attr);
}

static int device_memory(int gid) {
  struct both p;
  connect_within(&p, gid);
  struct ibv_context* ctx = p.a.ctx;
  uint64_t most = max_dm(ctx);
  NEED(most >= 65536);

  errno = 0;
  NEED(!alloc_dm(ctx, 0, 0) && errno == EINVAL);
  NEED(!alloc_dm(ctx, most + 1, 0) && errno == EINVAL);
  NEED(!alloc_dm(ctx, 64, 13) && errno == EINVAL);
  struct ibv_dm* dm = alloc_dm(ctx, 1000, 12);
  NEED(dm);
  char data[1000], back[1000];
  for (int i = 0; i < 1000; ++i) data[i] = (char)(i * 13);
  NEED(ibv_memcpy_to_dm(dm, 0, data, 1000) == 0);
  NEED(ibv_memcpy_from_dm(back, dm, 0, 1000) == 0 && !memcmp(data, back, 1000));
  NEED(ibv_memcpy_to_dm(dm, 2, data, 4) == EINVAL && ibv_memcpy_to_dm(dm, 0, data, 6) == EINVAL);
  NEED(ibv_memcpy_to_dm(dm, 1000, data, 4) == EFAULT && ibv_memcpy_from_dm(back, dm, 996, 8) == EFAULT);

  const unsigned access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  errno = 0;
  NEED(!ibv_reg_dm_mr(p.a.pd, dm, 0, 1000, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
  NEED(!ibv_reg_dm_mr(p.a.pd, dm, 8, 1000, access) && errno == EINVAL);
  NEED(!ibv_reg_dm_mr(p.a.pd, dm, 1004, 0, access) && errno == EINVAL);
  NEED(!ibv_reg_dm_mr(p.a.pd, dm, 0, 1000, access | IBV_ACCESS_MW_BIND) && errno == EINVAL);
  NEED(!ibv_reg_dm_mr(p.a.pd, dm, 0, 1000, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
  struct ibv_mr* mr = ibv_reg_dm_mr(p.a.pd, dm, 200, 800, access);
  NEED(mr && mr->addr == NULL && mr->length == 800);
  NEED(ibv_free_dm(dm) == EBUSY);

  /* Address 0 of the MR is byte 200 of the memory. */
  static char host[4096];
  struct ibv_mr* hmr = ibv_reg_mr(p.a.pd, host, sizeof host, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  NEED(hmr);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, 0, 800, mr->lkey, (uintptr_t)host, hmr->rkey) == IBV_WC_SUCCESS);
  NEED(!memcmp(host, data + 200, 800));
  memset(host, 0x5a, 100);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, (uintptr_t)host, 100, hmr->lkey, 700, mr->rkey) == IBV_WC_SUCCESS);
  NEED(ibv_memcpy_from_dm(back, dm, 0, 1000) == 0 && !memcmp(back, data, 900) && !memcmp(back + 900, host, 100));
  NEED(request(&p.a, IBV_WR_RDMA_READ, (uintptr_t)host + 2048, 64, hmr->lkey, 0, mr->rkey) == IBV_WC_SUCCESS);
  NEED(!memcmp(host + 2048, data + 200, 64));
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, (uintptr_t)host, 101, hmr->lkey, 700, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
  NEED(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0);

  /* All of it, page by page; when one is given back, there is room for one. */
  struct ibv_dm* all[1024];
  int n = 0;
  while (n < 1024 && (all[n] = alloc_dm(ctx, 4, 0)) != NULL) ++n;
  NEED(n > 1 && n < 1024 && errno == ENOMEM);
  NEED(ibv_free_dm(all[n / 2]) == 0);
  NEED(all[n / 2] = alloc_dm(ctx, 4096, 12));
  NEED(!alloc_dm(ctx, 4, 0) && errno == ENOMEM);
  for (int i = 0; i < n; ++i) NEED(ibv_free_dm(all[i]) == 0);
  /* Left behind: closing the device frees it. */
  NEED(dm = alloc_dm(ctx, most, 0));
  NEED(ibv_reg_dm_mr(p.a.pd, dm, 0, most, access));
  return 0;
}

static char* map_at(char* at, int prot) {
  void* p = mmap(at, kPage, prot, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
  NEED(p != MAP_FAILED);
  return p;
}

static int prefetch(struct ibv_pd* pd, struct ibv_mr* mr, enum ibv_advise_mr_advice advice, void* at, uint32_t length) {
  struct ibv_sge sge = {(uintptr_t)at, length, mr->lkey};
  return ibv_advise_mr(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
}

/* The memory behind the MR goes and comes back while the MR stays. */
static void follow_mappings(struct both* p, struct ibv_mr* mr, struct ibv_mr* hmr, char* host, char* page) {
  memset(host, 'x', kPage);
  memset(page, 'y', kPage);
  NEED(request(&p->a, IBV_WR_RDMA_WRITE, (uintptr_t)host, 100, hmr->lkey, (uintptr_t)page, mr->rkey) == IBV_WC_SUCCESS);
  NEED(page[99] == 'x' && page[100] == 'y');
  /* Other memory in its place: the device uses that. */
  map_at(page, PROT_READ | PROT_WRITE);
  NEED(page[0] == 0);
  NEED(request(&p->a, IBV_WR_RDMA_WRITE, (uintptr_t)host, 200, hmr->lkey, (uintptr_t)page, mr->rkey) == IBV_WC_SUCCESS);
  NEED(page[199] == 'x' && page[200] == 0);
  NEED(madvise(page, kPage, MADV_DONTNEED) == 0);
  NEED(request(&p->a, IBV_WR_RDMA_READ, (uintptr_t)host, 300, hmr->lkey, (uintptr_t)page, mr->rkey) == IBV_WC_SUCCESS);
  NEED(host[0] == 0 && host[299] == 0 && host[300] == 'x');
}

static int on_demand(int gid) {
  struct both p;
  connect_within(&p, gid);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND;
  char *host = map_at(NULL, PROT_READ | PROT_WRITE), *page = map_at(NULL, PROT_READ | PROT_WRITE);
  struct ibv_mr* hmr = ibv_reg_mr(p.a.pd, host, kPage, IBV_ACCESS_LOCAL_WRITE);
  NEED(hmr);
  /* Nothing can be used there yet (and nobody else may map something there): registering does not mind, access does. */
  map_at(page, PROT_NONE);
  struct ibv_mr* mr = ibv_reg_mr(p.a.pd, page, kPage, access);
  NEED(mr);
  NEED(prefetch(p.a.pd, mr, IBV_ADVISE_MR_ADVICE_PREFETCH, page, 64) == EFAULT);
  NEED(prefetch(p.a.pd, mr, (enum ibv_advise_mr_advice)IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, page, 64) == 0);
  map_at(page, PROT_READ | PROT_WRITE);
  NEED(prefetch(p.a.pd, mr, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, page, 64) == 0);
  NEED(prefetch(p.a.pd, mr, IBV_ADVISE_MR_ADVICE_PREFETCH, page, kPage + 1) == EFAULT);
  NEED(prefetch(p.a.pd, mr, IBV_ADVISE_MR_ADVICE_PREFETCH, page - 1, 1) == EFAULT);
  NEED(prefetch(p.a.pd, mr, (enum ibv_advise_mr_advice)17, page, 1) == EOPNOTSUPP);
  NEED(prefetch(p.a.pd, hmr, IBV_ADVISE_MR_ADVICE_PREFETCH, host, 64) == ENOENT);
  struct ibv_pd* other = ibv_alloc_pd(p.a.ctx);
  NEED(other && prefetch(other, mr, IBV_ADVISE_MR_ADVICE_PREFETCH, page, 64) == EPERM);
  struct ibv_mr* reader = ibv_reg_mr(p.a.pd, page, kPage, IBV_ACCESS_ON_DEMAND);
  NEED(reader && prefetch(p.a.pd, reader, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, page, 64) == EPERM);
  follow_mappings(&p, mr, hmr, host, page);

  /* The whole address space. */
  errno = 0;
  NEED(!ibv_reg_mr(p.a.pd, page, SIZE_MAX, access) && errno == EINVAL);
  struct ibv_mr* everything = ibv_reg_mr(p.a.pd, NULL, SIZE_MAX, access);
  NEED(everything);
  follow_mappings(&p, everything, hmr, host, page);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, (uintptr_t)page, 64, everything->lkey, (uintptr_t)host, everything->rkey) == IBV_WC_SUCCESS);

  /* Memory that may not be written, and memory that is not there: the access fails, and so does the QP. */
  map_at(page, PROT_READ);
  NEED(request(&p.a, IBV_WR_RDMA_READ, (uintptr_t)host, 64, hmr->lkey, (uintptr_t)page, mr->rkey) == IBV_WC_SUCCESS);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, (uintptr_t)host, 64, hmr->lkey, (uintptr_t)page, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
  return 0;
}

static int on_demand_hole(int gid) {
  struct both p;
  connect_within(&p, gid);
  char *host = map_at(NULL, PROT_READ | PROT_WRITE), *page = map_at(NULL, PROT_READ | PROT_WRITE);
  struct ibv_mr* hmr = ibv_reg_mr(p.a.pd, host, kPage, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_mr* mr = ibv_reg_mr(p.a.pd, page, kPage, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  NEED(hmr && mr);
  map_at(page, PROT_NONE);
  NEED(request(&p.a, IBV_WR_SEND, (uintptr_t)page, 64, mr->lkey, 0, 0) == IBV_WC_LOC_PROT_ERR);
  return 0;
}

static int dmabuf_errno(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  errno = 0;
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
  if (!mr) return errno;
  NEED(ibv_dereg_mr(mr) == 0);
  return 0;
}

/* What programs find out with descriptors that are none (case D5); device memory as a dma-buf, where the library exports it. */
static int dma_buf(int gid) {
  struct both p;
  connect_within(&p, gid);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  int memfd = memfd_create("memory", 0);
  NEED(memfd >= 0 && ftruncate(memfd, kPage) == 0);
  NEED(dmabuf_errno(p.a.pd, 0, 0, 0, -1, 0) == EBADF);
  NEED(dmabuf_errno(p.a.pd, 0, kPage, 0, 987654, access) == EBADF);
  NEED(dmabuf_errno(p.a.pd, 0, kPage, 0, memfd, access) == EINVAL);
  NEED(dmabuf_errno(p.a.pd, 0, kPage, 0, p.a.ctx->cmd_fd, access) == EINVAL);
  NEED(dmabuf_errno(p.a.pd, 0, kPage, 1, -1, access) == EINVAL);
  NEED(dmabuf_errno(p.a.pd, ~0ull << 12, 1 << 20, 0, -1, access) == EINVAL);
  NEED(dmabuf_errno(p.a.pd, 0, kPage, 0, -1, access | IBV_ACCESS_ON_DEMAND) == EINVAL);
  NEED(dmabuf_errno(p.a.pd, 0, kPage, 0, -1, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  NEED(dmabuf_errno(p.a.pd, 0, kPage, 0, -1, access | IBV_ACCESS_RELAXED_ORDERING) == EBADF);

  int (*export)(struct ibv_dm*) = (int (*)(struct ibv_dm*))dlsym(RTLD_DEFAULT, "ibv_dm_export_dmabuf_fd");
  if (!export) return 0;
  struct ibv_dm *dm = alloc_dm(p.a.ctx, 2 * kPage, 12), *gone = alloc_dm(p.a.ctx, 64, 12);
  NEED(dm && gone);
  char data[256], host[256];
  for (int i = 0; i < 256; ++i) data[i] = (char)(i * 5);
  NEED(ibv_memcpy_to_dm(dm, kPage, data, 256) == 0);
  int fd = export(dm), again = export(dm), other = export(gone);
  NEED(fd >= 0 && again >= 0 && other >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
  NEED(lseek(fd, 0, SEEK_END) == 2 * kPage);
  NEED(mmap(NULL, kPage, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
  struct dma_buf_sync sync = {DMA_BUF_SYNC_RW};
  NEED(ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync) == 0);
  sync.flags = 0;
  NEED(ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync) == -1 && errno == EINVAL);
  NEED(dmabuf_errno(p.a.pd, kPage, kPage + 1, 0, fd, access) == EINVAL);

  struct ibv_mr* hmr = ibv_reg_mr(p.a.pd, host, sizeof host, access);
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(p.a.pd, kPage, kPage, 1 << 20, fd, access);
  NEED(hmr && mr);
  close(fd);
  close(again);
  NEED(request(&p.a, IBV_WR_RDMA_READ, (uintptr_t)host, 256, hmr->lkey, 1 << 20, mr->rkey) == IBV_WC_SUCCESS);
  NEED(!memcmp(host, data, 256));
  memset(host, 'h', 256);
  NEED(request(&p.a, IBV_WR_RDMA_WRITE, (uintptr_t)host, 128, hmr->lkey, (1 << 20) + 128, mr->rkey) == IBV_WC_SUCCESS);
  NEED(ibv_memcpy_from_dm(data, dm, kPage + 128, 128) == 0 && !memcmp(data, host, 128));
  NEED(prefetch(p.a.pd, mr, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, (void*)(uintptr_t)(1 << 20), 64) == 0);
  const uint32_t rkey = mr->rkey;
  /* The library changes ordinary registrations only. */
  NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);

  /* The memory goes, its buffer stays and is of nothing: nobody maps it any more, and the key reaches nothing. */
  NEED(ibv_free_dm(gone) == 0);
  NEED(dmabuf_errno(p.a.pd, 0, 64, 0, other, access) == ENODEV);
  NEED(ibv_free_dm(dm) == 0);
  NEED(request(&p.a, IBV_WR_RDMA_READ, (uintptr_t)host, 8, hmr->lkey, 1 << 20, rkey) == IBV_WC_REM_ACCESS_ERR);
  NEED(ibv_dereg_mr(mr) == 0);
  close(other);
  return 0;
}

static long mappings(void) {
  FILE* f = fopen("/proc/self/maps", "r");
  long n = 0;
  NEED(f);
  for (int c; (c = getc(f)) != EOF;) n += c == '\n';
  fclose(f);
  return n;
}

/* Registrations of random sizes come and go: the address space stays as it is (case D8), and those that stay make others no slower. */
static int many(int gid) {
  enum { kSlots = 64, kChurn = 40000, kStay = 60000 };
  const size_t size = 64 << 20;
  struct end e;
  memset(&e, 0, sizeof e);
  e.gid_index = gid;
  open_end(&e);
  char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  NEED(memory != MAP_FAILED);
  struct ibv_mr* slots[kSlots] = {0};
  long before = 0;
  srand(8);
  for (int i = 0; i < kChurn; ++i) {
    const int at = rand() % kSlots;
    const size_t length = 1 + (size_t)rand() % (size / 2), offset = (size_t)rand() % (size - length);
    if (slots[at]) NEED(ibv_dereg_mr(slots[at]) == 0);
    NEED(slots[at] = ibv_reg_mr(e.pd, memory + offset, length, IBV_ACCESS_LOCAL_WRITE));
    if (i == 1000) before = mappings();
  }
  NEED(mappings() == before);

  static struct ibv_mr* stay[kStay];
  double took[3], from = seconds();
  for (int i = 0; i < kStay; ++i) {
    NEED(stay[i] = ibv_reg_mr(e.pd, memory + (size_t)i * 1024, 1024, IBV_ACCESS_LOCAL_WRITE));
    if ((i + 1) % (kStay / 3) == 0) {
      took[i / (kStay / 3)] = seconds() - from;
      from = seconds();
    }
  }
  if (took[2] > 4 * took[0]) FAIL("the first third took %.2f s, the last one %.2f s", took[0], took[2]);
  for (int i = 0; i < kStay; ++i) NEED(ibv_dereg_mr(stay[i]) == 0);
  return 0;
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int (*run)(int gid);
  } kCases[] = {
      {"device_memory", device_memory}, {"on_demand", on_demand}, {"on_demand_hole", on_demand_hole}, {"dma_buf", dma_buf}, {"many", many}};
  if (argc != 3) return 2;
  for (size_t i = 0; i < sizeof kCases / sizeof kCases[0]; ++i)
    if (!strcmp(argv[1], kCases[i].name)) return kCases[i].run(atoi(argv[2]));
  return 2;
}

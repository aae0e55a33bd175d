/* SPDX-License-Identifier: MIT
 *
 * A program of ROCm's: GPU memory from the HSA runtime, exported, registered, written by the NIC, read back by the GPU's copy engine. Built
 * against Debian 13's libhsa-runtime64 and run with it. rocr GID_INDEX large|small: whether the CPU reaches all of the GPU's memory.
 */
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <stdbool.h>

#include "../clients/programs/ends.h"

enum { kMiB = 1 << 20, kPage = 4096, kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

#define HSA(call)                                     \
  do {                                                \
    hsa_status_t s_ = (call);                         \
    const char* text_ = "";                           \
    if (s_ != HSA_STATUS_SUCCESS) {                   \
      hsa_status_string(s_, &text_);                  \
      FAIL("%s: %#x %s", #call, (unsigned)s_, text_); \
    }                                                 \
  } while (0)

static hsa_agent_t cpu, gpu;

static hsa_status_t on_agent(hsa_agent_t a, void* unused) {
  (void)unused;
  hsa_device_type_t type;
  HSA(hsa_agent_get_info(a, HSA_AGENT_INFO_DEVICE, &type));
  *(type == HSA_DEVICE_TYPE_GPU ? &gpu : &cpu) = a;
  return HSA_STATUS_SUCCESS;
}
/* The first pool of memory from which programs allocate. */
static hsa_status_t on_pool(hsa_amd_memory_pool_t p, void* found) {
  hsa_amd_segment_t segment;
  bool allocates = false;
  HSA(hsa_amd_memory_pool_get_info(p, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
  HSA(hsa_amd_memory_pool_get_info(p, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &allocates));
  hsa_amd_memory_pool_t* out = found;
  if (segment == HSA_AMD_SEGMENT_GLOBAL && allocates && out->handle == 0) *out = p;
  return HSA_STATUS_SUCCESS;
}

static void copy(void* dst, hsa_agent_t to, const void* src, hsa_agent_t from, size_t n) {
  hsa_signal_t done;
  HSA(hsa_signal_create(1, 0, NULL, &done));
  HSA(hsa_amd_memory_async_copy(dst, to, src, from, n, 0, NULL, done));
  if (hsa_signal_wait_scacquire(done, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) != 0) FAIL("the copy failed");
  HSA(hsa_signal_destroy(done));
}

static int request(struct end* e, enum ibv_wr_opcode op, const void* local, uint32_t n, const struct ibv_mr* mr, uint64_t remote,
                   uint32_t rkey) {
  post(e, op, 1, sge_of(local, n, mr), remote, rkey);
  return next_wc(e->scq).status;
}

/* What one kind of memory goes through: exported from the middle, registered, its descriptor closed, written by the NIC, freed, written
 * again. */
static void through_the_nic(struct end* e, const char* kind, hsa_amd_memory_pool_t pool, void* host, const struct ibv_mr* hmr,
                            hsa_amd_memory_pool_t gtt) {
  char *device, *stage;
  int fd = -1;
  uint64_t offset = 0;
  HSA(hsa_amd_memory_pool_allocate(pool, kMiB, 0, (void**)&device));
  HSA(hsa_amd_memory_pool_allocate(gtt, kMiB, 0, (void**)&stage));
  HSA(hsa_amd_agents_allow_access(1, &gpu, NULL, stage));
  for (uint32_t i = 0; i < kMiB / 4; ++i) ((uint32_t*)stage)[i] = i * 7;
  copy(device, gpu, stage, cpu, kMiB);

  NEED(hsa_amd_portable_export_dmabuf(device, 2 * kMiB, &fd, &offset) == HSA_STATUS_ERROR_INVALID_ALLOCATION);
  HSA(hsa_amd_portable_export_dmabuf(device + 16 * kPage, 16 * kPage, &fd, &offset));
  /* The buffer is exported as a whole, and the runtime may have put the allocation anywhere in it. */
  NEED(fd >= 0 && offset >= 16 * kPage && offset % kPage == 0 && lseek(fd, 0, SEEK_END) >= (off_t)offset + 16 * kPage);
  struct ibv_mr* mr = ibv_reg_dmabuf_mr(e->pd, offset, 16 * kPage, (uint64_t)(uintptr_t)device + 16 * kPage, fd, kAccess);
  NEED(mr);
  HSA(hsa_amd_portable_close_dmabuf(fd));

  memset(host, 'N', 16 * kPage);
  const uint64_t at = (uint64_t)(uintptr_t)device + 16 * kPage;
  NEED(request(e, IBV_WR_RDMA_READ, host, kPage, hmr, at + kPage, mr->rkey) == IBV_WC_SUCCESS && *(uint32_t*)host == 17 * kPage / 4 * 7);
  memset(host, 'N', 16 * kPage);
  NEED(request(e, IBV_WR_RDMA_WRITE, host, kPage, hmr, at + 2 * kPage, mr->rkey) == IBV_WC_SUCCESS);
  memset(stage, 0, kMiB);
  copy(stage, cpu, device, gpu, kMiB);
  for (uint32_t i = 0; i < kMiB / 4; ++i) {
    const int written = i >= 18 * kPage / 4 && i < 19 * kPage / 4;
    if (((uint32_t*)stage)[i] != (written ? 0x4e4e4e4e : i * 7)) FAIL("%s: word %u is %#x", kind, i, ((uint32_t*)stage)[i]);
  }
  /* Freed, it is still behind the key. */
  HSA(hsa_amd_memory_pool_free(device));
  NEED(request(e, IBV_WR_RDMA_READ, host, kPage, hmr, at + 2 * kPage, mr->rkey) == IBV_WC_SUCCESS && *(char*)host == 'N');
  NEED(ibv_dereg_mr(mr) == 0);
  HSA(hsa_amd_memory_pool_free(stage));
  printf("%s: exported, registered, written by the NIC, read back by the GPU\n", kind);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int large = !strcmp(argv[2], "large");
  alarm(50);
  HSA(hsa_init());
  HSA(hsa_iterate_agents(on_agent, NULL));
  NEED(cpu.handle && gpu.handle);
  char name[64];
  uint32_t bdf = 0;
  HSA(hsa_agent_get_info(gpu, HSA_AGENT_INFO_NAME, name));
  HSA(hsa_agent_get_info(gpu, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &bdf));
  NEED(!strcmp(name, "gfx90a") && bdf == 4 << 8);
  hsa_amd_memory_pool_t vram = {0}, gtt = {0};
  HSA(hsa_amd_agent_iterate_memory_pools(gpu, on_pool, &vram));
  HSA(hsa_amd_agent_iterate_memory_pools(cpu, on_pool, &gtt));
  NEED(vram.handle && gtt.handle);
  size_t size = 0;
  HSA(hsa_amd_memory_pool_get_info(vram, HSA_AMD_MEMORY_POOL_INFO_SIZE, &size));
  NEED(size == 256 * kMiB);
  hsa_amd_memory_pool_access_t access;
  HSA(hsa_amd_agent_memory_pool_get_info(cpu, vram, HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS, &access));
  NEED((access != HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED) == large);

  void* memory;
  HSA(hsa_amd_memory_pool_allocate(gtt, kPage, 0, &memory));
  int fd;
  uint64_t offset;
  NEED(hsa_amd_portable_export_dmabuf(memory, kPage, &fd, &offset) == HSA_STATUS_ERROR_INVALID_AGENT); /* the CPU's memory */
  HSA(hsa_amd_memory_pool_free(memory));
  NEED(hsa_amd_memory_pool_allocate(vram, 512 * (size_t)kMiB, 0, &memory) == HSA_STATUS_ERROR_OUT_OF_RESOURCES ||
       hsa_amd_memory_pool_allocate(vram, 512 * (size_t)kMiB, 0, &memory) == HSA_STATUS_ERROR_INVALID_ALLOCATION);

  struct end a = {.gid_index = atoi(argv[1])}, b;
  open_end(&a);
  b = a;
  make_qp(&a, &kTuning);
  make_qp(&b, &kTuning);
  a.peer = b.me;
  b.peer = a.me;
  NEED(to_rts(&a, &kTuning) == 0 && to_rts(&b, &kTuning) == 0);
  void* host = aligned_alloc(kPage, kMiB);
  struct ibv_mr* hmr = ibv_reg_mr(a.pd, host, kMiB, kAccess);
  NEED(hmr);
  if (large) { /* the CPU touches VRAM through the aperture */
    char* seen;
    HSA(hsa_amd_memory_pool_allocate(vram, kMiB, 0, (void**)&seen));
    HSA(hsa_amd_agents_allow_access(1, &cpu, NULL, seen));
    memset(seen, 'c', kMiB);
    errno = 0;
    NEED(!ibv_reg_mr(a.pd, seen, kMiB, kAccess) && errno == EFAULT); /* a mapping without pages cannot be pinned */
    HSA(hsa_amd_memory_pool_free(seen));
  }
  through_the_nic(&a, "VRAM", vram, host, hmr, gtt);
  HSA(hsa_shut_down());
  return 0;
}

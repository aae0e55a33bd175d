/* SPDX-License-Identifier: MIT
 *
 * The pages by which a program has the device operate on its memory are mappings like others: they can be moved and taken away, but do not
 * grow, and whatever becomes of them, the memory stays. Nothing here knows uhca.
 */
#include <infiniband/mlx5dv.h>
#include <sys/mman.h>

#include "ends.h"

enum { kBytes = 64, kPage = 4096, kIncrement = 0 /* MLX5_IB_UAPI_DM_OP_INCR */ };

static uint8_t value(struct ibv_dm* dm) {
  uint64_t v;
  NEED(ibv_memcpy_from_dm(&v, dm, 0, sizeof v) == 0);
  return (uint8_t)(v >> 56 | v);
}

int main(int argc, char** argv) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  NEED(list && list[0]);
  struct ibv_context* ctx = ibv_open_device(list[0]);
  NEED(ctx);
  ibv_free_device_list(list);
  struct ibv_alloc_dm_attr attr = {.length = kBytes};
  struct ibv_dm* dm = ibv_alloc_dm(ctx, &attr);
  NEED(dm);
  uint64_t zero = 0;
  NEED(ibv_memcpy_to_dm(dm, 0, &zero, sizeof zero) == 0);
  if (argc == 2 && !strcmp(argv[1], "wrap")) { /* rdma-core's own library takes these for places in the memory */
    NEED(ibv_memcpy_to_dm(dm, ~(uint64_t)3, &zero, 8) == EFAULT);
    NEED(ibv_memcpy_from_dm(&zero, dm, ~(uint64_t)7, 8) == EFAULT);
  }
  volatile uint8_t* op = mlx5dv_dm_map_op_addr(dm, kIncrement);
  NEED(op);
  *op = 1;
  NEED(value(dm) == 1);

  uint8_t* page = (uint8_t*)((uintptr_t)op & ~(uintptr_t)(kPage - 1));
  const size_t in_page = (size_t)((uint8_t*)op - page);
  /* Larger: refused, as mappings of devices are; and nothing has changed. */
  NEED(mremap(page, kPage, 2 * kPage, 0) == MAP_FAILED && errno == EFAULT);
  NEED(mremap(page, kPage, 2 * kPage, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
  *op = 1;
  NEED(value(dm) == 2);
  /* Refused for another reason. */
  NEED(mremap(page, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, page + 1) == MAP_FAILED && errno == EINVAL);
  *op = 1;
  NEED(value(dm) == 3);
  /* Elsewhere. */
  uint8_t* to = mmap(NULL, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(to != MAP_FAILED);
  NEED(mremap(page, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
  op = to + in_page;
  *op = 1;
  NEED(value(dm) == 4);
  NEED(munmap(to, kPage) == 0);
  NEED(value(dm) == 4);
  NEED(ibv_free_dm(dm) == 0);
  NEED(ibv_close_device(ctx) == 0);
  printf("ok\n");
  return 0;
}

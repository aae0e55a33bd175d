/* SPDX-License-Identifier: MIT
 *
 * The device goes away while the program holds it, with a thread in ibv_get_async_event, one in ibv_get_cq_event, and traffic. Started so
 * that this happens some time after the start. Nothing here knows uhca.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "ends.h"

static struct ibv_context* ctx;
static struct ibv_comp_channel* channel;
static int wait_failed;

/* No completion ever comes to this channel: the wait ends with the device. */
static void* wait_for_completion(void* unused) {
  (void)unused;
  struct ibv_cq* cq;
  void* cq_context;
  NEED(ibv_get_cq_event(channel, &cq, &cq_context) != 0);
  wait_failed = errno;
  return NULL;
}

#define REFUSED(what, want)                                                                             \
  do {                                                                                                  \
    errno = 0;                                                                                          \
    int got_ = (what);                                                                                  \
    if (got_ != (want) && errno != (want)) FAIL("%s: %d, errno %d, not %s", #what, got_, errno, #want); \
  } while (0)
#define NOTHING(what)                                                                            \
  do {                                                                                           \
    errno = 0;                                                                                   \
    if ((what) != NULL || errno != EIO) FAIL("%s: made, or errno %d and not EIO", #what, errno); \
  } while (0)

static void post_write(struct ibv_qp* qp, struct ibv_mr* mr) {
  struct ibv_sge g = {(uintptr_t)mr->addr, 64, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &g, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
  wr.wr.rdma.remote_addr = (uintptr_t)mr->addr + 2048;
  wr.wr.rdma.rkey = mr->rkey;
  ibv_post_send(qp, &wr, &bad);
}

int main(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  NEED(list && list[0]);
  NEED((ctx = ibv_open_device(list[0])));
  struct ibv_pd* pd;
  struct ibv_cq *cq, *quiet;
  struct ibv_mr* mr;
  char* memory = calloc(1, 4096);
  NEED((pd = ibv_alloc_pd(ctx)));
  NEED((channel = ibv_create_comp_channel(ctx)));
  NEED((cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
  NEED((quiet = ibv_create_cq(ctx, 64, NULL, channel, 0)));
  NEED(ibv_req_notify_cq(quiet, 0) == 0);
  NEED((mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  init.cap.max_send_wr = init.cap.max_recv_wr = 32;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  struct ibv_qp* qp;
  NEED((qp = ibv_create_qp(pd, &init)));
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  NEED(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .min_rnr_timer = 1};
  a.ah_attr.is_global = 1;
  a.ah_attr.port_num = 1;
  a.ah_attr.grh.hop_limit = 1;
  NEED(ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid) == 0);
  NEED(ibv_modify_qp(qp, &a,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                         IBV_QP_MIN_RNR_TIMER) == 0);
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  NEED(ibv_modify_qp(qp, &a,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  pthread_t waiter;
  NEED(pthread_create(&waiter, NULL, wait_for_completion, NULL) == 0);

  /* Traffic until the event is there. */
  struct pollfd async = {.fd = ctx->async_fd, .events = POLLIN};
  struct ibv_wc wc;
  long done = 0;
  while (poll(&async, 1, 0) == 0) {
    post_write(qp, mr);
    for (int i = 0; i < 1000; ++i) {
      int n = ibv_poll_cq(cq, 1, &wc);
      NEED(n >= 0);
      if (!n) continue;
      if (wc.status != IBV_WC_SUCCESS) FAIL("status %d before the event", wc.status);
      ++done;
      break;
    }
  }
  NEED(done > 0);
  struct ibv_async_event e;
  NEED(ibv_get_async_event(ctx, &e) == 0);
  if (e.event_type != IBV_EVENT_DEVICE_FATAL) FAIL("event %d", e.event_type);
  ibv_ack_async_event(&e);
  NEED(pthread_join(waiter, NULL) == 0);
  if (wait_failed != EIO) FAIL("ibv_get_cq_event: errno %d", wait_failed);
  NEED(poll(&async, 1, 50) == 0); /* the last event: no end of file, as the kernel has it */

  /* What is mapped may be written and read; nothing comes of it. */
  memset(memory + 2048, 0, 64);
  memset(memory, 0x5a, 64);
  while (ibv_poll_cq(cq, 1, &wc) > 0) continue;
  for (int i = 0; i < 100; ++i) {
    post_write(qp, mr);
    if (i % 10 == 0) usleep(2000);
    NEED(ibv_poll_cq(cq, 1, &wc) == 0);
  }
  NEED(ibv_req_notify_cq(quiet, 0) == 0);
  if (memory[2048]) FAIL("the device that is gone wrote");

  struct ibv_device_attr attr;
  struct ibv_port_attr port;
  struct ibv_qp_attr qa = {.qp_state = IBV_QPS_ERR};
  NOTHING(ibv_alloc_pd(ctx));
  NOTHING(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE));
  NOTHING(ibv_create_cq(ctx, 64, NULL, NULL, 0));
  NOTHING(ibv_create_qp(pd, &init));
  NOTHING(ibv_create_comp_channel(ctx));
  REFUSED(ibv_query_device(ctx, &attr), EIO);
  REFUSED(ibv_query_port(ctx, 1, &port), EIO);
  REFUSED(ibv_modify_qp(qp, &qa, IBV_QP_STATE), EIO);
  REFUSED(ibv_query_qp(qp, &qa, IBV_QP_STATE, &init), EIO);
  char command[8] = {0};
  errno = 0;
  if (write(ctx->cmd_fd, command, sizeof command) != -1 || errno != EIO) FAIL("write: errno %d", errno);
  errno = 0;
  if (mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, ctx->cmd_fd, 0) != MAP_FAILED || errno != EIO) FAIL("mmap: errno %d", errno);
  char path[sizeof list[0]->dev_name + 16];
  snprintf(path, sizeof path, "/dev/infiniband/%s", list[0]->dev_name);
  REFUSED(open(path, O_RDWR), EIO);
  NEED(!ibv_open_device(list[0]));

  /* RDMAV_ALLOW_DISASSOC_DESTROY makes destroying succeed, so that the libraries free their part. */
  int want = getenv("RDMAV_ALLOW_DISASSOC_DESTROY") ? 0 : EIO;
  REFUSED(ibv_destroy_qp(qp), want);
  REFUSED(ibv_dereg_mr(mr), want);
  if (!want) {
    NEED(ibv_destroy_cq(cq) == 0);
    NEED(ibv_destroy_cq(quiet) == 0);
    NEED(ibv_destroy_comp_channel(channel) == 0);
    NEED(ibv_dealloc_pd(pd) == 0);
  }
  NEED(ibv_close_device(ctx) == 0);
  ibv_free_device_list(list);
  free(memory);
  printf("ok %ld\n", done);
  return 0;
}

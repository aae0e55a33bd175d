/* SPDX-License-Identifier: MIT
 *
 * The device goes while connection manager's ids are bound to it: cm_removal ADDRESS, under `uhca run --remove-after SECONDS`. Every id
 * hears of it once, answers ENXIO from then on and can be destroyed; the program ends well.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(x)                                                                     \
  do {                                                                              \
    if (!(x)) {                                                                     \
      printf("FAIL %d: %s (errno %d, %s)\n", __LINE__, #x, errno, strerror(errno)); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

static struct rdma_event_channel* channel;

static struct rdma_cm_event* next(enum rdma_cm_event_type type) {
  struct rdma_cm_event* e;
  NEED(rdma_get_cm_event(channel, &e) == 0);
  if (e->event != type) printf("%s, status %d\n", rdma_event_str(e->event), e->status);
  NEED(e->event == type);
  return e;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  struct sockaddr_in at = {.sin_family = AF_INET};
  NEED(inet_pton(AF_INET, argv[1], &at.sin_addr) == 1);
  NEED(channel = rdma_create_event_channel());
  struct rdma_cm_id *listener, *caller, *server, *unbound;
  NEED(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_create_id(channel, &caller, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_create_id(channel, &unbound, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_bind_addr(listener, (struct sockaddr*)&at) == 0);
  NEED(rdma_listen(listener, 4) == 0);
  at.sin_port = rdma_get_src_port(listener);
  NEED(rdma_resolve_addr(caller, NULL, (struct sockaddr*)&at, 2000) == 0);
  rdma_ack_cm_event(next(RDMA_CM_EVENT_ADDR_RESOLVED));
  NEED(rdma_resolve_route(caller, 2000) == 0);
  rdma_ack_cm_event(next(RDMA_CM_EVENT_ROUTE_RESOLVED));
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1}};
  NEED(rdma_create_qp(caller, NULL, &init) == 0);
  struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
  NEED(rdma_connect(caller, &param) == 0);
  struct rdma_cm_event* e = next(RDMA_CM_EVENT_CONNECT_REQUEST);
  server = e->id;
  NEED(rdma_create_qp(server, NULL, &init) == 0);
  NEED(rdma_accept(server, &param) == 0);
  rdma_ack_cm_event(e);
  rdma_ack_cm_event(next(RDMA_CM_EVENT_ESTABLISHED));
  rdma_ack_cm_event(next(RDMA_CM_EVENT_ESTABLISHED));
  printf("connected\n");

  /* In any order; a side may hear of the other's end first. A listener on a loopback address belongs to no device. */
  const int bound = listener->verbs ? 3 : 2;
  int heard = 0;
  while (heard < bound) {
    NEED(rdma_get_cm_event(channel, &e) == 0);
    if (e->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      NEED(e->id == listener || e->id == caller || e->id == server);
      ++heard;
    } else {
      NEED(e->event == RDMA_CM_EVENT_DISCONNECTED);
    }
    rdma_ack_cm_event(e);
  }
  errno = 0;
  NEED(rdma_disconnect(caller) == -1 && (errno == ENXIO || errno == EIO)); /* EIO: of the QP, which it stops first */
  errno = 0;
  NEED(rdma_reject(server, NULL, 0) == -1 && errno == ENXIO);
  struct sockaddr_in again = at;
  again.sin_port = 0;
  errno = 0;
  if (bound == 3) NEED(rdma_bind_addr(unbound, (struct sockaddr*)&again) == -1 && errno == ENODEV);
  rdma_destroy_qp(server);
  rdma_destroy_qp(caller);
  NEED(rdma_destroy_id(server) == 0);
  NEED(rdma_destroy_id(caller) == 0);
  NEED(rdma_destroy_id(listener) == 0);
  NEED(rdma_destroy_id(unbound) == 0);
  rdma_destroy_event_channel(channel);
  printf("%d ids heard of it\n", heard);
  return 0;
}

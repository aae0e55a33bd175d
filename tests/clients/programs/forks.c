/* SPDX-License-Identifier: MIT
 *
 * A program with an open device forks: the child starts afresh, opens a device of its own and talks to its parent, whose own
 * connections go on.  forks GID
 */
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "ends.h"

extern char** environ;
static int gid;

/* ---- the parent's own connection, between two of its QPs */

struct loop {
  struct end x, y;
  char buf[2][4096];
  struct ibv_mr* mr;
};
static void make(struct loop* l) {
  memset(l, 0, sizeof *l);
  l->x.gid_index = l->y.gid_index = gid;
  open_end(&l->x);
  l->y.ctx = l->x.ctx;
  l->y.pd = l->x.pd;
  make_qp(&l->x, &kTuning);
  make_qp(&l->y, &kTuning);
  l->x.peer = l->y.me;
  l->y.peer = l->x.me;
  NEED(to_rts(&l->x, &kTuning) == 0 && to_rts(&l->y, &kTuning) == 0);
  NEED(l->mr = ibv_reg_mr(l->x.pd, l->buf, sizeof l->buf, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
}
static void goes_on(struct loop* l) {
  for (int i = 0; i < 20; ++i) {
    l->buf[0][100] = (char)(l->buf[0][100] + 1);
    post(&l->x, IBV_WR_RDMA_WRITE, 5, sge_of(l->buf[0], 4096, l->mr), (uintptr_t)l->buf[1], l->mr->rkey);
    want(l->x.scq, 5, IBV_WC_SUCCESS, -1);
    if (l->buf[1][100] != l->buf[0][100]) FAIL("wrong data");
  }
}
static void unmake(struct loop* l) {
  struct end* e[2] = {&l->x, &l->y};
  for (int i = 0; i < 2; ++i) {
    NEED(ibv_destroy_qp(e[i]->qp) == 0);
    NEED(ibv_destroy_cq(e[i]->scq) == 0);
    NEED(ibv_destroy_cq(e[i]->rcq) == 0);
  }
  NEED(ibv_dereg_mr(l->mr) == 0);
  close_end(&l->x);
}

/* ---- child and parent */

static void pingpong(struct end* e) {
  static char buf[2][4096];
  open_end(e);
  struct ibv_mr* mr = ibv_reg_mr(e->pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE);
  NEED(mr);
  join(e, &kTuning);
  for (int i = 0; i < 100; ++i) {
    post_receive(e, 7, sge_of(buf[1], 4096, mr));
    meet(e);
    memset(buf[0], i + e->a, 4096);
    post(e, IBV_WR_SEND, 1, sge_of(buf[0], 4096, mr), 0, 0);
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
    want(e->rcq, 7, IBV_WC_SUCCESS, -1);
    for (int k = 0; k < 4096; ++k)
      if (buf[1][k] != (char)(i + !e->a)) FAIL("wrong data in round %d", i);
  }
  part(e);
  NEED(ibv_dereg_mr(mr) == 0);
  close_end(e);
}

static void wait_for(pid_t child, const char* what) {
  int status = 0;
  NEED(child > 0 && waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("%s: wait status 0x%x", what, status);
}

static void child_talks_to_parent(struct loop* l) {
  int fds[2];
  NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    struct end e = {.a = 1, .fd = fds[1], .gid_index = gid};
    pingpong(&e);
    _exit(0);
  }
  close(fds[1]);
  goes_on(l);
  struct end e = {.fd = fds[0], .gid_index = gid};
  pingpong(&e);
  goes_on(l);
  wait_for(child, "child");
  close(fds[0]);
}

/* What the child has inherited answers with errors, or does nothing; the parent does not notice. */
static void child_misuses_what_it_inherits(struct loop* l) {
  pid_t child = fork();
  if (child == 0) {
    struct ibv_wc wc;
    struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
    if (ibv_poll_cq(l->x.scq, 1, &wc) > 0) FAIL("a completion in the child");
    if (ibv_modify_qp(l->x.qp, &err, IBV_QP_STATE) == 0) FAIL("the child changed its parent's QP");
    if (ibv_reg_mr(l->x.pd, l->buf, 4096, 0) != NULL) FAIL("the child registered memory with its parent's PD");
    ibv_destroy_qp(l->x.qp);
    ibv_dereg_mr(l->mr);
    ibv_dealloc_pd(l->x.pd);
    ibv_close_device(l->x.ctx);
    _exit(0);
  }
  goes_on(l);
  wait_for(child, "child");
  goes_on(l);
}

static void helpers_are_harmless(struct loop* l) {
  for (int i = 0; i < 5; ++i) {
    pid_t child = vfork();
    if (child == 0) {
      execl("/bin/true", "true", (char*)NULL);
      _exit(1);
    }
    wait_for(child, "vfork");
    goes_on(l);
    if ((child = vfork()) == 0) _exit(0);
    wait_for(child, "vfork and exit");
    char* argv[] = {"true", NULL};
    NEED(posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ) == 0);
    wait_for(child, "posix_spawn");
    NEED(system("true") == 0);
    FILE* f = popen("echo hello", "r");
    char text[16] = "";
    NEED(f && fgets(text, sizeof text, f) && strcmp(text, "hello\n") == 0 && pclose(f) == 0);
    goes_on(l);
  }
}

/* No descriptor of the device survives exec. */
static void exec_keeps_nothing(struct loop* l) {
  FILE* f = popen("ls -l /proc/self/fd", "r");
  char line[512];
  int n = 0;
  NEED(f);
  while (fgets(line, sizeof line, f)) {
    if (strstr(line, "uhca") || strstr(line, "uverbs") || strstr(line, "memfd") || strstr(line, "inotify") || strstr(line, "eventfd"))
      FAIL("inherited over exec: %s", line);
    ++n;
  }
  NEED(pclose(f) == 0 && n >= 3);
  goes_on(l);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    char number[16];
    snprintf(number, sizeof number, "%d", gid);
    execl("/proc/self/exe", "forks", number, "afresh", (char*)NULL);
    _exit(1);
  }
  wait_for(child, "a program that was executed");
  goes_on(l);
}

static void grandchildren(struct loop* l) {
  pid_t child = fork();
  if (child == 0) {
    struct loop mine;
    make(&mine);
    goes_on(&mine);
    pid_t grandchild = fork();
    if (grandchild == 0) {
      struct loop its;
      make(&its);
      goes_on(&its);
      unmake(&its);
      _exit(0);
    }
    goes_on(&mine);
    wait_for(grandchild, "grandchild");
    unmake(&mine);
    _exit(0);
  }
  goes_on(l);
  wait_for(child, "child");
  goes_on(l);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(struct loop*);
  } cases[] = {{"child_talks_to_parent", child_talks_to_parent},
               {"child_misuses_what_it_inherits", child_misuses_what_it_inherits},
               {"helpers_are_harmless", helpers_are_harmless},
               {"exec_keeps_nothing", exec_keeps_nothing},
               {"grandchildren", grandchildren}};
  static struct loop l;
  if (argc < 2) return 2;
  alarm(50);
  gid = atoi(argv[1]);
  make(&l);
  goes_on(&l);
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; ++i) {
    fprintf(stderr, "== %s\n", cases[i].name);
    cases[i].run(&l);
    fprintf(stderr, "ok %s\n", cases[i].name);
  }
  unmake(&l);
  return 0;
}

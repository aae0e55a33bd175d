/* SPDX-License-Identifier: MIT
 * Asks the system-call surface one question per mode and prints the answer. Knows nothing of uhca but the device's path. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A bad address that the compiler does not know to be one. */
static volatile int* volatile nowhere = (volatile int*)8;

static const char* const kDevice = "/dev/infiniband/uverbs0";
static const char* error(int r) {
  return r < 0 ? strerrorname_np(errno) : "ok";
}

static int device(void) {
  int fd = open(kDevice, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    printf("open: %s\n", error(fd));
    exit(1);
  }
  return fd;
}

/* GET_CONTEXT by ioctl is the provider's business; QUERY_PORT needs a context: EINVAL before it. */
static int query_port(int fd) {
  _Alignas(8) char c[sizeof(struct ib_uverbs_ioctl_hdr) + 2 * sizeof(struct ib_uverbs_attr)];
  struct ib_uverbs_ioctl_hdr* h = (void*)c;
  char resp[64];
  memset(c, 0, sizeof c);
  h->length = sizeof c;
  h->object_id = UVERBS_OBJECT_DEVICE;
  h->method_id = UVERBS_METHOD_QUERY_PORT;
  h->num_attrs = 2;
  h->driver_id = RDMA_DRIVER_MLX5;
  h->attrs[0].attr_id = UVERBS_ATTR_QUERY_PORT_PORT_NUM;
  h->attrs[0].len = 1;
  h->attrs[0].flags = UVERBS_ATTR_F_MANDATORY;
  h->attrs[0].data = 1;
  h->attrs[1].attr_id = UVERBS_ATTR_QUERY_PORT_RESP;
  h->attrs[1].len = sizeof resp;
  h->attrs[1].flags = UVERBS_ATTR_F_MANDATORY;
  h->attrs[1].data = (unsigned long)resp;
  return ioctl(fd, RDMA_VERBS_IOCTL, c);
}

static int fds_open(void) {
  int n = 0;
  DIR* d = opendir("/proc/self/fd");
  while (readdir(d)) ++n;
  closedir(d);
  return n;
}

static void mode_stat(void) {
  int fd = device();
  struct stat st;
  fstat(fd, &st);
  printf("fstat %d %u:%u\n", S_ISCHR(st.st_mode), major(st.st_rdev), minor(st.st_rdev));
  struct statx x;
  statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x);
  printf("statx %d %u:%u\n", S_ISCHR(x.stx_mode), x.stx_rdev_major, x.stx_rdev_minor);
  int sysfs = open("/sys/class/infiniband/mlx5_0/node_type", O_RDONLY);
  fstat(sysfs, &st);
  char buf[32] = {0};
  ssize_t n = read(sysfs, buf, sizeof buf);
  printf("sysfs reg=%d size=%ld read=%zd %s", S_ISREG(st.st_mode), (long)st.st_size, n, buf);
  int w = open("/sys/class/infiniband/mlx5_0/node_type", O_WRONLY);
  printf("write %s\n", error(w));
  int dir = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY);
  printf("openat %s\n", error(openat(dir, "mlx5_0/../mlx5_0/ports/1/state", O_RDONLY)));
  printf("openat missing %s\n", error(openat(dir, "mlx5_1", O_RDONLY)));
  printf("through a file %s\n", error(open("/sys/class/infiniband/mlx5_0/fw_ver/x", O_RDONLY)));
  printf("empty gid type %s\n", error(open("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/255", O_RDONLY)));
}

static void mode_pointers(void) {
  int fd = device();
  printf("ioctl null %s\n", error(ioctl(fd, RDMA_VERBS_IOCTL, NULL)));
  printf("ioctl low %s\n", error(ioctl(fd, RDMA_VERBS_IOCTL, (void*)8)));
  printf("ioctl kernel %s\n", error(ioctl(fd, RDMA_VERBS_IOCTL, (void*)0xffffffff80000000ul)));
  printf("ioctl other %s\n", error(ioctl(fd, 0x5401, NULL)));
  printf("ioctl other device %s\n", error(ioctl(0, RDMA_VERBS_IOCTL, NULL)));
  void* volatile bad = (void*)8;
  printf("write bad %s\n", error((int)write(fd, bad, 64)));
  printf("write short %s\n", error((int)write(fd, "abc", 3)));
  printf("before context %s\n", error(query_port(fd)));
  printf("mmap before context %s\n", mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? strerrorname_np(errno) : "ok");
}

/* Descriptors of the kernel's side come back when the last one is closed, however it was duplicated. */
static void mode_close(void) {
  close(device());
  int before = fds_open();
  int a = device(), b = dup(a), c = fcntl(a, F_DUPFD, 100);
  printf("three more: %d\n", fds_open() - before >= 3);
  close(a);
  printf("dup works %s\n", error(query_port(b)));
  dup2(0, b);
  printf("third works %s\n", error(query_port(c)));
  close(b);
  close(c);
  printf("all gone: %d\n", fds_open() == before);
  int s[2];
  socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
  int d = device();
  char control[CMSG_SPACE(sizeof(int))];
  struct iovec iov = {"x", 1};
  struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr* cm = CMSG_FIRSTHDR(&m);
  cm->cmsg_level = SOL_SOCKET;
  cm->cmsg_type = SCM_RIGHTS;
  cm->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(cm), &d, sizeof d);
  sendmsg(s[0], &m, 0);
  close(d);
  char byte;
  iov.iov_base = &byte;
  recvmsg(s[1], &m, 0);
  memcpy(&d, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof d);
  printf("after a flight %s\n", error(query_port(d)));
  closefrom(3);
  d = device();
  printf("after closefrom %s\n", error(query_port(d)));
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  d = device();
  printf("after close of all %s\n", error(query_port(d)));
}

static void mode_fork(void) {
  int fd = device();
  printf("parent %s\n", error(query_port(fd)));
  fflush(stdout);
  pid_t p = fork();
  if (p == 0) {
    printf("inherited %s\n", error(query_port(fd)));
    printf("inherited mmap %s\n", mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? strerrorname_np(errno) : "ok");
    close(fd);
    int own = device();
    printf("own %s\n", error(query_port(own)));
    fflush(stdout);
    _exit(7);
  }
  int status;
  waitpid(p, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
  printf("parent still %s\n", error(query_port(fd)));
  fflush(stdout);
  fcntl(fd, F_SETFD, 0);
  char number[16];
  snprintf(number, sizeof number, "%d", fd);
  if (vfork() == 0) {
    execl("/proc/self/exe", "program", "inherited", number, NULL);
    _exit(1);
  }
  wait(NULL);
  printf("parent to the end %s\n", error(query_port(fd)));
}

static void mode_inherited(const char* number) {
  int fd = atoi(number);
  struct stat st;
  fstat(fd, &st);
  printf("over exec %s chr=%d\n", error(query_port(fd)), S_ISCHR(st.st_mode));
  fflush(stdout);
}

static sigjmp_buf away;
static volatile int seen, seen_value;
static void jump(int sig) {
  (void)sig;
  siglongjmp(away, 1);
}
static void with_info(int sig, siginfo_t* info, void* c) {
  (void)c;
  seen = sig;
  seen_value = info->si_value.sival_int;
}

static void mode_signals(void) {
  struct sigaction a, o;
  memset(&a, 0, sizeof a);
  a.sa_handler = jump;
  sigaction(SIGUSR1, &a, NULL);
  int fd = device();
  sigaction(SIGUSR1, NULL, &o);
  printf("handler kept %d siginfo %d\n", o.sa_handler == jump, !!(o.sa_flags & SA_SIGINFO));
  a.sa_sigaction = with_info;
  a.sa_flags = SA_SIGINFO | SA_RESETHAND;
  sigaction(SIGRTMIN + 1, &a, NULL);
  union sigval v = {.sival_int = 42};
  sigqueue(getpid(), SIGRTMIN + 1, v);
  printf("info %d value %d\n", seen == SIGRTMIN + 1, seen_value);
  sigaction(SIGRTMIN + 1, NULL, &o);
  printf("reset %d\n", o.sa_handler == SIG_DFL);
  printf("signal %d\n", signal(SIGUSR2, SIG_IGN) == SIG_DFL && signal(SIGUSR2, SIG_DFL) == SIG_IGN);
  if (!sigsetjmp(away, 1)) raise(SIGUSR1);
  printf("after longjmp %s\n", error(query_port(fd)));
  /* The program's own SEGV handler still gets the program's own faults. */
  memset(&a, 0, sizeof a);
  a.sa_handler = jump;
  sigaction(SIGSEGV, &a, NULL);
  for (volatile int i = 0; i < 2; ++i) {
    if (!sigsetjmp(away, 1)) {
      *nowhere = 1;
    } else {
      printf("own fault %d\n", i);
    }
  }
  printf("copies still %s\n", error(ioctl(fd, RDMA_VERBS_IOCTL, (void*)8)));
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  printf("blocked %s\n", error(ioctl(fd, RDMA_VERBS_IOCTL, (void*)8)));
}

/* With an instance, but no handler of the program: a fault and a default action end it as ever. */
static void mode_fault(void) {
  device();
  *nowhere = 1;
}
static void mode_term(void) {
  device();
  raise(SIGTERM);
}

/* SIGALRM again and again, handled by f, until no_alarms(). */
static timer_t alarms(void (*f)(int), int flags, long ns) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = f;
  a.sa_flags = flags;
  sigaction(SIGALRM, &a, NULL);
  timer_t t;
  struct sigevent e;
  memset(&e, 0, sizeof e);
  e.sigev_notify = SIGEV_SIGNAL;
  e.sigev_signo = SIGALRM;
  timer_create(CLOCK_MONOTONIC, &e, &t);
  struct itimerspec every = {{0, ns}, {0, ns}};
  timer_settime(t, 0, &every, NULL);
  return t;
}
static void no_alarms(timer_t t) {
  timer_delete(t);
  signal(SIGALRM, SIG_IGN);
}

/* Handlers that leave by longjmp hit the device calls at any moment; nothing may be left locked. */
static void mode_storm(void) {
  int fd = device();
  volatile int jumps = 0, calls = 0;
  timer_t t = alarms(jump, 0, 200000);
  while (jumps < 300) {
    if (sigsetjmp(away, 1)) ++jumps;
    for (int i = 0; i < 100; ++i) {
      query_port(fd);
      ++calls;
    }
  }
  no_alarms(t);
  printf("storm over %s\n", error(query_port(fd)));
}

/* A handler that polls interrupts a poll at any moment. */
static int channel, ready;
static void polls(int s) {
  (void)s;
  struct pollfd p[2] = {{channel, POLLIN, 0}, {ready, POLLIN, 0}};
  poll(p, 2, 1000);
}
static void mode_polls(void) {
  channel = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  int p[2];
  if (channel < 0 || pipe(p) != 0 || write(p[1], "x", 1) != 1) exit(1);
  ready = p[0];
  timer_t t = alarms(polls, SA_RESTART, 50000);
  for (int i = 0; i < 200000; ++i) polls(0);
  no_alarms(t);
  printf("polls over\n");
}

/* The thread of connection management drives the engine, whose copies may fault: those signals reach it, and no others do. */
static void mode_cm_thread(void) {
  if (open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC) < 0) exit(1);
  for (;;) {
    DIR* d = opendir("/proc/self/task");
    for (struct dirent* t; (t = readdir(d));) {
      char path[300], line[200];
      snprintf(path, sizeof path, "/proc/self/task/%s/status", t->d_name);
      FILE* f = fopen(path, "r");
      int ours = 0;
      unsigned long long blocked;
      while (f && fgets(line, sizeof line, f)) {
        ours |= !strcmp(line, "Name:\tuhca-cm\n");
        if (!ours || sscanf(line, "SigBlk: %llx", &blocked) != 1) continue;
        printf("segv %d bus %d term %d\n", (int)(blocked >> (SIGSEGV - 1) & 1), (int)(blocked >> (SIGBUS - 1) & 1),
               (int)(blocked >> (SIGTERM - 1) & 1));
        exit(0);
      }
      if (f) fclose(f);
    }
    closedir(d);
  }
}

static void* small(void* arg) {
  (void)arg;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  int fd = open(kDevice, O_RDWR | O_CLOEXEC);
  int r = ioctl(fd, RDMA_VERBS_IOCTL, (void*)8);
  close(fd);
  return (void*)(long)(r < 0 && errno == EFAULT);
}

static void mode_threads(void) {
  close(device());
  pthread_attr_t a;
  pthread_attr_init(&a);
  pthread_attr_setstacksize(&a, 16384);
  int good = 0;
  for (int round = 0; round < 8; ++round) {
    pthread_t t[4];
    for (int i = 0; i < 4; ++i) pthread_create(&t[i], &a, small, NULL);
    for (int i = 0; i < 4; ++i) {
      void* r;
      pthread_join(t[i], &r);
      good += r != NULL;
    }
  }
  printf("threads %d\n", good);
}

static int walked;
static int visit(const char* path, const struct stat* st, int type, struct FTW* f) {
  (void)path, (void)st, (void)f;
  walked += type == FTW_F;
  return 0;
}

static void mode_walk(void) {
  struct dirent** list;
  int n = scandir("/sys/class/infiniband", &list, NULL, alphasort);
  printf("scandir %d %s\n", n, n > 2 ? list[2]->d_name : "?");
  glob_t g;
  memset(&g, 0, sizeof g);
  printf("glob %d", glob("/sys/class/infini*/mlx5_*/node_*", 0, NULL, &g));
  for (size_t i = 0; i < g.gl_pathc; ++i) printf(" %s", strrchr(g.gl_pathv[i], '/') + 1);
  printf("\n");
  printf("nftw %d", nftw("/sys/class/infiniband/mlx5_0/ports/1/pkeys", visit, 8, FTW_PHYS));
  printf(" files %d\n", walked > 0);
  DIR* d = opendir("/sys/class/infiniband/mlx5_0");
  int first = 0, again = 0;
  while (readdir(d)) ++first;
  rewinddir(d);
  while (readdir(d)) ++again;
  printf("rewind %d\n", first == again && first > 10);
  closedir(d);
  char* real = realpath("/sys/class/infiniband/mlx5_0/device/infiniband/mlx5_0/device", NULL);
  printf("realpath %s\n", real ? strrchr(real, '/') + 1 : "?");
  chdir("/sys/class/infiniband/mlx5_0/ports");
  char buf[256];
  printf("getcwd %s\n", getcwd(buf, sizeof buf));
  printf("relative %s\n", error(open("1/rate", O_RDONLY)));
  printf("out %s\n", error(open("../../../../../../kernel", O_RDONLY)));
  chdir("/");
  printf("getcwd %s\n", getcwd(buf, sizeof buf));
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char* m = argc > 1 ? argv[1] : "";
  if (!strcmp(m, "stat")) mode_stat();
  if (!strcmp(m, "pointers")) mode_pointers();
  if (!strcmp(m, "close")) mode_close();
  if (!strcmp(m, "fork")) mode_fork();
  if (!strcmp(m, "inherited")) mode_inherited(argv[2]);
  if (!strcmp(m, "signals")) mode_signals();
  if (!strcmp(m, "fault")) mode_fault();
  if (!strcmp(m, "term")) mode_term();
  if (!strcmp(m, "storm")) mode_storm();
  if (!strcmp(m, "polls")) mode_polls();
  if (!strcmp(m, "cm_thread")) mode_cm_thread();
  if (!strcmp(m, "threads")) mode_threads();
  if (!strcmp(m, "walk")) mode_walk();
  return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * What the machine gives between two processes without a NIC: baseline ROW BYTES prints nanoseconds an operation.
 */
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRegion = 1 << 22 };

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void pin(int cpu) {
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(cpu, &s);
  sched_setaffinity(0, sizeof s, &s);
}
static void must(int ok, const char* what) {
  if (ok) return;
  perror(what);
  _exit(1);
}

static uint8_t* region; /* private; at the same address in both processes */
static uint32_t bytes;

static void vm(int write, pid_t other, const uint8_t* from, uint8_t* to) {
  struct iovec near = {write ? (void*)from : to, bytes}, far = {write ? to : (void*)from, bytes};
  ssize_t n = write ? process_vm_writev(other, &near, 1, &far, 1, 0) : process_vm_readv(other, &near, 1, &far, 1, 0);
  must(n == (ssize_t)bytes, "process_vm");
}

static void bounce(pid_t other, int first, int n) {
  volatile uint8_t* seen = region + kRegion / 2 + bytes - 1;
  for (int i = 0; i < n; ++i) {
    uint8_t v = (uint8_t)(i % 255 + 1);
    region[bytes - 1] = v;
    if (first) vm(1, other, region, region + kRegion / 2);
    while (*seen != v) {
    }
    if (!first) vm(1, other, region, region + kRegion / 2);
  }
}

/* Two processes that wake each other by eventfds. */
static void wake_each_other(int mine, int theirs, int first, int n) {
  uint64_t v = 1;
  for (int i = 0; i < n; ++i) {
    if (first) must(write(theirs, &v, sizeof v) == sizeof v, "write");
    must(read(mine, &v, sizeof v) == sizeof v, "read");
    if (!first) must(write(theirs, &v, sizeof v) == sizeof v, "write");
  }
}

/* Connections of the kernel: socket, connect, accept, close on both sides. */
static double unix_connections(int n) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int name = snprintf(at.sun_path + 1, 60, "uhca-bench-%d", (int)getpid());
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  must(listener >= 0 && bind(listener, (struct sockaddr*)&at, length) == 0 && listen(listener, 8) == 0, "listen");
  uint64_t start = now_ns();
  for (int i = 0; i < n; ++i) {
    int a = socket(AF_UNIX, SOCK_STREAM, 0);
    must(a >= 0 && connect(a, (struct sockaddr*)&at, length) == 0, "connect");
    int b = accept(listener, NULL, NULL);
    must(b >= 0, "accept");
    close(a);
    close(b);
  }
  return (double)(now_ns() - start) / n;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (!strcmp(argv[1], "unix")) {
    printf("ns %.2f\n", unix_connections(20000));
    return 0;
  }
  const char* row = argv[1];
  bytes = (uint32_t)atoi(argv[2]);
  int n = bytes <= 4096 ? 20000 : (int)(2000000000u / bytes / 8) + 50;
  region = mmap(NULL, kRegion, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(region != MAP_FAILED, "mmap");
  if (!strcmp(row, "populate_mlock")) {
    uint64_t spent = 0;
    for (int i = 0; i < n / 10 + 1; ++i) {
      uint64_t start = now_ns();
      void* p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      must(p != MAP_FAILED && mlock(p, bytes) == 0, "mlock");
      spent += now_ns() - start;
      munmap(p, bytes);
    }
    printf("ns %.2f\n", (double)spent / (n / 10 + 1));
    return 0;
  }
  int wakes = !strcmp(row, "wake"), a = eventfd(0, 0), b = eventfd(0, 0);
  must(a >= 0 && b >= 0, "eventfd");
  pid_t parent = getpid(), child = fork();
  must(child >= 0, "fork");
  memset(region, 0, kRegion);
  int lat = !strcmp(row, "vm_lat");
  if (child == 0) {
    pin(1);
    usleep(10000);
    if (wakes) {
      wake_each_other(b, a, 0, n / 10);
    } else if (lat) {
      bounce(parent, 0, n / 10);
      bounce(parent, 0, n);
    } else {
      for (;;) pause();
    }
    _exit(0);
  }
  pin(0);
  usleep(30000);
  double ns;
  if (wakes) {
    uint64_t start = now_ns();
    wake_each_other(a, b, 1, n / 10);
    ns = (double)(now_ns() - start) / (n / 10) / 2;
  } else if (lat) {
    bounce(child, 1, n / 10);
    uint64_t start = now_ns();
    bounce(child, 1, n);
    ns = (double)(now_ns() - start) / n / 2;
  } else {
    int write = !strcmp(row, "vm_write");
    for (int i = 0; i < n / 10; ++i) vm(write, child, region, region + kRegion / 2);
    uint64_t start = now_ns();
    for (int i = 0; i < n; ++i) vm(write, child, region, region + kRegion / 2);
    ns = (double)(now_ns() - start) / n;
    kill(child, 9);
  }
  waitpid(child, NULL, 0);
  printf("ns %.2f\n", ns);
  return 0;
}

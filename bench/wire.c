/* SPDX-License-Identifier: MIT
 *
 * What the kernel's UDP gives between two network namespaces without a NIC: wire ROW BYTES ADDRESS NAMESPACE OTHER_ADDRESS OTHER_NAMESPACE
 * prints nanoseconds an operation. Packets are as long as RoCE's (BTH, payload, ICRC), with the checksum computed and the payload copied, but
 * without any protocol.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kHeader = 12, kTrailer = 4, kPort = 14791, kBatch = 16, kMaxPayload = 4096, kRegion = 1 << 22 };

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void must(int ok, const char* what) {
  if (ok) return;
  perror(what);
  _exit(1);
}
static void pin(int cpu) {
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(cpu, &s);
  sched_setaffinity(0, sizeof s, &s);
}
static int socket_in(const char* address, const char* space, const char* to) {
  char path[200];
  snprintf(path, sizeof path, "/run/netns/%s", space);
  int ns = open(path, O_RDONLY | O_CLOEXEC);
  must(ns >= 0 && setns(ns, CLONE_NEWNET) == 0, path);
  close(ns);
  int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), big = 4 << 20, on = 1;
  must(s >= 0, "socket");
  setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big);
  setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big);
  must(setsockopt(s, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0, "UDP_GRO");
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(kPort)}, b = a;
  must(inet_pton(AF_INET, address, &a.sin_addr) == 1 && inet_pton(AF_INET, to, &b.sin_addr) == 1, "address");
  must(bind(s, (struct sockaddr*)&a, sizeof a) == 0, "bind");
  must(connect(s, (struct sockaddr*)&b, sizeof b) == 0, "connect");
  return s;
}

static uint32_t bytes;
static uint8_t* region;

static void bounce(int s, int first, int n) {
  uint8_t out[kHeader + kMaxPayload + kTrailer] = {0}, in[sizeof out];
  size_t size = kHeader + bytes + kTrailer;
  for (int i = 0; i < n; ++i) {
    if (first) must(send(s, out, size, 0) == (ssize_t)size, "send");
    while (recv(s, in, sizeof in, 0) < 0) must(errno == EAGAIN || errno == ECONNREFUSED, "recv");
    if (!first) must(send(s, out, size, 0) == (ssize_t)size, "send");
  }
}

/* Sends as fast as it can, until it is killed. */
static void pour(int s) {
  static uint8_t heads[64][kHeader], tails[64][kTrailer];
  struct iovec iov[3 * 64];
  int per = (int)(65000 / (kHeader + bytes + kTrailer));
  if (per > 60) per = 60;
  if (bytes == kMaxPayload) per = 15;
  char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
  struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)(3 * per), .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = IPPROTO_UDP;
  c->cmsg_type = UDP_SEGMENT;
  c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
  uint16_t segment = (uint16_t)(kHeader + bytes + kTrailer);
  memcpy(CMSG_DATA(c), &segment, sizeof segment);
  size_t at = 0;
  for (;;) {
    for (int i = 0; i < per; ++i) {
      uint8_t* payload = region + at;
      at = (at + bytes) % (kRegion / 2);
      uint32_t crc = crc32_gzip_refl(crc32_gzip_refl(0, heads[i], kHeader), payload, bytes);
      memcpy(tails[i], &crc, sizeof crc);
      iov[3 * i] = (struct iovec){heads[i], kHeader};
      iov[3 * i + 1] = (struct iovec){payload, bytes};
      iov[3 * i + 2] = (struct iovec){tails[i], kTrailer};
    }
    while (sendmsg(s, &m, 0) < 0) must(errno == EAGAIN || errno == ECONNREFUSED, "sendmsg");
  }
}

/* n packets are taken, whichever come. */
static void take(int s, int n) {
  static uint8_t data[kBatch][1 << 16];
  struct iovec iov[kBatch];
  struct mmsghdr m[kBatch];
  const size_t segment = kHeader + bytes + kTrailer;
  size_t at = 0;
  uint32_t bad = 0;
  while (n > 0) {
    for (int i = 0; i < kBatch; ++i) {
      iov[i] = (struct iovec){data[i], sizeof data[i]};
      m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
    }
    int got = recvmmsg(s, m, kBatch, 0, NULL);
    for (int i = 0; i < got; ++i) {
      for (size_t o = 0; o + segment <= m[i].msg_len; o += segment, --n) {
        const uint8_t* p = data[i] + o;
        uint32_t crc;
        memcpy(&crc, p + kHeader + bytes, sizeof crc);
        bad += crc != crc32_gzip_refl(0, p, kHeader + bytes);
        memcpy(region + kRegion / 2 + at, p + kHeader, bytes);
        at = (at + bytes) % (kRegion / 2);
      }
    }
  }
  must(bad == 0, "checksum");
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const char* row = argv[1];
  bytes = (uint32_t)atoi(argv[2]);
  int lat = !strcmp(row, "udp_lat"), n = lat ? 20000 : bytes >= 4096 ? 200000 : 1000000;
  must(bytes <= kMaxPayload, "size");
  region = aligned_alloc(1 << 21, kRegion);
  must(region != NULL, "memory");
  memset(region, 1, kRegion);
  pid_t child = fork();
  must(child >= 0, "fork");
  if (child == 0) {
    pin(1);
    int s = socket_in(argv[5], argv[6], argv[3]);
    if (lat) {
      bounce(s, 0, n / 10);
      bounce(s, 0, n);
      _exit(0);
    }
    pour(s);
  }
  pin(0);
  int s = socket_in(argv[3], argv[4], argv[5]);
  usleep(50000);
  lat ? bounce(s, 1, n / 10) : take(s, n / 10);
  uint64_t start = now_ns();
  lat ? bounce(s, 1, n) : take(s, n);
  double ns = (double)(now_ns() - start) / n;
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  printf("ns %.2f\n", lat ? ns / 2 : ns);
  return 0;
}

// SPDX-License-Identifier: MIT
#include "kernel/cm/service.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/trace.h"
#include "kernel/core/netdev.h"

namespace uhca::kernel::cm {
namespace {

constexpr unsigned kCallersAtOnce = 64;   // with the lock held; the others wait for the next round
constexpr std::size_t kMaxCallers = 256;  // that are connected and have not spoken yet
constexpr char kPrefix[] = "uhca/v1/cm/";

std::uint64_t inode_of(int fd) {
  struct stat st;
  if (syscall(SYS_fstat, fd, &st) != 0 || !S_ISFIFO(st.st_mode)) return 0;
  return st.st_ino;
}

}  // namespace

void note_channel(std::uint64_t from, std::uint64_t to);

// ---------------------------------------------------------------- open files

// The pipe holds one byte while events wait. We keep the write end only, so that its error state tells of the last close.
class Service::File final : public CmFile {
 public:
  File(Service& s, int write_end, std::uint64_t inode)
      : service_(s), write_end_(write_end), inode_(inode), ucma_(*s.ucma_, &File::ready, this) {}
  ~File() override { fd::close(write_end_); }

  Result<std::size_t> write(UserPtr buf, std::size_t count) override {
    std::lock_guard g(service_.lock_);
    service_.pass_time();
    auto r = ucma_.write(buf, count, &File::file_of, &service_);
    service_.after_work();
    return r;
  }

  Status wait_event() override {
    std::uint32_t seen = sequence_.load();
    {
      inside::Guard guard;
      std::lock_guard g(service_.lock_);
      if (ucma_.has_events()) return success();
    }
    service_.dev_.going_to_sleep();
    // A cancellation point, as the write that this is a part of.
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    long r = syscall(SYS_futex, &sequence_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    int err = r < 0 ? errno : 0;
    pthread_setcanceltype(type, &type);
    if (err == EINTR) return Errno{EINTR};
    return success();
  }

  bool closed() const {
    pollfd p{write_end_, 0, 0};
    return syscall(SYS_poll, &p, 1, 0) == 1 && (p.revents & POLLERR);
  }
  int write_end() const { return write_end_; }
  std::uint64_t inode() const { return inode_; }
  UcmaFile& ucma() { return ucma_; }

 private:
  static Result<UcmaFile*> file_of(void* service, int fd) {
    auto& s = *static_cast<Service*>(service);
    struct stat st;
    if (syscall(SYS_fstat, fd, &st) != 0) return refuse(ENOENT, "rdma_cm: MIGRATE_ID: {} is no descriptor", fd);
    auto it = s.files_.find(st.st_ino);
    if (!S_ISFIFO(st.st_mode) || it == s.files_.end()) return refuse(EINVAL, "rdma_cm: MIGRATE_ID: descriptor {} is no event channel", fd);
    return &it->second->ucma_;
  }

  static void ready(void* self, bool on) {
    auto& f = *static_cast<File*>(self);
    if (on) {
      f.sequence_.fetch_add(1);
      syscall(SYS_futex, &f.sequence_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
    }
    if (on == f.readable_) return;
    char byte = 1;
    if (on) {
      f.readable_ = true;
      // Never with a reader gone: SIGPIPE would be the program's.
      if (!f.closed()) syscall(SYS_write, f.write_end_, &byte, 1);
      return;
    }
    char path[40];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", f.write_end_);
    long r = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (r < 0) {
      log::error("rdma_cm: {} cannot be reopened: the channel stays readable", path);
      return;
    }
    // EAGAIN: a reader that is not ours to stop took the byte. Otherwise it is there still, and the next time takes it out.
    if (syscall(SYS_read, r, &byte, 1) >= 0 || errno == EAGAIN) f.readable_ = false;
    syscall(SYS_close, r);
  }

  Service& service_;
  const int write_end_;
  const std::uint64_t inode_;
  bool readable_ = false;
  std::atomic<std::uint32_t> sequence_{0};
  UcmaFile ucma_;
};

Result<OpenedCmFile> Service::open(bool cloexec, bool nonblock) {
  int p[2];
  if (syscall(SYS_pipe2, p, O_CLOEXEC) != 0) return refuse(errno, "rdma_cm: no pipe for an event channel");
  std::uint64_t inode = inode_of(p[0]);
  int w = fd::adopt(p[1]);
  syscall(SYS_fcntl, w, F_SETFL, O_WRONLY | O_NONBLOCK);
  if (!cloexec) syscall(SYS_fcntl, p[0], F_SETFD, 0);
  if (nonblock) syscall(SYS_fcntl, p[0], F_SETFL, O_NONBLOCK);
  dev_.start_service();
  std::lock_guard g(lock_);
  ensure_thread();
  auto f = std::make_shared<File>(*this, w, inode);
  files_.emplace(inode, f);
  note_channel(0, inode);
  open_files_.fetch_add(1);
  epoll_event e{0, {.fd = w}};  // errors are always reported: the last reader went away
  epoll_ctl(epoll_, EPOLL_CTL_ADD, w, &e);
  return OpenedCmFile{f, p[0]};
}

std::shared_ptr<CmFile> Service::file_of(std::uint64_t inode) {
  std::lock_guard g(lock_);
  auto it = files_.find(inode);
  return it == files_.end() ? nullptr : it->second;
}

void Service::reap_locked() {
  for (auto it = files_.begin(); it != files_.end();) {
    if (!it->second->closed()) {
      ++it;
      continue;
    }
    if (trace::on()) trace::Event("syscall", "close").str("file", "rdma_cm").flag("last", true);
    epoll_ctl(epoll_, EPOLL_CTL_DEL, it->second->write_end(), nullptr);
    note_channel(it->first, 0);
    it->second->ucma().close();  // a thread that sleeps in GET_EVENT may hold the file
    it = files_.erase(it);
    open_files_.fetch_sub(1);
  }
}

void Service::reap() {
  std::lock_guard g(lock_);
  pass_time();
  reap_locked();
  after_work();
}

void Service::close_all() {
  // Threads of the program may be inside a command still: they are not waited for longer than this.
  for (int tries = 0; !lock_.try_lock(); ++tries) {
    if (tries == 100) return;
    timespec ms{0, 1'000'000};
    syscall(SYS_nanosleep, &ms, nullptr);
  }
  pass_time();
  for (auto& [inode, f] : files_) f->ucma().close();
  after_work();
  lock_.unlock();
}

void Service::remove_device() {
  std::lock_guard hold(lock_);
  pass_time();
  cma_->remove_device();
  after_work();
}

// ---------------------------------------------------------------- the thread

Result<std::unique_ptr<Service>> Service::create(ib_device& dev) {
  std::unique_ptr<Service> s(new Service(dev));
  UHCA_CHECK(s->start());
  return s;
}

Service::Service(ib_device& dev) : dev_(dev) {}

// Only of a service that could not start: no thread runs, no file is open.
Service::~Service() {
  fd::close(wake_);
  // The names that are watched go after it.
  fd::close(epoll_);
}

Status Service::start() {
  epoll_ = fd::adopt(epoll_create1(EPOLL_CLOEXEC));
  wake_ = fd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (epoll_ < 0 || wake_ < 0) return refuse(errno, "rdma_cm: no descriptors");
  epoll_event e{EPOLLIN, {.fd = wake_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &e);
  ports_ = std::make_unique<PortSpace>(kPrefix, &Service::watch, this);
  exchange_ = std::make_unique<Exchange>(kPrefix, dev_.function_id, *ports_);
  UHCA_CHECK(exchange_->start());
  peers_ = std::make_unique<PeerWatch>(std::string(kPrefix) + "fn/", &Service::watch, this);
  watch(this, exchange_->fd(), true);
  cm_ = std::make_unique<IbCm>(*this, dev_.function_id, random());
  cma_ = std::make_unique<RdmaCm>(*this, *cm_, *ports_);
  ucma_ = std::make_unique<Ucma>(*cma_, dev_);
  // Last: from here on MADs arrive, and the thread that they start finds everything in place.
  std::lock_guard g(lock_);
  gsi_ = UHCA_TRY(GsiQp::create(
      dev_,
      [](void* self) {
        auto& s = *static_cast<Service*>(self);
        s.ensure_thread();
        s.wake();
      },
      this));
  return success();
}

void Service::watch(void* self, int fd, bool on) {
  auto& s = *static_cast<Service*>(self);
  epoll_event e{EPOLLIN, {.fd = fd}};
  epoll_ctl(s.epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &e);
}

void Service::wake() {
  int saved = errno;
  std::uint64_t one = 1;
  syscall(SYS_write, wake_, &one, sizeof one);
  errno = saved;
}

void Service::pass_time() {
  now_ = SystemClock::instance().now();
  cm_->set_now(now_);
  cma_->set_now(now_);
}

void Service::take_arrived() {
  bool all = gsi_->poll([](void* self, const Mad& mad, const MadInfo& info) { static_cast<Service*>(self)->mad_arrived(mad, info); }, this);
  if (!all) wake();
}

void Service::after_work() {
  // What was sent to an address of this host has come back to our own QP1 already. Handed on here, it is out of the process before the
  // program's command returns: it may exit next, and a kernel would not die with it.
  take_arrived();
  if (next_deadline() < sleeping_until_.load(std::memory_order_relaxed)) wake();
}

void Service::ensure_thread() {
  if (thread_started_.exchange(true)) return;
  if (int err = start_thread(&Service::thread_entry, this)) {
    log::error("rdma_cm: no thread ({}): connections will not make progress", err);
    thread_started_.store(false);
  }
}

void* Service::thread_entry(void* self) {
  pthread_setname_np(pthread_self(), "uhca-cm");
  inside::Guard guard;
  static_cast<Service*>(self)->run();
  return nullptr;
}

void Service::serve_caller(int fd) {
  Mad mad;
  MadInfo info;
  Exchange::Took took = Exchange::take(fd, &mad, &info);
  auto at = std::find(callers_.begin(), callers_.end(), fd);
  if (took == Exchange::Took::kNotYet) {
    if (at != callers_.end()) return;  // it waits already
    if (callers_.size() == kMaxCallers) {
      // Ours speak at once: the oldest is none of them, unless it has spoken since we looked.
      int oldest = callers_.front();
      serve_caller(oldest);
      if (!callers_.empty() && callers_.front() == oldest) {
        fd::close(oldest);
        callers_.pop_front();
      }
    }
    callers_.push_back(fd);
    epoll_event e{EPOLLIN, {.fd = fd}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e);
    return;
  }
  if (at != callers_.end()) callers_.erase(at);
  if (took == Exchange::Took::kWatcher) return peers_->stays(fd);
  fd::close(fd);
  if (took == Exchange::Took::kMad) cm_->receive(mad, info);
}

void Service::mad_arrived(const Mad& mad, const MadInfo& info) {
  if (is_cm_mad(mad)) {
    dispatch({mad, info});
  } else {
    cm_->receive(mad, info);
  }
}

void Service::dispatch(const EarlyRequests::Request& r) {
  Exchange::Owner owner = exchange_->hand_on(r.mad, r.info);
  if (owner == Exchange::Owner::kOther) return;
  if (owner == Exchange::Owner::kNobody && early_.add(r, now_)) return;
  cm_->receive(r.mad, r.info);
}

void Service::met(std::uint32_t function) {
  if (function != dev_.function_id) peers_->add(function);
}

void Service::take_leave() {
  if (!peers_->any_dead()) return;
  // What they said themselves comes first.
  (void)serve_callers(exchange_->fd(), kBacklog);
  for (std::uint32_t function : peers_->dead()) {
    if (trace::on()) trace::Event("cm", "peer_died").unum("function", function);
    cm_->last_words(function);
  }
}

Nanos Service::next_deadline() const {
  if (peers_->any_dead()) return 0;
  return std::min({cm_->next_deadline(), cma_->next_deadline(), early_.next_deadline()});
}

void Service::run() {
  for (;;) {
    if (attend()) continue;
    // The callers that could not be accepted keep their names readable.
    timespec ms{0, 10'000'000};
    syscall(SYS_nanosleep, &ms, nullptr);
  }
}

bool Service::attend() {
  constexpr int kEvents = 16;
  epoll_event events[kEvents];
  bool exhausted = false;
  Nanos deadline;
  {
    std::lock_guard g(lock_);
    deadline = next_deadline();
    sleeping_until_.store(deadline);
  }
  int timeout = -1;
  if (deadline != kNever) {
    Nanos now = SystemClock::instance().now();
    timeout = deadline <= now ? 0 : static_cast<int>(std::min<Nanos>((deadline - now) / 1'000'000 + 1, 3'600'000));
  }
  long n = syscall(SYS_epoll_pwait, epoll_, events, kEvents, timeout, nullptr, 0);
  std::lock_guard g(lock_);
  sleeping_until_.store(0);  // whatever changes now is looked at before the next sleep
  pass_time();
  for (long i = 0; i < n; ++i) {
    int fd = events[i].data.fd;
    if (fd == wake_) {
      std::uint64_t count;
      syscall(SYS_read, wake_, &count, sizeof count);
      continue;
    }
    if (std::find(callers_.begin(), callers_.end(), fd) != callers_.end()) {
      serve_caller(fd);
      continue;
    }
    if (peers_->readable(fd)) continue;
    if (events[i].events & EPOLLERR) {
      reap_locked();
      continue;
    }
    if (!serve_callers(fd, kCallersAtOnce)) exhausted = true;
  }
  take_arrived();
  while (auto r = early_.due(now_)) dispatch(*r);
  take_leave();
  cm_->run_timers();
  cma_->run_timers();
  take_arrived();
  return !exhausted;
}

bool Service::serve_callers(int listening_fd, unsigned most) {
  for (unsigned n = 0; n < most; ++n) {
    int caller = accept_call(listening_fd);
    if (caller < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    serve_caller(fd::adopt(caller));
  }
  return true;
}

// ---------------------------------------------------------------- what the communication manager asks

Result<ib_gid_attr> Service::find_gid(const ib_gid& gid, bool roce_v2) {
  for (const ib_gid_attr& a : rdma_gid_table(dev_, 1))
    if (a.gid == gid && a.roce_v2 == roce_v2) return a;
  return Errno{ENOENT};
}

Result<std::uint16_t> Service::find_pkey(std::uint16_t pkey) {
  ib_port_attr attr;
  if (!dev_.ops.query_pkey || !dev_.ops.query_port || !dev_.ops.query_port(dev_, 1, attr)) return Errno{ENOENT};
  for (std::uint16_t i = 0; i < attr.pkey_tbl_len; ++i) {
    auto p = dev_.ops.query_pkey(dev_, 1, i);
    if (p && (*p & 0x7fff) == (pkey & 0x7fff)) return i;
  }
  return Errno{ENOENT};
}

std::uint8_t Service::active_mtu() const {
  ib_port_attr attr;
  if (!dev_.ops.query_port || !dev_.ops.query_port(dev_, 1, attr)) return 0;
  return attr.active_mtu;
}

ib_gid_attr Service::loopback_gid() {
  ib_gid_attr best;
  // An IPv4 address of the netdev, else a global IPv6 one, else the link-local default.
  auto rank = [](const ib_gid_attr& a) { return !a.valid || !a.roce_v2 ? 0 : is_v4_mapped(a.gid) ? 3 : a.gid[0] == 0xfe ? 1 : 2; };
  for (const ib_gid_attr& a : rdma_gid_table(dev_, 1))
    if (rank(a) > rank(best)) best = a;
  return best;
}

bool Service::is_local_address(const ib_gid& gid) {
  return kernel::is_local_address(gid);
}

bool Service::neighbour_known(int ifindex, const ib_gid& gid) {
  std::array<std::uint8_t, 6> mac;
  return find_neighbour(ifindex, gid, mac);
}

std::uint32_t Service::random() {
  std::uint32_t r = 0;
  if (getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r) r = static_cast<std::uint32_t>(SystemClock::instance().now());
  return r;
}

// ---------------------------------------------------------------- for kernel/sys

namespace {

constinit std::atomic<Service*> the_service{nullptr};
// The channels' inodes, where a child can read them whatever its parent's threads were doing. One more than that many is not recognised
// in a child, which then finds the plain pipe that it is.
constexpr std::size_t kChannels = 256;
constinit std::atomic<std::uint64_t> channels[kChannels]{}, inherited[kChannels]{};

}  // namespace

// An open file more or less, with the service's lock held.
void note_channel(std::uint64_t from, std::uint64_t to) {
  for (auto& c : channels) {
    if (c.load(std::memory_order_relaxed) != from) continue;
    c.store(to);
    return;
  }
}

namespace {

bool contains(const std::atomic<std::uint64_t>* table, std::uint64_t inode) {
  return std::any_of(table, table + kChannels, [&](auto& x) { return x.load(std::memory_order_relaxed) == inode; });
}

}  // namespace

Status rdma_cm_add_device(ib_device& dev) {
  auto s = UHCA_TRY(Service::create(dev));
  the_service.store(s.release(), std::memory_order_release);  // lives as long as the process
  return success();
}

void rdma_cm_remove_device() {
  if (Service* s = the_service.load(std::memory_order_acquire)) s->remove_device();
}

Result<OpenedCmFile> rdma_cm_open(bool cloexec, bool nonblock) {
  Service* s = the_service.load(std::memory_order_acquire);
  if (!s) return refuse(ENODEV, "rdma_cm: the service does not run");
  return s->open(cloexec, nonblock);
}

bool rdma_cm_any_open() {
  Service* s = the_service.load(std::memory_order_acquire);
  return s && s->any_open();
}

std::shared_ptr<CmFile> rdma_cm_file_of(int fd) {
  if (!rdma_cm_any_open()) return nullptr;
  std::uint64_t inode = inode_of(fd);
  if (!inode) return nullptr;
  inside::Guard guard;
  return the_service.load()->file_of(inode);
}

void rdma_cm_reap() {
  if (!rdma_cm_any_open()) return;
  the_service.load()->reap();
}

void rdma_cm_exit() {
  if (rdma_cm_any_open()) the_service.load()->close_all();
}

bool rdma_cm_is_channel(std::uint64_t inode) {
  return contains(channels, inode);
}
bool rdma_cm_inherited(std::uint64_t inode) {
  return contains(inherited, inode);
}

void rdma_cm_forget_after_fork() {
  for (std::size_t i = 0; i < kChannels; ++i)
    if (std::uint64_t inode = channels[i].exchange(0)) inherited[i].store(inode);
  the_service.store(nullptr, std::memory_order_release);
}

}  // namespace uhca::kernel::cm

// SPDX-License-Identifier: MIT
#include "wire/net/netdev_port.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/fd.h"
#include "base/log.h"
#include "wire/net/peek.h"

namespace uhca::wire {
namespace {

// By the driver's name: sysfs may show another network namespace than this one.
bool is_tun(const std::string& name) {
  int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq r{};
  name.copy(r.ifr_name, IFNAMSIZ - 1);
  r.ifr_data = reinterpret_cast<char*>(&info);
  bool tun = s >= 0 && ioctl(s, SIOCETHTOOL, &r) == 0 && std::string_view(info.driver) == "tun";
  if (s >= 0) ::close(s);
  return tun;
}

constexpr std::uint32_t kLookEvery = 16;  // polls that are not thorough

}  // namespace

Status NetdevPort::open_tap(const NetdevInfo& netdev) {
  fd_ = fd::adopt(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (fd_ < 0) return refuse(errno, "/dev/net/tun");
  ifreq r{};
  netdev.name.copy(r.ifr_name, IFNAMSIZ - 1);
  r.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(fd_, TUNSETIFF, &r) != 0) return refuse(errno, "tap device {}", netdev.name);
  tap_ = true;
  return success();
}

Status NetdevPort::open_packet_socket(const NetdevInfo& netdev) {
  fd_ = fd::adopt(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd_ < 0) return refuse(errno, "packet socket");
  int one = 1;
  setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
  packet_mreq promiscuous{};
  promiscuous.mr_ifindex = netdev.ifindex;
  promiscuous.mr_type = PACKET_MR_PROMISC;
  sockaddr_ll a{};
  a.sll_family = AF_PACKET;
  a.sll_protocol = htons(ETH_P_ALL);
  a.sll_ifindex = netdev.ifindex;
  if (setsockopt(fd_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0 ||
      bind(fd_, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0)
    return refuse(errno, "packet socket on {}", netdev.name);
  return success();
}

Result<std::unique_ptr<NetdevPort>> NetdevPort::create(const NetdevInfo& netdev, const Mac& own) {
  std::unique_ptr<NetdevPort> p(new NetdevPort);
  p->own_ = own;
  p->loopback_.resize(kLoopbackFrames);
  UHCA_CHECK(is_tun(netdev.name) ? p->open_tap(netdev) : p->open_packet_socket(netdev));
  p->epoll_ = fd::adopt(epoll_create1(EPOLL_CLOEXEC));
  p->wake_ = fd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (p->epoll_ < 0 || p->wake_ < 0) return refuse(errno, "no descriptors for the port");
  for (int fd : {p->fd_, p->wake_}) {
    epoll_event e{EPOLLIN, {.fd = fd}};
    if (epoll_ctl(p->epoll_, EPOLL_CTL_ADD, fd, &e) != 0) return refuse(errno, "epoll refuses the port's descriptor");
  }
  return p;
}

NetdevPort::~NetdevPort() {
  fd::close(wake_);
  fd::close(epoll_);
  fd::close(fd_);
}

Send NetdevPort::loop_back(Frame frame) {
  if (loop_count_ == kLoopbackFrames) return Send::kBusy;
  if (loop_count_ == 0) {
    std::uint64_t one = 1;
    static_cast<void>(!write(wake_, &one, sizeof one));
  }
  loopback_[(loop_head_ + loop_count_++) % kLoopbackFrames].assign(frame.begin(), frame.end());
  return Send::kSent;
}

Send NetdevPort::send(Frame frame) {
  if (frame.size() < kEthernetHeader || frame.size() > kMaxFrame) return Send::kUnreachable;
  const auto* mac = reinterpret_cast<const std::uint8_t*>(frame.data());
  if (std::equal(own_.begin(), own_.end(), mac)) return loop_back(frame);
  if (write(fd_, frame.data(), frame.size()) != static_cast<ssize_t>(frame.size()))
    return errno == EAGAIN || errno == ENOBUFS ? Send::kBusy : Send::kUnreachable;
  // Now that the frame has been taken: a copy that finds no room is lost alone, for the sender must not send again.
  if (Route r; (mac[0] & 1) && peek_route(frame, r)) static_cast<void>(loop_back(frame));
  return Send::kSent;
}

unsigned NetdevPort::poll(FrameSink& sink, unsigned budget, bool thorough) {
  if (polling_) return 0;  // from inside the sink
  polling_ = true;
  unsigned done = 0;
  while (loop_count_ > 0 && done < budget) {
    // Taken out first: the sink may send to itself.
    std::vector<std::byte> frame = std::move(loopback_[loop_head_]);
    loop_head_ = (loop_head_ + 1) % kLoopbackFrames;
    --loop_count_;
    ++done;
    sink.receive(frame);
  }
  if (thorough) {
    std::uint64_t count;
    static_cast<void>(!read(wake_, &count, sizeof count));
  }
  if (thorough || ++polls_ % kLookEvery == 0) {
    while (done < budget) {
      ssize_t n = read(fd_, buffer_.data(), buffer_.size());
      if (n <= 0) break;
      ++done;
      if (static_cast<std::size_t>(n) > kMaxFrame) {
        static_cast<void>(refuse(
            EMSGSIZE, "frame of more than {} bytes dropped: merged by the interface's receive offload (ethtool -K IF gro off)", kMaxFrame));
        continue;
      }
      sink.receive(Frame(buffer_.data(), static_cast<std::size_t>(n)));
    }
  }
  polling_ = false;
  return done;
}

}  // namespace uhca::wire

// SPDX-License-Identifier: MIT
// Device discovery over NETLINK_RDMA (rdma_netlink.h): GET dumps the devices, GET_CHARDEV names the character device of each, SYS_GET tells
// about copy-on-fork.
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "user/verbs/internal.h"

namespace uhca::verbs {
namespace {

// The attributes of one answer, by type; only those that discovery reads.
class Attributes {
 public:
  Attributes(const void* data, std::size_t len) {
    auto* p = static_cast<const char*>(data);
    while (len >= NLA_HDRLEN) {
      nlattr a;
      std::memcpy(&a, p, sizeof a);
      if (a.nla_len < NLA_HDRLEN || a.nla_len > len) break;
      const unsigned type = a.nla_type & NLA_TYPE_MASK;
      if (type < RDMA_NLDEV_ATTR_MAX) {
        data_[type] = p + NLA_HDRLEN;
        len_[type] = static_cast<std::uint16_t>(a.nla_len - NLA_HDRLEN);
      }
      const std::size_t step = NLA_ALIGN(a.nla_len);
      if (step >= len) break;
      p += step;
      len -= step;
    }
  }
  template <class T>
  bool get(unsigned type, T* out) const {
    if (!data_[type] || len_[type] < sizeof(T)) return false;
    std::memcpy(out, data_[type], sizeof(T));
    return true;
  }
  // A NUL-terminated copy; false when absent or too long.
  bool get_string(unsigned type, char* out, std::size_t size) const {
    if (!data_[type]) return false;
    const std::size_t n = strnlen(data_[type], len_[type]);
    if (n == 0 || n >= size) return false;
    std::memcpy(out, data_[type], n);
    out[n] = '\0';
    return true;
  }

 private:
  const char* data_[RDMA_NLDEV_ATTR_MAX] = {};
  std::uint16_t len_[RDMA_NLDEV_ATTR_MAX] = {};
};

class Socket {
 public:
  Socket() : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA)) {
    sockaddr_nl local{};
    local.nl_family = AF_NETLINK;
    if (fd_ >= 0 && bind(fd_, reinterpret_cast<sockaddr*>(&local), sizeof local)) {
      close(fd_);
      fd_ = -1;
    }
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  bool ok() const { return fd_ >= 0; }

  // Sends one request and hands every answer to f(Attributes) -> bool. True when all went well.
  template <class F>
  bool request(unsigned command, unsigned flags, const void* attrs, std::size_t attrs_len, F f) {
    struct {
      nlmsghdr hdr;
      char body[128];
    } msg{};
    if (attrs_len > sizeof msg.body) return false;
    msg.hdr.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(attrs_len));
    msg.hdr.nlmsg_type = static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
    msg.hdr.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    msg.hdr.nlmsg_seq = ++seq_;
    if (attrs_len) std::memcpy(msg.body, attrs, attrs_len);
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    if (sendto(fd_, &msg, msg.hdr.nlmsg_len, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) < 0) return false;
    return receive(flags & NLM_F_DUMP, f);
  }

 private:
  template <class F>
  bool receive(bool dump, F f) {
    // One page per datagram is what the kernel makes dumps of; single answers are smaller.
    constexpr std::size_t kSize = 32768;
    char* buf = static_cast<char*>(std::malloc(kSize));
    if (!buf) return false;
    bool ok = true, more = true;
    while (ok && more) {
      ssize_t n = recv(fd_, buf, kSize, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        ok = false;
        break;
      }
      std::size_t left = static_cast<std::size_t>(n);
      const char* p = buf;
      while (ok && left >= sizeof(nlmsghdr)) {
        nlmsghdr h;
        std::memcpy(&h, p, sizeof h);
        if (h.nlmsg_len < sizeof h || h.nlmsg_len > left) {
          ok = false;
          break;
        }
        if (h.nlmsg_type == NLMSG_DONE) {
          more = false;
        } else if (h.nlmsg_type == NLMSG_ERROR) {
          int error = 0;
          if (h.nlmsg_len >= NLMSG_LENGTH(sizeof error)) std::memcpy(&error, p + NLMSG_HDRLEN, sizeof error);
          if (error) errno = -error;
          ok = error == 0;
          more = false;
        } else if (h.nlmsg_type != NLMSG_NOOP && h.nlmsg_seq == seq_) {
          ok = f(Attributes(p + NLMSG_HDRLEN, h.nlmsg_len - NLMSG_HDRLEN));
          if (!dump) more = false;
        }
        const std::size_t step = NLMSG_ALIGN(h.nlmsg_len);
        if (step >= left) break;
        p += step;
        left -= step;
      }
    }
    std::free(buf);
    return ok;
  }

  int fd_;
  std::uint32_t seq_ = 0;
};

bool add_device(const Attributes& a, verbs_sysfs_dev** list) {
  std::uint32_t index, ports;
  std::uint64_t guid;
  std::uint8_t type;
  auto* dev = static_cast<verbs_sysfs_dev*>(std::calloc(1, sizeof(verbs_sysfs_dev)));
  if (!dev) return false;
  if (!a.get(RDMA_NLDEV_ATTR_DEV_INDEX, &index) || !a.get(RDMA_NLDEV_ATTR_PORT_INDEX, &ports) || !a.get(RDMA_NLDEV_ATTR_NODE_GUID, &guid) ||
      !a.get(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, &type) || !a.get_string(RDMA_NLDEV_ATTR_DEV_NAME, dev->ibdev_name, sizeof dev->ibdev_name)) {
    std::free(dev);
    return false;
  }
  int n = std::snprintf(dev->ibdev_path, sizeof dev->ibdev_path, "%s/class/infiniband/%s", ibv_get_sysfs_path(), dev->ibdev_name);
  if (n < 0 || static_cast<std::size_t>(n) >= sizeof dev->ibdev_path) {
    std::free(dev);
    return false;
  }
  dev->ibdev_idx = static_cast<int>(index);
  dev->num_ports = ports;
  dev->node_guid = guid;
  dev->have_node_guid = true;
  dev->node_type = decode_node_type(type);
  dev->driver_id = VERBS_DRIVER_ID_UNKNOWN;
  dev->next = *list;
  *list = dev;
  return true;
}

bool find_chardev(Socket& nl, verbs_sysfs_dev* dev) {
  struct {
    nlattr index_hdr;
    std::uint32_t index;
    nlattr type_hdr;
    char type[8];
  } attrs = {{NLA_HDRLEN + 4, RDMA_NLDEV_ATTR_DEV_INDEX},
             static_cast<std::uint32_t>(dev->ibdev_idx),
             {NLA_HDRLEN + 7, RDMA_NLDEV_ATTR_CHARDEV_TYPE},
             "uverbs"};
  static_assert(sizeof attrs == 20);
  return nl.request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, &attrs, sizeof attrs, [dev](const Attributes& a) {
    std::uint64_t abi, cdev;
    if (!a.get(RDMA_NLDEV_ATTR_CHARDEV, &cdev) || !a.get(RDMA_NLDEV_ATTR_CHARDEV_ABI, &abi) ||
        !a.get_string(RDMA_NLDEV_ATTR_CHARDEV_NAME, dev->sysfs_name, sizeof dev->sysfs_name))
      return false;
    dev->abi_ver = static_cast<std::uint32_t>(abi);
    if (!a.get(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, &dev->driver_id)) dev->driver_id = VERBS_DRIVER_ID_UNKNOWN;
    // The kernel's huge_encode_dev: minor bits 7..0, major bits 19..8, minor bits 31..20.
    dev->sysfs_cdev = makedev((cdev & 0xfff00) >> 8, (cdev & 0xff) | ((cdev >> 12) & 0xfff00));
    return true;
  });
}

}  // namespace

int find_devices_netlink(verbs_sysfs_dev** list) {
  *list = nullptr;
  Socket nl;
  if (!nl.ok()) return EOPNOTSUPP;
  verbs_sysfs_dev* found = nullptr;
  if (!nl.request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP, nullptr, 0, [&](const Attributes& a) { return add_device(a, &found); })) {
    free_sysfs_devs(found);
    return EINVAL;
  }
  for (verbs_sysfs_dev* next; found; found = next) {
    next = found->next;
    bool usable = find_chardev(nl, found);
    if (!usable) {
      // Older kernels do not answer GET_CHARDEV; the device's own directory tells the same.
      char dir[IBV_SYSFS_PATH_MAX + 64];
      std::snprintf(dir, sizeof dir, "%s/device/infiniband_verbs", found->ibdev_path);
      usable = read_uverbs_dir(-1, dir, found);
    }
    if (usable && cdev_exists(found)) {
      found->next = *list;
      *list = found;
    } else {
      std::free(found);
    }
  }
  return 0;
}

bool kernel_copies_on_fork() {
  Socket nl;
  std::uint8_t copies = 0;
  return nl.ok() && nl.request(RDMA_NLDEV_CMD_SYS_GET, 0, nullptr, 0, [&](const Attributes& a) {
    if (!a.get(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, &copies)) copies = 0;
    return true;
  }) && copies;
}

}  // namespace uhca::verbs

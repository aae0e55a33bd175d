// SPDX-License-Identifier: MIT
#include "kernel/sys/netlink.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "kernel/cm/file.h"
#include "kernel/sys/view.h"

namespace uhca::sys {
namespace {

using kernel::ib_device;

class Message {
 public:
  Message(std::uint16_t type, std::uint16_t flags, std::uint32_t seq, std::uint32_t portid) {
    nlmsghdr h{NLMSG_HDRLEN, type, flags, seq, portid};
    raw(&h, sizeof h);
  }
  void raw(const void* p, std::size_t n) {
    bytes_.append(static_cast<const char*>(p), n);
    bytes_.resize((bytes_.size() + 3) & ~std::size_t{3});
  }
  void attr(std::uint16_t type, const void* p, std::size_t n) {
    nlattr a{static_cast<std::uint16_t>(NLA_HDRLEN + n), type};
    raw(&a, sizeof a);
    raw(p, n);
  }
  void u8(std::uint16_t type, std::uint8_t v) { attr(type, &v, 1); }
  void u32(std::uint16_t type, std::uint32_t v) { attr(type, &v, 4); }
  void u64(std::uint16_t type, std::uint64_t v) { attr(type, &v, 8); }
  void str(std::uint16_t type, const std::string& v) { attr(type, v.c_str(), v.size() + 1); }
  const std::string& finish() {
    auto n = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &n, 4);
    return bytes_;
  }

 private:
  std::string bytes_;
};

struct Request {
  const nlmsghdr* hdr;
  bool has_index = false, has_port = false;
  std::uint32_t index = 0, port = 0;
  std::string chardev_type;
};

bool parse(const nlmsghdr* h, Request* r) {
  r->hdr = h;
  const char* p = reinterpret_cast<const char*>(h) + NLMSG_HDRLEN;
  std::size_t left = h->nlmsg_len - NLMSG_HDRLEN;
  while (left >= NLA_HDRLEN) {
    nlattr a;
    std::memcpy(&a, p, sizeof a);
    if (a.nla_len < NLA_HDRLEN || a.nla_len > left) return false;
    const char* v = p + NLA_HDRLEN;
    std::size_t n = a.nla_len - NLA_HDRLEN;
    switch (a.nla_type & NLA_TYPE_MASK) {
      case RDMA_NLDEV_ATTR_DEV_INDEX:
        if (n < 4) return false;
        std::memcpy(&r->index, v, 4);
        r->has_index = true;
        break;
      case RDMA_NLDEV_ATTR_PORT_INDEX:
        if (n < 4) return false;
        std::memcpy(&r->port, v, 4);
        r->has_port = true;
        break;
      case RDMA_NLDEV_ATTR_CHARDEV_TYPE: r->chardev_type.assign(v, strnlen(v, n)); break;
      default: break;  // unknown attributes are ignored, as the kernel's liberal parsing does
    }
    std::size_t step = NLA_ALIGN(a.nla_len);
    if (step > left) break;
    p += step;
    left -= step;
  }
  return true;
}

// Capability bits of RDMA_NLDEV_ATTR_CAP_FLAGS are ib_device_attr's flags.
void fill_device(Message& m, ib_device& d) {
  m.u32(RDMA_NLDEV_ATTR_DEV_INDEX, d.index);
  m.str(RDMA_NLDEV_ATTR_DEV_NAME, d.name);
  m.u32(RDMA_NLDEV_ATTR_PORT_INDEX, d.num_ports);
  m.u64(RDMA_NLDEV_ATTR_CAP_FLAGS, d.attrs.device_cap_flags);
  m.str(RDMA_NLDEV_ATTR_FW_VERSION, d.fw_ver);
  m.u64(RDMA_NLDEV_ATTR_NODE_GUID, d.node_guid);
  m.u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, d.sys_image_guid);
  m.u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, 1);  // RDMA_NODE_IB_CA
  m.u8(RDMA_NLDEV_ATTR_DEV_DIM, 0);
  m.str(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce");
}

int fill_port(Message& m, ib_device& d, std::uint32_t port) {
  kernel::ib_port_attr a;
  if (!d.ops.query_port) return EOPNOTSUPP;
  if (auto s = d.ops.query_port(d, port, a); !s) return s.code();
  m.u32(RDMA_NLDEV_ATTR_DEV_INDEX, d.index);
  m.str(RDMA_NLDEV_ATTR_DEV_NAME, d.name);
  m.u32(RDMA_NLDEV_ATTR_PORT_INDEX, port);
  m.u64(RDMA_NLDEV_ATTR_CAP_FLAGS, a.port_cap_flags | static_cast<std::uint64_t>(a.port_cap_flags2) << 32);
  m.u8(RDMA_NLDEV_ATTR_PORT_STATE, a.state);
  m.u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, a.phys_state);
  if (d.netdev_ifindex) {
    m.u32(RDMA_NLDEV_ATTR_NDEV_INDEX, static_cast<std::uint32_t>(d.netdev_ifindex));
    m.str(RDMA_NLDEV_ATTR_NDEV_NAME, d.netdev);
  }
  return 0;
}

int fill_chardev(Message& m, ib_device& d, const Request& r) {
  if (r.chardev_type.empty()) return EINVAL;
  if (r.chardev_type == "rdma_cm" && !r.has_index) {
    m.u64(RDMA_NLDEV_ATTR_CHARDEV, kRdmaCmMinor | std::uint64_t{kMiscMajor} << 8);  // huge_encode_dev
    m.u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, kernel::cm::kRdmaCmAbiVersion);
    m.str(RDMA_NLDEV_ATTR_CHARDEV_NAME, "rdma_cm");
    return 0;
  }
  if (!r.has_index || r.index != d.index) return r.has_index ? ENODEV : EOPNOTSUPP;
  if (r.chardev_type != "uverbs") return EOPNOTSUPP;
  std::uint64_t major = kVerbsMajor, minor = kVerbsMinorBase + static_cast<unsigned>(d.uverbs_minor);
  // huge_encode_dev
  m.u64(RDMA_NLDEV_ATTR_CHARDEV, (minor & 0xff) | major << 8 | (minor & ~std::uint64_t{0xff}) << 12);
  m.u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, d.ops.uverbs_abi_ver);
  m.str(RDMA_NLDEV_ATTR_CHARDEV_NAME, "uverbs" + std::to_string(d.uverbs_minor));
  m.u32(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, d.ops.driver_id);
  return 0;
}

void fill_sys(Message& m) {
  m.u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1);  // shared
  // Registered memory of a child is copied at fork time by the child's own page tables here: nothing of the parent is pinned away.
  m.u8(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
}

// The answer to one message; several parts for a dump.
int answer_one(ib_device& d, const Request& r, std::uint32_t portid, std::vector<std::string>* parts) {
  const nlmsghdr& h = *r.hdr;
  if (RDMA_NL_GET_CLIENT(h.nlmsg_type) != RDMA_NL_NLDEV) return EINVAL;  // no such client: nothing listens there
  bool dump = h.nlmsg_flags & NLM_F_DUMP;
  unsigned op = RDMA_NL_GET_OP(h.nlmsg_type);
  Message m(h.nlmsg_type, dump ? NLM_F_MULTI : 0, h.nlmsg_seq, portid);
  int err = 0;
  auto wants_device = [&] { return !r.has_index ? EINVAL : r.index != d.index ? ENODEV : 0; };
  auto wants_port = [&] { return r.has_port && (r.port == 0 || r.port > d.num_ports) ? EINVAL : 0; };
  switch (op) {
    case RDMA_NLDEV_CMD_GET:
      if (!dump) err = wants_device();
      if (!err) fill_device(m, d);
      break;
    case RDMA_NLDEV_CMD_PORT_GET:
      // A dump of ports needs to be told the device, too.
      err = wants_device();
      if (!err && !dump) err = r.has_port ? wants_port() : EINVAL;
      if (err) break;
      if (!dump) {
        err = fill_port(m, d, r.port);
        break;
      }
      for (std::uint32_t port = 1; port <= d.num_ports; ++port) {
        Message each(h.nlmsg_type, NLM_F_MULTI, h.nlmsg_seq, portid);
        err = fill_port(each, d, port);
        if (err) return err;
        parts->push_back(each.finish());
      }
      return 0;
    case RDMA_NLDEV_CMD_GET_CHARDEV:
      if (dump) return EOPNOTSUPP;
      err = fill_chardev(m, d, r);
      break;
    case RDMA_NLDEV_CMD_SYS_GET:
      if (dump) return EOPNOTSUPP;
      fill_sys(m);
      break;
    default: return EOPNOTSUPP;
  }
  if (!err) parts->push_back(m.finish());
  return err;
}

}  // namespace

void netlink_answer(ib_device& dev, std::string_view request, std::uint32_t portid, void (*send)(void*, const void*, std::size_t),
                    void* context) {
  while (request.size() >= NLMSG_HDRLEN) {
    nlmsghdr h;
    std::memcpy(&h, request.data(), sizeof h);
    if (h.nlmsg_len < NLMSG_HDRLEN || h.nlmsg_len > request.size()) return;
    std::string copy(request.substr(0, h.nlmsg_len));
    std::vector<std::string> parts;
    Request r{};
    const auto* hdr = reinterpret_cast<const nlmsghdr*>(copy.data());
    // Control messages and replies go unanswered (Linux: rdma_nl_rcv_skb).
    if ((h.nlmsg_flags & NLM_F_REQUEST) && h.nlmsg_type >= NLMSG_MIN_TYPE) {
      int err = parse(hdr, &r) ? answer_one(dev, r, portid, &parts) : EINVAL;
      if (err) {
        Errno why = refuse(err, "netlink: client {} command {} flags {:#x}", RDMA_NL_GET_CLIENT(h.nlmsg_type), RDMA_NL_GET_OP(h.nlmsg_type),
                           h.nlmsg_flags);
        err = why.value;
      }
      bool dump = (h.nlmsg_flags & NLM_F_DUMP) && !err;
      if (dump) {
        Message done(NLMSG_DONE, NLM_F_MULTI, h.nlmsg_seq, portid);
        int zero = 0;
        done.raw(&zero, sizeof zero);
        parts.push_back(done.finish());
        // The parts of a dump share datagrams, up to what a reader's buffer holds.
        std::string datagram;
        for (auto& p : parts) {
          if (datagram.size() + p.size() > 4096) {
            send(context, datagram.data(), datagram.size());
            datagram.clear();
          }
          datagram += p;
        }
        send(context, datagram.data(), datagram.size());
      } else {
        for (auto& p : parts) send(context, p.data(), p.size());
        if (err || (h.nlmsg_flags & NLM_F_ACK)) {
          Message ack(NLMSG_ERROR, 0, h.nlmsg_seq, portid);
          nlmsgerr e{-err, h};
          ack.raw(&e, sizeof e);
          if (err) ack.raw(copy.data() + NLMSG_HDRLEN, copy.size() - NLMSG_HDRLEN);
          auto& bytes = ack.finish();
          send(context, bytes.data(), bytes.size());
        }
      }
    }
    std::size_t step = NLMSG_ALIGN(h.nlmsg_len);
    if (step >= request.size()) return;
    request.remove_prefix(step);
  }
}

}  // namespace uhca::sys

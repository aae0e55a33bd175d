// SPDX-License-Identifier: MIT
#include "device/pci/vfio_user_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"

namespace uhca::pci::vfio_user {
namespace {

// The fixed part of a request. false: the message is shorter.
template <class T>
bool parse(const Message& m, T& out) {
  if (m.payload.size() < sizeof(T)) return false;
  std::memcpy(&out, m.payload.data(), sizeof(T));
  return true;
}

template <class T>
void answer(Device::Reply& r, const T& value) {
  r.payload.resize(sizeof(T));
  std::memcpy(r.payload.data(), &value, sizeof(T));
}

int too_short(const Message& m) {
  return refuse(EINVAL, "vfio-user {}: {} bytes are too few", command_name(m.header.command), m.payload.size()).value;
}

ConfigIdentity config_identity(const DeviceIdentity& id, const Engine& engine) {
  return {.vendor_id = id.vendor_id,
          .device_id = id.device_id,
          .bar0_size = engine.bar0_size(),
          .vectors = Msix::kVectors,
          .msix_table = kMsixTable,
          .msix_pba = kMsixPba};
}

// The largest naturally aligned access at `offset` within `left` bytes.
unsigned access_size(std::uint64_t offset, std::size_t left) {
  unsigned size = 8;
  while (size > left || offset % size != 0) size /= 2;
  return size;
}

bool in_table(std::uint64_t offset) {
  return offset >= kMsixTable && offset < kMsixTable + Msix::kTableBytes;
}
bool in_pba(std::uint64_t offset) {
  return offset >= kMsixPba && offset < kMsixPba + Msix::kPbaBytes;
}

}  // namespace

Device::Device(const DeviceIdentity& identity, GuestBus& bus, Engine& engine, Nanos patience)
    : bus_(bus), engine_(engine), config_(config_identity(identity, engine)), combine_writes_(patience != 0), combiner_(engine, patience) {}

Status Device::handle(Message& m, Reply& reply) {
  auto command = static_cast<Command>(m.header.command);
  if ((m.header.flags & kTypeMask) != kTypeCommand)
    return refuse(EPROTO, "vfio-user: a message of type {} where a command was due", m.header.flags & kTypeMask);
  if (!negotiated_ && command != Command::kVersion) {
    reply.error = refuse(EINVAL, "vfio-user {}: before VERSION", command_name(m.header.command)).value;
    return Errno{EPROTO};
  }
  switch (command) {
    case Command::kVersion:
      reply.error = version(m, reply);
      if (!negotiated_) return Errno{EPROTO};
      break;
    case Command::kDmaMap: reply.error = dma_map(m); break;
    case Command::kDmaUnmap: reply.error = dma_unmap(m, reply); break;
    case Command::kGetInfo: reply.error = get_info(m, reply); break;
    case Command::kGetRegionInfo: reply.error = get_region_info(m, reply); break;
    case Command::kGetIrqInfo: reply.error = get_irq_info(m, reply); break;
    case Command::kSetIrqs: reply.error = set_irqs(m); break;
    case Command::kRegionRead: reply.error = region_read(m, reply); break;
    case Command::kRegionWrite: reply.error = region_write(m, reply); break;
    case Command::kRegionWriteMulti: reply.error = region_write_multi(m, reply); break;
    case Command::kReset:
      if (trace::on()) trace::Event("pci", "RESET").str("by", "DEVICE_RESET");
      reset_function();
      break;
    default:
      reply.error = refuse(ENOTSUP, "vfio-user: command {} ({}) is not offered", m.header.command, command_name(m.header.command)).value;
  }
  if (reply.error != 0) reply.payload.clear();
  return success();
}

int Device::version(Message& m, Reply& r) {
  Version v;
  if (!parse(m, v)) return too_short(m);
  if (negotiated_) return refuse(EINVAL, "vfio-user VERSION: a second time").value;
  if (v.major != kMajor) return refuse(EINVAL, "vfio-user VERSION: {}.{} is not spoken here", v.major, v.minor).value;
  // The client's capabilities are a text of its own; nothing that it could say changes what this server sends.
  if (m.payload.size() > sizeof v && m.payload.back() != 0) return refuse(EINVAL, "vfio-user VERSION: capabilities without an end").value;
  Version ours{kMajor, std::min(v.minor, kMinor)};
  std::string caps = fmt::format(
      "{{\"capabilities\":{{\"max_msg_fds\":{},\"max_data_xfer_size\":{},\"max_dma_maps\":{},\"pgsizes\":{},\"write_multiple\":true}}}}",
      kMaxFds, kMaxTransfer, kMaxDmaRegions, kPageSize);
  answer(r, ours);
  r.payload.insert(r.payload.end(), caps.c_str(), caps.c_str() + caps.size() + 1);
  negotiated_ = true;
  return 0;
}

int Device::dma_map(Message& m) {
  DmaMap q;
  if (!parse(m, q)) return too_short(m);
  if (q.flags & ~(kDmaReadable | kDmaWritable)) return refuse(EINVAL, "vfio-user DMA_MAP: flags {:#x}", q.flags).value;
  if (m.fds.size() > 1) return refuse(EINVAL, "vfio-user DMA_MAP: {} descriptors", m.fds.size()).value;
  int fd = m.fds.size() == 1 ? m.fds.peek(0) : -1;
  if (trace::on()) trace::Event("pci", "DMA_MAP").hex("addr", q.address).hex("size", q.size).hex("flags", q.flags).flag("fd", fd >= 0);
  return bus_.dma.map(q.address, q.size, q.flags & kDmaReadable, q.flags & kDmaWritable, fd, q.offset).code();
}

int Device::dma_unmap(Message& m, Reply& r) {
  DmaUnmap q;
  if (!parse(m, q)) return too_short(m);
  if (q.flags & ~kUnmapAll) return refuse(EINVAL, "vfio-user DMA_UNMAP: flags {:#x}", q.flags).value;
  if (trace::on()) trace::Event("pci", "DMA_UNMAP").hex("addr", q.address).hex("size", q.size).hex("flags", q.flags);
  if (q.flags & kUnmapAll) {
    if (q.address != 0 || q.size != 0) return refuse(EINVAL, "vfio-user DMA_UNMAP: all, and a range").value;
    bus_.dma.clear();
  } else if (Status s = bus_.dma.unmap(q.address, q.size); !s.ok()) {
    return s.code();
  }
  q.argsz = sizeof q;
  answer(r, q);
  return 0;
}

int Device::get_info(Message& m, Reply& r) {
  DeviceInfo q;
  if (!parse(m, q)) return too_short(m);
  answer(r, DeviceInfo{sizeof(DeviceInfo), kDeviceReset | kDevicePci, kRegions, kIrqs});
  return 0;
}

int Device::get_region_info(Message& m, Reply& r) {
  RegionInfo q;
  if (!parse(m, q)) return too_short(m);
  if (q.index >= kRegions) return refuse(EINVAL, "vfio-user DEVICE_GET_REGION_INFO: region {}", q.index).value;
  RegionInfo info{};
  info.argsz = sizeof info;
  info.index = q.index;
  if (q.index == kRegionBar0) info.size = engine_.bar0_size();
  if (q.index == kRegionConfig) info.size = ConfigSpace::kBytes;
  if (info.size != 0) info.flags = kRegionReadable | kRegionWritable;
  answer(r, info);
  return 0;
}

int Device::get_irq_info(Message& m, Reply& r) {
  IrqInfo q;
  if (!parse(m, q)) return too_short(m);
  if (q.index >= kIrqs) return refuse(EINVAL, "vfio-user DEVICE_GET_IRQ_INFO: index {}", q.index).value;
  bool msix = q.index == kIrqMsix;
  answer(r, IrqInfo{sizeof(IrqInfo), msix ? kIrqEventfd | kIrqMaskable : 0, q.index, msix ? Msix::kVectors : 0});
  return 0;
}

int Device::set_irqs(Message& m) {
  SetIrqs q;
  if (!parse(m, q)) return too_short(m);
  constexpr std::uint32_t kData = kIrqDataNone | kIrqDataBool | kIrqDataEventfd;
  constexpr std::uint32_t kAction = kIrqActionMask | kIrqActionUnmask | kIrqActionTrigger;
  std::uint32_t data = q.flags & kData, action = q.flags & kAction;
  if ((q.flags & ~(kData | kAction)) != 0 || std::popcount(data) != 1 || std::popcount(action) != 1)
    return refuse(EINVAL, "vfio-user DEVICE_SET_IRQS: flags {:#x}", q.flags).value;
  if (q.index >= kIrqs) return refuse(EINVAL, "vfio-user DEVICE_SET_IRQS: index {}", q.index).value;
  std::uint32_t vectors = q.index == kIrqMsix ? Msix::kVectors : 0;
  if (q.start > vectors || q.count > vectors - q.start)
    return refuse(EINVAL, "vfio-user DEVICE_SET_IRQS: {} vectors from {} on, index {} has {}", q.count, q.start, q.index, vectors).value;
  if (trace::on())
    trace::Event("pci", "SET_IRQS")
        .hex("flags", q.flags)
        .unum("index", q.index)
        .unum("start", q.start)
        .unum("count", q.count)
        .unum("fds", m.fds.size());
  if (data == kIrqDataNone && action == kIrqActionTrigger && q.count == 0) {  // the index is turned off
    for (unsigned v = 0; v < vectors; ++v) static_cast<void>(bus_.msix.connect(v, -1));
    return 0;
  }
  if (data == kIrqDataEventfd) {
    if (action != kIrqActionTrigger) return refuse(EINVAL, "vfio-user DEVICE_SET_IRQS: masking by descriptor is not offered").value;
    // No descriptors at all: the vectors are disconnected.
    if (m.fds.size() != 0 && m.fds.size() != q.count)
      return refuse(EINVAL, "vfio-user DEVICE_SET_IRQS: {} descriptors for {} vectors", m.fds.size(), q.count).value;
    for (unsigned i = 0; i < q.count; ++i)
      if (Status s = bus_.msix.connect(q.start + i, m.fds.take(i)); !s.ok()) return s.code();
    return 0;
  }
  std::span<const std::uint8_t> chosen = m.payload.subspan(sizeof q);
  if (data == kIrqDataBool && chosen.size() < q.count) return too_short(m);
  for (unsigned i = 0; i < q.count; ++i) {
    if (data == kIrqDataBool && chosen[i] == 0) continue;
    if (action == kIrqActionTrigger) bus_.msix.raise(q.start + i);
    if (action == kIrqActionMask) bus_.msix.set_client_mask(q.start + i, true);
    if (action == kIrqActionUnmask) bus_.msix.set_client_mask(q.start + i, false);
  }
  return 0;
}

int Device::check_access(std::uint32_t region, std::uint64_t offset, std::uint64_t count) {
  std::uint64_t size = region == kRegionBar0 ? engine_.bar0_size() : region == kRegionConfig ? ConfigSpace::kBytes : 0;
  if (count <= kMaxTransfer && offset <= size && count <= size - offset) return 0;
  return refuse(EINVAL, "vfio-user: {} bytes at {:#x} of region {}, which has {:#x}", count, offset, region, size).value;
}

std::uint64_t Device::bar_read(std::uint64_t offset, unsigned size) {
  combiner_.flush();
  if (!in_table(offset) && !in_pba(offset)) return engine_.mmio_read(offset, size);
  std::uint64_t word = offset & ~std::uint64_t{3};
  auto read32 = [&](std::uint64_t at) -> std::uint64_t {
    return in_table(at) ? bus_.msix.read_table(at - kMsixTable) : bus_.msix.read_pba(at - kMsixPba);
  };
  std::uint64_t v = read32(word);
  if (size == 8) v |= read32(word + 4) << 32;
  return v >> (8 * (offset - word));
}

void Device::bar_write(std::uint64_t offset, std::uint64_t value, unsigned size) {
  if (in_pba(offset)) return;  // read-only
  if (!in_table(offset)) {
    if (combine_writes_ && size == 8) {
      combiner_.store(offset, value, SystemClock::instance().now());
      return;
    }
    combiner_.flush();
    engine_.mmio_write(offset, value, size);
    return;
  }
  if (size < 4) return;  // the table takes whole words only
  for (unsigned i = 0; i < size; i += 4) bus_.msix.write_table(offset - kMsixTable + i, static_cast<std::uint32_t>(value >> (8 * i)));
}

int Device::region_read(Message& m, Reply& r) {
  RegionAccess q;
  if (!parse(m, q)) return too_short(m);
  if (int e = check_access(q.region, q.offset, q.count); e != 0) return e;
  answer(r, q);
  r.payload.resize(sizeof q + q.count);
  std::uint8_t* out = r.payload.data() + sizeof q;
  if (q.region == kRegionConfig) {
    config_.read(q.offset, out, q.count);
    return 0;
  }
  for (std::size_t done = 0; done < q.count;) {
    unsigned size = access_size(q.offset + done, q.count - done);
    std::uint64_t v = bar_read(q.offset + done, size);
    std::memcpy(out + done, &v, size);
    done += size;
  }
  return 0;
}

void Device::write(std::uint32_t region, std::uint64_t offset, std::span<const std::uint8_t> data) {
  if (region == kRegionConfig) {
    if (config_.write(offset, data.data(), data.size())) {
      if (trace::on()) trace::Event("pci", "RESET").str("by", "FLR");
      reset_function();
    }
    bus_.msix.set_function_mask(config_.msix_function_mask());
    return;
  }
  for (std::size_t done = 0; done < data.size();) {
    unsigned size = access_size(offset + done, data.size() - done);
    std::uint64_t v = 0;
    std::memcpy(&v, data.data() + done, size);
    bar_write(offset + done, v, size);
    done += size;
  }
}

int Device::region_write(Message& m, Reply& r) {
  RegionAccess q;
  if (!parse(m, q)) return too_short(m);
  if (int e = check_access(q.region, q.offset, q.count); e != 0) return e;
  if (m.payload.size() - sizeof q < q.count) return too_short(m);
  write(q.region, q.offset, m.payload.subspan(sizeof q, q.count));
  answer(r, q);
  return 0;
}

int Device::region_write_multi(Message& m, Reply& r) {
  WriteMulti q;
  if (!parse(m, q)) return too_short(m);
  if (q.count > kMaxWrites || m.payload.size() - sizeof q < q.count * sizeof(WriteOne)) return too_short(m);
  std::uint64_t done = 0;
  int error = 0;
  for (; done < q.count && error == 0; ++done) {
    WriteOne w;
    std::memcpy(&w, m.payload.data() + sizeof q + done * sizeof w, sizeof w);
    error = w.count > sizeof w.data ? EINVAL : check_access(w.region, w.offset, w.count);
    if (error == 0) write(w.region, w.offset, std::span(w.data).first(w.count));
  }
  answer(r, WriteMulti{done});
  return error;
}

void Device::reset_function() {
  combiner_.reset();
  engine_.reset();
  config_.reset();
  bus_.msix.reset();
}

void Device::disconnect() {
  reset_function();
  bus_.dma.clear();
  bus_.msix.forget_client();
  negotiated_ = false;
}

}  // namespace uhca::pci::vfio_user

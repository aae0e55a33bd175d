// SPDX-License-Identifier: MIT
// MAD_IFC: subnet management MADs to the device itself, as far as drivers ask an Ethernet port. Sources: IBTA volume 1, 13.4.3 (MAD
// header), 14.2.5 (SM attributes).
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "prm/cmd_qp.h"

namespace uhca::hca::cmd {
namespace {

constexpr std::size_t kHeaderStatus = 4, kHeaderAttribute = 16, kSmpData = 64;
constexpr std::uint8_t kClassSmp = 0x01, kClassDirected = 0x81;
enum Method : std::uint8_t { kGet = 0x01, kSet = 0x02, kGetResp = 0x81 };
enum Attribute : std::uint16_t { kNodeDescription = 0x10, kNodeInfo = 0x11, kPortInfo = 0x15, kPkeyTable = 0x16 };
constexpr std::uint16_t kUnsupportedAttribute = 0x000c;  // MAD status: method/attribute combination

void node_info(Command& c, std::uint8_t* d) {
  d[0] = 1;  // base version
  d[1] = 1;  // class version
  d[2] = 1;  // channel adapter
  d[3] = 1;  // ports
  store_be<std::uint64_t>(d + 4, c.st.vport.system_image_guid);
  store_be<std::uint64_t>(d + 12, c.st.vport.node_guid);
  store_be<std::uint64_t>(d + 20, c.st.vport.port_guid);
  store_be<std::uint16_t>(d + 28, 128);  // partition table
  store_be<std::uint16_t>(d + 30, c.hca.config().device_id);
  store_be<std::uint32_t>(d + 36, 1u << 24 | 0x0002c9);  // local port, vendor
}

void port_info(Command& c, std::uint8_t* d) {
  bool up = c.st.port.admin_status == 1;
  d[32] = up ? 4 : 1;                                    // port state: Active, Down
  d[33] = static_cast<std::uint8_t>((up ? 5 : 3) << 4);  // physical state: LinkUp, Disabled
}

}  // namespace

Status mad_ifc(Command& c) {
  std::uint32_t port = c.get<prm::mad_ifc_in::port>();
  if (port > 1) return c.refuse(Status::BAD_PARAM, "no port {}", port);
  const std::uint8_t* in = c.at<prm::mad_ifc_in::mad>();
  if (in[0] != 1) return c.refuse(Status::BAD_PKT, "MAD base version {}", in[0]);
  if (in[1] != kClassSmp && in[1] != kClassDirected) return c.refuse(Status::BAD_PKT, "management class {:#x}", in[1]);
  if (in[3] != kGet && in[3] != kSet) return c.refuse(Status::BAD_PKT, "method {:#x}", in[3]);
  std::uint8_t* out = c.out_at<prm::mad_ifc_out::response_mad_packet>();
  std::memcpy(out, in, kSmpData);
  out[3] = kGetResp;
  std::uint8_t* data = out + kSmpData;
  std::uint16_t status = 0;
  switch (in[3] == kGet ? load_be<std::uint16_t>(in + kHeaderAttribute) : 0) {
    case kNodeDescription: std::memcpy(data, c.st.port.node_desc.data(), 64); break;
    case kNodeInfo: node_info(c, data); break;
    case kPortInfo: port_info(c, data); break;
    case kPkeyTable: store_be<std::uint16_t>(data, 0xffff); break;
    default: status = kUnsupportedAttribute; break;
  }
  store_be<std::uint16_t>(out + kHeaderStatus, status);
  return Status::OK;
}

}  // namespace uhca::hca::cmd

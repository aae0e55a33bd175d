// SPDX-License-Identifier: MIT
// Bring-up and tear-down, pages, capabilities, adapter. Order as drivers/net/ethernet/mellanox/mlx5/core/main.c goes.
#include <algorithm>
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "prm/hca_cap.h"
#include "prm/other_caps.h"

namespace uhca::hca::cmd {
namespace {

// Firmware keeps its own state in pages of the host: so many before and at INIT_HCA.
constexpr std::uint32_t kBootPages = 3, kInitPages = 5;
constexpr std::uint32_t kOwnFunction = 0;
enum PagesOp : std::uint16_t { kCannotGive = 0, kGive = 1, kTake = 2 };
enum QueryPagesOp : std::uint16_t { kBoot = 1, kInit = 2, kRegular = 3 };

bool other_function(Command& c) {
  return prm::get<prm::query_pages_in::function_id>(c.in()) != kOwnFunction || prm::get<prm::query_pages_in::embedded_cpu_function>(c.in());
}

}  // namespace

Status enable_hca(Command& c) {
  if (other_function(c)) return c.refuse(Status::BAD_PARAM, "no function {}", c.get<prm::enable_hca_in::function_id>());
  c.st.enabled = true;  // again: harmless, as on a function that was left enabled
  return Status::OK;
}

Status disable_hca(Command& c) {
  if (other_function(c)) return c.refuse(Status::BAD_PARAM, "no function {}", c.get<prm::disable_hca_in::function_id>());
  if (c.st.initialized) return c.refuse(Status::BAD_SYS_STATE, "before TEARDOWN_HCA");
  if (!c.st.pages.empty()) return c.refuse(Status::BAD_SYS_STATE, "{} pages were not taken back", c.st.pages.size());
  c.st.reset();
  return Status::OK;
}

Status query_issi(Command& c) {
  c.set<prm::query_issi_out::current_issi>(c.st.issi);
  c.set<prm::query_issi_out::supported_issi_dw0>(0x3);  // 0 and 1
  return Status::OK;
}

Status set_issi(Command& c) {
  std::uint32_t issi = c.get<prm::set_issi_in::current_issi>();
  if (issi > 1) return c.refuse(Status::BAD_PARAM, "ISSI {} is not supported", issi);
  if (c.st.initialized) return c.refuse(Status::BAD_SYS_STATE, "after INIT_HCA");
  c.st.issi = static_cast<std::uint16_t>(issi);
  return Status::OK;
}

Status query_pages(Command& c) {
  if (other_function(c)) return c.refuse(Status::BAD_PARAM, "no function {}", c.get<prm::query_pages_in::function_id>());
  std::uint32_t wanted = 0;
  switch (c.op_mod()) {
    case kBoot: wanted = kBootPages; break;
    case kInit: wanted = kInitPages; break;
    case kRegular: wanted = 0; break;
    default: return c.refuse(Status::BAD_PARAM, "op_mod {}", c.op_mod());
  }
  c.set<prm::query_pages_out::num_pages>(wanted);
  return Status::OK;
}

namespace {

Status give_pages(Command& c) {
  std::uint32_t n = c.get<prm::manage_pages_in::input_num_entries>();
  auto list = c.tail(prm::manage_pages_in::kBytes);
  if (n > list.size() / 8) return c.refuse(Status::BAD_INP_LEN, "{} pages announced, {} in the list", n, list.size() / 8);
  std::unordered_set<pci::DmaAddr> fresh;
  for (std::uint32_t i = 0; i < n; ++i) {
    pci::DmaAddr page = load_be<std::uint64_t>(list.data() + i * 8);
    if (page % 4096 != 0) return c.refuse(Status::BAD_PARAM, "page {:#x} is not aligned", page);
    if (c.st.page_set.contains(page) || !fresh.insert(page).second) return c.refuse(Status::BAD_PARAM, "page {:#x} was given before", page);
  }
  for (std::uint32_t i = 0; i < n; ++i) c.st.pages.push_back(load_be<std::uint64_t>(list.data() + i * 8));
  c.st.page_set.merge(fresh);
  return Status::OK;
}

// Last given, first returned. While the HCA runs, what it needs stays.
Status take_pages(Command& c) {
  std::size_t needed = c.st.initialized ? kBootPages + kInitPages : 0;
  std::size_t spare = c.st.pages.size() > needed ? c.st.pages.size() - needed : 0;
  std::size_t room = (c.out_bytes.size() - prm::manage_pages_out::kBytes) / 8;
  std::size_t n = std::min({spare, room, std::size_t{c.get<prm::manage_pages_in::input_num_entries>()}});
  for (std::size_t i = 0; i < n; ++i) {
    c.set<prm::manage_pages_out::pas>(c.st.pages.back(), i);
    c.st.page_set.erase(c.st.pages.back());
    c.st.pages.pop_back();
  }
  c.set<prm::manage_pages_out::output_num_entries>(n);
  return Status::OK;
}

}  // namespace

Status manage_pages(Command& c) {
  if (other_function(c)) return c.refuse(Status::BAD_PARAM, "no function {}", c.get<prm::manage_pages_in::function_id>());
  switch (c.op_mod()) {
    case kCannotGive: return Status::OK;  // the driver's answer to a request that it cannot meet
    case kGive: return give_pages(c);
    case kTake: return take_pages(c);
    default: return c.refuse(Status::BAD_PARAM, "op_mod {}", c.op_mod());
  }
}

Status query_hca_cap(Command& c) {
  unsigned type = c.op_mod() >> 1;
  bool current = c.op_mod() & 1;
  if (c.get<prm::query_hca_cap_in::other_function>()) return c.refuse(Status::BAD_PARAM, "no other function");
  const Caps::Group* g = current ? c.st.caps.current(type) : c.st.caps.max(type);
  if (g == nullptr) return c.refuse(Status::BAD_PARAM, "no capabilities of type {:#x}", type);
  // Programs ask for as much as they know (rdma-core's tests: 2048 bytes).
  std::size_t room = c.out_bytes.size() - prm::byte_of<prm::query_hca_cap_out::capability>;
  std::memcpy(c.out_at<prm::query_hca_cap_out::capability>(), g->data(), std::min(room, g->size()));
  return Status::OK;
}

Status set_hca_cap(Command& c) {
  unsigned type = c.op_mod() >> 1;
  if (c.get<prm::set_hca_cap_in::other_function>()) return c.refuse(Status::BAD_PARAM, "no other function");
  if (c.st.initialized) return c.refuse(Status::BAD_SYS_STATE, "after INIT_HCA");
  Caps::Group* g = c.st.caps.current(type);
  if (g == nullptr) return c.refuse(Status::BAD_PARAM, "no capabilities of type {:#x}", type);
  const std::uint8_t* wanted = c.at<prm::set_hca_cap_in::capability>();
  if (const char* field = c.st.caps.exceeds(type, wanted)) return c.refuse(Status::BAD_PARAM, "{} exceeds what the device can do", field);
  if (type == static_cast<unsigned>(CapType::kAtomic)) {
    // One setting; Linux leaves all the rest zero (main.c: handle_hca_cap_atomic).
    using endianness = prm::atomic_caps;
    prm::set<endianness::atomic_req_8B_endianness_mode>(g->data(), prm::get<endianness::atomic_req_8B_endianness_mode>(wanted));
    return Status::OK;
  }
  std::memcpy(g->data(), wanted, g->size());
  return Status::OK;
}

Status init_hca(Command& c) {
  if (c.st.initialized) return c.refuse(Status::BAD_SYS_STATE, "initialized before");
  if (c.st.pages.size() < kBootPages + kInitPages)
    return c.refuse(Status::BAD_SYS_STATE, "{} pages given, {} needed", c.st.pages.size(), kBootPages + kInitPages);
  c.st.initialized = true;
  return Status::OK;
}

Status teardown_hca(Command& c) {
  // Graceful (0) or forced (1): what is left goes with it, and nothing of it touches host memory any more.
  std::uint32_t profile = c.get<prm::teardown_hca_in::profile>();
  if (profile > 1) return c.refuse(Status::BAD_PARAM, "profile {} is not offered", profile);
  c.hca.data_path().reset();
  c.st.port_counters_base = Counters{};  // the engine counts from 0 again
  c.hca.clear_objects();
  c.st.forget_objects();
  c.st.initialized = false;
  return Status::OK;
}

Status query_adapter(Command& c) {
  void* block = c.out_at<prm::query_adapter_out::query_adapter_struct>();
  prm::set<prm::query_adapter_param_block::ieee_vendor_id>(block, 0x2c9);
  prm::set<prm::query_adapter_param_block::vsd_vendor_id>(block, 0x15b3);
  static constexpr char kPsid[16] = "UHC0000000001";  // "board_id" in sysfs
  std::memcpy(prm::at<prm::query_adapter_param_block::vsd_contd_psid>(block), kPsid, sizeof kPsid);
  return Status::OK;
}

Status nop(Command&) {
  return Status::OK;
}

Status query_special_contexts(Command& c) {
  c.set<prm::query_special_contexts_out::resd_lkey>(kReservedLkey);
  return Status::OK;
}

Status set_driver_version(Command& c) {
  const char* v = reinterpret_cast<const char*>(c.at<prm::set_driver_version_in::driver_version>());
  c.st.driver_version.assign(v, strnlen(v, 64));
  return Status::OK;
}

}  // namespace uhca::hca::cmd

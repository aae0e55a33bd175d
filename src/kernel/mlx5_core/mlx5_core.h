// SPDX-License-Identifier: MIT
// The device as its drivers see it after bring-up. Linux: struct mlx5_core_dev in <linux/mlx5/driver.h>.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/pci/bus.h"
#include "kernel/mlx5_core/cmd.h"
#include "kernel/mlx5_core/eq.h"
#include "kernel/mlx5_core/object_table.h"
#include "kernel/mlx5_core/pages.h"
#include "kernel/mlx5_core/rl.h"
#include "kernel/mm/umem.h"
#include "prm/cmd_core.h"
#include "prm/hca_cap.h"
#include "prm/layout.h"
#include "prm/other_caps.h"
#include "prm/qos.h"

namespace uhca::kernel::mlx5 {

// What event handlers call. Both callbacks run on any thread and take only locks that are never held across a command.
struct mlx5_core_cq : TableObject {
  std::uint32_t cqn = 0;
  void (*comp)(mlx5_core_cq& cq) = nullptr;
  void (*event)(mlx5_core_cq& cq, EventType type) = nullptr;
  // In the place of comp, for who wants the EQE (64 bytes).
  void (*comp_eqe)(mlx5_core_cq& cq, const std::uint8_t* eqe) = nullptr;
};
struct mlx5_core_qp : TableObject {
  std::uint32_t qpn = 0;
  std::uint32_t ece = 0;  // what CREATE_QP granted
  void (*event)(mlx5_core_qp& qp, EventType type) = nullptr;
};

struct mlx5_core_srq : TableObject {
  std::uint32_t srqn = 0;
  void (*event)(mlx5_core_srq& srq, EventType type) = nullptr;
};

// QUERY_HCA_CAP op_mod >> 1 (Linux device.h: enum mlx5_cap_type).
enum class CapType : std::uint8_t {
  GENERAL = 0,
  ETHERNET = 1,
  ODP = 2,
  ATOMIC = 3,
  ROCE = 4,
  FLOW_TABLE = 7,
  QOS = 0xc,
  DEV_MEM = 0xf,
  VDPA_EMULATION = 0x13
};

struct RoceAddressEntry {
  bool valid = false;
  bool ipv6 = false;  // else IPv4-mapped
  bool v2 = true;     // RoCE v2, else v1
  std::array<std::uint8_t, 16> gid{};
  std::array<std::uint8_t, 6> mac{};
};

struct NicVportContext {
  std::uint64_t system_image_guid = 0, node_guid = 0;  // host order
  std::array<std::uint8_t, 6> mac{};
  std::uint16_t mtu = 0;
  std::uint8_t min_inline = 0;
  bool roce_en = false;
};

class mlx5_core_dev {
 public:
  // Brings the device up; on failure everything is undone again. The endpoint must outlive the result.
  static Result<std::unique_ptr<mlx5_core_dev>> probe(pci::Endpoint& endpoint);
  // Like probe, with a command fault armed from the start.
  static Result<std::unique_ptr<mlx5_core_dev>> probe(pci::Endpoint& endpoint, const CommandFault* fault);
  // Mirror order. All objects of its users are gone already.
  ~mlx5_core_dev();
  mlx5_core_dev(const mlx5_core_dev&) = delete;
  mlx5_core_dev& operator=(const mlx5_core_dev&) = delete;

  pci::Endpoint& endpoint() { return endpoint_; }
  mm::IommuDomain& domain() { return *domain_; }
  CommandQueue& cmd() { return cmd_; }
  FirmwarePages& pages() { return pages_; }
  RateTable& rates() { return rates_; }

  // Current capabilities.
  template <prm::Field F>
  auto cap_gen() const {
    return prm::get<F>(caps_[slot(CapType::GENERAL)].data());
  }
  template <prm::Field F>
  std::uint32_t cap_eth() const {
    return prm::get<F>(caps_[slot(CapType::ETHERNET)].data());
  }
  template <prm::Field F>
  std::uint32_t cap_atomic() const {
    return prm::get<F>(caps_[slot(CapType::ATOMIC)].data());
  }
  template <prm::Field F>
  std::uint32_t cap_roce() const {
    return prm::get<F>(caps_[slot(CapType::ROCE)].data());
  }
  template <prm::Field F>
  auto cap_qos() const {
    return prm::get<F>(caps_[slot(CapType::QOS)].data());
  }
  template <prm::Field F>
  auto cap_vdpa() const {
    return prm::get<F>(caps_[slot(CapType::VDPA_EMULATION)].data());
  }

  template <prm::Field F>
  auto cap_dev_mem() const {
    return prm::get<F>(caps_[slot(CapType::DEV_MEM)].data());
  }

  const void* cap_odp() const { return caps_[slot(CapType::ODP)].data(); }

  // What NIC receive flow tables can do, and what they match (flow_table_prop_layout, flow_table_fields_supported).
  const void* flow_rx() const {
    return prm::at<prm::flow_table_nic_cap::flow_table_properties_nic_receive>(
        static_cast<const void*>(caps_[slot(CapType::FLOW_TABLE)].data()));
  }
  const void* flow_rx_fields() const { return prm::at<prm::flow_table_prop_layout::ft_field_support>(flow_rx()); }

  // Pages for the doorbells of emulated virtio devices.
  bool has_vars() const { return cap_gen<prm::cmd_hca_cap::general_obj_types>() & prm::qos::kObjTypesVirtioNetQ; }

  std::uint16_t fw_rev_major() const { return fw_major_; }
  std::uint16_t fw_rev_minor() const { return fw_minor_; }
  std::uint16_t fw_rev_subminor() const { return fw_subminor_; }
  const std::string& board_id() const { return board_id_; }  // PSID of QUERY_ADAPTER
  std::uint32_t ieee_vendor_id() const { return ieee_vendor_id_; }
  std::uint32_t uar() const { return uar_; }  // the driver's own UAR page

  // ---- completion vectors
  unsigned num_comp_vectors() const { return static_cast<unsigned>(comp_eqs_.size()); }
  // EINVAL: no such vector.
  Result<std::uint32_t> comp_eqn(unsigned vector) const;

  // ---- plain objects (errors: as the firmware answers)
  // `uid`: the user context that shall own it; 0: the driver.
  Result<std::uint32_t> alloc_uar(std::uint16_t uid = 0);
  Status dealloc_uar(std::uint32_t uar);
  Result<std::uint32_t> alloc_pd(std::uint16_t uid = 0);
  Status dealloc_pd(std::uint32_t pdn);
  Result<std::uint32_t> alloc_transport_domain(std::uint16_t uid = 0);
  Status dealloc_transport_domain(std::uint32_t td);
  Result<std::uint32_t> alloc_xrcd();
  Status dealloc_xrcd(std::uint32_t xrcdn);
  // `in`: a whole create_mkey_in with MTTs. Gives the key: index << 8 | a variant byte of the driver's choice.
  Result<std::uint32_t> create_mkey(std::vector<std::uint8_t>& in);
  Status destroy_mkey(std::uint32_t key);
  // A key over all of the domain, local access only (Linux: mlx5_core_create_mkey in PA mode).
  Result<std::uint32_t> create_pa_mkey(std::uint32_t pdn);
  // QUERY_SPECIAL_CONTEXTS.
  struct SpecialContexts {
    std::uint32_t null_mkey = 0, dump_fill_mkey = 0, resd_lkey = 0;
  };
  Result<SpecialContexts> query_special_contexts();

  // ---- CQs and QPs: `in` is the whole create command; the object is found by events from then on.
  Status create_cq(mlx5_core_cq& cq, std::vector<std::uint8_t>& in);
  // No callback of the CQ runs after this.
  Status destroy_cq(mlx5_core_cq& cq);
  // For CQs that are created and destroyed otherwise (DEVX). False: no place. After untrack_cq no callback runs.
  bool track_cq(mlx5_core_cq& cq) { return cqs_.insert(cq.cqn, &cq); }
  void untrack_cq(mlx5_core_cq& cq) { cqs_.remove(cq.cqn, &cq); }
  Status create_qp(mlx5_core_qp& qp, std::vector<std::uint8_t>& in);
  Status destroy_qp(mlx5_core_qp& qp);
  // RQs and SQs, whose commands mlx5_ib issues: their numbers are none of a QP's. False: no place. After untrack_qp no callback runs.
  bool track_qp(mlx5_core_qp& qp) { return qps_.insert(qp.qpn, &qp); }
  void untrack_qp(mlx5_core_qp& qp) { qps_.remove(qp.qpn, &qp); }
  // SRQs are of several kinds, whose commands mlx5_ib issues; here their events are routed. ENOMEM.
  Status add_srq(mlx5_core_srq& srq);
  // No callback of the SRQ runs after this.
  void remove_srq(mlx5_core_srq& srq) { srqs_.remove(srq.srqn, &srq); }

  // ---- user contexts (DEVX): a uid under which commands may be issued
  Result<std::uint16_t> create_uctx(std::uint32_t caps);  // prm::kUctxCap*
  Status destroy_uctx(std::uint16_t uid);

  // ---- port and vport
  struct PortSpeed {
    std::uint32_t eth_proto_oper = 0;  // PTYS bits
    std::uint32_t ext_eth_proto_oper = 0;
    std::uint16_t data_rate_oper = 0;  // 100 Mb/s
  };
  Result<PortSpeed> query_port_speed();
  Result<std::uint16_t> query_port_mtu();  // oper_mtu, bytes
  struct VportState {
    bool admin_up = false, up = false;
  };
  Result<VportState> query_vport_state();
  Result<NicVportContext> query_nic_vport();
  Status set_roce(bool on);
  Status set_roce_address(std::uint16_t index, const RoceAddressEntry& entry);

  // Every asynchronous event (not commands, pages, completions), as an EQE of 64 bytes, before its own receiver. One tap; any thread. It
  // may run until the device is destroyed, which `context` outlives.
  void set_event_tap(void (*tap)(void*, const std::uint8_t* eqe), void* context);
  // Port events: sub type of the EQE (1 down, 4 up; Linux: MLX5_PORT_CHANGE_SUBTYPE_*). One listener; any thread.
  void set_port_listener(void (*listener)(void*, std::uint8_t sub_type), void* context);

 private:
  // Those types that this driver asks for, without gaps.
  static constexpr std::size_t slot(CapType t) {
    return t == CapType::FLOW_TABLE       ? 2
           : t == CapType::QOS            ? 5
           : t == CapType::VDPA_EMULATION ? 6
           : t == CapType::DEV_MEM        ? 7
           : t == CapType::ODP            ? 8
                                          : static_cast<std::size_t>(t);
  }
  explicit mlx5_core_dev(pci::Endpoint& endpoint);
  Status bring_up();
  void tear_down();
  // The steps, each with what undoes it.
  Status wait_fw_init();
  Status start_commands();
  Status enable_hca();
  void disable_hca();
  Status set_issi();
  Status set_host_endianness();
  Status query_cap(CapType type, bool maximum, void* capability);
  Status set_cap(CapType type, const void* capability);
  Status negotiate_caps();
  Status boot_pages();
  Status init_pages();
  void reclaim_pages();
  Status init_hca();
  void teardown_hca();
  Status query_caps();
  Status query_adapter();
  Status start_uar();
  void stop_uar();
  Status start_async_eq(std::size_t place, std::unique_ptr<EventQueue>& eq, unsigned log_entries, std::uint64_t mask,
                        EventQueue::Handler handler);
  Status start_async_eqs();
  void stop_async_eqs();
  Status start_comp_eqs();
  void stop_comp_eqs();

  // op with a number in the output bits 0x48..0x5f / in the input, where every alloc/dealloc command has it.
  Result<std::uint32_t> alloc_number(prm::Opcode op, std::uint16_t uid = 0);
  Status dealloc_number(prm::Opcode op, std::uint32_t number);
  Status access_reg(std::uint16_t id, bool write, void* data, std::size_t len);

  static void async_irq(void* self);
  static void comp_irq(void* eq);
  static void cmd_eqe(void* self, const std::uint8_t* eqe);
  static void async_eqe(void* self, const std::uint8_t* eqe);
  static void pages_eqe(void* self, const std::uint8_t* eqe);
  static void comp_eqe(void* self, const std::uint8_t* eqe);

  pci::Endpoint& endpoint_;
  std::unique_ptr<mm::IommuDomain> domain_;
  CommandQueue cmd_;
  FirmwarePages pages_;
  std::vector<void (mlx5_core_dev::*)()> undo_;

  std::uint16_t fw_major_ = 0, fw_minor_ = 0, fw_subminor_ = 0;
  std::string board_id_;
  std::uint32_t ieee_vendor_id_ = 0;
  std::array<std::array<std::uint8_t, 4096>, 9> caps_{};  // [slot(type)]
  std::uint32_t uar_ = 0;
  RateTable rates_{*this};

  // Events.
  std::unique_ptr<EventQueue> cmd_eq_, async_eq_, pages_eq_;
  // What the handler of vector 0 polls; published one after another during bring-up.
  std::array<std::atomic<EventQueue*>, 3> async_queues_{};
  std::vector<std::unique_ptr<EventQueue>> comp_eqs_;
  ObjectTable<mlx5_core_cq> cqs_;
  ObjectTable<mlx5_core_qp> qps_;
  ObjectTable<mlx5_core_srq> srqs_;
  std::atomic<void (*)(void*, std::uint8_t)> port_listener_{nullptr};
  std::atomic<void*> port_context_{nullptr};
  std::atomic<void (*)(void*, const std::uint8_t*)> event_tap_{nullptr};
  std::atomic<void*> tap_context_{nullptr};
  std::atomic<std::uint8_t> mkey_variant_{0};
};

}  // namespace uhca::kernel::mlx5

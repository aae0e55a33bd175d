// SPDX-License-Identifier: MIT
#include "device/hca/caps.h"

#include "device/hca/hca.h"
#include "device/hca/qos.h"
#include "prm/congestion.h"
#include "prm/cq_moderation.h"
#include "prm/hca_cap.h"
#include "prm/memic.h"
#include "prm/other_caps.h"
#include "prm/qos.h"

namespace uhca::hca {
namespace {

// Values of a ConnectX-6 Dx where the engine can do the same; 0 is what it cannot do (and what drivers can live without).
void fill_general(std::uint8_t* c, const HcaConfig& config) {
  using cap = prm::cmd_hca_cap;
  // How many, how large.
  prm::set<cap::log_max_qp>(c, kLogMaxQp);
  prm::set<cap::log_max_qp_sz>(c, kLogMaxQpSize);
  prm::set<cap::log_max_srq>(c, 16);
  prm::set<cap::log_max_srq_sz>(c, kLogMaxSrqSize);
  prm::set<cap::log_max_rmp>(c, 16);
  prm::set<cap::log_max_cq>(c, 24);
  prm::set<cap::log_max_cq_sz>(c, kLogMaxCqSize);
  prm::set<cap::log_max_eq>(c, 7);
  prm::set<cap::log_max_eq_sz>(c, kLogMaxEqSize);
  prm::set<cap::max_num_eqs>(c, 64);
  prm::set<cap::log_max_mkey>(c, 24);
  prm::set<cap::log_max_mrw_sz>(c, 64);
  prm::set<cap::log_max_klm_list_size>(c, kLogMaxKlmList);
  prm::set<cap::max_indirection>(c, 4);
  prm::set<cap::log_max_pd>(c, 24);
  prm::set<cap::log_max_xrcd>(c, 24);
  prm::set<cap::log_max_transport_domain>(c, 16);
  prm::set<cap::log_max_mcg>(c, 21);
  prm::set<cap::max_qp_mcg>(c, kMaxQpPerMulticast);
  prm::set<cap::log_max_ra_req_qp>(c, 4);
  prm::set<cap::log_max_ra_res_qp>(c, 4);
  prm::set<cap::log_max_msg>(c, kLogMaxMsg);
  prm::set<cap::max_wqe_sz_sq>(c, 1024);  // 30 gather entries in a SEND or WRITE
  prm::set<cap::max_wqe_sz_rq>(c, 512);   // 32 scatter entries
  prm::set<cap::max_qp_cnt>(c, 64);
  // What queue pairs can do.
  prm::set<cap::rc>(c, 1);
  prm::set<cap::uc>(c, 1);
  prm::set<cap::ud>(c, 1);
  prm::set<cap::xrc>(c, 1);
  prm::set<cap::dct>(c, config.offer_dc);
  prm::set<cap::log_max_ra_req_dc>(c, config.offer_dc ? 4 : 0);
  prm::set<cap::log_max_ra_res_dc>(c, config.offer_dc ? 4 : 0);
  prm::set<cap::max_wqe_sz_sq_dc>(c, config.offer_dc ? 1024 : 0);
  prm::set<cap::log_max_dci_stream_channels>(c, config.offer_dc ? kLogMaxDciStreams : 0);
  prm::set<cap::log_max_dci_errored_streams>(c, config.offer_dc ? kLogMaxDciStreams : 0);
  prm::set<cap::atomic>(c, 1);
  prm::set<cap::ece_support>(c, 1);
  prm::set<cap::sctr_data_cqe>(c, 1);
  prm::set<cap::cqe_version>(c, 1);
  prm::set<cap::compact_address_vector>(c, 1);
  prm::set<cap::cq_oi>(c, 1);
  prm::set<cap::cq_resize>(c, 1);
  prm::set<cap::cqe_128_always>(c, 1);
  // Sessions of compressed CQEs are an opportunity that a device may take; this one writes every CQE in full.
  prm::set<cap::cqe_compression>(c, 1);
  prm::set<cap::cqe_compression_128>(c, 1);
  prm::set<cap::cqe_compression_max_num>(c, 64);
  prm::set<cap::mini_cqe_resp_stride_index>(c, 1);
  prm::set<cap::cq_moderation>(c, 1);
  prm::set<prm::cap_cq_period_mode_modify>(c, 1);
  prm::set<cap::cq_period_start_from_cqe>(c, 1);
  prm::set<cap::block_lb_mc>(c, 1);
  prm::set<cap::imaicl>(c, 1);  // memory windows, invalidation
  prm::set<cap::qkv>(c, 1);
  prm::set<cap::pkv>(c, 1);
  prm::set<cap::umr_fence>(c, 2);
  prm::set<cap::rts2rts_qp_counters_set_id>(c, 1);
  prm::set<cap::local_ca_ack_delay>(c, 16);
  // The port.
  prm::set<cap::port_type>(c, 1);
  prm::set<cap::num_ports>(c, 1);
  prm::set<cap::native_port_num>(c, 1);
  prm::set<cap::roce>(c, 1);
  prm::set<cap::pkey_table_size>(c, 0);  // 128 << n entries
  prm::set<cap::gid_table_size>(c, 1);
  prm::set<cap::vport_counters>(c, 1);
  prm::set<cap::out_of_seq_cnt>(c, 1);
  prm::set<cap::retransmission_q_counters>(c, 1);
  prm::set<cap::enhanced_error_q_counters>(c, 1);
  prm::set<prm::congestion::cap_q_counter_aggregation>(c, 1);
  prm::set<cap::cc_query_allowed>(c, 1);
  prm::set<cap::cc_modify_allowed>(c, 1);
  // Ethernet.
  prm::set<cap::eth_net_offloads>(c, 1);
  prm::set<cap::nic_flow_table>(c, 1);
  prm::set<cap::nic_vport_change_event>(c, 1);
  prm::set<cap::disable_local_lb_uc>(c, 1);
  prm::set<cap::disable_local_lb_mc>(c, 1);
  prm::set<cap::max_tc>(c, 8);
  prm::set<cap::log_max_rq>(c, 10);
  prm::set<cap::log_max_sq>(c, 10);
  prm::set<cap::log_max_tir>(c, 12);
  prm::set<cap::log_max_tis>(c, 10);
  prm::set<cap::log_max_tis_per_sq>(c, 3);
  prm::set<cap::log_max_rqt>(c, 12);
  prm::set<cap::log_max_rqt_size>(c, kLogMaxRqtSize);
  prm::set<cap::basic_cyclic_rcv_wqe>(c, 1);
  prm::set<cap::log_max_stride_sz_rq>(c, 10);
  prm::set<cap::log_min_stride_sz_rq>(c, 4);
  prm::set<cap::log_max_stride_sz_sq>(c, 9);
  prm::set<cap::log_min_stride_sz_sq>(c, 6);
  prm::set<cap::log_max_wq_sz>(c, kLogMaxWqSize);
  prm::set<cap::log_max_current_uc_list>(c, 7);
  prm::set<cap::log_max_current_mc_list>(c, 11);
  prm::set<cap::log_max_vlan_list>(c, 12);
  prm::set<cap::log_max_l2_table>(c, kLogMaxL2Table);
  prm::set<cap::max_flow_counter_15_0>(c, 0xffff);
  prm::set<cap::flow_counter_bulk_alloc>(c, 0);
  // BAR, pages, clock, driver.
  prm::set<cap::uar_4k>(c, 1);
  prm::set<cap::uar_sz>(c, 5);  // 32 MiB
  prm::set<cap::num_of_uars_per_page>(c, 1);
  prm::set<cap::bf>(c, config.blue_flame ? 1 : 0);  // else WQEs come from memory: a copy through a register would only cost more stores
  prm::set<cap::log_bf_reg_size>(c, 9);
  prm::set<cap::log_pg_sz>(c, 12);
  prm::set<cap::device_frequency_mhz>(c, 1000);  // the free-running timer counts nanoseconds
  prm::set<cap::device_frequency_khz>(c, 1000000);
  // Quality of service; places for the doorbells of emulated devices.
  prm::set<cap::qos>(c, 1);
  prm::set<prm::qos::cap_qpc_extension>(c, 1);
  prm::set<prm::qos::cap_rts2rts_qp_udp_sport>(c, 1);
  prm::set<cap::general_obj_types>(c, prm::qos::kObjTypesVirtioNetQ | prm::qos::kObjTypesAvQpMapping);
  // User contexts (DEVX).
  prm::set<cap::log_max_uctx>(c, kLogMaxUctx);
  prm::set<cap::uctx_cap>(c, prm::kUctxCapRawTx);
  prm::set<cap::log_max_umem>(c, kLogMaxUmem);
  prm::set<cap::umem_uid_0>(c, 1);
  prm::set<cap::device_memory>(c, config.offer_memic);
  prm::set<cap::pg>(c, config.on_demand);
  prm::set<cap::driver_version>(c, 1);
  prm::set<cap::vhca_id>(c, 1);
}

void fill_ethernet(std::uint8_t* c) {
  using cap = prm::per_protocol_networking_offload_caps;
  prm::set<cap::csum_cap>(c, 1);
  prm::set<cap::vlan_cap>(c, 1);
  prm::set<cap::max_lso_cap>(c, 18);
  prm::set<cap::self_lb_en_modifiable>(c, 1);
  prm::set<cap::wqe_vlan_insert>(c, 1);
  prm::set<cap::wqe_inline_mode>(c, 1);  // what the vport context says
  prm::set<cap::rss_ind_tbl_cap>(c, 8);
}

void fill_atomic(std::uint8_t* c) {
  using cap = prm::atomic_caps;
  prm::set<cap::supported_atomic_req_8B_endianness_mode_1>(c, 1);
  prm::set<cap::atomic_operations>(c, 0x3);  // compare-and-swap, fetch-and-add
  prm::set<cap::atomic_size_qp>(c, 0x8);     // 8 bytes
  prm::set<cap::atomic_size_dc>(c, 0x8);
}

void fill_roce(std::uint8_t* c) {
  using cap = prm::roce_cap;
  prm::set<cap::sw_r_roce_src_udp_port>(c, 1);
  prm::set<cap::l3_type>(c, 6);  // IPv4 and IPv6 (Linux: MLX5_ROCE_L3_TYPE_*_CAP)
  prm::set<cap::roce_version>(c, 1u << kRoceV1 | 1u << kRoceV2);
  prm::set<cap::r_roce_dest_udp_port>(c, wire::kRoceV2UdpPort);
  prm::set<cap::r_roce_min_src_udp_port>(c, 0xc000);
  prm::set<cap::r_roce_max_src_udp_port>(c, 0xffff);
  prm::set<cap::roce_address_table_size>(c, 256);
}

void fill_flow_table(std::uint8_t* c) {
  void* rx = prm::at<prm::flow_table_nic_cap::flow_table_properties_nic_receive>(static_cast<void*>(c));
  using cap = prm::flow_table_prop_layout;
  prm::set<cap::ft_support>(rx, 1);
  prm::set<cap::flow_counter>(rx, 1);
  prm::set<cap::flow_modify_en>(rx, 1);
  prm::set<cap::modify_root>(rx, 1);
  prm::set<cap::identified_miss_table_mode>(rx, 1);
  prm::set<cap::flow_table_modify>(rx, 1);
  prm::set<cap::ignore_flow_level>(rx, 1);
  prm::set<cap::log_max_ft_size>(rx, 22);
  prm::set<cap::max_ft_level>(rx, 64);
  prm::set<cap::log_max_ft_num>(rx, 16);
  prm::set<cap::log_max_flow_counter>(rx, 16);
  prm::set<cap::log_max_destination>(rx, 6);
  prm::set<cap::log_max_flow>(rx, 20);
  using field = prm::flow_table_fields_supported;
  for (void* f : {prm::at<cap::ft_field_support>(rx), prm::at<cap::ft_field_bitmask_support>(rx)}) {
    prm::set<field::outer_dmac>(f, 1);
    prm::set<field::outer_smac>(f, 1);
    prm::set<field::outer_ether_type>(f, 1);
    prm::set<field::outer_ip_version>(f, 1);
    prm::set<field::outer_first_prio>(f, 1);
    prm::set<field::outer_first_cfi>(f, 1);
    prm::set<field::outer_first_vid>(f, 1);
    prm::set<field::outer_sip>(f, 1);
    prm::set<field::outer_dip>(f, 1);
    prm::set<field::outer_frag>(f, 1);
    prm::set<field::outer_ip_protocol>(f, 1);
    prm::set<field::outer_udp_sport>(f, 1);
    prm::set<field::outer_udp_dport>(f, 1);
    prm::set<field::outer_tcp_sport>(f, 1);
    prm::set<field::outer_tcp_dport>(f, 1);
  }
}

void fill_qos(std::uint8_t* c) {
  using cap = prm::qos_cap;
  prm::set<cap::packet_pacing>(c, 1);
  prm::set<cap::packet_pacing_uid>(c, 1);
  prm::set<cap::packet_pacing_min_rate>(c, kMinRate);
  prm::set<cap::packet_pacing_max_rate>(c, kMaxRate);
  prm::set<cap::packet_pacing_rate_table_size>(c, kRateTableSize);
  prm::set<cap::nic_sq_scheduling>(c, 1);
  prm::set<cap::nic_bw_share>(c, 1);
  prm::set<cap::nic_rate_limit>(c, 1);
  prm::set<prm::qos::cap_nic_qp_scheduling>(c, 1);
  prm::set<cap::nic_element_type>(c, prm::qos::kCanTsar | prm::qos::kCanQueueGroup);
  prm::set<cap::nic_tsar_type>(c, prm::qos::kCanDwrr);
}

void fill_vdpa(std::uint8_t* c) {
  prm::set<prm::qos::var_log_stride>(c, 12);
  prm::set<prm::qos::var_log_size>(c, Hca::kLogVars);
  prm::set<prm::qos::var_bar_offset>(c, std::uint64_t{Hca::kFirstVar} * 4096);
}

void fill_device_memory(std::uint8_t* c) {
  using cap = prm::device_mem_cap;
  constexpr unsigned kWidths = 1 | 2 | 4 | 8;
  prm::set<cap::memic>(c, 1);
  prm::set<cap::log_min_memic_alloc_size>(c, prm::kLogMemicUnit);
  prm::set<cap::log_max_memic_addr_alignment>(c, 12 - prm::kLogMemicUnit);  // a page
  prm::set<cap::memic_bar_start_addr>(c, Hca::kMemicStart);
  prm::set<cap::memic_bar_size>(c, Hca::kMemicBytes);
  prm::set<cap::max_memic_size>(c, Hca::kMemicBytes / 8);
  prm::set<cap::memic_operations>(c, 1u << prm::kMemicIncrement | 1u << prm::kMemicTestAndSet);
  prm::set<prm::cap_memic_increment_sizes>(c, kWidths);
  prm::set<prm::cap_memic_test_and_set_sizes>(c, kWidths);
}

// Any access may need a page that is not there; the engine does not see it. UD receives are the exception as on the real device, which
// drops what it cannot place at once.
void fill_odp(std::uint8_t* c) {
  using cap = prm::odp_cap;
  using service = prm::odp_per_transport_service_cap;
  for (void* s : {prm::at<cap::rc_odp_caps>(static_cast<void*>(c)), prm::at<cap::xrc_odp_caps>(static_cast<void*>(c)),
                  prm::at<cap::dc_odp_caps>(static_cast<void*>(c))}) {
    prm::set<service::send>(s, 1);
    prm::set<service::receive>(s, 1);
    prm::set<service::write>(s, 1);
    prm::set<service::read>(s, 1);
    prm::set<service::atomic>(s, 1);
    prm::set<service::srq_receive>(s, 1);
  }
  prm::set<service::send>(prm::at<cap::ud_odp_caps>(static_cast<void*>(c)), 1);
}

}  // namespace

Caps::Caps(const HcaConfig& config) : has_odp_(config.on_demand), has_memic_(config.offer_memic) {
  fill_general(max_[0].data(), config);
  fill_ethernet(max_[1].data());
  fill_atomic(max_[2].data());
  fill_roce(max_[3].data());
  fill_flow_table(max_[4].data());
  fill_qos(max_[5].data());
  fill_vdpa(max_[6].data());
  fill_device_memory(max_[7].data());
  fill_odp(max_[8].data());
  current_ = max_;
}

int Caps::index(unsigned type) const {
  if (type == static_cast<unsigned>(CapType::kOdp) && !has_odp_) return -1;
  if (type == static_cast<unsigned>(CapType::kDeviceMemory) && !has_memic_) return -1;
  for (int i = 0; i < static_cast<int>(std::size(kTypes)); ++i)
    if (kTypes[i] == type) return i;
  return -1;
}

const Caps::Group* Caps::max(unsigned type) const {
  int i = index(type);
  return i < 0 ? nullptr : &max_[static_cast<std::size_t>(i)];
}

Caps::Group* Caps::current(unsigned type) {
  int i = index(type);
  return i < 0 ? nullptr : &current_[static_cast<std::size_t>(i)];
}

const char* Caps::exceeds(unsigned type, const std::uint8_t* wanted) const {
  const Group& m = *max(type);
  if (type == static_cast<unsigned>(CapType::kAtomic)) {
    using cap = prm::atomic_caps;
    bool host_order = prm::get<cap::atomic_req_8B_endianness_mode>(wanted) != 0;
    return host_order && !prm::get<cap::supported_atomic_req_8B_endianness_mode_1>(m.data()) ? "atomic_req_8B_endianness_mode" : nullptr;
  }
  const prm::LayoutInfo* layout = nullptr;
  if (type == static_cast<unsigned>(CapType::kGeneral)) layout = &prm::cmd_hca_cap_table::kInfo;
  if (type == static_cast<unsigned>(CapType::kRoce)) layout = &prm::roce_cap_table::kInfo;
  if (layout == nullptr) return nullptr;
  for (std::size_t i = 0; i < layout->nfields; ++i) {
    prm::Field f = layout->fields[i].field;
    if (prm::get(wanted, f) > prm::get(m.data(), f)) return layout->fields[i].name;
  }
  return nullptr;
}

}  // namespace uhca::hca

// SPDX-License-Identifier: MIT
// Memory windows: keys with room for one KLM, free until a UMR of the program binds them. Linux: hw/mlx5/mr.c (mlx5_ib_alloc_mw).
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "prm/cmd_object.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint8_t kType2 = 2;               // enum ib_mw_type
constexpr std::uint32_t kOctowordsPerBlock = 4;  // UMRs write translations in units of 64 bytes

struct Response {
  std::uint32_t comp_mask = 0, response_length = 0;
};

}  // namespace

Result<std::unique_ptr<ib_mw>> alloc_mw(ib_pd& pd, std::uint8_t type, Udata* udata) {
  auto& m = *to_mdev(*pd.device).mdev;
  ::mlx5_ib_alloc_mw req{};
  if (udata != nullptr && udata->inlen > 0) {
    constexpr std::size_t need = offsetof(::mlx5_ib_alloc_mw, reserved2) + sizeof req.reserved2;
    if (udata->inlen < need) return refuse(EINVAL, "alloc_mw: driver data of {} bytes; {} are needed", udata->inlen, need);
    UHCA_CHECK(udata->check_in_tail(sizeof req));
    UHCA_CHECK(udata->copy_in(&req, sizeof req));
    if (req.comp_mask || req.reserved1 || req.reserved2)
      return refuse(EOPNOTSUPP, "alloc_mw: comp_mask {:#x} or reserved fields are set", req.comp_mask);
  }
  std::vector<std::uint8_t> in(prm::create_mkey_in::kBytes);
  void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(in.data());
  prm::set<prm::mkc::free>(mkc, 1);
  prm::set<prm::mkc::translations_octword_size>(mkc, align_up(std::max<std::uint32_t>(1, req.num_klms), kOctowordsPerBlock));
  prm::set<prm::mkc::pd>(mkc, to_mpd(pd).pdn);
  prm::set<prm::mkc::umr_en>(mkc, 1);
  prm::set<prm::mkc::lr>(mkc, 1);
  prm::set<prm::mkc::access_mode_1_0>(mkc, prm::kMkeyModeKlms);
  prm::set<prm::mkc::en_rinval>(mkc, type == kType2);  // a peer may invalidate it
  prm::set<prm::mkc::qpn>(mkc, 0xffffff);
  auto mw = std::make_unique<ib_mw>();
  mw->rkey = UHCA_TRY(m.create_mkey(in));
  if (udata != nullptr && udata->outlen > 0) {
    Response resp;
    resp.response_length = static_cast<std::uint32_t>(std::min(udata->outlen, sizeof resp));
    if (Status s = udata->copy_out(&resp, resp.response_length); !s.ok()) {
      if (Status f = m.destroy_mkey(mw->rkey); !f.ok()) log::error("MKey {:#x} could not be destroyed", mw->rkey);
      return s.error();
    }
  }
  return mw;
}

// Binding changes the key's low 8 bits behind the driver's back; its index is what counts.
Status dealloc_mw(ib_mw& mw) {
  return to_mdev(*mw.device).mdev->destroy_mkey(mw.rkey);
}

}  // namespace uhca::kernel::mlx5

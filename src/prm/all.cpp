// SPDX-License-Identifier: MIT
#include "prm/all.h"

#include <cstring>

#include "prm/cmd_core.h"
#include "prm/cmd_eth.h"
#include "prm/cmd_flow.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/cmd_vport.h"
#include "prm/congestion.h"
#include "prm/context.h"
#include "prm/cqe.h"
#include "prm/event.h"
#include "prm/hca_cap.h"
#include "prm/memic.h"
#include "prm/other_caps.h"
#include "prm/queue_context.h"
#include "prm/reg.h"
#include "prm/wqe.h"

namespace uhca::prm {
namespace {

#define UHCA_PRM_REF(name_) &name_##_table::kInfo,
constexpr const LayoutInfo* kAll[] = {
    UHCA_PRM_LAYOUTS_cmd_core(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_cmd_eth(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_cmd_flow(UHCA_PRM_REF)
        UHCA_PRM_LAYOUTS_cmd_object(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_cmd_qp(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_cmd_vport(UHCA_PRM_REF)
            UHCA_PRM_LAYOUTS_congestion(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_context(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_cqe(UHCA_PRM_REF)
                UHCA_PRM_LAYOUTS_event(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_hca_cap(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_memic(UHCA_PRM_REF)
                    UHCA_PRM_LAYOUTS_other_caps(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_queue_context(UHCA_PRM_REF)
                        UHCA_PRM_LAYOUTS_reg(UHCA_PRM_REF) UHCA_PRM_LAYOUTS_wqe(UHCA_PRM_REF)};

}  // namespace

std::span<const LayoutInfo* const> all_layouts() {
  return kAll;
}

const LayoutInfo* find_layout(const char* name) {
  for (const LayoutInfo* l : kAll)
    if (std::strcmp(l->name, name) == 0) return l;
  return nullptr;
}

}  // namespace uhca::prm

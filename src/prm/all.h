// SPDX-License-Identifier: MIT
// Every layout, as a table: for the oracle test and for decoding by name.
#pragma once

#include <span>

#include "prm/layout.h"

namespace uhca::prm {

std::span<const LayoutInfo* const> all_layouts();
// nullptr when there is no layout of that name.
const LayoutInfo* find_layout(const char* name);

}  // namespace uhca::prm

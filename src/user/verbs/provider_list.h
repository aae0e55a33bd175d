// SPDX-License-Identifier: MIT
#pragma once

#include "user/verbs/provider.h"

namespace uhca::verbs {

// The provider that serves dev (dev->match is set), or nullptr; the reason goes to stderr only when the environment asks for warnings.
// Loads the provider on the first call.
const uhca_provider* find_provider(verbs_sysfs_dev* dev);

}  // namespace uhca::verbs

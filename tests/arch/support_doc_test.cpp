// SPDX-License-Identifier: MIT
// docs/support.md is what the tables and the notes say today.
#include <gtest/gtest.h>

#include <cstdlib>

TEST(SupportDocument, IsGeneratedFromTheTablesOfToday) {
  EXPECT_EQ(0, std::system("python3 '" UHCA_SOURCE_DIR "/scripts/gen-support' --check")) << "run `make support`";
}

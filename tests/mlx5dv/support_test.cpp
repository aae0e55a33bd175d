// SPDX-License-Identifier: MIT
// The table of exported symbols against the library itself, symbol by symbol and version by version; what is unsupported is called.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string>

namespace {

enum Status { SUPPORTED, UNSUPPORTED };
enum Answer { INT, NEGATIVE, MINUS_ONE, POINTER, VOID, BOOL, EXPORT_SIZES };
struct Row {
  const char* name;
  const char* node;
  Status status;
  Answer answer;
};
#define UHCA_MLX5DV(name, node, status, answer) {#name, node, status, answer},
const Row kRows[] = {
#include "user/mlx5/support.inc"
};
#undef UHCA_MLX5DV

class Support : public ::testing::Test {
 protected:
  void SetUp() override {
    lib_ = dlopen(UHCA_BUILD_DIR "/lib/uhca/libmlx5.so.1", RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(nullptr, lib_) << dlerror();
  }
  void* lib_ = nullptr;
};

TEST_F(Support, EverySymbolHasItsVersion) {
  EXPECT_EQ(143u, std::size(kRows));
  std::map<void*, std::string> seen;
  for (const Row& r : kRows) {
    void* p = dlvsym(lib_, r.name, r.node);
    ASSERT_NE(nullptr, p) << r.name << "@" << r.node << ": " << dlerror();
    EXPECT_TRUE(seen.emplace(p, r.name).second) << r.name << " and " << seen[p] << " are one function";
  }
  EXPECT_NE(nullptr, dlsym(lib_, "uhca_provider"));
}

TEST_F(Support, NodesOfTheRealLibrary) {
  std::map<std::string, int> count;
  for (const Row& r : kRows) ++count[r.node];
  EXPECT_EQ(2, count["MLX5_1.0"]);
  EXPECT_EQ(22, count["MLX5_1.10"]);
  EXPECT_EQ(2, count["MLX5_1.25"]);
  EXPECT_EQ(1, count["MLX5_1.25.1"]);
  EXPECT_EQ(1, count["MLX5_1.26"]);
  EXPECT_EQ(10, count["MLX5_1.27"]);
  EXPECT_EQ(29u, count.size());
}

TEST_F(Support, DefaultVersionOfInitObj) {
  EXPECT_EQ(dlvsym(lib_, "mlx5dv_init_obj", "MLX5_1.2"), dlsym(lib_, "mlx5dv_init_obj"));
  EXPECT_NE(dlvsym(lib_, "mlx5dv_init_obj", "MLX5_1.0"), dlsym(lib_, "mlx5dv_init_obj"));
}

TEST_F(Support, UnsupportedOnesSaySo) {
  int called = 0;
  for (const Row& r : kRows) {
    if (r.status != UNSUPPORTED) continue;
    void* p = dlvsym(lib_, r.name, r.node);
    ASSERT_NE(nullptr, p) << r.name;
    ++called;
    errno = 0;
    // The arguments are never looked at.
    switch (r.answer) {
      case INT:
        EXPECT_EQ(EOPNOTSUPP, reinterpret_cast<int (*)(...)>(p)(nullptr, 0)) << r.name;
        EXPECT_EQ(EOPNOTSUPP, errno) << r.name;
        break;
      case NEGATIVE: EXPECT_EQ(-EOPNOTSUPP, reinterpret_cast<int (*)(...)>(p)(nullptr, 0)) << r.name; break;
      case MINUS_ONE:
        EXPECT_EQ(-1, reinterpret_cast<long (*)(...)>(p)(nullptr, 0)) << r.name;
        EXPECT_EQ(EOPNOTSUPP, errno) << r.name;
        break;
      case POINTER:
        EXPECT_EQ(nullptr, reinterpret_cast<void* (*)(...)>(p)(nullptr, 0)) << r.name;
        EXPECT_EQ(EOPNOTSUPP, errno) << r.name;
        break;
      case VOID: reinterpret_cast<void (*)(...)>(p)(nullptr, 0); break;
      case EXPORT_SIZES: {
        std::uint32_t sizes[4] = {1, 2, 3, 4};
        reinterpret_cast<void (*)(void*, std::size_t)>(p)(sizes, 12);
        EXPECT_EQ(0u, sizes[0] | sizes[1] | sizes[2]);
        EXPECT_EQ(4u, sizes[3]);
        break;
      }
      case BOOL: ADD_FAILURE() << r.name;
    }
  }
  EXPECT_EQ(68, called);
}

TEST_F(Support, SupportedOnesRefuseForeignDevices) {
  auto is_supported = reinterpret_cast<bool (*)(ibv_device*)>(dlsym(lib_, "mlx5dv_is_supported"));
  ASSERT_NE(nullptr, is_supported);
  EXPECT_FALSE(is_supported(nullptr));
}

// The empty providers.
struct Stub {
  const char* name;
  const char* node;
  Answer answer;
};
#define UHCA_STUB(name, node, answer) {#name, node, answer},
const Stub kEfa[] = {
#include "user/stubs/efa/support.inc"
};
const Stub kHns[] = {
#include "user/stubs/hns/support.inc"
};
#undef UHCA_STUB

template <std::size_t N>
void check_stub(const char* file, const Stub (&rows)[N]) {
  void* lib = dlopen((std::string(UHCA_BUILD_DIR "/lib/uhca/") + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nullptr, lib) << dlerror();
  for (const Stub& r : rows) {
    void* p = dlvsym(lib, r.name, r.node);
    ASSERT_NE(nullptr, p) << r.name << ": " << dlerror();
    errno = 0;
    if (r.answer == INT) {
      EXPECT_EQ(EOPNOTSUPP, reinterpret_cast<int (*)(...)>(p)(nullptr)) << r.name;
    } else if (r.answer == POINTER) {
      EXPECT_EQ(nullptr, reinterpret_cast<void* (*)(...)>(p)(nullptr)) << r.name;
      EXPECT_EQ(EOPNOTSUPP, errno) << r.name;
    } else {
      EXPECT_FALSE(reinterpret_cast<bool (*)(...)>(p)(nullptr)) << r.name;
    }
  }
}

TEST(Stubs, Efa) {
  check_stub("libefa.so.1", kEfa);
  EXPECT_EQ(13u, std::size(kEfa));
}
TEST(Stubs, Hns) {
  check_stub("libhns.so.1", kHns);
  EXPECT_EQ(3u, std::size(kHns));
}

}  // namespace

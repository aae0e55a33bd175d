// SPDX-License-Identifier: MIT
// How long a fuzzer of this folder runs, and with which inputs: UHCA_FUZZ_SECONDS (default 3), UHCA_FUZZ_SEED (default: any; printed).
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

namespace uhca::hcatest {

class FuzzRun {
 public:
  explicit FuzzRun(std::mt19937& rng) {
    const char* text = std::getenv("UHCA_FUZZ_SECONDS");
    const char* seed_text = std::getenv("UHCA_FUZZ_SEED");
    seed_ = seed_text != nullptr ? static_cast<unsigned>(std::strtoul(seed_text, nullptr, 0)) : std::random_device{}();
    end_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                  std::chrono::duration<double>(text != nullptr ? std::atof(text) : 3));
    rng.seed(seed_);
    std::printf("seed %u\n", seed_);
  }
  std::string name() const { return "UHCA_FUZZ_SEED=" + std::to_string(seed_); }
  bool over() const { return std::chrono::steady_clock::now() >= end_; }

 private:
  unsigned seed_ = 0;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace uhca::hcatest

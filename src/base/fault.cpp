// SPDX-License-Identifier: MIT
#include "base/fault.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/log.h"

namespace uhca::fault {
namespace {

struct Armed {
  Point point;
  unsigned left;
  int err;
};

constinit std::atomic<unsigned> armed_count{0};
constinit std::mutex lock;
constinit std::vector<Armed>* rules = nullptr;  // leaked: asked until the process ends

int errno_of(const std::string& name) {
  for (int e = 1; e < 134; ++e) {
    const char* n = strerrorname_np(e);
    if (n != nullptr && name == n) return e;
  }
  return 0;
}

std::string_view take(std::string_view& text, char separator) {
  std::string_view part = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

}  // namespace

Result<std::vector<Rule>> parse(std::string_view text) {
  std::vector<Rule> result;
  while (!text.empty()) {
    std::string_view one = take(text, ';');
    if (one.empty()) continue;
    Rule rule;
    bool first = true;
    while (!one.empty()) {
      const std::string_view part = take(one, ',');
      const std::size_t eq = part.find('=');
      const std::string key(part.substr(0, eq)), value(eq == part.npos ? std::string_view{} : part.substr(eq + 1));
      bool good = false;
      if (first) {
        rule.point = key == "cmd" ? Point::kCommand : key == "pin" ? Point::kPin : Point::kAlloc;
        good = key == "cmd" ? !value.empty() : (key == "pin" || key == "alloc") && eq == part.npos;
        if (value != "any") rule.command = value;
        if (rule.point != Point::kCommand) rule.err = ENOMEM;
      } else if (key == "nth") {
        char* end = nullptr;
        const unsigned long n = std::strtoul(value.c_str(), &end, 10);
        good = !value.empty() && value[0] >= '0' && value[0] <= '9' && *end == 0 && n > 0 && n <= 0xffffffff;
        rule.nth = static_cast<unsigned>(n);
      } else if (key == "status") {
        good = rule.point == Point::kCommand && !value.empty();
        rule.status = value;
      } else if (key == "errno") {
        rule.err = errno_of(value);
        good = rule.point != Point::kCommand && rule.err != 0;
      }
      if (!good) return refuse(EINVAL, "fault rule: \"{}\" is not understood", std::string(part));
      first = false;
    }
    result.push_back(rule);
  }
  return result;
}

void arm(Point point, unsigned nth, int err) {
  std::lock_guard hold(lock);
  if (rules == nullptr) rules = new std::vector<Armed>;
  rules->push_back({point, nth, err});
  armed_count.store(static_cast<unsigned>(rules->size()), std::memory_order_relaxed);
}

unsigned disarm() {
  std::lock_guard hold(lock);
  armed_count.store(0, std::memory_order_relaxed);
  if (rules == nullptr) return 0;
  const auto n = static_cast<unsigned>(rules->size());
  rules->clear();
  return n;
}

int due(Point point) {
  if (__builtin_expect(armed_count.load(std::memory_order_relaxed) == 0, 1)) return 0;
  std::lock_guard hold(lock);
  int err = 0;
  if (rules == nullptr) return 0;
  std::erase_if(*rules, [&](Armed& r) {
    if (r.point != point || --r.left > 0) return false;
    if (err == 0) err = r.err;
    return true;
  });
  armed_count.store(static_cast<unsigned>(rules->size()), std::memory_order_relaxed);
  return err;
}

}  // namespace uhca::fault

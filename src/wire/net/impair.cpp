// SPDX-License-Identifier: MIT
#include "wire/net/impair.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"

namespace uhca::wire {
namespace {

bool whole_number(const std::string& s, std::uint64_t& v) {
  char* end = nullptr;
  if (s.empty() || s[0] < '0' || s[0] > '9') return false;
  v = std::strtoull(s.c_str(), &end, 0);
  return *end == 0;
}

// A number and one of the units behind it.
struct Unit {
  const char* name;
  double times;
};
template <std::size_t N>
bool quantity(const std::string& s, const Unit (&units)[N], std::uint64_t& v) {
  char* end = nullptr;
  const double d = std::strtod(s.c_str(), &end);
  if (s.empty() || s[0] < '0' || s[0] > '9') return false;
  for (const Unit& u : units) {
    if (std::strcmp(end, u.name) != 0) continue;
    if (!(d * u.times < 1e15)) return false;
    v = static_cast<std::uint64_t>(d * u.times);
    return true;
  }
  return false;
}
constexpr Unit kTimes[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
constexpr Unit kRates[] = {{"", 1}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}};

bool probability(const std::string& s, std::uint32_t& p) {
  char* end = nullptr;
  double d = std::strtod(s.c_str(), &end);
  if (s.empty() || *end || !(d >= 0 && d <= 1)) return false;
  p = d >= 1 ? 0xffffffffu : static_cast<std::uint32_t>(d * 4294967296.0);
  return true;
}

}  // namespace

Result<ImpairRules> parse_impair_rules(std::string_view text) {
  ImpairRules r;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    std::size_t eq = part.find('=');
    std::string key(part.substr(0, eq)), value(eq == part.npos ? std::string_view{} : part.substr(eq + 1));
    bool good = false;
    if (key == "drop") good = probability(value, r.drop);
    if (key == "dup") good = probability(value, r.duplicate);
    if (key == "reorder") good = probability(value, r.reorder);
    if (key == "corrupt") good = probability(value, r.corrupt);
    if (key == "delay") good = quantity(value, kTimes, r.delay);
    if (key == "rate") good = quantity(value, kRates, r.rate) && r.rate > 0;
    if (key == "seed") good = whole_number(value, r.seed);
    if (key == "drop_at") {
      std::string_view list = value;
      do {
        std::string_view one = list.substr(0, list.find(':'));
        list.remove_prefix(std::min(list.size(), one.size() + 1));
        std::uint64_t n = 0;
        good = whole_number(std::string(one), n) && n > 0;
        r.drop_at.push_back(n);
      } while (good && !list.empty());
    }
    if (!good) return refuse(EINVAL, "impairment rule \"{}\" is not understood", fmt::string_view(part.data(), part.size()));
  }
  return r;
}

Impair::Impair(Port& inner, ImpairRules rules, const Clock& clock)
    : inner_(inner),
      rules_(std::move(rules)),
      line_(inner, rules_.rate, rules_.delay, clock),
      state_(rules_.seed * 0x9e3779b97f4a7c15 + 1),
      held_(kMaxFrame),
      scratch_(kMaxFrame) {}

// splitmix64.
std::uint64_t Impair::random() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

void Impair::release_held() {
  if (held_size_ == 0) return;
  std::size_t n = held_size_;
  held_size_ = 0;
  static_cast<void>(pass({held_.data(), n}));
}

Send Impair::pass(Frame frame) {
  Send s = forward(frame);
  if (s == Send::kSent && chance(rules_.duplicate)) {
    if (forward(frame) == Send::kSent) duplicated.add();
  }
  return s;
}

Send Impair::send(Frame frame) {
  if (frame.empty() || frame.size() > kMaxFrame) return inner_.send(frame);
  ++sent_;
  if (std::find(rules_.drop_at.begin(), rules_.drop_at.end(), sent_) != rules_.drop_at.end() || chance(rules_.drop)) {
    dropped.add();
    return Send::kSent;
  }
  if (chance(rules_.corrupt)) {
    std::memcpy(scratch_.data(), frame.data(), frame.size());
    // Behind the Ethernet header: what a switch would have seen is intact, so the frame arrives and the ICRC has to find the damage.
    std::size_t first = frame.size() > 54 ? 54 : 0;
    std::uint64_t bit = random() % ((frame.size() - first) * 8);
    scratch_[first + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    frame = {scratch_.data(), frame.size()};
    corrupted.add();
  }
  if (held_size_ == 0 && chance(rules_.reorder)) {
    std::memcpy(held_.data(), frame.data(), frame.size());
    held_size_ = frame.size();
    reordered.add();
    return Send::kSent;
  }
  Send s = pass(frame);
  if (s == Send::kBusy) {
    --sent_;  // it comes again
    return s;
  }
  release_held();
  return s;
}

unsigned Impair::poll(FrameSink& sink, unsigned budget, bool thorough) {
  if (held_size_ != 0) {
    release_held();
    inner_.flush();
  }
  if (line_.slow()) line_.release();
  return inner_.poll(sink, budget, thorough);
}

}  // namespace uhca::wire

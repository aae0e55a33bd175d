// SPDX-License-Identifier: MIT
// Questions of tools: answered by the service side of whoever has bound the slot.
#include "wire/net/inspect.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/fd.h"
#include "wire/net/counters.h"
#include "wire/net/link_socket.h"
#include "wire/net/question.h"
#include "wire/net/switch.h"

namespace uhca::wire {
namespace {

struct Says final : Inspector {
  explicit Says(std::string t) : text(std::move(t)) {}
  std::string report() override {
    ++asked;
    return text;
  }
  std::string text;
  int asked = 0;
};

// A switch and its service side on a thread.
class Function {
 public:
  explicit Function(Inspector* inspector) {
    static std::atomic<int> number{0};
    options_.prefix = "uhca-test/" + std::to_string(getpid()) + "." + std::to_string(++number) + "/fn/";
    options_.inspector = inspector;
    switch_ = std::make_unique<HostSwitch>(options_, epoll_, counters_);
    slot_ = switch_->lease().value();
    thread_ = std::thread([this] {
      while (!stop_) {
        epoll_event e;
        if (epoll_wait(epoll_, &e, 1, 5) == 1) switch_->handle(static_cast<Source*>(e.data.ptr), e.events);
      }
    });
  }
  ~Function() {
    stop_ = true;
    thread_.join();
    switch_.reset();
    close(epoll_);
  }
  Result<std::string> ask(int milliseconds = 5000) { return ask_function(slot_, milliseconds, &pid, options_.prefix); }
  int connected() {
    int s = seqpacket();
    SlotName name(options_.prefix, slot_);
    EXPECT_EQ(connect(s, name.get(), name.length), 0);
    return s;
  }
  HostSwitch::Options options_;
  UplinkCounters counters_;
  pid_t pid = 0;
  unsigned slot_ = 0;

 private:
  int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  std::unique_ptr<HostSwitch> switch_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(Inspect, AnswersOfEverySizeComeWhole) {
  Says says("{}");
  Function f(&says);
  for (std::size_t size : {2u, 4096u, 300'000u, 5'000'000u}) {
    says.text.assign(size, 'x');
    auto answer = f.ask();
    ASSERT_TRUE(answer.ok()) << size << ": " << answer.code();
    EXPECT_EQ(*answer, says.text);
    EXPECT_EQ(f.pid, getpid());
  }
  EXPECT_EQ(says.asked, 4);
}

TEST(Inspect, BusyNobodyAndGone) {
  Says says("");
  Function busy(&says), mute(nullptr);
  EXPECT_EQ(busy.ask().code(), EAGAIN);
  EXPECT_EQ(mute.ask().code(), EACCES);  // it hangs up
  std::string prefix = "uhca-test/nobody/";
  pid_t pid = 7;
  EXPECT_EQ(ask_function(1, 1000, &pid, prefix).code(), ECONNREFUSED);
  EXPECT_EQ(pid, 0);
  // More than anybody takes is not sent.
  says.text.assign(static_cast<std::size_t>(kLongestReport) + 1, 'x');
  EXPECT_EQ(busy.ask().code(), EAGAIN);
}

TEST(Inspect, WhoDoesNotListenIsNotWaitedFor) {
  int s = seqpacket();
  std::string prefix = "uhca-test/" + std::to_string(getpid()) + "/deaf/";
  SlotName name(prefix, 1);
  ASSERT_EQ(bind(s, name.get(), name.length), 0);
  ASSERT_EQ(listen(s, 1), 0);
  pid_t pid;
  EXPECT_EQ(ask_function(1, 20, &pid, prefix).code(), ETIMEDOUT);
  fd::close(s);
}

// Questions that are none, or that nobody waits for, cost the function nothing.
TEST(Inspect, BadQuestions) {
  Says says("{}");
  Function f(&says);
  Question wrong;
  wrong.version = 9;
  int s = f.connected();
  ASSERT_EQ(send(s, &wrong, sizeof wrong, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof wrong));
  char c;
  while (recv(s, &c, 1, 0) < 0 && errno == EAGAIN) usleep(1000);  // until it hangs up
  fd::close(s);
  const std::size_t open_before = f.counters_.links_refused.get();
  EXPECT_EQ(open_before, 1u);
  for (int i = 0; i < 200; ++i) {
    int gone = f.connected();
    Question q;
    ASSERT_EQ(send(gone, &q, sizeof q, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof q));
    fd::close(gone);
  }
  auto answer = f.ask();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(*answer, "{}");
}

}  // namespace
}  // namespace uhca::wire

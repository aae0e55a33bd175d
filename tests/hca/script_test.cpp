// SPDX-License-Identifier: MIT
// Every script of tests/hca/scripts on the virtual link and over UDP port 4791 between two network namespaces, and the example of
// docs/packet-scripts.md. Scripts that are wrong must fail, and say where.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "hca/script_machine.h"
#include "wire/two_hosts.h"

namespace uhca::hcatest {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& p) {
  std::ifstream in(p);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::vector<fs::path> scripts() {
  std::vector<fs::path> v;
  for (auto& e : fs::directory_iterator(UHCA_SOURCE_DIR "/tests/hca/scripts"))
    if (e.path().extension() == ".pkt") v.push_back(e.path());
  std::sort(v.begin(), v.end());
  return v;
}
std::string test_name(const ::testing::TestParamInfo<fs::path>& i) {
  return i.param.stem().string();
}

class PacketScript : public ScriptMachine, public ::testing::WithParamInterface<fs::path> {};
TEST_P(PacketScript, OnTheVirtualLink) {
  EXPECT_EQ(run_script(read_file(GetParam())), "");
}
INSTANTIATE_TEST_SUITE_P(Scripts, PacketScript, ::testing::ValuesIn(scripts()), test_name);

// ---- over UDP: the device's uplink is on one host, the peer's on the other

class TwoUplinks : protected wire::test::TwoHosts {
 protected:
  std::unique_ptr<wire::Uplink> device_uplink, peer_uplink;
  std::uint32_t first_qpn = 0;
  TwoUplinks() {
    begin();
    device_uplink = in_a();
    peer_uplink = in_b();
    first_qpn = device_uplink->lease_block();
    EXPECT_TRUE(device_uplink->udp_bound(false) && peer_uplink->udp_bound(false));
  }
  ~TwoUplinks() {
    device_uplink.reset();
    peer_uplink.reset();
    end();
  }
};

class PacketScriptUdp : private TwoUplinks, public ScriptMachine, public ::testing::WithParamInterface<fs::path> {
 protected:
  PacketScriptUdp() : ScriptMachine(first_qpn) {
    own = wire::test::kA4;
    peer = wire::test::kB4;
  }
  void begin_link() override {
    bench.port.connect(nullptr);
    bench.port.on_send = [this](FakePort::Bytes& frame) {
      ++sent_;
      EXPECT_EQ(send_from_a(*device_uplink, frame), wire::Send::kSent);
      return FakePort::Verdict::kDrop;
    };
  }
  void carry(const FakePort::Bytes& frame) override {
    wire::test::Collector c;
    ASSERT_EQ(send_from(b_ns_, *peer_uplink, frame), wire::Send::kSent);
    poll_until(a_ns_, *device_uplink, c, 1);
    bench.port.inject(c.frames.at(0));
  }
  void await_frames() override {
    poll_b_until(*peer_uplink, at_peer_, sent_);
    for (; taken_ < at_peer_.frames.size(); ++taken_) arrived.push_back(at_peer_.frames[taken_]);
  }

 private:
  wire::test::Collector at_peer_;
  std::size_t sent_ = 0, taken_ = 0;
};
TEST_P(PacketScriptUdp, BetweenTwoHosts) {
  EXPECT_EQ(run_script(read_file(GetParam())), "");
}
INSTANTIATE_TEST_SUITE_P(Scripts, PacketScriptUdp, ::testing::ValuesIn(scripts()), test_name);

// ---- the page about the language

class PacketScriptPage : public ScriptMachine {};
TEST_F(PacketScriptPage, TheExampleHolds) {
  const std::string page = read_file(UHCA_SOURCE_DIR "/docs/packet-scripts.md");
  const std::string fence = "```pkt\n";
  std::size_t begin = page.find(fence);
  ASSERT_NE(begin, std::string::npos);
  begin += fence.size();
  EXPECT_EQ(run_script(page.substr(begin, page.find("```", begin) - begin)), "");
}
TEST_F(PacketScriptPage, NamesEveryScript) {
  const std::string page = read_file(UHCA_SOURCE_DIR "/docs/packet-scripts.md");
  EXPECT_GE(scripts().size(), 20u);
  for (const fs::path& p : scripts()) EXPECT_NE(page.find("`" + p.stem().string() + "`"), std::string::npos) << p;
}

// ---- what does not hold

struct Wrong {
  const char* name;
  const char* script;
  const char* complaint;  // a regular expression
};
void PrintTo(const Wrong& w, std::ostream* out) {
  *out << w.name;
}
const Wrong kWrong[] = {
    {"psn", "qp rc\nmr m 64\n< WRITE_ONLY psn=100 len=8 va=m rkey=m ack_req\n> ACKNOWLEDGE psn=101", "line 4: .*psn is 100, not 101"},
    {"silence", "qp rc\n> ACKNOWLEDGE psn=100", "line 2: .*sent nothing"},
    {"noise", "qp rc\nmr m 64\n< WRITE_ONLY psn=100 len=8 va=m rkey=m ack_req", "at the end: .*RC_ACKNOWLEDGE"},
    {"nothing", "qp rc\nmr m 64\nsend m\n> nothing", "line 4: .*RC_SEND_ONLY"},
    {"early", "qp rc\nmr m 64\nsend m\n+5ms > SEND_ONLY psn=200", "line 4: .*too early"},
    {"too_soon", "qp rc timeout=10\nmr m 64\nsend m\n> SEND_ONLY\n+9ms > SEND_ONLY", "line 5: .*already"},
    {"late", "qp rc\nmr m 64\nsend m\n> SEND_ONLY psn=200\n+5ms > SEND_ONLY psn=200", "line 5: .*sent nothing"},
    {"no_cqe", "qp rc\ncqe send success", "line 2: .*there is none"},
    {"cqe_left", "qp rc\nmr m 64\nsend m\n> SEND_ONLY psn=200\n< ACKNOWLEDGE psn=200", "at the end: a CQE is left"},
    {"cqe_status", "qp rc\nmr m 64\nsend m lkey=m^1\ncqe send success", "line 4: .*syndrome is 4, not 0"},
    {"state", "qp rc\nstate ERR", "line 2: .*it is not"},
    {"memory", "qp rc\nmr m 64 fill=3\nmemory m 64 data=4", "line 3: .*byte 0 differs"},
    {"data", "qp rc\nmr m 64\nmr n 64 fill=1\nsend m\n> SEND_ONLY data=n", "line 5: .*other data"},
    {"no_memory", "qp rc\nsend m", "line 2: .*no memory 'm'"},
    {"beyond", "qp rc\nmr m 64\nmemory m 65", "line 3: .*not there"},
    {"unknown_argument", "qp rc\nmr m 64\nsend m lenght=8", "line 3: .*unknown: lenght=8"},
    {"unknown_word", "qp rc\nmr m 64\nsend m\n> SEND_ONLY ackreq", "line 4: .*unknown: ackreq"},
    {"unknown_verb", "qp rc\nsand m", "line 2: .*no such statement"},
    {"unknown_packet", "qp uc\n> ACKNOWLEDGE", "line 2: .*no ACKNOWLEDGE"},
    {"no_time", "qp rc\n+5 > nothing", "line 2: '\\+5' is no time"},
    {"no_number", "qp rc\nmr m many", "line 2: .*'many' is no number"},
};
class PacketScriptWrong : public ScriptMachine, public ::testing::WithParamInterface<Wrong> {};
TEST_P(PacketScriptWrong, IsFoundOut) {
  std::string said = run_script(GetParam().script);
  EXPECT_TRUE(std::regex_search(said, std::regex(GetParam().complaint))) << said;
}
INSTANTIATE_TEST_SUITE_P(Each, PacketScriptWrong, ::testing::ValuesIn(kWrong),
                         [](const ::testing::TestParamInfo<Wrong>& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace uhca::hcatest

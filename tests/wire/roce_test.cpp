// SPDX-License-Identifier: MIT
// Packets: against scapy, against tshark, round trips, damage.
#include "wire/roce/roce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "wire/packets.h"

namespace uhca::wire::test {
namespace {

std::string hex(std::span<const std::byte> b) {
  std::string s;
  for (auto x : b) s += fmt::format("{:02x}", static_cast<unsigned>(x));
  return s;
}
std::vector<std::byte> unhex(const std::string& s) {
  std::vector<std::byte> b;
  for (std::size_t i = 0; i + 1 < s.size(); i += 2) b.push_back(static_cast<std::byte>(std::stoi(s.substr(i, 2), nullptr, 16)));
  return b;
}
std::string mac_text(const Mac& m) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4], m[5]);
}
std::string ip_text(const Gid& g, bool v6) {
  if (!v6) return fmt::format("{}.{}.{}.{}", g[12], g[13], g[14], g[15]);
  std::string s;
  for (int i = 0; i < 16; i += 2) s += fmt::format("{}{:x}", i ? ":" : "", g[i] << 8 | g[i + 1]);
  return s;
}
std::string json(const Packet& p) {
  return fmt::format(
      R"({{"opcode":{},"solicited":{},"migreq":{},"pkey":{},"fecn":{},"becn":{},"dqpn":{},"ackreq":{},"psn":{},"dmac":"{}","smac":"{}","vlan":{},)"
      R"("ipv6":{},"v1":{},"src":"{}","dst":"{}","tclass":{},"hops":{},"flow":{},"id":{},"sport":{},"va":{},"rkey":{},"length":{},"swap":{},"compare":{},)"
      R"("syndrome":{},"msn":{},"qkey":{},"src_qp":{},"atomic_ack":{},"imm":{},"ieth":{},"xrc_srq":{},"payload":"{}"}})",
      static_cast<unsigned>(p.bth.opcode), int{p.bth.solicited}, int{p.bth.mig_req}, p.bth.pkey, int{p.bth.fecn}, int{p.bth.becn},
      p.bth.dest_qp, int{p.bth.ack_req}, p.bth.psn, mac_text(p.net.dmac), mac_text(p.net.smac), p.net.vlan, int{p.net.ipv6},
      int{p.net.roce_v1}, ip_text(p.net.sgid, p.net.ipv6 || p.net.roce_v1), ip_text(p.net.dgid, p.net.ipv6 || p.net.roce_v1),
      p.net.traffic_class, p.net.hop_limit, p.net.flow_label, p.net.identification, p.net.udp_sport,
      has(info(p.bth.opcode).props, Prop::kReth) ? p.reth.va : p.atomic_eth.va,
      has(info(p.bth.opcode).props, Prop::kReth) ? p.reth.rkey : p.atomic_eth.rkey, p.reth.length, p.atomic_eth.swap_add,
      p.atomic_eth.compare, p.aeth.syndrome, p.aeth.msn, p.deth.qkey, p.deth.src_qp, p.atomic_ack, p.imm, p.ieth, p.xrc_srq,
      hex(p.payload));
}

struct TempDir {
  std::string path;
  TempDir() {
    char t[] = "/tmp/uhca-wire-XXXXXX";
    path = mkdtemp(t);
  }
  ~TempDir() { [[maybe_unused]] int r = std::system(("rm -rf " + path).c_str()); }
};

// The CRC of annexes A16 and A17, bit by bit.
std::uint32_t bitwise_icrc(std::vector<std::byte> ip, const NetHeader& net) {
  const bool v6 = net.ipv6 || net.roce_v1;
  auto all_ones = [&](std::size_t at, std::size_t n) { std::fill_n(ip.begin() + static_cast<long>(at), n, std::byte{0xff}); };
  std::size_t l3 = v6 ? 40 : 20;
  if (v6) {
    ip[0] |= std::byte{0x0f};
    all_ones(1, 3);
    all_ones(7, 1);
  } else {
    all_ones(1, 1);
    all_ones(8, 1);
    all_ones(10, 2);
  }
  if (!net.roce_v1) all_ones(l3 + 6, 2);
  all_ones(l3 + (net.roce_v1 ? 4 : 12), 1);
  ip.insert(ip.begin(), 8, std::byte{0xff});
  std::uint32_t crc = ~0u;
  for (auto b : ip) {
    crc ^= static_cast<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

TEST(Roce, EmitsWhatScapyEmits) {
  std::mt19937 g(1);
  std::vector<Packet> packets;
  static const auto bytes = counting(4096);
  for (Opcode op : all_opcodes()) {
    if (service_of(op) == Service::kDC) continue;  // our own format: nobody else builds it
    for (std::size_t n : {0u, 1u, 2u, 3u, 4u, 5u, 255u, 1024u}) packets.push_back(random_packet(op, std::span(bytes).first(n), g));
  }
  packets.push_back(random_packet(make_opcode(Service::kRC, Op::kSendOnly), bytes, g));

  TempDir dir;
  std::ofstream in(dir.path + "/in");
  for (auto& p : packets) in << json(p) << '\n';
  in.close();
  std::string cmd = "/usr/bin/python3 " UHCA_SOURCE_DIR "/tests/wire/scapy_frames.py < " + dir.path + "/in > " + dir.path + "/out";
  ASSERT_EQ(std::system(cmd.c_str()), 0) << "python3 with scapy is needed";
  std::ifstream out(dir.path + "/out");
  std::string line;
  std::size_t compared = 0;
  for (auto& p : packets) {
    ASSERT_TRUE(std::getline(out, line));
    EXPECT_EQ(hex(frame_of(p)), line) << info(p.bth.opcode).name << " payload " << p.payload.size() << " ipv6 " << p.net.ipv6;
    Packet back;
    auto theirs = unhex(line);
    EXPECT_EQ(parse(theirs, back), ParseError::kNone);
    ++compared;
  }
  EXPECT_EQ(compared, packets.size());
}

TEST(Roce, TsharkFindsNothingMalformed) {
  std::mt19937 g(2);
  auto bytes = counting(64);
  TempDir dir;
  std::ofstream f(dir.path + "/a.pcap", std::ios::binary);
  std::uint32_t head[6] = {0xa1b23c4d, 0x00040002, 0, 0, 65535, 1};
  f.write(reinterpret_cast<char*>(head), sizeof head);
  std::size_t written = 0;
  for (Opcode op : all_opcodes()) {
    if (service_of(op) == Service::kXRC) continue;  // no dissector
    Packet p = random_packet(op, bytes, g);
    // What lies behind an unknown management class or a random destination is not ours to dissect.
    p.bth.dest_qp = 0x123456;
    if (p.bth.opcode != kCnp && has(info(op).props, Prop::kAeth)) p.aeth.syndrome = 0x1f;
    auto frame = frame_of(p);
    std::uint32_t rec[4] = {static_cast<std::uint32_t>(written), 0, static_cast<std::uint32_t>(frame.size()),
                            static_cast<std::uint32_t>(frame.size())};
    f.write(reinterpret_cast<char*>(rec), sizeof rec);
    f.write(reinterpret_cast<char*>(frame.data()), static_cast<long>(frame.size()));
    ++written;
  }
  f.close();
  auto lines = [&](const std::string& filter) {
    std::string cmd = "tshark -r " + dir.path + "/a.pcap -Y '" + filter + "' > " + dir.path + "/t 2> " + dir.path + "/err";
    EXPECT_EQ(std::system(cmd.c_str()), 0) << "tshark is needed";
    std::ifstream t(dir.path + "/t");
    std::size_t n = 0;
    for (std::string l; std::getline(t, l);) ++n;
    return n;
  };
  EXPECT_EQ(lines("infiniband.bth"), written);
  EXPECT_EQ(lines("_ws.malformed"), 0u);
  // tshark calls every UDP checksum of 0 over IPv6 an error; RoCEv2 permits it (annex A17), as other tunnels do (RFC 6936).
  EXPECT_EQ(lines("_ws.expert.severity == error && !udp.checksum.zero"), 0u);
}

void expect_equal(const Packet& a, const Packet& b) {
  EXPECT_EQ(a.net.dmac, b.net.dmac);
  EXPECT_EQ(a.net.smac, b.net.smac);
  EXPECT_EQ(a.net.vlan, b.net.vlan);
  EXPECT_EQ(a.net.ipv6, b.net.ipv6);
  EXPECT_EQ(a.net.roce_v1, b.net.roce_v1);
  EXPECT_EQ(a.net.sgid, b.net.sgid);
  EXPECT_EQ(a.net.dgid, b.net.dgid);
  EXPECT_EQ(a.net.traffic_class, b.net.traffic_class);
  EXPECT_EQ(a.net.hop_limit, b.net.hop_limit);
  EXPECT_EQ(a.net.flow_label, b.net.flow_label);
  EXPECT_EQ(a.net.identification, b.net.identification);
  EXPECT_EQ(a.net.udp_sport, b.net.udp_sport);
  EXPECT_EQ(json(a), json(b));  // all the rest, payload included
  EXPECT_EQ(a.bth.pad_count, b.bth.pad_count);
}

TEST(Roce, RoundTripOfEveryOpcodeAndSize) {
  std::mt19937 g(3);
  auto bytes = counting(4096);
  std::vector<std::byte> frame(kMaxFrame);
  std::size_t trips = 0;
  for (Opcode op : all_opcodes()) {
    bool payload = has(info(op).props, Prop::kPayload);
    for (std::size_t n = 0; n <= (payload ? 4096u : 0u); n += n < 40 ? 1 : 127) {
      Packet p = random_packet(op, std::span(bytes).first(n), g), q;
      ASSERT_LE(frame_size(p), kMaxFrame);
      std::size_t size = emit(p, frame);
      ASSERT_EQ(size, frame_size(p));
      ASSERT_EQ(parse(std::span(frame).first(size), q), ParseError::kNone) << info(op).name << n;
      expect_equal(p, q);
      ++trips;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(trips, 2000u);
  Packet p = random_packet(make_opcode(Service::kRC, Op::kSendOnly), bytes, g), q;
  for (std::size_t n = 0; n <= 4096; ++n) {
    p.payload = std::span(bytes).first(n);
    ASSERT_EQ(parse(std::span(frame).first(emit(p, frame)), q), ParseError::kNone);
    ASSERT_TRUE(std::equal(q.payload.begin(), q.payload.end(), p.payload.begin(), p.payload.end()));
  }
}

TEST(Roce, IcrcIsTheBitwiseCrc) {
  std::mt19937 g(4);
  auto bytes = counting(300);
  for (int i = 0; i < 500; ++i) {
    Packet p = random_packet(make_opcode(Service::kRC, Op::kWriteOnly), std::span(bytes).first(g() % 301), g);
    auto f = frame_of(p);
    std::size_t ip = p.net.vlan == 0xffff ? 14 : 18;
    std::vector<std::byte> l3(f.begin() + static_cast<long>(ip), f.end() - 4);
    std::uint32_t stored;
    std::memcpy(&stored, &f[f.size() - 4], 4);
    EXPECT_EQ(stored, bitwise_icrc(l3, p.net));
  }
  // Any length, even shorter than the headers, is safe.
  for (std::size_t n = 0; n < 80; ++n) {
    icrc(std::span(bytes).first(n), false);
    icrc(std::span(bytes).first(n), true);
    icrc_v1(std::span(bytes).first(n));
  }
}

// A CNP that a ConnectX-4 Lx sent: hardware's own ICRC.
TEST(Roce, HardwareFrame) {
  auto f = unhex(
      "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118"
      "000000000000000000000000000000000000000082fd002a");
  Packet p;
  ASSERT_EQ(parse(f, p), ParseError::kNone);
  EXPECT_EQ(p.bth.opcode, kCnp);
  EXPECT_EQ(p.bth.dest_qp, 0x118u);
  EXPECT_TRUE(p.bth.becn);
  EXPECT_EQ(frame_of(p), f);
}

std::vector<std::byte> resealed(std::vector<std::byte> f, std::size_t ip, bool v6, bool v1 = false) {
  auto packet = std::span(f).subspan(ip, f.size() - ip - 4);
  std::uint32_t crc = v1 ? icrc_v1(packet) : icrc(packet, v6);
  std::memcpy(&f[f.size() - 4], &crc, 4);
  return f;
}

TEST(Roce, NamesWhatIsWrong) {
  auto good = send_frame(gid4(10, 0, 0, 1), gid4(10, 0, 0, 2), 0x1234, 7, 5);
  Packet p;
  ASSERT_EQ(parse(good, p), ParseError::kNone);
  auto with = [&](std::size_t at, unsigned v, bool seal_again) {
    auto f = good;
    f[at] = static_cast<std::byte>(v);
    return seal_again ? resealed(f, 14, false) : f;
  };
  EXPECT_EQ(parse(with(14, 0x46, false), p), ParseError::kBadIpHeader);
  EXPECT_EQ(parse(with(24, 0x12, false), p), ParseError::kBadIpHeader);
  EXPECT_EQ(parse(with(12, 0x88, false), p), ParseError::kNotRoce);
  EXPECT_EQ(parse(with(37, 0xb8, false), p), ParseError::kNotRoce);
  EXPECT_EQ(parse(with(39, 0x10, false), p), ParseError::kShort);
  EXPECT_EQ(parse(with(42, 0x1f, true), p), ParseError::kUnknownOpcode);
  EXPECT_EQ(parse(with(42, 0x60, true), p), ParseError::kUnknownOpcode);
  EXPECT_EQ(parse(with(43, 0x41, true), p), ParseError::kBadVersion);
  EXPECT_EQ(parse(with(42, 0x11, true), p), ParseError::kBadPad);  // an ACK has none
  EXPECT_EQ(parse(with(60, 0x55, false), p), ParseError::kBadIcrc);
  EXPECT_EQ(parse(with(60, 0x55, true), p), ParseError::kNone);
  // Padding of the Ethernet frame behind the packet does no harm.
  auto padded = good;
  padded.resize(good.size() + 20);
  EXPECT_EQ(parse(padded, p), ParseError::kNone);
  EXPECT_EQ(p.payload.size(), 5u);
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(parse(std::span(good).first(n), p), ParseError::kNone);
  // RETH missing behind a WRITE; payload behind a READ request; pad larger than what is there.
  Packet w;
  w.net.sgid = gid4(10, 0, 0, 1), w.net.dgid = gid4(10, 0, 0, 2);
  w.bth.opcode = make_opcode(Service::kRC, Op::kSendOnly);
  auto empty = frame_of(w);
  empty[42] = std::byte{0x0a};
  EXPECT_EQ(parse(resealed(empty, 14, false), p), ParseError::kShort);
  empty[42] = std::byte{0x04};
  empty[43] = std::byte{0x70};
  EXPECT_EQ(parse(resealed(empty, 14, false), p), ParseError::kBadPad);
  auto sixteen = counting(20);
  w.payload = sixteen;
  auto read = frame_of(w);
  read[42] = std::byte{0x0c};
  EXPECT_EQ(parse(resealed(read, 14, false), p), ParseError::kShort);
  std::set<std::string> names;
  for (unsigned e = 0; e <= static_cast<unsigned>(ParseError::kBadIcrc); ++e) names.insert(parse_error_name(static_cast<ParseError>(e)));
  EXPECT_EQ(names.size(), 8u);
}

TEST(Roce, NamesWhatIsWrongWithARoceV1Frame) {
  Gid a{0xfe, 0x80}, b{0xfe, 0x80, 1};
  auto good = send_frame(a, b, 0x1234, 7, 5, false, true);
  ASSERT_EQ(good.size(), 14u + 40 + 12 + 8 + 4);
  EXPECT_EQ(load_be<std::uint16_t>(&good[12]), 0x8915);
  EXPECT_EQ(load_be<std::uint16_t>(&good[18]), 12 + 8 + 4);  // PayLen: from the BTH to the ICRC
  EXPECT_EQ(good[20], std::byte{0x1b});
  Packet p;
  ASSERT_EQ(parse(good, p), ParseError::kNone);
  EXPECT_TRUE(p.net.roce_v1);
  EXPECT_EQ(p.net.sgid, a);
  EXPECT_EQ(p.payload.size(), 5u);
  auto with = [&](std::size_t at, unsigned v, bool seal_again) {
    auto f = good;
    f[at] = static_cast<std::byte>(v);
    return seal_again ? resealed(f, 14, false, true) : f;
  };
  EXPECT_EQ(parse(with(14, 0x40, false), p), ParseError::kBadIpHeader);  // IPVer
  EXPECT_EQ(parse(with(20, 0x11, false), p), ParseError::kNotRoce);      // NxtHdr
  EXPECT_EQ(parse(with(18, 0x01, false), p), ParseError::kShort);        // PayLen beyond the frame
  EXPECT_EQ(parse(with(19, 0x0f, false), p), ParseError::kShort);        // PayLen without room for BTH and ICRC
  EXPECT_EQ(parse(with(54, 0x1f, true), p), ParseError::kUnknownOpcode);
  EXPECT_EQ(parse(with(55, 0x41, true), p), ParseError::kBadVersion);
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(parse(std::span(good).first(n), p), ParseError::kNone);
  // What may change on the way: traffic class, flow label, hop limit, resv8a. One flipped bit elsewhere is damage.
  auto changed = good;
  changed[14] = std::byte{0x6f}, changed[15] = changed[16] = changed[17] = std::byte{0x3c}, changed[21] = std::byte{3};
  changed[58] = std::byte{0xc0};
  EXPECT_EQ(parse(changed, p), ParseError::kNone);
  for (std::size_t bit = 22 * 8; bit < good.size() * 8; ++bit) {
    if (bit / 8 == 58) continue;
    auto flipped = good;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(parse(flipped, p), ParseError::kBadIcrc) << bit;
  }
}

// What routers may change on the way stays valid; one flipped bit elsewhere does not (cases, E1).
TEST(Roce, VariantFieldsMayChangeAndNothingElse) {
  for (bool v6 : {false, true}) {
    for (std::size_t n = 0; n <= 5; ++n) {
      Gid a{0x20, 1}, b{0x20, 2};
      auto good = v6 ? send_frame(a, b, 0x123456, 9, n, true) : send_frame(gid4(10, 0, 0, 1), gid4(10, 0, 0, 2), 0x123456, 9, n);
      std::size_t l3 = v6 ? 40 : 20, udp = 14 + l3;
      Packet p;
      auto changed = good;
      if (v6) {
        changed[14] = std::byte{0x6f}, changed[15] = changed[16] = changed[17] = std::byte{0x3c}, changed[21] = std::byte{3};
      } else {
        changed[15] = std::byte{0x03}, changed[22] = std::byte{0x3f};
        changed[24] = changed[25] = std::byte{0};
        std::uint32_t sum = 0;
        for (int i = 14; i < 34; i += 2) sum += load_be<std::uint16_t>(&changed[static_cast<std::size_t>(i)]);
        sum = (sum & 0xffff) + (sum >> 16);
        store_be(&changed[24], static_cast<std::uint16_t>(~(sum + (sum >> 16))));
      }
      changed[udp + 6] = std::byte{0xab}, changed[udp + 7] = std::byte{0xcd};
      changed[udp + 12] = std::byte{0xc0};  // FECN, BECN
      EXPECT_EQ(parse(changed, p), ParseError::kNone);
      EXPECT_TRUE(p.bth.fecn && p.bth.becn);
      EXPECT_EQ(p.net.traffic_class & 3, 3);
      for (std::size_t bit = (udp + 8) * 8; bit < good.size() * 8; ++bit) {
        if (bit / 8 == udp + 12) continue;  // resv8a
        auto flipped = good;
        flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        EXPECT_EQ(parse(flipped, p), ParseError::kBadIcrc) << bit;
      }
    }
  }
}

TEST(Roce, ParseSurvivesAnything) {
  std::mt19937 g(5);
  auto bytes = counting(200);
  auto ops = all_opcodes();
  std::array<std::size_t, 8> seen{};
  for (int i = 0; i < 200000; ++i) {
    Packet p = random_packet(ops[g() % ops.size()], std::span(bytes).first(g() % 201), g), q;
    auto f = frame_of(p);
    for (unsigned k = g() % 4; k--;) f[g() % f.size()] = static_cast<std::byte>(g());
    if (g() % 4 == 0) f.resize(g() % (f.size() + 1));
    if (g() % 2 && f.size() > 60) {  // most get behind the ICRC check
      std::size_t ip = p.net.vlan == 0xffff ? 14 : 18;
      f = resealed(f, ip, p.net.ipv6, p.net.roce_v1);
    }
    // An exact allocation, so that a sanitizer sees every byte too far.
    std::vector<std::byte> exact(f.begin(), f.end());
    exact.shrink_to_fit();
    ParseError e = parse(exact, q);
    ++seen[static_cast<std::size_t>(e)];
    if (e == ParseError::kNone) {
      ASSERT_TRUE(q.payload.empty() ||
                  (q.payload.data() >= exact.data() && q.payload.data() + q.payload.size() + 4 <= exact.data() + exact.size()));
    }
  }
  for (std::size_t e = 0; e < seen.size(); ++e) EXPECT_GT(seen[e], 0u) << parse_error_name(static_cast<ParseError>(e));
}

TEST(Roce, OpcodeTable) {
  EXPECT_EQ(all_opcodes().size(), 23u + 12 + 2 + 23 + 1 + 23);  // RC, UC, UD, XRC, CNP, DC
  EXPECT_STREQ(info(make_opcode(Service::kRC, Op::kSendOnly)).name, "RC_SEND_ONLY");
  EXPECT_EQ(info(make_opcode(Service::kUD, Op::kSendFirst)).name, nullptr);
  EXPECT_EQ(psn_diff(0, 0xffffff), 1);
  EXPECT_EQ(psn_diff(0x800000, 0), -0x800000);
  EXPECT_EQ(psn_add(0xfffffe, 3), 1u);
}

}  // namespace
}  // namespace uhca::wire::test

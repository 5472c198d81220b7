// What the TCP transport does beyond what every transport does: peers that go, peers that send nonsense, places that come late.

#include "ops/transport/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/transport/tcp/frame.h"
#include "tests/core/support/sanitized.h"
#include "tests/core/transport/open_wires.h"
#include "tests/core/transport/sockets.h"

namespace tf_strategies {
namespace {

using tcp::FrameHead;
using tcp::FrameKind;

constexpr size_t kLong = 1 << 20;

std::vector<char> Pattern(size_t bytes, int seed) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed) * 7);
  return data;
}

bool Drive(const std::vector<Transport*>& transports, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < end) {
    for (Transport* transport : transports) transport->Progress();
  }
  return done();
}

// On connections without TLS and with it.
class TcpPairTest : public ::testing::TestWithParam<bool> {
 protected:
  // Both ends know one another: a message has come.
  static Transports Pair() {
    Transports transports = Tcp(2, GetParam() ? CertificateFolder() : "");
    char byte = 0;
    bool came = false;
    transports[0]->Send(1, {7, 7, 0}, &byte, 1, [](const Status&) {});
    transports[1]->Receive(0, {7, 7, 0}, &byte, 1, [&](const Status&, const Received&) { came = true; });
    EXPECT_TRUE(Drive({transports[0].get(), transports[1].get()}, [&] { return came; }));
    return transports;
  }
};
INSTANTIATE_TEST_SUITE_P(PlainAndTls, TcpPairTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "tls" : "plain"); });

TEST_P(TcpPairTest, LongMessagesFindTheirPlacesInWhateverOrderTheyAreNamed) {
  auto transports = Pair();
  constexpr int kMessages = 12;
  std::vector<std::vector<char>> sent, received(kMessages, std::vector<char>(kLong));
  for (int i = 0; i < kMessages; ++i) sent.push_back(Pattern(kLong - i, i));
  int completions = 0;
  const auto receive = [&](int i) {
    transports[1]->Receive(0, {1, static_cast<uint32_t>(i), 0}, received[i].data(), kLong,
                           [&, i](const Status& status, const Received& got) {
                             EXPECT_TRUE(status.ok()) << status.ToString();
                             EXPECT_EQ(got.bytes, sent[i].size());
                             EXPECT_EQ(got.signature, static_cast<uint32_t>(i));
                             ++completions;
                           });
  };
  const auto send = [&](int i) {
    transports[0]->Send(1, {1, static_cast<uint32_t>(i), static_cast<uint32_t>(i)}, sent[i].data(),
                        sent[i].size(), [&](const Status& status) { completions += status.ok(); });
  };
  for (int i = 0; i < 4; ++i) receive(i);
  for (int i = kMessages - 1; i >= 0; --i) send(i);
  for (int round = 0; round < 1000; ++round) {
    for (auto& transport : transports) transport->Progress();
  }
  for (int i = kMessages - 1; i >= 4; --i) receive(i);
  ASSERT_TRUE(
      Drive({transports[0].get(), transports[1].get()}, [&] { return completions == 2 * kMessages; }));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(std::memcmp(received[i].data(), sent[i].data(), sent[i].size()), 0) << i;
  }
}

TEST_P(TcpPairTest, ShortAndLongMessagesOfOneTagKeepTheirOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    auto transports = Pair();
    constexpr int kMessages = 16;
    std::vector<std::vector<char>> sent, received(kMessages, std::vector<char>(kLong));
    for (int i = 0; i < kMessages; ++i) sent.push_back(Pattern(random() % 2 ? 100000 + i : 10 + i, i));
    int next_sent = 0, next_received = 0, completions = 0;
    while (next_sent < kMessages || next_received < kMessages) {
      if (next_sent < kMessages && (next_received == kMessages || random() % 2)) {
        const auto& data = sent[next_sent++];
        transports[0]->Send(1, {1, 1, 0}, data.data(), data.size(),
                            [&](const Status& status) { completions += status.ok(); });
      } else {
        const int i = next_received++;
        transports[1]->Receive(0, {1, 1, 0}, received[i].data(), kLong,
                               [&, i](const Status& status, const Received& got) {
                                 completions += status.ok();
                                 received[i].resize(got.bytes);
                               });
      }
      for (int turns = random() % 4; turns > 0; --turns) transports[random() % 2]->Progress();
    }
    ASSERT_TRUE(
        Drive({transports[0].get(), transports[1].get()}, [&] { return completions == 2 * kMessages; }))
        << "round " << round << ": " << completions;
    EXPECT_EQ(received, sent) << "round " << round;
  }
}

// It is there already: who has sent all may go. What had not come is an error.
TEST_P(TcpPairTest, WhatHadComeBeforeItsSenderLeftIsReceived) {
  auto transports = Pair();
  const auto sent = Pattern(4000, 1);
  std::vector<char> received(4000), never(kLong);
  transports[0]->Send(1, {1, 1, 0}, sent.data(), sent.size(), [](const Status&) {});
  transports[0]->Send(1, {1, 2, 0}, never.data(), never.size(), [](const Status&) {});
  std::vector<Status> statuses;
  const auto note = [&](const Status& status, const Received&) { statuses.push_back(status); };
  transports[1]->Receive(0, {1, 3, 0}, received.data(), 1, note);
  for (int i = 0; i < 10; ++i) transports[0]->Progress();
  transports[0].reset();
  ASSERT_TRUE(Drive({transports[1].get()}, [&] { return statuses.size() == 1; }))
      << "the loss is not noticed";
  EXPECT_EQ(statuses[0].code(), Code::kUnavailable);
  EXPECT_NE(statuses[0].message().find("rank 0"), std::string::npos) << statuses[0].message();
  transports[1]->Receive(0, {1, 1, 0}, received.data(), received.size(), note);
  ASSERT_TRUE(Drive({transports[1].get()}, [&] { return statuses.size() == 2; }));
  EXPECT_TRUE(statuses[1].ok()) << statuses[1].ToString();
  EXPECT_EQ(received, sent);
  for (const uint32_t message : {1u, 2u})
    transports[1]->Receive(0, {1, message, 0}, never.data(), kLong, note);
  Status failed;
  transports[1]->Send(0, {1, 1, 0}, sent.data(), sent.size(), [&](const Status& status) { failed = status; });
  EXPECT_EQ(statuses.size(), 4);
  EXPECT_EQ(statuses[2].code(), Code::kUnavailable) << "it came once";
  EXPECT_EQ(statuses[3].code(), Code::kUnavailable) << "it never came whole";
  EXPECT_EQ(failed.code(), Code::kUnavailable);
}

// A transport of rank 0 whose peer is the test.
class WithStranger : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto [mine, theirs] = ConnectedSockets();
    ASSERT_TRUE(MakeTcpTransport(0, {-1, mine}, &transport_).ok());
    stranger_ = theirs;
  }
  void TearDown() override { close(stranger_); }

  void Say(const void* data, size_t bytes) {
    const char* from = static_cast<const char*>(data);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (bytes > 0 && std::chrono::steady_clock::now() < end) {
      const ssize_t sent = send(stranger_, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        from += sent;
        bytes -= static_cast<size_t>(sent);
      } else if (errno != EAGAIN) {
        return;
      }
      transport_->Progress();
    }
  }

  void SayHead(FrameKind kind, uint32_t key, uint64_t bytes) {
    FrameHead head;
    head.kind = kind;
    head.key = key;
    head.bytes = bytes;
    Say(&head, sizeof(head));
  }

  // The error that ends a reception of the peer.
  Status Verdict() {
    Status verdict;
    bool ended = false;
    char place = 0;
    transport_->Receive(1, {9, 9, 0}, &place, 1, [&](const Status& status, const Received&) {
      verdict = status;
      ended = true;
    });
    EXPECT_TRUE(Drive({transport_.get()}, [&] { return ended; })) << "nothing ended";
    return verdict;
  }

  std::unique_ptr<Transport> transport_;
  int stranger_ = -1;
};

TEST_F(WithStranger, HeadsThatNoPeerSendsEndTheConnection) {
  struct Head {
    FrameKind kind;
    uint64_t bytes;
  };
  for (const Head& head :
       {Head{FrameKind::kEager, tcp::kEagerBytes + 1}, Head{FrameKind::kEager, UINT64_MAX},
        Head{FrameKind::kAnnounce, UINT64_MAX}, Head{FrameKind::kAnnounce, 5}, Head{FrameKind::kReady, 5},
        Head{FrameKind::kData, 5}, Head{FrameKind::kData, uint64_t{1} << 62},
        Head{FrameKind::kData, tcp::kMostEarlyBytes + 1}, Head{static_cast<FrameKind>(0), 0},
        Head{static_cast<FrameKind>(77), 100000}}) {
    SayHead(head.kind, 1, head.bytes);
    const Status verdict = Verdict();
    EXPECT_FALSE(verdict.ok());
    EXPECT_NE(verdict.message().find("rank 1"), std::string::npos) << verdict.message();
    TearDown();
    SetUp();
  }
}

TEST_F(WithStranger, RandomBytesEndTheConnectionOrWait) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<char> bytes(random() % 2000);
    for (char& each : bytes) each = static_cast<char>(random());
    Say(bytes.data(), bytes.size());
    close(stranger_);
    stranger_ = -1;
    EXPECT_FALSE(Verdict().ok());
    SetUp();
  }
}

TEST_F(WithStranger, MessagesThatNobodyAsksForAreBounded) {
  const std::vector<char> payload(tcp::kEagerBytes);
  const size_t most = tcp::kMostEarlyBytes / payload.size();
  for (size_t i = 0; i <= most; ++i) {
    SayHead(FrameKind::kEager, static_cast<uint32_t>(i % 7), payload.size());
    Say(payload.data(), payload.size());
  }
  const Status verdict = Verdict();
  EXPECT_EQ(verdict.code(), Code::kResourceExhausted) << verdict.ToString();
}

TEST_F(WithStranger, FramesThatNobodyAsksForAreBounded) {
  for (const FrameKind kind : {FrameKind::kAnnounce, FrameKind::kReady, FrameKind::kEager}) {
    FrameHead head;
    head.kind = kind;
    head.key = 3;
    head.bytes = kind == FrameKind::kEager ? 0 : kLong;
    const std::vector<FrameHead> heads(tcp::kMostEarlyFrames + 1, head);
    Say(heads.data(), heads.size() * sizeof(FrameHead));
    const Status verdict = Verdict();
    EXPECT_EQ(verdict.code(), Code::kResourceExhausted) << verdict.ToString();
    TearDown();
    SetUp();
  }
}

int64_t ResidentBytes() {
  int64_t unused = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> unused >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// As many keys as frames: what is kept for a key must not be many times a frame.
TEST_F(WithStranger, FramesOfDifferentKeysTakeLittleMemory) {
  std::vector<FrameHead> heads(tcp::kMostEarlyFrames);
  for (size_t i = 0; i < heads.size(); ++i) {
    heads[i].kind = i % 2 ? FrameKind::kAnnounce : FrameKind::kEager;
    heads[i].bytes = i % 2 ? kLong : 0;
    heads[i].key = static_cast<uint32_t>(i);
  }
  const int64_t before = ResidentBytes();
  Say(heads.data(), heads.size() * sizeof(FrameHead));
  for (int i = 0; i < 1000; ++i) transport_->Progress();
  const int64_t taken = ResidentBytes() - before;
  EXPECT_LT(taken, static_cast<int64_t>(heads.size()) * (kSanitized ? 2048 : 512));
  SayHead(FrameKind::kAnnounce, 0, kLong);
  EXPECT_EQ(Verdict().code(), Code::kResourceExhausted) << "the frames were not kept";
}

TEST_F(WithStranger, DataOfAnotherLengthThanThePlaceIsAMismatch) {
  std::vector<char> place(kLong);
  Status outcome;
  bool ended = false;
  transport_->Receive(1, {0, 4, 0}, place.data(), place.size(), [&](const Status& status, const Received&) {
    outcome = status;
    ended = true;
  });
  const std::vector<char> payload(2 * kLong, 'x');
  SayHead(FrameKind::kData, 4, payload.size());
  Say(payload.data(), payload.size());
  ASSERT_TRUE(Drive({transport_.get()}, [&] { return ended; }));
  EXPECT_EQ(outcome.code(), Code::kMismatch) << outcome.ToString();
  EXPECT_TRUE(place == std::vector<char>(kLong)) << "something was written";
}

TEST_F(WithStranger, DataOfAnotherLengthThanAnnouncedEndTheConnection) {
  const std::vector<char> payload(100000, 'x');
  SayHead(FrameKind::kAnnounce, 4, kLong);
  SayHead(FrameKind::kData, 4, payload.size());
  Say(payload.data(), payload.size());
  const Status verdict = Verdict();
  EXPECT_NE(verdict.message().find("1048576 bytes were announced, and 100000 came"), std::string::npos)
      << verdict.message();
}

TEST_F(WithStranger, DataOfAnotherLengthThanAnnouncedEndTheConnectionAlsoWhenTheyAreAwaited) {
  std::vector<char> place(kLong);
  Status outcome;
  transport_->Receive(1, {0, 4, 0}, place.data(), place.size(),
                      [&](const Status& status, const Received&) { outcome = status; });
  const std::vector<char> payload(100000, 'x');
  SayHead(FrameKind::kAnnounce, 4, kLong);
  SayHead(FrameKind::kData, 4, payload.size());
  Say(payload.data(), payload.size());
  EXPECT_EQ(Verdict().code(), Code::kInvalidArgument);
  EXPECT_NE(outcome.message().find("1048576 bytes were announced, and 100000 came"), std::string::npos)
      << outcome.message();
  EXPECT_TRUE(place == std::vector<char>(kLong)) << "something was written";
}

TEST_F(WithStranger, DataThatAreTooLongAreAMismatchAsSoonAsTheirHeadIsThere) {
  char place = 0;
  Status outcome;
  transport_->Receive(1, {0, 4, 0}, &place, 1,
                      [&](const Status& status, const Received&) { outcome = status; });
  SayHead(FrameKind::kData, 4, tcp::kMostBytes);
  ASSERT_TRUE(Drive({transport_.get()}, [&] { return !outcome.ok(); })) << "a terabyte is waited for";
  EXPECT_EQ(outcome.code(), Code::kMismatch) << outcome.ToString();
}

// The payload of the first message is half there when a reception takes its announcement and has no room for it. The second
// message, which is longer, must not take the payload for its own.
TEST_F(WithStranger, APayloadIsNotTakenForThatOfALongerMessage) {
  const std::vector<char> payload(kLong, 'x');
  SayHead(FrameKind::kAnnounce, 4, kLong);
  SayHead(FrameKind::kAnnounce, 4, 2 * kLong);
  SayHead(FrameKind::kData, 4, kLong);
  Say(payload.data(), kLong / 2);
  for (int i = 0; i < 100; ++i) transport_->Progress();
  std::vector<Status> outcomes;
  const auto note = [&](const Status& status, const Received&) { outcomes.push_back(status); };
  char small = 0;
  transport_->Receive(1, {0, 4, 0}, &small, 1, note);
  ASSERT_EQ(outcomes.size(), 1);
  EXPECT_EQ(outcomes[0].code(), Code::kMismatch);
  Say(payload.data(), kLong / 2);
  for (int i = 0; i < 100; ++i) transport_->Progress();
  std::vector<char> place(2 * kLong);
  transport_->Receive(1, {0, 4, 0}, place.data(), place.size(), note);
  EXPECT_EQ(outcomes.size(), 1) << "the second message has not come";
  close(stranger_);
  stranger_ = -1;
  ASSERT_TRUE(Drive({transport_.get()}, [&] { return outcomes.size() == 2; }));
  EXPECT_EQ(outcomes[1].code(), Code::kUnavailable) << outcomes[1].ToString();
  EXPECT_TRUE(place == std::vector<char>(2 * kLong)) << "something was written";
}

TEST(TcpTransportTest, RefusesWhatIsNoSocket) {
  std::unique_ptr<Transport> transport;
  const int closed = dup(0);
  close(closed);
  const Status status = MakeTcpTransport(0, {-1, closed}, &transport);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
}

TEST(TcpTransportTest, ARankWithoutAConnectionIsAnError) {
  const auto [mine, theirs] = ConnectedSockets();
  std::unique_ptr<Transport> transport;
  ASSERT_TRUE(MakeTcpTransport(0, {-1, -1, mine}, &transport).ok());
  std::vector<Status> statuses;
  char data = 0;
  transport->Send(1, {1, 1, 0}, &data, 1, [&](const Status& status) { statuses.push_back(status); });
  transport->Receive(1, {1, 1, 0}, &data, 1,
                     [&](const Status& status, const Received&) { statuses.push_back(status); });
  ASSERT_EQ(statuses.size(), 2);
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("rank 1 has no connection"), std::string::npos) << status.message();
  }
  EXPECT_EQ(transport->counters().messages_sent, 0);
  close(theirs);
}

// What a peer still sends, and its end, do not keep the thread awake that waits to be told of its own end.
TEST_P(TcpPairTest, AWaitAfterCancelSleeps) {
  auto transports = Pair();
  transports[0]->Wake();
  transports[0]->Cancel();
  transports.pop_back();
  transports[0]->Progress();
  ASSERT_TRUE(transports[0]->Arm());
  const auto start = std::chrono::steady_clock::now();
  transports[0]->Wait(100);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(90));
}

}  // namespace
}  // namespace tf_strategies

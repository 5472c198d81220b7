// What the TCP transport does beyond what every transport does: peers that go, places that come late, ranks without a connection.

#include "ops/transport/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/core/support/sockets.h"
#include "tests/core/transport/drive.h"
#include "tests/core/transport/open_wires.h"

namespace tf_strategies {
namespace {

constexpr size_t kLong = 1 << 20;

std::vector<char> Pattern(size_t bytes, int seed) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed) * 7);
  return data;
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

}  // namespace
}  // namespace tf_strategies

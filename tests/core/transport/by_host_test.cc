// What the transport by host does beyond what every transport does: two ways side by side, and a peer lost on one of them.

#include "ops/transport/by_host.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/transport/in_process.h"
#include "tests/core/transport/open_wires.h"

namespace tf_strategies {
namespace {

constexpr size_t kLong = 1 << 20;
const std::vector<int> kTwoOnEach = {0, 0, 1, 1};

bool Drive(Transports& transports, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < end) {
    for (auto& transport : transports) {
      if (transport != nullptr) transport->Progress();
    }
  }
  return done();
}

std::vector<char> Pattern(size_t bytes, int seed) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed) * 7);
  return data;
}

TEST(ByHostTest, AllRanksReachEachOtherWithShortAndLongMessagesAtOnce) {
  constexpr int kSize = 4;
  for (const size_t bytes : {size_t{100}, kLong}) {
    auto transports = ByHost(kTwoOnEach, kSize);
    std::vector<std::vector<char>> sent, received(kSize * kSize, std::vector<char>(bytes));
    for (int pair = 0; pair < kSize * kSize; ++pair) sent.push_back(Pattern(bytes, pair));
    int completions = 0, pairs = 0;
    for (int from = 0; from < kSize; ++from) {
      for (int to = 0; to < kSize; ++to) {
        if (from == to) continue;
        const int pair = from * kSize + to;
        ++pairs;
        transports[to]->Receive(from, {1, 2, 0}, received[pair].data(), bytes,
                                [&](const Status& status, const Received&) { completions += status.ok(); });
        transports[from]->Send(to, {1, 2, 0}, sent[pair].data(), bytes,
                               [&](const Status& status) { completions += status.ok(); });
      }
    }
    ASSERT_TRUE(Drive(transports, [&] { return completions == 2 * pairs; })) << bytes;
    for (int pair = 0; pair < kSize * kSize; ++pair) {
      if (pair / kSize == pair % kSize) continue;
      EXPECT_EQ(received[pair], sent[pair]) << "from " << pair / kSize << " to " << pair % kSize;
    }
    const int64_t all = static_cast<int64_t>(3 * bytes);
    for (const auto& transport : transports) {
      const TransportCounters counters = transport->counters();
      EXPECT_EQ(counters.bytes_sent, all);
      EXPECT_EQ(counters.bytes_received, all);
      EXPECT_EQ(counters.messages_sent, 3);
      EXPECT_EQ(counters.messages_received, 3);
    }
  }
}

TEST(ByHostTest, ConnectionsAreThoseToOtherHosts) {
  auto transports = ByHost({0, 0, 1}, 3);
  std::vector<char> data(kLong);
  int completions = 0;
  int64_t messages = 0;
  ConnectionCounters sent;
  while (sent.seconds == 0.0 && messages < 1000) {  // the system counts in ticks of some milliseconds
    const Tag tag{1, static_cast<uint32_t>(messages), 0};
    transports[2]->Receive(0, tag, data.data(), kLong,
                           [&](const Status& status, const Received&) { completions += status.ok(); });
    transports[0]->Send(2, tag, data.data(), kLong,
                        [&](const Status& status) { completions += status.ok(); });
    ++messages;
    ASSERT_TRUE(Drive(transports, [&] { return completions == 2 * messages; }));
    const std::vector<ConnectionCounters> all = transports[0]->connections();
    ASSERT_EQ(all.size(), 1u);
    sent = all[0];
  }
  const auto payload = static_cast<int64_t>(messages * kLong);
  ASSERT_TRUE(Drive(transports, [&] { return transports[0]->connections().at(0).bytes >= payload; }));
  EXPECT_EQ(sent.peer, 2);
  EXPECT_EQ(sent.messages, messages);
  EXPECT_LT(transports[0]->connections().at(0).bytes, payload + 1024 * messages);
  EXPECT_GT(sent.seconds, 0.0);
  EXPECT_LT(sent.seconds, 20.0);
  const std::vector<ConnectionCounters> of_the_other = transports[2]->connections();
  ASSERT_EQ(of_the_other.size(), 2u);
  EXPECT_EQ(of_the_other[0].messages, 0);
  EXPECT_EQ(of_the_other[1].peer, 1);
}

TEST(ByHostTest, DescribesBothWays) {
  auto transports = ByHost({0, 0, 1}, 3);
  EXPECT_EQ(transports[0]->Describe(), "tcp");
  char data = 0;
  transports[0]->Send(1, {1, 1, 0}, &data, 1, [](const Status&) {});
  const std::string text = transports[0]->Describe();
  const std::string end = " (same host), tcp";
  ASSERT_GT(text.size(), end.size());
  EXPECT_EQ(text.substr(text.size() - end.size()), end) << text;
  EXPECT_EQ(text.find("tcp"), text.size() - 3) << "UCX has no TCP: " << text;
}

TEST(ByHostTest, OneWaitEndsByAMessageFromEitherSide) {
  auto transports = ByHost({0, 0, 1}, 3);
  std::vector<char> sent(100), received(100);
  for (int round = 0; round < 10; ++round) {
    for (const int from : {1, 2}) {
      int completions = 0;
      for (const int peer : {1, 2}) {
        transports[0]->Receive(peer, {1, 1, 0}, received.data(), received.size(),
                               [&](const Status&, const Received&) { ++completions; });
      }
      while (transports[0]->Progress() || !transports[0]->Arm()) {
      }
      const auto start = std::chrono::steady_clock::now();
      std::thread sender([&] {
        transports[from]->Send(0, {1, 1, 0}, sent.data(), sent.size(), [](const Status&) {});
        for (int i = 0; i < 1000; ++i) transports[from]->Progress();
      });
      transports[0]->Wait(20000);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << from;
      sender.join();
      transports[3 - from]->Send(0, {1, 1, 0}, sent.data(), sent.size(), [](const Status&) {});
      ASSERT_TRUE(Drive(transports, [&] { return completions == 2; }));
    }
  }
}

TEST(ByHostTest, ALostRankOfAnotherHostLeavesTheOthersConnected) {
  auto transports = ByHost({0, 0, 1}, 3);
  std::vector<char> place(kLong);
  Status lost;
  bool ended = false;
  transports[0]->Receive(2, {1, 1, 0}, place.data(), place.size(),
                         [&](const Status& status, const Received&) {
                           lost = status;
                           ended = true;
                         });
  transports[2].reset();
  ASSERT_TRUE(Drive(transports, [&] { return ended; })) << "the loss is not noticed";
  EXPECT_EQ(lost.code(), Code::kUnavailable);
  EXPECT_NE(lost.message().find("rank 2"), std::string::npos) << lost.message();
  const auto sent = Pattern(kLong, 5);
  int completions = 0;
  transports[0]->Receive(1, {1, 1, 0}, place.data(), place.size(),
                         [&](const Status& status, const Received&) { completions += status.ok(); });
  transports[1]->Send(0, {1, 1, 0}, sent.data(), sent.size(),
                      [&](const Status& status) { completions += status.ok(); });
  ASSERT_TRUE(Drive(transports, [&] { return completions == 2; }));
  EXPECT_EQ(place, sent);
}

TEST(ByHostTest, WhatWasSentLeavesBeforeTheTransportEnds) {
  auto transports = ByHost({0, 0, 1}, 3);
  const auto sent = Pattern(5000, 2);
  std::vector<std::vector<char>> received(2, std::vector<char>(sent.size()));
  int completions = 0;
  for (const int peer : {1, 2}) {
    transports[0]->Send(peer, {1, 1, 0}, sent.data(), sent.size(), [](const Status&) {});
  }
  transports[0].reset();
  for (const int peer : {1, 2}) {
    transports[peer]->Receive(0, {1, 1, 0}, received[peer - 1].data(), sent.size(),
                              [&](const Status& status, const Received&) { completions += status.ok(); });
  }
  ASSERT_TRUE(Drive(transports, [&] { return completions == 2; }));
  for (const auto& each : received) EXPECT_EQ(each, sent);
}

TEST(ByHostTest, NothingCompletesAfterCancelOnEitherSide) {
  auto transports = ByHost({0, 0, 1}, 3);
  std::vector<char> place(kLong);
  const auto sent = Pattern(kLong, 3);
  int completions = 0;
  for (const int peer : {1, 2}) {
    transports[0]->Receive(peer, {1, 1, 0}, place.data(), place.size(),
                           [&](const Status&, const Received&) { ++completions; });
  }
  transports[0]->Cancel();
  for (const int peer : {1, 2}) {
    transports[peer]->Send(0, {1, 1, 0}, sent.data(), sent.size(), [](const Status&) {});
  }
  for (int i = 0; i < 1000; ++i) {
    for (auto& transport : transports) transport->Progress();
  }
  EXPECT_EQ(completions, 0);
  for (const int peer : {1, 2}) transports[peer]->Cancel();
}

TEST(ByHostTest, RefusesTransportsThatDoNotFitTogether) {
  std::unique_ptr<Transport> made;
  auto two = Tcp(2), more = Tcp(3), others = Tcp(2);
  EXPECT_EQ(MakeByHostTransport(std::move(two[0]), std::move(more[0]), {true, true}, &made).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(MakeByHostTransport(std::move(two[1]), std::move(others[0]), {true, true}, &made).code(),
            Code::kInvalidArgument);
  auto fabric = MakeInProcessFabric(2, 1000);
  const Status status =
      MakeByHostTransport(MakeInProcessTransport(fabric, 1), std::move(others[1]), {true, true}, &made);
  EXPECT_NE(status.message().find("without an event fd"), std::string::npos) << status.message();
  EXPECT_EQ(made, nullptr);
}

TEST(ByHostTest, ARankThatUcxDoesNotReachIsAnError) {
  std::unique_ptr<UcxWorker> worker;
  ASSERT_TRUE(UcxWorker::Open({"sm", ""}, &worker).ok());
  const std::string own = worker->address();
  std::unique_ptr<Transport> transport;
  ASSERT_TRUE(UcxWorker::Connect(std::move(worker), 0, {own, ""}, {true, false}, &transport).ok());
  std::vector<Status> statuses;
  char data = 0;
  transport->Send(1, {1, 1, 0}, &data, 1, [&](const Status& status) { statuses.push_back(status); });
  transport->Receive(1, {1, 1, 0}, &data, 1,
                     [&](const Status& status, const Received&) { statuses.push_back(status); });
  ASSERT_EQ(statuses.size(), 2);
  for (const Status& status : statuses) EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
}

}  // namespace
}  // namespace tf_strategies

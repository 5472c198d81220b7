// What every transport must do, tried on each: in-process (eager and rendezvous), UCX (shared memory and TCP), TCP of our own, and both
// by host.

#include "ops/transport/transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/transport/in_process.h"
#include "ops/transport/ucx.h"
#include "tests/core/transport/open_wires.h"

namespace tf_strategies {
namespace {

Transports InProcess(int size, size_t eager_bytes) {
  Transports transports;
  auto fabric = MakeInProcessFabric(size, eager_bytes);
  for (int rank = 0; rank < size; ++rank) transports.push_back(MakeInProcessTransport(fabric, rank));
  return transports;
}

struct Wire {
  const char* name;
  std::function<Transports(int size)> make;
};

class Driven {
 protected:
  // Drives all ranks from this thread until the condition holds, for 20 s at most.
  static bool Drive(Transports& transports, const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < end) {
      for (auto& transport : transports) transport->Progress();
    }
    return done();
  }

  static std::vector<char> Pattern(size_t bytes, int seed) {
    std::vector<char> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed) * 7);
    return data;
  }
};

class TransportTest : public Driven, public ::testing::TestWithParam<Wire> {};
class UcxTest : public Driven, public ::testing::Test {};

TEST_P(TransportTest, DeliversEveryLengthWithItsSignature) {
  auto transports = GetParam().make(2);
  for (size_t bytes : {0, 1, 100, 5000, 70000, 3000001}) {
    const auto sent = Pattern(bytes, 1);
    std::vector<char> received(bytes);
    int completions = 0;
    Received got;
    transports[1]->Receive(0, {5, 6, 0}, received.data(), bytes,
                           [&](const Status& status, const Received& what) {
                             EXPECT_TRUE(status.ok()) << status.ToString();
                             got = what;
                             ++completions;
                           });
    transports[0]->Send(1, {5, 6, 777}, sent.data(), bytes, [&](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      ++completions;
    });
    ASSERT_TRUE(Drive(transports, [&] { return completions == 2; })) << bytes;
    EXPECT_EQ(received, sent);
    EXPECT_EQ(got.signature, 777);
    EXPECT_EQ(got.bytes, bytes);
  }
}

TEST_P(TransportTest, MatchesBySourceInstanceAndMessage) {
  auto transports = GetParam().make(3);
  std::vector<std::vector<char>> sent, received(8);
  int completions = 0;
  const auto count = [&](const Status& status) { completions += status.ok(); };
  for (int i = 0; i < 8; ++i) sent.push_back(Pattern(2000, i));
  const auto tag_of = [](int i) {
    return Tag{static_cast<uint16_t>(i & 1), static_cast<uint16_t>(i >> 1 & 1), 0};
  };
  for (int i = 0; i < 8; ++i) transports[i >> 2]->Send(2, tag_of(i), sent[i].data(), 2000, count);
  for (int i = 7; i >= 0; --i) {
    received[i].resize(2000);
    transports[2]->Receive(i >> 2, tag_of(i), received[i].data(), 2000,
                           [&](const Status& status, const Received&) { count(status); });
  }
  ASSERT_TRUE(Drive(transports, [&] { return completions == 16; }));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(received[i], sent[i]) << i;
}

TEST_P(TransportTest, EqualTagsArriveInOrder) {
  auto transports = GetParam().make(2);
  constexpr int kMessages = 50;
  std::vector<std::vector<char>> sent, received(kMessages, std::vector<char>(40000));
  int completions = 0;
  for (int i = 0; i < kMessages; ++i) sent.push_back(Pattern(i % 2 ? 40000 : 16, i));
  for (int i = 0; i < kMessages; ++i) {
    transports[0]->Send(1, {1, 1, 0}, sent[i].data(), sent[i].size(), [&](const Status&) { ++completions; });
  }
  for (int i = 0; i < kMessages; ++i) {
    transports[1]->Receive(0, {1, 1, 0}, received[i].data(), 40000,
                           [&, i](const Status&, const Received& got) {
                             received[i].resize(got.bytes);
                             ++completions;
                           });
  }
  ASSERT_TRUE(Drive(transports, [&] { return completions == 2 * kMessages; }));
  EXPECT_EQ(received, sent);
}

TEST_P(TransportTest, ATooLongMessageIsAMismatch) {
  auto transports = GetParam().make(2);
  for (size_t bytes : {200, 500000}) {
    const auto sent = Pattern(bytes, 1);
    std::vector<char> received(100);
    Status outcome;
    bool done = false;
    transports[1]->Receive(0, {1, 1, 0}, received.data(), 100, [&](const Status& status, const Received&) {
      outcome = status;
      done = true;
    });
    transports[0]->Send(1, {1, 1, 0}, sent.data(), bytes, [](const Status&) {});
    ASSERT_TRUE(Drive(transports, [&] { return done; }));
    EXPECT_EQ(outcome.code(), Code::kMismatch) << outcome.ToString();
  }
}

TEST_P(TransportTest, WakeEndsAWait) {
  auto transports = GetParam().make(2);
  for (int round = 0; round < 20; ++round) {
    while (transports[0]->Progress() || !transports[0]->Arm()) {
    }
    const auto start = std::chrono::steady_clock::now();
    std::thread waker([&] { transports[0]->Wake(); });
    bool woken = false;
    for (int waits = 0; waits < 5 && !woken; ++waits) {
      transports[0]->Wait(2000);
      woken = std::chrono::steady_clock::now() - start < std::chrono::seconds(1);
    }
    waker.join();
    EXPECT_TRUE(woken);
  }
}

TEST_P(TransportTest, AnArrivingMessageEndsAWait) {
  auto transports = GetParam().make(2);
  std::vector<char> sent(100), received(100);
  int completions = 0;
  const auto receive = [&] {
    transports[1]->Receive(0, {1, 1, 0}, received.data(), received.size(),
                           [&](const Status&, const Received&) { ++completions; });
  };
  const auto send = [&] {
    transports[0]->Send(1, {1, 1, 0}, sent.data(), sent.size(), [&](const Status&) { ++completions; });
  };
  receive();
  send();
  ASSERT_TRUE(Drive(transports, [&] { return completions == 2; }));
  receive();
  while (transports[1]->Progress() || !transports[1]->Arm()) {
  }
  const auto start = std::chrono::steady_clock::now();
  std::thread sender([&] {
    send();
    for (int i = 0; i < 1000; ++i) transports[0]->Progress();
  });
  transports[1]->Wait(20000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  sender.join();
  ASSERT_TRUE(Drive(transports, [&] { return completions == 4; }));
}

TEST_P(TransportTest, NothingCompletesAfterCancel) {
  auto transports = GetParam().make(2);
  std::vector<char> received(100000);
  const auto sent = Pattern(100000, 3);
  int completions = 0;
  transports[1]->Receive(0, {1, 1, 0}, received.data(), received.size(),
                         [&](const Status&, const Received&) { ++completions; });
  transports[1]->Cancel();
  transports[0]->Send(1, {1, 1, 0}, sent.data(), sent.size(), [](const Status&) {});
  for (int i = 0; i < 1000; ++i) {
    transports[0]->Progress();
    transports[1]->Progress();
  }
  EXPECT_EQ(completions, 0);
  transports[0]->Cancel();
}

TEST_P(TransportTest, CountsMessagesAndBytes) {
  auto transports = GetParam().make(2);
  std::vector<char> sent(1000), received(1000);
  int completions = 0;
  transports[1]->Receive(0, {1, 1, 0}, received.data(), 1000,
                         [&](const Status&, const Received&) { ++completions; });
  transports[0]->Send(1, {1, 1, 0}, sent.data(), 1000, [&](const Status&) { ++completions; });
  ASSERT_TRUE(Drive(transports, [&] { return completions == 2; }));
  EXPECT_EQ(transports[0]->counters().bytes_sent, 1000);
  EXPECT_EQ(transports[0]->counters().messages_sent, 1);
  EXPECT_EQ(transports[1]->counters().bytes_received, 1000);
  EXPECT_EQ(transports[1]->counters().messages_received, 1);
}

INSTANTIATE_TEST_SUITE_P(
    EveryWire, TransportTest,
    ::testing::Values(Wire{"eager", [](int size) { return InProcess(size, 1 << 30); }},
                      Wire{"rendezvous", [](int size) { return InProcess(size, 0); }},
                      Wire{"ucx_shared_memory",
                           [](int size) {
                             return Ucx(size, {"sm,self", ""}, true);
                           }},
                      Wire{"ucx_tcp",
                           [](int size) {
                             return Ucx(size, {"tcp,self", "lo"}, true);
                           }},
                      Wire{"ucx_tcp_between_hosts",
                           [](int size) {
                             return Ucx(size, {"tcp,self", "lo"}, false);
                           }},
                      Wire{"tcp", [](int size) { return Tcp(size); }},
                      Wire{"tls", [](int size) { return Tcp(size, CertificateFolder()); }},
                      Wire{"by_host_within",  // 0 and 1 | 2
                           [](int size) {
                             return ByHost(std::vector<int>{0, 0, 1}, size);
                           }},
                      Wire{"by_host_between",  // 0 | 1 and 2
                           [](int size) {
                             return ByHost(std::vector<int>{0, 1, 1}, size);
                           }},
                      Wire{"by_host_between_over_tls",
                           [](int size) {
                             return ByHost(std::vector<int>{0, 1, 1}, size, CertificateFolder());
                           }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Ucx, ReportsWhatItUses) {
  auto shared = Ucx(2, {"sm,self", ""}, true);
  auto tcp = Ucx(2, {"tcp,self", "lo"}, true);
  std::vector<char> data(1);
  for (auto* transports : {&shared, &tcp}) {
    (*transports)[0]->Send(1, {1, 1, 0}, data.data(), 1, [](const Status&) {});
  }
  EXPECT_NE(tcp[0]->Describe().find("tcp"), std::string::npos) << tcp[0]->Describe();
  EXPECT_EQ(shared[0]->Describe().find("tcp"), std::string::npos) << shared[0]->Describe();
  EXPECT_NE(shared[0]->Describe().find("same host"), std::string::npos) << shared[0]->Describe();
}

// It is there already: who has sent all may go. What had not come is an error.
TEST_F(UcxTest, WhatHadComeBeforeItsSenderLeftIsReceived) {
  auto transports = Ucx(2, {"tcp,self", "lo"}, false);
  const auto sent = Pattern(4000, 1);
  std::vector<char> first(1), received(4000);
  int completions = 0;
  transports[0]->Send(1, {1, 1, 0}, sent.data(), sent.size(), [](const Status&) {});
  for (int rank : {0, 1}) {
    transports[rank]->Send(1 - rank, {1, 2, 0}, sent.data(), 1, [](const Status&) {});
    transports[rank]->Receive(1 - rank, {1, 2, 0}, first.data(), 1,
                              [&](const Status&, const Received&) { ++completions; });
  }
  ASSERT_TRUE(Drive(transports, [&] { return completions == 2; }));
  transports.erase(transports.begin());
  std::vector<Status> statuses;
  const auto note = [&](const Status& status, const Received&) { statuses.push_back(status); };
  transports[0]->Receive(0, {1, 3, 0}, first.data(), 1, note);
  ASSERT_TRUE(Drive(transports, [&] { return statuses.size() == 1; })) << "the loss is not noticed";
  EXPECT_EQ(statuses[0].code(), Code::kUnavailable);
  transports[0]->Receive(0, {1, 1, 0}, received.data(), received.size(), note);
  ASSERT_TRUE(Drive(transports, [&] { return statuses.size() == 2; }));
  EXPECT_TRUE(statuses[1].ok()) << statuses[1].ToString();
  EXPECT_EQ(received, sent);
  transports[0]->Receive(0, {1, 1, 0}, received.data(), received.size(), note);
  ASSERT_TRUE(Drive(transports, [&] { return statuses.size() == 3; }));
  EXPECT_EQ(statuses[2].code(), Code::kUnavailable) << "it came once";
}

TEST(Ucx, RefusesTransportsItDoesNotHave) {
  std::unique_ptr<UcxWorker> worker;
  const Status status = UcxWorker::Open({"no_such_wire", ""}, &worker);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("no_such_wire"), std::string::npos) << status.message();
}

TEST(Ucx, RefusesAddressesOfAbsurdLength) {
  std::unique_ptr<UcxWorker> worker;
  ASSERT_TRUE(UcxWorker::Open({"tcp,self", "lo"}, &worker).ok());
  std::unique_ptr<Transport> transport;
  const Status status =
      UcxWorker::Connect(std::move(worker), 0, {"x", std::string(1 << 20, 'x')}, {true, true}, &transport);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tf_strategies

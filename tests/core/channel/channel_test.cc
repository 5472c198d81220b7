// Two ends of a channel over every wire: tensors arrive where they belong, and what is refused, given up or overdue ends in time.

#include "ops/channel/channel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/transport/ucx.h"
#include "tests/core/channel/channel_pair.h"

namespace tf_strategies {
namespace {

Transports Ucx(const std::string& transports, bool same_host) {
  std::vector<std::unique_ptr<UcxWorker>> workers(2);
  std::vector<std::string> addresses;
  for (auto& worker : workers) {
    const Status status = UcxWorker::Open({transports, ""}, &worker);
    EXPECT_TRUE(status.ok()) << status.ToString();
    addresses.push_back(worker->address());
  }
  Transports made(2);
  for (int rank : {0, 1}) {
    const Status status = UcxWorker::Connect(std::move(workers[rank]), rank, addresses,
                                             std::vector<bool>(2, same_host), &made[rank]);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return made;
}

struct Wire {
  const char* name;
  std::function<Transports()> make;
};

class ChannelTest : public ::testing::TestWithParam<Wire> {
 protected:
  Pair ends_{GetParam().make()};
  Channel& worker_ = *ends_.worker;
  Channel& server_ = *ends_.server;

  void ExpectSound() {
    const auto sent = Send(server_, {77, 1, 0}, Pattern(100000, 5));
    const auto received = Receive(worker_, {77, 1, 0});
    EXPECT_EQ(received->Wait().ToString(), "OK");
    EXPECT_EQ(*received->data, *sent->data);
    EXPECT_EQ(sent->Wait().ToString(), "OK");
  }
};

TEST_P(ChannelTest, CarriesEveryLengthBothWays) {
  EXPECT_EQ(worker_.WaitReady(20).ToString(), "OK");
  int64_t step = 0;
  for (size_t bytes : {0, 1, 4095, 4096, 4097, 70000, 3000001}) {
    for (bool pull : {true, false}) {
      Channel &from = pull ? server_ : worker_, &to = pull ? worker_ : server_;
      const auto received = Receive(to, {4, ++step, 0});
      const auto sent = Send(from, {4, step, 0}, Pattern(bytes, 1));
      ASSERT_EQ(received->Wait().ToString(), "OK") << bytes;
      ASSERT_EQ(sent->Wait().ToString(), "OK") << bytes;
      EXPECT_EQ(*received->data, *sent->data);
      EXPECT_EQ(received->came.dtype, 3);
      EXPECT_EQ(received->came.dims, (std::vector<int64_t>{1, static_cast<int64_t>(bytes)}));
    }
  }
  EXPECT_EQ(worker_.stats().tensors_sent, 7);
  EXPECT_EQ(worker_.stats().tensors_received, 7);
  EXPECT_EQ(worker_.stats().outstanding, 0);
}

TEST_P(ChannelTest, TransfersArePairedByNameInAnyOrder) {
  constexpr int kCount = 24;
  std::vector<Transferred> sent, received(kCount);
  const auto id_of = [](int i) { return TransferId{uint32_t(i % 3), i % 2, uint64_t(i / 6)}; };
  for (int i = kCount - 1; i >= kCount / 2; --i) received[i] = Receive(worker_, id_of(i));
  for (int i = 0; i < kCount; ++i) sent.push_back(Send(server_, id_of(i), Pattern(i % 2 ? 50000 : 64, i)));
  for (int i = 0; i < kCount / 2; ++i) received[i] = Receive(worker_, id_of(i));
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(received[i]->Wait().ToString(), "OK") << i;
    EXPECT_EQ(*received[i]->data, *sent[i]->data) << i;
    EXPECT_EQ(sent[i]->Wait().ToString(), "OK") << i;
  }
}

TEST_P(ChannelTest, ManyThreadsMayUseItAtOnce) {
  constexpr int kThreads = 4, kEach = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < kEach; ++i) {
        const TransferId id{static_cast<uint32_t>(t), i, 0};
        const size_t bytes = i % 5 ? static_cast<size_t>(i) * 40 : 60000;
        Channel &from = t % 2 ? server_ : worker_, &to = t % 2 ? worker_ : server_;
        const auto received = Receive(to, id);
        const auto sent = Send(from, id, Pattern(bytes, t + i));
        ASSERT_EQ(received->Wait().ToString(), "OK");
        ASSERT_EQ(sent->Wait().ToString(), "OK");
        ASSERT_EQ(*received->data, *sent->data);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_P(ChannelTest, ATensorThatIsRefusedEndsNothingElse) {
  for (size_t bytes : {100, 100000}) {
    const auto received = Receive(worker_, {1, 1, bytes}, 20, InvalidArgument("a shape I cannot use"));
    const auto sent = Send(server_, {1, 1, bytes}, Pattern(bytes, 1));
    EXPECT_EQ(received->Wait().message(), "a shape I cannot use");
    EXPECT_EQ(sent->Wait().ToString(), "OK");
  }
  ExpectSound();
}

TEST_P(ChannelTest, AReceptionThatIsGivenUpLeavesNoTrace) {
  const auto abandoned = Receive(worker_, {1, 1, 0});
  EXPECT_TRUE(abandoned->Waits());
  worker_.GiveUp(abandoned->ticket);
  EXPECT_EQ(abandoned->Wait().code(), Code::kCancelled);
  const auto sent = Send(server_, {1, 2, 0}, Pattern(100000, 2));
  const auto received = Receive(worker_, {1, 2, 0});
  EXPECT_EQ(received->Wait().ToString(), "OK");
  EXPECT_EQ(*received->data, *sent->data);
  EXPECT_EQ(worker_.stats().outstanding, 0);
}

TEST_P(ChannelTest, ASendThatIsGivenUpIsTakenBackFromThePeer) {
  const std::weak_ptr<Bytes> memory = [&] {
    const auto abandoned = Send(server_, {1, 1, 0}, Pattern(3000000, 1));
    EXPECT_TRUE(abandoned->Waits());
    server_.GiveUp(abandoned->ticket);
    EXPECT_EQ(abandoned->Wait().ToString(), "OK") << "it has left, to nobody";
    return abandoned->data;
  }();
  ExpectSound();
  // The thread that has told the sender may hold the data for another moment.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!memory.expired() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(memory.expired());
  EXPECT_EQ(worker_.stats().unclaimed, 0);
  worker_.GiveUp(12345678);
  ExpectSound();
}

TEST_P(ChannelTest, ATransferUnderWayGoesOnWhenItIsGivenUp) {
  for (int64_t step = 0; step < 20; ++step) {
    const auto received = Receive(worker_, {1, step, 0});
    const auto sent = Send(server_, {1, step, 0}, Pattern(3000000, 1));
    worker_.GiveUp(received->ticket);
    server_.GiveUp(sent->ticket);
    EXPECT_EQ(sent->Wait().ToString(), "OK");
    EXPECT_NE(received->Wait().code(), Code::kInternal);
  }
  ExpectSound();
}

TEST_P(ChannelTest, FailEndsAllThatWaitsOnBothEndsAndAllThatComesLater) {
  const auto receiving = Receive(worker_, {1, 1, 0});
  const auto sending = Send(worker_, {2, 1, 0}, Pattern(3000000, 1));
  const auto on_server = Receive(server_, {3, 1, 0});
  EXPECT_TRUE(receiving->Waits());
  const auto start = std::chrono::steady_clock::now();
  worker_.Fail(Unavailable("ps 1 was seen to die"));
  for (const auto& outcome : {receiving, sending, on_server}) {
    const Status status = outcome->Wait();
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
    EXPECT_TRUE(Has(status, "ps 1 (b:2)")) << status.ToString();
    EXPECT_TRUE(Has(status, "ps 1 was seen to die")) << status.ToString();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  worker_.Fail(Unavailable("a later cause"));
  const Status later = Receive(worker_, {9, 9, 0})->Wait();
  EXPECT_TRUE(Has(later, "seen to die") && !Has(later, "a later cause")) << later.ToString();
  EXPECT_EQ(worker_.status().ToString(), later.ToString());
}

TEST_P(ChannelTest, ClosingTellsThePeer) {
  const auto waits = Receive(server_, {1, 1, 0});
  EXPECT_TRUE(waits->Waits());
  worker_.Close();
  const Status status = waits->Wait();
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_TRUE(Has(status, "worker 0 (a:1) ended it: it was closed")) << status.ToString();
  EXPECT_EQ(Send(worker_, {1, 1, 0}, Pattern(10, 1))->Wait().code(), Code::kAborted);
}

TEST_P(ChannelTest, ATransferThatIsOverdueNamesWhoIsAwaited) {
  const auto received = Receive(worker_, {1, 1, 0}, 0.3);
  const auto start = std::chrono::steady_clock::now();
  const Status status = received->Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  for (const char* part : {"receiving 1", "0.3 s", "ps 1 (b:2)", "raise the timeout"}) {
    EXPECT_TRUE(Has(status, part)) << part << ": " << status.ToString();
  }
}

TEST_P(ChannelTest, ASendThatNobodyTakesIsOverdue) {
  const auto sent = Send(worker_, {1, 1, 0}, Pattern(3000000, 1), 0.3);
  const Status status = sent->Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(Has(status, "to receive its tensor")) << status.ToString();
}

INSTANTIATE_TEST_SUITE_P(EveryWire, ChannelTest,
                         ::testing::Values(Wire{"in_process_eager", [] { return InProcess(1 << 10); }},
                                           Wire{"in_process_rendezvous", [] { return InProcess(0); }},
                                           Wire{"shared_memory", [] { return Ucx("", true); }},
                                           Wire{"tcp", [] { return Ucx("tcp,self", false); }}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tf_strategies

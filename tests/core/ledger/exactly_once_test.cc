// Parts of updates that are done once, whoever asks.

#include "ops/ledger/exactly_once.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace tf_strategies::ledger {
namespace {

constexpr int64_t kFirst = int64_t{7} << UpdateNumber::kCountBits;

// Writes down what each request was told: "a+" to do it now, "a-" that it is done, "a!" that it failed.
class Told {
 public:
  void Ask(const std::string& name, int64_t update, int32_t part) {
    exactly_once.Begin(update, part, [this, name](ExactlyOnce::Answer answer) {
      text += name + (answer == ExactlyOnce::Answer::kNow    ? "+"
                      : answer == ExactlyOnce::Answer::kDone ? "-"
                                                             : "!");
    });
  }

  ExactlyOnce exactly_once;
  std::string text;
};

TEST(ExactlyOnce, WhatIsDoneIsNotDoneAgain) {
  Told told;
  told.Ask("a", kFirst, 0);
  told.exactly_once.End(true);
  told.Ask("b", kFirst, 0);
  told.Ask("c", kFirst, 2);
  told.exactly_once.End(true);
  told.Ask("d", kFirst, 1);  // of one that has no part 1 here, or is late
  told.Ask("e", kFirst + 1, 0);
  told.exactly_once.End(true);
  told.Ask("f", kFirst, 2);  // by one that was lost, and applied meanwhile
  EXPECT_EQ(told.text, "a+b-c+d-e+f-");
}

TEST(ExactlyOnce, WhoeverAsksMeanwhileWaits) {
  Told told;
  told.Ask("a", kFirst, 0);
  told.Ask("b", kFirst, 0);
  told.Ask("c", kFirst, 0);
  EXPECT_EQ(told.text, "a+");
  told.exactly_once.End(true);
  EXPECT_EQ(told.text, "a+b-c-");
}

TEST(ExactlyOnce, WhatFailedIsNotDoneAgain) {
  Told told;
  told.Ask("a", kFirst, 0);
  told.exactly_once.End(true);
  told.Ask("b", kFirst, 1);
  told.Ask("c", kFirst, 1);
  told.exactly_once.End(false);
  told.Ask("d", kFirst, 1);
  told.Ask("e", kFirst, 0);
  told.Ask("f", kFirst + 1, 0);
  EXPECT_EQ(told.text, "a+b+c!d!e-f+");
}

TEST(ExactlyOnce, UpdatesOfAnotherLedgerAreNew) {
  const int64_t other = int64_t{3} << UpdateNumber::kCountBits;
  Told told;
  told.Ask("a", kFirst + 5, 0);
  told.exactly_once.End(true);
  told.Ask("b", other, 0);
  told.exactly_once.End(true);
  told.Ask("c", other, 0);
  EXPECT_EQ(told.text, "a+b+c-");
  EXPECT_GE(UpdateNumber::First(~uint64_t{0}), 0);
  EXPECT_TRUE(UpdateNumber::SameLedger(UpdateNumber::First(5), UpdateNumber::First(5) + 1000));
  EXPECT_FALSE(UpdateNumber::SameLedger(UpdateNumber::First(5), UpdateNumber::First(6)));
}

TEST(Fence, RefusesUpdatesBeforeItAndOfOtherLedgers) {
  const int64_t other = int64_t{9} << UpdateNumber::kCountBits;
  Told told;
  told.Ask("a", kFirst + 5, 0);
  told.exactly_once.End(true);
  EXPECT_TRUE(told.exactly_once.Fence(kFirst + 7));
  told.Ask("b", kFirst + 5, 0);  // done, but perhaps undone since
  told.Ask("c", kFirst + 6, 0);
  told.Ask("d", other, 0);
  told.Ask("e", kFirst + 7, 0);
  told.exactly_once.End(true);
  told.Ask("f", kFirst + 7, 0);
  told.Ask("g", kFirst + 8, 0);
  told.exactly_once.End(true);
  EXPECT_EQ(told.text, "a+b!c!d!e+f-g+");
  EXPECT_TRUE(told.exactly_once.Fence(other));
  told.Ask("h", kFirst + 9, 0);
  told.Ask("i", other, 0);
  EXPECT_EQ(told.text, "a+b!c!d!e+f-g+h!i+");
}

TEST(Fence, RefusesThoseThatWaitAndWaitsForWhatRuns) {
  Told told;
  told.Ask("a", kFirst, 0);
  told.Ask("b", kFirst, 1);
  told.Ask("c", kFirst + 3, 0);
  told.Ask("d", kFirst + 1, 0);
  EXPECT_FALSE(told.exactly_once.Fence(kFirst + 2));
  EXPECT_EQ(told.text, "a+b!d!");
  EXPECT_FALSE(told.exactly_once.Fence(kFirst + 2));
  told.exactly_once.End(true);
  EXPECT_EQ(told.text, "a+b!d!c+");
  EXPECT_FALSE(told.exactly_once.Fence(kFirst + 4));
  told.exactly_once.End(false);
  EXPECT_TRUE(told.exactly_once.Fence(kFirst + 4));
  told.Ask("e", kFirst + 4, 0);
  EXPECT_EQ(told.text, "a+b!d!c+e+");
}

TEST(ExactlyOnce, ThreadsThatAskTogetherDoEachPartOnce) {
  constexpr int kThreads = 8, kUpdates = 200, kParts = 3;
  ExactlyOnce exactly_once;
  std::atomic<int> inside{0};
  std::vector<std::atomic<int>> times(kUpdates * kParts);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int index = 0; index < kUpdates * kParts; ++index) {
        std::atomic<bool> answered{false};
        exactly_once.Begin(kFirst + index / kParts, index % kParts, [&](ExactlyOnce::Answer answer) {
          if (answer == ExactlyOnce::Answer::kNow) {
            EXPECT_EQ(++inside, 1);
            ++times[index];
            --inside;
            exactly_once.End(true);
          }
          answered = true;
        });
        while (!answered) std::this_thread::yield();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& count : times) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace tf_strategies::ledger

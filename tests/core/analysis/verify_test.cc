// verify must find what is wrong: each test plants one error in a right schedule.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/analysis/verify.h"
#include "ops/schedule/algorithms.h"

namespace tf_strategies::schedule {
namespace {

constexpr auto kSend = ActionKind::kSend;
constexpr auto kAdd = ActionKind::kReceiveReduce;
constexpr auto kCopy = ActionKind::kReceiveCopy;

// The message of the verdict on binary blocks over `size` ranks after `harm` was done to the schedules; ""
// when it passes.
std::string Verdict(int size, const std::function<void(std::vector<Schedule>*)>& harm) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) schedules.push_back(BinaryBlocks(rank, size, 4096));
  harm(&schedules);
  const Status status = VerifyAllReduce(size, 4096, [&](int rank) { return schedules[rank]; });
  EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument);
  return status.message();
}

// Two ranks with schedules written out.
std::string VerdictOnPair(std::vector<Step> first, std::vector<Step> second) {
  const Schedule schedules[] = {{0, 2, 8, std::move(first)}, {1, 2, 8, std::move(second)}};
  return VerifyAllReduce(2, 8, [&](int rank) { return schedules[rank]; }).message();
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Verify, PassesTheUnharmedSchedule) {
  for (int size : {3, 7, 100, 300}) EXPECT_EQ(Verdict(size, [](std::vector<Schedule>*) {}), "");
}

TEST(Verify, FindsADroppedSend) {
  const std::string verdict = Verdict(3, [](auto* s) { (*s)[2].steps[0].pop_back(); });
  EXPECT_HAS(verdict, "rank 1, step 0, action 2 (add [2048,4096) from rank 2): has no counterpart");
  EXPECT_HAS(verdict, "rank 2 lists 0 sends to rank 1, which lists 1 receptions");
}

TEST(Verify, FindsADroppedReception) {
  const std::string verdict = Verdict(3, [](auto* s) { (*s)[1].steps[0].pop_back(); });
  EXPECT_HAS(verdict, "rank 2, step 0, action 1 (send [2048,4096) to rank 1): has no counterpart");
}

TEST(Verify, FindsADroppedMessage) {
  const std::string verdict = Verdict(3, [](auto* s) {
    (*s)[2].steps[0].pop_back();
    (*s)[1].steps[0].pop_back();
  });
  EXPECT_HAS(verdict, "rank 0 ends with a wrong result in elements [2048,4096): lacks rank 2");
}

TEST(Verify, FindsAMessageAddedTwice) {
  const std::string verdict = Verdict(3, [](auto* s) {
    (*s)[2].steps[0].push_back((*s)[2].steps[0].back());
    (*s)[1].steps[0].push_back((*s)[1].steps[0].back());
  });
  EXPECT_HAS(verdict,
             "rank 1, step 0, action 3 (add [2048,4096) from rank 2): adds a contribution a second time");
}

TEST(Verify, FindsAMessageAddedTwiceAmongMoreRanksThanAreExact) {
  const std::string verdict = Verdict(300, [](auto* s) {
    (*s)[299].steps[0].push_back({kSend, 0, {0, 16}});
    (*s)[0].steps[0].push_back({kAdd, 299, {0, 16}});
  });
  EXPECT_NE(verdict, "");
}

TEST(Verify, FindsACopyWhereAnAdditionBelongs) {
  const std::string verdict = Verdict(7, [](auto* s) { (*s)[0].steps[0][1].kind = kCopy; });
  EXPECT_HAS(verdict, "ends with a wrong result");
}

TEST(Verify, FindsSwappedRanges) {
  const std::string verdict =
      Verdict(3, [](auto* s) { std::swap((*s)[2].steps[0][0].range, (*s)[2].steps[0][1].range); });
  EXPECT_HAS(verdict, "for the same message");
  EXPECT_HAS(verdict, "names [");
}

TEST(Verify, FindsAWrongPeer) {
  const std::string verdict = Verdict(7, [](auto* s) { (*s)[0].steps[0][0].peer = 5; });
  EXPECT_HAS(verdict, "has no counterpart");
}

TEST(Verify, FindsStepsInTheWrongOrder) {
  const std::string verdict = Verdict(4, [](auto* s) {
    for (Schedule& schedule : *s) std::swap(schedule.steps[0], schedule.steps[1]);
  });
  EXPECT_NE(verdict, "");
}

TEST(Verify, FindsACycleOfWaits) {
  const Range all{0, 8};
  const std::string verdict =
      VerdictOnPair({{{kAdd, 1, all}}, {{kSend, 1, all}}}, {{{kAdd, 0, all}}, {{kSend, 0, all}}});
  EXPECT_HAS(verdict,
             "deadlock: rank 0, step 0, action 0 (add [0,8) from rank 1) waits for rank 1; rank 1, step 0");
}

TEST(Verify, FindsACycleOfSendsThatNobodyReceivesYet) {
  const Range all{0, 8};
  const std::string verdict =
      VerdictOnPair({{{kSend, 1, all}}, {{kAdd, 1, all}}}, {{{kSend, 0, all}}, {{kAdd, 0, all}}});
  EXPECT_HAS(verdict, "deadlock:");
}

TEST(Verify, FindsACycleOverThreeRanks) {
  const std::string verdict = [] {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < 3; ++rank) {
      schedules.push_back(
          {rank, 3, 8, {{{kAdd, (rank + 1) % 3, {0, 8}}}, {{kSend, (rank + 2) % 3, {0, 8}}}}});
    }
    return VerifyAllReduce(3, 8, [&](int rank) { return schedules[rank]; }).message();
  }();
  EXPECT_HAS(verdict, "waits for rank 1");
  EXPECT_HAS(verdict, "waits for rank 2");
  EXPECT_HAS(verdict, "waits for rank 0");
}

TEST(Verify, TakesASendAsItWasBeforeTheReceptionsOfItsStep) {
  const Range all{0, 8};
  EXPECT_EQ(VerdictOnPair({{{kAdd, 1, all}, {kSend, 1, all}}}, {{{kAdd, 0, all}, {kSend, 0, all}}}), "");
}

TEST(Verify, RefusesActionsThatBreakTheContract) {
  const std::vector<Step> none;
  EXPECT_HAS(VerdictOnPair({{{kSend, 2, {0, 8}}}}, none),
             "rank 0, step 0, action 0 (send [0,8) to rank 2): there is no such peer");
  EXPECT_HAS(VerdictOnPair({{{kSend, -1, {0, 8}}}}, none), "there is no such peer in a group of 2");
  EXPECT_HAS(VerdictOnPair({{{kSend, 0, {0, 8}}}}, none), "the peer is the rank itself");
  EXPECT_HAS(VerdictOnPair({{{kSend, 1, {3, 3}}}}, none), "the range is empty");
  EXPECT_HAS(VerdictOnPair({{{kSend, 1, {0, 9}}}}, none), "the range leaves the buffer [0,8)");
  EXPECT_HAS(VerdictOnPair({{{kSend, 1, {-1, 2}}}}, none), "the range leaves the buffer");
  EXPECT_HAS(VerdictOnPair({{{kAdd, 1, {0, 5}}, {kCopy, 1, {4, 8}}}}, none),
             "overlaps add [0,5) from rank 1 of the same step");
  EXPECT_HAS(VerdictOnPair({{{kAdd, 1, {0, 5}}, {kAdd, 1, {0, 4}}}}, none), "overlaps");
}

TEST(Verify, RefusesAScheduleForAnotherGroup) {
  const Status status = VerifyAllReduce(2, 8, [](int) { return Schedule{1, 2, 8, {}}; });
  EXPECT_HAS(status.message(), "rank 0: its schedule says rank 1 of 2, count 8");
}

TEST(Verify, FindsABroadcastFromTheWrongRoot) {
  const Status status = VerifyBroadcast(5, 8, 1, [](int rank) { return BroadcastTree(rank, 5, 8, 2); });
  EXPECT_HAS(status.message(), "rank 0 ends with a wrong result in elements [0,");
}

TEST(Verify, FindsAnAllGatherWithOtherOffsets) {
  const std::vector<int64_t> offsets = {0, 3, 6, 9};
  const std::vector<int64_t> other = {0, 3, 5, 9};
  const Status status = VerifyAllGather(3, offsets, [&](int rank) { return RingAllGather(rank, 3, other); });
  EXPECT_HAS(status.message(), "ends with a wrong result in elements [5,6): lacks rank 1");
}

// No error can hide: every single action of a schedule is needed, on whichever side it is dropped.
TEST(Verify, FindsEveryActionThatIsDropped) {
  const int size = 6;
  for (int rank = 0; rank < size; ++rank) {
    const Schedule whole = BinaryBlocks(rank, size, 4096);
    for (size_t step = 0; step < whole.steps.size(); ++step) {
      for (size_t action = 0; action < whole.steps[step].size(); ++action) {
        const std::string verdict = Verdict(size, [&](auto* s) {
          Step& harmed = (*s)[rank].steps[step];
          harmed.erase(harmed.begin() + action);
        });
        EXPECT_NE(verdict, "") << "rank " << rank << ", step " << step << ", action " << action;
      }
    }
  }
}

}  // namespace
}  // namespace tf_strategies::schedule

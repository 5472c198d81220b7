#include <gtest/gtest.h>

#include <vector>

#include "ops/analysis/cost.h"
#include "ops/analysis/verify.h"
#include "ops/schedule/algorithms.h"

namespace tf_strategies::schedule {
namespace {

TEST(BroadcastTree, ReachesEveryRankFromEveryRoot) {
  for (int size = 1; size <= 40; ++size) {
    for (int root = 0; root < size; ++root) {
      for (int64_t count : {0, 1, 1000}) {
        const Status status = VerifyBroadcast(
            size, count, root, [&](int rank) { return BroadcastTree(rank, size, count, root); });
        ASSERT_TRUE(status.ok()) << size << " ranks from " << root << ": " << status.ToString();
      }
    }
  }
}

TEST(BroadcastTree, ReachesLargeGroupsInLogarithmicTime) {
  for (int size : {64, 255, 256, 257, 4097}) {
    const auto build = [&](int rank) { return BroadcastTree(rank, size, 10, size / 2); };
    const Status status = VerifyBroadcast(size, 10, size / 2, build);
    ASSERT_TRUE(status.ok()) << status.ToString();
    CostModel latency;
    latency.alpha = 1;
    latency.beta = 0;
    int lg = 0;
    while ((1 << lg) < size) ++lg;
    EXPECT_LE(PredictSeconds(size, 4, latency, build), 2 * lg);
    EXPECT_GT(PredictSeconds(size, 4, latency, build), lg) << "the way back counts too";
  }
}

TEST(BroadcastTree, EndsOnTheRootWithAMessageFromEachOfItsChildren) {
  for (int size = 2; size <= 40; ++size) {
    const Schedule schedule = BroadcastTree(3 % size, size, 100, 3 % size);
    std::vector<int> sent(size, 0), received(size, 0);
    for (const Step& step : schedule.steps) {
      for (const Action& action : step) {
        const bool sends = action.kind == ActionKind::kSend;
        EXPECT_TRUE(sends || sent[action.peer]) << "what a child sends back follows what it was sent";
        ++(sends ? sent : received)[action.peer];
      }
    }
    EXPECT_EQ(sent, received) << size;
  }
}

Status VerifyRing(const std::vector<int64_t>& offsets) {
  const int size = static_cast<int>(offsets.size()) - 1;
  return VerifyAllGather(size, offsets, [&](int rank) { return RingAllGather(rank, size, offsets); });
}

TEST(RingAllGather, GathersSegmentsOfAnyLength) {
  for (int size = 1; size <= 70; ++size) {
    std::vector<int64_t> offsets = {0};
    for (int rank = 0; rank < size; ++rank) offsets.push_back(offsets.back() + (rank * 7 + size) % 5);
    const Status status = VerifyRing(offsets);
    ASSERT_TRUE(status.ok()) << size << ": " << status.ToString();
  }
}

TEST(RingAllGather, TakesEmptySegments) {
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{0, 0, 0, 0}, {0, 5, 5, 5}, {0, 0, 0, 9}, {0, 0, 4, 4, 6}}) {
    const Status status = VerifyRing(offsets);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

}  // namespace
}  // namespace tf_strategies::schedule

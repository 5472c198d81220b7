#include "ops/schedule/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ops/analysis/cost.h"

namespace tf_strategies::schedule {
namespace {

constexpr int64_t kMegabyte = 1 << 20;

TEST(Choose, TakesBinaryBlocksForThreeFiveSixAndSevenRanks) {
  for (int size : {3, 5, 6, 7}) {
    for (int64_t bytes = (16 << 10) + 4; bytes <= 64 * kMegabyte; bytes = bytes * 3 / 2) {
      EXPECT_STREQ(Choose(size, bytes).name, "binary_blocks") << size << " " << bytes;
    }
    EXPECT_STREQ(Choose(size, 64 * kMegabyte).name, "binary_blocks");
  }
}

TEST(Choose, TakesDoublingThenHalvingForAPowerOfTwo) {
  for (int size : {2, 4, 8, 64, 1024}) {
    EXPECT_STREQ(Choose(size, 4).name, "recursive_doubling");
    EXPECT_STREQ(Choose(size, 4 << 10).name, "recursive_doubling");
    EXPECT_STREQ(Choose(size, 256 << 10).name, "halving_doubling");
    EXPECT_STREQ(Choose(size, 1024 * kMegabyte).name, "halving_doubling");
  }
}

TEST(Choose, TakesTheShortestWayForASingleNumber) {
  for (int size : {3, 6, 17, 600}) EXPECT_STREQ(Choose(size, 8).name, "recursive_doubling") << size;
}

TEST(Choose, TakesFewStepsForMoreBytesOverANetwork) {
  for (int size : {2, 3, 4, 6, 8, 64}) {
    EXPECT_STREQ(Choose({size, 1, Wire::kNetwork}, 64 << 10).name, "recursive_doubling") << size;
    EXPECT_STRNE(Choose({size, 1, Wire::kSharedMemory}, 64 << 10).name, "recursive_doubling") << size;
    EXPECT_STRNE(Choose({size, 1, Wire::kNetwork}, 256 << 10).name, "recursive_doubling") << size;
  }
}

TEST(Choose, TakesTheRingForLongMessagesOfFewOverANetwork) {
  EXPECT_STREQ(Choose({3, 1, Wire::kNetwork}, kMegabyte).name, "ring");
  EXPECT_STREQ(Choose({6, 1, Wire::kNetwork}, kMegabyte).name, "binary_blocks");
  EXPECT_STREQ(Choose({6, 1, Wire::kNetwork}, 16 * kMegabyte).name, "ring");
  EXPECT_STREQ(Choose({12, 1, Wire::kNetwork}, 16 * kMegabyte).name, "binary_blocks");
  EXPECT_STREQ(Choose({4, 1, Wire::kNetwork}, 16 * kMegabyte).name, "halving_doubling");
}

TEST(Choose, AnswersForEverySizeAndLength) {
  for (int size = 1; size <= 5000; ++size) {
    for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4096}, kMegabyte, int64_t{1} << 40}) {
      EXPECT_NE(FindAlgorithm(Choose(size, bytes).name), nullptr);
    }
  }
}

// In the cost model, with the executor's overlap, the choice takes at most 1.5 times the best one's time over
// the measured range of latencies.
TEST(Choose, IsCloseToTheBestOfTheCostModel) {
  for (const double alpha : {3e-6, 5e-6}) {
    for (int size : {2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 33, 63, 100}) {
      for (int64_t bytes :
           {int64_t{4}, int64_t{64}, int64_t{256}, int64_t{1} << 10, int64_t{4} << 10, int64_t{16} << 10,
            int64_t{64} << 10, int64_t{256} << 10, kMegabyte, 4 * kMegabyte, 16 * kMegabyte}) {
        CostModel model;
        model.alpha = alpha;
        model.chunk_elements = 64 << 10;
        model.steps_overlap = true;
        const auto predict = [&](const Algorithm& algorithm) {
          return PredictSeconds(size, 4, model,
                                [&](int rank) { return algorithm.build(rank, size, bytes / 4); });
        };
        double best = predict(AllReduceAlgorithms()[0]);
        for (const Algorithm& algorithm : AllReduceAlgorithms()) best = std::min(best, predict(algorithm));
        EXPECT_LE(predict(Choose(size, bytes)), 1.5 * best)
            << "size " << size << ", " << bytes << " bytes: " << Choose(size, bytes).name;
      }
    }
  }
}

TEST(Choose, GoesHostByHostWhereSeveralHostsHaveSeveralRanks) {
  EXPECT_STREQ(Choose({8, 4, Wire::kNetwork}, kMegabyte).name, "hierarchical");
  EXPECT_STREQ(Choose({6, 2, Wire::kNetwork}, 64 << 10).name, "hierarchical");
  EXPECT_STREQ(Choose({8, 4, Wire::kNetwork}, 4 << 10).name, "recursive_doubling");
  EXPECT_STREQ(Choose({8, 8, Wire::kSharedMemory}, kMegabyte).name, "halving_doubling");
  EXPECT_STREQ(Choose({8, 1, Wire::kNetwork}, kMegabyte).name, "halving_doubling");
}

TEST(AllReduceAlgorithms, KeepTheirPositions) {
  const std::string names[] = {"ring", "recursive_doubling", "halving_doubling", "binary_blocks",
                               "hierarchical"};
  ASSERT_EQ(AllReduceAlgorithms().size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(AllReduceAlgorithms()[i].name, names[i]);
    EXPECT_EQ(FindAlgorithm(names[i]), &AllReduceAlgorithms()[i]);
  }
  EXPECT_EQ(FindAlgorithm("auto"), nullptr);
}

}  // namespace
}  // namespace tf_strategies::schedule

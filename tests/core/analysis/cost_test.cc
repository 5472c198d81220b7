// Costs counted and predicted, against the closed forms of Thakur, Rabenseifner and Gropp 2005.
#include "ops/analysis/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/schedule/choose.h"

namespace tf_strategies::schedule {
namespace {

constexpr int64_t kCount = 1 << 20;
constexpr int64_t kElementBytes = 4;
constexpr double kBytes = static_cast<double>(kCount) * kElementBytes;

double Predict(const char* name, int size, const CostModel& model, int64_t count = kCount) {
  const Algorithm* algorithm = FindAlgorithm(name);
  return PredictSeconds(size, kElementBytes, model,
                        [&](int rank) { return algorithm->build(rank, size, count); });
}

GroupCost Count(const char* name, int size, int64_t count) {
  const Algorithm* algorithm = FindAlgorithm(name);
  return CountGroupCost(size, [&](int rank) { return algorithm->build(rank, size, count); });
}

// Each of the three terms dominates once.
std::vector<CostModel> Models() {
  std::vector<CostModel> models(4);
  models[1].alpha = 1e-2;
  models[2].beta = 1e-7;
  models[3].gamma = 1e-7;
  return models;
}

double Lg(int size) { return std::floor(std::log2(size)); }

TEST(PredictSeconds, OfTheRingIsTheClosedForm) {
  for (const CostModel& m : Models()) {
    for (int size : {2, 3, 4, 7, 16, 33}) {
      const double closed = 2.0 * (size - 1) * m.alpha + 2.0 * (size - 1) / size * kBytes * m.beta +
                            static_cast<double>(size - 1) / size * kBytes * m.gamma;
      EXPECT_NEAR(Predict("ring", size, m), closed, 0.01 * closed) << size;
    }
  }
}

TEST(PredictSeconds, OfRecursiveDoublingIsTheClosedForm) {
  for (const CostModel& m : Models()) {
    for (int size : {2, 4, 8, 16, 64}) {
      const double closed = Lg(size) * (m.alpha + kBytes * m.beta + kBytes * m.gamma);
      EXPECT_NEAR(Predict("recursive_doubling", size, m), closed, 0.01 * closed) << size;
    }
  }
}

TEST(PredictSeconds, OfHalvingDoublingIsTheClosedForm) {
  for (const CostModel& m : Models()) {
    for (int size : {2, 4, 8, 16, 64}) {
      const double closed = 2 * Lg(size) * m.alpha + 2.0 * (size - 1) / size * kBytes * m.beta +
                            static_cast<double>(size - 1) / size * kBytes * m.gamma;
      EXPECT_NEAR(Predict("halving_doubling", size, m), closed, 0.01 * closed) << size;
      EXPECT_NEAR(Predict("binary_blocks", size, m), closed, 0.01 * closed) << size;
    }
  }
}

// Folding costs 3 alpha, 2n beta (a half each way of the fold, the result back) and n/2 gamma more.
TEST(PredictSeconds, OfFoldedHalvingDoublingIsTheClosedForm) {
  for (const CostModel& m : Models()) {
    for (int size : {3, 5, 6, 12, 48}) {
      const double main = std::exp2(Lg(size));
      const double closed = (3 + 2 * Lg(size)) * m.alpha + (2 + 2 * (main - 1) / main) * kBytes * m.beta +
                            (0.5 + (main - 1) / main) * kBytes * m.gamma;
      EXPECT_NEAR(Predict("halving_doubling", size, m), closed, 0.01 * closed) << size;
    }
  }
}

TEST(PredictSeconds, IsNotBelowTheLowerBound) {
  for (const CostModel& m : Models()) {
    for (const Algorithm& algorithm : AllReduceAlgorithms()) {
      for (int size = 2; size <= 20; ++size) {
        const double share = static_cast<double>(size - 1) / size * kBytes;
        const double bound =
            std::max({std::ceil(std::log2(size)) * m.alpha, 2 * share * m.beta, share * m.gamma});
        EXPECT_GE(Predict(algorithm.name, size, m), bound * 0.999) << algorithm.name << " " << size;
      }
    }
  }
}

TEST(PredictSeconds, FallsWhenChunksOverlap) {
  CostModel model;
  model.alpha = 1e-6;
  CostModel overlapped = model;
  overlapped.chunk_elements = 1 << 14;
  overlapped.steps_overlap = true;
  for (int size : {3, 5, 6, 7}) {
    EXPECT_LT(Predict("binary_blocks", size, overlapped), 0.85 * Predict("binary_blocks", size, model))
        << size;
  }
}

// The gain that binary blocks was taken for: 50 us, 10 Gbit/s.
TEST(PredictSeconds, OfBinaryBlocksBeatsTheRingForManyRanksAndShortMessages) {
  CostModel ethernet;
  ethernet.alpha = 50e-6;
  ethernet.beta = 0.8e-9;
  ethernet.gamma = 0.1e-9;
  const int64_t count = (64 << 10) / 4;
  EXPECT_LT(Predict("binary_blocks", 600, ethernet, count), 2.5e-3);
  EXPECT_GT(Predict("ring", 600, ethernet, count), 58e-3);
  EXPECT_LT(Predict("binary_blocks", 6, ethernet, count), Predict("ring", 6, ethernet, count));
  for (int size : {24, 100}) {
    for (int64_t bytes : {64 << 10, 256 << 10, 1 << 20}) {
      EXPECT_LT(Predict("binary_blocks", size, ethernet, bytes / 4),
                0.8 * Predict("ring", size, ethernet, bytes / 4))
          << size << " " << bytes;
    }
  }
}

TEST(CountGroupCost, CountsTheRing) {
  const GroupCost cost = Count("ring", 4, 100);
  EXPECT_EQ(cost.most.steps, 6);
  EXPECT_EQ(cost.most.messages_sent, 6);
  EXPECT_EQ(cost.most.messages_received, 6);
  EXPECT_EQ(cost.most.elements_sent, 150);
  EXPECT_EQ(cost.most.elements_reduced, 75);
  EXPECT_EQ(cost.total.elements_sent, 600);
  EXPECT_EQ(cost.total.elements_reduced, 300);
}

TEST(CountGroupCost, AddsEveryElementOncePerRankButOne) {
  for (const char* name : {"ring", "binary_blocks"}) {
    for (int size = 1; size <= 33; ++size) {
      EXPECT_EQ(Count(name, size, 1001).total.elements_reduced, 1001 * (size - 1)) << name << " " << size;
    }
  }
}

TEST(CountGroupCost, OfAGroupOfOneIsNothing) {
  for (const Algorithm& algorithm : AllReduceAlgorithms()) {
    const GroupCost cost = Count(algorithm.name, 1, 1000);
    EXPECT_EQ(cost.total.messages_sent + cost.total.steps + cost.total.elements_reduced, 0) << algorithm.name;
  }
}

}  // namespace
}  // namespace tf_strategies::schedule

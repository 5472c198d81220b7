// Every all-reduce algorithm for every group: sums complete, messages paired, no deadlock, and what binary
// blocks promises.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/analysis/cost.h"
#include "ops/analysis/verify.h"
#include "ops/schedule/choose.h"
#include "tests/core/support/sanitized.h"

namespace tf_strategies::schedule {
namespace {

std::set<int64_t> Counts(int size) { return {0, 1, size - 1, size, size + 1, 1000}; }

std::vector<int> SizesUpTo(int most) {
  std::vector<int> sizes;
  const int largest = kSanitized ? 48 : most;
  for (int size = 1; size <= largest; ++size) sizes.push_back(size);
  return sizes;
}

const std::vector<int>& LargeSizes() {
  static const auto* const sizes =
      kSanitized ? new std::vector<int>{257, 300} : new std::vector<int>{600, 1000, 1023, 1024, 4097};
  return *sizes;
}

class AllReduce : public testing::TestWithParam<Algorithm> {
 protected:
  // The ranks of a ring of n make n steps each, where others make some lg n; all sizes are alike to it.
  bool IsRing() const { return GetParam().name == std::string("ring"); }

  void VerifyAll(const std::vector<int>& sizes) {
    for (int size : sizes) {
      for (int64_t count : Counts(size)) {
        const Status status =
            VerifyAllReduce(size, count, [&](int rank) { return GetParam().build(rank, size, count); });
        ASSERT_TRUE(status.ok()) << "size " << size << ", count " << count << ": " << status.ToString();
      }
    }
  }
};

TEST_P(AllReduce, IsRightForEverySizeUpTo256OrAsARingUpTo96) { VerifyAll(SizesUpTo(IsRing() ? 96 : 256)); }

TEST_P(AllReduce, IsRightForLargeSizes) { VerifyAll(IsRing() ? std::vector<int>{257, 600} : LargeSizes()); }

// Numbers whose sums depend on the order, so that a different association shows in the bits.
float Inexact(int rank, int64_t element) { return 1.0f / static_cast<float>(3 + 7 * rank + element % 11); }

// Runs all schedules on float32 buffers, a step at a time wherever all its messages are there.
std::vector<std::vector<float>> Execute(const Algorithm& algorithm, int size, int64_t count) {
  std::vector<Schedule> schedules;
  std::vector<std::vector<float>> buffers(size, std::vector<float>(count));
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(algorithm.build(rank, size, count));
    for (int64_t i = 0; i < count; ++i) buffers[rank][i] = Inexact(rank, i);
  }
  std::map<std::pair<int, int>, std::deque<std::vector<float>>> wires;
  std::vector<size_t> step(size, 0);
  std::vector<bool> sent(size, false);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < size; ++rank) {
      if (step[rank] == schedules[rank].steps.size()) continue;
      const Step& actions = schedules[rank].steps[step[rank]];
      std::vector<float>& buffer = buffers[rank];
      std::map<int, size_t> needed;
      for (const Action& action : actions) {
        if (action.kind != ActionKind::kSend) {
          ++needed[action.peer];
        } else if (!sent[rank]) {
          wires[{rank, action.peer}].emplace_back(buffer.begin() + action.range.begin,
                                                  buffer.begin() + action.range.end);
        }
      }
      sent[rank] = true;
      bool arrived = true;
      for (const auto& [peer, messages] : needed) arrived = arrived && wires[{peer, rank}].size() >= messages;
      if (!arrived) continue;
      for (const Action& action : actions) {
        if (action.kind == ActionKind::kSend) continue;
        std::deque<std::vector<float>>& wire = wires[{action.peer, rank}];
        for (int64_t i = 0; i < action.range.size(); ++i) {
          float& element = buffer[action.range.begin + i];
          element = action.kind == ActionKind::kReceiveCopy ? wire.front()[i] : element + wire.front()[i];
        }
        wire.pop_front();
      }
      ++step[rank];
      sent[rank] = false;
      moved = true;
    }
  }
  return buffers;
}

TEST_P(AllReduce, GivesAllRanksTheSameBitsAndTheSum) {
  for (int size = 1; size <= 40; ++size) {
    for (int64_t count : {1, 5, 64, 211}) {
      const std::vector<std::vector<float>> buffers = Execute(GetParam(), size, count);
      for (int rank = 1; rank < size; ++rank) {
        ASSERT_EQ(std::memcmp(buffers[0].data(), buffers[rank].data(), count * sizeof(float)), 0)
            << "size " << size << ", count " << count << ", rank " << rank;
      }
      for (int64_t i = 0; i < count; ++i) {
        double sum = 0;
        for (int rank = 0; rank < size; ++rank) sum += Inexact(rank, i);
        ASSERT_NEAR(buffers[0][i], sum, 1e-6 * size)
            << "size " << size << ", count " << count << ", element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AllReduce, testing::ValuesIn(AllReduceAlgorithms()),
                         [](const testing::TestParamInfo<Algorithm>& info) {
                           return std::string(info.param.name);
                         });

TEST(BinaryBlocks, NoRankSendsMoreThanTwiceTheBufferOrAddsMoreThanOnce) {
  const Algorithm& algorithm = *FindAlgorithm("binary_blocks");
  std::vector<int> sizes = SizesUpTo(256);
  sizes.insert(sizes.end(), LargeSizes().begin(), LargeSizes().end());
  for (int size : sizes) {
    std::set<int64_t> counts = Counts(size);
    counts.insert({2, 3, 5, 7, 11, 2 * size + 1, 3 * size - 1, 4 * size + 3, 12345, 65537});
    for (int64_t count : counts) {
      const Cost most =
          CountGroupCost(size, [&](int rank) { return algorithm.build(rank, size, count); }).most;
      ASSERT_LE(most.elements_sent, 2 * count) << "size " << size << ", count " << count;
      ASSERT_LE(most.elements_reduced, count) << "size " << size << ", count " << count;
    }
  }
}

TEST(BinaryBlocks, NeedsFewStepsWhateverTheCount) {
  const Algorithm& algorithm = *FindAlgorithm("binary_blocks");
  // 2 lg 512 + 3 steps in the blocks, and two ways through trees of depth 10 at most, with two or three
  // trees.
  for (int64_t count : {3072, 5000, 5001, 99991, 1 << 20}) {
    const Cost most = CountGroupCost(600, [&](int rank) { return algorithm.build(rank, 600, count); }).most;
    EXPECT_LE(most.steps, 2 * 9 + 3 + 2 * 10) << count;
  }
}

TEST(BinaryBlocks, IsHalvingDoublingForAPowerOfTwo) {
  for (int size : {2, 4, 8, 64}) {
    for (int64_t count : {1000, 1001, 4099}) {
      for (int rank = 0; rank < size; ++rank) {
        const Schedule blocks = FindAlgorithm("binary_blocks")->build(rank, size, count);
        const Schedule halving = FindAlgorithm("halving_doubling")->build(rank, size, count);
        ASSERT_EQ(blocks.steps.size(), halving.steps.size());
        for (size_t step = 0; step < blocks.steps.size(); ++step) {
          ASSERT_EQ(blocks.steps[step].size(), halving.steps[step].size());
          for (size_t i = 0; i < blocks.steps[step].size(); ++i) {
            EXPECT_EQ(DescribeAction(blocks.steps[step][i]), DescribeAction(halving.steps[step][i]));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tf_strategies::schedule

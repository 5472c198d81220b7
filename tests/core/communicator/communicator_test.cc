#include "ops/communicator/communicator.h"

#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ops/schedule/choose.h"
#include "tests/core/support/group.h"

namespace tf_strategies {
namespace {

using testing::Group;
using testing::InputOf;
using testing::Outcome;
using testing::RequestFor;
using testing::SumOf;

CommunicatorOptions SmallChunks(const std::string& algorithm) {
  CommunicatorOptions options;
  options.algorithm = algorithm;
  options.chunk_bytes = 256;
  options.timeout_seconds = 20;
  return options;
}

template <typename T>
void ExpectAllReduce(Group& group, ReduceOp op, int64_t count, const std::vector<T>& expected) {
  std::vector<std::vector<T>> data;
  std::vector<Outcome> outcomes(group.size());
  for (int rank = 0; rank < group.size(); ++rank) data.push_back(InputOf<T>(rank, count));
  for (int rank = 0; rank < group.size(); ++rank)
    group[rank].AllReduce(op, RequestFor(&data[rank], &outcomes[rank]));
  for (int rank = 0; rank < group.size(); ++rank) {
    const Status status = outcomes[rank].Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(data[rank], expected) << "rank " << rank << " of " << group.size() << ", count " << count;
  }
}

class AllReduceTest : public ::testing::TestWithParam<std::tuple<std::string, int, int>> {};

TEST_P(AllReduceTest, SumsExactlyForEveryCount) {
  const auto& [algorithm, size, eager_bytes] = GetParam();
  Group group(size, SmallChunks(algorithm), eager_bytes);
  for (int64_t count : {0, 1, size - 1, size, size + 1, 1000, 4099}) {
    ExpectAllReduce<float>(group, ReduceOp::kSum, count, SumOf<float>(size, count));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryAlgorithm, AllReduceTest,
                         ::testing::Combine(::testing::Values("ring", "recursive_doubling",
                                                              "halving_doubling", "binary_blocks", "auto"),
                                            ::testing::Values(1, 2, 3, 5, 6, 7, 8),
                                            ::testing::Values(0, 1 << 20)));

TEST_P(AllReduceTest, MeanDividesEachSumExactlyOnce) {
  const auto& [algorithm, size, eager_bytes] = GetParam();
  Group group(size, SmallChunks(algorithm), eager_bytes);
  for (int64_t count : {1, size + 1, 1000}) {
    auto mean = SumOf<float>(size, count);
    for (float& value : mean) value /= static_cast<float>(size);
    ExpectAllReduce<float>(group, ReduceOp::kMean, count, mean);
  }
}

// The same elements in parts, each in memory of its own, with a canary behind: lengths that end within, at and beyond a chunk.
TEST_P(AllReduceTest, PartsAreReducedWhereTheyStand) {
  const auto& [algorithm, size, eager_bytes] = GetParam();
  Group group(size, SmallChunks(algorithm), eager_bytes);
  const std::vector<int64_t> lengths = {1, 63, 64, 700, 1, 1, 129};
  const int64_t count = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  auto mean = SumOf<float>(size, count);
  for (float& value : mean) value /= static_cast<float>(size);
  std::vector<std::vector<std::vector<float>>> parts(size);
  std::vector<Outcome> outcomes(size);
  std::vector<float> nothing;
  for (int rank = 0; rank < size; ++rank) {
    const auto whole = InputOf<float>(rank, count);
    auto request = RequestFor(&nothing, &outcomes[rank]);
    auto next = whole.begin();
    for (int64_t length : lengths) {
      parts[rank].emplace_back(next, next + length).push_back(-1);
      request.parts.push_back({parts[rank].back().data(), length});
      next += length;
    }
    group[rank].AllReduce(ReduceOp::kMean, std::move(request));
  }
  for (int rank = 0; rank < size; ++rank) {
    const Status status = outcomes[rank].Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    std::vector<float> joined;
    for (const auto& part : parts[rank]) {
      joined.insert(joined.end(), part.begin(), part.end() - 1);
      EXPECT_EQ(part.back(), -1);
    }
    EXPECT_EQ(joined, mean) << "rank " << rank << " of " << size;
  }
}

#if defined(__x86_64__)
// Threads of TensorFlow take subnormal numbers for zero. Who comes late lends such a thread and reduces on it; for the others
// the progress thread does.
TEST(Communicator, SumsAlikeWhateverThreadReduces) {
  for (int late : {0, 1}) {
    Group group(2);
    for (int call = 0; call < 5; ++call) {
      std::vector<std::vector<float>> data(2, {3e-39f, 1.5e-38f});
      data[1][1] = -1.3e-38f;
      const std::vector<float> expected = {data[0][0] + data[1][0], data[0][1] + data[1][1]};
      Outcome outcomes[2];
      std::vector<std::thread> callers;
      for (int rank : {0, 1}) {
        callers.emplace_back([&, rank] {
          const unsigned flush = _mm_getcsr() | 0x8040;
          _mm_setcsr(flush);
          if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          group[rank].AllReduce(ReduceOp::kSum, RequestFor(&data[rank], &outcomes[rank]));
          EXPECT_TRUE(outcomes[rank].Wait().ok());
          EXPECT_EQ(_mm_getcsr() & 0x8040, flush & 0x8040) << "the thread is as it was";
        });
      }
      for (std::thread& caller : callers) caller.join();
      for (int rank : {0, 1}) {
        for (int i : {0, 1}) {
          EXPECT_EQ(data[rank][i], expected[i]) << "rank " << rank << ", late " << late;
          EXPECT_NE(data[rank][i], 0);
        }
      }
    }
  }
}
#endif

TEST(Communicator, OtherPartsOfTheSameBufferAreAMismatch) {
  Group group(2, SmallChunks("auto"));
  std::vector<std::vector<float>> data(2, std::vector<float>(1000));
  std::vector<Outcome> outcomes(2);
  for (int rank = 0; rank < 2; ++rank) {
    auto request = RequestFor(&data[rank], &outcomes[rank]);
    const int64_t first = rank == 0 ? 400 : 401;
    request.parts = {{data[rank].data(), first}, {data[rank].data() + first, 1000 - first}};
    group[rank].AllReduce(ReduceOp::kSum, std::move(request));
  }
  for (Outcome& outcome : outcomes) EXPECT_EQ(outcome.Wait().code(), Code::kMismatch);
}

TEST(Communicator, MinAndMaxComeFromTheRightRank) {
  Group group(5, SmallChunks("binary_blocks"));
  ExpectAllReduce<int64_t>(group, ReduceOp::kMin, 500, InputOf<int64_t>(0, 500));
  ExpectAllReduce<int64_t>(group, ReduceOp::kMax, 500, InputOf<int64_t>(4, 500));
}

TEST(Communicator, MatchesByInstanceWhateverTheOrderOfSubmission) {
  constexpr int kCollectives = 24;
  Group group(3, SmallChunks("auto"), 64);
  std::vector<std::vector<std::vector<float>>> data(3);
  std::vector<std::vector<Outcome>> outcomes(3);
  for (int rank = 0; rank < 3; ++rank) {
    outcomes[rank] = std::vector<Outcome>(kCollectives);
    for (int i = 0; i < kCollectives; ++i) {
      data[rank].push_back(InputOf<float>(rank, 300));
      for (float& value : data[rank].back()) value += static_cast<float>(1000 * i);
    }
    std::vector<int> order(kCollectives);
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + rank * 7, order.end());
    if (rank == 1) std::reverse(order.begin(), order.end());
    for (int i : order)
      group[rank].AllReduce(ReduceOp::kSum, RequestFor(&data[rank][i], &outcomes[rank][i], i));
  }
  for (int i = 0; i < kCollectives; ++i) {
    auto expected = SumOf<float>(3, 300);
    for (float& value : expected) value += static_cast<float>(3000 * i);
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(outcomes[rank][i].Wait().ok());
      EXPECT_EQ(data[rank][i], expected) << "rank " << rank << ", collective " << i;
    }
  }
}

TEST(Communicator, AnInstanceCanBeUsedAgainAndAgain) {
  Group group(3, SmallChunks("binary_blocks"), 0);
  for (int round = 0; round < 300; ++round) {
    ExpectAllReduce<float>(group, ReduceOp::kSum, 1 + round % 200, SumOf<float>(3, 1 + round % 200));
  }
}

TEST(Communicator, BroadcastGivesTheRootsValueFromAnyRoot) {
  for (int size : {2, 3, 6}) {
    Group group(size, SmallChunks("auto"));
    for (int root = 0; root < size; ++root) {
      std::vector<std::vector<float>> data;
      std::vector<Outcome> outcomes(size);
      for (int rank = 0; rank < size; ++rank) data.push_back(InputOf<float>(rank, 700));
      for (int rank = 0; rank < size; ++rank)
        group[rank].Broadcast(root, RequestFor(&data[rank], &outcomes[rank]));
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(outcomes[rank].Wait().ok());
        EXPECT_EQ(data[rank], InputOf<float>(root, 700));
      }
    }
  }
}

TEST(Communicator, AllGatherTakesPartsOfDifferentLengths) {
  const std::vector<int64_t> offsets{0, 5, 5, 205, 206};
  Group group(4, SmallChunks("auto"));
  std::vector<std::vector<float>> data(4, std::vector<float>(206, -1));
  std::vector<float> expected(206);
  std::vector<Outcome> outcomes(4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto part = InputOf<float>(rank, offsets[rank + 1] - offsets[rank]);
    std::copy(part.begin(), part.end(), data[rank].begin() + offsets[rank]);
    std::copy(part.begin(), part.end(), expected.begin() + offsets[rank]);
  }
  for (int rank = 0; rank < 4; ++rank)
    group[rank].AllGather(offsets, RequestFor(&data[rank], &outcomes[rank]));
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(outcomes[rank].Wait().ok());
    EXPECT_EQ(data[rank], expected);
  }
}

TEST(Communicator, AnIdleRankDescribesNothing) {
  Group group(2, SmallChunks("auto"));
  for (int instance : {-1, 0, 70000}) EXPECT_EQ(group[0].DescribeInstance(instance), "nothing");
}

TEST(Communicator, BarrierHoldsUntilTheLastRankCame) {
  Group group(3, SmallChunks("auto"));
  std::vector<Outcome> outcomes(3);
  std::vector<float> unused;
  for (int rank : {0, 2}) group[rank].Barrier(RequestFor(&unused, &outcomes[rank]));
  EXPECT_EQ(outcomes[0].Wait(0.2).code(), Code::kInternal);
  EXPECT_EQ(group[0].OldestWaiting().instance, 0);
  group[1].Barrier(RequestFor(&unused, &outcomes[1]));
  EXPECT_TRUE(outcomes[1].Wait().ok());
  EXPECT_TRUE(outcomes[2].Wait().ok());
}

TEST(Communicator, ARankIsQuietWhileNoDataMove) {
  Group group(2, SmallChunks("auto"));
  std::vector<Outcome> outcomes(2), others(2);
  std::vector<float> unused, data[2] = {std::vector<float>(100, 1), std::vector<float>(100, 2)};
  const auto request = [&](int rank) {
    Communicator::Request made = RequestFor(&data[rank], &others[rank]);
    made.instance = 1;
    return made;
  };
  group[0].Barrier(RequestFor(&unused, &outcomes[0]));
  EXPECT_EQ(outcomes[0].Wait(0.2).code(), Code::kInternal);
  group[0].OldestWaiting();
  EXPECT_EQ(outcomes[0].Wait(0.2).code(), Code::kInternal);
  const Communicator::Waiting before = group[0].OldestWaiting();
  EXPECT_GE(before.quiet, 0.15);
  for (int rank : {0, 1}) group[rank].AllReduce(ReduceOp::kSum, request(rank));
  EXPECT_TRUE(others[0].Wait().ok());
  const Communicator::Waiting after = group[0].OldestWaiting();
  EXPECT_EQ(after.instance, 0);
  EXPECT_GE(after.seconds, before.seconds);
  EXPECT_LT(after.quiet, before.quiet);
  group[1].Barrier(RequestFor(&unused, &outcomes[1]));
  EXPECT_TRUE(outcomes[0].Wait().ok());
}

TEST(Communicator, CountsCallsByAlgorithmAndBytesOnTheWire) {
  Group group(3, SmallChunks("binary_blocks"));
  ExpectAllReduce<float>(group, ReduceOp::kSum, 3000, SumOf<float>(3, 3000));
  int64_t sent = 0, received = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const CommunicatorStats stats = group[rank].stats();
    for (size_t i = 0; i < stats.all_reduce.size(); ++i) {
      const bool used = std::string(schedule::AllReduceAlgorithms()[i].name) == "binary_blocks";
      EXPECT_EQ(stats.all_reduce[i].calls, used ? 1 : 0);
      EXPECT_EQ(stats.all_reduce[i].bytes, used ? 12000 : 0);
    }
    EXPECT_LE(stats.wire.bytes_sent, 2 * 12000);
    sent += stats.wire.bytes_sent;
    received += stats.wire.bytes_received;
  }
  EXPECT_EQ(sent, received);
  EXPECT_GT(sent, 0);
}

}  // namespace
}  // namespace tf_strategies

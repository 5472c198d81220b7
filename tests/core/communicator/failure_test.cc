// What happens when something goes wrong: every rank ends with one cause, in time, and stays ended.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/communicator/collective.h"
#include "ops/communicator/communicator.h"
#include "ops/communicator/scratch.h"
#include "ops/schedule/choose.h"
#include "ops/transport/faulty.h"
#include "tests/core/support/group.h"

namespace tf_strategies {
namespace {

using testing::Group;
using testing::InputOf;
using testing::Outcome;
using testing::RequestFor;
using testing::SumOf;

constexpr int64_t kCount = 1000;

CommunicatorOptions Options(const std::string& algorithm, double timeout_seconds) {
  CommunicatorOptions options;
  options.algorithm = algorithm;
  options.chunk_bytes = 512;
  options.timeout_seconds = timeout_seconds;
  return options;
}

Group::Wrap FaultAt(int faulty_rank, Fault fault) {
  return [=](int rank, std::unique_ptr<Transport> inner) {
    return rank == faulty_rank ? MakeFaultyTransport(std::move(inner), fault) : std::move(inner);
  };
}

struct AllReduced {
  std::vector<std::vector<float>> data;
  std::vector<Status> statuses;
};

AllReduced AllReduceOnAll(Group& group) {
  AllReduced run;
  std::vector<Outcome> outcomes(group.size());
  for (int rank = 0; rank < group.size(); ++rank) run.data.push_back(InputOf<float>(rank, kCount));
  for (int rank = 0; rank < group.size(); ++rank) {
    group[rank].AllReduce(ReduceOp::kSum, RequestFor(&run.data[rank], &outcomes[rank]));
  }
  for (Outcome& outcome : outcomes) run.statuses.push_back(outcome.Wait());
  return run;
}

// Twice the pieces of a rank bound its actions; the last faults lie past the end and must do no harm.
int64_t ActionsOf(const std::string& algorithm, int rank, int size) {
  int64_t actions = 0;
  const auto schedule = schedule::FindAlgorithm(algorithm)->build(rank, size, kCount);
  for (const auto& step : schedule.steps) {
    for (const auto& action : step) actions += action.range.size() / 128 + 2;
  }
  return actions;
}

class FaultAtEveryAction : public ::testing::TestWithParam<const char*> {};

TEST_P(FaultAtEveryAction, FailsOnAllRanksWithTheSameCause) {
  constexpr int kSize = 3;
  for (int faulty_rank : {0, 2}) {
    const int64_t actions = ActionsOf(GetParam(), faulty_rank, kSize);
    int failed = 0;
    for (int64_t action = 0; action < actions; ++action) {
      Group group(kSize, Options(GetParam(), 20), 256, FaultAt(faulty_rank, {Fault::Kind::kFail, action, 0}));
      const AllReduced run = AllReduceOnAll(group);
      if (run.statuses[faulty_rank].ok()) continue;
      ++failed;
      EXPECT_EQ(run.statuses[faulty_rank].code(), Code::kUnavailable);
      EXPECT_NE(run.statuses[faulty_rank].message().find("worker " + std::to_string(faulty_rank)),
                std::string::npos)
          << run.statuses[faulty_rank].message();
      const AllReduced later = AllReduceOnAll(group);
      for (int rank = 0; rank < kSize; ++rank) {
        EXPECT_EQ(later.statuses[rank].ToString(), run.statuses[faulty_rank].ToString())
            << "a poisoned communicator keeps its first cause";
      }
    }
    EXPECT_GT(failed, 0);
  }
}

TEST_P(FaultAtEveryAction, ALostRankEndsEveryoneByTheDeadline) {
  constexpr int kSize = 3;
  const int64_t actions = ActionsOf(GetParam(), 1, kSize);
  const auto expected = SumOf<float>(kSize, kCount);
  int failed = 0;
  for (int64_t action = 0; action < actions; action += 2) {
    Group group(kSize, Options(GetParam(), 0.2), 256, FaultAt(1, {Fault::Kind::kLose, action, 0}));
    const auto start = std::chrono::steady_clock::now();
    const AllReduced run = AllReduceOnAll(group);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    if (run.statuses[1].ok()) continue;
    ++failed;
    EXPECT_EQ(run.statuses[1].code(), Code::kDeadlineExceeded) << run.statuses[1].ToString();
    for (int rank : {0, 2}) {
      if (run.statuses[rank].ok()) {
        EXPECT_EQ(run.data[rank], expected) << "rank " << rank << " had all it needed before the loss";
      } else {
        EXPECT_EQ(run.statuses[rank].code(), Code::kDeadlineExceeded) << run.statuses[rank].ToString();
      }
    }
  }
  EXPECT_GT(failed, 0);
}

TEST_P(FaultAtEveryAction, ADelayedActionChangesNothing) {
  constexpr int kSize = 5;
  const auto expected = SumOf<float>(kSize, kCount);
  for (int64_t action = 0; action < ActionsOf(GetParam(), 3, kSize); ++action) {
    Group group(kSize, Options(GetParam(), 20), 256, FaultAt(3, {Fault::Kind::kDelay, action, 5}));
    const AllReduced run = AllReduceOnAll(group);
    for (int rank = 0; rank < kSize; ++rank) {
      ASSERT_TRUE(run.statuses[rank].ok()) << run.statuses[rank].ToString();
      EXPECT_EQ(run.data[rank], expected) << "action " << action << ", rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryAlgorithm, FaultAtEveryAction,
                         ::testing::Values("ring", "recursive_doubling", "halving_doubling",
                                           "binary_blocks"));

TEST(Failure, ADeadlineNamesTheWorkerThatDoesNotRead) {
  CommunicatorOptions options = Options("auto", 0.2);
  Group group(3, options, 64);
  std::vector<float> sent(kCount, 1.0f), received(1);
  Outcome outcome;
  auto request = RequestFor(&received, &outcome);
  request.source = sent.data();
  group[0].AllToAll({0, 0, kCount, kCount}, {0, 0, 0, 0}, std::move(request));
  const Status status = outcome.Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("for worker 1 to read; "), std::string::npos) << status.message();
}

TEST(Failure, ADeadlineNamesTheWorkerThatDidNotCome) {
  Group group(3, Options("binary_blocks", 0.2));
  auto first = InputOf<float>(0, kCount), second = InputOf<float>(1, kCount);
  Outcome outcomes[2];
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&first, &outcomes[0]));
  group[1].AllReduce(ReduceOp::kSum, RequestFor(&second, &outcomes[1]));
  const Status status = outcomes[0].Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("worker 2"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("CommunicationOptions.timeout"), std::string::npos) << status.message();
  EXPECT_EQ(outcomes[1].Wait().ToString(), status.ToString());
}

Status MismatchOf(const std::function<void(Communicator&, Communicator::Request)>& other, int64_t other_count,
                  const std::string& other_shape = "") {
  Group group(3, Options("auto", 5), 64);
  std::vector<std::vector<float>> data;
  std::vector<Outcome> outcomes(3);
  for (int rank = 0; rank < 3; ++rank) data.push_back(InputOf<float>(rank, rank == 1 ? other_count : kCount));
  for (int rank = 0; rank < 3; ++rank) {
    auto request = RequestFor(&data[rank], &outcomes[rank]);
    if (rank == 1) {
      request.shape = other_shape;
      other(group[rank], std::move(request));
    } else {
      group[rank].AllReduce(ReduceOp::kSum, std::move(request));
    }
  }
  std::vector<Status> statuses;
  for (Outcome& outcome : outcomes) statuses.push_back(outcome.Wait());
  for (const Status& status : statuses) EXPECT_EQ(status.ToString(), statuses[0].ToString());
  return statuses[0];
}

void SumAll(Communicator& communicator, Communicator::Request request) {
  communicator.AllReduce(ReduceOp::kSum, std::move(request));
}

TEST(Failure, AnotherCountOnOneRankIsAMismatchOnAll) {
  for (int64_t count : {int64_t{1}, kCount - 1, kCount + 1, 2 * kCount, 100 * kCount}) {
    EXPECT_EQ(MismatchOf(SumAll, count).code(), Code::kMismatch) << count;
  }
}

TEST(Failure, AnEmptyTensorOnOneRankIsAMismatchOnAll) {
  EXPECT_EQ(MismatchOf(SumAll, 0).code(), Code::kMismatch);
}

TEST(Failure, AnotherShapeOfTheSameCountIsAMismatchOnAll) {
  EXPECT_EQ(MismatchOf(SumAll, kCount, "[10,100]").code(), Code::kMismatch);
}

TEST(Failure, TransposedShapesAreAMismatchWhateverTheyAre) {
  for (int rows : {1, 2, 3, 5, 7, 64, 100, 128, 200, 256, 500}) {
    for (int columns : {10, 11, 12, 96, 300, 512}) {
      Collective one;
      one.kind = CollectiveKind::kBroadcast;
      one.dtype = DType::kFloat32;
      one.count = rows * columns;
      Collective other = one;
      one.shape = "[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
      other.shape = "[" + std::to_string(columns) + "," + std::to_string(rows) + "]";
      EXPECT_NE(one.Signature(0), other.Signature(0)) << one.shape;
    }
  }
}

TEST(Failure, AnotherNameIsAMismatchUnlessOnlyItsNumberDiffers) {
  Collective gamma, beta, second_gamma;
  gamma.name = "initial value of layer_1/gamma";
  second_gamma.name = "initial value of layer_2/gamma";
  beta.name = "initial value of layer_1/beta";
  EXPECT_NE(gamma.Signature(0), beta.Signature(0));
  EXPECT_EQ(gamma.Signature(0), second_gamma.Signature(0));
}

TEST(Failure, AnotherNumberInTheLayoutIsAMismatch) {
  Collective three, four;
  three.layout = "float32[3] by int64";
  four.layout = "float32[4] by int64";
  EXPECT_NE(three.Signature(0), four.Signature(0));
  EXPECT_NE(three.Describe(), four.Describe());
}

TEST(Failure, AnotherReductionOnOneRankIsAMismatchOnAll) {
  const auto max = [](Communicator& communicator, Communicator::Request request) {
    communicator.AllReduce(ReduceOp::kMax, std::move(request));
  };
  EXPECT_EQ(MismatchOf(max, kCount).code(), Code::kMismatch);
}

TEST(Failure, AnotherDTypeOnOneRankIsAMismatchOnAll) {
  const auto integers = [](Communicator& communicator, Communicator::Request request) {
    request.dtype = DType::kInt32;
    communicator.AllReduce(ReduceOp::kSum, std::move(request));
  };
  EXPECT_EQ(MismatchOf(integers, kCount).code(), Code::kMismatch);
}

TEST(Failure, AnotherOperationOnOneRankIsAMismatchOnAll) {
  const auto broadcast = [](Communicator& communicator, Communicator::Request request) {
    communicator.Broadcast(1, std::move(request));
  };
  EXPECT_EQ(MismatchOf(broadcast, kCount).code(), Code::kMismatch);
}

TEST(Failure, TheSameCollectiveTwiceInFlightIsRefused) {
  Group group(2, Options("auto", 5));
  auto first = InputOf<float>(0, kCount), second = InputOf<float>(0, kCount);
  Outcome outcomes[2];
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&first, &outcomes[0], 7));
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&second, &outcomes[1], 7));
  const Status status = outcomes[1].Wait();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("started again before it had finished"), std::string::npos);
  EXPECT_EQ(outcomes[0].Wait().code(), Code::kInvalidArgument);
}

TEST(Failure, WithoutAControlPlaneTheLocalCauseStands) {
  auto fabric = MakeInProcessFabric(2, 64);
  Communicator alone(MakeInProcessTransport(fabric, 0), Options("auto", 0.1), nullptr);
  auto data = InputOf<float>(0, kCount);
  Outcome outcome;
  alone.AllReduce(ReduceOp::kSum, RequestFor(&data, &outcome));
  EXPECT_EQ(outcome.Wait().code(), Code::kDeadlineExceeded);
}

TEST(Failure, AbortEndsWhatIsOutstandingAndWhatComesLater) {
  Group group(2, Options("auto", 20));
  auto data = InputOf<float>(0, kCount);
  Outcome outstanding, later;
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&data, &outstanding));
  group[0].Abort(Unavailable("worker 1 (10.0.0.2:2222) is lost"));
  EXPECT_EQ(outstanding.Wait().message(), "worker 1 (10.0.0.2:2222) is lost");
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&data, &later));
  EXPECT_EQ(later.Wait(1).message(), "worker 1 (10.0.0.2:2222) is lost");
}

TEST(Failure, DestructionEndsWhatIsOutstanding) {
  auto data = InputOf<float>(0, kCount);
  Outcome outcome;
  {
    Group group(2, Options("auto", 20));
    group[0].AllReduce(ReduceOp::kSum, RequestFor(&data, &outcome));
  }
  EXPECT_EQ(outcome.Wait().code(), Code::kCancelled);
}

TEST(Failure, TheRootOfABroadcastHearsThatAnotherRankDisagrees) {
  for (int size : {2, 3, 5, 8}) {
    for (int root : {0, size - 1}) {
      Group group(size, Options("auto", 5), 64);
      std::vector<std::vector<float>> data(size, InputOf<float>(0, kCount));
      std::vector<Outcome> outcomes(size);
      for (int rank = 0; rank < size; ++rank) {
        auto request = RequestFor(&data[rank], &outcomes[rank]);
        if (rank == size / 2) request.shape = "[10,100]";
        group[rank].Broadcast(root, std::move(request));
      }
      EXPECT_EQ(outcomes[root].Wait().code(), Code::kMismatch) << size << " ranks from " << root;
    }
  }
}

TEST(Failure, TheRootOfABroadcastEndsAfterTheOthersHaveCome) {
  Group group(3, Options("auto", 20));
  std::vector<std::vector<float>> data(3, InputOf<float>(0, kCount));
  std::vector<Outcome> outcomes(3);
  for (int rank : {0, 2}) group[rank].Broadcast(0, RequestFor(&data[rank], &outcomes[rank]));
  EXPECT_TRUE(outcomes[2].Wait().ok());
  EXPECT_EQ(group[0].OldestWaiting().instance, 0);
  group[1].Broadcast(0, RequestFor(&data[1], &outcomes[1]));
  EXPECT_TRUE(outcomes[0].Wait().ok());
}

TEST(Failure, WhatARankReportsEndsThePeersThatWaitForIt) {
  Group group(3, Options("auto", 20));
  auto first = InputOf<float>(0, kCount), third = InputOf<float>(2, kCount);
  Outcome outcomes[2], later;
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&first, &outcomes[0]));
  group[2].AllReduce(ReduceOp::kSum, RequestFor(&third, &outcomes[1]));
  group[1].Report(0, ResourceExhausted("memory ran out"));
  for (Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.Wait(5).ToString(), "RESOURCE_EXHAUSTED: memory ran out");
  }
  auto second = InputOf<float>(1, kCount);
  group[1].AllReduce(ReduceOp::kSum, RequestFor(&second, &later, 1));
  EXPECT_EQ(later.Wait(5).code(), Code::kResourceExhausted);
}

TEST(Failure, ABadRequestOnOneRankEndsThePeersThatWaitForIt) {
  Group group(2, Options("auto", 20));
  auto first = InputOf<float>(0, kCount), second = InputOf<float>(1, kCount);
  Outcome waiting, refused;
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&first, &waiting));
  group[1].Broadcast(2, RequestFor(&second, &refused));
  EXPECT_EQ(refused.Wait().code(), Code::kInvalidArgument);
  EXPECT_NE(waiting.Wait(5).message().find("root 2"), std::string::npos);
}

TEST(Failure, MemoryThatCannotBeHadIsNoException) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process when an allocation is too large";
#endif
  ScratchPool pool;
  EXPECT_EQ(pool.Take(size_t{1} << 60), nullptr);
  EXPECT_NE(pool.Take(100), nullptr);
}

TEST(Failure, BadRequestsAreRefusedWithTheValue) {
  Group group(2, Options("auto", 20));
  auto data = InputOf<float>(0, kCount);
  Outcome instance, root;
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&data, &instance, 1 << 16));
  EXPECT_NE(instance.Wait().message().find("65536"), std::string::npos);
  group[0].Broadcast(2, RequestFor(&data, &root));
  EXPECT_NE(root.Wait().message().find("root 2"), std::string::npos);
}

}  // namespace
}  // namespace tf_strategies

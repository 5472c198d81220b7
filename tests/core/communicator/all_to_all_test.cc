// Every rank has a segment for every rank: what arrives, and what happens when something goes wrong.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/communicator/collective.h"
#include "ops/communicator/communicator.h"
#include "ops/transport/faulty.h"
#include "tests/core/support/group.h"

namespace tf_strategies {
namespace {

using testing::Group;
using testing::Outcome;
using testing::RequestFor;

using Lengths = std::vector<std::vector<int64_t>>;  // by sender and receiver

CommunicatorOptions Options(double timeout_seconds = 20) {
  CommunicatorOptions options;
  options.chunk_bytes = 256;
  options.timeout_seconds = timeout_seconds;
  return options;
}

std::vector<int64_t> OffsetsOf(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

std::vector<int64_t> ReceivedBy(int rank, const Lengths& lengths) {
  std::vector<int64_t> received;
  for (const auto& of_sender : lengths) received.push_back(of_sender[rank]);
  return received;
}

// Tells from whom, for whom and which element of the segment.
int64_t Value(int from, int to, int64_t i) { return (from * 16 + to) * 1000000 + i; }

// What one rank has in an all-to-all.
struct Part {
  Part(int rank, const Lengths& lengths)
      : send_offsets(OffsetsOf(lengths[rank])),
        receive_offsets(OffsetsOf(ReceivedBy(rank, lengths))),
        received(receive_offsets.back(), -1) {
    for (size_t to = 0; to < lengths.size(); ++to) {
      for (int64_t i = 0; i < lengths[rank][to]; ++i) sent.push_back(Value(rank, static_cast<int>(to), i));
      for (int64_t i = 0; i < lengths[to][rank]; ++i)
        expected.push_back(Value(static_cast<int>(to), rank, i));
    }
    std::copy_n(sent.begin() + send_offsets[rank], lengths[rank][rank],
                received.begin() + receive_offsets[rank]);
  }

  void Submit(Communicator& communicator, int instance = 0) {
    Communicator::Request request = RequestFor(&received, &outcome, instance);
    request.source = sent.data();
    communicator.AllToAll(send_offsets, receive_offsets, std::move(request));
  }

  std::vector<int64_t> send_offsets, receive_offsets, sent, received, expected;
  Outcome outcome;
};

std::vector<Part> PartsOf(const Lengths& lengths) {
  std::vector<Part> parts;
  for (size_t rank = 0; rank < lengths.size(); ++rank) parts.emplace_back(static_cast<int>(rank), lengths);
  return parts;
}

void ExpectAllToAll(Group& group, const Lengths& lengths) {
  std::vector<Part> parts = PartsOf(lengths);
  for (int rank = 0; rank < group.size(); ++rank) parts[rank].Submit(group[rank]);
  for (int rank = 0; rank < group.size(); ++rank) {
    const Status status = parts[rank].outcome.Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(parts[rank].received, parts[rank].expected) << "rank " << rank << " of " << group.size();
  }
}

Lengths AllOf(int size, int64_t length) { return Lengths(size, std::vector<int64_t>(size, length)); }

Lengths Different(int size, int seed) {
  Lengths lengths = AllOf(size, 0);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) lengths[from][to] = (from * 31 + to * 17 + seed * 7) % 5 * 23;
  }
  return lengths;
}

class AllToAllTest : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(AllToAllTest, BringsEverySegmentToItsRank) {
  const auto& [size, eager_bytes] = GetParam();
  Group group(size, Options(), eager_bytes);
  for (int64_t length : {1, 0, 100, 5000}) ExpectAllToAll(group, AllOf(size, length));
  for (int seed = 0; seed < 20; ++seed) ExpectAllToAll(group, Different(size, seed));
  Lengths one_sends = AllOf(size, 0), one_receives = AllOf(size, 0);
  for (int rank = 0; rank < size; ++rank)
    one_sends[size / 2][rank] = one_receives[rank][size - 1] = 70 + rank;
  ExpectAllToAll(group, one_sends);
  ExpectAllToAll(group, one_receives);
}

INSTANTIATE_TEST_SUITE_P(EverySize, AllToAllTest,
                         ::testing::Combine(::testing::Range(1, 9), ::testing::Values(0, 256, 1 << 20)));

TEST(AllToAll, MatchesByInstanceWhateverTheOrderOfSubmission) {
  constexpr int kSize = 3, kCollectives = 12;
  Group group(kSize, Options(), 64);
  std::vector<std::vector<Part>> parts;
  for (int i = 0; i < kCollectives; ++i) parts.push_back(PartsOf(Different(kSize, i)));
  for (int rank = 0; rank < kSize; ++rank) {
    for (int i = 0; i < kCollectives; ++i) {
      const int instance = rank == 1 ? kCollectives - 1 - i : (i + rank * 5) % kCollectives;
      parts[instance][rank].Submit(group[rank], instance);
    }
  }
  for (auto& collective : parts) {
    for (Part& part : collective) {
      ASSERT_TRUE(part.outcome.Wait().ok());
      EXPECT_EQ(part.received, part.expected);
    }
  }
}

TEST(AllToAll, CountsWhatItReceivesAndMovesNothingTwice) {
  Group group(4, Options());
  const Lengths lengths = Different(4, 3);
  ExpectAllToAll(group, lengths);
  for (int rank = 0; rank < 4; ++rank) {
    const CommunicatorStats stats = group[rank].stats();
    int64_t all = 0, sent = 0;
    for (int other = 0; other < 4; ++other) {
      all += lengths[other][rank];
      sent += other == rank ? 0 : lengths[rank][other];
    }
    EXPECT_EQ(stats.all_to_all.calls, 1);
    EXPECT_EQ(stats.all_to_all.bytes, 8 * all);
    EXPECT_EQ(stats.wire.bytes_sent, 8 * sent);
    EXPECT_EQ(stats.wire.bytes_received, 8 * (all - lengths[rank][rank]));
  }
}

TEST(AllToAll, AFailureAtAnyActionEndsAllRanksWithItsCause) {
  constexpr int kSize = 4;
  for (int64_t action = 0; action < 2 * (kSize - 1); ++action) {
    Group group(kSize, Options(), 64, [=](int rank, std::unique_ptr<Transport> inner) {
      return rank == 2 ? MakeFaultyTransport(std::move(inner), {Fault::Kind::kFail, action, 0})
                       : std::move(inner);
    });
    std::vector<Part> parts = PartsOf(AllOf(kSize, 100));
    for (int rank = 0; rank < kSize; ++rank) parts[rank].Submit(group[rank]);
    const Status cause = parts[2].outcome.Wait();
    EXPECT_EQ(cause.code(), Code::kUnavailable);
    EXPECT_NE(cause.message().find("worker 2 in all_to_all 'test'"), std::string::npos) << cause.message();
    for (int rank : {0, 1, 3}) {
      const Status status = parts[rank].outcome.Wait();
      if (status.ok()) {
        EXPECT_EQ(parts[rank].received, parts[rank].expected) << "it had all before the failure";
      } else {
        EXPECT_EQ(status.ToString(), cause.ToString());
      }
    }
  }
}

TEST(AllToAll, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  Group group(3, Options(0.2));
  std::vector<Part> parts = PartsOf(AllOf(3, 50));
  parts[0].Submit(group[0]);
  parts[1].Submit(group[1]);
  const Status status = parts[0].outcome.Wait();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("worker 2"), std::string::npos) << status.message();
  EXPECT_EQ(parts[1].outcome.Wait().ToString(), status.ToString());
}

Status EndOf(const std::function<void(std::vector<Part>*, Group*)>& submit) {
  Group group(3, Options(5), 64);
  std::vector<Part> parts = PartsOf(AllOf(3, 50));
  submit(&parts, &group);
  std::vector<Status> statuses;
  for (Part& part : parts) statuses.push_back(part.outcome.Wait());
  for (const Status& status : statuses) EXPECT_EQ(status.ToString(), statuses[0].ToString());
  return statuses[0];
}

TEST(AllToAll, AnotherOperationOnOneRankIsAMismatchOnAll) {
  const Status status = EndOf([](std::vector<Part>* parts, Group* group) {
    for (int rank : {0, 2}) (*parts)[rank].Submit((*group)[rank]);
    (*group)[1].AllReduce(ReduceOp::kSum, RequestFor(&(*parts)[1].received, &(*parts)[1].outcome));
  });
  EXPECT_EQ(status.code(), Code::kMismatch);
}

TEST(AllToAll, AnotherShapeOnOneRankIsAMismatchOnAll) {
  const Status status = EndOf([](std::vector<Part>* parts, Group* group) {
    for (int rank = 0; rank < 3; ++rank) {
      Part& part = (*parts)[rank];
      Communicator::Request request = RequestFor(&part.received, &part.outcome);
      request.source = part.sent.data();
      request.shape = rank == 1 ? "[5]" : "[10]";
      (*group)[rank].AllToAll(part.send_offsets, part.receive_offsets, std::move(request));
    }
  });
  EXPECT_EQ(status.code(), Code::kMismatch);
}

TEST(AllToAll, ASegmentOfAnotherLengthThanExpectedIsAMismatch) {
  for (int64_t length : {49, 51, 5000}) {
    Group group(3, Options(5), 64);
    std::vector<Part> parts = PartsOf(AllOf(3, 50));
    Lengths others = AllOf(3, 50);
    others[1][2] = length;
    parts[1] = Part(1, others);
    for (int rank = 0; rank < 3; ++rank) parts[rank].Submit(group[rank]);
    const Status status = parts[2].outcome.Wait();
    EXPECT_EQ(status.code(), Code::kMismatch) << status.ToString();
    EXPECT_NE(status.message().find("worker 2 in all_to_all 'test': int64 [150], with worker 1"),
              std::string::npos)
        << status.message();
    for (int rank : {0, 1}) {
      const Status other = parts[rank].outcome.Wait();
      EXPECT_TRUE(other.ok() || other.ToString() == status.ToString()) << other.ToString();
    }
  }
}

TEST(AllToAll, LengthsThatCannotBeAreRefusedWithTheValue) {
  const auto refusal = [](std::vector<int64_t> send_offsets, std::vector<int64_t> receive_offsets) {
    Group group(2, Options());
    std::vector<float> data(8);
    Outcome outcome;
    group[0].AllToAll(std::move(send_offsets), std::move(receive_offsets), RequestFor(&data, &outcome));
    return outcome.Wait().message();
  };
  EXPECT_EQ(refusal({0, 3, 2}, {0, 1, 2}),
            "all_to_all 'test': a segment of -1 elements for rank 1; between 0 and 68719476736 are possible");
  EXPECT_EQ(refusal({0, 1, 2}, {0, kMostSegment + 1, kMostSegment + 1}),
            "all_to_all 'test': a segment of 68719476737 elements from rank 0; between 0 and 68719476736 are "
            "possible");
}

}  // namespace
}  // namespace tf_strategies

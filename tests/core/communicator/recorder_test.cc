#include "ops/communicator/recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ops/communicator/to_json.h"
#include "tests/core/support/group.h"

namespace tf_strategies {
namespace {

using testing::Group;
using testing::InputOf;
using testing::Outcome;
using testing::RequestFor;

constexpr std::chrono::milliseconds kLate{50};

std::shared_ptr<const Collective> Named(const std::string& name) {
  auto collective = std::make_shared<Collective>();
  collective->name = name;
  return collective;
}

CommunicatorOptions Options() {
  CommunicatorOptions options;
  options.timeout_seconds = 20;
  return options;
}

TEST(RecorderTest, KeepsTheLastCollectivesInOrder) {
  Recorder recorder(3);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(recorder.Submitted(i % 2, Named(std::to_string(i)), Recorder::Clock::now()), i);
  }
  recorder.Started(0, 0);  // which was replaced
  recorder.Ended(1, 7, Code::kOk);
  recorder.Ended(3, 1, Code::kUnavailable);

  const std::vector<Recorder::Entry> entries = recorder.Entries();
  ASSERT_EQ(entries.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(entries[i].number, i + 2);
    EXPECT_EQ(entries[i].started, Recorder::Clock::time_point());
  }
  EXPECT_EQ(entries[0].last_peer, -1);
  EXPECT_EQ(entries[1].last_peer, 1);
  EXPECT_EQ(entries[1].code, Code::kUnavailable);
  EXPECT_GE(entries[1].ended, entries[1].submitted);
  EXPECT_EQ(entries[2].ended, Recorder::Clock::time_point());
  EXPECT_EQ(recorder.LastOn(0)->name, "4");
  EXPECT_EQ(recorder.LastOn(1)->name, "3");
  EXPECT_EQ(recorder.LastOn(2), nullptr);
}

TEST(RecorderTest, CountsTheTimeInWhichAnythingIsOutstandingOnce) {
  Recorder recorder(1);
  EXPECT_EQ(recorder.SecondsOutstanding(), 0);
  const auto start = Recorder::Clock::now();
  recorder.Submitted(0, Named("a"), start - std::chrono::seconds(10));
  recorder.Submitted(1, Named("b"), start);
  EXPECT_GE(recorder.SecondsOutstanding(), 10);
  recorder.Ended(0, -1, Code::kOk);
  recorder.Ended(1, -1, Code::kOk);
  const double seconds = recorder.SecondsOutstanding();
  EXPECT_GE(seconds, 10);
  EXPECT_LT(seconds, 15);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(recorder.SecondsOutstanding(), seconds);
}

TEST(RecorderTest, ShowsWhoWasWaitedFor) {
  Group group(3, Options());
  std::vector<std::vector<float>> data(3);
  std::vector<Outcome> outcomes(3);
  for (int rank = 0; rank < 3; ++rank) data[rank] = InputOf<float>(rank, 100);
  for (int rank : {0, 1}) group[rank].AllReduce(ReduceOp::kSum, RequestFor(&data[rank], &outcomes[rank]));
  std::this_thread::sleep_for(kLate);
  group[2].AllReduce(ReduceOp::kSum, RequestFor(&data[2], &outcomes[2]));
  for (Outcome& outcome : outcomes) ASSERT_TRUE(outcome.Wait().ok());

  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<Recorder::Entry> entries = group[rank].Recorded().Entries();
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_LE(entries[0].submitted, entries[0].started);
    EXPECT_LE(entries[0].started, entries[0].ended);
    EXPECT_EQ(entries[0].code, Code::kOk);
    EXPECT_EQ(entries[0].use, 0);
    EXPECT_GE(entries[0].last_peer, 0);
    if (rank < 2) {
      EXPECT_GE(entries[0].ended - entries[0].submitted, kLate);
      EXPECT_GE(group[rank].stats().seconds_outstanding, std::chrono::duration<double>(kLate).count());
    }
  }
}

TEST(RecorderTest, RecordsHowCollectivesFailed) {
  Group group(2, Options());
  std::vector<float> data = InputOf<float>(0, 100);
  Outcome started;
  group[0].AllReduce(ReduceOp::kSum, RequestFor(&data, &started));
  group[0].Abort(Unavailable("worker 1 is lost"));
  EXPECT_EQ(started.Wait().code(), Code::kUnavailable);
  const std::vector<Recorder::Entry> entries = group[0].Recorded().Entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].code, Code::kUnavailable);
  EXPECT_EQ(entries[0].last_peer, -1);
  const double outstanding = group[0].stats().seconds_outstanding;
  EXPECT_EQ(group[0].stats().seconds_outstanding, outstanding);
}

TEST(RecorderTest, IsWrittenAsJson) {
  Recorder recorder(2);
  auto collective = std::make_shared<Collective>();
  collective->kind = CollectiveKind::kBroadcast;
  collective->name = "a \"quoted\\ name\n";
  collective->dtype = DType::kFloat32;
  collective->count = 3;
  recorder.Submitted(5, collective, Recorder::Clock::time_point(std::chrono::nanoseconds(7)));
  const std::string json = ToJson(recorder, {{2, 3, 4096, 0.5}}, 1, 4);
  EXPECT_EQ(json.find("{\"rank\": 1, \"size\": 4, \"monotonic_ns\": "), 0u) << json;
  const std::string expected =
      "\"collectives\": [{\"number\": 0, \"kind\": \"broadcast\", \"name\": \"a \\\"quoted\\\\ "
      "name\\u000a\", "
      "\"instance\": 5, \"use\": -1, \"algorithm\": \"binomial_tree\", \"dtype\": \"float32\", \"bytes\": "
      "12, "
      "\"submitted_ns\": 7, \"started_ns\": 0, \"ended_ns\": 0, \"last_peer\": -1, \"code\": 0}], "
      "\"connections\": [{\"peer\": 2, \"messages\": 3, \"bytes\": 4096, \"seconds\": 0.5}]}";
  EXPECT_NE(json.find(expected), std::string::npos) << json;
}

}  // namespace
}  // namespace tf_strategies

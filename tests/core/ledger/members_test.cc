// Who is a worker of a ledger, and what its workers agree on.

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/core/ledger/ledger_fixture.h"

namespace tf_strategies::ledger {
namespace {

using testing::TestLedger;

MemberStatus StatusOf(TestLedger& ledger, int worker) { return ledger->Members()[worker].status; }

TEST(Join, FixesNamesAndOptions) {
  TestLedger ledger(2);
  ASSERT_TRUE(ledger.Join(0, 1, "rate=0.1,quorum=2").ok());
  const Status other = ledger.Join(1, 1, "rate=0.1,quorum=1");
  EXPECT_EQ(other.ToString(),
            "MISMATCH: ledger 'test': worker 1 (host:1) joins with other options than worker 0 (host:0); "
            "the first difference: 'rate=0.1,quorum=1' and 'rate=0.1,quorum=2'");
  int64_t step = 0;
  EXPECT_EQ(ledger->Join({2, 1}, {"a", "b", "c"}, "rate=0.1,quorum=2", &step).ToString(),
            "MISMATCH: ledger 'test': c says that there are 3 workers, worker 0 (host:0) said 2");
  EXPECT_EQ(ledger->Join({1, 1}, {"a", "b"}, "rate=0.1,quorum=2", &step).ToString(),
            "MISMATCH: ledger 'test': b calls worker 0 'a', worker 0 (host:0) called it 'worker 0 (host:0)'");
  EXPECT_TRUE(ledger.Join(1, 1, "rate=0.1,quorum=2").ok());
  EXPECT_TRUE(ledger.Join(1, 1, "rate=0.1,quorum=2").ok()) << "the same process may join again";
}

TEST(Join, RefusesWhatMakesNoSense) {
  TestLedger ledger(2);
  int64_t step = 0;
  EXPECT_EQ(ledger->Join({0, 1}, {}, "", &step).message(),
            "ledger 'test' of 0 workers: 1 to 65536 are allowed");
  EXPECT_EQ(ledger->Join({2, 1}, {"a", "b"}, "", &step).message(),
            "worker 2 joins ledger 'test' of 2 workers: it must be 0 to 1");
  EXPECT_EQ(ledger->Join({0, 1}, {"a\nb", "b"}, "", &step).message(),
            "the name of a worker has the control character 10 at byte 1");
  EXPECT_EQ(ledger->Join({0, 1}, {std::string(2000, 'a'), "b"}, "", &step).message(),
            "the name of a worker has 2000 bytes; at most 1024 are allowed");
  EXPECT_EQ(ledger->Join({0, 1}, {"a", "b"}, std::string(2 << 20, 'a'), &step).code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(ledger->Members().empty());
}

TEST(Join, OfANewProcessReplacesTheFormer) {
  TestLedger ledger(2);
  ledger.JoinAll();
  const auto pulled = ledger.Submit(1, 0, 2);
  ASSERT_FALSE(pulled->answered());
  ASSERT_TRUE(ledger.Join(1, 7).ok());
  EXPECT_EQ(pulled->status.ToString(),
            "ABORTED: worker 1 (host:1) was replaced: a newer process has joined as this worker");
  EXPECT_EQ(
      ledger.Push(1, 0).ToString(),
      "ABORTED: worker 1 (host:1) was replaced in ledger 'test': a newer process has joined as this worker; "
      "end this one");
  EXPECT_EQ(ledger->Members()[1].incarnation, 7);
  EXPECT_FALSE(ledger->MarkLost({1, 1})) << "the former process";
  EXPECT_TRUE(ledger->MarkLost({1, 7}));
}

TEST(Caller, MustHaveJoined) {
  TestLedger ledger(2);
  EXPECT_EQ(
      ledger.Push(1, 0).ToString(),
      "FAILED_PRECONDITION: worker 1 has not joined ledger 'test' in this process: was this parameter server "
      "restarted? Restart the workers");
  ASSERT_TRUE(ledger.Join(0).ok());
  EXPECT_EQ(ledger.Push(1, 0).code(), Code::kFailedPrecondition);
  EXPECT_EQ(ledger.Push(2, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(ledger.Push(-1, 0).code(), Code::kInvalidArgument);
}

TEST(Lost, IsForThisProcessOnly) {
  TestLedger ledger(2);
  ledger.JoinAll();
  EXPECT_TRUE(ledger->MarkLost({1, 1}));
  EXPECT_FALSE(ledger->MarkLost({1, 1}));
  EXPECT_FALSE(ledger->MarkLost({2, 1}));
  EXPECT_EQ(ledger.Join(1, 1).code(), Code::kAborted);
  EXPECT_EQ(ledger.Push(1, 0).code(), Code::kAborted);
  EXPECT_EQ(StatusOf(ledger, 1), MemberStatus::kLost);
  EXPECT_TRUE(ledger.Join(1, 2).ok());
  EXPECT_EQ(StatusOf(ledger, 1), MemberStatus::kTraining);
}

TEST(Leave, ForGoodOrForAWhile) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ASSERT_TRUE(ledger->Leave({0, 1}, false).ok());
  EXPECT_EQ(StatusOf(ledger, 0), MemberStatus::kIdle);
  ASSERT_TRUE(ledger->Leave({0, 1}, true).ok());
  ASSERT_TRUE(ledger->Leave({0, 1}, false).ok());
  EXPECT_EQ(StatusOf(ledger, 0), MemberStatus::kFinished);
  EXPECT_EQ(ledger.Enter(0, 1, 0)->status.code(), Code::kFailedPrecondition);
  EXPECT_FALSE(ledger->MarkLost({0, 1})) << "it has finished";
}

TEST(Agree, TheFirstTextStays) {
  TestLedger ledger(2);
  ledger.JoinAll();
  EXPECT_TRUE(ledger->Agree({0, 1}, "dense/kernel", "float32 [3,4]").ok());
  EXPECT_TRUE(ledger->Agree({1, 1}, "dense/kernel", "float32 [3,4]").ok());
  EXPECT_EQ(ledger->Agree({1, 1}, "dense/kernel", "float32 [3,5]").ToString(),
            "MISMATCH: 'dense/kernel' differs between worker 1 (host:1) and worker 0 (host:0); the first "
            "difference: 'float32 [3,5]' and 'float32 [3,4]'");
  EXPECT_EQ(ledger->Agree({1, 1}, "", "text").message(), "the key of an agreement is empty");
}

TEST(Agree, IsBounded) {
  TestLedger ledger(1);
  ledger.JoinAll();
  const std::string large(Agreements::kMostBytes / 2, 'x');
  EXPECT_TRUE(ledger->Agree({0, 1}, "a", large).ok());
  EXPECT_EQ(ledger->Agree({0, 1}, "b", large).code(), Code::kResourceExhausted);
  EXPECT_TRUE(ledger->Agree({0, 1}, "c", "small").ok());
  Status status;
  size_t kept = 2;
  for (; status.ok() && kept <= Agreements::kMostKeys; ++kept) {
    status = ledger->Agree({0, 1}, std::to_string(kept), "");
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(kept, Agreements::kMostKeys + 1);
}

TEST(Enter, WaitsForAllThatMayCome) {
  TestLedger ledger(3);
  ASSERT_TRUE(ledger.Join(0).ok());
  const auto first = ledger.Enter(0, 1);
  ASSERT_TRUE(ledger.Join(1).ok());
  const auto second = ledger.Enter(1, 1);
  EXPECT_FALSE(first->answered());
  ASSERT_TRUE(ledger->MarkLost({2, 0})) << "it never came";
  EXPECT_TRUE(first->status.ok() && first->answered());
  EXPECT_TRUE(second->status.ok() && second->answered());

  ASSERT_TRUE(ledger->Leave({0, 1}, false).ok());
  const auto next = ledger.Enter(0, 2);
  EXPECT_FALSE(next->answered()) << "worker 1 is still in its first fit";
  EXPECT_EQ(StatusOf(ledger, 0), MemberStatus::kIdle);
  ASSERT_TRUE(ledger->Leave({1, 1}, true).ok());
  EXPECT_TRUE(next->answered() && next->status.ok()) << "worker 1 has finished";
  EXPECT_EQ(StatusOf(ledger, 0), MemberStatus::kTraining);
  EXPECT_EQ(ledger.Enter(0, 1, 0)->status.message(), "generation must be at least 2; got 1");
}

TEST(Enter, WithoutATimeoutDoesNotWait) {
  TestLedger ledger(2);
  ASSERT_TRUE(ledger.Join(0).ok());
  EXPECT_TRUE(ledger.Enter(0, 1, 0)->status.ok());
  EXPECT_EQ(ledger.Enter(0, 1, -1)->status.message(), "timeout must be between 0 and 1e+07 seconds; got -1");
}

TEST(Enter, ADeadlineNamesThoseThatAreAwaitedAndUndoesIt) {
  TestLedger ledger(3);
  ledger.JoinAll();
  const auto early = ledger.Enter(0, 1, 10);
  ledger.Pass(9.9);
  EXPECT_FALSE(early->answered());
  ledger.Pass(0.2);
  EXPECT_EQ(
      early->status.ToString(),
      "DEADLINE_EXCEEDED: worker 0 (host:0) waited 10 s in ledger 'test' to begin its fit 1 together with "
      "worker 1 (host:1), worker 2 (host:2); see their logs, or raise the timeout");
  const auto late = ledger.Enter(1, 1);
  const auto later = ledger.Enter(2, 1);
  EXPECT_FALSE(late->answered()) << "worker 0 has gone back";
  EXPECT_TRUE(ledger.Enter(0, 1)->answered());
  EXPECT_TRUE(late->answered());
  EXPECT_TRUE(later->answered());
}

}  // namespace
}  // namespace tf_strategies::ledger

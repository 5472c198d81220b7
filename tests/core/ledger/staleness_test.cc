// Asynchronous training: what is counted, and who waits for whom.

#include <gtest/gtest.h>

#include <numeric>

#include "tests/core/ledger/ledger_fixture.h"

namespace tf_strategies::ledger {
namespace {

using testing::TestLedger;

TEST(Push, CountsStalenessExactly) {
  TestLedger ledger(2);
  ledger.JoinAll();
  EXPECT_EQ(ledger.Pull(0, -1)->outcome.step, 0);
  int64_t staleness = -1;
  for (int64_t expected = 0; expected < 300; ++expected) {
    ASSERT_TRUE(ledger.Push(1, 0, &staleness).ok());
    ASSERT_EQ(staleness, expected);
  }
  ASSERT_TRUE(ledger.Push(0, 0, &staleness).ok());
  EXPECT_EQ(staleness, 300);
  EXPECT_EQ(ledger->Step(), 301);
  const StalenessCounts counts = ledger->Staleness();
  EXPECT_EQ(counts.count, 301);
  EXPECT_EQ(counts.maximum, 300);
  EXPECT_EQ(counts.total, 300 * 301 / 2);
  EXPECT_EQ(counts.histogram[0], 1);
  EXPECT_EQ(counts.histogram[254], 1);
  EXPECT_EQ(counts.histogram[255], 46) << "255 to 300";
  EXPECT_EQ(std::accumulate(counts.histogram.begin(), counts.histogram.end(), int64_t{0}), 301);
}

TEST(Push, RefusesAStepThatNeverWas) {
  TestLedger ledger(1);
  ledger.JoinAll();
  EXPECT_EQ(
      ledger.Push(0, 1).message(),
      "worker 0 (host:0) pushes gradients of weights that it pulled at step 1; the steps so far are 0 to 0");
  EXPECT_EQ(ledger.Push(0, -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(ledger->Step(), 0);
}

TEST(Push, AfterAnOlderCheckpointWasRestoredIsNotStale) {
  TestLedger ledger(1);
  ledger.JoinAll();
  ASSERT_TRUE(ledger->SetStep(100).ok());
  ASSERT_TRUE(ledger->SetStep(50).ok());
  int64_t staleness = -1;
  EXPECT_TRUE(ledger.Push(0, 100, &staleness).ok());
  EXPECT_EQ(staleness, 0);
  EXPECT_EQ(ledger->Step(), 51);
}

TEST(Pull, WaitsForTheSlowest) {
  TestLedger ledger(2);
  ledger.JoinAll();
  for (int update = 0; update < 3; ++update) {
    EXPECT_TRUE(ledger.Pull(0, 2)->answered()) << update;
    ASSERT_TRUE(ledger.Push(0, 0).ok());
  }
  const auto ahead = ledger.Pull(0, 2);
  EXPECT_FALSE(ahead->answered());
  EXPECT_TRUE(ledger.Pull(1, 2)->answered());
  EXPECT_FALSE(ahead->answered());
  ASSERT_TRUE(ledger.Push(1, 0).ok());
  EXPECT_TRUE(ahead->answered());
  EXPECT_EQ(ahead->outcome.step, 4);
  EXPECT_EQ(ledger.Pull(0, -2)->status.message(), "max_staleness must be at least -1; got -2");
}

TEST(Pull, IsNotHeldBackByThoseThatDoNotTrain) {
  for (const int how : {0, 1, 2}) {
    TestLedger ledger(2);
    ledger.JoinAll();
    ASSERT_TRUE(ledger.Push(0, 0).ok());
    const auto ahead = ledger.Pull(0, 0);
    ASSERT_FALSE(ahead->answered());
    ASSERT_TRUE(how < 2 ? ledger->Leave({1, 1}, how == 1).ok() : ledger->MarkLost({1, 1}));
    EXPECT_TRUE(ahead->answered()) << how;
  }
}

TEST(Pull, OfAWorkerThatComesBackBeginsWhereTheSlowestIs) {
  TestLedger ledger(3);
  ledger.JoinAll();
  ASSERT_TRUE(ledger->Leave({2, 1}, false).ok());
  for (int update = 0; update < 10; ++update) ASSERT_TRUE(ledger.Push(0, 0).ok());
  for (int update = 0; update < 8; ++update) ASSERT_TRUE(ledger.Push(1, 0).ok());
  EXPECT_TRUE(ledger.Pull(2, 0)->answered());
  EXPECT_TRUE(ledger.Pull(0, 2)->answered()) << "10 - 8: the one that came back does not hold it back more";
  ASSERT_TRUE(ledger.Join(1, 2).ok());
  EXPECT_EQ(ledger->Members()[1].clock, 8);
}

TEST(Pull, IsHeldBackByThoseExpectedForAWhileOnly) {
  TestLedger ledger(2);
  ASSERT_TRUE(ledger.Join(0).ok());
  ASSERT_TRUE(ledger.Push(0, 0).ok());
  const auto ahead = ledger.Pull(0, 0, 1000);
  ledger.Pass(Ledger::kGraceSeconds - 1);
  EXPECT_FALSE(ahead->answered());
  ledger.Pass(1.5);
  EXPECT_TRUE(ahead->answered() && ahead->status.ok());
  ASSERT_TRUE(ledger.Join(1).ok());
  EXPECT_EQ(ledger->Members()[1].clock, 1) << "late, but it stops nobody";
}

TEST(Pull, GraceIsHalfTheTimeoutIfThatIsLess) {
  TestLedger ledger(2);
  ASSERT_TRUE(ledger.Join(0).ok());
  ASSERT_TRUE(ledger.Push(0, 0).ok());
  const auto ahead = ledger.Pull(0, 0, 10);
  ledger.Pass(4.9);
  EXPECT_FALSE(ahead->answered());
  ledger.Pass(0.2);
  EXPECT_TRUE(ahead->answered() && ahead->status.ok());
}

TEST(Pull, ADeadlineNamesTheSlowest) {
  TestLedger ledger(3);
  ledger.JoinAll();
  ASSERT_TRUE(ledger.Push(0, 0).ok());
  ASSERT_TRUE(ledger.Push(1, 0).ok());
  const auto ahead = ledger.Pull(0, 0, 5);
  ledger.Pass(5);
  EXPECT_EQ(ahead->status.ToString(),
            "DEADLINE_EXCEEDED: worker 0 (host:0) waited 5 s in ledger 'test' at its update 1 for slower "
            "workers, which may be at most 0 updates behind: worker 2 (host:2); see their logs, or raise the "
            "timeout");
  EXPECT_EQ(ahead->answers, 1);
  ledger.Pass(1000);
  EXPECT_EQ(ahead->answers, 1);
}

TEST(Pull, CanBeCancelled) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ASSERT_TRUE(ledger.Push(0, 0).ok());
  const auto ahead = ledger.Pull(0, 0, 5);
  ledger->Cancel(ahead->ticket);
  ledger.Pass(100);
  EXPECT_EQ(ahead->answers, 0);
}

}  // namespace
}  // namespace tf_strategies::ledger

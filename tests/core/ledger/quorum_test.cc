// Synchronous training with backup workers: which submissions count, and who applies them.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/core/ledger/ledger_fixture.h"

namespace tf_strategies::ledger {
namespace {

using testing::Call;
using testing::TestLedger;
using Members = std::vector<int>;

void ExpectDecision(const std::shared_ptr<Call>& call, Decision decision, int64_t step) {
  ASSERT_EQ(call->answers, 1);
  EXPECT_TRUE(call->status.ok()) << call->status.ToString();
  EXPECT_EQ(call->outcome.decision, decision);
  EXPECT_EQ(call->outcome.step, step);
}

void ExpectApply(const std::shared_ptr<Call>& call, int64_t step, const Members& members) {
  ExpectDecision(call, kApply, step);
  EXPECT_EQ(call->outcome.members, members);
}

void ExpectCounts(TestLedger& ledger, const std::vector<int64_t>& dropped,
                  const std::vector<int64_t>& counted) {
  std::vector<int64_t> found_dropped, found_counted;
  ledger->Counts(&found_dropped, &found_counted);
  EXPECT_EQ(found_dropped, dropped);
  EXPECT_EQ(found_counted, counted);
}

TEST(Submit, TheOneThatCompletesTheQuorumApplies) {
  TestLedger ledger(3);
  ledger.JoinAll();
  const auto first = ledger.Submit(2, 0, 2, 100, 1, 10);
  EXPECT_FALSE(first->answered());
  EXPECT_EQ(ledger->Submitters(), Members({2}));
  const auto second = ledger.Submit(0, 0, 2, 100, 1, 7);
  ExpectApply(second, 0, {0, 2});
  EXPECT_EQ(second->outcome.rows, 17);
  const auto third = ledger.Submit(1, 0, 2);
  EXPECT_FALSE(third->answered()) << "the weights are being written";
  EXPECT_FALSE(first->answered());
  int64_t next = 0;
  ASSERT_TRUE(ledger->Applied({0, 1}, 0, &next).ok());
  EXPECT_EQ(next, 1);
  EXPECT_EQ(ledger->Submitters(), Members());
  ExpectDecision(first, kCounted, 1);
  ExpectDecision(third, kDropped, 1);
  ExpectDecision(ledger.Submit(1, 0, 2), kDropped, 1);
  ExpectCounts(ledger, {0, 2, 0}, {1, 0, 1});
  ASSERT_TRUE(ledger->Applied({0, 1}, 0, &next).ok()) << "may be repeated";
  EXPECT_EQ(ledger->Step(), 1);
}

TEST(Submit, IsRefusedWithTheValues) {
  TestLedger ledger(2);
  ledger.JoinAll();
  EXPECT_EQ(ledger.Submit(0, -1, 1)->status.message(), "step must be at least 0; got -1");
  EXPECT_EQ(ledger.Submit(0, 0, 0)->status.message(), "quorum must be at least 1; got 0");
  EXPECT_EQ(ledger.Submit(0, 0, 1, 1, 1, -3)->status.message(),
            "rows must be between 0 and 1099511627776; got -3");
  EXPECT_EQ(ledger.Submit(0, 1, 1)->status.ToString(),
            "FAILED_PRECONDITION: worker 0 (host:0) submits a gradient for step 1 of ledger 'test', which is "
            "at step 0: "
            "was the parameter server restarted, or an older checkpoint restored?");
  ASSERT_FALSE(ledger.Submit(0, 0, 2)->answered());
  EXPECT_EQ(ledger.Submit(1, 0, 1)->status.ToString(),
            "MISMATCH: worker 1 (host:1) asks for a quorum of 1, worker 0 (host:0) asked for 2");
  ExpectCounts(ledger, {0, 0}, {0, 0});
}

TEST(Submit, OfAStepThatNobodyIsLeftToApplyIsGivenUpWithTheStep) {
  TestLedger ledger(2);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 1);
  ExpectApply(first, 0, {0});
  EXPECT_EQ(ledger->SetStep(7).code(), Code::kFailedPrecondition) << "worker 0 applies it";
  ASSERT_TRUE(ledger->Leave({0, 1}, false).ok());
  ASSERT_TRUE(ledger->SetStep(7).ok());
  const auto again = ledger.Submit(1, 7, 1);
  ExpectApply(again, 7, {1});
  EXPECT_GT(again->outcome.update, first->outcome.update);
}

TEST(Submit, NeedsNoMoreThanAreThere) {
  TestLedger ledger(4);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 3);
  const auto second = ledger.Submit(1, 0, 3);
  ASSERT_TRUE(ledger->Leave({2, 1}, false).ok());
  EXPECT_FALSE(second->answered());
  ASSERT_TRUE(ledger->MarkLost({3, 1}));
  EXPECT_FALSE(first->answered());
  ExpectApply(second, 0, {0, 1});
}

TEST(Submit, DoesNotCountOnThoseThatEnter) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ASSERT_FALSE(ledger.Enter(0, 1)->answered());
  ASSERT_TRUE(ledger.Enter(1, 1)->answered());
  ASSERT_TRUE(ledger->Leave({0, 1}, false).ok());
  const auto entering = ledger.Enter(0, 2);
  EXPECT_FALSE(entering->answered()) << "worker 1 is in its first fit";
  ExpectApply(ledger.Submit(1, 0, 2), 0, {1});
  ASSERT_TRUE(ledger.Applied(1, 0).ok());
  EXPECT_FALSE(entering->answered());
}

TEST(Submit, OfALostWorkerThatDidNotCountYetIsDropped) {
  TestLedger ledger(3);
  ledger.JoinAll();
  const auto lost = ledger.Submit(0, 0, 2);
  ASSERT_TRUE(ledger->MarkLost({0, 1}));
  EXPECT_EQ(lost->status.code(), Code::kAborted);
  const auto first = ledger.Submit(1, 0, 2);
  EXPECT_FALSE(first->answered());
  ExpectApply(ledger.Submit(2, 0, 2), 0, {1, 2});
  ExpectCounts(ledger, {1, 0, 0}, {0, 1, 1});
}

TEST(Applier, WhenLostIsReplacedByOneThatCounted) {
  TestLedger ledger(4);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 2);
  ExpectApply(ledger.Submit(1, 0, 2), 0, {0, 1});
  const auto late = ledger.Submit(2, 0, 2);
  ASSERT_TRUE(ledger->MarkLost({1, 1}));
  ExpectApply(first, 0, {0, 1});
  EXPECT_FALSE(late->answered());
  EXPECT_EQ(ledger.Applied(2, 0).ToString(),
            "FAILED_PRECONDITION: worker 2 (host:2) says that it has applied step 0; ledger 'test' is at "
            "step 0, being "
            "applied by worker 0 (host:0)");
  ASSERT_TRUE(ledger.Applied(0, 0).ok());
  ExpectDecision(late, kDropped, 1);
}

TEST(Applier, WhenLostIsReplacedByOneThatWaits) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ExpectApply(ledger.Submit(0, 0, 1), 0, {0});
  const auto late = ledger.Submit(1, 0, 1);
  EXPECT_FALSE(late->answered());
  ASSERT_TRUE(ledger.Join(0, 2).ok()) << "a new process in its place";
  ExpectApply(late, 0, {0});
  ASSERT_TRUE(ledger.Applied(1, 0).ok());
  ExpectCounts(ledger, {0, 1}, {1, 0});
}

TEST(Applier, WhenLostIsReplacedByTheNextThatComes) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ExpectApply(ledger.Submit(0, 0, 1), 0, {0});
  ASSERT_TRUE(ledger->Leave({0, 1}, false).ok()) << "its step failed";
  const auto entering = ledger.Enter(0, 1);
  EXPECT_FALSE(entering->answered()) << "worker 1 has not entered";
  EXPECT_TRUE(ledger.Enter(1, 1)->answered());
  EXPECT_TRUE(entering->answered()) << "nobody writes";
  ExpectApply(ledger.Submit(1, 0, 1), 0, {0});
  ASSERT_TRUE(ledger.Applied(1, 0).ok());
  ExpectApply(ledger.Submit(0, 1, 1), 1, {0});
}

TEST(Applier, ThatNobodyToldIsReplaced) {
  TestLedger ledger(2);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 2);
  const auto second = ledger.NewCall();
  second->gone = true;
  ledger->Submit({1, 1}, {0, 1, 2, 100}, second->ticket, TestLedger::AnswerTo(second));
  EXPECT_EQ(second->answers, 1);
  ExpectApply(first, 0, {0, 1});
}

TEST(Applier, ThatOffersAgainIsToldAgain) {
  TestLedger ledger(1);
  ledger.JoinAll();
  ExpectApply(ledger.Submit(0, 0, 1), 0, {0});
  ExpectApply(ledger.Submit(0, 0, 1), 0, {0});
  ASSERT_TRUE(ledger.Applied(0, 0).ok());
  ExpectCounts(ledger, {1}, {1});
}

TEST(Enter, WaitsWhileAStepIsApplied) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ASSERT_FALSE(ledger.Enter(0, 1)->answered());
  ASSERT_TRUE(ledger.Enter(1, 1)->answered());
  ExpectApply(ledger.Submit(0, 0, 1), 0, {0});
  ASSERT_TRUE(ledger.Join(1, 2).ok());
  const auto entering = ledger.Enter(1, 1, 100, 2);
  EXPECT_FALSE(entering->answered());
  ASSERT_TRUE(ledger.Applied(0, 0).ok());
  EXPECT_TRUE(entering->answered());
}

TEST(Submit, ADeadlineNamesThoseThatAreAwaited) {
  TestLedger ledger(3);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 3, 5);
  const auto second = ledger.Submit(1, 0, 3, 5);
  ledger.Pass(6);
  EXPECT_EQ(
      first->status.ToString(),
      "DEADLINE_EXCEEDED: worker 0 (host:0) waited 5 s in ledger 'test' for the gradients of step 0: 3 are "
      "required, 2 have arrived, none from worker 2 (host:2); see their logs, or raise the timeout");
  EXPECT_EQ(second->status.code(), Code::kDeadlineExceeded);
  ExpectCounts(ledger, {1, 1, 0}, {0, 0, 0});
}

TEST(Submit, ADeadlineWhileTheStepIsAppliedNamesTheApplier) {
  TestLedger ledger(2);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 2, 5);
  ExpectApply(ledger.Submit(1, 0, 2), 0, {0, 1});
  ledger.Pass(6);
  EXPECT_EQ(first->status.ToString(),
            "DEADLINE_EXCEEDED: worker 0 (host:0) waited 5 s in ledger 'test' for the end of step 0, which "
            "is applied "
            "by worker 1 (host:1); see their logs, or raise the timeout");
  ASSERT_TRUE(ledger.Applied(1, 0).ok());
  ExpectCounts(ledger, {0, 0}, {1, 1});
}

TEST(SetStep, OnlyWhileNothingIsPending) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ASSERT_TRUE(ledger->SetStep(40).ok());
  EXPECT_EQ(ledger->SetStep(-1).message(), "step must be at least 0; got -1");
  const auto submission = ledger.Submit(1, 40, 2);
  EXPECT_EQ(ledger->SetStep(7).ToString(),
            "FAILED_PRECONDITION: the step of ledger 'test' cannot be set to 7 while gradients for step 40 "
            "are pending, "
            "from worker 1 (host:1)");
  EXPECT_EQ(ledger.Push(0, 0).code(), Code::kFailedPrecondition) << "one ledger serves one strategy";
  ExpectApply(ledger.Submit(0, 40, 2), 40, {0, 1});
  ASSERT_TRUE(ledger.Applied(0, 40).ok());
  ExpectDecision(submission, kCounted, 41);
}

TEST(Hold, KeepsACompleteStepUntilTheRelease) {
  TestLedger ledger(3);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 2);
  EXPECT_TRUE(ledger->Hold());
  const auto second = ledger.Submit(1, 0, 2);
  const auto third = ledger.Submit(2, 0, 2, 5);
  ASSERT_TRUE(ledger->MarkLost({1, 1}));
  EXPECT_TRUE(ledger->Hold());
  EXPECT_FALSE(first->answered());
  ledger.Pass(6);
  EXPECT_EQ(
      third->status.ToString(),
      "DEADLINE_EXCEEDED: worker 2 (host:2) waited 5 s in ledger 'test' while the parameter servers held "
      "step 0; see their logs, or raise the timeout");
  const auto fourth = ledger.Submit(2, 0, 2);
  EXPECT_FALSE(first->answered() || fourth->answered());
  ledger->Release();
  ExpectApply(fourth, 0, {0, 2});
  ASSERT_TRUE(ledger.Applied(2, 0).ok());
  ExpectDecision(first, kCounted, 1);
  ExpectCounts(ledger, {0, 1, 1}, {1, 0, 1});
}

TEST(Hold, CountsNoMoreThanTheQuorum) {
  TestLedger ledger(4);
  ledger.JoinAll();
  EXPECT_TRUE(ledger->Hold());
  const auto first = ledger.Submit(3, 0, 2);
  const auto second = ledger.Submit(1, 0, 2);
  const auto third = ledger.Submit(0, 0, 2);
  const auto fourth = ledger.Submit(2, 0, 2);
  ASSERT_TRUE(ledger->MarkLost({3, 1}));
  ledger->Release();
  ExpectApply(third, 0, {0, 1});
  EXPECT_FALSE(second->answered() || fourth->answered());
  ASSERT_TRUE(ledger.Applied(0, 0).ok());
  ExpectDecision(second, kCounted, 1);
  ExpectDecision(fourth, kDropped, 1);
  ExpectCounts(ledger, {0, 0, 1, 1}, {1, 1, 0, 0});
}

TEST(Hold, WaitsForAStepThatIsApplied) {
  TestLedger ledger(2);
  ledger.JoinAll();
  const auto first = ledger.Submit(0, 0, 2);
  ExpectApply(ledger.Submit(1, 0, 2), 0, {0, 1});
  EXPECT_FALSE(ledger->Hold());
  ASSERT_TRUE(ledger.Applied(1, 0).ok());
  ExpectDecision(first, kCounted, 1);
  EXPECT_TRUE(ledger->Hold());
  const auto next = ledger.Submit(0, 1, 2);
  const auto last = ledger.Submit(1, 1, 2);
  EXPECT_FALSE(next->answered() || last->answered());
  EXPECT_TRUE(ledger->Hold());
  ledger->Release();
  ExpectApply(last, 1, {0, 1});
}

TEST(Hold, LetsAnotherWorkerApplyTheStepOfALostOne) {
  TestLedger ledger(3);
  ledger.JoinAll();
  ExpectApply(ledger.Submit(0, 0, 1), 0, {0});
  EXPECT_FALSE(ledger->Hold());
  ASSERT_TRUE(ledger->MarkLost({0, 1}));
  EXPECT_FALSE(ledger->Hold()) << "some weights may be written";
  const auto late = ledger.Submit(1, 0, 1);
  ExpectApply(late, 0, {0});
  const auto later = ledger.Submit(2, 0, 1);
  ASSERT_TRUE(ledger->MarkLost({1, 1}));
  ExpectApply(later, 0, {0});
  EXPECT_FALSE(ledger->Hold());
  ASSERT_TRUE(ledger.Applied(2, 0).ok());
  EXPECT_TRUE(ledger->Hold());
  EXPECT_FALSE(ledger.Submit(2, 1, 1)->answered());
}

TEST(RollBack, EndsWhatWaitsAndRepeatsTheSteps) {
  TestLedger ledger(3);
  ledger.JoinAll();
  ASSERT_TRUE(ledger->SetStep(7).ok());
  const auto waiting = ledger.Submit(0, 7, 2);
  const auto applier = ledger.Submit(1, 7, 2);
  ExpectApply(applier, 7, {0, 1});
  const auto late = ledger.Submit(2, 7, 2);
  ASSERT_FALSE(ledger->Hold());
  int64_t update = 0;
  EXPECT_EQ(ledger->RollBack(-1, &update).message(), "step must be at least 0; got -1");
  EXPECT_FALSE(waiting->answered());
  ASSERT_TRUE(ledger->RollBack(5, &update).ok());
  EXPECT_GT(update, applier->outcome.update);
  EXPECT_EQ(ledger->Step(), 5);
  EXPECT_EQ(ledger->Submitters(), Members());
  EXPECT_EQ(waiting->status.ToString(), "ABORTED: the parameter servers went back to step 5");
  EXPECT_EQ(late->status.code(), Code::kAborted);
  EXPECT_EQ(ledger.Applied(1, 7).code(), Code::kFailedPrecondition);
  EXPECT_EQ(ledger.Submit(1, 7, 2)->status.code(), Code::kFailedPrecondition);

  const auto again = ledger.Submit(0, 5, 2);
  const auto last = ledger.Submit(2, 5, 2);
  ExpectApply(last, 5, {0, 2});
  EXPECT_EQ(last->outcome.update, update);
  EXPECT_EQ(ledger.Applied(1, 7).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(ledger.Applied(2, 5).ok());
  ExpectDecision(again, kCounted, 6);
}

TEST(RollBack, DropsWhatIsGatheredAndEndsAHold) {
  TestLedger ledger(2);
  ledger.JoinAll();
  const auto applied = ledger.Submit(0, 0, 1);
  ExpectApply(applied, 0, {0});
  ASSERT_TRUE(ledger.Applied(0, 0).ok());
  ASSERT_TRUE(ledger->Hold());
  const auto waiting = ledger.Submit(0, 1, 1);
  int64_t update = 0;
  ASSERT_TRUE(ledger->RollBack(1, &update).ok());
  EXPECT_EQ(waiting->status.code(), Code::kAborted);
  EXPECT_GT(update, applied->outcome.update + 1) << "that of step 1 was perhaps given out";
  EXPECT_EQ(ledger.Applied(0, 0).code(), Code::kFailedPrecondition) << "its weights are there no more";
  ExpectCounts(ledger, {1, 0}, {1, 0});
  ExpectApply(ledger.Submit(1, 1, 1), 1, {1});
}

TEST(RollBack, KeepsTheWaitsOfThoseThatEnterOrPull) {
  TestLedger ledger(2);
  ledger.JoinAll();
  int64_t update = 0;
  const auto entering = ledger.Enter(0, 1);
  ASSERT_TRUE(ledger->RollBack(0, &update).ok());
  EXPECT_FALSE(entering->answered());
  EXPECT_TRUE(ledger.Enter(1, 1)->answered());
  EXPECT_TRUE(entering->answered() && entering->status.ok());
  ASSERT_TRUE(ledger.Push(0, 0).ok());
  const auto pulling = ledger.Pull(0, 0);
  ASSERT_FALSE(pulling->answered());
  ASSERT_TRUE(ledger->RollBack(0, &update).ok());
  EXPECT_FALSE(pulling->answered());
  ASSERT_TRUE(ledger.Push(1, 0).ok());
  EXPECT_TRUE(pulling->answered() && pulling->status.ok());
}

TEST(RollBack, LetsEnterThoseThatWaitedForTheApplier) {
  TestLedger ledger(2);
  ledger.JoinAll();
  ASSERT_FALSE(ledger.Enter(0, 1)->answered());
  ASSERT_TRUE(ledger.Enter(1, 1)->answered());
  ExpectApply(ledger.Submit(0, 0, 1), 0, {0});
  ASSERT_TRUE(ledger.Join(1, 2).ok());
  const auto entering = ledger.Enter(1, 1, 100, 2);
  ASSERT_FALSE(entering->answered());
  int64_t update = 0;
  ASSERT_TRUE(ledger->RollBack(0, &update).ok());
  EXPECT_TRUE(entering->answered() && entering->status.ok());
}

}  // namespace
}  // namespace tf_strategies::ledger

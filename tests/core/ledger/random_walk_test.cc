// Workers that join, enter, submit, apply, leave, restart, die and are cancelled in random orders, on servers that hold steps and go
// back to earlier ones: what must hold, holds always.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/core/ledger/ledger_fixture.h"

namespace tf_strategies::ledger {
namespace {

using testing::Call;
using testing::TestLedger;

// What a test knows of a worker's process.
struct Worker {
  int64_t incarnation = 0;  // 0: no process
  bool finished = false;
  int64_t generation = 0;
  int64_t step = 0;            // it works at
  std::shared_ptr<Call> call;  // it waits in
  bool submitted = false;      // that call submits
  bool applies = false;        // it was told to apply step_
};

class Walk {
 public:
  Walk(int size, int32_t quorum, uint32_t seed)
      : size_(size), quorum_(quorum), random_(seed), ledger_(size), workers_(size) {}

  void Run(int events) {
    for (int event = 0; event < events && !::testing::Test::HasFatalFailure(); ++event) {
      if (Chance(3)) {
        ActAsServer();
      } else {
        Act(static_cast<int>(random_() % size_));
      }
      TakeAnswers();
      Check();
    }
    Drain();
  }

 private:
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  void Act(int index) {
    Worker& worker = workers_[index];
    const uint32_t dice = random_() % 100;
    if (worker.incarnation == 0) {
      if (dice < 60) return Start(index);
      if (dice < 70) ledger_->MarkLost({index, 0});
    } else if (dice < 2) {
      EXPECT_EQ(ledger_->MarkLost({index, worker.incarnation}), !worker.finished);
      worker = Worker();
    } else if (dice < 4) {
      Start(index);
    } else if (dice < 6) {
      GiveUpCall(worker, Chance(50));
    } else if (worker.finished) {
      if (dice < 10) Start(index);
    } else if (dice < 9) {
      EXPECT_TRUE(ledger_->Leave({index, worker.incarnation}, dice == 6).ok());
      worker.finished = dice == 6;
      worker.applies = false;
    } else if (worker.call != nullptr) {
      if (dice < 12) ledger_.Pass(random_() % 30);
    } else if (worker.applies) {
      Apply(index);
    } else if (dice < 25) {
      Enter(index);
    } else {
      Submit(index, Chance(80) ? ledger_->Step() : worker.step);
    }
  }

  void ActAsServer() {
    if (Chance(20)) return RollBack();
    if (Chance(50)) return Release();
    held_ = true;
    ASSERT_EQ(ledger_->Hold(), members_.count(applied_) == 0);
  }

  void Release() {
    held_ = false;
    ledger_->Release();
  }

  void RollBack() {
    int64_t update = -1;
    const int64_t step = applied_ - std::min<int64_t>(applied_, random_() % 3);
    held_ = false;
    ASSERT_TRUE(ledger_->RollBack(step, &update).ok());
    ASSERT_GT(update, last_update_);
    for (Worker& worker : workers_) {
      if (worker.applies) {
        const int index = static_cast<int>(&worker - workers_.data());
        EXPECT_EQ(ledger_.Applied(index, worker.step, worker.incarnation).code(), Code::kFailedPrecondition);
      }
      ASSERT_TRUE(worker.call == nullptr || !worker.submitted ||
                  worker.call->status.code() == Code::kAborted);
      worker.applies = false;
      worker.step = std::min(worker.step, step);
    }
    members_.erase(members_.lower_bound(step), members_.end());
    applied_ = step;
    first_update_ = update - step;
  }

  void Start(int index) {
    workers_[index] = Worker();
    workers_[index].incarnation = ++last_incarnation_;
    ASSERT_TRUE(ledger_.Join(index, last_incarnation_).ok());
  }

  // The process stops to wait; the ledger hears of it, or finds out when it answers.
  void GiveUpCall(Worker& worker, bool told) {
    if (worker.call == nullptr) return;
    worker.call->gone = true;
    if (told) {
      ledger_->Cancel(worker.call->ticket);
      if (worker.submitted) --outstanding_;
    } else {
      forsaken_.push_back({worker.call, worker.submitted});
    }
    worker.call = nullptr;
  }

  void Enter(int index) {
    Worker& worker = workers_[index];
    const double timeout = 10 + random_() % 100;
    worker.generation += 1;
    worker.submitted = false;
    worker.call = ledger_.Enter(index, worker.generation, timeout, worker.incarnation);
  }

  void Submit(int index, int64_t step) {
    Worker& worker = workers_[index];
    ++submissions_;
    ++outstanding_;
    worker.submitted = true;
    worker.call = ledger_.Submit(index, step, quorum_, 10 + random_() % 100, worker.incarnation, index + 1);
  }

  void Apply(int index) {
    Worker& worker = workers_[index];
    const int64_t before = ledger_->Step();
    const Status applied = ledger_.Applied(index, worker.step, worker.incarnation);
    ASSERT_TRUE(applied.ok()) << applied.ToString();
    ASSERT_EQ(before, applied_);
    ++applied_;
    worker.step = applied_;
    worker.applies = false;
  }

  void TakeAnswers() {
    for (auto it = forsaken_.begin(); it != forsaken_.end();) {
      ASSERT_LE(it->first->answers, 1);
      if (!it->first->answered()) {
        ++it;
        continue;
      }
      if (it->second) --outstanding_;
      Remember(*it->first);
      it = forsaken_.erase(it);
    }
    for (int index = 0; index < size_; ++index) TakeAnswer(index);
    // A worker whose process was replaced or lost is forgotten above; its call was answered with an error.
    outstanding_ = 0;
    for (const Worker& worker : workers_) outstanding_ += worker.call != nullptr && worker.submitted;
    for (const auto& [call, submitted] : forsaken_) outstanding_ += submitted;
  }

  void TakeAnswer(int index) {
    Worker& worker = workers_[index];
    if (worker.call == nullptr || !worker.call->answered()) return;
    ASSERT_EQ(worker.call->answers, 1);
    const Call call = *worker.call;
    worker.call = nullptr;
    Remember(call);
    if (!call.status.ok()) {
      if (!worker.submitted) --worker.generation;
      return;
    }
    worker.step = call.outcome.step;
    worker.applies = worker.submitted && call.outcome.decision == kApply;
  }

  // What was told about a step is the same whoever is told.
  void Remember(const Call& call) {
    if (!call.status.ok() || call.outcome.decision != kApply) return;
    const auto& members = call.outcome.members;
    ASSERT_FALSE(members.empty());
    ASSERT_LE(static_cast<int32_t>(members.size()), quorum_);
    ASSERT_TRUE(std::is_sorted(members.begin(), members.end()));
    ASSERT_EQ(call.outcome.rows,
              std::accumulate(members.begin(), members.end(), static_cast<int64_t>(members.size())));
    const auto [known, is_new] = members_.emplace(call.outcome.step, members);
    ASSERT_EQ(known->second, members);
    ASSERT_FALSE(is_new && held_);
    if (is_new) told_ += static_cast<int64_t>(members.size());
    last_update_ = std::max(last_update_, call.outcome.update);
    if (first_update_ < 0) first_update_ = call.outcome.update - applied_;
    ASSERT_EQ(call.outcome.update, first_update_ + applied_);
  }

  void Check() {
    ASSERT_EQ(ledger_->Step(), applied_);
    const std::vector<Member> members = ledger_->Members();
    if (members.empty()) return;
    int appliers = 0;
    bool submission_waits = false;
    bool could_submit = false;
    for (int index = 0; index < size_; ++index) {
      const Worker& worker = workers_[index];
      const Member& member = members[index];
      appliers += worker.applies;
      ASSERT_TRUE(!worker.applies || worker.step == applied_) << worker.step;
      submission_waits |= worker.call != nullptr && worker.submitted;
      const bool expected = member.status == MemberStatus::kExpected;
      const bool free = member.status == MemberStatus::kTraining && worker.call == nullptr;
      could_submit |= expected || free;
      if (worker.call == nullptr || worker.submitted) continue;
      bool entered = true;
      for (const Member& other : members) {
        const bool present = other.status != MemberStatus::kFinished && other.status != MemberStatus::kLost;
        entered &= !present || other.generation >= worker.generation;
      }
      ASSERT_TRUE(!entered || ApplierExists()) << "worker " << index << " waits to enter, for nobody";
    }
    ASSERT_LE(appliers, 1);
    const bool gathers_held = held_ && members_.count(applied_) == 0;
    ASSERT_TRUE(!submission_waits || appliers == 1 || could_submit || gathers_held)
        << "a submission waits for nobody";
    std::vector<int64_t> dropped, counted;
    ledger_->Counts(&dropped, &counted);
    const auto sum = [](const std::vector<int64_t>& values) {
      return std::accumulate(values.begin(), values.end(), int64_t{0});
    };
    const int64_t settled = sum(dropped) + sum(counted);
    ASSERT_LE(settled, submissions_);
    ASSERT_LE(submissions_, settled + outstanding_);
    ASSERT_EQ(sum(counted), told_);
  }

  bool ApplierExists() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.applies; });
  }

  // From here on nothing fails: every wait ends, and steps go on.
  void Drain() {
    if (::testing::Test::HasFatalFailure()) return;
    for (int index = 0; index < size_; ++index) {
      Worker& worker = workers_[index];
      if (worker.finished || worker.incarnation == 0) Start(index);
    }
    Release();
    TakeAnswers();
    const int64_t before = applied_;
    for (int round = 0; round < 10 * size_; ++round) {
      for (int index = 0; index < size_; ++index) {
        Worker& worker = workers_[index];
        if (worker.applies) Apply(index);
        TakeAnswers();
        if (worker.call == nullptr && !worker.applies) Submit(index, ledger_->Step());
        TakeAnswers();
        Check();
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    ASSERT_GE(applied_, before + 5);
    for (int index = 0; index < size_; ++index) {
      ASSERT_TRUE(ledger_->Leave({index, workers_[index].incarnation}, true).ok());
      workers_[index].applies = false;
      TakeAnswers();
    }
    for (const Worker& worker : workers_) ASSERT_EQ(worker.call, nullptr);
    ASSERT_EQ(outstanding_, 0);
    Check();
  }

  const int size_;
  const int32_t quorum_;
  std::mt19937 random_;
  TestLedger ledger_;
  std::vector<Worker> workers_;
  std::vector<std::pair<std::shared_ptr<Call>, bool>> forsaken_;  // whether it submits
  std::map<int64_t, std::vector<int>> members_;                   // by step
  int64_t last_incarnation_ = 0;
  int64_t submissions_ = 0;
  int64_t outstanding_ = 0;  // submissions without an answer
  int64_t applied_ = 0;
  bool held_ = false;
  int64_t told_ = 0;           // the submissions of members_, and of those before a roll back
  int64_t last_update_ = -1;   // the greatest that was told
  int64_t first_update_ = -1;  // the number of update 0; -1 until one is told
};

TEST(RandomWalk, KeepsEveryInvariant) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    const int size = 1 + static_cast<int>(seed % 5);
    const int32_t quorum = 1 + static_cast<int32_t>(seed / 5 % (size + 1));
    SCOPED_TRACE("seed " + std::to_string(seed));
    Walk(size, quorum, seed).Run(150);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tf_strategies::ledger

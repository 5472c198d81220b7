// The steps of training: decides which workers may read weights, and which gradients count.
#include "ops/ledger/ledger.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/ledger/checks.h"

namespace tf_strategies::ledger {

// --- asynchronous training ---------------------------------------------------------------------------------------------------

void Ledger::Pull(const Caller& caller, int64_t max_staleness, double timeout, int64_t ticket,
                  Answer answer) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Status begun = BeginPull(caller, max_staleness, timeout, ticket, &answer);
    if (!begun.ok()) Reply(std::move(answer), begun, {}, &answers);
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
}

Status Ledger::BeginPull(const Caller& caller, int64_t max_staleness, double timeout, int64_t ticket,
                         Answer* answer) {
  TFS_RETURN_IF_ERROR(roster_.CheckActive(caller));
  TFS_RETURN_IF_ERROR(CheckAtLeast("max_staleness", max_staleness, -1));
  TFS_RETURN_IF_ERROR(CheckTimeout(timeout));
  if (roster_[caller.worker].status != MemberStatus::kTraining) {
    roster_.Train(caller.worker);
  }
  Wait wait;
  wait.kind = Kind::kPull;
  wait.worker = caller.worker;
  wait.timeout = timeout;
  wait.ahead = max_staleness < 0 ? std::numeric_limits<int64_t>::max() : max_staleness;
  wait.grace_end = began_ + std::min(kGraceSeconds, timeout / 2);
  wait.answer = std::move(*answer);
  Add(ticket, std::move(wait));
  return Status::Ok();
}

bool Ledger::MayPull(const Wait& wait, double now) const {
  const int64_t mine = roster_[wait.worker].clock;
  for (int worker = 0; worker < roster_.size(); ++worker) {
    const Member& other = roster_[worker];
    const bool expected = other.status == MemberStatus::kExpected && now < wait.grace_end;
    const int64_t clock = expected ? 0 : other.clock;
    if ((expected || other.status == MemberStatus::kTraining) && mine - clock > wait.ahead) return false;
  }
  return true;
}

Status Ledger::Push(const Caller& caller, int64_t pulled, int64_t* staleness) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_RETURN_IF_ERROR(roster_.CheckActive(caller));
    if (pulled < 0 || pulled > highest_step_) {
      return InvalidArgument(roster_.NameOf(caller.worker) +
                             " pushes gradients of weights that it pulled at step " + std::to_string(pulled) +
                             "; the steps so far are 0 to " + std::to_string(highest_step_));
    }
    if (quorum_.has_submissions()) {
      return FailedPrecondition(
          roster_.NameOf(caller.worker) +
          " pushes gradients while other workers submit them: all workers must use the same strategy");
    }
    *staleness = std::max<int64_t>(quorum_.step() - pulled,
                                   0);  // the step is lower after an older checkpoint was restored
    staleness_.Add(*staleness);
    quorum_.Advance();
    highest_step_ = std::max(highest_step_, quorum_.step());
    ++roster_[caller.worker].clock;
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
  return Status::Ok();
}

StalenessCounts Ledger::Staleness() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return staleness_;
}

// --- synchronous training ----------------------------------------------------------------------------------------------------

void Ledger::Submit(const Caller& caller, const SubmitRequest& request, int64_t ticket, Answer answer) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Status begun = BeginSubmit(caller, request, ticket, &answer, &answers);
    if (!begun.ok()) Reply(std::move(answer), begun, {}, &answers);
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
}

Status Ledger::BeginSubmit(const Caller& caller, const SubmitRequest& request, int64_t ticket, Answer* answer,
                           Answers* answers) {
  TFS_RETURN_IF_ERROR(roster_.CheckActive(caller));
  TFS_RETURN_IF_ERROR(CheckTimeout(request.timeout));
  TFS_RETURN_IF_ERROR(CheckAtLeast("step", request.step, 0));
  TFS_RETURN_IF_ERROR(CheckAtLeast("quorum", request.quorum, 1));
  Member& member = roster_[caller.worker];
  if (request.rows < 0 || request.rows > kMostRows) {
    return InvalidArgument("rows must be between 0 and " + std::to_string(kMostRows) + "; got " +
                           std::to_string(request.rows));
  }
  if (request.step > quorum_.step()) {
    return FailedPrecondition(member.name + " submits a gradient for step " + std::to_string(request.step) +
                              " of ledger '" + roster_.ledger() + "', which is at step " +
                              std::to_string(quorum_.step()) +
                              ": was the parameter server restarted, or an older checkpoint restored?");
  }
  if (quorum_size_ == 0) {
    quorum_size_ = request.quorum;
    quorum_by_ = caller.worker;
  } else if (quorum_size_ != request.quorum) {
    return Mismatch(member.name + " asks for a quorum of " + std::to_string(request.quorum) + ", " +
                    roster_.NameOf(quorum_by_) + " asked for " + std::to_string(quorum_size_));
  }
  ReleaseWorker(caller.worker, Aborted(member.name + " submitted again meanwhile"), answers);
  if (member.status != MemberStatus::kTraining) {
    roster_.Train(caller.worker);
  }
  Wait wait;
  wait.kind = Kind::kSubmit;
  wait.worker = caller.worker;
  wait.timeout = request.timeout;
  wait.counts = request.step == quorum_.step() && !quorum_.applying();
  wait.answer = std::move(*answer);
  if (wait.counts) {
    quorum_.Submit(caller.worker, request.rows);
  } else {
    ++member.dropped;
    if (!quorum_.applying()) {
      Outcome late;
      late.step = quorum_.step();
      Reply(std::move(wait.answer), Status::Ok(), late, answers);
      return Status::Ok();
    }
  }
  Add(ticket, std::move(wait));
  return Status::Ok();
}

Status Ledger::Applied(const Caller& caller, int64_t step, int64_t* next) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_RETURN_IF_ERROR(roster_.CheckActive(caller));
    if (step == quorum_.step() - 1 && last_applier_ == caller.worker) {
      *next = quorum_.step();
      return Status::Ok();
    }
    if (!quorum_.applying() || quorum_.applier() != caller.worker || step != quorum_.step()) {
      const std::string now = quorum_.applying() ? "being applied by " + roster_.NameOf(quorum_.applier())
                                                 : "gathering submissions";
      return FailedPrecondition(roster_.NameOf(caller.worker) + " says that it has applied step " +
                                std::to_string(step) + "; ledger '" + roster_.ledger() + "' is at step " +
                                std::to_string(quorum_.step()) + ", " + now);
    }
    quorum_.Applied();
    ++update_;
    last_applier_ = caller.worker;
    highest_step_ = std::max(highest_step_, quorum_.step());
    *next = quorum_.step();
    for (auto wait = waits_.begin(); wait != waits_.end();) {
      const auto here = wait++;
      if (here->second.kind != Kind::kSubmit) continue;
      Outcome outcome;
      outcome.decision = here->second.counts ? kCounted : kDropped;
      outcome.step = quorum_.step();
      Reply(std::move(here->second.answer), Status::Ok(), outcome, &answers);
      waits_.erase(here);
    }
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
  return Status::Ok();
}

void Ledger::Counts(std::vector<int64_t>* dropped, std::vector<int64_t>* counted) const {
  std::lock_guard<std::mutex> lock(mutex_);
  dropped->clear();
  counted->clear();
  for (int worker = 0; worker < roster_.size(); ++worker) {
    dropped->push_back(roster_[worker].dropped);
    counted->push_back(roster_[worker].counted);
  }
}

std::vector<int> Ledger::Submitters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return quorum_.Members();
}

int64_t Ledger::Step() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return quorum_.step();
}

Status Ledger::SetStep(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  TFS_RETURN_IF_ERROR(CheckAtLeast("step", step, 0));
  if (quorum_.applying() && quorum_.applier() < 0) {
    quorum_.Abandon();
    ++update_;
  }
  if (quorum_.has_submissions()) {
    return FailedPrecondition("the step of ledger '" + roster_.ledger() + "' cannot be set to " +
                              std::to_string(step) + " while gradients for step " +
                              std::to_string(quorum_.step()) + " are pending, from " +
                              roster_.NamesOf(quorum_.Members()));
  }
  quorum_.SetStep(step);
  last_applier_ = -1;
  highest_step_ = std::max(highest_step_, step);
  return Status::Ok();
}

Status Ledger::RollBack(int64_t step, int64_t* update) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_RETURN_IF_ERROR(CheckAtLeast("step", step, 0));
    const Status why = Aborted("the parameter servers went back to step " + std::to_string(step));
    for (auto wait = waits_.begin(); wait != waits_.end();) {
      const auto here = wait++;
      if (here->second.kind == Kind::kSubmit) Reply(RemoveWait(here), why, {}, &answers);
    }
    if (quorum_.applying()) {
      quorum_.SetApplier(-1);
      quorum_.Abandon();
    }
    quorum_.SetStep(step);
    *update = ++update_;
    last_applier_ = -1;
    highest_step_ = std::max(highest_step_, step);
    held_ = false;
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
  return Status::Ok();
}

bool Ledger::Hold() {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
  return !quorum_.applying();
}

void Ledger::Release() {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = false;
    DropSurplus();
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
}

}  // namespace tf_strategies::ledger

#include "ops/ledger/ledger.h"

#include <random>
#include <utility>

#include "ops/ledger/checks.h"
#include "ops/ledger/exactly_once.h"

namespace tf_strategies::ledger {

Ledger::Ledger(std::string name, Clock clock, std::function<void(double)> on_deadline)
    : clock_(std::move(clock)),
      on_deadline_(std::move(on_deadline)),
      roster_(std::move(name)),
      update_(UpdateNumber::First(std::random_device()())) {}

// --- members -----------------------------------------------------------------------------------------------------------------

Status Ledger::Join(const Caller& caller, const std::vector<std::string>& names, const std::string& options,
                    int64_t* step) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_RETURN_IF_ERROR(roster_.CheckJoin(caller, names, options));
    if (!roster_.begun()) began_ = clock_();
    const bool replaces = roster_.begun() && roster_[caller.worker].incarnation != caller.incarnation;
    if (replaces) {
      ReleaseWorker(
          caller.worker,
          Aborted(roster_.NameOf(caller.worker) + " was replaced: a newer process has joined as this worker"),
          &answers);
    }
    roster_.Join(caller, names, options);
    *step = quorum_.step();
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
  return Status::Ok();
}

Status Ledger::Agree(const Caller& caller, const std::string& key, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  TFS_RETURN_IF_ERROR(roster_.CheckCaller(caller));
  return agreements_.Check(roster_.NameOf(caller.worker), key, text);
}

Status Ledger::Leave(const Caller& caller, bool finished) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_RETURN_IF_ERROR(roster_.CheckCaller(caller));
    Member& member = roster_[caller.worker];
    if (member.status != MemberStatus::kFinished) {
      ReleaseWorker(caller.worker, Aborted(member.name + " has left"), &answers);
      member.status = finished ? MemberStatus::kFinished : MemberStatus::kIdle;
      AnswerReady(&answers);
    }
  }
  Deliver(std::move(answers));
  return Status::Ok();
}

void Ledger::Enter(const Caller& caller, int64_t generation, double timeout, int64_t ticket, Answer answer) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Status begun = BeginEnter(caller, generation, timeout, ticket, &answer, &answers);
    if (!begun.ok()) Reply(std::move(answer), begun, {}, &answers);
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
}

Status Ledger::BeginEnter(const Caller& caller, int64_t generation, double timeout, int64_t ticket,
                          Answer* answer, Answers* answers) {
  TFS_RETURN_IF_ERROR(roster_.CheckActive(caller));
  TFS_RETURN_IF_ERROR(CheckTimeout(timeout));
  Member& member = roster_[caller.worker];
  TFS_RETURN_IF_ERROR(CheckAtLeast("generation", generation, std::max<int64_t>(member.generation, 1)));
  ReleaseWorker(caller.worker, Aborted(member.name + " enters a fit"), answers);
  Wait wait;
  wait.previous = member.generation;
  member.generation = generation;
  if (timeout == 0) {
    roster_.Train(caller.worker);
    Outcome outcome;
    outcome.step = quorum_.step();
    Reply(std::move(*answer), Status::Ok(), outcome, answers);
    return Status::Ok();
  }
  member.entering = true;
  wait.kind = Kind::kEnter;
  wait.worker = caller.worker;
  wait.timeout = timeout;
  wait.generation = generation;
  wait.answer = std::move(*answer);
  Add(ticket, std::move(wait));
  return Status::Ok();
}

// --- for the server itself ---------------------------------------------------------------------------------------------------

bool Ledger::MarkLost(const Caller& caller) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (caller.worker < 0 || caller.worker >= roster_.size() || !roster_.IsPresent(caller.worker))
      return false;
    Member& member = roster_[caller.worker];
    if (member.incarnation != caller.incarnation) return false;
    ReleaseWorker(caller.worker, Aborted(member.name + " was declared lost"), &answers);
    member.status = MemberStatus::kLost;
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
  return true;
}

std::vector<Member> Ledger::Members() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Member> members;
  for (int worker = 0; worker < roster_.size(); ++worker) members.push_back(roster_[worker]);
  return members;
}

std::string Ledger::NameOf(int worker) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return roster_.NameOf(worker);
}

}  // namespace tf_strategies::ledger

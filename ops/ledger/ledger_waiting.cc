// The calls that wait: decides when they end.
#include "ops/ledger/ledger.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/ledger/checks.h"

namespace tf_strategies::ledger {

int64_t Ledger::NewTicket() {
  std::lock_guard<std::mutex> lock(mutex_);
  return ++last_ticket_;
}

void Ledger::Cancel(int64_t ticket) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = waits_.find(ticket);
    if (found == waits_.end()) return;
    RemoveWait(found);
    AnswerReady(&answers);
  }
  Deliver(std::move(answers));
}

double Ledger::Expire() {
  Answers answers;
  double next = std::numeric_limits<double>::infinity();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const double now = clock_();
    AnswerReady(&answers);
    // All texts are made before the first wait is removed, because removing it changes the texts of other waits.
    std::map<int64_t, std::string> overdue;
    for (const auto& [ticket, wait] : waits_) {
      if (wait.deadline <= now) overdue[ticket] = OverdueText(wait);
    }
    for (const auto& [ticket, text] : overdue) {
      Reply(RemoveWait(waits_.find(ticket)), DeadlineExceeded(text), {}, &answers);
    }
    AnswerReady(&answers);
    for (const auto& [ticket, wait] : waits_) {
      next = std::min(next, wait.deadline);
      if (wait.kind == Kind::kPull && wait.grace_end > now) next = std::min(next, wait.grace_end);
    }
  }
  Deliver(std::move(answers));
  return next;
}

void Ledger::Add(int64_t ticket, Wait wait) {
  const double now = clock_();
  wait.deadline = now + wait.timeout;
  double soonest = wait.deadline;
  if (wait.kind == Kind::kPull && wait.grace_end > now) soonest = std::min(soonest, wait.grace_end);
  waits_.emplace(ticket, std::move(wait));
  on_deadline_(soonest);
}

void Ledger::Reply(Answer answer, Status status, Outcome outcome, Answers* answers) const {
  answers->push_back({std::move(answer), std::move(status), std::move(outcome), applier_number_});
}

Ledger::Answer Ledger::RemoveWait(Waits::iterator wait) {
  Member& member = roster_[wait->second.worker];
  if (wait->second.kind == Kind::kEnter) {
    member.entering = false;
    member.generation = wait->second.previous;
    member.status = MemberStatus::kIdle;
  } else if (wait->second.kind == Kind::kSubmit && quorum_.Remove(wait->second.worker)) {
    ++member.dropped;
  }
  Answer answer = std::move(wait->second.answer);
  waits_.erase(wait);
  return answer;
}

void Ledger::EndCallsOf(int worker, const Status& why, Answers* answers) {
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const auto here = wait++;
    if (here->second.worker == worker) Reply(RemoveWait(here), why, {}, answers);
  }
}

void Ledger::ReleaseWorker(int worker, const Status& why, Answers* answers) {
  EndCallsOf(worker, why, answers);
  if (quorum_.applying() && quorum_.applier() == worker) quorum_.SetApplier(-1);
}

void Ledger::AnswerReady(Answers* answers) {
  AnswerSubmissions(answers);
  const double now = clock_();
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const auto here = wait++;
    const Wait& found = here->second;
    if (found.kind == Kind::kSubmit) continue;
    if (found.kind == Kind::kEnter ? !MayEnter(found) : !MayPull(found, now)) continue;
    if (found.kind == Kind::kEnter) {
      roster_[found.worker].entering = false;
      roster_.Train(found.worker);
    }
    Outcome outcome;
    outcome.step = quorum_.step();
    Reply(std::move(here->second.answer), Status::Ok(), outcome, answers);
    waits_.erase(here);
  }
}

void Ledger::AnswerSubmissions(Answers* answers) {
  if (!held_ && quorum_.Complete(Required())) {
    for (int member : quorum_.Members()) ++roster_[member].counted;
    const int first = quorum_.applier();
    quorum_.SetApplier(-1);
    for (auto wait = waits_.begin(); wait != waits_.end(); ++wait) {
      if (wait->second.kind == Kind::kSubmit && wait->second.worker == first)
        return AnswerApply(wait, answers);
    }
  }
  if (quorum_.applying() && quorum_.applier() < 0) ChooseApplier(answers);
}

void Ledger::DropSurplus() {
  if (quorum_.applying()) return;
  int64_t surplus = quorum_.size() - std::max<int64_t>(Required(), 1);
  for (auto wait = waits_.rbegin(); wait != waits_.rend() && surplus > 0; ++wait) {
    if (wait->second.kind != Kind::kSubmit || !quorum_.Remove(wait->second.worker)) continue;
    wait->second.counts = false;
    ++roster_[wait->second.worker].dropped;
    --surplus;
  }
}

bool Ledger::ChooseApplier(Answers* answers) {
  auto chosen = waits_.end();
  for (auto wait = waits_.begin(); wait != waits_.end(); ++wait) {
    if (wait->second.kind != Kind::kSubmit) continue;
    if (chosen == waits_.end() || (wait->second.counts && !chosen->second.counts)) chosen = wait;
  }
  if (chosen == waits_.end()) return false;
  AnswerApply(chosen, answers);
  return true;
}

void Ledger::AnswerApply(Waits::iterator wait, Answers* answers) {
  quorum_.SetApplier(wait->second.worker);
  ++applier_number_;
  Outcome outcome;
  outcome.decision = kApply;
  outcome.step = quorum_.step();
  outcome.update = update_;
  outcome.members = quorum_.Members();
  outcome.rows = quorum_.Rows();
  Reply(std::move(wait->second.answer), Status::Ok(), std::move(outcome), answers);
  waits_.erase(wait);
}

bool Ledger::MayEnter(const Wait& wait) const {
  const bool being_applied = quorum_.applying() && quorum_.applier() >= 0;
  return !being_applied && NotEntered(wait.generation).empty();
}

std::vector<int> Ledger::NotEntered(int64_t generation) const {
  std::vector<int> workers;
  for (int worker = 0; worker < roster_.size(); ++worker) {
    if (roster_.IsPresent(worker) && roster_[worker].generation < generation) workers.push_back(worker);
  }
  return workers;
}

int64_t Ledger::Required() const { return std::min<int64_t>(quorum_size_, roster_.Available()); }

std::string Ledger::OverdueText(const Wait& wait) const {
  std::string text = roster_.NameOf(wait.worker) + " waited " + SecondsText(wait.timeout) + " s in ledger '" +
                     roster_.ledger() + "' ";
  std::vector<int> awaited;
  if (wait.kind == Kind::kPull) {
    const int64_t mine = roster_[wait.worker].clock;
    text += "at its update " + std::to_string(mine) + " for slower workers, which may be at most " +
            std::to_string(wait.ahead) + " updates behind: ";
    for (int worker = 0; worker < roster_.size(); ++worker) {
      const Member& other = roster_[worker];
      if (other.status == MemberStatus::kTraining && mine - other.clock > wait.ahead)
        awaited.push_back(worker);
    }
  } else if (wait.kind == Kind::kEnter && !NotEntered(wait.generation).empty()) {
    text += "to begin its fit " + std::to_string(wait.generation) + " together with ";
    awaited = NotEntered(wait.generation);
  } else if (quorum_.applying()) {
    text += "for the end of step " + std::to_string(quorum_.step()) + ", which is applied by ";
    if (quorum_.applier() >= 0) awaited.push_back(quorum_.applier());
  } else if (held_) {
    return text + "while the parameter servers held step " + std::to_string(quorum_.step()) +
           "; see their logs, or raise the timeout";
  } else {
    text += "for the gradients of step " + std::to_string(quorum_.step()) + ": " +
            std::to_string(Required()) + " are required, " + std::to_string(quorum_.Members().size()) +
            " have arrived, none from ";
    for (int worker = 0; worker < roster_.size(); ++worker) {
      if (roster_.IsAvailable(worker) && !quorum_.HasSubmitted(worker)) awaited.push_back(worker);
    }
  }
  return text + roster_.NamesOf(awaited) + "; see their logs, or raise the timeout";
}

void Ledger::Deliver(Answers answers) {
  while (!answers.empty()) {
    Answers more;
    for (const Answered& each : answers) {
      const bool taken = each.answer(each.status, each.outcome);
      if (taken || each.outcome.decision != kApply) continue;
      std::lock_guard<std::mutex> lock(mutex_);
      if (!quorum_.applying() || applier_number_ != each.applier_number) continue;
      quorum_.SetApplier(-1);
      AnswerReady(&more);
    }
    answers = std::move(more);
  }
}

}  // namespace tf_strategies::ledger

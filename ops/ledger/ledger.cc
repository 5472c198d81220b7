#include "ops/ledger/ledger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

namespace tf_strategies::ledger {
namespace {

constexpr double kLongestTimeout = 1e7;  // seconds

std::string Text(double seconds) {
  std::ostringstream text;
  text << seconds;
  return text.str();
}

Status CheckAtLeast(const char* what, int64_t value, int64_t least) {
  if (value >= least) return Status::Ok();
  return InvalidArgument(std::string(what) + " must be at least " + std::to_string(least) + "; got " +
                         std::to_string(value));
}

Status CheckTimeout(double timeout) {
  if (timeout >= 0 && timeout <= kLongestTimeout) return Status::Ok();
  return InvalidArgument("timeout must be between 0 and " + Text(kLongestTimeout) + " seconds; got " +
                         Text(timeout));
}

}  // namespace

Ledger::Ledger(std::string name, Clock clock, std::function<void(double)> on_deadline)
    : clock_(std::move(clock)), on_deadline_(std::move(on_deadline)), roster_(std::move(name)) {}

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
      StepBack(
          caller.worker,
          Aborted(roster_.NameOf(caller.worker) + " was replaced: a newer process has joined as this worker"),
          &answers);
    }
    if (roster_.Join(caller, names, options)) Changed();
    *step = quorum_.step();
    Settle(&answers);
  }
  Deliver(std::move(answers));
  return Status::Ok();
}

Status Ledger::Agree(const Caller& caller, const std::string& key, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  TFS_RETURN_IF_ERROR(roster_.CheckCaller(caller));
  return agreements_.Bring(roster_.NameOf(caller.worker), key, text);
}

Status Ledger::Leave(const Caller& caller, bool finished) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_RETURN_IF_ERROR(roster_.CheckCaller(caller));
    Member& member = roster_[caller.worker];
    if (member.status != MemberStatus::kFinished) {
      StepBack(caller.worker, Aborted(member.name + " has left"), &answers);
      member.status = finished ? MemberStatus::kFinished : MemberStatus::kIdle;
      Changed();
      Settle(&answers);
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
    Settle(&answers);
  }
  Deliver(std::move(answers));
}

Status Ledger::BeginEnter(const Caller& caller, int64_t generation, double timeout, int64_t ticket,
                          Answer* answer, Answers* answers) {
  TFS_RETURN_IF_ERROR(roster_.CheckActive(caller));
  TFS_RETURN_IF_ERROR(CheckTimeout(timeout));
  Member& member = roster_[caller.worker];
  TFS_RETURN_IF_ERROR(CheckAtLeast("generation", generation, std::max<int64_t>(member.generation, 1)));
  StepBack(caller.worker, Aborted(member.name + " enters a fit"), answers);
  Wait wait;
  wait.former = member.generation;
  member.generation = generation;
  Changed();
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

// --- asynchronous training ---------------------------------------------------------------------------------------------------

void Ledger::Pull(const Caller& caller, int64_t max_staleness, double timeout, int64_t ticket,
                  Answer answer) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Status begun = BeginPull(caller, max_staleness, timeout, ticket, &answer);
    if (!begun.ok()) Reply(std::move(answer), begun, {}, &answers);
    Settle(&answers);
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
    Changed();
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
      return InvalidArgument(roster_.NameOf(caller.worker) + " pushes what it pulled at step " +
                             std::to_string(pulled) + "; the steps so far are 0 to " +
                             std::to_string(highest_step_));
    }
    if (quorum_.has_offers()) {
      return FailedPrecondition(roster_.NameOf(caller.worker) +
                                " pushes while others offer: one ledger serves one strategy");
    }
    *staleness = std::max<int64_t>(quorum_.step() - pulled, 0);  // a restored step may be lower
    staleness_.Add(*staleness);
    quorum_.Advance();
    highest_step_ = std::max(highest_step_, quorum_.step());
    ++roster_[caller.worker].clock;
    Settle(&answers);
  }
  Deliver(std::move(answers));
  return Status::Ok();
}

StalenessCounts Ledger::Staleness() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return staleness_;
}

// --- synchronous training ----------------------------------------------------------------------------------------------------

void Ledger::Offer(const Caller& caller, const OfferRequest& request, int64_t ticket, Answer answer) {
  Answers answers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Status begun = BeginOffer(caller, request, ticket, &answer, &answers);
    if (!begun.ok()) Reply(std::move(answer), begun, {}, &answers);
    Settle(&answers);
  }
  Deliver(std::move(answers));
}

Status Ledger::BeginOffer(const Caller& caller, const OfferRequest& request, int64_t ticket, Answer* answer,
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
    return FailedPrecondition(member.name + " offers a gradient for step " + std::to_string(request.step) +
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
  StepBack(caller.worker, Aborted(member.name + " made another offer meanwhile"), answers);
  if (member.status != MemberStatus::kTraining) {
    roster_.Train(caller.worker);
    Changed();
  }
  Wait wait;
  wait.kind = Kind::kOffer;
  wait.worker = caller.worker;
  wait.timeout = request.timeout;
  wait.counts = request.step == quorum_.step() && !quorum_.applying();
  wait.answer = std::move(*answer);
  if (wait.counts) {
    quorum_.Offer(caller.worker, request.rows);
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
      const std::string now =
          quorum_.applying() ? "being applied by " + roster_.NameOf(quorum_.applier()) : "gathering offers";
      return FailedPrecondition(roster_.NameOf(caller.worker) + " says that it has applied step " +
                                std::to_string(step) + "; ledger '" + roster_.ledger() + "' is at step " +
                                std::to_string(quorum_.step()) + ", " + now);
    }
    quorum_.Applied();
    last_applier_ = caller.worker;
    highest_step_ = std::max(highest_step_, quorum_.step());
    *next = quorum_.step();
    for (auto wait = waits_.begin(); wait != waits_.end();) {
      const auto here = wait++;
      if (here->second.kind != Kind::kOffer) continue;
      Outcome outcome;
      outcome.decision = here->second.counts ? kCounted : kDropped;
      outcome.step = quorum_.step();
      Reply(std::move(here->second.answer), Status::Ok(), outcome, &answers);
      waits_.erase(here);
    }
    Settle(&answers);
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

int64_t Ledger::Step() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return quorum_.step();
}

Status Ledger::SetStep(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  TFS_RETURN_IF_ERROR(CheckAtLeast("step", step, 0));
  if (quorum_.has_offers()) {
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

// --- waiting -----------------------------------------------------------------------------------------------------------------

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
    Retire(found);
    Settle(&answers);
  }
  Deliver(std::move(answers));
}

double Ledger::Expire() {
  Answers answers;
  double next = std::numeric_limits<double>::infinity();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const double now = clock_();
    Settle(&answers);
    std::map<int64_t, std::string>
        overdue;  // told before the first is retired, which changes what the others wait for
    for (const auto& [ticket, wait] : waits_) {
      if (wait.deadline <= now) overdue[ticket] = Overdue(wait);
    }
    for (const auto& [ticket, text] : overdue) {
      Reply(Retire(waits_.find(ticket)), DeadlineExceeded(text), {}, &answers);
    }
    Settle(&answers);
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
  answers->push_back({std::move(answer), std::move(status), std::move(outcome), appointment_});
}

Ledger::Answer Ledger::Retire(Waits::iterator wait) {
  Member& member = roster_[wait->second.worker];
  if (wait->second.kind == Kind::kEnter) {
    member.entering = false;
    member.generation = wait->second.former;
    member.status = MemberStatus::kIdle;
    Changed();
  } else if (wait->second.kind == Kind::kOffer && quorum_.Withdraw(wait->second.worker)) {
    ++member.dropped;
  }
  Answer answer = std::move(wait->second.answer);
  waits_.erase(wait);
  return answer;
}

void Ledger::EndCallsOf(int worker, const Status& why, Answers* answers) {
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const auto here = wait++;
    if (here->second.worker == worker) Reply(Retire(here), why, {}, answers);
  }
}

void Ledger::StepBack(int worker, const Status& why, Answers* answers) {
  EndCallsOf(worker, why, answers);
  if (quorum_.applying() && quorum_.applier() == worker) quorum_.Appoint(-1);
}

void Ledger::Settle(Answers* answers) {
  SettleQuorum(answers);
  const double now = clock_();
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const auto here = wait++;
    const Wait& found = here->second;
    if (found.kind == Kind::kOffer) continue;
    if (found.kind == Kind::kEnter ? !MayEnter(found) : !MayPull(found, now)) continue;
    if (found.kind == Kind::kEnter) {
      roster_[found.worker].entering = false;
      roster_.Train(found.worker);
      Changed();
    }
    Outcome outcome;
    outcome.step = quorum_.step();
    Reply(std::move(here->second.answer), Status::Ok(), outcome, answers);
    waits_.erase(here);
  }
}

void Ledger::SettleQuorum(Answers* answers) {
  if (quorum_.Complete(Required())) {
    for (int member : quorum_.Members()) ++roster_[member].counted;
    const int first = quorum_.applier();
    quorum_.Appoint(-1);
    for (auto wait = waits_.begin(); wait != waits_.end(); ++wait) {
      if (wait->second.kind == Kind::kOffer && wait->second.worker == first)
        return AnswerApply(wait, answers);
    }
  }
  if (quorum_.applying() && quorum_.applier() < 0) AppointAnother(answers);
}

bool Ledger::AppointAnother(Answers* answers) {
  auto chosen = waits_.end();
  for (auto wait = waits_.begin(); wait != waits_.end(); ++wait) {
    if (wait->second.kind != Kind::kOffer) continue;
    if (chosen == waits_.end() || (wait->second.counts && !chosen->second.counts)) chosen = wait;
  }
  if (chosen == waits_.end()) return false;
  AnswerApply(chosen, answers);
  return true;
}

void Ledger::AnswerApply(Waits::iterator wait, Answers* answers) {
  quorum_.Appoint(wait->second.worker);
  ++appointment_;
  Outcome outcome;
  outcome.decision = kApply;
  outcome.step = quorum_.step();
  outcome.members = quorum_.Members();
  outcome.rows = quorum_.Rows();
  Reply(std::move(wait->second.answer), Status::Ok(), std::move(outcome), answers);
  waits_.erase(wait);
}

bool Ledger::MayEnter(const Wait& wait) const {
  const bool being_written = quorum_.applying() && quorum_.applier() >= 0;
  return !being_written && NotEntered(wait.generation).empty();
}

std::vector<int> Ledger::NotEntered(int64_t generation) const {
  std::vector<int> workers;
  for (int worker = 0; worker < roster_.size(); ++worker) {
    if (roster_.IsPresent(worker) && roster_[worker].generation < generation) workers.push_back(worker);
  }
  return workers;
}

int64_t Ledger::Required() const { return std::min<int64_t>(quorum_size_, roster_.Available()); }

std::string Ledger::Overdue(const Wait& wait) const {
  std::string text = roster_.NameOf(wait.worker) + " waited " + Text(wait.timeout) + " s in ledger '" +
                     roster_.ledger() + "' ";
  std::vector<int> awaited;
  if (wait.kind == Kind::kPull) {
    const int64_t mine = roster_[wait.worker].clock;
    text += "at its update " + std::to_string(mine) + " for slower workers to come within " +
            std::to_string(wait.ahead) + " updates: for ";
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
  } else {
    text += "for the gradients of step " + std::to_string(quorum_.step()) + ": " +
            std::to_string(Required()) + " are required, " + std::to_string(quorum_.Members().size()) +
            " came, none from ";
    for (int worker = 0; worker < roster_.size(); ++worker) {
      if (roster_.IsAvailable(worker) && !quorum_.HasOffer(worker)) awaited.push_back(worker);
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
      if (!quorum_.applying() || appointment_ != each.appointment) continue;
      quorum_.Appoint(-1);
      Settle(&more);
    }
    answers = std::move(more);
  }
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
    StepBack(caller.worker, Aborted(member.name + " was declared lost"), &answers);
    member.status = MemberStatus::kLost;
    Changed();
    Settle(&answers);
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

int64_t Ledger::WaitChange(int64_t version, double seconds) const {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return version_ != version; });
  return version_;
}

void Ledger::Changed() {
  ++version_;
  changed_.notify_all();
}

}  // namespace tf_strategies::ledger

// Ledger: the shared record of one training run, kept by one parameter server: its members, the number of the
// step, and the gradients that count.
//
// Workers call it with their number and incarnation. Calls that must wait are answered later, through a
// callback. Every wait ends: with the awaited event, at its deadline, by Cancel, or because its worker left,
// was replaced or was declared lost. The ledger gets its clock as an argument, and checks deadlines only in Expire.
//
// Asynchronous training (stale-synchronous): Pull, Push. A worker's clock is the number of its pushes. A
// worker that joins or returns starts with the clock of the slowest training worker. Pull waits while the
// caller's clock is more than max_staleness ahead of the slowest. Workers that have not joined yet count with
// clock 0 for the first kGraceSeconds of the ledger (or half the caller's timeout, if that is less). Source:
// Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server", section
// 3.
//
// Synchronous training with backup workers: Enter, Submit, Applied; see quorum.h. The first submissions for
// the current step count, up to the required number. This is the quorum or, if fewer workers are expected or
// training, their number. (A worker that waits in Enter is not training.) Other submissions are dropped. If they arrive
// while a step is being applied, their calls wait for its end, because the weights are being written.
#ifndef OPS_LEDGER_LEDGER_H_
#define OPS_LEDGER_LEDGER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ops/base/status.h"
#include "ops/ledger/agreements.h"
#include "ops/ledger/quorum.h"
#include "ops/ledger/roster.h"
#include "ops/ledger/staleness.h"

namespace tf_strategies::ledger {

enum Decision : int32_t {
  kDropped = 0,
  kCounted = 1,  // another worker has applied it
  kApply = 2,    // the caller must apply the step, and then call Applied
};

// The result of a wait.
struct Outcome {
  Decision decision = kDropped;  // for a submission
  int64_t step = 0;              // the current step; with kApply the step to apply
  // With kApply: the number of the update, equal for every worker that is told to apply it; see exactly_once.h.
  int64_t update = -1;
  std::vector<int> members;  // with kApply: the workers whose gradients count, ascending
  int64_t rows = 0;          // with kApply: the number of rows of all members
};

struct SubmitRequest {
  int64_t step = 0;  // the step at which the weights were pulled
  int64_t rows = 0;  // the number of input rows of the gradient
  int32_t quorum = 1;
  double timeout = 0;  // seconds
};

// Thread-safe.
class Ledger {
 public:
  static constexpr double kGraceSeconds = 60;
  static constexpr int64_t kMostRows = int64_t{1} << 40;

  using Clock = std::function<double()>;  // returns seconds, which must not decrease
  // Called once, on any thread, without a lock. Returns false if the answer could not be delivered, because the caller
  // no longer exists.
  using Answer = std::function<bool(const Status&, const Outcome&)>;

  // on_deadline(time): requests a call of Expire at this time or earlier. It must not call the ledger.
  Ledger(std::string name, Clock clock, std::function<void(double)> on_deadline);

  // --- members ---------------------------------------------------------------------------------------------------------------
  // A process may join again. A new process of a worker replaces the previous one, whose calls end with kAborted.
  Status Join(const Caller& caller, const std::vector<std::string>& names, const std::string& options,
              int64_t* step);
  Status Agree(const Caller& caller, const std::string& key, const std::string& text);
  Status Leave(const Caller& caller, bool finished);
  // Begins a fit. Answers when every member that is neither finished nor lost has entered this generation or a later
  // one, and no step is being applied. With timeout 0 it answers at once. After a failed wait the caller is idle, in
  // its previous generation.
  void Enter(const Caller& caller, int64_t generation, double timeout, int64_t ticket, Answer answer);

  // --- asynchronous training -------------------------------------------------------------------------------------------------
  void Pull(const Caller& caller, int64_t max_staleness, double timeout, int64_t ticket, Answer answer);
  Status Push(const Caller& caller, int64_t pulled, int64_t* staleness);
  StalenessCounts Staleness() const;

  // --- synchronous training --------------------------------------------------------------------------------------------------
  void Submit(const Caller& caller, const SubmitRequest& request, int64_t ticket, Answer answer);
  Status Applied(const Caller& caller, int64_t step, int64_t* next);
  void Counts(std::vector<int64_t>* dropped, std::vector<int64_t>* counted) const;
  // The workers that have submitted for the current step, ascending.
  std::vector<int> Submitters() const;

  int64_t Step() const;
  // Sets the step. A step that is being applied is abandoned if no worker is left to apply it.
  Status SetStep(int64_t step);
  // Returns to a step whose weights the servers hold copies of. Waiting submissions end with kAborted, a step that is
  // being applied is abandoned, and a Hold ends. update: the number of the next update, greater than all earlier ones.
  Status RollBack(int64_t step, int64_t* update);

  // Tells no worker to begin to apply a step until Release or RollBack. Returns true if no step is being applied. If it
  // returns false, repeat it: a step whose application has begun is applied to its end, if need be by another worker.
  bool Hold();
  void Release();

  // --- waiting ---------------------------------------------------------------------------------------------------------------
  // Returns a number that identifies a call that may wait, for Cancel.
  int64_t NewTicket();
  // Removes a wait without an answer. A submission that has not counted yet is dropped.
  void Cancel(int64_t ticket);
  // Ends overdue waits. Returns the time of the next deadline, or infinity.
  double Expire();

  // --- for the server itself -------------------------------------------------------------------------------------------------
  // Declares a worker lost, and ends all waits for it. Returns false if a new process has replaced the worker, if it
  // has finished, or if it is already lost.
  bool MarkLost(const Caller& caller);
  std::vector<Member> Members() const;
  std::string NameOf(int worker) const;

 private:
  enum class Kind { kEnter, kPull, kSubmit };

  struct Wait {
    Kind kind = Kind::kEnter;
    int worker = -1;
    double timeout = 0;
    double deadline = 0;
    int64_t generation = 0;  // Enter
    int64_t previous = 0;    // Enter: the generation to return to after a failed wait
    int64_t ahead = 0;       // Pull: how far the worker may be ahead of the slowest worker
    double grace_end = 0;    // Pull: until then, workers that have not joined yet count
    bool counts = false;     // Submit: whether it is among the submissions of the current step
    Answer answer;
  };
  using Waits = std::map<int64_t, Wait>;  // by ticket

  struct Answered {
    Answer answer;
    Status status;
    Outcome outcome;
    int64_t applier_number;  // the value of applier_number_ at the answer
  };
  using Answers = std::vector<Answered>;

  // With the lock held:
  Status BeginEnter(const Caller& caller, int64_t generation, double timeout, int64_t ticket, Answer* answer,
                    Answers* answers);
  Status BeginPull(const Caller& caller, int64_t max_staleness, double timeout, int64_t ticket,
                   Answer* answer);
  Status BeginSubmit(const Caller& caller, const SubmitRequest& request, int64_t ticket, Answer* answer,
                     Answers* answers);
  void Add(int64_t ticket, Wait wait);
  void Reply(Answer answer, Status status, Outcome outcome, Answers* answers) const;
  // Removes a wait and its submission, and returns its callback.
  Answer RemoveWait(Waits::iterator wait);
  void EndCallsOf(int worker, const Status& why, Answers* answers);
  // Ends the waits of a worker and drops its submission. If it had to apply a step, another worker must do it.
  void ReleaseWorker(int worker, const Status& why, Answers* answers);
  // Answers all calls that need not wait any more.
  void AnswerReady(Answers* answers);
  // The same for submissions.
  void AnswerSubmissions(Answers* answers);
  // Drops the last of the submissions that came during a Hold, if they are more than required.
  void DropSurplus();
  // Tells a waiting worker to apply the step. Returns false if no worker waits.
  bool ChooseApplier(Answers* answers);
  void AnswerApply(Waits::iterator wait, Answers* answers);
  bool MayEnter(const Wait& wait) const;
  bool MayPull(const Wait& wait, double now) const;
  int64_t Required() const;
  std::string OverdueText(const Wait& wait) const;
  std::vector<int> NotEntered(int64_t generation) const;

  // Without the lock.
  void Deliver(Answers answers);

  const Clock clock_;
  const std::function<void(double)> on_deadline_;

  mutable std::mutex mutex_;
  int64_t last_ticket_ = 0;
  Roster roster_;
  double began_ = 0;
  Agreements agreements_;
  Quorum quorum_;
  int32_t quorum_size_ = 0;     // 0: not known yet
  int quorum_by_ = -1;          // the worker that set the quorum
  int64_t applier_number_ = 0;  // how often a worker was told to apply a step
  int64_t update_;              // the number of the next update by submissions
  bool held_ = false;           // no worker may begin to apply a step
  int last_applier_ = -1;
  int64_t highest_step_ = 0;
  StalenessCounts staleness_;
  Waits waits_;
};

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_LEDGER_H_

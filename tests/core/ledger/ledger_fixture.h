// A ledger whose clock the test moves, and calls whose answers it can look at.
#ifndef TESTS_CORE_LEDGER_LEDGER_FIXTURE_H_
#define TESTS_CORE_LEDGER_LEDGER_FIXTURE_H_

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/ledger/ledger.h"

namespace tf_strategies::ledger::testing {

// One call that may wait.
struct Call {
  bool gone = false;  // nobody takes the answer
  int answers = 0;
  Status status;
  Outcome outcome;
  int64_t ticket = 0;

  bool answered() const { return answers > 0; }
};

class TestLedger {
 public:
  explicit TestLedger(int size)
      : ledger_(
            "test", [this] { return now_; }, [this](double at) { Note(at); }) {
    for (int worker = 0; worker < size; ++worker) {
      names_.push_back("worker " + std::to_string(worker) + " (host:" + std::to_string(worker) + ")");
    }
  }

  Ledger* operator->() { return &ledger_; }
  const std::vector<std::string>& names() const { return names_; }
  double now() const { return now_; }
  double next_deadline() const { return next_; }

  Status Join(int worker, int64_t incarnation = 1, const std::string& options = "options") {
    int64_t step = 0;
    return ledger_.Join({worker, incarnation}, names_, options, &step);
  }

  void JoinAll() {
    for (size_t worker = 0; worker < names_.size(); ++worker) {
      TFS_CHECK(Join(static_cast<int>(worker)).ok());
    }
  }

  std::shared_ptr<Call> Enter(int worker, int64_t generation, double timeout = 100, int64_t incarnation = 1) {
    auto call = NewCall();
    ledger_.Enter({worker, incarnation}, generation, timeout, call->ticket, AnswerTo(call));
    return call;
  }

  std::shared_ptr<Call> Pull(int worker, int64_t max_staleness, double timeout = 100,
                             int64_t incarnation = 1) {
    auto call = NewCall();
    ledger_.Pull({worker, incarnation}, max_staleness, timeout, call->ticket, AnswerTo(call));
    return call;
  }

  std::shared_ptr<Call> Submit(int worker, int64_t step, int32_t quorum, double timeout = 100,
                               int64_t incarnation = 1, int64_t rows = 1) {
    auto call = NewCall();
    ledger_.Submit({worker, incarnation}, {step, rows, quorum, timeout}, call->ticket, AnswerTo(call));
    return call;
  }

  std::shared_ptr<Call> NewCall() {
    auto call = std::make_shared<Call>();
    call->ticket = ledger_.NewTicket();
    return call;
  }

  static Ledger::Answer AnswerTo(const std::shared_ptr<Call>& call) {
    return [call](const Status& status, const Outcome& outcome) {
      ++call->answers;
      call->status = status;
      call->outcome = outcome;
      return !call->gone;
    };
  }

  Status Push(int worker, int64_t pulled, int64_t* staleness = nullptr) {
    int64_t ignored = 0;
    return ledger_.Push({worker, 1}, pulled, staleness == nullptr ? &ignored : staleness);
  }

  Status Applied(int worker, int64_t step, int64_t incarnation = 1) {
    int64_t next = 0;
    return ledger_.Applied({worker, incarnation}, step, &next);
  }

  // Moves the clock and does what the thread of the registry does: calls when it was asked to.
  void Pass(double seconds) {
    const double end = now_ + seconds;
    while (next_ <= end) {
      now_ = std::max(now_, next_);
      next_ = std::numeric_limits<double>::infinity();
      Note(ledger_.Expire());
    }
    now_ = end;
  }

 private:
  void Note(double at) { next_ = std::min(next_, at); }

  double now_ = 1000;
  double next_ = std::numeric_limits<double>::infinity();
  std::vector<std::string> names_;
  Ledger ledger_;
};

}  // namespace tf_strategies::ledger::testing

#endif  // TESTS_CORE_LEDGER_LEDGER_FIXTURE_H_

// ExactlyOnce: makes a server run each part of an update exactly once, even if several workers request it.
//
// A worker that applies an update may be lost when only some servers have run their parts. Another worker
// then requests all parts again. A part that has begun continues if its requester is lost.
#ifndef OPS_LEDGER_EXACTLY_ONCE_H_
#define OPS_LEDGER_EXACTLY_ONCE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace tf_strategies::ledger {

// The number of an update: that of its ledger, which distinguishes it from updates before a restart, and the
// number within this ledger, from 0.
struct UpdateNumber {
  static constexpr int kCountBits = 40;
  static constexpr int kLedgerBits = 22;

  static int64_t First(uint64_t random) {
    return static_cast<int64_t>(random % (uint64_t{1} << kLedgerBits)) << kCountBits;
  }
  static bool SameLedger(int64_t a, int64_t b) { return a >> kCountBits == b >> kCountBits; }
};

// Thread-safe.
class ExactlyOnce {
 public:
  enum class Answer {
    kNow,     // who asked is to do the part, then to call End
    kDone,    // it has been done
    kFailed,  // it failed, and may have been done half: it cannot be done again
  };
  // Called once, by any thread, without a lock.
  using Proceed = std::function<void(Answer answer)>;

  // The parts of an update, and the updates of a ledger, must be requested in ascending order, except for
  // repeated requests. While a part runs, other requests for it wait.
  void Begin(int64_t update, int32_t part, Proceed proceed);
  void End(bool done);

 private:
  struct Asked {
    int64_t update = 0;
    int32_t part = 0;
    Proceed proceed;
  };

  Answer AnswerTo(const Asked& asked) const;

  std::mutex mutex_;
  int64_t update_ = -1;  // the last of which a part was done; -1: none
  int32_t part_ = -1;    // the last that was
  int64_t failed_ = -1;  // the last update of which a part failed
  bool busy_ = false;
  Asked now_;  // while busy
  std::deque<Asked> waiting_;
};

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_EXACTLY_ONCE_H_

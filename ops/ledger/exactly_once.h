// ExactlyOnce: ensures that a server runs each part of an update exactly once, even if several workers request it.
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

// The number of an update. The upper bits identify its ledger, so that it differs from updates before a restart. The
// lower bits count the updates of this ledger, from 0.
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
    kNow,     // the caller must run the part, and then call End
    kDone,    // the part has already run
    kFailed,  // the part has failed, and may have written some variables; or Fence refuses it
  };
  // Called once, on any thread, without a lock.
  using Proceed = std::function<void(Answer answer)>;

  // Requests to run a part. `proceed` gets the answer. While a part runs, other requests wait. The parts of an update,
  // and the updates of a ledger, must be requested in ascending order, except for repeated requests.
  void Begin(int64_t update, int32_t part, Proceed proceed);

  // Reports that the running part has ended. done: whether it was successful.
  void End(bool done);

  // From now on only updates of the same ledger as `first`, from `first` on, may run. Other requests are answered with
  // kFailed, also those that wait already. It replaces an earlier fence. Returns true if no part is running. If it
  // returns false, repeat it: a part that has begun runs to its end.
  bool Fence(int64_t first);

 private:
  struct Request {
    int64_t update = 0;
    int32_t part = 0;
    Proceed proceed;
  };

  bool IsFenced(int64_t update) const;
  Answer AnswerTo(const Request& request) const;

  std::mutex mutex_;
  int64_t update_ = -1;  // the update of the last part that has run; -1: none
  int32_t part_ = -1;    // the last part that has run
  int64_t failed_ = -1;  // the last update with a failed part
  int64_t fence_ = -1;   // the first update that may run; -1: all may
  bool busy_ = false;
  Request running_;  // while busy
  std::deque<Request> waiting_;
};

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_EXACTLY_ONCE_H_

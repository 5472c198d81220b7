// ProgressThread: moves what is outstanding over a transport. Its thread polls while something happens, then sleeps until the
// transport has an event; callers may lend their threads, and poll themselves.
//
// Whoever holds `mutex()` drives the transport. Completions are called after it is released.
#ifndef OPS_TRANSPORT_PROGRESS_THREAD_H_
#define OPS_TRANSPORT_PROGRESS_THREAD_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ops/base/status.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

class ProgressThread {
 public:
  using Done = std::function<void(const Status&)>;

  // What the thread drives. All methods but HasNews need `mutex()`.
  class Work {
   public:
    virtual ~Work() = default;

    // Does what can be done without waiting. Returns whether anything happened.
    virtual bool Poll() = 0;

    // Returns whether Poll has something new to look at: a submission, a failure. Thread-safe.
    virtual bool HasNews() const = 0;

    // Returns how many operations move bytes now.
    virtual int Moving() const = 0;

    // Returns how many operations have begun and not ended; each may have a deadline.
    virtual int Outstanding() const = 0;

    // Returns whether it has ended for good. The thread then ends, too.
    virtual bool Ended() const = 0;
  };

  struct Options {
    bool crowded = true;  // the peers have fewer cores than threads that poll
    bool parks = false;   // the thread keeps away while callers poll often enough
    bool prefers_short_turns = false;
    int idle_sleep_ms = 50;  // the longest sleep while nothing is outstanding
  };

  // The transport and the work must outlive the thread.
  ProgressThread(Transport* transport, Work* work, Options options);

  // Starts the thread, once the work is complete.
  void Start();

  // Waits until the work has ended. Somebody must have ended it, and called WakeUp.
  void Join();

  std::mutex& mutex() const { return mutex_; }

  // Keeps a completion to be called after `mutex()`, which must be held, is released.
  void Complete(Done done, const Status& status) { completed_.emplace_back(std::move(done), status); }

  // Poll on the caller's thread, once or until nothing moves or too much time has passed; nothing if another thread is at it.
  // Return whether nothing moves any more. If not, call WakeIfNotAwake.
  bool PollOnce();
  bool PollUntilIdle();

  void WakeIfNotAwake();
  void WakeUp();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  // What the thread does: polls, waits while callers poll, or waits for the transport, too.
  enum class State : uint8_t { kAwake, kParked, kAsleep };

  void Run();
  bool Poll();
  void Deliver(Lock* lock);
  void Pause(Clock::time_point last_event) const;
  bool CallersPoll();
  void Park(Lock* lock);
  void Sleep(Lock* lock);

  Transport* const transport_;
  Work* const work_;
  const Options options_;

  mutable std::mutex mutex_;
  std::vector<std::pair<Done, Status>> completed_;  // guarded by mutex_

  std::atomic<State> state_{State::kAwake};
  std::atomic<uint64_t> caller_polls_{0};  // how often a caller's thread did all there was to do
  uint64_t caller_polls_before_ = 0;       // the thread's own: what caller_polls_ was when it last looked
  std::mutex parking_;
  std::condition_variable unparked_;
  bool unpark_ = false;  // guarded by parking_

  std::thread thread_;
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_PROGRESS_THREAD_H_

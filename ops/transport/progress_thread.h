// ProgressThread: makes progress with the outstanding operations of a transport.
//
// Its thread polls while events happen, and then sleeps until the transport has an event. Callers may also poll on
// their own threads. A thread must hold `mutex()` to use the transport. Completions are called after it is released.
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

  // The operations that the thread makes progress with. All methods except HasNews need `mutex()`.
  class Work {
   public:
    virtual ~Work() = default;

    // Makes progress without waiting. Returns true if anything happened.
    virtual bool Poll() = 0;

    // Returns true if there is a submission or a failure that Poll has not seen. Thread-safe.
    virtual bool HasNews() const = 0;

    // Returns the number of operations that are moving bytes.
    virtual int Moving() const = 0;

    // Returns the number of operations that have begun and not ended. Each may have a deadline.
    virtual int Outstanding() const = 0;

    // Returns true if the work has ended finally. The thread then ends, too.
    virtual bool Ended() const = 0;
  };

  struct Options {
    bool crowded = true;               // the polling threads outnumber the cores
    bool parks = false;                // the thread parks while callers poll often enough
    bool prefers_short_turns = false;  // asks the kernel for short time slices
    int idle_sleep_ms = 50;            // the longest sleep while nothing is outstanding
  };

  // The transport and the work must outlive the thread.
  ProgressThread(Transport* transport, Work* work, Options options);

  // Starts the thread. The work must be completely constructed.
  void Start();

  // Waits until the thread has ended. Another thread must have ended the work and called WakeUp.
  void Join();

  std::mutex& mutex() const { return mutex_; }

  // Stores a completion, which is called after `mutex()` is released. The caller must hold it.
  void Complete(Done done, const Status& status) { completed_.emplace_back(std::move(done), status); }

  // Polls once on the caller's thread, unless another thread is polling. Returns true if no operation moves any more.
  // Otherwise call WakeIfNotAwake.
  bool PollOnce();

  // Does the same as PollOnce, but polls until no operation moves or too much time has passed.
  bool PollUntilIdle();

  // Calls WakeUp if the thread is parked or asleep.
  void WakeIfNotAwake();

  // Ends the current wait of the thread, or its next one.
  void WakeUp();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  // kAwake: the thread polls. kParked: it waits while callers poll. kAsleep: it waits for an event of the transport.
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
  std::atomic<uint64_t> caller_polls_{0};  // how often a caller has polled until nothing moved
  uint64_t caller_polls_before_ = 0;       // used by the thread only: its last value of caller_polls_
  std::mutex parking_;
  std::condition_variable unparked_;
  bool unpark_ = false;  // guarded by parking_

  std::thread thread_;
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_PROGRESS_THREAD_H_

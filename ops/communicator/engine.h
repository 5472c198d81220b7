// Engine: what a communicator is made of inside: the queue of submitted collectives, the progress thread that carries them
// out over the transport, and the state it falls into after a failure.
//
// Two mutexes: whoever holds `engine_` drives the transport (the progress thread, or a caller that lends its thread);
// `mutex_` guards what callers and the engine share, is held for moments only, and may be taken while `engine_` is held.
#ifndef OPS_COMMUNICATOR_ENGINE_H_
#define OPS_COMMUNICATOR_ENGINE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/base/status.h"
#include "ops/communicator/collective.h"
#include "ops/communicator/communicator.h"
#include "ops/communicator/execution.h"
#include "ops/communicator/scratch.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

class Engine {
 public:
  Engine(std::unique_ptr<Transport> transport, CommunicatorOptions options,
         std::function<void(const Failure&)> on_failure);
  ~Engine();

  // Fails what is outstanding with kCancelled and joins the progress thread, whoever else still holds the engine.
  void Close();

  int rank() const { return rank_; }
  int size() const { return size_; }
  schedule::Group group() const { return {size_, options_.ranks_per_host, options_.wire}; }
  const CommunicatorOptions& options() const { return options_; }

  // Thread-safe, all of them; see Communicator.
  void Submit(Collective collective, Communicator::Request request);
  void Reject(Communicator::Request request, const Status& why);
  void Report(int instance, Status cause);
  void Abort(Status cause);
  std::string DescribeInstance(int instance) const;
  Communicator::Waiting OldestWaiting() const;
  CommunicatorStats stats() const;
  std::string DescribeTransport() const { return transport_->Describe(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Job {
    std::shared_ptr<const Collective> collective;
    Communicator::Request request;
    Clock::time_point submitted;
  };

  struct Running {
    Job job;
    std::unique_ptr<Execution> execution;
  };

  struct Oldest {
    int instance = -1;
    Clock::time_point since;
    std::shared_ptr<const Collective> collective;
  };

  // What the progress thread does: moves, waits for callers, who move themselves, or waits for the transport, too.
  enum class State : uint8_t { kAwake, kParked, kAsleep };

  void Run();
  bool PollOnCallersThread();
  void Pause(Clock::time_point last_event) const;
  void Unpark();

  bool CallersPoll();  // for the progress thread alone

  // These need `engine_`.
  bool Poll();
  void Deliver(std::unique_lock<std::mutex>* engine);
  void Park(std::unique_lock<std::mutex>* engine);
  void Sleep(std::unique_lock<std::mutex>* engine);
  bool StartSubmitted();
  void Start(Job job);
  void Refuse(Job job, const Status& why);
  bool AdvanceAll();
  void Finish(Running* running);
  CommunicatorStats::PerAlgorithm& StatsOf(const Collective& collective);
  void PublishOldest();
  Failure Explain(const Running& running) const;
  Failure Overdue(const Running& running) const;
  void ReportFailure(Failure failure);
  void CheckForFailure();
  void Poison(const Status& cause);

  std::string PeerName(int peer) const;

  // The wire may still read or write the memory of a failed collective: declared before the transport, so freed after it.
  std::vector<std::shared_ptr<void>> abandoned_;
  ScratchPool scratch_;
  const std::unique_ptr<Transport> transport_;
  const int rank_, size_;
  const CommunicatorOptions options_;
  const std::function<void(const Failure&)> on_failure_;
  const bool crowded_;  // more ranks than cores

  std::mutex engine_;
  Plans plans_;                                  // guarded by engine_, as are the transport and what follows
  std::vector<uint32_t> uses_;                   // by instance
  std::list<std::unique_ptr<Running>> running_;  // in order of submission
  std::vector<std::pair<Communicator::Done, Status>> completed_;  // not told yet
  Failure suspicion_;
  Clock::time_point suspected_at_;

  std::atomic<bool> stopping_{false};
  std::atomic<State> state_{State::kAwake};
  std::atomic<uint64_t> caller_polls_{0};  // how often a caller's thread did all there was to do
  uint64_t caller_polls_before_ = 0;  // the progress thread's own: what caller_polls_ was when it last looked
  mutable std::mutex mutex_;
  std::condition_variable unparked_;
  bool unpark_ = false;  // guarded by mutex_, as is what follows
  std::vector<Job> submitted_;
  std::deque<std::pair<int, std::shared_ptr<const Collective>>>
      recent_;  // by instance, the latest last; bounded
  Oldest oldest_;
  Failure reported_;  // by Report
  Status verdict_;    // what Abort said
  Status cause_;      // why the communicator is poisoned
  CommunicatorStats stats_;

  std::once_flag closed_;
  std::thread thread_;
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_ENGINE_H_

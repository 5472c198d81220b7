// Engine: the implementation of a communicator: the queue of submitted collectives, the running collectives,
// and the state after a failure. A progress thread drives it.
//
// There are two mutexes. That of the progress thread guards the running collectives. `mutex_` guards the
// state that callers and the engine share. It is held only briefly, and may be locked while the other is
// held.
#ifndef OPS_COMMUNICATOR_ENGINE_H_
#define OPS_COMMUNICATOR_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/base/status.h"
#include "ops/communicator/collective.h"
#include "ops/communicator/communicator.h"
#include "ops/communicator/execution.h"
#include "ops/communicator/plans.h"
#include "ops/communicator/recorder.h"
#include "ops/communicator/scratch.h"
#include "ops/transport/progress_thread.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

class Engine : private ProgressThread::Work {
 public:
  Engine(std::unique_ptr<Transport> transport, CommunicatorOptions options,
         std::function<void(const Failure&)> on_failure);
  ~Engine() override;

  // Fails outstanding collectives with kCancelled and joins the progress thread.
  void Close();

  int rank() const { return rank_; }
  int size() const { return size_; }
  schedule::Group group() const { return {size_, options_.ranks_per_host, options_.wire}; }
  const CommunicatorOptions& options() const { return options_; }

  // The following functions are thread-safe; see Communicator.
  void Submit(Collective collective, Communicator::Request request);
  void Reject(Communicator::Request request, const Status& why);
  void Report(int instance, Status cause);
  void Abort(Status cause);
  std::string DescribeInstance(int instance) const;
  Communicator::Waiting OldestWaiting() const;
  CommunicatorStats stats() const;
  Recorder Recorded() const;
  std::string DescribeTransport() const { return transport_->Describe(); }

 private:
  using Clock = std::chrono::steady_clock;

  static double SecondsSince(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  struct Job {
    std::shared_ptr<const Collective> collective;
    Communicator::Request request;
    Clock::time_point submitted;
    int64_t number = 0;  // in the recorder
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

  struct Moves {
    int64_t count = 0;
    Clock::time_point at;
  };

  // Called by the progress thread. All of these except HasNews, and the functions below, need its mutex.
  bool Poll() override;
  bool HasNews() const override;
  int Moving() const override { return static_cast<int>(running_.size()); }
  int Outstanding() const override { return Moving(); }
  bool Ended() const override { return ended_; }

  bool StartSubmitted();
  void Start(Job job);
  void Refuse(Job job, const Status& why);
  bool AdvanceAll();
  void Finish(Running* running);
  CommunicatorStats::PerAlgorithm& StatsOf(const Collective& collective);
  void PublishStart(int64_t number, int64_t use);
  void PublishOldest();
  void SetOldest();  // needs mutex_
  Failure Explain(const Running& running) const;
  Failure Overdue(const Running& running) const;
  void ReportFailure(Failure failure);
  void CheckForFailure();
  void Poison(const Status& cause);

  std::string PeerName(int peer) const;

  // The transport may still access the memory of a failed collective. It is declared before the transport, so
  // it is freed after it.
  std::vector<std::shared_ptr<void>> abandoned_;
  ScratchPool scratch_;
  const std::unique_ptr<Transport> transport_;
  const int rank_, size_;
  const CommunicatorOptions options_;
  const std::function<void(const Failure&)> on_failure_;

  ProgressThread progress_;
  Plans plans_;                 // guarded by progress_.mutex(), as are the transport and what follows
  std::vector<uint32_t> uses_;  // by instance
  std::list<std::unique_ptr<Running>> running_;  // in order of submission
  Failure suspicion_;
  Clock::time_point suspected_at_;
  bool ended_ = false;

  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> moves_{0};  // the polls in which something happened
  mutable std::mutex mutex_;
  std::vector<Job> submitted_;  // guarded by mutex_, as is what follows
  Recorder recorder_;
  Oldest oldest_;
  mutable Moves seen_;  // by the last call of OldestWaiting
  Failure reported_;    // by Report
  Status verdict_;      // what Abort said
  Status cause_;        // why the communicator is poisoned
  CommunicatorStats stats_;

  std::once_flag closed_;
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_ENGINE_H_

#include "ops/communicator/communicator.h"

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "ops/base/check.h"
#include "ops/communicator/collective.h"
#include "ops/communicator/execution.h"
#include "ops/schedule/choose.h"

namespace tf_strategies {
namespace {

using Clock = std::chrono::steady_clock;

// How long the progress thread polls after the last event before it sleeps on the transport's event. Where processes
// outnumber cores every microsecond is taken from a peer: 4 MB among 4 on two cores took 2.5 ms with 5 us, 4.5 ms with 60.
constexpr std::chrono::microseconds kSpin{5};
constexpr int kSleepMs = 50;
// A caller lends its thread to messages of up to so many bytes, for so long at most: long enough for 256 KB among two
// (0.12 ms in a loop against 0.31 with 100 us).
constexpr int64_t kLendBytes = 512 << 10;
constexpr std::chrono::microseconds kLend{1000};
constexpr int kInstances = 1 << 16;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Job {
  Collective collective;
  Communicator::Request request;
  Clock::time_point submitted;
};

struct Running {
  Job job;
  std::unique_ptr<Execution> execution;
  int32_t barrier_token = 0;
};

}  // namespace

class Communicator::Impl {
 public:
  Impl(std::unique_ptr<Transport> transport, CommunicatorOptions options,
       std::function<void(const Failure&)> on_failure)
      : transport_(std::move(transport)),
        rank_(transport_->rank()),
        size_(transport_->size()),
        options_(std::move(options)),
        on_failure_(std::move(on_failure)),
        plans_(rank_, size_, options_.chunk_bytes),
        uses_(kInstances, 0) {
    stats_.all_reduce.resize(schedule::AllReduceAlgorithms().size());
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() {
    stopping_.store(true);
    transport_->Wake();
    thread_.join();
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const CommunicatorOptions& options() const { return options_; }

  void Submit(Collective collective, Request request) {
    const int64_t bytes = collective.count * static_cast<int64_t>(DTypeSize(collective.dtype));
    Status refusal = Check(request);
    if (refusal.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      refusal = cause_;
      if (refusal.ok()) {
        last_[request.instance] = collective;
        submitted_.push_back({std::move(collective), std::move(request), Clock::now()});
      }
    }
    if (!refusal.ok()) return request.done(refusal);
    const bool finished = bytes <= kLendBytes && Lend();
    if (!finished && sleeping_.load()) transport_->Wake();
  }

  void Abort(Status cause) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (verdict_.ok()) verdict_ = std::move(cause);
    }
    transport_->Wake();
  }

  std::string DescribeInstance(int instance) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = last_.find(instance);
    return found == last_.end() ? "nothing" : found->second.Describe();
  }

  Waiting OldestWaiting() const {
    std::lock_guard<std::mutex> lock(mutex_);
    if (oldest_.instance < 0) return {};
    const auto found = last_.find(oldest_.instance);
    return {oldest_.instance, SecondsSince(oldest_.since),
            found == last_.end() ? "" : found->second.Describe()};
  }

  CommunicatorStats stats() const {
    std::lock_guard<std::mutex> lock(mutex_);
    CommunicatorStats stats = stats_;
    stats.wire = transport_->counters();
    return stats;
  }

  std::string DescribeTransport() const { return transport_->Describe(); }

 private:
  Status Check(const Request& request) const {
    if (request.instance < 0 || request.instance >= kInstances) {
      return InvalidArgument("collective '" + request.name + "': instance " +
                             std::to_string(request.instance) + " is not in [0, " +
                             std::to_string(kInstances) + ")");
    }
    if (request.count < 0) {
      return InvalidArgument("collective '" + request.name + "': count " + std::to_string(request.count) +
                             " is negative");
    }
    return Status::Ok();
  }

  // Runs the engine on the caller's thread until it is idle or the time is up. Returns whether it is idle.
  bool Lend() {
    std::unique_lock<std::mutex> engine(engine_, std::try_to_lock);
    if (!engine.owns_lock() || !running_.empty()) return false;
    const auto end = Clock::now() + kLend;
    do {
      if (!Turn()) std::this_thread::yield();
    } while (!running_.empty() && Clock::now() < end);
    const bool idle = running_.empty();
    Deliver(&engine);
    return idle;
  }

  void Run() {
    auto last_event = Clock::now();
    while (!stopping_.load()) {
      std::unique_lock<std::mutex> engine(engine_);
      if (Turn()) {
        last_event = Clock::now();
        Deliver(&engine);
      } else if (running_.empty() || Clock::now() - last_event > kSpin) {
        Sleep(&engine);
      } else {
        engine.unlock();
        std::this_thread::yield();
      }
    }
    std::unique_lock<std::mutex> engine(engine_);
    Poison(Cancelled("the communicator was closed"));
    Deliver(&engine);
  }

  // ---- everything below needs the engine's mutex ----

  // Does what can be done without waiting. Returns whether anything happened.
  bool Turn() {
    bool busy = StartSubmitted();
    busy = transport_->Progress() || busy;
    busy = AdvanceAll() || busy;
    Judge();
    return busy || !completed_.empty();
  }

  // Tells the callers, who may submit again from within: not while the mutex is held.
  void Deliver(std::unique_lock<std::mutex>* engine) {
    std::vector<std::pair<Done, Status>> completed;
    completed.swap(completed_);
    engine->unlock();
    for (auto& [done, status] : completed) done(status);
  }

  void Sleep(std::unique_lock<std::mutex>* engine) {
    sleeping_.store(true);
    bool idle;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      idle = submitted_.empty() && (verdict_.ok() || !cause_.ok());
    }
    idle = idle && !stopping_.load() && transport_->Arm();
    engine->unlock();
    if (idle) transport_->Wait(kSleepMs);
    sleeping_.store(false);
  }

  bool StartSubmitted() {
    std::vector<Job> jobs;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (submitted_.empty()) return false;
      jobs.swap(submitted_);
    }
    for (Job& job : jobs) Start(std::move(job));
    return true;
  }

  void Start(Job job) {
    for (const auto& other : running_) {
      if (other->job.request.instance != job.request.instance) continue;
      const Status twice = InvalidArgument(
          job.collective.Describe() +
          " was started again before it had finished: two calls of one collective are in "
          "flight at once, so workers could pair them differently; order them with tf.control_dependencies");
      return Refuse(std::move(job), twice);
    }
    std::shared_ptr<const Plan> plan;
    const Status planned = plans_.For(job.collective, &plan);
    if (!planned.ok()) return Refuse(std::move(job), planned);
    auto running = std::make_unique<Running>();
    Execution::Target target;
    const bool barrier = job.collective.kind == CollectiveKind::kBarrier;
    target.op = barrier ? ReduceOp::kMax : job.collective.op;
    target.dtype = job.collective.dtype;
    target.data =
        barrier ? reinterpret_cast<char*>(&running->barrier_token) : static_cast<char*>(job.request.data);
    target.instance = static_cast<uint16_t>(job.request.instance);
    target.signature = job.collective.Signature(uses_[job.request.instance]++);
    running->execution = std::make_unique<Execution>(std::move(plan), target, transport_.get(), &scratch_);
    running->job = std::move(job);
    running_.push_back(std::move(running));
    running_.back()->execution->Start();
    PublishOldest();
  }

  void Refuse(Job job, const Status& why) {
    Suspect({why, job.request.instance, -1});
    completed_.emplace_back(std::move(job.request.done), why);
  }

  bool AdvanceAll() {
    bool any = false;
    for (auto running = running_.begin(); running != running_.end();) {
      Execution& execution = *(*running)->execution;
      any = execution.Advance() || any;
      if (!execution.failure().ok()) {
        if (suspicion_.status.ok()) Suspect(Explain(**running));
        ++running;
      } else if (execution.finished()) {
        auto finished = std::move(*running);
        running = running_.erase(running);
        PublishOldest();
        Finish(finished.get());
        any = true;
      } else {
        ++running;
      }
    }
    return any;
  }

  void Finish(Running* running) {
    const Collective& collective = running->job.collective;
    Request& request = running->job.request;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      CommunicatorStats::PerAlgorithm& counted = StatsOf(collective);
      counted.calls += 1;
      counted.bytes += collective.count * static_cast<int64_t>(DTypeSize(collective.dtype));
      counted.seconds += SecondsSince(running->job.submitted);
    }
    request.keep_alive.reset();
    completed_.emplace_back(std::move(request.done), Status::Ok());
  }

  CommunicatorStats::PerAlgorithm& StatsOf(const Collective& collective) {
    switch (collective.kind) {
      case CollectiveKind::kAllReduce: return stats_.all_reduce[collective.algorithm];
      case CollectiveKind::kBroadcast: return stats_.broadcast;
      case CollectiveKind::kAllGather: return stats_.all_gather;
      case CollectiveKind::kBarrier: break;
    }
    return stats_.barrier;
  }

  void PublishOldest() {
    std::lock_guard<std::mutex> lock(mutex_);
    oldest_ = running_.empty()
                  ? Oldest{}
                  : Oldest{running_.front()->job.request.instance, running_.front()->job.submitted};
  }

  std::string PeerName(int peer) const {
    return peer >= 0 && peer < static_cast<int>(options_.peer_names.size()) ? options_.peer_names[peer]
                                                                            : "rank " + std::to_string(peer);
  }

  Failure Explain(const Running& running) const {
    const Execution& execution = *running.execution;
    const std::string where = PeerName(rank_) + " in " + running.job.collective.Describe() + ", with " +
                              PeerName(execution.failed_peer()) + ": ";
    return {Status(execution.failure().code(), where + execution.failure().message()),
            running.job.request.instance, execution.failed_peer()};
  }

  Failure Overdue(const Running& running) const {
    std::string peers;
    int peer = -1;
    for (int awaited : running.execution->PeersAwaited()) {
      peers += (peers.empty() ? "" : ", ") + PeerName(awaited);
      peer = awaited;
    }
    return {DeadlineExceeded(PeerName(rank_) + " waited " +
                             std::to_string(static_cast<int>(options_.timeout_seconds)) + " s in " +
                             running.job.collective.Describe() + " for " +
                             (peers.empty() ? "its peers to read" : peers) +
                             "; raise CommunicationOptions.timeout if a step may take longer"),
            running.job.request.instance, peer};
  }

  void Suspect(Failure failure) {
    if (suspicion_.status.ok()) {
      suspicion_ = std::move(failure);
      suspected_at_ = Clock::now();
      if (on_failure_) on_failure_(suspicion_);
    }
  }

  // Looks for overdue collectives, for the control plane's verdict, and for a suspicion that got none.
  void Judge() {
    if (!running_.empty() && SecondsSince(running_.front()->job.submitted) > options_.timeout_seconds) {
      Suspect(Overdue(*running_.front()));
    }
    Status verdict;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!cause_.ok()) return;
      verdict = verdict_;
    }
    if (!verdict.ok()) return Poison(verdict);
    if (!suspicion_.status.ok() && (!on_failure_ || SecondsSince(suspected_at_) > options_.verdict_seconds)) {
      Poison(suspicion_.status);
    }
  }

  void Poison(const Status& cause) {
    std::vector<Job> jobs;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (cause_.ok()) cause_ = cause;
      jobs.swap(submitted_);
    }
    if (!running_.empty()) transport_->Cancel();
    for (auto& running : running_) {
      jobs.push_back(running->job);
      abandoned_.push_back(std::move(running->job.request.keep_alive));
    }
    running_.clear();
    PublishOldest();
    for (Job& job : jobs) completed_.emplace_back(std::move(job.request.done), cause_);
  }

  struct Oldest {
    int instance = -1;
    Clock::time_point since;
  };

  // The wire may still read or write the memory of a failed collective: declared before the transport, so freed after it.
  std::vector<std::shared_ptr<void>> abandoned_;
  ScratchPool scratch_;
  const std::unique_ptr<Transport> transport_;
  const int rank_, size_;
  const CommunicatorOptions options_;
  const std::function<void(const Failure&)> on_failure_;

  std::mutex engine_;                            // whoever holds it drives the transport
  Plans plans_;                                  // guarded by engine_, as are the transport and what follows
  std::vector<uint8_t> uses_;                    // by instance
  std::list<std::unique_ptr<Running>> running_;  // in order of submission
  std::vector<std::pair<Done, Status>> completed_;  // not told yet
  Failure suspicion_;
  Clock::time_point suspected_at_;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> sleeping_{false};
  mutable std::mutex mutex_;
  std::vector<Job> submitted_;      // guarded by mutex_, as is what follows
  std::map<int, Collective> last_;  // by instance
  Oldest oldest_;
  Status verdict_;  // what Abort said
  Status cause_;    // why the communicator is poisoned
  CommunicatorStats stats_;

  std::thread thread_;
};

namespace {

Collective Describe(CollectiveKind kind, const Communicator::Request& request) {
  Collective collective;
  collective.kind = kind;
  collective.name = request.name;
  collective.shape = request.shape;
  collective.dtype = request.dtype;
  collective.count = request.count;
  return collective;
}

// A barrier is the all-reduce of one integer that nobody reads.
Collective BarrierNamed(const std::string& name) {
  Collective collective;
  collective.kind = CollectiveKind::kBarrier;
  collective.name = name;
  collective.dtype = DType::kInt32;
  collective.count = 1;
  return collective;
}

// Without elements there is nothing to carry, but the ranks still meet.
Collective BarrierIfEmpty(Collective collective) {
  return collective.count > 0 ? collective : BarrierNamed(collective.name);
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options,
                           std::function<void(const Failure&)> on_failure)
    : impl_(std::make_unique<Impl>(std::move(transport), std::move(options), std::move(on_failure))) {}

Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->rank(); }
int Communicator::size() const { return impl_->size(); }

void Communicator::AllReduce(ReduceOp op, Request request) {
  Collective collective = Describe(CollectiveKind::kAllReduce, request);
  collective.op = op;
  const auto& algorithms = schedule::AllReduceAlgorithms();
  const int64_t bytes = request.count * static_cast<int64_t>(DTypeSize(request.dtype));
  const schedule::Algorithm* algorithm = impl_->options().algorithm == "auto"
                                             ? &schedule::Choose(size(), bytes)
                                             : schedule::FindAlgorithm(impl_->options().algorithm);
  if (algorithm == nullptr) {
    return request.done(
        InvalidArgument("no all-reduce algorithm is called \"" + impl_->options().algorithm + "\""));
  }
  collective.algorithm = static_cast<int>(algorithm - algorithms.data());
  impl_->Submit(BarrierIfEmpty(std::move(collective)), std::move(request));
}

void Communicator::Broadcast(int root, Request request) {
  if (root < 0 || root >= size()) {
    return request.done(InvalidArgument("broadcast '" + request.name + "': root " + std::to_string(root) +
                                        " is not in a group of " + std::to_string(size())));
  }
  Collective collective = Describe(CollectiveKind::kBroadcast, request);
  collective.root = root;
  impl_->Submit(BarrierIfEmpty(std::move(collective)), std::move(request));
}

void Communicator::AllGather(std::vector<int64_t> offsets, Request request) {
  TFS_CHECK_EQ(offsets.size(), static_cast<size_t>(size()) + 1);
  request.count = offsets.back();
  Collective collective = Describe(CollectiveKind::kAllGather, request);
  collective.offsets = std::move(offsets);
  impl_->Submit(BarrierIfEmpty(std::move(collective)), std::move(request));
}

void Communicator::Barrier(Request request) {
  request.count = 0;
  impl_->Submit(BarrierNamed(request.name), std::move(request));
}

void Communicator::Abort(Status cause) { impl_->Abort(std::move(cause)); }
std::string Communicator::DescribeInstance(int instance) const { return impl_->DescribeInstance(instance); }
Communicator::Waiting Communicator::OldestWaiting() const { return impl_->OldestWaiting(); }
CommunicatorStats Communicator::stats() const { return impl_->stats(); }
std::string Communicator::DescribeTransport() const { return impl_->DescribeTransport(); }

}  // namespace tf_strategies

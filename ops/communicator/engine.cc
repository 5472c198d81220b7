#include "ops/communicator/engine.h"

#include <algorithm>

#include "ops/base/cores.h"
#include "ops/schedule/choose.h"

namespace tf_strategies {
namespace {

// The largest message for which a caller's thread polls, if no other collective is in flight.
constexpr int64_t kCallerPollsBytes = 1 << 20;
// The unit of pipelining. Over TCP among 2, 3, 4 and 6 on two cores 16 MB took 0.93, 0.96, 0.79 and 1.0 of the time with 256 KB.
constexpr int64_t kChunkInSharedMemory = 256 << 10;
constexpr int64_t kChunkOverNetwork = 1 << 20;
constexpr int kInstances = 1 << kInstanceBits;

constexpr int kRecorded = 1024;  // collectives

int64_t ChunkBytes(const CommunicatorOptions& options) {
  if (options.chunk_bytes > 0) return options.chunk_bytes;
  return options.wire == schedule::Wire::kNetwork ? kChunkOverNetwork : kChunkInSharedMemory;
}

ProgressThread::Options ProgressOptions(const CommunicatorOptions& options) {
  ProgressThread::Options progress;
  progress.crowded = options.ranks_here > AvailableCores();
  progress.parks = options.wire == schedule::Wire::kSharedMemory;
  progress.prefers_short_turns = true;
  return progress;
}

Status Check(const Communicator::Request& request) {
  if (request.instance < 0 || request.instance >= kInstances) {
    return InvalidArgument("collective '" + request.name + "': instance " + std::to_string(request.instance) +
                           " is not in [0, " + std::to_string(kInstances) + ")");
  }
  if (request.count < 0) {
    return InvalidArgument("collective '" + request.name + "': count " + std::to_string(request.count) +
                           " is negative");
  }
  return Status::Ok();
}

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, CommunicatorOptions options,
               std::function<void(const Failure&)> on_failure)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      options_(std::move(options)),
      on_failure_(std::move(on_failure)),
      progress_(transport_.get(), this, ProgressOptions(options_)),
      plans_(rank_, group(), ChunkBytes(options_)),
      uses_(kInstances, 0),
      recorder_(kRecorded) {
  stats_.all_reduce.resize(schedule::AllReduceAlgorithms().size());
  progress_.Start();
}

Engine::~Engine() { Close(); }

void Engine::Close() {
  std::call_once(closed_, [this] {
    stopping_.store(true);
    progress_.WakeUp();
    progress_.Join();
  });
}

void Engine::Submit(Collective collective, Communicator::Request request) {
  const int64_t bytes = collective.count * static_cast<int64_t>(DTypeSize(collective.dtype));
  const bool polls = request.may_poll && bytes <= kCallerPollsBytes;
  const Status checked = Check(request);
  if (!checked.ok()) return Reject(std::move(request), checked);
  Status refusal;
  {
    auto shared = std::make_shared<const Collective>(std::move(collective));
    std::lock_guard<std::mutex> lock(mutex_);
    refusal = cause_;
    if (refusal.ok()) {
      const auto now = Clock::now();
      const int64_t number = recorder_.Submitted(request.instance, shared, now);
      submitted_.push_back({std::move(shared), std::move(request), now, number});
    }
  }
  if (!refusal.ok()) return request.done(refusal);
  const bool finished = polls && progress_.PollUntilIdle();
  if (!finished) progress_.WakeIfNotAwake();
}

// Reports an error of this rank before its collective began, because its peers wait for it.
void Engine::Reject(Communicator::Request request, const Status& why) {
  Report(request.instance, why);
  request.done(why);
}

void Engine::Report(int instance, Status cause) {
  const Failure failure{std::move(cause), instance, -1};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!reported_.status.ok() || !cause_.ok()) return;
    reported_ = failure;
  }
  if (on_failure_) on_failure_(failure);
  progress_.WakeUp();
}

void Engine::Abort(Status cause) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (verdict_.ok()) verdict_ = std::move(cause);
  }
  progress_.WakeUp();
}

std::string Engine::DescribeInstance(int instance) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (oldest_.collective != nullptr && oldest_.instance == instance) return oldest_.collective->Describe();
  const Collective* const last = recorder_.LastOn(instance);
  return last == nullptr ? "nothing" : last->Describe();
}

Communicator::Waiting Engine::OldestWaiting() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t moves = moves_.load(std::memory_order_relaxed);
  if (moves != seen_.count) seen_ = {moves, Clock::now()};
  if (oldest_.instance < 0) return {};
  const auto quiet_since = std::max(seen_.at, oldest_.since);
  return {oldest_.instance, SecondsSince(oldest_.since), SecondsSince(quiet_since),
          oldest_.collective->Describe()};
}

CommunicatorStats Engine::stats() const {
  CommunicatorStats stats;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stats = stats_;
    stats.seconds_outstanding = recorder_.SecondsOutstanding();
  }
  stats.wire = transport_->counters();
  stats.connections = transport_->connections();
  return stats;
}

Recorder Engine::Recorded() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return recorder_;
}

bool Engine::Poll() {
  if (stopping_.load()) {
    Poison(Cancelled("the communicator was closed"));
    return ended_ = true;
  }
  bool busy = StartSubmitted();
  busy = transport_->Progress() || busy;
  busy = AdvanceAll() || busy;
  if (busy) moves_.fetch_add(1, std::memory_order_relaxed);
  CheckForFailure();
  return busy;
}

bool Engine::HasNews() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !submitted_.empty() || (!verdict_.ok() && cause_.ok()) || stopping_.load();
}

bool Engine::StartSubmitted() {
  std::vector<Job> jobs;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (submitted_.empty()) return false;
    jobs.swap(submitted_);
  }
  for (Job& job : jobs) Start(std::move(job));
  return true;
}

void Engine::Start(Job job) {
  for (const auto& other : running_) {
    if (other->job.request.instance != job.request.instance) continue;
    const Status twice = InvalidArgument(
        job.collective->Describe() +
        " was started again before it had finished: two calls of one collective are in "
        "flight at once, so workers could pair them differently; order them with tf.control_dependencies");
    return Refuse(std::move(job), twice);
  }
  std::shared_ptr<const Plan> plan;
  const Status planned = plans_.For(*job.collective, &plan);
  if (!planned.ok()) return Refuse(std::move(job), planned);
  auto running = std::make_unique<Running>();
  Execution::Target target;
  target.op = job.collective->op;
  target.dtype = job.collective->dtype;
  for (const Communicator::Part& part : job.request.parts) {
    target.parts.push_back(static_cast<char*>(part.data));
  }
  if (target.parts.empty()) target.parts = {static_cast<char*>(job.request.data)};
  target.source = static_cast<const char*>(job.request.source);
  target.instance = static_cast<uint32_t>(job.request.instance);
  const uint32_t use = uses_[job.request.instance]++;
  const int64_t number = job.number;
  target.signature = job.collective->Signature(use);
  running->execution = std::make_unique<Execution>(std::move(plan), target, transport_.get(), &scratch_);
  running->job = std::move(job);
  running_.push_back(std::move(running));
  running_.back()->execution->Start();
  PublishStart(number, use);
}

void Engine::Refuse(Job job, const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    recorder_.Ended(job.number, -1, why.code());
  }
  ReportFailure({why, job.request.instance, -1});
  progress_.Complete(std::move(job.request.done), why);
}

bool Engine::AdvanceAll() {
  bool any = false;
  for (auto running = running_.begin(); running != running_.end();) {
    Execution& execution = *(*running)->execution;
    any = execution.Advance() || any;
    if (!execution.failure().ok()) {
      if (suspicion_.status.ok()) ReportFailure(Explain(**running));
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

void Engine::Finish(Running* running) {
  const Collective& collective = *running->job.collective;
  Communicator::Request& request = running->job.request;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    CommunicatorStats::PerAlgorithm& counted = StatsOf(collective);
    counted.calls += 1;
    counted.bytes += collective.count * static_cast<int64_t>(DTypeSize(collective.dtype));
    counted.seconds += SecondsSince(running->job.submitted);
    recorder_.Ended(running->job.number, running->execution->last_peer(), Code::kOk);
  }
  request.keep_alive.reset();
  progress_.Complete(std::move(request.done), Status::Ok());
}

CommunicatorStats::PerAlgorithm& Engine::StatsOf(const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce: return stats_.all_reduce[collective.algorithm];
    case CollectiveKind::kBroadcast: return stats_.broadcast;
    case CollectiveKind::kAllGather: return stats_.all_gather;
    case CollectiveKind::kAllToAll: return stats_.all_to_all;
    case CollectiveKind::kBarrier: break;
  }
  return stats_.barrier;
}

void Engine::PublishStart(int64_t number, int64_t use) {
  std::lock_guard<std::mutex> lock(mutex_);
  recorder_.Started(number, use);
  SetOldest();
}

void Engine::PublishOldest() {
  std::lock_guard<std::mutex> lock(mutex_);
  SetOldest();
}

void Engine::SetOldest() {
  oldest_ = {};
  if (running_.empty()) return;
  const Job& job = running_.front()->job;
  oldest_ = {job.request.instance, job.submitted, job.collective};
}

}  // namespace tf_strategies

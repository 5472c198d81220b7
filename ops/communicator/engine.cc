#include "ops/communicator/engine.h"

#include <set>

#include "ops/base/cpu.h"
#include "ops/base/scheduling.h"
#include "ops/schedule/choose.h"

namespace tf_strategies {
namespace {

// How long the progress thread polls after the last event before it sleeps on the transport's event. Where ranks
// outnumber cores every microsecond is taken from a peer: 4 MB among 4 on two cores took 2.5 ms with 5 us, 4.5 ms with 60.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kSpinInCrowd{5};
// So long whoever polls keeps the core after an event, if there is one for each rank; then it offers it to others.
constexpr std::chrono::microseconds kKeepCore{20};
constexpr int kSleepMs = 50;
// While callers have lent their threads within such a time the progress thread keeps away, and the transport is not armed, so
// that peers do not signal it at every message. Not with a network, which may still have to be fed what it was given.
constexpr std::chrono::milliseconds kPark{2};
// A caller lends its thread to a message of up to so many bytes, as long as it is the only one, so long at most, and while
// something of it comes so often.
constexpr int64_t kCallerPollsBytes = 1 << 20;
constexpr std::chrono::milliseconds kCallerPolls{10};
constexpr std::chrono::milliseconds kCallerPollsWithoutEvent{1};
// The unit of pipelining. Over TCP among 2, 3, 4 and 6 on two cores 16 MB took 0.93, 0.96, 0.79 and 1.0 of the time with 256 KB.
constexpr int64_t kChunkInSharedMemory = 256 << 10;
constexpr int64_t kChunkOverNetwork = 1 << 20;
constexpr int kInstances = 1 << kInstanceBits;

constexpr size_t kRecent = 1024;  // collectives that can be described after they have ended

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t ChunkBytes(const CommunicatorOptions& options) {
  if (options.chunk_bytes > 0) return options.chunk_bytes;
  return options.wire == schedule::Wire::kNetwork ? kChunkOverNetwork : kChunkInSharedMemory;
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
      crowded_(options_.ranks_here > static_cast<int>(std::thread::hardware_concurrency())),
      plans_(rank_, group(), ChunkBytes(options_)),
      uses_(kInstances, 0) {
  stats_.all_reduce.resize(schedule::AllReduceAlgorithms().size());
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() { Close(); }

void Engine::Close() {
  std::call_once(closed_, [this] {
    stopping_.store(true);
    Unpark();
    thread_.join();
  });
}

void Engine::Submit(Collective collective, Communicator::Request request) {
  const int64_t bytes = collective.count * static_cast<int64_t>(DTypeSize(collective.dtype));
  const Status checked = Check(request);
  if (!checked.ok()) return Reject(std::move(request), checked);
  Status refusal;
  {
    auto shared = std::make_shared<const Collective>(std::move(collective));
    std::lock_guard<std::mutex> lock(mutex_);
    refusal = cause_;
    if (refusal.ok()) {
      recent_.emplace_back(request.instance, shared);
      if (recent_.size() > kRecent) recent_.pop_front();
      submitted_.push_back({std::move(shared), std::move(request), Clock::now()});
    }
  }
  if (!refusal.ok()) return request.done(refusal);
  const bool finished = bytes <= kCallerPollsBytes && PollOnCallersThread();
  if (!finished && state_.load() != State::kAwake) Unpark();
}

// An error of this rank before its collective began: the peers, who wait for it, are told.
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
  Unpark();
}

void Engine::Abort(Status cause) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (verdict_.ok()) verdict_ = std::move(cause);
  }
  Unpark();
}

std::string Engine::DescribeInstance(int instance) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (oldest_.instance == instance) return oldest_.collective->Describe();
  for (auto entry = recent_.rbegin(); entry != recent_.rend(); ++entry) {
    if (entry->first == instance) return entry->second->Describe();
  }
  return "nothing";
}

Communicator::Waiting Engine::OldestWaiting() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (oldest_.instance < 0) return {};
  return {oldest_.instance, SecondsSince(oldest_.since), oldest_.collective->Describe()};
}

CommunicatorStats Engine::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  CommunicatorStats stats = stats_;
  stats.wire = transport_->counters();
  return stats;
}

// Runs the engine on the caller's thread until it is idle or the time is up. Returns whether it is idle.
bool Engine::PollOnCallersThread() {
  std::unique_lock<std::mutex> engine(engine_, std::try_to_lock);
  if (!engine.owns_lock() || !running_.empty()) return false;
  const auto begin = Clock::now();
  auto last_event = begin;
  do {
    if (Poll()) {
      last_event = Clock::now();
    } else {
      Pause(last_event);
    }
  } while (running_.size() == 1 && completed_.empty() && last_event - begin < kCallerPolls &&
           Clock::now() - last_event < kCallerPollsWithoutEvent);
  const bool idle = running_.empty();
  if (idle) caller_polls_.fetch_add(1);
  Deliver(&engine);
  return idle;
}

// Ends the progress thread's pause, or its next one.
void Engine::Unpark() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    unpark_ = true;
  }
  unparked_.notify_one();
  transport_->Wake();
}

void Engine::Pause(Clock::time_point last_event) const {
  if (crowded_ || Clock::now() - last_event > kKeepCore) {
    std::this_thread::yield();
  } else {
    RelaxCpu();
  }
}

void Engine::Run() {
  PreferShortTurns();
  const auto spin = crowded_ ? kSpinInCrowd : kSpin;
  auto last_event = Clock::now();
  while (!stopping_.load()) {
    std::unique_lock<std::mutex> engine(engine_);
    if (Poll()) {
      last_event = Clock::now();
      Deliver(&engine);
    } else if (running_.empty() || Clock::now() - last_event > spin) {
      options_.wire == schedule::Wire::kSharedMemory&& CallersPoll() && running_.empty() ? Park(&engine)
                                                                                         : Sleep(&engine);
    } else {
      engine.unlock();
      Pause(last_event);
    }
  }
  std::unique_lock<std::mutex> engine(engine_);
  Poison(Cancelled("the communicator was closed"));
  Deliver(&engine);
}

// Does what can be done without waiting. Returns whether anything happened.
bool Engine::Poll() {
  bool busy = StartSubmitted();
  busy = transport_->Progress() || busy;
  busy = AdvanceAll() || busy;
  CheckForFailure();
  return busy || !completed_.empty();
}

// Tells the callers, who may submit again from within: not while the mutex is held.
void Engine::Deliver(std::unique_lock<std::mutex>* engine) {
  std::vector<std::pair<Communicator::Done, Status>> completed;
  completed.swap(completed_);
  engine->unlock();
  for (auto& [done, status] : completed) done(status);
}

// Whether callers have lent their threads since the last time this was asked.
bool Engine::CallersPoll() {
  const uint64_t before = std::exchange(caller_polls_before_, caller_polls_.load());
  return before != caller_polls_before_;
}

// Waits until the callers have not lent their threads for a while, or need this one. It leaves the engine to them meanwhile.
void Engine::Park(std::unique_lock<std::mutex>* engine) {
  state_.store(State::kParked);
  engine->unlock();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    bool needed = !submitted_.empty();
    while (!needed) {
      needed = unparked_.wait_for(lock, kPark, [this] { return unpark_; }) || !CallersPoll();
    }
    unpark_ = false;
  }
  state_.store(State::kAwake);
}

void Engine::Sleep(std::unique_lock<std::mutex>* engine) {
  state_.store(State::kAsleep);
  bool idle;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    idle = submitted_.empty() && (verdict_.ok() || !cause_.ok()) && !unpark_;
    unpark_ = false;
  }
  idle = idle && !stopping_.load() && transport_->Arm();
  engine->unlock();
  if (idle) transport_->Wait(kSleepMs);
  state_.store(State::kAwake);
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
  target.signature = job.collective->Signature(uses_[job.request.instance]++);
  running->execution = std::make_unique<Execution>(std::move(plan), target, transport_.get(), &scratch_);
  running->job = std::move(job);
  running_.push_back(std::move(running));
  running_.back()->execution->Start();
  PublishOldest();
}

void Engine::Refuse(Job job, const Status& why) {
  ReportFailure({why, job.request.instance, -1});
  completed_.emplace_back(std::move(job.request.done), why);
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
  }
  request.keep_alive.reset();
  completed_.emplace_back(std::move(request.done), Status::Ok());
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

void Engine::PublishOldest() {
  std::lock_guard<std::mutex> lock(mutex_);
  oldest_ = {};
  if (running_.empty()) return;
  const Job& job = running_.front()->job;
  oldest_ = {job.request.instance, job.submitted, job.collective};
}

std::string Engine::PeerName(int peer) const {
  return peer >= 0 && peer < static_cast<int>(options_.peer_names.size()) ? options_.peer_names[peer]
                                                                          : "rank " + std::to_string(peer);
}

Failure Engine::Explain(const Running& running) const {
  const Execution& execution = *running.execution;
  const int peer = execution.failed_peer();
  const std::string where = PeerName(rank_) + " in " + running.job.collective->Describe() +
                            (peer < 0 ? "" : ", with " + PeerName(peer)) + ": ";
  return {Status(execution.failure().code(), where + execution.failure().message()),
          running.job.request.instance, peer};
}

Failure Engine::Overdue(const Running& running) const {
  const std::set<int> awaited = running.execution->PeersAwaited();
  const std::set<int> slow = awaited.empty() ? running.execution->PeersToRead() : awaited;
  std::string peers;
  for (int peer : slow) peers += (peers.empty() ? "" : ", ") + PeerName(peer);
  return {DeadlineExceeded(PeerName(rank_) + " waited " +
                           std::to_string(static_cast<int>(options_.timeout_seconds)) + " s in " +
                           running.job.collective->Describe() + " for " + peers +
                           (awaited.empty() ? " to read" : "") +
                           "; raise CommunicationOptions.timeout if a step may take longer"),
          running.job.request.instance, slow.empty() ? -1 : *slow.rbegin()};
}

void Engine::ReportFailure(Failure failure) {
  if (suspicion_.status.ok()) {
    suspicion_ = std::move(failure);
    suspected_at_ = Clock::now();
    if (on_failure_) on_failure_(suspicion_);
  }
}

// Looks for overdue collectives, for reports, for the control plane's verdict, and for a suspicion that got none.
void Engine::CheckForFailure() {
  if (!running_.empty() && SecondsSince(running_.front()->job.submitted) > options_.timeout_seconds) {
    ReportFailure(Overdue(*running_.front()));
  }
  Status verdict;
  Failure reported;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!cause_.ok()) return;
    verdict = verdict_;
    reported = reported_;
  }
  if (!reported.status.ok() && suspicion_.status.ok()) {
    suspicion_ = std::move(reported);
    suspected_at_ = Clock::now();
  }
  if (!verdict.ok()) return Poison(verdict);
  if (!suspicion_.status.ok() && (!on_failure_ || SecondsSince(suspected_at_) > options_.verdict_seconds)) {
    Poison(suspicion_.status);
  }
}

void Engine::Poison(const Status& cause) {
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

}  // namespace tf_strategies

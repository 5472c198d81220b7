// Handles failures: a rank reports a suspected failure, the control plane decides on the cause, and every
// collective ends with it.

#include <set>

#include "ops/communicator/engine.h"

namespace tf_strategies {

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

// Checks for overdue collectives, reports, answers of the control plane, and suspected failures without an
// answer.
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
    for (const Job& job : jobs) recorder_.Ended(job.number, -1, cause_.code());
    for (const auto& running : running_) {
      recorder_.Ended(running->job.number, running->execution->last_peer(), cause_.code());
    }
  }
  if (!running_.empty()) transport_->Cancel();
  for (auto& running : running_) {
    jobs.push_back(running->job);
    abandoned_.push_back(std::move(running->job.request.keep_alive));
  }
  running_.clear();
  PublishOldest();
  for (Job& job : jobs) progress_.Complete(std::move(job.request.done), cause_);
}

}  // namespace tf_strategies

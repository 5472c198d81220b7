#include "ops/communicator/plans.h"

#include <algorithm>
#include <utility>

#include "ops/schedule/algorithms.h"
#include "ops/schedule/choose.h"
#include "ops/transport/transport.h"

namespace tf_strategies {
namespace {

std::vector<int64_t> Lengths(const std::vector<int64_t>& offsets) {
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < offsets.size(); ++i) lengths.push_back(offsets[i] - offsets[i - 1]);
  return lengths;
}

schedule::Schedule BuildSchedule(const Collective& collective, int rank, const schedule::Group& group) {
  const int size = group.size;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return schedule::AllReduceAlgorithms()[collective.algorithm].build(rank, group, collective.count);
    case CollectiveKind::kBroadcast:
      return schedule::BroadcastTree(rank, size, collective.count, collective.root);
    case CollectiveKind::kAllGather: return schedule::RingAllGather(rank, size, collective.offsets);
    case CollectiveKind::kAllToAll:
      return schedule::PairwiseAllToAll(rank, size, kMostSegment, Lengths(collective.offsets),
                                        Lengths(collective.receive_offsets));
    case CollectiveKind::kBarrier: break;
  }
  return schedule::RecursiveDoubling(rank, size, collective.count);
}

// The memory of a plan and its key.
size_t BytesOf(const Plan& plan, const Collective& collective) {
  const size_t offsets = collective.offsets.size() + collective.receive_offsets.size();
  return sizeof(Plan) + plan.pieces.size() * sizeof(Piece) +
         (plan.dependents.size() + plan.reductions.size()) * sizeof(int) +
         plan.finals.size() * sizeof(schedule::Range) + offsets * sizeof(int64_t);
}

}  // namespace

Status Plans::For(const Collective& collective, std::shared_ptr<const Plan>* plan) {
  const Key key{collective.kind, collective.algorithm, collective.dtype,          collective.count,
                collective.root, collective.offsets,   collective.receive_offsets};
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second.recent);
    *plan = found->second.plan;
    return Status::Ok();
  }
  TFS_RETURN_IF_ERROR(Make(collective, plan));
  const size_t bytes = BytesOf(**plan, collective);
  if (bytes > most_bytes_) return Status::Ok();  // it would displace all others
  while (!recent_.empty() && (plans_.size() >= kMostPlans || bytes_ + bytes > most_bytes_)) Forget();
  const auto kept = plans_.emplace(key, Entry{*plan, bytes, {}}).first;
  recent_.push_front(&kept->first);
  kept->second.recent = recent_.begin();
  bytes_ += bytes;
  return Status::Ok();
}

void Plans::Forget() {
  const auto oldest = plans_.find(*recent_.back());
  recent_.pop_back();
  bytes_ -= oldest->second.bytes;
  plans_.erase(oldest);
}

Status Plans::Make(const Collective& collective, std::shared_ptr<const Plan>* plan) const {
  const schedule::Schedule schedule = BuildSchedule(collective, rank_, group_);
  if (collective.kind == CollectiveKind::kAllToAll) {
    // Whole segments: nothing waits for a part of one.
    const auto locate = [&](const schedule::Action& action) {
      const bool sends = action.kind == schedule::ActionKind::kSend;
      return (sends ? collective.offsets : collective.receive_offsets)[action.peer];
    };
    return MakePlan(schedule, kMostSegment, locate, plan);
  }
  const int64_t chunk =
      std::max({int64_t{1}, chunk_bytes_ / static_cast<int64_t>(DTypeSize(collective.dtype)),
                collective.count / (kMostMessages / 4)});
  const bool in_parts = collective.kind == CollectiveKind::kAllReduce && !collective.offsets.empty();
  return in_parts ? MakePlan(schedule, chunk, collective.offsets, plan) : MakePlan(schedule, chunk, plan);
}

}  // namespace tf_strategies

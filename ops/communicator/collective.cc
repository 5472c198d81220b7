#include "ops/communicator/collective.h"

#include <algorithm>

#include "ops/schedule/algorithms.h"
#include "ops/schedule/choose.h"
#include "ops/transport/transport.h"

namespace tf_strategies {
namespace {

constexpr size_t kMostPlans = 1024;

// FNV-1a, folded to the bits that a message's signature has.
class Hash {
 public:
  Hash& Mix(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte, value >>= 8) state_ = (state_ ^ (value & 0xff)) * 1099511628211u;
    return *this;
  }
  uint32_t Fold() const {
    const uint64_t folded = state_ ^ state_ >> kSignatureBits ^ state_ >> (2 * kSignatureBits);
    return static_cast<uint32_t>(folded & ((1 << kSignatureBits) - 1));
  }

 private:
  uint64_t state_ = 14695981039346656037u;
};

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

}  // namespace

const char* CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all_reduce";
    case CollectiveKind::kBroadcast: return "broadcast";
    case CollectiveKind::kAllGather: return "all_gather";
    case CollectiveKind::kAllToAll: return "all_to_all";
    case CollectiveKind::kBarrier: return "barrier";
  }
  return "unknown";
}

std::string Collective::Describe() const {
  std::string text = std::string(CollectiveKindName(kind)) + " '" + name + "'";
  if (!layout.empty()) text += " (" + layout + ")";
  if (kind == CollectiveKind::kBarrier) return text;
  text += std::string(": ") + DTypeName(dtype) + " " +
          (shape.empty() ? "[" + std::to_string(count) + "]" : shape);
  if (kind == CollectiveKind::kAllReduce) text += std::string(", ") + ReduceOpName(op);
  if (kind == CollectiveKind::kBroadcast) text += ", from rank " + std::to_string(root);
  return text;
}

uint32_t Collective::Signature(uint32_t uses) const {
  Hash hash;
  hash.Mix(static_cast<uint64_t>(kind)).Mix(static_cast<uint64_t>(op)).Mix(static_cast<uint64_t>(dtype));
  hash.Mix(root).Mix(algorithm).Mix(uses);
  if (kind != CollectiveKind::kAllToAll) {  // whose ranks have each a count and offsets of their own
    hash.Mix(count);
    for (int64_t offset : offsets) hash.Mix(offset);
  }
  for (char character : shape) hash.Mix(static_cast<unsigned char>(character));
  for (char character : layout) hash.Mix(static_cast<unsigned char>(character));
  for (char character : name) {
    if (character != '_' && (character < '0' || character > '9'))
      hash.Mix(static_cast<unsigned char>(character));
  }
  return hash.Fold();
}

Status Plans::For(const Collective& collective, std::shared_ptr<const Plan>* plan) {
  const Key key{collective.kind, collective.algorithm, collective.dtype,          collective.count,
                collective.root, collective.offsets,   collective.receive_offsets};
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    *plan = found->second;
    return Status::Ok();
  }
  TFS_RETURN_IF_ERROR(Make(collective, plan));
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_[key] = *plan;
  return Status::Ok();
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

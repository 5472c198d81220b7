#include "ops/communicator/collective.h"

#include <algorithm>

#include "ops/schedule/algorithms.h"
#include "ops/schedule/choose.h"

namespace tf_strategies {
namespace {

constexpr size_t kMostPlans = 1024;

// FNV-1a, folded to 6 bits.
class Hash {
 public:
  Hash& Mix(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte, value >>= 8) state_ = (state_ ^ (value & 0xff)) * 1099511628211u;
    return *this;
  }
  uint16_t Fold() const {
    uint64_t folded = state_ ^ state_ >> 32;
    folded ^= folded >> 16;
    folded ^= folded >> 8;
    return static_cast<uint16_t>(folded & 0x3f);
  }

 private:
  uint64_t state_ = 14695981039346656037u;
};

schedule::Schedule BuildSchedule(const Collective& collective, int rank, int size) {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return schedule::AllReduceAlgorithms()[collective.algorithm].build(rank, size, collective.count);
    case CollectiveKind::kBroadcast:
      return schedule::BroadcastTree(rank, size, collective.count, collective.root);
    case CollectiveKind::kAllGather: return schedule::RingAllGather(rank, size, collective.offsets);
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
    case CollectiveKind::kBarrier: return "barrier";
  }
  return "unknown";
}

std::string Collective::Describe() const {
  std::string text = std::string(CollectiveKindName(kind)) + " '" + name + "'";
  if (kind == CollectiveKind::kBarrier) return text;
  text += std::string(": ") + DTypeName(dtype) + " " +
          (shape.empty() ? "[" + std::to_string(count) + "]" : shape);
  if (kind == CollectiveKind::kAllReduce) text += std::string(", ") + ReduceOpName(op);
  if (kind == CollectiveKind::kBroadcast) text += ", from rank " + std::to_string(root);
  return text;
}

uint16_t Collective::Signature(uint8_t uses) const {
  const int code = kind == CollectiveKind::kAllReduce ? static_cast<int>(op) : 4 + static_cast<int>(kind);
  Hash hash;
  hash.Mix(count).Mix(root).Mix(algorithm);
  for (int64_t offset : offsets) hash.Mix(offset);
  for (char character : shape) hash.Mix(static_cast<unsigned char>(character));
  return static_cast<uint16_t>(code << 12 | static_cast<int>(dtype) << 9 | (uses & 0x7) << 6 | hash.Fold());
}

Status Plans::For(const Collective& collective, std::shared_ptr<const Plan>* plan) {
  const Key key{collective.kind,  collective.algorithm, collective.dtype,
                collective.count, collective.root,      collective.offsets};
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    *plan = found->second;
    return Status::Ok();
  }
  const int64_t chunk =
      std::max<int64_t>(1, chunk_bytes_ / static_cast<int64_t>(DTypeSize(collective.dtype)));
  TFS_RETURN_IF_ERROR(MakePlan(BuildSchedule(collective, rank_, size_), chunk, plan));
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_[key] = *plan;
  return Status::Ok();
}

}  // namespace tf_strategies

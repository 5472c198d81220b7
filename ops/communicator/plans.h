// Plans by collective: made once, and kept as long as they are used.
#ifndef OPS_COMMUNICATOR_PLANS_H_
#define OPS_COMMUNICATOR_PLANS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "ops/base/dtype.h"
#include "ops/base/status.h"
#include "ops/communicator/collective.h"
#include "ops/communicator/plan.h"
#include "ops/schedule/group.h"

namespace tf_strategies {

// Makes plans, and keeps the most recently used ones, up to a number and to the bytes they take. Not thread-safe.
class Plans {
 public:
  static constexpr size_t kMostPlans = 1024;
  static constexpr size_t kMostBytes = size_t{64} << 20;

  Plans(int rank, const schedule::Group& group, int64_t chunk_bytes, size_t most_bytes = kMostBytes)
      : rank_(rank), group_(group), chunk_bytes_(chunk_bytes), most_bytes_(most_bytes) {}

  Status For(const Collective& collective, std::shared_ptr<const Plan>* plan);

  size_t size() const { return plans_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  using Key =
      std::tuple<CollectiveKind, int, DType, int64_t, int, std::vector<int64_t>, std::vector<int64_t>>;
  struct Entry {
    std::shared_ptr<const Plan> plan;
    size_t bytes;
    std::list<const Key*>::iterator recent;
  };

  Status Make(const Collective& collective, std::shared_ptr<const Plan>* plan) const;
  void Forget();

  const int rank_;
  const schedule::Group group_;
  const int64_t chunk_bytes_;
  const size_t most_bytes_;
  std::map<Key, Entry> plans_;
  std::list<const Key*> recent_;  // the most recently used first
  size_t bytes_ = 0;
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_PLANS_H_

// Name: ring all-gather of segments of different lengths.
// Restrictions: none.
// Steps: P-1.
// Bytes per rank: sends all segments but its right neighbour's.
// Order of rounding: nothing is rounded.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//   2005.
#include "ops/base/check.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {

Schedule RingAllGather(int rank, int size, const std::vector<int64_t>& offsets) {
  TFS_CHECK_EQ(offsets.size(), static_cast<size_t>(size) + 1);
  TFS_CHECK_EQ(offsets.front(), 0);
  Schedule schedule{rank, size, offsets.back(), {}};
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  const auto segment = [&](int index) {
    const int owner = (index + size) % size;
    return Range{offsets[owner], offsets[owner + 1]};
  };
  for (int t = 0; t < size - 1; ++t) {
    AppendStep(&schedule, {{ActionKind::kSend, right, segment(rank - t)},
                           {ActionKind::kReceiveCopy, left, segment(rank - t - 1)}});
  }
  return schedule;
}

}  // namespace tf_strategies::schedule

// Name: all-to-all by pairwise exchange, of segments of different lengths.
// Restrictions: none.
// Steps: P-1: in step s to rank r + s and from rank r - s.
// Bytes per rank: sends its segments for the others and receives theirs for it, each once.
// Order of rounding: nothing is rounded.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//   2005.
#include "ops/base/check.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {

Range AllToAllSegment(int size, int from, int to, int64_t slot, int64_t length) {
  const int64_t begin = (static_cast<int64_t>(to) * size + from) * slot;
  return {begin, begin + length};
}

Schedule PairwiseAllToAll(int rank, int size, int64_t slot, const std::vector<int64_t>& sends,
                          const std::vector<int64_t>& receives) {
  TFS_CHECK_EQ(sends.size(), static_cast<size_t>(size));
  TFS_CHECK_EQ(receives.size(), static_cast<size_t>(size));
  Schedule schedule{rank, size, size * slot * size, {}};
  for (int s = 1; s < size; ++s) {
    const int to = (rank + s) % size;
    const int from = (rank + size - s) % size;
    TFS_CHECK_LE(sends[to], slot);
    TFS_CHECK_LE(receives[from], slot);
    AppendStep(&schedule,
               {{ActionKind::kSend, to, AllToAllSegment(size, rank, to, slot, sends[to])},
                {ActionKind::kReceiveCopy, from, AllToAllSegment(size, from, rank, slot, receives[from])}});
  }
  return schedule;
}

}  // namespace tf_strategies::schedule

// Name: ring all-reduce.
// Restrictions: none.
// Steps: 2(P-1): P-1 of reduce-scatter, P-1 of all-gather.
// Bytes per rank: sends 2n less two segments and reduces n less one: 2n(P-1)/P and n(P-1)/P when P divides n.
// Order of rounding: segment s starts at rank s and is added to by ranks s+1, s+2, ... in turn; the last
//   one's sum is copied.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
//
// The buffer is cut in P segments. In reduce-scatter step t rank r sends segment r-t to its right neighbour
// and adds what comes from the left to segment r-t-1, so that it ends with the whole sum of segment r+1. The
// all-gather passes the sums once around.
#include "ops/schedule/algorithms.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {

Schedule Ring(int rank, int size, int64_t count) {
  Schedule schedule{rank, size, count, {}};
  if (size == 1) return schedule;
  schedule.steps.reserve(2 * (size - 1));
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  const auto segment = [&](int index) { return Part({0, count}, size, ((index % size) + size) % size); };
  for (int t = 0; t < size - 1; ++t) {
    AppendStep(&schedule, {{ActionKind::kSend, right, segment(rank - t)},
                           {ActionKind::kReceiveReduce, left, segment(rank - t - 1)}});
  }
  for (int t = 0; t < size - 1; ++t) {
    AppendStep(&schedule, {{ActionKind::kSend, right, segment(rank + 1 - t)},
                           {ActionKind::kReceiveCopy, left, segment(rank - t)}});
  }
  return schedule;
}

}  // namespace tf_strategies::schedule

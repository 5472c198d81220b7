// Name: broadcast along a binomial tree.
// Restrictions: none.
// Steps: ceil(lg P) on the longest way.
// Bytes per rank: the root sends n ceil(lg P); half of the ranks send nothing.
// Order of rounding: nothing is rounded.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//   2005.
//
// Ranks are numbered from the root. The parent of v is v without its lowest set bit; the largest subtree is
// served first.
#include "ops/base/check.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {

Schedule BroadcastTree(int rank, int size, int64_t count, int root) {
  TFS_CHECK_GE(root, 0);
  TFS_CHECK_LT(root, size);
  Schedule schedule{rank, size, count, {}};
  const Range whole{0, count};
  const int position = (rank - root + size) % size;
  const auto rank_at = [&](int at) { return (at + root) % size; };
  int bit = 1;
  while (bit < size && !(position & bit)) bit *= 2;
  if (position != 0) AppendStep(&schedule, {{ActionKind::kReceiveCopy, rank_at(position - bit), whole}});
  for (bit /= 2; bit >= 1; bit /= 2) {
    if (position + bit < size) AppendStep(&schedule, {{ActionKind::kSend, rank_at(position + bit), whole}});
  }
  return schedule;
}

}  // namespace tf_strategies::schedule

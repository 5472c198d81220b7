// Name: broadcast along a binomial tree, acknowledged.
// Restrictions: none.
// Steps: ceil(lg P) on the longest way, and as many back.
// Bytes per rank: the root sends n ceil(lg P); half of the ranks send one element.
// Order of rounding: nothing is rounded.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//   2005.
//
// Ranks are numbered from the root. The parent of v is v without its lowest set bit; the largest subtree is
// served first. The last element then travels back, from each rank once its children have sent theirs: so the
// root ends after all others have what it sent, and hears of what went wrong with them.
#include <algorithm>

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
  const int lowest = bit;  // of the set bits of the position; beyond the size for the root
  if (position != 0) AppendStep(&schedule, {{ActionKind::kReceiveCopy, rank_at(position - bit), whole}});
  for (bit /= 2; bit >= 1; bit /= 2) {
    if (position + bit < size) AppendStep(&schedule, {{ActionKind::kSend, rank_at(position + bit), whole}});
  }
  const Range last{std::max<int64_t>(count, 1) - 1, count};
  for (bit = 1; bit < lowest; bit *= 2) {
    if (position + bit < size)
      AppendStep(&schedule, {{ActionKind::kReceiveCopy, rank_at(position + bit), last}});
  }
  if (position != 0) AppendStep(&schedule, {{ActionKind::kSend, rank_at(position - lowest), last}});
  return schedule;
}

}  // namespace tf_strategies::schedule

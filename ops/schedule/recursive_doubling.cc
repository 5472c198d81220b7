// Name: recursive doubling all-reduce.
// Restrictions: none; best for short messages and a power of two of ranks.
// Steps: lg P; floor(lg P) + 2 when P is not a power of two.
// Bytes per rank: sends and reduces n lg P; one n more each for a rank that serves an extra rank.
// Order of rounding: partners add the same two operands in the two orders, so that all ranks form the same
//   bits as long as the operation is commutative bit for bit; the sum of 2^j neighbours is a balanced tree.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//   2005.
//
// With B the largest power of two up to P, extra rank B+i first gives its whole buffer to rank i and last
// gets the result.
#include "ops/schedule/algorithms.h"
#include "ops/schedule/chunking.h"
#include "ops/schedule/halving.h"

namespace tf_strategies::schedule {

Schedule RecursiveDoubling(int rank, int size, int64_t count) {
  Schedule schedule{rank, size, count, {}};
  const Range whole{0, count};
  const int main = FloorPowerOfTwo(size);
  if (rank >= main) {
    AppendStep(&schedule, {{ActionKind::kSend, rank - main, whole}});
    AppendStep(&schedule, {{ActionKind::kReceiveCopy, rank - main, whole}});
    return schedule;
  }
  const bool serves = rank + main < size;
  if (serves) AppendStep(&schedule, {{ActionKind::kReceiveReduce, rank + main, whole}});
  for (int distance = 1; distance < main; distance *= 2) {
    const int peer = rank ^ distance;
    AppendStep(&schedule, {{ActionKind::kSend, peer, whole}, {ActionKind::kReceiveReduce, peer, whole}});
  }
  if (serves) AppendStep(&schedule, {{ActionKind::kSend, rank + main, whole}});
  return schedule;
}

}  // namespace tf_strategies::schedule

// Name: recursive halving-doubling all-reduce.
// Restrictions: none; made for a power of two of ranks.
// Steps: 2 lg P; 2 floor(lg P) + 3 when P is not a power of two.
// Bytes per rank: sends 2n(P-1)/P, reduces n(P-1)/P (up to lg P elements more when P does not divide n);
//   twice the bytes and 1.5 times the reduction for a rank that serves an extra rank.
// Order of rounding: an element is summed over the ranks that differ in the highest bit first, then the next;
//   the sum is formed once, by the owner of its piece, and copied.
// Source: Rabenseifner, "Optimization of collective reduction operations", 2004.
//
// With B the largest power of two up to P, extra rank B+i and rank i first exchange halves and add them; the
// extra rank hands its summed half over, and gets the whole result at the end.
#include "ops/schedule/algorithms.h"
#include "ops/schedule/chunking.h"
#include "ops/schedule/halving.h"

namespace tf_strategies::schedule {

Schedule HalvingDoubling(int rank, int size, int64_t count) {
  Schedule schedule{rank, size, count, {}};
  const Range whole{0, count};
  const Range lower = LowerHalf(whole);
  const Range upper = UpperHalf(whole);
  const int main = FloorPowerOfTwo(size);
  if (rank >= main) {
    const int peer = rank - main;
    AppendStep(&schedule, {{ActionKind::kSend, peer, lower}, {ActionKind::kReceiveReduce, peer, upper}});
    AppendStep(&schedule, {{ActionKind::kSend, peer, upper}});
    AppendStep(&schedule, {{ActionKind::kReceiveCopy, peer, whole}});
    return schedule;
  }
  const int extra = rank + main;
  if (extra < size) {
    AppendStep(&schedule, {{ActionKind::kSend, extra, upper}, {ActionKind::kReceiveReduce, extra, lower}});
    AppendStep(&schedule, {{ActionKind::kReceiveCopy, extra, upper}});
  }
  AppendReduceScatter(whole, {0, main}, &schedule);
  AppendAllGather(whole, {0, main}, &schedule);
  if (extra < size) AppendStep(&schedule, {{ActionKind::kSend, extra, whole}});
  return schedule;
}

}  // namespace tf_strategies::schedule

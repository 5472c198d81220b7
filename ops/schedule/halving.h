// Recursive halving and doubling inside a group of 2^k neighbouring ranks. halving_doubling and binary_blocks
// use it.
//
// The buffer is halved k times. At level 1 the ranks whose highest bit is 0 keep the lower half, at level 2
// the next bit decides, and so on: the rank with index i in its group ends with *piece* i of the 2^k pieces
// in order. Pieces of groups of different sizes nest: piece i of 2^k holds pieces 2i and 2i+1 of 2^(k+1).
#ifndef OPS_SCHEDULE_HALVING_H_
#define OPS_SCHEDULE_HALVING_H_

#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

// The largest power of two that is not above value. value >= 1.
int FloorPowerOfTwo(int value);

// The exponent of a power of two.
int Log2(int power_of_two);

// Ranks [first, first + size) of the schedule's group; size is a power of two.
struct PowerOfTwoGroup {
  int first = 0;
  int size = 1;
};

// Piece `index` of `pieces` (a power of two); may be empty.
Range HalvingPiece(const Range& whole, int pieces, int index);

// Appends the steps of a reduce-scatter by recursive halving: at most Log2(group.size) steps, each sends the
// other half and adds the kept one. Afterwards the schedule's rank holds its piece, summed over the group.
void AppendReduceScatter(const Range& whole, const PowerOfTwoGroup& group, Schedule* schedule);

// Appends the steps of an all-gather by recursive doubling, the reduce-scatter backwards.
void AppendAllGather(const Range& whole, const PowerOfTwoGroup& group, Schedule* schedule);

}  // namespace tf_strategies::schedule

#endif  // OPS_SCHEDULE_HALVING_H_

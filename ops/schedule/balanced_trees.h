// All-reduce of a few elements, in which no rank exceeds its share by a single element. binary_blocks uses it
// for the elements that its blocks cannot split evenly.
//
// A range of d*s elements is cut in d segments of s elements. Segment i is summed up a tree and copied back
// down it. A rank may have children in several of the d trees, but never more than d in all. So it adds at
// most d*s elements, and sends at most d*s upwards and d*s downwards: n and 2n for the n elements of the
// range. With d = 1 the tree is a chain, and for one element no other way keeps the bound: a rank that may
// add once has one child.
#ifndef OPS_SCHEDULE_BALANCED_TREES_H_
#define OPS_SCHEDULE_BALANCED_TREES_H_

#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

// A rank's place in one tree. Positions count ranks from the root, around: position p is rank (root + p) mod
// size.
struct TreePlace {
  int root = 0;           // rank
  int root_children = 0;  // how many children the root has
  int parent = -1;        // rank; -1 at the root
  int first_child = 0;    // position; the others follow
  int children = 0;
};

// The place of `rank` in tree `tree` of `trees` over `size` ranks.
TreePlace BalancedTreePlace(int rank, int size, int trees, int tree);

// Appends the steps of all trees for range; trees divides range.size().
void AppendBalancedTrees(const Range& range, int trees, Schedule* schedule);

}  // namespace tf_strategies::schedule

#endif  // OPS_SCHEDULE_BALANCED_TREES_H_

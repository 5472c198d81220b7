// The list of algorithms, as functions from (rank, size, count) to a Schedule. Each is defined in the file of its name,
// which opens with its card: restrictions, steps, bytes per rank, order of rounding, source.
#ifndef OPS_SCHEDULE_ALGORITHMS_H_
#define OPS_SCHEDULE_ALGORITHMS_H_

#include <cstdint>
#include <vector>

#include "ops/schedule/group.h"
#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

// All-reduce. Every rank ends with the same bits in every element. 0 <= rank < size, count >= 0.
Schedule Ring(int rank, int size, int64_t count);
Schedule RecursiveDoubling(int rank, int size, int64_t count);  // any size: extra ranks are folded in first
Schedule HalvingDoubling(int rank, int size, int64_t count);    // any size: extra ranks are folded in first
Schedule BinaryBlocks(int rank, int size, int64_t count);

// All-reduce over hosts with `per_host` ranks each, numbered host by host: inside the hosts by rings, across
// them by `across`. per_host divides size.
using BuildAllReduce = Schedule (*)(int rank, const Group& group, int64_t count);
Schedule Hierarchical(int rank, int size, int64_t count, int per_host, BuildAllReduce across);

// Broadcast of the root's buffer along a binomial tree.
Schedule BroadcastTree(int rank, int size, int64_t count, int root);

// All-gather: rank r contributes elements [offsets[r], offsets[r+1]); offsets has size + 1 entries, non-decreasing,
// offsets[0] == 0. count is offsets[size].
Schedule RingAllGather(int rank, int size, const std::vector<int64_t>& offsets);

// All-to-all: a rank sends sends[j] elements to rank j and receives receives[i] from rank i, none of them
// more than `slot`. Elements are numbered as if every rank had a buffer of size * size slots, by receiver and
// then by sender, in which a segment begins its slot; a rank needs memory only for its own. The segment of a
// rank for itself is not moved.
Range AllToAllSegment(int size, int from, int to, int64_t slot, int64_t length);
Schedule PairwiseAllToAll(int rank, int size, int64_t slot, const std::vector<int64_t>& sends,
                          const std::vector<int64_t>& receives);

}  // namespace tf_strategies::schedule

#endif  // OPS_SCHEDULE_ALGORITHMS_H_

// Chooses the all-reduce algorithm for a group and a message size.
#ifndef OPS_SCHEDULE_CHOOSE_H_
#define OPS_SCHEDULE_CHOOSE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/schedule/group.h"
#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

struct Algorithm {
  const char* name;  // "ring", "recursive_doubling", "halving_doubling", "binary_blocks", "hierarchical"
  Schedule (*build)(int rank, const Group& group, int64_t count);
};

// All of them, in a fixed order: the position is the algorithm's id on the wire and in statistics.
const std::vector<Algorithm>& AllReduceAlgorithms();

// Returns nullptr when no algorithm has that name.
const Algorithm* FindAlgorithm(const std::string& name);

// The algorithm for a message of `bytes` bytes: a function of its arguments alone, so that all ranks agree.
const Algorithm& Choose(const Group& group, int64_t bytes);

}  // namespace tf_strategies::schedule

#endif  // OPS_SCHEDULE_CHOOSE_H_

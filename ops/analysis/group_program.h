// GroupProgram: the schedules of all ranks of a group, in packed form, for verification and simulation.
//
// A *channel* is a pair (sender, receiver). Ranges and channels are numbered and stored once. So a packed action takes 8
// bytes, and a ring of 4097 ranks (67 million actions) fits in memory.
#ifndef OPS_ANALYSIS_GROUP_PROGRAM_H_
#define OPS_ANALYSIS_GROUP_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/base/status.h"
#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

// Returns the schedule of one rank. It is called several times for a rank, and must return the same result.
using BuildRank = std::function<Schedule(int rank)>;

struct PackedAction {
  uint32_t channel;
  uint32_t range : 29;
  uint32_t kind : 2;
  uint32_t ends_step : 1;
};

struct Channel {
  int sender = 0;
  int receiver = 0;
  int64_t sends = 0;       // the number of sends in the sender's schedule
  int64_t receptions = 0;  // the number of receptions in the receiver's schedule
};

struct GroupProgram {
  int size = 0;
  int64_t count = 0;
  std::vector<std::vector<PackedAction>> ranks;
  std::vector<Channel> channels;
  std::vector<Range> ranges;
};

// Builds and packs all schedules. It checks the parts of the contract of step.h that concern a single rank: peers and
// ranges are valid, nothing is empty, and receptions of a step do not overlap. Errors name rank, step and action.
Status PackGroup(int size, int64_t count, const BuildRank& build, GroupProgram* program);

// Returns "send [0,4) to rank 2", "add [0,4) from rank 1", "copy [0,4) from rank 1".
std::string DescribeAction(const Action& action);

// Returns "rank 3, step 1, action 0 (send [0,4) to rank 2)" for action `index` of a rank, counted over all steps.
std::string DescribePlace(const BuildRank& build, int rank, int64_t index);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_GROUP_PROGRAM_H_

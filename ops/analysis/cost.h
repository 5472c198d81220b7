// What a schedule costs: counted, and predicted in seconds.
#ifndef OPS_ANALYSIS_COST_H_
#define OPS_ANALYSIS_COST_H_

#include <cstdint>

#include "ops/analysis/group_program.h"
#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

// Counted from one schedule, or over a group.
struct Cost {
  int64_t steps = 0;
  int64_t messages_sent = 0;
  int64_t messages_received = 0;
  int64_t elements_sent = 0;
  int64_t elements_reduced = 0;
};

Cost CountCost(const Schedule& schedule);

struct GroupCost {
  Cost most;   // the largest of each over all ranks
  Cost total;  // summed over all ranks
};

GroupCost CountGroupCost(int size, const BuildRank& build);

// The machine, in the terms of Thakur, Rabenseifner and Gropp 2005; the defaults are shared memory on one
// host.
struct CostModel {
  double alpha = 5e-6;         // seconds a message
  double beta = 1 / 4e9;       // seconds a byte sent
  double gamma = 1 / 8e9;      // seconds a byte reduced
  int64_t chunk_elements = 0;  // messages are cut at multiples of this; 0: not cut
  bool steps_overlap = false;  // false: a step starts when the one before is complete
};

// Predicts the seconds from a common start until the last rank is done, by playing all messages of all ranks.
//
// A rank sends one message at a time, and each takes alpha + bytes * beta, at the end of which it has
// arrived. A rank adds one message at a time, in bytes * gamma. Receiving takes a rank no time of its own. A
// message may be sent when the last reception that writes to its range is complete. With steps_overlap
// nothing else holds it back, and of those that may be sent the first listed goes first: this is the
// executor's way. Without, the closed forms of the literature hold.
//
// build yields valid schedules (verify.h). element_bytes > 0.
double PredictSeconds(int size, int64_t element_bytes, const CostModel& model, const BuildRank& build);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_COST_H_

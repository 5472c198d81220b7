// The cost of a schedule: counts of its messages and elements, and its predicted time.
#ifndef OPS_ANALYSIS_COST_H_
#define OPS_ANALYSIS_COST_H_

#include <cstdint>

#include "ops/analysis/group_program.h"
#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

// The counts of one schedule, or of a group.
struct Cost {
  int64_t steps = 0;
  int64_t messages_sent = 0;
  int64_t messages_received = 0;
  int64_t elements_sent = 0;
  int64_t elements_reduced = 0;
};

Cost CountCost(const Schedule& schedule);

struct GroupCost {
  Cost most;   // the largest value of each count over all ranks
  Cost total;  // summed over all ranks
};

GroupCost CountGroupCost(int size, const BuildRank& build);

// The parameters of a machine, as in Thakur, Rabenseifner and Gropp 2005. The defaults describe shared memory on one
// host.
struct CostModel {
  double alpha = 5e-6;         // seconds for each message
  double beta = 1 / 4e9;       // seconds for each byte sent
  double gamma = 1 / 8e9;      // seconds for each byte reduced
  int64_t chunk_elements = 0;  // messages are cut at multiples of this; 0: not cut
  bool steps_overlap = false;  // false: a step starts when the previous one is complete
};

// Predicts the seconds from a common start until the last rank has finished, by a simulation of all messages.
//
// A rank sends one message at a time. A message arrives after alpha + bytes * beta. A rank adds one message at a time,
// in bytes * gamma. Receiving takes no additional time. A message can be sent when the last reception that writes to its
// range is complete. With steps_overlap there is no other condition, and the first such message in the list is sent
// first, as the executor does. Without steps_overlap the results are the closed forms of the literature.
//
// build: must return valid schedules (verify.h). element_bytes: positive.
double PredictSeconds(int size, int64_t element_bytes, const CostModel& model, const BuildRank& build);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_COST_H_

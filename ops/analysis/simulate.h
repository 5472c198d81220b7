// Simulates the schedules of a group over a network with shared links.
#ifndef OPS_ANALYSIS_SIMULATE_H_
#define OPS_ANALYSIS_SIMULATE_H_

#include <cstdint>
#include <vector>

#include "ops/analysis/group_program.h"
#include "ops/analysis/topology.h"

namespace tf_strategies::schedule {

struct Simulated {
  double seconds = 0;           // from a common start until the last rank has finished
  int64_t messages = 0;         // the number of messages of all ranks
  int64_t messages_played = 0;  // the number of simulated messages, without those of skipped steps; see below
  std::vector<double> carried;  // the bytes over each link of the network
};

// A rank sends one message at a time. First the latency passes, and then the bytes flow at the max-min fair rate
// (fair_sharing.h). The message has arrived when its last byte has left. A rank adds one message at a time, with gamma
// seconds for each byte. A step starts when the previous one is complete. Messages are not cut. If no links are shared,
// the result is that of PredictSeconds (cost.h) without chunks and overlap.
//
// If all ranks repeat a step, and the state relative to the clock is the same as one step before, the future repeats,
// too. Then the equal steps that all ranks still have are counted, and not simulated. A ring over 4096 ranks has 33
// million messages. Few of them are simulated if each host has its own NIC and switch. If the ranks of a host share a
// bus, all of them are simulated, because the steps never repeat exactly; there the results differed by less than 0.1 %
// through rounding.
//
// program: from PackGroup; must pass verify.h. element_bytes: positive. The result is deterministic.
Simulated Simulate(const GroupProgram& program, int64_t element_bytes, const Topology& topology,
                   bool skip_repetitions = true);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_SIMULATE_H_

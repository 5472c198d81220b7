// Plays the schedules of a group over a network whose links are shared.
#ifndef OPS_ANALYSIS_SIMULATE_H_
#define OPS_ANALYSIS_SIMULATE_H_

#include <cstdint>
#include <vector>

#include "ops/analysis/group_program.h"
#include "ops/analysis/topology.h"

namespace tf_strategies::schedule {

struct Simulated {
  double seconds = 0;           // from a common start until the last rank is done
  int64_t messages = 0;         // sent by all ranks
  int64_t messages_played = 0;  // without those of repeated steps that were skipped, see below
  std::vector<double> carried;  // bytes over each of the network's links: rates added up over time
};

// A rank sends one message at a time: the latency passes, then the bytes flow at the max-min fair rate
// (fair_sharing.h), and when the last has left it has arrived. A rank adds one message at a time, gamma
// seconds a byte. A step starts when the one before is complete; messages are not cut. So with links that
// nobody shares it is PredictSeconds (cost.h) without chunks and overlap.
//
// Where all ranks repeat a step and everything under way stands, relative to the clock, as it stood one step
// before, what follows repeats too: then the steps that all ranks still have alike are counted, not played.
// Of the 33 million messages of a ring over 4096 ranks few are played where each host has its own NIC and
// switch; all of them where a host's ranks share a bus, for there the steps never quite repeat.
// There rounding alone moves the result, by less than 0.1 % where it was tried.
//
// The program comes from PackGroup and passes verify.h. element_bytes > 0. Deterministic.
Simulated Simulate(const GroupProgram& program, int64_t element_bytes, const Topology& topology,
                   bool skip_repetitions = true);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_SIMULATE_H_

// The state of one rank in a simulation: its current step, and its message in flight.
#ifndef OPS_ANALYSIS_SIMULATED_RANK_H_
#define OPS_ANALYSIS_SIMULATED_RANK_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/analysis/group_program.h"

namespace tf_strategies::schedule {

struct SimulatedRank {
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // The state of an action of the current step.
  enum class Progress : uint8_t { kWaits, kArrived, kReducing, kDone };

  // The number of steps after the current one that are like it.
  int64_t StepsAlike() const;

  // Moves to the same point of a later step, which is like the current one.
  void Skip(int64_t count);

  // Appends all values that determine the future, relative to the clock and to the step of a leader.
  void AppendState(int64_t leader_steps, double now, std::vector<double>* state) const;

  size_t begin = 0;  // the current step is actions [begin, end)
  size_t end = 0;
  size_t open = 0;       // the number of its actions that are not done
  size_t next_send = 0;  // the search for the next send starts here
  size_t alike_end = 0;  // all steps from the current one to here move the same bytes in the same way
  std::vector<Progress> progress;
  // The message in flight: first it waits for the latency, then it flows.
  bool sending = false;
  bool flowing = false;
  uint32_t version = 0;
  uint32_t channel = 0;
  double rate = 0;
  double left = 0;  // bytes, at `since`
  double since = 0;
  double sent_at = 0;  // the time of the next change
  size_t reducing = kNone;
  double reduced_at = 0;
  int64_t steps = 0;  // the number of started steps
};

// Returns the end of the steps of rank `id` that are like the `length` actions from `begin`.
size_t EndOfAlike(const GroupProgram& program, int id, size_t begin, size_t length);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_SIMULATED_RANK_H_

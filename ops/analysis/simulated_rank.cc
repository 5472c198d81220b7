#include "ops/analysis/simulated_rank.h"

namespace tf_strategies::schedule {

int64_t SimulatedRank::StepsAlike() const {
  if (end == begin) return 0;
  return static_cast<int64_t>((alike_end - end) / (end - begin));
}

void SimulatedRank::Skip(int64_t count) {
  const size_t actions = count * (end - begin);
  begin += actions;
  end += actions;
  next_send += actions;
  if (reducing != kNone) reducing += actions;
  steps += count;
}

void SimulatedRank::AppendState(int64_t leader_steps, double now, std::vector<double>* state) const {
  state->push_back(static_cast<double>(steps - leader_steps));
  state->push_back(static_cast<double>(next_send - begin));
  state->push_back(sending ? (flowing ? 2 : 1) : 0);
  state->push_back(sending ? sent_at - now : 0);
  state->push_back(reducing == kNone ? -1 : static_cast<double>(reducing - begin));
  state->push_back(reducing == kNone ? 0 : reduced_at - now);
  for (Progress each : progress) state->push_back(static_cast<double>(each));
}

size_t EndOfAlike(const GroupProgram& program, int id, size_t begin, size_t length) {
  const std::vector<PackedAction>& actions = program.ranks[id];
  const auto bytes = [&](const PackedAction& action) { return program.ranges[action.range].size(); };
  size_t end = begin + length;
  for (; end < actions.size(); ++end) {
    const PackedAction& now = actions[end];
    const PackedAction& before = actions[end - length];
    if (now.channel != before.channel || now.kind != before.kind || now.ends_step != before.ends_step ||
        bytes(now) != bytes(before)) {
      break;
    }
  }
  return begin + (end - begin) / length * length;
}

}  // namespace tf_strategies::schedule

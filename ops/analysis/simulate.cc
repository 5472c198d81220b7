#include "ops/analysis/simulate.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "ops/analysis/fair_sharing.h"
#include "ops/analysis/repetition.h"
#include "ops/analysis/simulated_rank.h"
#include "ops/base/check.h"

namespace tf_strategies::schedule {
namespace {

constexpr auto kSend = static_cast<uint32_t>(ActionKind::kSend);
constexpr auto kReceiveReduce = static_cast<uint32_t>(ActionKind::kReceiveReduce);

// Events that differ only by rounding happen at the same instant.
constexpr double kSameInstant = 1e-12;

class Simulation {
 public:
  Simulation(const GroupProgram& program, int64_t element_bytes, const Topology& topology)
      : program_(program),
        element_bytes_(static_cast<double>(element_bytes)),
        gamma_(topology.gamma),
        network_(topology, program.size),
        sharing_(network_.links(), program.size),
        ranks_(program.size),
        arrived_(program.channels.size(), 0),
        carried_(network_.links().size(), 0) {}

  Simulated Run(bool skip_repetitions) {
    for (int rank = 0; rank < program_.size; ++rank) StartStep(rank);
    UpdateRates();
    while (!events_.empty()) {
      const double instant = events_.top().seconds * (1 + kSameInstant);
      while (!events_.empty() && events_.top().seconds <= instant) {
        const Event event = events_.top();
        events_.pop();
        if (event.kind != EventKind::kReduced && event.version != ranks_[event.rank].version) continue;
        now_ = std::max(now_, event.seconds);
        Handle(event);
      }
      UpdateRates();
      if (leader_stepped_ && skip_repetitions) SkipRepetitions();
    }
    for (int rank = 0; rank < program_.size; ++rank) {
      TFS_CHECK_EQ(ranks_[rank].begin, program_.ranks[rank].size());
    }
    Simulated result;
    result.seconds = now_ + skipped_seconds_;
    for (const Channel& channel : program_.channels) result.messages += channel.sends;
    result.messages_played = played_;
    result.carried = std::move(carried_);
    return result;
  }

 private:
  enum class EventKind : uint8_t { kFlows, kSent, kReduced };
  struct Event {
    double seconds;
    int rank;
    uint32_t version;  // for a send: a later version replaces this event
    EventKind kind;
    // The earliest event is on top. Ties are ordered by rank, so that runs are deterministic.
    bool operator<(const Event& other) const {
      if (seconds != other.seconds) return seconds > other.seconds;
      return rank != other.rank ? rank > other.rank : kind > other.kind;
    }
  };

  const PackedAction& ActionOf(int rank, size_t index) const { return program_.ranks[rank][index]; }
  const Range& RangeOf(const PackedAction& action) const { return program_.ranges[action.range]; }
  double BytesOf(const PackedAction& action) const {
    return static_cast<double>(RangeOf(action).size()) * element_bytes_;
  }

  void StartStep(int id) {
    SimulatedRank& rank = ranks_[id];
    const std::vector<PackedAction>& actions = program_.ranks[id];
    rank.begin = rank.end;
    if (rank.begin == actions.size()) return;
    while (!actions[rank.end++].ends_step) continue;
    rank.open = rank.end - rank.begin;
    rank.next_send = rank.begin;
    rank.progress.assign(rank.open, SimulatedRank::Progress::kWaits);
    ++rank.steps;
    if (id == 0) leader_stepped_ = true;
    if (rank.end > rank.alike_end) rank.alike_end = EndOfAlike(program_, id, rank.begin, rank.open);
    StartSend(id);
    TakeArrivals(id);
  }

  void StartSend(int id) {
    SimulatedRank& rank = ranks_[id];
    if (rank.sending) return;
    while (rank.next_send < rank.end && ActionOf(id, rank.next_send).kind != kSend) ++rank.next_send;
    if (rank.next_send == rank.end) return;
    const PackedAction& action = ActionOf(id, rank.next_send);
    rank.sending = true;
    rank.flowing = false;
    rank.channel = action.channel;
    rank.left = BytesOf(action);
    rank.sent_at = now_ + network_.Latency(id, program_.channels[action.channel].receiver);
    ++played_;
    events_.push({rank.sent_at, id, ++rank.version, EventKind::kFlows});
  }

  // Assigns arrived messages to the receptions of the current step.
  void TakeArrivals(int id) {
    SimulatedRank& rank = ranks_[id];
    for (size_t index = rank.begin; index < rank.end; ++index) {
      const PackedAction& action = ActionOf(id, index);
      if (action.kind == kSend || rank.progress[index - rank.begin] != SimulatedRank::Progress::kWaits)
        continue;
      if (arrived_[action.channel] == 0) continue;
      --arrived_[action.channel];
      rank.progress[index - rank.begin] = SimulatedRank::Progress::kArrived;
      if (action.kind != kReceiveReduce && Finish(id, index)) return;
    }
    StartReduction(id);
  }

  // Starts the first addition in the list that may start. Additions to one range run in the order of the list.
  void StartReduction(int id) {
    SimulatedRank& rank = ranks_[id];
    if (rank.reducing != SimulatedRank::kNone) return;
    for (size_t index = rank.begin; index < rank.end; ++index) {
      const PackedAction& action = ActionOf(id, index);
      if (rank.progress[index - rank.begin] != SimulatedRank::Progress::kArrived ||
          action.kind != kReceiveReduce)
        continue;
      bool first = true;
      for (size_t earlier = rank.begin; earlier < index && first; ++earlier) {
        const PackedAction& other = ActionOf(id, earlier);
        first = other.kind == kSend ||
                rank.progress[earlier - rank.begin] == SimulatedRank::Progress::kDone ||
                !Overlap(RangeOf(other), RangeOf(action));
      }
      if (!first) continue;
      rank.reducing = index;
      rank.progress[index - rank.begin] = SimulatedRank::Progress::kReducing;
      rank.reduced_at = now_ + BytesOf(action) * gamma_;
      events_.push({rank.reduced_at, id, 0, EventKind::kReduced});
      return;
    }
  }

  void Handle(const Event& event) {
    SimulatedRank& rank = ranks_[event.rank];
    if (event.kind == EventKind::kReduced) {
      const size_t index = rank.reducing;
      rank.reducing = SimulatedRank::kNone;
      if (!Finish(event.rank, index)) StartReduction(event.rank);
      return;
    }
    const Channel& channel = program_.channels[rank.channel];
    if (event.kind == EventKind::kFlows) {
      rank.flowing = true;
      rank.rate = 0;
      rank.since = now_;
      sharing_.Begin(event.rank, network_.Between(channel.sender, channel.receiver));
      return;
    }
    Settle(event.rank);
    sharing_.End(event.rank);
    rank.sending = rank.flowing = false;
    ++arrived_[rank.channel];
    if (!Finish(event.rank, rank.next_send++)) StartSend(event.rank);
    TakeArrivals(channel.receiver);
  }

  // Returns true if this was the last action of the step, so that the next step has started.
  bool Finish(int id, size_t index) {
    SimulatedRank& rank = ranks_[id];
    rank.progress[index - rank.begin] = SimulatedRank::Progress::kDone;
    if (--rank.open > 0) return false;
    StartStep(id);
    return true;
  }

  // Counts the bytes that have flowed since the rate was set.
  void Settle(int id) {
    SimulatedRank& rank = ranks_[id];
    if (!rank.flowing) return;
    const double bytes = std::min(rank.left, rank.rate * (now_ - rank.since));
    const Path& path = sharing_.path(id);
    for (int i = 0; i < path.length; ++i) carried_[path.links[i]] += bytes;
    rank.left -= bytes;
    rank.since = now_;
  }

  // Includes messages in flight. It does not change the state, so that rounding stays the same.
  std::vector<double> CarriedNow() const {
    std::vector<double> carried = carried_;
    for (int id = 0; id < program_.size; ++id) {
      const SimulatedRank& rank = ranks_[id];
      if (!rank.flowing) continue;
      const Path& path = sharing_.path(id);
      for (int i = 0; i < path.length; ++i) carried[path.links[i]] += rank.rate * (now_ - rank.since);
    }
    return carried;
  }

  void UpdateRates() {
    for (int id : sharing_.Update()) {
      Settle(id);
      SimulatedRank& rank = ranks_[id];
      rank.rate = sharing_.rate(id);
      rank.sent_at = now_ + rank.left / rank.rate;
      events_.push({rank.sent_at, id, ++rank.version, EventKind::kSent});
    }
  }

  // Called when rank 0 has started a step.
  void SkipRepetitions() {
    leader_stepped_ = false;
    if (ranks_[0].StepsAlike() < 2) return repetition_.Forget();
    if (!repetition_.Seen(State(), CarriedNow(), now_)) return;
    int64_t steps = std::numeric_limits<int64_t>::max();
    for (const SimulatedRank& rank : ranks_) steps = std::min(steps, rank.StepsAlike());
    for (SimulatedRank& rank : ranks_) rank.Skip(steps);
    for (size_t i = 0; i < carried_.size(); ++i) carried_[i] += steps * repetition_.carried()[i];
    skipped_seconds_ += steps * repetition_.period();
  }

  // Returns all values that determine the future, relative to the clock and to the step of rank 0.
  std::vector<double> State() const {
    std::vector<double> state;
    state.reserve(8 * ranks_.size() + arrived_.size());
    for (const SimulatedRank& rank : ranks_) rank.AppendState(ranks_[0].steps, now_, &state);
    state.insert(state.end(), arrived_.begin(), arrived_.end());
    return state;
  }

  const GroupProgram& program_;
  const double element_bytes_;
  const double gamma_;
  const Network network_;
  FairSharing sharing_;  // the message of rank r is flow r
  std::vector<SimulatedRank> ranks_;
  std::vector<int64_t> arrived_;  // by channel: messages without a reception so far
  std::vector<double> carried_;   // by link
  std::priority_queue<Event> events_;
  double now_ = 0;
  double skipped_seconds_ = 0;
  int64_t played_ = 0;
  bool leader_stepped_ = false;
  Repetition repetition_;  // of the steps of rank 0
};

}  // namespace

Simulated Simulate(const GroupProgram& program, int64_t element_bytes, const Topology& topology,
                   bool skip_repetitions) {
  TFS_CHECK_GT(element_bytes, 0);
  return Simulation(program, element_bytes, topology).Run(skip_repetitions);
}

}  // namespace tf_strategies::schedule

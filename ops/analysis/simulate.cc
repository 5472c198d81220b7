#include "ops/analysis/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "ops/analysis/fair_sharing.h"
#include "ops/base/check.h"

namespace tf_strategies::schedule {
namespace {

constexpr auto kSend = static_cast<uint32_t>(ActionKind::kSend);
constexpr auto kReceiveReduce = static_cast<uint32_t>(ActionKind::kReceiveReduce);

// Events that differ by rounding alone are one instant.
constexpr double kSameInstant = 1e-12;
// Of what is compared to tell a repetition: relative to the time of a step.
constexpr double kSameState = 1e-9;
constexpr size_t kNone = std::numeric_limits<size_t>::max();

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
    uint32_t version;  // of a send: a later one takes its place
    EventKind kind;
    // The earliest is on top; ties by rank, so that a run repeats.
    bool operator<(const Event& other) const {
      if (seconds != other.seconds) return seconds > other.seconds;
      return rank != other.rank ? rank > other.rank : kind > other.kind;
    }
  };

  // An action of the current step.
  enum class Progress : uint8_t { kWaits, kArrived, kReducing, kDone };

  struct Rank {
    size_t begin = 0;  // the current step is actions [begin, end)
    size_t end = 0;
    size_t open = 0;       // its actions that are not done
    size_t next_send = 0;  // where to look for one
    size_t alike_end = 0;  // the steps from the current one up to here move the same bytes the same way
    std::vector<Progress> progress;
    // The message under way: at first it waits, then it flows.
    bool sending = false;
    bool flowing = false;
    uint32_t version = 0;
    uint32_t channel = 0;
    double rate = 0;
    double left = 0;  // bytes, as of `since`
    double since = 0;
    double sent_at = 0;  // when that changes next
    size_t reducing = kNone;
    double reduced_at = 0;
    int64_t steps = 0;  // started
  };

  const PackedAction& ActionOf(int rank, size_t index) const { return program_.ranks[rank][index]; }
  const Range& RangeOf(const PackedAction& action) const { return program_.ranges[action.range]; }
  double BytesOf(const PackedAction& action) const {
    return static_cast<double>(RangeOf(action).size()) * element_bytes_;
  }

  void StartStep(int id) {
    Rank& rank = ranks_[id];
    const std::vector<PackedAction>& actions = program_.ranks[id];
    rank.begin = rank.end;
    if (rank.begin == actions.size()) return;
    while (!actions[rank.end++].ends_step) continue;
    rank.open = rank.end - rank.begin;
    rank.next_send = rank.begin;
    rank.progress.assign(rank.open, Progress::kWaits);
    ++rank.steps;
    if (id == 0) leader_stepped_ = true;
    if (rank.end > rank.alike_end) rank.alike_end = EndOfAlike(actions, rank.begin, rank.open);
    StartSend(id);
    TakeArrivals(id);
  }

  // Where the steps end that have the shape of the `length` actions from `begin`.
  size_t EndOfAlike(const std::vector<PackedAction>& actions, size_t begin, size_t length) const {
    size_t end = begin + length;
    for (; end < actions.size(); ++end) {
      const PackedAction& now = actions[end];
      const PackedAction& before = actions[end - length];
      if (now.channel != before.channel || now.kind != before.kind || now.ends_step != before.ends_step ||
          RangeOf(now).size() != RangeOf(before).size()) {
        break;
      }
    }
    return begin + (end - begin) / length * length;
  }

  void StartSend(int id) {
    Rank& rank = ranks_[id];
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

  // Gives the receptions of the current step what has arrived for them.
  void TakeArrivals(int id) {
    Rank& rank = ranks_[id];
    for (size_t index = rank.begin; index < rank.end; ++index) {
      const PackedAction& action = ActionOf(id, index);
      if (action.kind == kSend || rank.progress[index - rank.begin] != Progress::kWaits) continue;
      if (arrived_[action.channel] == 0) continue;
      --arrived_[action.channel];
      rank.progress[index - rank.begin] = Progress::kArrived;
      if (action.kind != kReceiveReduce && Finish(id, index)) return;
    }
    StartReduction(id);
  }

  // Of the additions that may start, the first listed does; those to one range go in the order of the list.
  void StartReduction(int id) {
    Rank& rank = ranks_[id];
    if (rank.reducing != kNone) return;
    for (size_t index = rank.begin; index < rank.end; ++index) {
      const PackedAction& action = ActionOf(id, index);
      if (rank.progress[index - rank.begin] != Progress::kArrived || action.kind != kReceiveReduce) continue;
      bool first = true;
      for (size_t earlier = rank.begin; earlier < index && first; ++earlier) {
        const PackedAction& other = ActionOf(id, earlier);
        first = other.kind == kSend || rank.progress[earlier - rank.begin] == Progress::kDone ||
                !Overlap(RangeOf(other), RangeOf(action));
      }
      if (!first) continue;
      rank.reducing = index;
      rank.progress[index - rank.begin] = Progress::kReducing;
      rank.reduced_at = now_ + BytesOf(action) * gamma_;
      events_.push({rank.reduced_at, id, 0, EventKind::kReduced});
      return;
    }
  }

  void Handle(const Event& event) {
    Rank& rank = ranks_[event.rank];
    if (event.kind == EventKind::kReduced) {
      const size_t index = rank.reducing;
      rank.reducing = kNone;
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

  // Returns whether that was the last action of the step, and the next has been started.
  bool Finish(int id, size_t index) {
    Rank& rank = ranks_[id];
    rank.progress[index - rank.begin] = Progress::kDone;
    if (--rank.open > 0) return false;
    StartStep(id);
    return true;
  }

  // Accounts for what has flowed since the rate was set.
  void Settle(int id) {
    Rank& rank = ranks_[id];
    if (!rank.flowing) return;
    const double bytes = std::min(rank.left, rank.rate * (now_ - rank.since));
    const Path& path = sharing_.path(id);
    for (int i = 0; i < path.length; ++i) carried_[path.links[i]] += bytes;
    rank.left -= bytes;
    rank.since = now_;
  }

  // With what is under way; nothing is settled, so that looking does not change the rounding.
  std::vector<double> CarriedNow() const {
    std::vector<double> carried = carried_;
    for (int id = 0; id < program_.size; ++id) {
      const Rank& rank = ranks_[id];
      if (!rank.flowing) continue;
      const Path& path = sharing_.path(id);
      for (int i = 0; i < path.length; ++i) carried[path.links[i]] += rank.rate * (now_ - rank.since);
    }
    return carried;
  }

  void UpdateRates() {
    for (int id : sharing_.Update()) {
      Settle(id);
      Rank& rank = ranks_[id];
      rank.rate = sharing_.rate(id);
      rank.sent_at = now_ + rank.left / rank.rate;
      events_.push({rank.sent_at, id, ++rank.version, EventKind::kSent});
    }
  }

  // How many steps rank `id` has after its current one that are like it.
  int64_t StepsAlike(int id) const {
    const Rank& rank = ranks_[id];
    if (rank.end == rank.begin) return 0;
    return static_cast<int64_t>((rank.alike_end - rank.end) / (rank.end - rank.begin));
  }

  // All that decides what comes next, relative to the clock and to the step of rank 0.
  std::vector<double> State() const {
    std::vector<double> state;
    state.reserve(8 * ranks_.size() + arrived_.size());
    for (const Rank& rank : ranks_) {
      state.push_back(static_cast<double>(rank.steps - ranks_[0].steps));
      state.push_back(static_cast<double>(rank.next_send - rank.begin));
      state.push_back(rank.sending ? (rank.flowing ? 2 : 1) : 0);
      state.push_back(rank.sending ? rank.sent_at - now_ : 0);
      state.push_back(rank.reducing == kNone ? -1 : static_cast<double>(rank.reducing - rank.begin));
      state.push_back(rank.reducing == kNone ? 0 : rank.reduced_at - now_);
      for (Progress progress : rank.progress) state.push_back(static_cast<double>(progress));
    }
    state.insert(state.end(), arrived_.begin(), arrived_.end());
    return state;
  }

  // Called when rank 0 has started a step.
  void SkipRepetitions() {
    leader_stepped_ = false;
    if (StepsAlike(0) < 2) {
      last_state_.clear();
      return;
    }
    std::vector<double> carried = CarriedNow();
    std::vector<double> state = State();
    const double period = now_ - last_now_;
    bool repeats = state.size() == last_state_.size();
    for (size_t i = 0; i < state.size() && repeats; ++i) {
      repeats = std::abs(state[i] - last_state_[i]) <= kSameState * period;
    }
    if (repeats) {
      int64_t skip = std::numeric_limits<int64_t>::max();
      for (int id = 0; id < program_.size; ++id) skip = std::min(skip, StepsAlike(id));
      Skip(skip, period, carried);
      state.clear();
    }
    last_state_ = std::move(state);
    last_carried_ = std::move(carried);
    last_now_ = now_;
  }

  void Skip(int64_t steps, double period, const std::vector<double>& carried) {
    for (Rank& rank : ranks_) {
      const size_t actions = steps * (rank.end - rank.begin);
      rank.begin += actions;
      rank.end += actions;
      rank.next_send += actions;
      if (rank.reducing != kNone) rank.reducing += actions;
      rank.steps += steps;
    }
    for (size_t i = 0; i < carried_.size(); ++i) carried_[i] += steps * (carried[i] - last_carried_[i]);
    skipped_seconds_ += steps * period;
  }

  const GroupProgram& program_;
  const double element_bytes_;
  const double gamma_;
  const Network network_;
  FairSharing sharing_;  // a rank's message is the flow of its number
  std::vector<Rank> ranks_;
  std::vector<int64_t> arrived_;  // by channel: messages for which no reception has been listed yet
  std::vector<double> carried_;   // by link
  std::priority_queue<Event> events_;
  double now_ = 0;
  double skipped_seconds_ = 0;
  int64_t played_ = 0;
  bool leader_stepped_ = false;
  std::vector<double> last_state_;  // as of the last step of rank 0
  std::vector<double> last_carried_;
  double last_now_ = 0;
};

}  // namespace

Simulated Simulate(const GroupProgram& program, int64_t element_bytes, const Topology& topology,
                   bool skip_repetitions) {
  TFS_CHECK_GT(element_bytes, 0);
  return Simulation(program, element_bytes, topology).Run(skip_repetitions);
}

}  // namespace tf_strategies::schedule

// Symbolic execution of a group's schedules: every element holds the set of the contributions in it.
#ifndef OPS_ANALYSIS_SYMBOLIC_RUN_H_
#define OPS_ANALYSIS_SYMBOLIC_RUN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <vector>

#include "ops/analysis/contributions.h"
#include "ops/analysis/group_program.h"
#include "ops/base/status.h"

namespace tf_strategies::schedule {

// The contributions that a range of elements must have at the end: those of `ranks` ranks from first_rank on.
struct Expected {
  Range range;
  int first_rank = 0;
  int ranks = 0;
  int holder = -1;  // the rank that must have them; -1 for all ranks
};

// Runs the schedules of all ranks symbolically; see verify.h. `Set` is one of contributions.h.
template <typename Set>
class SymbolicRun {
 public:
  SymbolicRun(const GroupProgram& program, const BuildRank& build, const std::vector<Expected>& expected)
      : program_(program), build_(build), links_(program.channels.size()), places_(program.size) {
    CutIntoAtoms(expected);
    const size_t atoms = cuts_.size() - 1;
    state_.resize(program.size * atoms);
    for (int rank = 0; rank < program.size; ++rank) {
      std::fill_n(state_.begin() + rank * atoms, atoms, Set::Of(rank));
    }
  }

  Status Run() {
    TFS_RETURN_IF_ERROR(CheckTotals());
    for (int rank = program_.size - 1; rank >= 0; --rank) Queue(rank);
    while (!queue_.empty()) {
      const int rank = queue_.back();
      queue_.pop_back();
      places_[rank].queued = false;
      TFS_RETURN_IF_ERROR(Advance(rank));
    }
    for (int rank = 0; rank < program_.size; ++rank) {
      if (places_[rank].begin < program_.ranks[rank].size()) return Deadlock(rank);
    }
    return Status::Ok();
  }

  Status CheckResult(const Expected& expected) const {
    if (expected.range.empty()) return Status::Ok();
    Set goal = Set::Of(expected.first_rank);
    for (int i = 1; i < expected.ranks; ++i) goal.Add(Set::Of(expected.first_rank + i));
    const size_t atoms = cuts_.size() - 1;
    for (int rank = 0; rank < program_.size; ++rank) {
      if (expected.holder >= 0 && expected.holder != rank) continue;
      for (size_t atom = AtomAt(expected.range.begin); cuts_[atom] < expected.range.end; ++atom) {
        const Set& held = state_[rank * atoms + atom];
        if (held == goal) continue;
        std::ostringstream text;
        text << "rank " << rank << " ends with a wrong result in elements [" << cuts_[atom] << ","
             << cuts_[atom + 1] << "): " << held.Departure(goal);
        return InvalidArgument(text.str());
      }
    }
    return Status::Ok();
  }

 private:
  static constexpr auto kSend = static_cast<uint32_t>(ActionKind::kSend);
  static constexpr auto kReceiveReduce = static_cast<uint32_t>(ActionKind::kReceiveReduce);

  // The state of a channel. `ranges` are the ranges of messages that only one side has posted. `payload` is the data that
  // was sent and not yet applied.
  struct Link {
    int64_t sends = 0;
    int64_t receptions = 0;
    std::vector<uint32_t> ranges;
    size_t first_range = 0;
    std::vector<Set> payload;
    size_t first_payload = 0;
  };

  // The position of a rank. Its current step has the actions [begin, end). The actions before `blocked` are matched.
  struct Standing {
    size_t begin = 0;
    size_t end = 0;
    size_t blocked = 0;
    bool queued = false;
  };

  size_t AtomAt(int64_t element) const {
    return std::lower_bound(cuts_.begin(), cuts_.end(), element) - cuts_.begin();
  }

  void CutIntoAtoms(const std::vector<Expected>& expected) {
    cuts_ = {0, program_.count};
    const auto cut = [&](const Range& range) {
      cuts_.push_back(range.begin);
      cuts_.push_back(range.end);
    };
    for (const Range& range : program_.ranges) cut(range);
    for (const Expected& part : expected) cut(part.range);
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    for (const Range& range : program_.ranges) {
      atoms_of_range_.push_back(
          {static_cast<int64_t>(AtomAt(range.begin)), static_cast<int64_t>(AtomAt(range.end))});
    }
  }

  Status CheckTotals() const {
    for (uint32_t id = 0; id < program_.channels.size(); ++id) {
      const Channel& channel = program_.channels[id];
      if (channel.sends == channel.receptions) continue;
      const bool more_sends = channel.sends > channel.receptions;
      int64_t skip = std::min(channel.sends, channel.receptions);
      const int rank = more_sends ? channel.sender : channel.receiver;
      const std::vector<PackedAction>& actions = program_.ranks[rank];
      size_t index = 0;
      for (; index < actions.size(); ++index) {
        if (actions[index].channel == id && skip-- == 0) break;
      }
      std::ostringstream text;
      text << DescribePlace(build_, rank, index) << ": has no counterpart; rank " << channel.sender
           << " lists " << channel.sends << " sends to rank " << channel.receiver << ", which lists "
           << channel.receptions << " receptions from it";
      return InvalidArgument(text.str());
    }
    return Status::Ok();
  }

  void Queue(int rank) {
    if (places_[rank].queued) return;
    places_[rank].queued = true;
    queue_.push_back(rank);
  }

  // Runs a rank until it is blocked or done.
  Status Advance(int rank) {
    const std::vector<PackedAction>& actions = program_.ranks[rank];
    Standing& at = places_[rank];
    while (at.begin < actions.size()) {
      if (at.end == at.begin) TFS_RETURN_IF_ERROR(Start(rank));
      for (; at.blocked < at.end; ++at.blocked) {
        const Link& link = links_[actions[at.blocked].channel];
        const bool sends = actions[at.blocked].kind == kSend;
        if (sends ? link.receptions < link.sends : link.sends < link.receptions) return Status::Ok();
      }
      TFS_RETURN_IF_ERROR(Apply(rank));
      at.begin = at.end;
    }
    return Status::Ok();
  }

  // Posts all actions of the next step. Sends copy the current state.
  Status Start(int rank) {
    const std::vector<PackedAction>& actions = program_.ranks[rank];
    Standing& at = places_[rank];
    const size_t atoms = cuts_.size() - 1;
    at.blocked = at.begin;
    do {
      const PackedAction& action = actions[at.end];
      Link& link = links_[action.channel];
      const Channel& channel = program_.channels[action.channel];
      const bool sends = action.kind == kSend;
      const bool other_was_ahead = sends ? link.receptions > link.sends : link.sends > link.receptions;
      if (other_was_ahead) {
        const uint32_t range = link.ranges[link.first_range++];
        if (range != action.range) return RangesDiffer(rank, at.end, program_.ranges[range]);
        if (link.first_range == link.ranges.size()) {
          link.ranges.clear();
          link.first_range = 0;
        }
        const int peer = sends ? channel.receiver : channel.sender;
        Queue(peer);
      } else {
        link.ranges.push_back(action.range);
      }
      if (sends) {
        const Range& span = atoms_of_range_[action.range];
        const auto first = state_.begin() + rank * atoms;
        link.payload.insert(link.payload.end(), first + span.begin, first + span.end);
      }
      ++(sends ? link.sends : link.receptions);
    } while (!actions[at.end++].ends_step);
    return Status::Ok();
  }

  // Applies the receptions of the finished step, in the order in which they are listed.
  Status Apply(int rank) {
    const std::vector<PackedAction>& actions = program_.ranks[rank];
    const Standing& at = places_[rank];
    const size_t atoms = cuts_.size() - 1;
    for (size_t index = at.begin; index < at.end; ++index) {
      const PackedAction& action = actions[index];
      if (action.kind == kSend) continue;
      Link& link = links_[action.channel];
      const Range& span = atoms_of_range_[action.range];
      for (int64_t atom = span.begin; atom < span.end; ++atom) {
        Set& held = state_[rank * atoms + atom];
        const Set& arrived = link.payload[link.first_payload++];
        if (action.kind != kReceiveReduce) {
          held = arrived;
        } else if (!held.Add(arrived)) {
          std::ostringstream text;
          text << DescribePlace(build_, rank, index) << ": adds a contribution a second time in elements ["
               << cuts_[atom] << "," << cuts_[atom + 1] << ")";
          return InvalidArgument(text.str());
        }
      }
      if (link.first_payload == link.payload.size()) {
        link.payload.clear();
        link.first_payload = 0;
      }
    }
    return Status::Ok();
  }

  Status RangesDiffer(int rank, size_t index, const Range& other) const {
    const Channel& channel = program_.channels[program_.ranks[rank][index].channel];
    const int peer = channel.sender == rank ? channel.receiver : channel.sender;
    std::ostringstream text;
    text << DescribePlace(build_, rank, index) << ": rank " << peer << " names [" << other.begin << ","
         << other.end << ") for the same message";
    return InvalidArgument(text.str());
  }

  // Follows the ranks that wait for each other, from a blocked rank until a rank is seen again.
  Status Deadlock(int rank) const {
    std::vector<bool> seen(program_.size, false);
    while (!seen[rank]) {
      seen[rank] = true;
      rank = WaitsFor(rank);
    }
    std::ostringstream text;
    text << "deadlock:";
    const int first = rank;
    do {
      text << " " << DescribePlace(build_, rank, places_[rank].blocked) << " waits for rank "
           << WaitsFor(rank) << ";";
      rank = WaitsFor(rank);
    } while (rank != first);
    text << " and none can continue";
    return InvalidArgument(text.str());
  }

  // Every channel has as many sends as receptions, so the awaited rank is not done, and is blocked itself.
  int WaitsFor(int rank) const {
    const Channel& channel = program_.channels[program_.ranks[rank][places_[rank].blocked].channel];
    return channel.sender == rank ? channel.receiver : channel.sender;
  }

  const GroupProgram& program_;
  const BuildRank& build_;
  std::vector<int64_t> cuts_;          // atom a is elements [cuts[a], cuts[a + 1])
  std::vector<Range> atoms_of_range_;  // by range number
  std::vector<Set> state_;             // [size][atoms]
  std::vector<Link> links_;            // by channel number
  std::vector<Standing> places_;       // by rank
  std::vector<int> queue_;             // ranks that may continue
};

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_SYMBOLIC_RUN_H_

#include "ops/analysis/group_program.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

namespace tf_strategies::schedule {
namespace {

// Numbers pairs of integers in the order of their first appearance. The cache in front makes a repeated pair
// cheap.
class PairNumbers {
 public:
  PairNumbers() : cache_(1 << 15) {}

  uint32_t Number(int64_t a, int64_t b) {
    const uint64_t hash =
        (static_cast<uint64_t>(a) * 0x9E3779B97F4A7C15u) ^ (static_cast<uint64_t>(b) * 0xC2B2AE3D27D4EB4Fu);
    Entry& entry = cache_[(hash >> 40) & (cache_.size() - 1)];
    if (entry.used && entry.a == a && entry.b == b) return entry.number;
    const auto found = numbers_.emplace(std::make_pair(a, b), static_cast<uint32_t>(numbers_.size()));
    entry = {true, a, b, found.first->second};
    return entry.number;
  }
  size_t size() const { return numbers_.size(); }

 private:
  struct Entry {
    bool used = false;
    int64_t a = 0;
    int64_t b = 0;
    uint32_t number = 0;
  };
  std::vector<Entry> cache_;
  std::map<std::pair<int64_t, int64_t>, uint32_t> numbers_;
};

std::string Place(int rank, size_t step, size_t action, const Action& what) {
  std::ostringstream text;
  text << "rank " << rank << ", step " << step << ", action " << action << " (" << DescribeAction(what)
       << ")";
  return text.str();
}

Status CheckAction(const Schedule& schedule, size_t step, size_t index) {
  const Action& action = schedule.steps[step][index];
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument(Place(schedule.rank, step, index, action) + ": " + why);
  };
  if (action.peer < 0 || action.peer >= schedule.size) {
    return refuse("there is no such peer in a group of " + std::to_string(schedule.size));
  }
  if (action.peer == schedule.rank) return refuse("the peer is the rank itself");
  if (action.range.empty()) return refuse("the range is empty");
  if (action.range.begin < 0 || action.range.end > schedule.count) {
    return refuse("the range leaves the buffer [0," + std::to_string(schedule.count) + ")");
  }
  return Status::Ok();
}

// Checks that receptions of a step do not overlap. Only additions to exactly the same range may.
Status CheckReceptions(const Schedule& schedule, size_t step) {
  const Step& actions = schedule.steps[step];
  std::vector<size_t> receptions;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != ActionKind::kSend) receptions.push_back(i);
  }
  if (receptions.size() < 2) return Status::Ok();
  std::sort(receptions.begin(), receptions.end(), [&](size_t a, size_t b) {
    const Range& x = actions[a].range;
    const Range& y = actions[b].range;
    return std::make_pair(x.begin, x.end) < std::make_pair(y.begin, y.end);
  });
  for (size_t i = 1; i < receptions.size(); ++i) {
    const Action& a = actions[receptions[i - 1]];
    const Action& b = actions[receptions[i]];
    if (!Overlap(a.range, b.range)) continue;
    const bool both_add = a.kind == ActionKind::kReceiveReduce && b.kind == ActionKind::kReceiveReduce;
    if (both_add && a.range == b.range) continue;
    return InvalidArgument(Place(schedule.rank, step, receptions[i], b) + ": overlaps " + DescribeAction(a) +
                           " of the same step");
  }
  return Status::Ok();
}

}  // namespace

std::string DescribeAction(const Action& action) {
  std::ostringstream text;
  const char* verb = action.kind == ActionKind::kSend            ? "send"
                     : action.kind == ActionKind::kReceiveReduce ? "add"
                                                                 : "copy";
  text << verb << " [" << action.range.begin << "," << action.range.end << ") "
       << (action.kind == ActionKind::kSend ? "to" : "from") << " rank " << action.peer;
  return text.str();
}

std::string DescribePlace(const BuildRank& build, int rank, int64_t index) {
  const Schedule schedule = build(rank);
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    const int64_t actions = static_cast<int64_t>(schedule.steps[step].size());
    if (index < actions) return Place(rank, step, index, schedule.steps[step][index]);
    index -= actions;
  }
  return "rank " + std::to_string(rank) + ", end of schedule";
}

Status PackGroup(int size, int64_t count, const BuildRank& build, GroupProgram* program) {
  *program = GroupProgram{};
  program->size = size;
  program->count = count;
  program->ranks.resize(size);
  PairNumbers channel_numbers;
  PairNumbers range_numbers;
  for (int rank = 0; rank < size; ++rank) {
    const Schedule schedule = build(rank);
    if (schedule.rank != rank || schedule.size != size || schedule.count != count) {
      std::ostringstream text;
      text << "rank " << rank << ": its schedule says rank " << schedule.rank << " of " << schedule.size
           << ", count " << schedule.count << "; expected rank " << rank << " of " << size << ", count "
           << count;
      return InvalidArgument(text.str());
    }
    std::vector<PackedAction>& packed = program->ranks[rank];
    size_t total = 0;
    for (const Step& step : schedule.steps) total += step.size();
    packed.reserve(total);
    for (size_t step = 0; step < schedule.steps.size(); ++step) {
      const Step& actions = schedule.steps[step];
      for (size_t i = 0; i < actions.size(); ++i) {
        TFS_RETURN_IF_ERROR(CheckAction(schedule, step, i));
        const Action& action = actions[i];
        const bool sends = action.kind == ActionKind::kSend;
        const int sender = sends ? rank : action.peer;
        const int receiver = sends ? action.peer : rank;
        const uint32_t channel = channel_numbers.Number(sender, receiver);
        if (channel == program->channels.size()) program->channels.push_back({sender, receiver, 0, 0});
        ++(sends ? program->channels[channel].sends : program->channels[channel].receptions);
        const uint32_t range = range_numbers.Number(action.range.begin, action.range.end);
        if (range == program->ranges.size()) program->ranges.push_back(action.range);
        packed.push_back(
            {channel, range, static_cast<uint32_t>(action.kind), i + 1 == actions.size() ? 1u : 0u});
      }
      TFS_RETURN_IF_ERROR(CheckReceptions(schedule, step));
    }
  }
  return Status::Ok();
}

}  // namespace tf_strategies::schedule

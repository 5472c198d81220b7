#include "ops/analysis/cost.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <vector>

#include "ops/base/check.h"

namespace tf_strategies::schedule {
namespace {

// A message, on the side of its sender or of its receiver. An action consists of one or more operations.
struct Operation {
  int rank = 0;
  int step = 0;
  ActionKind kind = ActionKind::kSend;
  double bytes = 0;
  int waits = 0;         // the number of operations and arrivals that it waits for
  int counterpart = -1;  // for a send: the reception
  std::vector<int> successors;
};

// Simulates all operations of a group in the order of time.
class Player {
 public:
  Player(int size, int64_t element_bytes, const CostModel& model, const BuildRank& build)
      : model_(model), element_bytes_(element_bytes), ranks_(size) {
    for (int rank = 0; rank < size; ++rank) AddRank(build(rank));
    for (auto& [key, channel] : channels_) {
      TFS_CHECK_EQ(channel.sends.size(), channel.receptions.size());
      for (size_t i = 0; i < channel.sends.size(); ++i) {
        operations_[channel.sends[i]].counterpart = channel.receptions[i];
      }
    }
  }

  double Play() {
    for (size_t i = 0; i < operations_.size(); ++i) {
      if (operations_[i].waits == 0) Ready(static_cast<int>(i));
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.seconds;
      Finished(event.operation);
    }
    TFS_CHECK_EQ(finished_, operations_.size());
    return now_;
  }

 private:
  struct Rank {
    std::vector<std::vector<int>> steps;  // operations
    std::vector<size_t> unfinished;       // by step
    std::priority_queue<int, std::vector<int>, std::greater<int>> to_send;
    std::priority_queue<int, std::vector<int>, std::greater<int>> to_reduce;
    bool sending = false;
    bool reducing = false;
  };
  struct ChannelOperations {
    std::vector<int> sends;
    std::vector<int> receptions;
  };
  struct Event {
    double seconds;
    int operation;
    bool operator<(
        const Event& other) const {  // the earliest is on top; ties by number, so that a run repeats
      return seconds != other.seconds ? seconds > other.seconds : operation > other.operation;
    }
  };

  // Cuts a range at multiples of the chunk.
  std::vector<Range> Pieces(const Range& range) const {
    if (model_.chunk_elements <= 0) return {range};
    std::vector<Range> pieces;
    for (int64_t begin = range.begin; begin < range.end; begin = pieces.back().end) {
      const int64_t next = (begin / model_.chunk_elements + 1) * model_.chunk_elements;
      pieces.push_back({begin, std::min(range.end, next)});
    }
    return pieces;
  }

  void AddRank(const Schedule& schedule) {
    std::vector<int64_t> cuts;
    for (const Step& step : schedule.steps) {
      for (const Action& action : step) {
        for (const Range& piece : Pieces(action.range)) {
          cuts.push_back(piece.begin);
          cuts.push_back(piece.end);
        }
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<int> writer(cuts.size(), -1);  // the last reception that writes to [cuts[i], cuts[i + 1])

    Rank& rank = ranks_[schedule.rank];
    rank.steps.resize(schedule.steps.size());
    for (size_t step = 0; step < schedule.steps.size(); ++step) {
      for (const bool sends : {true, false}) {  // sends read the data from before the step
        for (const Action& action : schedule.steps[step]) {
          if ((action.kind == ActionKind::kSend) != sends) continue;
          for (const Range& piece : Pieces(action.range)) {
            const int id = static_cast<int>(operations_.size());
            operations_.push_back({schedule.rank,
                                   static_cast<int>(step),
                                   action.kind,
                                   static_cast<double>(piece.size() * element_bytes_),
                                   sends ? 0 : 1,
                                   -1,
                                   {}});
            const int from = sends ? schedule.rank : action.peer;
            const int to = sends ? action.peer : schedule.rank;
            ChannelOperations& channel = channels_[static_cast<int64_t>(from) * schedule.size + to];
            (sends ? channel.sends : channel.receptions).push_back(id);
            size_t cell = std::lower_bound(cuts.begin(), cuts.end(), piece.begin) - cuts.begin();
            for (; cuts[cell] < piece.end; ++cell) {
              if (writer[cell] >= 0) WaitFor(writer[cell], id);
              if (!sends) writer[cell] = id;
            }
            if (!model_.steps_overlap && step > 0) ++operations_[id].waits;
            rank.steps[step].push_back(id);
          }
        }
      }
      rank.unfinished.push_back(rank.steps[step].size());
    }
  }

  void WaitFor(int earlier, int later) {
    std::vector<int>& successors = operations_[earlier].successors;
    if (!successors.empty() && successors.back() == later) return;
    successors.push_back(later);
    ++operations_[later].waits;
  }

  void Release(int id) {
    if (--operations_[id].waits == 0) Ready(id);
  }

  void Ready(int id) {
    const Operation& operation = operations_[id];
    Rank& rank = ranks_[operation.rank];
    switch (operation.kind) {
      case ActionKind::kSend:
        rank.to_send.push(id);
        StartSend(&rank);
        break;
      case ActionKind::kReceiveReduce:
        rank.to_reduce.push(id);
        StartReduction(&rank);
        break;
      case ActionKind::kReceiveCopy: events_.push({now_, id}); break;
    }
  }

  void StartSend(Rank* rank) {
    if (rank->sending || rank->to_send.empty()) return;
    const int id = rank->to_send.top();
    rank->to_send.pop();
    rank->sending = true;
    events_.push({now_ + model_.alpha + operations_[id].bytes * model_.beta, id});
  }

  void StartReduction(Rank* rank) {
    if (rank->reducing || rank->to_reduce.empty()) return;
    const int id = rank->to_reduce.top();
    rank->to_reduce.pop();
    rank->reducing = true;
    events_.push({now_ + operations_[id].bytes * model_.gamma, id});
  }

  void Finished(int id) {
    ++finished_;
    const Operation& operation = operations_[id];
    Rank& rank = ranks_[operation.rank];
    if (operation.kind == ActionKind::kSend) {
      rank.sending = false;
      Release(operation.counterpart);
    } else if (operation.kind == ActionKind::kReceiveReduce) {
      rank.reducing = false;
    }
    for (int successor : operation.successors) Release(successor);
    if (--rank.unfinished[operation.step] == 0 && !model_.steps_overlap) {
      if (operation.step + 1 < static_cast<int>(rank.steps.size())) {
        for (int next : rank.steps[operation.step + 1]) Release(next);
      }
    }
    StartSend(&rank);
    StartReduction(&rank);
  }

  const CostModel model_;
  const int64_t element_bytes_;
  std::vector<Operation> operations_;
  std::vector<Rank> ranks_;
  std::unordered_map<int64_t, ChannelOperations> channels_;
  std::priority_queue<Event> events_;
  double now_ = 0;
  size_t finished_ = 0;
};

}  // namespace

Cost CountCost(const Schedule& schedule) {
  Cost cost;
  cost.steps = static_cast<int64_t>(schedule.steps.size());
  for (const Step& step : schedule.steps) {
    for (const Action& action : step) {
      const bool sends = action.kind == ActionKind::kSend;
      ++(sends ? cost.messages_sent : cost.messages_received);
      if (sends) cost.elements_sent += action.range.size();
      if (action.kind == ActionKind::kReceiveReduce) cost.elements_reduced += action.range.size();
    }
  }
  return cost;
}

GroupCost CountGroupCost(int size, const BuildRank& build) {
  GroupCost group;
  for (int rank = 0; rank < size; ++rank) {
    const Cost cost = CountCost(build(rank));
    for (int64_t Cost::*field : {&Cost::steps, &Cost::messages_sent, &Cost::messages_received,
                                 &Cost::elements_sent, &Cost::elements_reduced}) {
      group.most.*field = std::max(group.most.*field, cost.*field);
      group.total.*field += cost.*field;
    }
  }
  return group;
}

double PredictSeconds(int size, int64_t element_bytes, const CostModel& model, const BuildRank& build) {
  TFS_CHECK_GT(element_bytes, 0);
  return Player(size, element_bytes, model, build).Play();
}

}  // namespace tf_strategies::schedule

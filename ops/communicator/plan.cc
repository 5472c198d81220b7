#include "ops/communicator/plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "ops/base/check.h"

namespace tf_strategies {
namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::Overlap;
using schedule::Range;

bool Covers(const Range& outer, const Range& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// The pieces for which later pieces on one cell of the grid may have to wait.
struct Cell {
  std::vector<int> readers;
  std::vector<int> writers;
};

// Subtracts the other ranges from a range.
std::vector<Range> Subtract(const Range& range, const std::vector<Range>& others) {
  std::vector<Range> left{range};
  for (const Range& other : others) {
    std::vector<Range> next;
    for (const Range& part : left) {
      if (!Overlap(part, other)) {
        next.push_back(part);
        continue;
      }
      if (part.begin < other.begin) next.push_back({part.begin, other.begin});
      if (other.end < part.end) next.push_back({other.end, part.end});
    }
    left = std::move(next);
  }
  return left;
}

class Planner {
 public:
  Planner(int64_t chunk, std::vector<int64_t> begins, Locate locate)
      : chunk_(chunk), begins_(std::move(begins)), locate_(std::move(locate)), plan_(new Plan) {}

  // The sends of a step come first, because they read the values before the receptions.
  void Add(const schedule::Step& step) {
    for (const Action& action : step) {
      if (action.kind == ActionKind::kSend) Cut(action);
    }
    for (const Action& action : step) {
      if (action.kind != ActionKind::kSend) Cut(action);
    }
  }

  Status Finish(std::shared_ptr<const Plan>* plan) {
    if (most_messages_ > kMostMessages) {
      return InvalidArgument("a collective of this size needs " + std::to_string(most_messages_) +
                             " messages between two ranks, and at most " + std::to_string(kMostMessages) +
                             " are possible: use a larger chunk_bytes");
    }
    for (size_t i = 0; i < waiting_.size(); ++i) {
      plan_->pieces[i].first_dependent = static_cast<int>(plan_->dependents.size());
      plan_->dependents.insert(plan_->dependents.end(), waiting_[i].begin(), waiting_[i].end());
      plan_->pieces[i].last_dependent = static_cast<int>(plan_->dependents.size());
    }
    FindFinals();
    *plan = std::move(plan_);
    return Status::Ok();
  }

 private:
  void FindFinals() {
    std::unordered_map<int64_t, std::vector<Range>> written;  // later in the schedule, by cell; disjoint
    for (auto piece = plan_->pieces.rbegin(); piece != plan_->pieces.rend(); ++piece) {
      if (piece->kind == ActionKind::kSend) continue;
      auto& later = written[piece->range.begin / chunk_];
      const std::vector<Range> last = Subtract(piece->range, later);
      later.insert(later.end(), last.begin(), last.end());
      if (piece->kind != ActionKind::kReceiveReduce) continue;
      piece->first_final = static_cast<int>(plan_->finals.size());
      plan_->finals.insert(plan_->finals.end(), last.begin(), last.end());
      piece->last_final = static_cast<int>(plan_->finals.size());
    }
  }

  void Cut(const Action& action) {
    TFS_CHECK(!action.range.empty());
    auto next_part = std::upper_bound(begins_.begin(), begins_.end(), action.range.begin);
    for (int64_t begin = action.range.begin; begin < action.range.end;) {
      const int64_t cell = begin / chunk_;
      int64_t end = std::min(action.range.end, (cell + 1) * chunk_);
      if (next_part != begins_.end()) end = std::min(end, *next_part);
      Append(action, Range{begin, end}, static_cast<int>(next_part - begins_.begin()) - 1, &cells_[cell]);
      if (next_part != begins_.end() && end == *next_part) ++next_part;
      begin = end;
    }
  }

  void Append(const Action& action, const Range& range, int part, Cell* cell) {
    const int index = static_cast<int>(plan_->pieces.size());
    const bool sends = action.kind == ActionKind::kSend;
    int& messages = (sends ? sent_ : received_)[action.peer];
    Piece piece;
    piece.kind = action.kind;
    piece.peer = action.peer;
    piece.range = range;
    piece.part = part;
    piece.at = locate_ ? locate_(action) + range.begin - action.range.begin : range.begin - begins_[part];
    piece.message = static_cast<uint32_t>(messages++);
    most_messages_ = std::max(most_messages_, messages);
    plan_->pieces.push_back(piece);
    waiting_.emplace_back();

    WaitFor(cell->writers, index);
    if (sends) {
      cell->readers.push_back(index);
      return;
    }
    WaitFor(cell->readers, index);
    Forget(&cell->writers, range);
    Forget(&cell->readers, range);
    cell->writers.push_back(index);
    if (action.kind == ActionKind::kReceiveReduce) {
      plan_->reductions.push_back(index);
      plan_->largest_reduction = std::max(plan_->largest_reduction, range.size());
    }
  }

  void WaitFor(const std::vector<int>& earlier, int index) {
    for (int other : earlier) {
      if (!Overlap(plan_->pieces[other].range, plan_->pieces[index].range)) continue;
      waiting_[other].push_back(index);
      plan_->pieces[index].gate += 1;
    }
  }

  // A piece that waits for the last writer of these elements thereby also waits for the earlier ones.
  void Forget(std::vector<int>* pieces, const Range& overwritten) {
    pieces->erase(std::remove_if(pieces->begin(), pieces->end(),
                                 [&](int i) { return Covers(overwritten, plan_->pieces[i].range); }),
                  pieces->end());
  }

  const int64_t chunk_;
  const std::vector<int64_t> begins_;
  const Locate locate_;
  std::unordered_map<int64_t, Cell> cells_;
  std::map<int, int> sent_, received_;  // messages by peer
  int most_messages_ = 0;
  std::vector<std::vector<int>> waiting_;
  std::shared_ptr<Plan> plan_;
};

Status Make(const schedule::Schedule& schedule, Planner planner, std::shared_ptr<const Plan>* plan) {
  for (const schedule::Step& step : schedule.steps) planner.Add(step);
  return planner.Finish(plan);
}

}  // namespace

Status MakePlan(const schedule::Schedule& schedule, int64_t chunk_elements,
                std::shared_ptr<const Plan>* plan) {
  return MakePlan(schedule, chunk_elements, std::vector<int64_t>{0}, plan);
}

Status MakePlan(const schedule::Schedule& schedule, int64_t chunk_elements,
                const std::vector<int64_t>& begins, std::shared_ptr<const Plan>* plan) {
  TFS_CHECK_GE(chunk_elements, 1);
  TFS_CHECK(!begins.empty() && begins.front() == 0 && std::is_sorted(begins.begin(), begins.end()));
  return Make(schedule, Planner(chunk_elements, begins, nullptr), plan);
}

Status MakePlan(const schedule::Schedule& schedule, int64_t chunk_elements, const Locate& locate,
                std::shared_ptr<const Plan>* plan) {
  TFS_CHECK_GE(chunk_elements, 1);
  return Make(schedule, Planner(chunk_elements, {0}, locate), plan);
}

}  // namespace tf_strategies

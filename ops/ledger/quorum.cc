#include "ops/ledger/quorum.h"

#include <algorithm>

#include "ops/base/check.h"

namespace tf_strategies::ledger {

void Quorum::Submit(int worker, int64_t rows) {
  TFS_CHECK(!applying_);
  TFS_CHECK(submissions_.emplace(worker, rows).second);
  last_ = worker;
}

bool Quorum::Remove(int worker) { return !applying_ && submissions_.erase(worker) > 0; }

bool Quorum::Complete(int64_t required) {
  const auto needed = static_cast<size_t>(std::max<int64_t>(required, 1));
  if (applying_ || submissions_.size() < needed) return false;
  applying_ = true;
  applier_ = HasSubmitted(last_) ? last_ : submissions_.begin()->first;
  return true;
}

std::vector<int> Quorum::Members() const {
  std::vector<int> members;
  for (const auto& [worker, rows] : submissions_) members.push_back(worker);
  return members;
}

int64_t Quorum::Rows() const {
  int64_t sum = 0;
  for (const auto& [worker, rows] : submissions_) sum += rows;
  return sum;
}

void Quorum::Applied() {
  TFS_CHECK(applying_);
  applying_ = false;
  applier_ = -1;
  submissions_.clear();
  ++step_;
}

void Quorum::Abandon() {
  TFS_CHECK(applying_ && applier_ < 0);
  applying_ = false;
  submissions_.clear();
}

}  // namespace tf_strategies::ledger

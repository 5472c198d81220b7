#include "ops/ledger/once.h"

#include <utility>

#include "ops/base/check.h"

namespace tf_strategies::ledger {

bool Once::IsDone(const Asked& asked) const {
  if (!UpdateNumber::SameLedger(asked.update, update_)) return false;
  return asked.update < update_ || (asked.update == update_ && asked.part <= part_);
}

void Once::Begin(int64_t update, int32_t part, Proceed proceed) {
  bool now = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Asked asked{update, part, std::move(proceed)};
    if (busy_) {
      waiting_.push_back(std::move(asked));
      return;
    }
    now = busy_ = !IsDone(asked);
    proceed = std::move(asked.proceed);
    if (now) now_ = std::move(asked);
  }
  proceed(now);
}

void Once::End(bool done) {
  std::deque<Asked> answered;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_CHECK(busy_);
    if (done) {
      update_ = now_.update;
      part_ = now_.part;
    }
    busy_ = false;
    while (!waiting_.empty() && !busy_) {
      answered.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      busy_ = !IsDone(answered.back());
      if (busy_) now_ = {answered.back().update, answered.back().part, nullptr};
    }
    done = !busy_;
  }
  // Only the last of them may have anything to do.
  for (size_t i = 0; i < answered.size(); ++i) answered[i].proceed(!done && i + 1 == answered.size());
}

}  // namespace tf_strategies::ledger

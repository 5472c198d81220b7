#include "ops/ledger/exactly_once.h"

#include <deque>
#include <utility>

#include "ops/base/check.h"

namespace tf_strategies::ledger {

ExactlyOnce::Answer ExactlyOnce::AnswerTo(const Asked& asked) const {
  const bool done = UpdateNumber::SameLedger(asked.update, update_) &&
                    (asked.update < update_ || (asked.update == update_ && asked.part <= part_));
  if (done) return Answer::kDone;
  return asked.update == failed_ ? Answer::kFailed : Answer::kNow;
}

void ExactlyOnce::Begin(int64_t update, int32_t part, Proceed proceed) {
  Answer answer = Answer::kNow;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Asked asked{update, part, std::move(proceed)};
    if (busy_) {
      waiting_.push_back(std::move(asked));
      return;
    }
    answer = AnswerTo(asked);
    proceed = std::move(asked.proceed);
    busy_ = answer == Answer::kNow;
    if (busy_) now_ = std::move(asked);
  }
  proceed(answer);
}

void ExactlyOnce::End(bool done) {
  std::deque<std::pair<Proceed, Answer>> answered;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_CHECK(busy_);
    if (done) {
      update_ = now_.update;
      part_ = now_.part;
    } else {
      failed_ = now_.update;
    }
    busy_ = false;
    while (!waiting_.empty() && !busy_) {
      Asked asked = std::move(waiting_.front());
      waiting_.pop_front();
      const Answer answer = AnswerTo(asked);
      answered.emplace_back(std::move(asked.proceed), answer);
      busy_ = answer == Answer::kNow;
      if (busy_) now_ = std::move(asked);
    }
  }
  for (const auto& [proceed, answer] : answered) proceed(answer);
}

}  // namespace tf_strategies::ledger

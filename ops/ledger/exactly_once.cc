#include "ops/ledger/exactly_once.h"

#include <deque>
#include <utility>
#include <vector>

#include "ops/base/check.h"

namespace tf_strategies::ledger {

bool ExactlyOnce::IsFenced(int64_t update) const {
  return fence_ >= 0 && (!UpdateNumber::SameLedger(update, fence_) || update < fence_);
}

ExactlyOnce::Answer ExactlyOnce::AnswerTo(const Request& request) const {
  if (IsFenced(request.update)) return Answer::kFailed;
  const bool done = UpdateNumber::SameLedger(request.update, update_) &&
                    (request.update < update_ || (request.update == update_ && request.part <= part_));
  if (done) return Answer::kDone;
  return request.update == failed_ ? Answer::kFailed : Answer::kNow;
}

void ExactlyOnce::Begin(int64_t update, int32_t part, Proceed proceed) {
  Answer answer = Answer::kNow;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Request request{update, part, std::move(proceed)};
    if (busy_) {
      waiting_.push_back(std::move(request));
      return;
    }
    answer = AnswerTo(request);
    proceed = std::move(request.proceed);
    busy_ = answer == Answer::kNow;
    if (busy_) running_ = std::move(request);
  }
  proceed(answer);
}

void ExactlyOnce::End(bool done) {
  std::deque<std::pair<Proceed, Answer>> answered;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TFS_CHECK(busy_);
    if (done) {
      update_ = running_.update;
      part_ = running_.part;
    } else {
      failed_ = running_.update;
    }
    busy_ = false;
    while (!waiting_.empty() && !busy_) {
      Request request = std::move(waiting_.front());
      waiting_.pop_front();
      const Answer answer = AnswerTo(request);
      answered.emplace_back(std::move(request.proceed), answer);
      busy_ = answer == Answer::kNow;
      if (busy_) running_ = std::move(request);
    }
  }
  for (const auto& [proceed, answer] : answered) proceed(answer);
}

bool ExactlyOnce::Fence(int64_t first) {
  std::vector<Proceed> refused;
  bool idle = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fence_ = first;
    idle = !busy_;
    std::deque<Request> kept;
    for (Request& request : waiting_) {
      if (IsFenced(request.update)) {
        refused.push_back(std::move(request.proceed));
      } else {
        kept.push_back(std::move(request));
      }
    }
    waiting_ = std::move(kept);
  }
  for (const Proceed& proceed : refused) proceed(Answer::kFailed);
  return idle;
}

}  // namespace tf_strategies::ledger

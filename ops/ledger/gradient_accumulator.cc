#include "ops/ledger/gradient_accumulator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/base/check.h"
#include "ops/reduce/reduce.h"

namespace tf_strategies::ledger {
namespace {

constexpr int64_t kBlock = 8192;  // elements; the sums of a block stay in the cache

std::string StepText(int64_t step) { return "step " + std::to_string(step); }

// Describes the kind, dtype and shapes of a gradient, which must be equal on all workers: "float32 [3,4] [5]", "rows of
// float32 [4]".
std::string FormOf(const Gradient& gradient) {
  std::string text = gradient.is_rows ? "rows of " : "";
  text += DTypeName(gradient.dtype);
  if (!gradient.is_rows) {
    for (const Part& part : gradient.parts) text += " " + ShapeText(part.shape);
    return text;
  }
  const std::vector<int64_t>& values = gradient.parts[1].shape;
  return text + " " + ShapeText({values.begin() + 1, values.end()});
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

Status GradientAccumulator::Put(const std::string& key, int worker, int64_t step, Gradient gradient) {
  if (worker < 0 || worker >= kMostWorkers) {
    return InvalidArgument("worker must be between 0 and " + std::to_string(kMostWorkers - 1) + "; got " +
                           std::to_string(worker));
  }
  if (step < 0) return InvalidArgument("step must be at least 0; got " + std::to_string(step));
  gradient.step = step;
  // After the swap below, `kept` is the old gradient, which is freed after the lock is released.
  auto kept = std::make_shared<const Gradient>(std::move(gradient));
  std::lock_guard<std::mutex> lock(mutex_);
  auto of_key = by_key_.find(key);
  if (of_key == by_key_.end()) {
    if (by_key_.size() >= kMostKeys) {
      return ResourceExhausted(name_of_(worker) + " sends gradient '" + key + "', but there are already " +
                               std::to_string(by_key_.size()) + " keys, which is the limit");
    }
    of_key = by_key_.emplace(key, OfKey()).first;
  }
  TFS_RETURN_IF_ERROR(CheckAlike(key, worker, *kept, of_key->second));
  auto& slot = of_key->second[worker];
  if (slot == nullptr) ++held_;
  slot.swap(kept);
  return Status::Ok();
}

Status GradientAccumulator::CheckAlike(const std::string& key, int worker, const Gradient& gradient,
                                       const OfKey& others) const {
  const std::string form = FormOf(gradient);
  for (const auto& [other, theirs] : others) {
    if (other == worker || theirs->step != gradient.step) continue;
    if (FormOf(*theirs) == form) return Status::Ok();  // all stored gradients of a step are alike
    return Mismatch("the gradient '" + key + "' for " + StepText(gradient.step) + " is " + form + " on " +
                    name_of_(worker) + " and " + FormOf(*theirs) + " on " + name_of_(other) +
                    ": run the same model on every worker");
  }
  return Status::Ok();
}

Status GradientAccumulator::Take(const std::string& key, const std::vector<int>& members, int64_t step,
                                 std::vector<std::shared_ptr<const Gradient>>* found) const {
  if (members.empty()) return InvalidArgument("the gradient '" + key + "' was requested for no member");
  for (size_t i = 1; i < members.size(); ++i) {
    if (members[i - 1] < members[i]) continue;
    return InvalidArgument("members must ascend; got " + std::to_string(members[i - 1]) + " before " +
                           std::to_string(members[i]));
  }
  found->clear();
  std::lock_guard<std::mutex> lock(mutex_);
  const auto of_key = by_key_.find(key);
  for (int member : members) {
    const auto what = [&] {
      return "the gradient '" + key + "' of " + name_of_(member) + " for " + StepText(step) + " is not here";
    };
    if (of_key == by_key_.end() || of_key->second.count(member) == 0) {
      return FailedPrecondition(what() + ": this server never received it, or has discarded it");
    }
    const auto& gradient = of_key->second.at(member);
    if (gradient->step != step) {
      return FailedPrecondition(what() + ": the last one received is for " + StepText(gradient->step));
    }
    found->push_back(gradient);
  }
  return Status::Ok();
}

void GradientAccumulator::Discard(int64_t step) {
  std::vector<std::shared_ptr<const Gradient>> freed;  // freed after the lock is released
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [key, of_key] : by_key_) {
    for (auto held = of_key.begin(); held != of_key.end();) {
      const auto here = held++;
      if (here->second->step > step) continue;
      freed.push_back(std::move(here->second));
      of_key.erase(here);
      --held_;
    }
  }
}

int64_t GradientAccumulator::held() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return held_;
}

void SumInOrder(DType dtype, const std::vector<const void*>& sources, void* destination, int64_t begin,
                int64_t end) {
  TFS_CHECK(!sources.empty());
  const auto element = static_cast<int64_t>(DTypeSize(dtype));
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t count = std::min(kBlock, end - first);
    char* const to = static_cast<char*>(destination) + first * element;
    std::memcpy(to, static_cast<const char*>(sources[0]) + first * element, count * element);
    for (size_t i = 1; i < sources.size(); ++i) {
      Reduce(ReduceOp::kSum, dtype, to, static_cast<const char*>(sources[i]) + first * element, count);
    }
  }
}

}  // namespace tf_strategies::ledger

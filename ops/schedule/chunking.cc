#include "ops/schedule/chunking.h"

#include <algorithm>
#include <utility>

#include "ops/base/check.h"

namespace tf_strategies::schedule {

Range Part(const Range& whole, int parts, int index) {
  TFS_CHECK_GE(index, 0);
  TFS_CHECK_LT(index, parts);
  const int64_t base = whole.size() / parts;
  const int64_t longer = whole.size() % parts;
  const int64_t begin = whole.begin + index * base + std::min<int64_t>(index, longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

Range LowerHalf(const Range& whole) { return Part(whole, 2, 0); }

Range UpperHalf(const Range& whole) { return Part(whole, 2, 1); }

void AppendStep(Schedule* schedule, const Step& step) {
  Step listed;
  listed.reserve(step.size());
  for (const Action& action : step) {
    if (!action.range.empty()) listed.push_back(action);
  }
  if (!listed.empty()) schedule->steps.push_back(std::move(listed));
}

}  // namespace tf_strategies::schedule

// Cuts a range of elements into parts, in the same way on all ranks.
#ifndef OPS_SCHEDULE_CHUNKING_H_
#define OPS_SCHEDULE_CHUNKING_H_

#include "ops/schedule/step.h"

namespace tf_strategies::schedule {

// Part `index` of `parts` contiguous parts whose sizes differ by at most one, longer ones first; may be
// empty. 0 <= index < parts.
Range Part(const Range& whole, int parts, int index);

// The two halves of a range; the lower one has the odd element.
Range LowerHalf(const Range& whole);
Range UpperHalf(const Range& whole);

// Appends a step; actions with an empty range are left out, and so is a step without actions.
void AppendStep(Schedule* schedule, const Step& step);

}  // namespace tf_strategies::schedule

#endif  // OPS_SCHEDULE_CHUNKING_H_

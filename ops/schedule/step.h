// A schedule is what one rank does in a collective, as integers: no memory, no dtype, no clock.
//
// Vocabulary: a *rank* of a group of *size* ranks holds a buffer of *count* elements. A schedule is a list of
// *steps*; a step is a list of *actions*; an action moves one *range* of elements to or from one *peer*.
//
// What a step means, and what `verify` holds every schedule to:
//  - all actions of a step may be in flight at once;
//  - a send reads its range as it was before any reception of the same step is applied;
//  - the ranges that the receptions of one step write do not overlap, except that several kReceiveReduce may
//    add into the same range, in the order in which they are listed;
//  - steps of one rank take effect in order (an executor may overlap steps that do not touch the same elements);
//  - steps of different ranks are not numbered alike: only the messages couple ranks. Between one sender and one
//    receiver, the i-th send pairs with the i-th reception, and both name the same range.
// An action with an empty range is never listed.
#ifndef OPS_SCHEDULE_STEP_H_
#define OPS_SCHEDULE_STEP_H_

#include <cstdint>
#include <vector>

namespace tf_strategies::schedule {

// Elements [begin, end) of the buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
};

inline bool operator==(const Range& a, const Range& b) { return a.begin == b.begin && a.end == b.end; }
inline bool Overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }

enum class ActionKind : uint8_t {
  kSend,
  kReceiveReduce,  // combine what arrives with the buffer's elements
  kReceiveCopy,    // overwrite the buffer's elements with what arrives
};

struct Action {
  ActionKind kind = ActionKind::kSend;
  int peer = 0;
  Range range;
};

using Step = std::vector<Action>;

struct Schedule {
  int rank = 0;
  int size = 1;
  int64_t count = 0;
  std::vector<Step> steps;
};

}  // namespace tf_strategies::schedule

#endif  // OPS_SCHEDULE_STEP_H_

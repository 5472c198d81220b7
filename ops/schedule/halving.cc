#include "ops/schedule/halving.h"

#include "ops/base/check.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {
namespace {

// The ranges that the rank with this index holds after 0, 1, ... k halvings.
std::vector<Range> Held(const Range& whole, int group_size, int index) {
  std::vector<Range> held = {whole};
  for (int bit = group_size / 2; bit >= 1; bit /= 2) {
    held.push_back((index & bit) ? UpperHalf(held.back()) : LowerHalf(held.back()));
  }
  return held;
}

}  // namespace

int FloorPowerOfTwo(int value) {
  TFS_CHECK_GE(value, 1);
  int power = 1;
  while (power <= value / 2) power *= 2;
  return power;
}

int Log2(int power_of_two) {
  int exponent = 0;
  while ((1 << exponent) < power_of_two) ++exponent;
  return exponent;
}

Range HalvingPiece(const Range& whole, int pieces, int index) { return Held(whole, pieces, index).back(); }

void AppendReduceScatter(const Range& whole, const PowerOfTwoGroup& group, Schedule* schedule) {
  const int index = schedule->rank - group.first;
  const std::vector<Range> held = Held(whole, group.size, index);
  int level = 1;
  for (int distance = group.size / 2; distance >= 1; distance /= 2, ++level) {
    const int peer = group.first + (index ^ distance);
    const Range given = (index & distance) ? LowerHalf(held[level - 1]) : UpperHalf(held[level - 1]);
    AppendStep(schedule, {{ActionKind::kSend, peer, given}, {ActionKind::kReceiveReduce, peer, held[level]}});
  }
}

void AppendAllGather(const Range& whole, const PowerOfTwoGroup& group, Schedule* schedule) {
  const int index = schedule->rank - group.first;
  const std::vector<Range> held = Held(whole, group.size, index);
  int level = static_cast<int>(held.size()) - 1;
  for (int distance = 1; distance < group.size; distance *= 2, --level) {
    const int peer = group.first + (index ^ distance);
    const Range gained = (index & distance) ? LowerHalf(held[level - 1]) : UpperHalf(held[level - 1]);
    AppendStep(schedule, {{ActionKind::kSend, peer, held[level]}, {ActionKind::kReceiveCopy, peer, gained}});
  }
}

}  // namespace tf_strategies::schedule

// Name: binary blocks all-reduce.
// Restrictions: none; made for any number of ranks that is not a power of two.
// Steps: 2 lg B in the largest block, of B ranks; 2 lg b + 2 in a block of b. The longest way also crosses
//   from block to block, where a rank serves up to B/b ranks of the next larger one. More for a rest, see
//   below.
// Bytes per rank: sends 2n at most and reduces n at most, to the element, for every P and n.
// Order of rounding: an element is summed inside each block as in halving_doubling, then the sum of the
//   smaller blocks is added to the larger block's; it is formed once, in the largest block, and copied.
// Source: Rabenseifner, "Optimization of collective reduction operations", 2004; Thakur, Rabenseifner and
//   Gropp, 2005; Goyal et al., "Accurate, large minibatch SGD", 2017. The even split of the bound is our own.
//
// The ranks are split by the binary digits of P: 7 = 4 + 2 + 1 has blocks {0..3}, {4, 5}, {6}. Every block
// runs a reduce-scatter by recursive halving. From the smallest block upwards each rank hands its piece, cut
// finer, to the owners of those pieces in the next larger block, which add them. The largest block ends with
// the sums; they go back down the same way, and every block all-gathers by recursive doubling.
//
// The bound. When B divides n, a rank of a block of b sends n - n/b halving, n/b upwards, n/b downwards and n
// - n/b doubling: 2n. It adds n - n/b halving and n/b from the smaller block: n. This leaves no slack at all
// for an uneven split. So only a multiple of B elements goes this way; the *rest* is summed over balanced
// trees (balanced_trees.h), in which no rank exceeds its share either. The rest is shorter than 3B; a buffer
// shorter than that may be all rest.
// With one block there is slack, n/B a rank, and an uneven split costs up to lg B: from n = B lg B on there
// is no rest, and the schedule is that of halving_doubling.
#include <cstddef>

#include "ops/schedule/algorithms.h"
#include "ops/schedule/balanced_trees.h"
#include "ops/schedule/chunking.h"
#include "ops/schedule/halving.h"

namespace tf_strategies::schedule {
namespace {

// The blocks, largest first.
std::vector<PowerOfTwoGroup> Blocks(int size) {
  std::vector<PowerOfTwoGroup> blocks;
  for (int first = 0; first < size; first += blocks.back().size) {
    blocks.push_back({first, FloorPowerOfTwo(size - first)});
  }
  return blocks;
}

int64_t SmallestDivisor(int64_t value) {
  for (int64_t divisor = 2; divisor * divisor <= value; ++divisor) {
    if (value % divisor == 0) return divisor;
  }
  return value;
}

// The number of elements that do not go through the blocks, and of the trees for them.
struct Remainder {
  int64_t elements = 0;
  int trees = 1;
};

// Few trees are few messages, one tree is a chain: of the rests that leave a multiple of `largest`, and with
// few elements to move, takes the one with the fewest trees above one. An odd one of the first three is a
// multiple of 3.
Remainder ChooseRemainder(int size, int64_t count) {
  const int largest = FloorPowerOfTwo(size);
  const bool one_block = largest == size;
  if (one_block && count >= static_cast<int64_t>(largest) * Log2(largest)) return {};
  if (count % largest == 0) return {};
  Remainder best;
  for (int64_t elements = count % largest; elements <= count && elements < 3 * int64_t{largest};
       elements += largest) {
    if (elements == 1 && count > 1) continue;
    const int trees = static_cast<int>(SmallestDivisor(elements));
    if (best.elements == 0 || trees < best.trees) best = {elements, trees};
  }
  return best;
}

void AppendBlocks(const Range& whole, Schedule* schedule) {
  if (whole.empty()) return;
  const std::vector<PowerOfTwoGroup> blocks = Blocks(schedule->size);
  size_t mine = 0;
  while (schedule->rank >= blocks[mine].first + blocks[mine].size) ++mine;
  const PowerOfTwoGroup& block = blocks[mine];
  const int index = schedule->rank - block.first;
  const Range piece = HalvingPiece(whole, block.size, index);
  const bool has_smaller = mine + 1 < blocks.size();
  int smaller_peer = 0;
  if (has_smaller) {
    const PowerOfTwoGroup& smaller = blocks[mine + 1];
    smaller_peer = smaller.first + index / (block.size / smaller.size);
  }

  AppendReduceScatter(whole, block, schedule);
  // A block with a smaller one has two ranks at least, hence a halving and a doubling. The smaller block's
  // piece arrives beside the last halving, after which the sum of both is in hand.
  if (has_smaller) schedule->steps.back().push_back({ActionKind::kReceiveReduce, smaller_peer, piece});

  if (mine > 0) {
    const PowerOfTwoGroup& larger = blocks[mine - 1];
    const int ratio = larger.size / block.size;
    Step up;
    Step down;
    for (int i = 0; i < ratio; ++i) {
      const int owner = index * ratio + i;
      const Range finer = HalvingPiece(whole, larger.size, owner);
      up.push_back({ActionKind::kSend, larger.first + owner, finer});
      down.push_back({ActionKind::kReceiveCopy, larger.first + owner, finer});
    }
    AppendStep(schedule, up);
    AppendStep(schedule, down);
  }

  const size_t gather = schedule->steps.size();
  AppendAllGather(whole, block, schedule);
  if (has_smaller) {
    // The smaller block has waited longest and still has the longest way, so it is served together with the
    // first doubling.
    Step& first = schedule->steps[gather];
    first.insert(first.begin(), {ActionKind::kSend, smaller_peer, piece});
  }
}

}  // namespace

Schedule BinaryBlocks(int rank, int size, int64_t count) {
  Schedule schedule{rank, size, count, {}};
  if (size == 1) return schedule;
  const Remainder rest = ChooseRemainder(size, count);
  AppendBlocks({0, count - rest.elements}, &schedule);
  AppendBalancedTrees({count - rest.elements, count}, rest.trees, &schedule);
  return schedule;
}

}  // namespace tf_strategies::schedule

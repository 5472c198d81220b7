// Bodies of the kernels that write the selected entries in the order of their indices. Each block has consecutive segments of
// the vector, and counts the entries in each of them and in all. Then it knows the positions of its entries.
#ifndef OPS_CUDA_SEGMENTS_H_
#define OPS_CUDA_SEGMENTS_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"
#include "ops/cuda/batches.h"
#include "ops/cuda/marks.h"
#include "ops/cuda/radix_select.h"
#include "ops/cuda/scan.h"

namespace tf_strategies::cuda {

// The numbers of entries.
struct Counts {
  int64_t above;  // sums whose key is above the threshold
  int64_t equal;  // sums whose key is the threshold
};

// The most blocks in the grid of CountSegments and TakeSegments.
inline constexpr int kMostBlocks = 2048;

// Calls visit(segment) for each segment from begin to end - 1 that belongs to this warp of this block.
template <typename Block, typename Visit>
TFS_DEVICE void ForSegments(const Block& block, int64_t begin, int64_t end, const Visit& visit) {
  for (int64_t segment = begin + block.Thread() / kWarp; segment < end; segment += block.Threads() / kWarp)
    visit(segment);
}

// Returns the first segment of block `index`, which is also the end of the segments of the block before it.
template <typename Block>
TFS_DEVICE int64_t FirstSegment(const Block& block, int64_t index, int64_t count) {
  return Segments(count) * index / block.Count();
}

// Adds up the counts of the threads of a block.
template <typename Block>
TFS_DEVICE void AddUpCounts(const Block& block, Counts mine, int64_t* shared, Counts* before, Counts* all) {
  const SumOfThreads above = AddUp(block, mine.above, shared);
  const SumOfThreads equal = AddUp(block, mine.equal, shared);
  *before = {above.before, equal.before};
  *all = {above.all, equal.all};
}

// Counts the entries of all segments and of all blocks. counts: [Segments(count)]. of_blocks: [Count()].
// places, shared: [Threads() / kWarp], in the memory of the block.
template <typename Block>
TFS_DEVICE void CountSegments(const Block& block, const float* sums, int64_t count, const uint32_t* marks,
                              const Threshold* threshold, Places* places, int64_t* shared, Counts* counts,
                              Counts* of_blocks) {
  const int32_t kth = threshold->key;
  Counts of_warp = {0, 0};
  const int64_t begin = FirstSegment(block, block.Index(), count);
  const int64_t end = FirstSegment(block, block.Index() + 1, count);
  ForSegments(block, begin, end, [&](int64_t segment) {
    Counts found = {0, 0};
    ForMarked(block, marks, segment, count, places, [&](bool is_marked, int64_t i) {
      const int32_t key = is_marked ? compress::MagnitudeBits(sums[i]) : -1;
      found.above += Block::CountOnes(block.Ballot(key > kth));
      found.equal += Block::CountOnes(block.Ballot(key == kth));
    });
    of_warp.above += found.above;
    of_warp.equal += found.equal;
    if (block.Thread() % kWarp == 0) counts[segment] = found;
  });
  if (block.Thread() % kWarp != 0) of_warp = {0, 0};
  Counts before, all;
  AddUpCounts(block, of_warp, shared, &before, &all);
  if (block.Thread() == 0) of_blocks[block.Index()] = all;
}

// Replaces the counts of this block's segments, begin to end - 1, by the sums of all counts before them.
//
// counts, of_blocks: the results of CountSegments. shared: [Threads() / kWarp], in the memory of the block.
template <typename Block>
TFS_DEVICE void AddUpSegments(const Block& block, int64_t begin, int64_t end, const Counts* of_blocks,
                              int64_t* shared, Counts* counts) {
  Counts mine = {0, 0}, before, sum;
  for (int64_t other = block.Thread(); other < block.Index(); other += block.Threads()) {
    mine.above += of_blocks[other].above;
    mine.equal += of_blocks[other].equal;
  }
  AddUpCounts(block, mine, shared, &before, &sum);
  for (int64_t first = begin; first < end; first += block.Threads()) {
    const int64_t segment = first + block.Thread();
    mine = segment < end ? counts[segment] : Counts{0, 0};
    Counts all;
    AddUpCounts(block, mine, shared, &before, &all);
    if (segment < end) counts[segment] = {sum.above + before.above, sum.equal + before.equal};
    sum.above += all.above;
    sum.equal += all.equal;
  }
  block.Sync();
}

// Writes the selected entries to indices [k] and values [k]. Sets the selected elements of the residual to 0, and also
// those that are not finite. Runs in the same grid as CountSegments.
//
// residual: [count], the sums. counts, of_blocks: the results of CountSegments. places, shared: as there.
template <typename Block>
TFS_DEVICE void TakeSegments(const Block& block, float* residual, int64_t count, const uint32_t* marks,
                             const Threshold* threshold, Places* places, int64_t* shared, Counts* counts,
                             const Counts* of_blocks, int64_t* indices, float* values) {
  const int32_t kth = threshold->key;
  const int64_t taken = threshold->taken;
  const uint32_t lanes_before = (uint32_t{1} << block.Thread() % kWarp) - 1;
  const int64_t begin = FirstSegment(block, block.Index(), count);
  const int64_t end = FirstSegment(block, block.Index() + 1, count);
  AddUpSegments(block, begin, end, of_blocks, shared, counts);
  ForSegments(block, begin, end, [&](int64_t segment) {
    Counts before = counts[segment];
    ForMarked(block, marks, segment, count, places, [&](bool is_marked, int64_t i) {
      const float sum = is_marked ? residual[i] : 0;
      const int32_t key = is_marked ? compress::MagnitudeBits(sum) : -1;
      const uint32_t above = block.Ballot(key > kth);
      const uint32_t equal = block.Ballot(key == kth);
      const int64_t larger = before.above + Block::CountOnes(above & lanes_before);
      const int64_t like = before.equal + Block::CountOnes(equal & lanes_before);
      const bool is_taken = key > kth || (key == kth && like < taken);
      if (is_taken) {
        const int64_t position = larger + (like < taken ? like : taken);
        indices[position] = i;
        values[position] = sum;
      }
      if (is_taken || key >= compress::kInfinityBits) residual[i] = 0;
      before.above += Block::CountOnes(above);
      before.equal += Block::CountOnes(equal);
    });
  });
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_SEGMENTS_H_

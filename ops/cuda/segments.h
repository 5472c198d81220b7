// Bodies of the kernels that write the selected entries in the order of their indices. Each warp counts the entries in
// its segments of the vector. The counts are added up. Then each warp knows the positions of its entries.
#ifndef OPS_CUDA_SEGMENTS_H_
#define OPS_CUDA_SEGMENTS_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"
#include "ops/cuda/batches.h"
#include "ops/cuda/radix_select.h"
#include "ops/cuda/scan.h"

namespace tf_strategies::cuda {

inline constexpr int64_t kSegment = 2048;  // elements
static_assert(kSegment % kBatch == 0, "a segment has whole batches");

// The counts of a segment or, after AddUpSegments, of all segments before it.
struct Counts {
  int64_t above;  // sums whose key is above the threshold
  int64_t equal;  // sums whose key is the threshold
};

TFS_HOST_DEVICE inline int64_t Segments(int64_t count) { return (count + kSegment - 1) / kSegment; }

// Calls visit(batch) for the batches of a segment that have marks, in ascending order.
template <typename Block, typename Visit>
TFS_DEVICE void ForBatches(const Block& block, int64_t segment, int64_t count, const uint32_t* marks,
                           const Visit& visit) {
  constexpr int64_t kBatches = kSegment / kBatch;
  for (int64_t batch = segment * kBatches; batch < (segment + 1) * kBatches && batch < Batches(count);
       ++batch) {
    if (HasMarks(block, marks + batch * kLoads)) visit(batch);
  }
}

// Counts the entries of all segments. counts: [Segments(count) + 1]; the last element is not written.
template <typename Block>
TFS_DEVICE void CountSegments(const Block& block, const float* sums, int64_t count, const uint32_t* marks,
                              const Threshold* threshold, Counts* counts) {
  const int32_t kth = threshold->key;
  ForThisWarp(block, Segments(count), [&](int64_t segment) {
    Counts found = {0, 0};
    ForBatches(block, segment, count, marks, [&](int64_t batch) {
      float values[kLoads];
      int32_t keys[kLoads];
      LoadMarked(block, sums + batch * kBatch, marks + batch * kLoads, values, keys);
      for (const int32_t key : keys) {
        found.above += Block::CountOnes(block.Ballot(key > kth));
        found.equal += Block::CountOnes(block.Ballot(key == kth));
      }
    });
    if (block.Thread() % kWarp == 0) counts[segment] = found;
  });
}

// Replaces each element of counts [Segments(count) + 1] by the sum of all elements before it. The last element becomes
// the sum of all segments. Runs in one block. shared: [Threads()].
template <typename Block>
TFS_DEVICE void AddUpSegments(const Block& block, int64_t count, Counts* counts, int64_t* shared) {
  const int64_t segments = Segments(count);
  const int64_t share = (segments + block.Threads() - 1) / block.Threads();
  const int64_t begin = share * block.Thread();
  const int64_t end = begin + share < segments ? begin + share : segments;
  Counts mine = {0, 0};
  for (int64_t i = begin; i < end; ++i) {
    mine.above += counts[i].above;
    mine.equal += counts[i].equal;
  }
  Counts before = {0, 0};
  before.above = SumBefore(block, mine.above, shared);
  before.equal = SumBefore(block, mine.equal, shared);
  for (int64_t i = begin; i < end; ++i) {
    const Counts here = counts[i];
    counts[i] = before;
    before.above += here.above;
    before.equal += here.equal;
  }
  if (block.Thread() == block.Threads() - 1) counts[segments] = before;
}

// Writes the selected entries to indices [k] and values [k]. Sets the selected elements of the residual to 0, and also
// those that are not finite.
//
// residual: [count], the sums. counts: the result of AddUpSegments.
template <typename Block>
TFS_DEVICE void TakeSegments(const Block& block, float* residual, int64_t count, const uint32_t* marks,
                             const Threshold* threshold, const Counts* counts, int64_t* indices,
                             float* values) {
  const int32_t kth = threshold->key;
  const int64_t taken = threshold->taken;
  const uint32_t lanes_before = (uint32_t{1} << block.Thread() % kWarp) - 1;
  ForThisWarp(block, Segments(count), [&](int64_t segment) {
    Counts before = counts[segment];
    ForBatches(block, segment, count, marks, [&](int64_t batch) {
      const int64_t first = batch * kBatch + block.Thread() % kWarp;
      float sums[kLoads];
      int32_t keys[kLoads];
      LoadMarked(block, residual + batch * kBatch, marks + batch * kLoads, sums, keys);
      for (int j = 0; j < kLoads; ++j) {
        const uint32_t above = block.Ballot(keys[j] > kth);
        const uint32_t equal = block.Ballot(keys[j] == kth);
        const int64_t larger = before.above + Block::CountOnes(above & lanes_before);
        const int64_t like = before.equal + Block::CountOnes(equal & lanes_before);
        const bool is_taken = keys[j] > kth || (keys[j] == kth && like < taken);
        if (is_taken) {
          const int64_t position = larger + (like < taken ? like : taken);
          indices[position] = first + j * kWarp;
          values[position] = sums[j];
        }
        if (is_taken || keys[j] >= compress::kInfinityBits) residual[first + j * kWarp] = 0;
        before.above += Block::CountOnes(above);
        before.equal += Block::CountOnes(equal);
      }
    });
  });
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_SEGMENTS_H_

// Divides a vector into batches, each of which a warp loads at once. The first pass marks the elements that can be selected,
// with one bit for each element. Later passes read the marks, and of the sums only those that are marked.
#ifndef OPS_CUDA_BATCHES_H_
#define OPS_CUDA_BATCHES_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"

namespace tf_strategies::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kLoads = 8;  // elements of a batch that one thread loads, and words of its marks
inline constexpr int64_t kBatch = kWarp * kLoads;

TFS_HOST_DEVICE inline int64_t Batches(int64_t count) { return (count + kBatch - 1) / kBatch; }
TFS_HOST_DEVICE inline int64_t MarkWords(int64_t count) { return Batches(count) * kLoads; }

// Calls visit(i) for the numbers from 0 to n - 1 that belong to this warp.
template <typename Block, typename Visit>
TFS_DEVICE void ForThisWarp(const Block& block, int64_t n, const Visit& visit) {
  const int64_t warps = block.Threads() / kWarp;
  for (int64_t i = block.Index() * warps + block.Thread() / kWarp; i < n; i += block.Count() * warps)
    visit(i);
}

// Stores marks [kLoads] of a batch. Bit i of word j belongs to element j * kWarp + i. votes: those of this lane's elements.
// All lanes of the warp must call it.
template <typename Block>
TFS_DEVICE void StoreMarks(const Block& block, const bool (&votes)[kLoads], uint32_t* marks) {
  const int lane = block.Thread() % kWarp;
  uint32_t mine = 0;
  for (int j = 0; j < kLoads; ++j) {
    const uint32_t word = block.Ballot(votes[j]);
    if (lane == j) mine = word;
  }
  if (lane < kLoads) marks[lane] = mine;
}

// Returns whether a batch has a mark. All lanes of the warp must call it.
template <typename Block>
TFS_DEVICE bool HasMarks(const Block& block, const uint32_t* marks) {
  const int lane = block.Thread() % kWarp;
  return block.Ballot(lane < kLoads && marks[lane] != 0) != 0;
}

// Loads the lane's part of a batch: the marked ones of every kWarp-th sum, and their keys. Of the others, values are 0 and
// keys are -1, which is less than all other keys. sums, marks: of the batch.
template <typename Block>
TFS_DEVICE void LoadMarked(const Block& block, const float* sums, const uint32_t* marks,
                           float (&values)[kLoads], int32_t (&keys)[kLoads]) {
  const int lane = block.Thread() % kWarp;
  for (int j = 0; j < kLoads; ++j) {
    const bool is_marked = (marks[j] >> lane & 1) != 0;
    values[j] = is_marked ? sums[j * kWarp + lane] : 0;
    keys[j] = is_marked ? compress::MagnitudeBits(values[j]) : -1;
  }
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_BATCHES_H_

// Divides a vector into batches, each of which a warp loads at once. The largest key of each batch is stored, so that
// later passes skip batches in which nothing can be selected. If one in a thousand of independent entries is selected,
// they skip three of four batches.
#ifndef OPS_CUDA_BATCHES_H_
#define OPS_CUDA_BATCHES_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"

namespace tf_strategies::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kLoads = 8;  // elements of a batch that one thread loads
inline constexpr int64_t kBatch = kWarp * kLoads;

TFS_HOST_DEVICE inline int64_t Batches(int64_t count) { return (count + kBatch - 1) / kBatch; }

// Calls visit(i) for the numbers from 0 to n - 1 that belong to this warp.
template <typename Block, typename Visit>
TFS_DEVICE void ForThisWarp(const Block& block, int64_t n, const Visit& visit) {
  const int64_t warps = block.Threads() / kWarp;
  for (int64_t i = block.Index() * warps + block.Thread() / kWarp; i < n; i += block.Count() * warps)
    visit(i);
}

// Loads the lane's part of a batch: every kWarp-th sum from `first`, and their keys. After the end of the vector, sums
// are 0 and keys are -1, which is less than all other keys.
TFS_DEVICE inline void LoadBatch(const float* sums, int64_t first, int64_t count, float (&values)[kLoads],
                                 int32_t (&keys)[kLoads]) {
  for (int j = 0; j < kLoads; ++j) {
    const int64_t i = first + j * kWarp;
    values[j] = i < count ? sums[i] : 0;
    keys[j] = i < count ? compress::MagnitudeBits(values[j]) : -1;
  }
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_BATCHES_H_

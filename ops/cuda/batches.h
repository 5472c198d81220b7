// A vector in batches: what a warp loads at once. The largest key of each is kept, so that later passes need not read those in which
// nothing can be selected: three of four, with one in a thousand of independent entries selected.
#ifndef OPS_CUDA_BATCHES_H_
#define OPS_CUDA_BATCHES_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"

namespace tf_strategies::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kLoads = 8;  // that a thread has under way
inline constexpr int64_t kBatch = kWarp * kLoads;

TFS_HOST_DEVICE inline int64_t Batches(int64_t count) { return (count + kBatch - 1) / kBatch; }

// Calls visit(i) for the numbers below n that fall to this warp.
template <typename Block, typename Visit>
TFS_DEVICE void ForThisWarp(const Block& block, int64_t n, const Visit& visit) {
  const int64_t warps = block.Threads() / kWarp;
  for (int64_t i = block.Index() * warps + block.Thread() / kWarp; i < n; i += block.Count() * warps)
    visit(i);
}

// The lane's part of a batch, every kWarp-th sum from `first` on, and their keys. Beyond the end sums are 0 and keys -1, below all.
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

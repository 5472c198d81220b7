// Computes sums over the threads of a block.
#ifndef OPS_CUDA_SCAN_H_
#define OPS_CUDA_SCAN_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/cuda/batches.h"

namespace tf_strategies::cuda {

// Sums of the values that the threads of a block came with.
struct SumOfThreads {
  int64_t before;  // of the threads before this one
  int64_t all;
};

// Adds up the values of the threads of a block. shared: [Threads() / kWarp], in the memory of the block. All threads must
// call it.
template <typename Block>
TFS_DEVICE SumOfThreads AddUp(const Block& block, int64_t value, int64_t* shared) {
  const int warp = block.Thread() / kWarp;
  const int64_t before_in_warp = block.SumBeforeInWarp(value);
  block.Sync();  // threads may still read the sums of an earlier call
  if (block.Thread() % kWarp == kWarp - 1) shared[warp] = before_in_warp + value;
  block.Sync();
  SumOfThreads sum = {0, 0};
  for (int other = 0; other < block.Threads() / kWarp; ++other) {
    if (other == warp) sum.before = sum.all;
    sum.all += shared[other];
  }
  sum.before += before_in_warp;
  return sum;
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_SCAN_H_

// Computes sums over the threads of a block.
#ifndef OPS_CUDA_SCAN_H_
#define OPS_CUDA_SCAN_H_

#include <cstdint>

#include "ops/base/host_device.h"

namespace tf_strategies::cuda {

// Returns the sum of the values of all threads before this one, in log2(Threads()) steps. shared: [Threads()], in the
// memory of the block. Afterwards its last element is the sum over all threads.
//
// Source: Hillis and Steele 1986, "Data parallel algorithms".
template <typename Block>
TFS_DEVICE int64_t SumBefore(const Block& block, int64_t value, int64_t* shared) {
  const int thread = block.Thread();
  block.Sync();  // threads may still read the result of an earlier call
  shared[thread] = value;
  block.Sync();
  for (int reach = 1; reach < block.Threads(); reach *= 2) {
    const int64_t other = thread >= reach ? shared[thread - reach] : 0;
    block.Sync();
    shared[thread] += other;
    block.Sync();
  }
  return shared[thread] - value;
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_SCAN_H_

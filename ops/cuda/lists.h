// The body of the kernel that adds a list of entries to a vector.
#ifndef OPS_CUDA_LISTS_H_
#define OPS_CUDA_LISTS_H_

#include <cstdint>

#include "ops/base/host_device.h"

namespace tf_strategies::cuda {

// Adds values[i] to sum[indices[i]] for i in [begin, end). No index may occur twice.
template <typename Block>
TFS_DEVICE void AddList(const Block& block, const int64_t* indices, const float* values, int64_t begin,
                        int64_t end, float* sum) {
  for (int64_t i = begin + block.Index() * block.Threads() + block.Thread(); i < end;
       i += block.Count() * block.Threads())
    sum[indices[i]] += values[i];
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_LISTS_H_

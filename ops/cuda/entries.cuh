// Adds up lists of entries on a GPU, as compress::SumEntries does after it has decoded the messages.
#ifndef OPS_CUDA_ENTRIES_CUH_
#define OPS_CUDA_ENTRIES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/base/status.h"

namespace tf_strategies::cuda {

// Sets sum [count] to the sum of `lists` lists. Elements without an entry become 0. Each element is added up in the
// order of the lists, so the bits are those of the CPU, except that a NaN may have another payload. The function adds
// one kernel for each list to the stream, and returns at once.
//
//   ends     [lists] in host memory, read before the function returns. List i has the entries from ends[i - 1] (0 for the
//            first list) to ends[i].
//   indices  [ends[lists - 1]] in device memory. In each list they must ascend strictly, in [0, count). This is not
//            checked; compress::TopK, cuda::TopK and compress::ReadIndices ensure it.
//   values   [ends[lists - 1]] in device memory
//   sum      [count] in device memory
//
// Returns InvalidArgument if count is wrong or ends descend, and Internal for errors of the launches.
Status SumLists(const int64_t* ends, int64_t lists, const int64_t* indices, const float* values,
                int64_t count, float* sum, cudaStream_t stream);

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_ENTRIES_CUH_

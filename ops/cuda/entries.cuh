// The sum of lists of entries on a GPU: what compress::SumEntries does once the messages are decoded.
#ifndef OPS_CUDA_ENTRIES_CUH_
#define OPS_CUDA_ENTRIES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/base/status.h"

namespace tf_strategies::cuda {

// sum [count] becomes the sum of `lists` lists, 0 where there are none, each element added up in the order of the lists: the same bits
// as on the CPU, but that a NaN may have another payload. Puts the work into the stream, one kernel a list, and returns at once.
//
//   ends     [lists] in host memory, read before this returns: list i has the entries from ends[i - 1] (the first from 0) to ends[i]
//   indices  [ends[lists - 1]] in device memory. In each list strictly ascending in [0, count); this is not checked here: they come
//            from compress::TopK, cuda::TopK or compress::ReadIndices, which see to it
//   values   [ends[lists - 1]] in device memory
//   sum      [count] in device memory
//
// Returns InvalidArgument for a count, or ends that descend, Internal for what CUDA reports of the launches.
Status SumLists(const int64_t* ends, int64_t lists, const int64_t* indices, const float* values,
                int64_t count, float* sum, cudaStream_t stream);

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_ENTRIES_CUH_

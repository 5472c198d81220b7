// Top-k by magnitude with error feedback on a GPU: compress::TopK, with the same outcome bit by bit.
#ifndef OPS_CUDA_TOP_K_CUH_
#define OPS_CUDA_TOP_K_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/base/dtype.h"
#include "ops/base/status.h"

namespace tf_strategies::cuda {

// What TopK needs in device memory to work in, in bytes. 0 <= count <= compress::kMaxCount.
int64_t TopKWorkspaceBytes(int64_t count);

// Puts the selection into the stream and returns at once, without waiting for the device. What is selected, and what the residual
// becomes, is told in compress/topk.h.
//
// Three passes find the k-th largest key digit by digit, two write the selection. The first moves 12 bytes for each element of float32,
// which is the least, the others up to 4 each: less where few are selected (batches.h). A device of compute capability 8.0 or later.
// Where gradient and residual both are NaN, the gradient's is the sum; the CPU may take the other.
//
// All pointers are to device memory, and stay the caller's. They must last until the stream has come past the selection.
//   gradient   [count] of float32, float16 or bfloat16
//   residual   [count], distinct from gradient
//   indices    [k], ascending
//   values     [k], their sums
//   workspace  [workspace_bytes], aligned to 16 bytes; nothing need be in it, and nothing that is of use stays there
//
// Returns InvalidArgument for a dtype, count, k or workspace that cannot be; nothing is then touched. Internal for what CUDA reports of
// the launches; what the residual holds is then undefined.
Status TopK(DType dtype, const void* gradient, float* residual, int64_t count, int64_t k, int64_t* indices,
            float* values, void* workspace, int64_t workspace_bytes, cudaStream_t stream);

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_TOP_K_CUH_

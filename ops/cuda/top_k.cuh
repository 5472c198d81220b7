// Selects the k largest elements by magnitude, with error feedback, on a GPU. The bits of the result are those of
// compress::TopK.
#ifndef OPS_CUDA_TOP_K_CUH_
#define OPS_CUDA_TOP_K_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/base/dtype.h"
#include "ops/base/status.h"

namespace tf_strategies::cuda {

// Returns the size of the workspace of TopK in bytes. 0 <= count <= compress::kMaxCount.
int64_t TopKWorkspaceBytes(int64_t count);

// Adds the selection to the stream and returns at once. compress/topk.h defines the selected elements and the new
// residual. If gradient and residual are both NaN, the sum is the gradient's NaN; the CPU may choose the other one.
//
// The first pass adds, and marks the elements that can be selected: it moves 12 bytes for each element of float32, which is the
// minimum, and a bit. The later passes find the k-th largest key digit by digit and write the selection. They read the marks
// and what is marked, some times k elements. It needs a device of compute capability 8.0 or later.
//
// All pointers refer to device memory, which belongs to the caller. It must stay valid until the stream has finished the
// selection.
//   gradient   [count] of float32, float16 or bfloat16
//   residual   [count], distinct from gradient
//   indices    [k], ascending
//   values     [k], their sums
//   workspace  [workspace_bytes], aligned to 16 bytes; its contents are undefined before and after
//
// Returns InvalidArgument if dtype, count, k or workspace are wrong; then nothing is changed. Returns Internal for errors
// of the launches; then the residual is undefined.
Status TopK(DType dtype, const void* gradient, float* residual, int64_t count, int64_t k, int64_t* indices,
            float* values, void* workspace, int64_t workspace_bytes, cudaStream_t stream);

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_TOP_K_CUH_

// Quantizes gradients on a GPU, to the bodies of the messages of compress/quantize.h, and adds them up. The bytes are
// those of the CPU.
#ifndef OPS_CUDA_QUANTIZE_CUH_
#define OPS_CUDA_QUANTIZE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/base/status.h"
#include "ops/compress/philox.h"
#include "ops/compress/quantize.h"

namespace tf_strategies::cuda {

// Returns the size of a body. A body is a message of compress/quantize.h without its header, which the host writes.
int64_t BodyBytes(compress::Method method, int64_t count, int64_t bucket);

// Quantizes gradient [count] and writes the BodyBytes() bytes at `body`, which may have any alignment. Both are in device
// memory. The function adds the work to the stream, and returns at once.
//
// A block of threads processes one bucket at a time, so some multiprocessors idle if there are fewer buckets. For the
// method `sign`, eight threads add up the mean of a bucket, in the same order as the CPU.
//
// Returns InvalidArgument if method, count or bucket are wrong, and Internal for errors of the launch.
Status Quantize(compress::Method method, const float* gradient, int64_t count, int64_t bucket,
                compress::Seed seed, uint8_t* body, cudaStream_t stream);

// The body of a message, in device memory with any alignment. The receiver must have checked that it has BodyBytes()
// bytes.
struct Body {
  compress::Method method;
  int64_t bucket;
  const uint8_t* bytes;
};

// Sets sum [count], in device memory, to the sum of bodies [n], or to 0 if n is 0. Each element is added up in the order
// of the bodies, so the bits are those of the CPU, except that a NaN may have another payload. The function adds one
// kernel for each body to the stream, and returns at once. It reads `bodies`, in host memory, before it returns. Errors
// are those of Quantize.
Status SumBodies(const Body* bodies, int64_t n, int64_t count, float* sum, cudaStream_t stream);

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_QUANTIZE_CUH_

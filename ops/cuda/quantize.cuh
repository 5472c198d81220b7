// Quantization on a GPU: the bodies of compress/quantize.h, byte by byte those of the CPU, and their sum.
#ifndef OPS_CUDA_QUANTIZE_CUH_
#define OPS_CUDA_QUANTIZE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/base/status.h"
#include "ops/compress/philox.h"
#include "ops/compress/quantize.h"

namespace tf_strategies::cuda {

// What a body takes: a message of compress/quantize.h without its header, which the host writes.
int64_t BodyBytes(compress::Method method, int64_t count, int64_t bucket);

// Writes gradient [count] to the BodyBytes at `body`, both in device memory; `body` has any alignment. Puts the work into the stream
// and returns at once. A block of threads takes a bucket: where there are fewer than multiprocessors, some idle. The mean of a bucket
// of `sign` is added up by eight threads, in the CPU's order.
// Returns InvalidArgument for a method, count or bucket that cannot be, Internal for what CUDA reports of the launch.
Status Quantize(compress::Method method, const float* gradient, int64_t count, int64_t bucket,
                compress::Seed seed, uint8_t* body, cudaStream_t stream);

// The body of a message, in device memory at any alignment. It has the BodyBytes: whoever received it has checked that.
struct Body {
  compress::Method method;
  int64_t bucket;
  const uint8_t* bytes;
};

// sum [count], in device memory, becomes the sum of bodies [n], 0 where there are none, each element added up in the order of the
// bodies: the same bits as on the CPU, but that a NaN may have another payload. bodies: in host memory, read before this returns.
// Puts the work into the stream, one kernel a body, and returns at once. Errors as above.
Status SumBodies(const Body* bodies, int64_t n, int64_t count, float* sum, cudaStream_t stream);

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_QUANTIZE_CUH_

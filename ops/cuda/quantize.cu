#include "ops/cuda/quantize.cuh"

#include <string>

#include "ops/compress/message.h"
#include "ops/compress/quantized_layout.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/buckets.h"
#include "ops/cuda/launch.cuh"

namespace tf_strategies::cuda {
namespace {

using compress::Method;
using compress::QuantizedLayout;

constexpr int kThreadsOfBucket = 128;  // each thread has four elements of a bucket of 512

__global__ void __launch_bounds__(kThreadsOfBucket)
    QuantizeKernel(Method method, QuantizedLayout layout, const float* gradient, compress::Seed seed,
                   uint8_t* body) {
  __shared__ BucketMemory memory;
  QuantizeBuckets(DeviceBlock(), method, layout, gradient, seed, body, &memory);
}

__global__ void __launch_bounds__(kThreads)
    AddBodyKernel(const uint8_t* body, QuantizedLayout layout, bool is_first, float* sum) {
  AddBody(DeviceBlock(), body, layout, is_first, sum);
}

Status CheckArguments(Method method, int64_t count, int64_t bucket) {
  TFS_RETURN_IF_ERROR(compress::CheckCount(count));
  if (method > compress::kLastMethod) {
    return InvalidArgument("method " + std::to_string(static_cast<int>(method)) + " is not known");
  }
  if (bucket < 1 || bucket > compress::kMaxBucket) {
    return InvalidArgument("a bucket must have 1 to " + std::to_string(compress::kMaxBucket) +
                           " elements; it has " + std::to_string(bucket));
  }
  return Status::Ok();
}

}  // namespace

int64_t BodyBytes(Method method, int64_t count, int64_t bucket) {
  return QuantizedLayout(method, count, bucket).Bytes();
}

Status Quantize(Method method, const float* gradient, int64_t count, int64_t bucket, compress::Seed seed,
                uint8_t* body, cudaStream_t stream) {
  TFS_RETURN_IF_ERROR(CheckArguments(method, count, bucket));
  if (count == 0) return Status::Ok();
  const QuantizedLayout layout(method, count, bucket);
  int blocks = 0;
  TFS_RETURN_IF_ERROR(BlocksFor(QuantizeKernel, kThreadsOfBucket, layout.buckets, 1, &blocks));
  QuantizeKernel<<<blocks, kThreadsOfBucket, 0, stream>>>(method, layout, gradient, seed, body);
  return StatusOf(cudaGetLastError(), "launching Quantize");
}

Status SumBodies(const Body* bodies, int64_t n, int64_t count, float* sum, cudaStream_t stream) {
  for (int64_t i = 0; i < n; ++i)
    TFS_RETURN_IF_ERROR(CheckArguments(bodies[i].method, count, bodies[i].bucket));
  TFS_RETURN_IF_ERROR(compress::CheckCount(count));
  if (count == 0) return Status::Ok();
  if (n == 0) return StatusOf(cudaMemsetAsync(sum, 0, count * sizeof(float), stream), "clearing the sum");
  int blocks = 0;
  TFS_RETURN_IF_ERROR(BlocksFor(AddBodyKernel, kThreads, count, kThreads, &blocks));
  for (int64_t i = 0; i < n; ++i) {
    const QuantizedLayout layout(bodies[i].method, count, bodies[i].bucket);
    AddBodyKernel<<<blocks, kThreads, 0, stream>>>(bodies[i].bytes, layout, i == 0, sum);
  }
  return StatusOf(cudaGetLastError(), "launching SumBodies");
}

}  // namespace tf_strategies::cuda

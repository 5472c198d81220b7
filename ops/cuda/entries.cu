#include "ops/cuda/entries.cuh"

#include <string>

#include "ops/compress/message.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/lists.h"

namespace tf_strategies::cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    AddListKernel(const int64_t* indices, const float* values, int64_t begin, int64_t end, float* sum) {
  AddList(DeviceBlock(), indices, values, begin, end, sum);
}

}  // namespace

Status SumLists(const int64_t* ends, int64_t lists, const int64_t* indices, const float* values,
                int64_t count, float* sum, cudaStream_t stream) {
  TFS_RETURN_IF_ERROR(compress::CheckCount(count));
  for (int64_t i = 0; i < lists; ++i) {
    const int64_t begin = i > 0 ? ends[i - 1] : 0;
    if (ends[i] < begin || ends[i] - begin > count) {
      return InvalidArgument("list " + std::to_string(i) + " must have 0 to " + std::to_string(count) +
                             " entries; it goes from " + std::to_string(begin) + " to " +
                             std::to_string(ends[i]));
    }
  }
  if (count == 0) return Status::Ok();
  TFS_RETURN_IF_ERROR(
      StatusOf(cudaMemsetAsync(sum, 0, count * sizeof(float), stream), "clearing the sum of lists"));
  for (int64_t i = 0; i < lists; ++i) {
    const int64_t begin = i > 0 ? ends[i - 1] : 0;
    if (begin == ends[i]) continue;
    int blocks = 0;
    TFS_RETURN_IF_ERROR(BlocksFor(AddListKernel, kThreads, ends[i] - begin, kThreads, &blocks));
    AddListKernel<<<blocks, kThreads, 0, stream>>>(indices, values, begin, ends[i], sum);
  }
  return StatusOf(cudaGetLastError(), "launching SumLists");
}

}  // namespace tf_strategies::cuda

#include "ops/cuda/top_k.cuh"

#include <string>

#include "ops/compress/message.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/radix_select.h"
#include "ops/cuda/segments.h"

namespace tf_strategies::cuda {
namespace {

constexpr int64_t kAlignment = 16;
constexpr int kWarps = kThreads / kWarp;
constexpr int kThreadsAlone = 1024;  // the threads of a block in kernels with one block

template <typename Format>
__global__ void __launch_bounds__(kThreads)
    AddAndCountKernel(const typename Format::Element* gradient, float* residual, int64_t count,
                      int32_t* largest, uint64_t* histogram) {
  __shared__ uint32_t bins[kBins];
  AddAndCount<Format>(DeviceBlock(), gradient, residual, count, largest, bins, histogram);
}

__global__ void __launch_bounds__(kThreads)
    CountDigitKernel(const float* sums, int64_t count, const int32_t* largest, Digit digit,
                     const Threshold* threshold, uint64_t* histogram) {
  __shared__ uint32_t bins[kBins];
  CountDigit(DeviceBlock(), sums, count, largest, digit, threshold, bins, histogram);
}

__global__ void __launch_bounds__(kThreadsAlone)
    ChooseDigitKernel(const uint64_t* histogram, Digit digit, int64_t k, Threshold* threshold) {
  __shared__ int64_t shared[kThreadsAlone];
  ChooseDigit(DeviceBlock(), histogram, digit, k, threshold, shared);
}

__global__ void __launch_bounds__(kThreads)
    CountSegmentsKernel(const float* sums, int64_t count, const int32_t* largest, const Threshold* threshold,
                        Counts* counts) {
  CountSegments(DeviceBlock(), sums, count, largest, threshold, counts);
}

__global__ void __launch_bounds__(kThreadsAlone) AddUpSegmentsKernel(int64_t count, Counts* counts) {
  __shared__ int64_t shared[kThreadsAlone];
  AddUpSegments(DeviceBlock(), count, counts, shared);
}

__global__ void __launch_bounds__(kThreads)
    TakeSegmentsKernel(float* residual, int64_t count, const int32_t* largest, const Threshold* threshold,
                       const Counts* counts, int64_t* indices, float* values) {
  TakeSegments(DeviceBlock(), residual, count, largest, threshold, counts, indices, values);
}

// The parts of the workspace.
struct Workspace {
  Workspace(void* memory, int64_t count)
      : histograms(static_cast<uint64_t*>(memory)),
        threshold(reinterpret_cast<Threshold*>(histograms + kDigitCount * kBins)),
        counts(reinterpret_cast<Counts*>(threshold + 1)),
        largest(reinterpret_cast<int32_t*>(counts + Segments(count) + 1)) {}
  static_assert(sizeof(Threshold) % kAlignment == 0, "the counts after it are aligned");

  uint64_t* histograms;
  Threshold* threshold;
  Counts* counts;
  int32_t* largest;
};

template <typename Format>
Status LaunchAddAndCount(const void* gradient, float* residual, int64_t count, const Workspace& parts,
                         cudaStream_t stream) {
  int blocks = 0;
  TFS_RETURN_IF_ERROR(BlocksFor(AddAndCountKernel<Format>, kThreads, Batches(count), kWarps, &blocks));
  AddAndCountKernel<Format>
      <<<blocks, kThreads, 0, stream>>>(static_cast<const typename Format::Element*>(gradient), residual,
                                        count, parts.largest, parts.histograms);
  return Status::Ok();
}

Status LaunchAddAndCount(DType dtype, const void* gradient, float* residual, int64_t count,
                         const Workspace& parts, cudaStream_t stream) {
  switch (dtype) {
    case DType::kFloat16: return LaunchAddAndCount<Float16>(gradient, residual, count, parts, stream);
    case DType::kBFloat16: return LaunchAddAndCount<BFloat16>(gradient, residual, count, parts, stream);
    default: return LaunchAddAndCount<Float32>(gradient, residual, count, parts, stream);
  }
}

Status CheckArguments(DType dtype, int64_t count, int64_t k, const void* workspace, int64_t bytes) {
  TFS_RETURN_IF_ERROR(compress::CheckCount(count));
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    return InvalidArgument(std::string("the gradient must be float32, float16 or bfloat16; it is ") +
                           DTypeName(dtype));
  }
  if (k < 0 || k > count) {
    return InvalidArgument("k must be between 0 and count, " + std::to_string(count) + "; it is " +
                           std::to_string(k));
  }
  if (bytes < TopKWorkspaceBytes(count)) {
    return InvalidArgument("the workspace must have " + std::to_string(TopKWorkspaceBytes(count)) +
                           " bytes for " + std::to_string(count) + " elements; it has " +
                           std::to_string(bytes));
  }
  if (reinterpret_cast<uintptr_t>(workspace) % kAlignment != 0) {
    return InvalidArgument("the workspace must be aligned to " + std::to_string(kAlignment) +
                           " bytes; its address ends with " +
                           std::to_string(reinterpret_cast<uintptr_t>(workspace) % kAlignment));
  }
  return Status::Ok();
}

}  // namespace

int64_t TopKWorkspaceBytes(int64_t count) {
  return kDigitCount * kBins * static_cast<int64_t>(sizeof(uint64_t)) +
         static_cast<int64_t>(sizeof(Threshold)) +
         (Segments(count) + 1) * static_cast<int64_t>(sizeof(Counts)) +
         Batches(count) * static_cast<int64_t>(sizeof(int32_t));
}

Status TopK(DType dtype, const void* gradient, float* residual, int64_t count, int64_t k, int64_t* indices,
            float* values, void* workspace, int64_t workspace_bytes, cudaStream_t stream) {
  TFS_RETURN_IF_ERROR(CheckArguments(dtype, count, k, workspace, workspace_bytes));
  if (count == 0) return Status::Ok();
  const Workspace parts(workspace, count);
  TFS_RETURN_IF_ERROR(
      StatusOf(cudaMemsetAsync(parts.histograms, 0, kDigitCount * kBins * sizeof(uint64_t), stream),
               "clearing the histograms of TopK"));
  TFS_RETURN_IF_ERROR(LaunchAddAndCount(dtype, gradient, residual, count, parts, stream));
  ChooseDigitKernel<<<1, kThreadsAlone, 0, stream>>>(parts.histograms, kDigits[0], k, parts.threshold);
  int blocks = 0;
  TFS_RETURN_IF_ERROR(BlocksFor(CountDigitKernel, kThreads, Batches(count), kWarps, &blocks));
  for (int i = 1; i < kDigitCount; ++i) {
    uint64_t* const histogram = parts.histograms + i * kBins;
    CountDigitKernel<<<blocks, kThreads, 0, stream>>>(residual, count, parts.largest, kDigits[i],
                                                      parts.threshold, histogram);
    ChooseDigitKernel<<<1, kThreadsAlone, 0, stream>>>(histogram, kDigits[i], k, parts.threshold);
  }
  TFS_RETURN_IF_ERROR(BlocksFor(CountSegmentsKernel, kThreads, Segments(count), kWarps, &blocks));
  CountSegmentsKernel<<<blocks, kThreads, 0, stream>>>(residual, count, parts.largest, parts.threshold,
                                                       parts.counts);
  AddUpSegmentsKernel<<<1, kThreadsAlone, 0, stream>>>(count, parts.counts);
  TFS_RETURN_IF_ERROR(BlocksFor(TakeSegmentsKernel, kThreads, Segments(count), kWarps, &blocks));
  TakeSegmentsKernel<<<blocks, kThreads, 0, stream>>>(residual, count, parts.largest, parts.threshold,
                                                      parts.counts, indices, values);
  return StatusOf(cudaGetLastError(), "launching TopK");
}

}  // namespace tf_strategies::cuda

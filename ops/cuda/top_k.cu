#include "ops/cuda/top_k.cuh"

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/compress/message.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/marks.h"
#include "ops/cuda/radix_select.h"
#include "ops/cuda/segments.h"

namespace tf_strategies::cuda {
namespace {

constexpr int64_t kAlignment = 16;
constexpr int kWarps = kThreads / kWarp;
constexpr int kThreadsAlone = 1024;  // the threads of a block in kernels with one block

template <typename Format>
__global__ void __launch_bounds__(kThreads)
    CountSampleKernel(const typename Format::Element* gradient, const float* residual, Sample sample,
                      uint64_t* histogram) {
  __shared__ uint32_t bins[BinsOf(kDigitOfBound)];
  CountSample<Format>(DeviceBlock(), gradient, residual, sample, bins, histogram);
}

template <typename Format>
__global__ void __launch_bounds__(kThreads)
    AddAndCountKernel(const typename Format::Element* gradient, float* residual, int64_t count,
                      const Threshold* bound, uint32_t* marks, uint64_t* histogram) {
  __shared__ uint32_t bins[kBins];
  AddAndCount<Format>(DeviceBlock(), gradient, residual, count, bound, marks, bins, histogram);
}

__global__ void __launch_bounds__(kThreads)
    CountRestKernel(const float* sums, int64_t count, const Threshold* bound, const Threshold* threshold,
                    uint32_t* marks, uint64_t* histogram) {
  __shared__ uint32_t bins[kBins];
  CountRest(DeviceBlock(), sums, count, bound, threshold, marks, bins, histogram);
}

__global__ void __launch_bounds__(kThreads)
    CountDigitKernel(const float* sums, int64_t count, const uint32_t* marks, Digit digit,
                     const Threshold* threshold, uint64_t* histogram) {
  __shared__ uint32_t bins[kBins];
  __shared__ Places places[kWarps];
  CountDigit(DeviceBlock(), sums, count, marks, digit, threshold, places, bins, histogram);
}

__global__ void __launch_bounds__(kThreadsAlone)
    ChooseDigitKernel(const uint64_t* histogram, Digit digit, int64_t k, Threshold* threshold) {
  __shared__ int64_t shared[kThreadsAlone / kWarp];
  ChooseDigit(DeviceBlock(), histogram, digit, k, threshold, shared);
}

__global__ void __launch_bounds__(kThreads)
    CountSegmentsKernel(const float* sums, int64_t count, const uint32_t* marks, const Threshold* threshold,
                        Counts* counts, Counts* of_blocks) {
  __shared__ Places places[kWarps];
  __shared__ int64_t shared[kWarps];
  CountSegments(DeviceBlock(), sums, count, marks, threshold, places, shared, counts, of_blocks);
}

__global__ void __launch_bounds__(kThreads)
    TakeSegmentsKernel(float* residual, int64_t count, const uint32_t* marks, const Threshold* threshold,
                       Counts* counts, const Counts* of_blocks, int64_t* indices, float* values) {
  __shared__ Places places[kWarps];
  __shared__ int64_t shared[kWarps];
  TakeSegments(DeviceBlock(), residual, count, marks, threshold, places, shared, counts, of_blocks, indices,
               values);
}

// The parts of the workspace.
struct Workspace {
  static constexpr int64_t kHistogramBytes =
      (kDigitCount * kBins + BinsOf(kDigitOfBound)) * static_cast<int64_t>(sizeof(uint64_t));

  Workspace(void* memory, int64_t count)
      : histograms(static_cast<uint64_t*>(memory)),
        of_sample(histograms + kDigitCount * kBins),
        threshold(reinterpret_cast<Threshold*>(of_sample + BinsOf(kDigitOfBound))),
        bound(threshold + 1),
        of_blocks(reinterpret_cast<Counts*>(bound + 1)),
        counts(of_blocks + kMostBlocks),
        marks(reinterpret_cast<uint32_t*>(counts + Segments(count))) {}
  static_assert(sizeof(Threshold) % kAlignment == 0, "the counts after it are aligned");

  uint64_t *histograms, *of_sample;
  Threshold *threshold, *bound;
  Counts *of_blocks, *counts;
  uint32_t* marks;
};

// The rank in a sample whose key is a bound: with fewer than one in ten thousand random vectors, fewer than k keys are above.
int64_t RankInSample(const Sample& sample, int64_t count, int64_t k) {
  const double expected =
      static_cast<double>(k) * static_cast<double>(sample.size) / static_cast<double>(count);
  return static_cast<int64_t>(expected + 4 * std::sqrt(expected)) + 16;
}

template <typename Format>
Status LaunchAddAndCount(const void* gradient, float* residual, int64_t count, int64_t k,
                         const Workspace& parts, cudaStream_t stream) {
  const auto* const elements = static_cast<const typename Format::Element*>(gradient);
  const Sample sample(count);
  int blocks = 0;
  TFS_RETURN_IF_ERROR(BlocksFor(CountSampleKernel<Format>, kThreads, sample.size, 2 * kThreads, &blocks));
  CountSampleKernel<Format><<<blocks, kThreads, 0, stream>>>(elements, residual, sample, parts.of_sample);
  ChooseDigitKernel<<<1, kThreadsAlone, 0, stream>>>(parts.of_sample, kDigitOfBound,
                                                     RankInSample(sample, count, k), parts.bound);
  TFS_RETURN_IF_ERROR(BlocksFor(AddAndCountKernel<Format>, kThreads, Batches(count), kWarps, &blocks));
  AddAndCountKernel<Format><<<blocks, kThreads, 0, stream>>>(elements, residual, count, parts.bound,
                                                             parts.marks, parts.histograms);
  return Status::Ok();
}

Status LaunchAddAndCount(DType dtype, const void* gradient, float* residual, int64_t count, int64_t k,
                         const Workspace& parts, cudaStream_t stream) {
  switch (dtype) {
    case DType::kFloat16: return LaunchAddAndCount<Float16>(gradient, residual, count, k, parts, stream);
    case DType::kBFloat16: return LaunchAddAndCount<BFloat16>(gradient, residual, count, k, parts, stream);
    default: return LaunchAddAndCount<Float32>(gradient, residual, count, k, parts, stream);
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
  return Workspace::kHistogramBytes + 2 * static_cast<int64_t>(sizeof(Threshold)) +
         (kMostBlocks + Segments(count)) * static_cast<int64_t>(sizeof(Counts)) +
         MarkWords(count) * static_cast<int64_t>(sizeof(uint32_t));
}

Status TopK(DType dtype, const void* gradient, float* residual, int64_t count, int64_t k, int64_t* indices,
            float* values, void* workspace, int64_t workspace_bytes, cudaStream_t stream) {
  TFS_RETURN_IF_ERROR(CheckArguments(dtype, count, k, workspace, workspace_bytes));
  if (count == 0) return Status::Ok();
  const Workspace parts(workspace, count);
  TFS_RETURN_IF_ERROR(StatusOf(cudaMemsetAsync(parts.histograms, 0, Workspace::kHistogramBytes, stream),
                               "clearing the histograms of TopK"));
  TFS_RETURN_IF_ERROR(LaunchAddAndCount(dtype, gradient, residual, count, k, parts, stream));
  ChooseDigitKernel<<<1, kThreadsAlone, 0, stream>>>(parts.histograms, kDigits[0], k, parts.threshold);
  int blocks = 0;
  TFS_RETURN_IF_ERROR(BlocksFor(CountRestKernel, kThreads, Batches(count), kWarps, &blocks));
  CountRestKernel<<<blocks, kThreads, 0, stream>>>(residual, count, parts.bound, parts.threshold, parts.marks,
                                                   parts.histograms);
  ChooseDigitKernel<<<1, kThreadsAlone, 0, stream>>>(parts.histograms, kDigits[0], k, parts.threshold);
  TFS_RETURN_IF_ERROR(BlocksFor(CountDigitKernel, kThreads, Segments(count), kWarps, &blocks));
  for (int i = 1; i < kDigitCount; ++i) {
    uint64_t* const histogram = parts.histograms + i * kBins;
    CountDigitKernel<<<blocks, kThreads, 0, stream>>>(residual, count, parts.marks, kDigits[i],
                                                      parts.threshold, histogram);
    ChooseDigitKernel<<<1, kThreadsAlone, 0, stream>>>(histogram, kDigits[i], k, parts.threshold);
  }
  TFS_RETURN_IF_ERROR(BlocksFor(CountSegmentsKernel, kThreads, Segments(count), kWarps, &blocks));
  blocks = std::min(blocks, kMostBlocks);  // both kernels have the same grid
  CountSegmentsKernel<<<blocks, kThreads, 0, stream>>>(residual, count, parts.marks, parts.threshold,
                                                       parts.counts, parts.of_blocks);
  TakeSegmentsKernel<<<blocks, kThreads, 0, stream>>>(residual, count, parts.marks, parts.threshold,
                                                      parts.counts, parts.of_blocks, indices, values);
  return StatusOf(cudaGetLastError(), "launching TopK");
}

}  // namespace tf_strategies::cuda

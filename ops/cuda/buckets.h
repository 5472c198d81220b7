// Bodies of the kernels that quantize buckets and add them up. They perform the operations of compress/levels.h in the
// same order as the CPU.
#ifndef OPS_CUDA_BUCKETS_H_
#define OPS_CUDA_BUCKETS_H_

#include <cstdint>
#include <cstring>

#include "ops/base/host_device.h"
#include "ops/compress/level_packing.h"
#include "ops/compress/levels.h"
#include "ops/compress/magnitude.h"
#include "ops/compress/philox.h"
#include "ops/compress/quantize.h"
#include "ops/compress/quantized_layout.h"
#include "ops/cuda/batches.h"

namespace tf_strategies::cuda {

inline constexpr int64_t kChunk = 1024;  // elements whose levels a block of threads holds at once
static_assert(kChunk % 8 == 0, "a chunk ends with a whole byte");

// The memory that the threads of a block share.
struct BucketMemory {
  int32_t largest;
  double sums[compress::kMeanSums];
  int8_t levels[kChunk];
};

// Returns sum `j` of the kMeanSums partial sums of the magnitudes of values [n].
TFS_HOST_DEVICE inline double PartOfMean(const float* values, int64_t n, int j) {
  const int64_t whole = n / compress::kMeanSums * compress::kMeanSums;
  double sum = 0;
  for (int64_t i = j; i < whole; i += compress::kMeanSums)
    sum += static_cast<double>(compress::MagnitudeOf(compress::MagnitudeBits(values[i])));
  if (j > 0) return sum;
  for (int64_t i = whole; i < n; ++i)
    sum += static_cast<double>(compress::MagnitudeOf(compress::MagnitudeBits(values[i])));
  return sum;
}

// Returns the scale of values [n] on all threads of the block.
template <typename Block>
TFS_DEVICE float ScaleOfBucket(const Block& block, compress::Method method, const float* values, int64_t n,
                               BucketMemory* memory) {
  const int thread = block.Thread();
  if (thread == 0) memory->largest = 0;
  block.Sync();
  int32_t largest = 0;
  for (int64_t i = thread; i < n; i += block.Threads()) {
    const int32_t bits = compress::MagnitudeBits(values[i]);
    largest = largest > bits ? largest : bits;
  }
  largest = block.LargestOfWarp(largest);
  if (thread % kWarp == 0) block.RaiseTo(&memory->largest, largest);
  const bool needs_mean = method == compress::Method::kSign;
  if (needs_mean && thread < compress::kMeanSums) memory->sums[thread] = PartOfMean(values, n, thread);
  block.Sync();
  return compress::ScaleOf(method, memory->largest, needs_mean ? compress::MeanOf(memory->sums, n) : 0);
}

// Computes levels [n] of gradient [first, first + n), which lies in a bucket with this scale; n <= kChunk. In each round
// a thread computes one block of Philox and, with its words, up to four levels.
template <typename Block>
TFS_DEVICE void LevelsOfChunk(const Block& block, compress::Method method, const float* gradient,
                              int64_t first, int64_t n, float scale, compress::Seed seed, int8_t* levels) {
  using compress::kPhiloxLanes;
  using compress::kWordGroup;
  const bool is_nan = scale != scale;
  if (is_nan || method == compress::Method::kSign) {
    for (int64_t i = block.Thread(); i < n; i += block.Threads())
      levels[i] = is_nan ? 0 : compress::SignLevel(gradient[first + i]);
    return;
  }
  const float inverse = compress::InverseOf(scale);
  const int32_t largest_level = compress::LargestLevel(method);
  const int64_t end = ((first + n - 1) / kWordGroup + 1) * kPhiloxLanes;
  for (int64_t counter = first / kWordGroup * kPhiloxLanes + block.Thread(); counter < end;
       counter += block.Threads()) {
    uint32_t words[4];
    compress::PhiloxBlock(seed, static_cast<uint64_t>(counter), words);
    for (int w = 0; w < 4; ++w) {
      const int64_t i =
          counter / kPhiloxLanes * kWordGroup + w * kPhiloxLanes + counter % kPhiloxLanes - first;
      if (i < 0 || i >= n) continue;
      const float value = gradient[first + i];
      levels[i] = method == compress::Method::kTernary
                      ? compress::TernaryLevel(value, words[w], scale)
                      : compress::StochasticLevel(value, words[w], inverse, largest_level);
    }
  }
}

// Packs levels [n] as compress::PackLevels does. Each thread writes whole bytes.
template <typename Block>
TFS_DEVICE void PackChunk(const Block& block, int bits, const int8_t* levels, int64_t n, uint8_t* to) {
  const int of_byte = 8 / bits;
  for (int64_t at = block.Thread(); at < compress::PackedBytes(bits, n); at += block.Threads()) {
    int byte = 0;
    for (int j = 0; j < of_byte && at * of_byte + j < n; ++j)
      byte |= compress::CodeOf(bits, levels[at * of_byte + j]) << bits * j;
    to[at] = static_cast<uint8_t>(byte);
  }
}

// Writes the body of the message for gradient [layout.count]. Each block of threads processes whole buckets.
template <typename Block>
TFS_DEVICE void QuantizeBuckets(const Block& block, compress::Method method,
                                const compress::QuantizedLayout& layout, const float* gradient,
                                compress::Seed seed, uint8_t* body, BucketMemory* memory) {
  for (int64_t i = block.Index(); i < layout.buckets; i += block.Count()) {
    const int64_t begin = i * layout.bucket;
    const int64_t n = layout.count - begin < layout.bucket ? layout.count - begin : layout.bucket;
    const float scale = ScaleOfBucket(block, method, gradient + begin, n, memory);
    if (block.Thread() == 0) std::memcpy(body + layout.ScaleAt(i), &scale, sizeof(scale));
    uint8_t* to = body + layout.LevelsAt(i);
    for (int64_t at = 0; at < n; at += kChunk) {
      const int64_t taken = n - at < kChunk ? n - at : kChunk;
      LevelsOfChunk(block, method, gradient, begin + at, taken, scale, seed, memory->levels);
      block.Sync();
      PackChunk(block, layout.bits, memory->levels, taken, to);
      to += compress::PackedBytes(layout.bits, taken);
      block.Sync();
    }
  }
}

// Returns the bucket of element i. It divides with 32 bits if possible, because a division with 64 bits takes longer
// than the rest of the kernel.
TFS_HOST_DEVICE inline int64_t BucketOf(const compress::QuantizedLayout& layout, int64_t i) {
  if (layout.count <= UINT32_MAX) return static_cast<uint32_t>(i) / static_cast<uint32_t>(layout.bucket);
  return i / layout.bucket;
}

// Adds the values of a body to sum [layout.count], or stores them there if it is the first body.
template <typename Block>
TFS_DEVICE void AddBody(const Block& block, const uint8_t* body, const compress::QuantizedLayout& layout,
                        bool is_first, float* sum) {
  const int of_byte = 8 / layout.bits;
  for (int64_t i = block.Index() * block.Threads() + block.Thread(); i < layout.count;
       i += block.Count() * block.Threads()) {
    const int64_t bucket = BucketOf(layout, i);
    const int64_t at = i - bucket * layout.bucket;
    float scale;
    std::memcpy(&scale, body + layout.ScaleAt(bucket), sizeof(scale));
    const int byte = body[layout.LevelsAt(bucket) + at / of_byte];
    const int code = byte >> layout.bits * static_cast<int>(at % of_byte) & ((1 << layout.bits) - 1);
    const float value = static_cast<float>(compress::LevelOf(layout.bits, code)) * scale;
    sum[i] = (is_first ? 0.0f : sum[i]) + value;
  }
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_BUCKETS_H_

// The quantization of a bucket and of one element (see quantize.h), by the same operations in the same order
// on every processor. A product and a sum must not be fused into one rounding: nvcc needs --fmad=false.
#ifndef OPS_COMPRESS_LEVELS_H_
#define OPS_COMPRESS_LEVELS_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"
#include "ops/compress/philox.h"
#include "ops/compress/quantize.h"

namespace tf_strategies::compress {

// Element i has word i % kWordGroup / kPhiloxLanes of the Philox block i / kWordGroup * kPhiloxLanes + i % kPhiloxLanes.
inline constexpr int64_t kWordGroup = 4 * kPhiloxLanes;

// The sums that make up a mean: sums[j] adds up the elements j, j + kMeanSums, ..., sums[0] also those after the last multiple of
// kMeanSums. They are added up in their order.
inline constexpr int kMeanSums = 8;

TFS_HOST_DEVICE inline double MeanOf(const double (&sums)[kMeanSums], int64_t n) {
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum / static_cast<double>(n);
}

// `largest` is the largest magnitude of the bucket's elements, as bits. `mean` is their mean magnitude, which
// only `sign` uses.
TFS_HOST_DEVICE inline float ScaleOf(Method method, int32_t largest, double mean) {
  if (largest >= kInfinityBits) return MagnitudeOf(kNaNBits);
  if (method == Method::kSign) return ScaleOrZero(static_cast<float>(mean));
  if (method == Method::kStochastic8) return ScaleOf127(MagnitudeOf(largest));
  if (method == Method::kStochastic4) return ScaleOf7(MagnitudeOf(largest));
  return ScaleOrZero(MagnitudeOf(largest));
}

// In [0, 1), a multiple of 2^-24.
TFS_HOST_DEVICE inline float Uniform(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}

TFS_HOST_DEVICE inline float InverseOf(float scale) { return scale > 0 ? 1 / scale : 0; }

// The largest level of stochastic8 and stochastic4.
TFS_HOST_DEVICE inline constexpr int32_t LargestLevel(Method method) {
  return method == Method::kStochastic4 ? 7 : 127;
}

TFS_HOST_DEVICE inline int8_t StochasticLevel(float value, uint32_t word, float inverse,
                                              int32_t largest_level) {
  const float scaled = value * inverse;
  const auto whole = static_cast<int32_t>(scaled);  // towards zero
  const float part = scaled - static_cast<float>(whole);
  const float chance = Uniform(word);
  const int32_t level = whole + (chance < part) - (part < -chance);
  return static_cast<int8_t>(level < -largest_level  ? -largest_level
                             : level > largest_level ? largest_level
                                                     : level);
}

TFS_HOST_DEVICE inline int8_t TernaryLevel(float value, uint32_t word, float scale) {
  const int32_t level = Uniform(word) * scale < MagnitudeOf(MagnitudeBits(value));
  return static_cast<int8_t>(value < 0 ? -level : level);
}

TFS_HOST_DEVICE inline int8_t SignLevel(float value) { return static_cast<int8_t>(value < 0 ? -1 : 1); }

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_LEVELS_H_

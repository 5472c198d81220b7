// Magnitudes of float32, ordered by their bits.
#ifndef OPS_COMPRESS_MAGNITUDE_H_
#define OPS_COMPRESS_MAGNITUDE_H_

#include <cfloat>
#include <cstdint>
#include <cstring>

#include "ops/base/host_device.h"

namespace tf_strategies::compress {

// Values that are not finite have these bits or more.
inline constexpr int32_t kInfinityBits = 0x7F800000;
// Those of the NaN without sign or payload.
inline constexpr int32_t kNaNBits = 0x7FC00000;

TFS_HOST_DEVICE inline int32_t MagnitudeBits(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7FFFFFFF;
}

TFS_HOST_DEVICE inline float MagnitudeOf(int32_t bits) {
  float magnitude;
  std::memcpy(&magnitude, &bits, sizeof(magnitude));
  return magnitude;
}

// The largest magnitude of the finite values among values [n]; 0 if there are none.
inline float LargestFinite(const float* values, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    int32_t bits = MagnitudeBits(values[i]);
    bits = bits < kInfinityBits ? bits : 0;
    largest = largest > bits ? largest : bits;
  }
  return MagnitudeOf(largest);
}

// 0 for scales whose multiples could be subnormal, which some threads flush to zero and others do not.
TFS_HOST_DEVICE inline float ScaleOrZero(float scale) { return scale < FLT_MIN ? 0 : scale; }

// The scale of 127 levels up to the largest magnitude. 127 times the scale is always finite.
TFS_HOST_DEVICE inline float ScaleOf127(float largest) {
  constexpr float kLargestScale = 0x1.020406p121f;
  const float scale = largest / 127;
  return ScaleOrZero(scale < kLargestScale ? scale : kLargestScale);
}

// The scale of 7 levels. 7 times the scale is always finite: FLT_MAX / 7 is exact, because 7 divides 2^24 - 1.
TFS_HOST_DEVICE inline float ScaleOf7(float largest) { return ScaleOrZero(largest / 7); }

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_MAGNITUDE_H_

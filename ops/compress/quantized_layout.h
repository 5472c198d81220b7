// Where the parts of a body of quantize.h lie.
#ifndef OPS_COMPRESS_QUANTIZED_LAYOUT_H_
#define OPS_COMPRESS_QUANTIZED_LAYOUT_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/level_packing.h"
#include "ops/compress/quantize.h"

namespace tf_strategies::compress {

TFS_HOST_DEVICE inline constexpr int BitsOf(Method method) {
  switch (method) {
    case Method::kStochastic8: return 8;
    case Method::kStochastic4: return 4;
    case Method::kTernary: return 2;
    case Method::kSign: return 1;
  }
  return 8;
}

inline constexpr int64_t Ceiling(int64_t a, int64_t b) { return a / b + (a % b != 0); }

struct QuantizedLayout {
  QuantizedLayout(Method method, int64_t count, int64_t bucket)
      : bits(BitsOf(method)),
        count(count),
        bucket(bucket),
        buckets(Ceiling(count, bucket)),
        bytes_of_bucket(PackedBytes(bits, bucket)) {}

  TFS_HOST_DEVICE int64_t ScaleAt(int64_t i) const { return i * static_cast<int64_t>(sizeof(float)); }
  TFS_HOST_DEVICE int64_t LevelsAt(int64_t i) const { return ScaleAt(buckets) + i * bytes_of_bucket; }
  int64_t Bytes() const {
    if (buckets == 0) return 0;
    return LevelsAt(buckets - 1) + PackedBytes(bits, count - (buckets - 1) * bucket);
  }

  int bits;
  int64_t count, bucket, buckets, bytes_of_bucket;
};

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_QUANTIZED_LAYOUT_H_

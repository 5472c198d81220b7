// The pass over a gradient, written once over vectors of the compiler's own, so that each instruction set gets its
// own width. Everything is inlined into the function that names the instruction set; nothing of the standard library is used.
#ifndef OPS_COMPRESS_SCAN_H_
#define OPS_COMPRESS_SCAN_H_

#include <cstdint>
#include <cstring>

#include "ops/base/dtype.h"
#include "ops/base/half.h"
#include "ops/compress/paths.h"

namespace tf_strategies::compress {

template <int kBytes>
struct Float32Format {
  using Floats = typename HalfLanes<kBytes>::Floats;
  static TFS_INLINE void Load(const float* from, Floats& to) { std::memcpy(&to, from, sizeof(to)); }
};

template <int kBytes, typename Words>
TFS_INLINE bool AnyBit(const Words& words) {
  uint64_t parts[kBytes / 8];
  std::memcpy(parts, &words, sizeof(parts));
  uint64_t all = 0;
  for (uint64_t part : parts) all |= part;
  return all != 0;
}

// Element: float, or uint16_t holding the bits of a half. As Path::scan.
template <int kBytes, typename Format, typename Element>
TFS_INLINE int64_t ScanAs(const Element* gradient, float* residual, int64_t begin, int64_t end,
                          int32_t threshold, Candidate* candidates) {
  using Floats = typename HalfLanes<kBytes>::Floats;
  using Words = typename HalfLanes<kBytes>::Words;
  constexpr int kLanes = kBytes / sizeof(float);
  constexpr int kVectors = 4;
  int64_t found = 0;
  int64_t i = begin;
  for (; i + kVectors * kLanes <= end; i += kVectors * kLanes) {
    Words hits[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      Floats sum, before;
      Format::Load(gradient + i + v * kLanes, sum);
      std::memcpy(&before, residual + i + v * kLanes, sizeof(before));
      sum = sum + before;
      std::memcpy(residual + i + v * kLanes, &sum, sizeof(sum));
      hits[v] = ((Words)sum & 0x7FFFFFFF) >= threshold;
    }
    if (!AnyBit<kBytes>(hits[0] | hits[1] | hits[2] | hits[3])) continue;
    for (int v = 0; v < kVectors; ++v) {
      if (!AnyBit<kBytes>(hits[v])) continue;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t index = i + v * kLanes + lane;
        candidates[found].index = index;
        candidates[found].value = residual[index];
        found += hits[v][lane] & 1;
      }
    }
  }
  for (; i < end; ++i) {
    Element padded[kLanes] = {};
    padded[0] = gradient[i];
    Floats sum;
    Format::Load(padded, sum);
    const float value = sum[0] + residual[i];
    residual[i] = value;
    int32_t key;
    std::memcpy(&key, &value, sizeof(key));
    candidates[found].index = i;
    candidates[found].value = value;
    found += (key & 0x7FFFFFFF) >= threshold;
  }
  return found;
}

template <int kBytes, typename Float16Format>
TFS_INLINE int64_t ScanAny(DType dtype, const void* gradient, float* residual, int64_t begin, int64_t end,
                           int32_t threshold, Candidate* candidates) {
  const auto* const halves = static_cast<const uint16_t*>(gradient);
  switch (dtype) {
    case DType::kFloat16:
      return ScanAs<kBytes, Float16Format>(halves, residual, begin, end, threshold, candidates);
    case DType::kBFloat16:
      return ScanAs<kBytes, BFloat16Format<kBytes>>(halves, residual, begin, end, threshold, candidates);
    default:
      return ScanAs<kBytes, Float32Format<kBytes>>(static_cast<const float*>(gradient), residual, begin, end,
                                                   threshold, candidates);
  }
}

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_SCAN_H_

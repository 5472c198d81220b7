// Converts the elements of a gradient and adds them to a residual, with the same bits as the CPU.
#ifndef OPS_CUDA_GRADIENT_H_
#define OPS_CUDA_GRADIENT_H_

#include <cstdint>
#include <cstring>

#include "ops/base/host_device.h"

namespace tf_strategies::cuda {

TFS_HOST_DEVICE inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TFS_HOST_DEVICE inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

struct Float32 {
  using Element = float;
  TFS_HOST_DEVICE static float Widen(Element value) { return value; }
};

// Does the same as SoftwareFloat16Format::Load in half.h.
struct Float16 {
  using Element = uint16_t;
  TFS_HOST_DEVICE static float Widen(Element half) {
    const uint32_t magnitude = half & 0x7FFFu;
    const uint32_t sign = (half & 0x8000u) << 16;
    if (magnitude >= 0x7C00) return FloatOf(magnitude << 13 | 0x7F800000u | sign);
    if (magnitude < 0x0400) return FloatOf(BitsOf(static_cast<float>(magnitude) * 0x1p-24f) | sign);
    return FloatOf(((magnitude << 13) + ((127u - 15u) << 23)) | sign);
  }
};

struct BFloat16 {
  using Element = uint16_t;
  TFS_HOST_DEVICE static float Widen(Element half) { return FloatOf(uint32_t{half} << 16); }
};

// Returns gradient + residual. TopK orders NaNs by their bits, but a GPU has only one NaN as a result. So this function
// returns the NaN that x86 would return: the gradient's NaN, otherwise the residual's, made quiet; and -NaN if infinities
// cancel.
TFS_HOST_DEVICE inline float SumOf(float gradient, float residual) {
  constexpr uint32_t kQuiet = 0x00400000, kCancelled = 0xFFC00000;
  const float sum = gradient + residual;
  if (sum == sum) return sum;
  if (gradient != gradient) return FloatOf(BitsOf(gradient) | kQuiet);
  if (residual != residual) return FloatOf(BitsOf(residual) | kQuiet);
  return FloatOf(kCancelled);
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_GRADIENT_H_

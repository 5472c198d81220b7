#include "ops/compress/value_coding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/base/half.h"
#include "ops/compress/magnitude.h"

namespace tf_strategies::compress {
namespace {

constexpr int64_t kInt8Block = 256;
constexpr int kMinExponent = -102;      // of the last place of a half, 2^-24 * 2^e, to be no less than 2^-126
constexpr int kMaxExponent = 113;       // for float32's largest
constexpr uint16_t kOverflow = 0x7800;  // 2^15, which is infinite times 2^113: rounded down instead
constexpr int8_t kNotFinite = -128;

using Half = SoftwareFloat16Format<16>;
constexpr int64_t kLanes = 4;

int64_t Int8Blocks(int64_t k) { return (k + kInt8Block - 1) / kInt8Block; }

float PowerOfTwo(int exponent) {
  const int32_t bits = (exponent + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

void WriteHalves(const float* values, int64_t k, uint8_t* to) {
  const int largest = MagnitudeBits(LargestFinite(values, k)) >> 23;
  const int exponent = std::clamp(largest - 127 - 14, kMinExponent, kMaxExponent);
  *to++ = static_cast<uint8_t>(exponent);
  const float factor = PowerOfTwo(-exponent);
  Half::Floats floats;
  uint16_t halves[kLanes];
  const auto convert = [&] {
    Half::Store(floats * factor, halves);
    if (exponent < kMaxExponent) return;
    for (uint16_t& half : halves) half -= (half & 0x7FFF) == kOverflow;
  };
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    std::memcpy(&floats, values + i, sizeof(floats));
    convert();
    std::memcpy(to + 2 * i, halves, sizeof(halves));
  }
  if (i == k) return;
  floats = Half::Floats{};
  std::memcpy(&floats, values + i, (k - i) * sizeof(float));
  convert();
  std::memcpy(to + 2 * i, halves, (k - i) * sizeof(uint16_t));
}

std::string ReadHalves(const uint8_t* bytes, int64_t k, float* values) {
  const int exponent = static_cast<int8_t>(*bytes++);
  if (exponent < kMinExponent || exponent > kMaxExponent)
    return "has values of exponent " + std::to_string(exponent);
  const float factor = PowerOfTwo(exponent);
  Half::Floats floats;
  uint16_t halves[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    std::memcpy(halves, bytes + 2 * i, sizeof(halves));
    Half::Load(halves, floats);
    floats = floats * factor;
    std::memcpy(values + i, &floats, sizeof(floats));
  }
  if (i == k) return "";
  std::memcpy(halves, bytes + 2 * i, (k - i) * sizeof(uint16_t));
  Half::Load(halves, floats);
  floats = floats * factor;
  std::memcpy(values + i, &floats, (k - i) * sizeof(float));
  return "";
}

void WriteInt8Block(const float* values, int64_t n, uint8_t* scale_to, uint8_t* to) {
  const float scale = ScaleOf127(LargestFinite(values, n));
  std::memcpy(scale_to, &scale, sizeof(scale));
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int64_t i = 0; i < n; ++i) {
    const bool finite = MagnitudeBits(values[i]) < kInfinityBits;
    const float scaled = finite ? values[i] * inverse : 0;
    const auto rounded = static_cast<int>((scaled + 0x1.8p23f) - 0x1.8p23f);  // to nearest even
    to[i] = static_cast<uint8_t>(finite ? std::clamp(rounded, -127, 127) : kNotFinite);
  }
}

void WriteInt8(const float* values, int64_t k, uint8_t* to) {
  uint8_t* const codes = to + Int8Blocks(k) * sizeof(float);
  for (int64_t block = 0; block < Int8Blocks(k); ++block) {
    const int64_t begin = block * kInt8Block;
    WriteInt8Block(values + begin, std::min(kInt8Block, k - begin), to + block * sizeof(float),
                   codes + begin);
  }
}

std::string ReadInt8(const uint8_t* bytes, int64_t k, float* values) {
  const uint8_t* const codes = bytes + Int8Blocks(k) * sizeof(float);
  for (int64_t block = 0; block < Int8Blocks(k); ++block) {
    float scale;
    std::memcpy(&scale, bytes + block * sizeof(float), sizeof(scale));
    if (!std::isfinite(scale) || (scale != 0 && !(scale >= std::numeric_limits<float>::min()))) {
      return "has the scale " + std::to_string(scale) + " for values " + std::to_string(block * kInt8Block) +
             " and on";
    }
    const int64_t end = std::min(k, (block + 1) * kInt8Block);
    for (int64_t i = block * kInt8Block; i < end; ++i) {
      const auto code = static_cast<int8_t>(codes[i]);
      values[i] =
          code == kNotFinite ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(code) * scale;
    }
  }
  return "";
}

}  // namespace

int64_t ValueBytes(ValueFormat format, int64_t k) {
  switch (format) {
    case ValueFormat::kFloat16: return 1 + 2 * k;
    case ValueFormat::kInt8: return Int8Blocks(k) * static_cast<int64_t>(sizeof(float)) + k;
    default: return 4 * k;
  }
}

void WriteValues(ValueFormat format, const float* values, int64_t k, uint8_t* to) {
  switch (format) {
    case ValueFormat::kFloat16: return WriteHalves(values, k, to);
    case ValueFormat::kInt8: return WriteInt8(values, k, to);
    default:
      if (k > 0) std::memcpy(to, values, 4 * k);
  }
}

std::string ReadValues(ValueFormat format, const uint8_t* bytes, int64_t k, float* values) {
  switch (format) {
    case ValueFormat::kFloat16: return ReadHalves(bytes, k, values);
    case ValueFormat::kInt8: return ReadInt8(bytes, k, values);
    default:
      if (k > 0) std::memcpy(values, bytes, 4 * k);
      return "";
  }
}

}  // namespace tf_strategies::compress

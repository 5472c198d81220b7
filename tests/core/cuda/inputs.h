// Gradients with what is awkward in them, and a comparison of bits.
#ifndef TESTS_CORE_CUDA_INPUTS_H_
#define TESTS_CORE_CUDA_INPUTS_H_

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/base/dtype.h"
#include "ops/base/half.h"

namespace tf_strategies::cuda {

inline constexpr const char* kKinds[] = {"normal",      "few values", "equal",           "mostly zero",
                                         "zero",        "subnormal",  "some not finite", "many not finite",
                                         "many a scale"};

inline float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// count elements of a kind of kKinds. NaNs have different payloads and signs, some signal.
inline std::vector<float> Random(int64_t count, int seed, const std::string& kind = "normal") {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(generator);
    const uint32_t word = generator();
    if (kind == "few values") value = std::round(value);
    if (kind == "equal") value = value < 0 ? -1.5f : 1.5f;
    if (kind == "mostly zero") value = word % 100 == 0 ? value : 0;
    if (kind == "zero") value = word % 2 == 0 ? -0.0f : 0.0f;
    if (kind == "subnormal") value *= 1e-39f;
    if (kind == "many a scale") value = std::ldexp(value, static_cast<int>(word % 250) - 125);
    const bool is_bad = kind == "many not finite" || (kind == "some not finite" && word % 300 == 0);
    if (is_bad && word % 4 == 1) value = std::numeric_limits<float>::infinity();
    if (is_bad && word % 4 == 2) value = -std::numeric_limits<float>::infinity();
    if (is_bad && word % 4 == 3) value = FromBits(0x7F800000u | ((word << 8 | 0x2000u) & 0x807FE000u));
    if (is_bad && word % 4 == 0) value = FromBits(0x7F800000u | ((word >> 2 | 0x2000u) & 0x807FE000u));
  }
  return values;
}

// The bytes of `values` as elements of a dtype: float32, float16 or bfloat16.
inline std::vector<uint8_t> AsElements(DType dtype, std::vector<float> values) {
  std::vector<uint8_t> bytes(values.size() * DTypeSize(dtype));
  if (dtype == DType::kFloat32) {
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  values.resize(values.size() + 4);
  for (size_t i = 0; i < bytes.size() / 2; i += 4) {
    HalfLanes<16>::Floats four;
    uint16_t halves[4];
    std::memcpy(&four, values.data() + i, sizeof(four));
    if (dtype == DType::kFloat16) {
      SoftwareFloat16Format<16>::Store(four, halves);
    } else {
      BFloat16Format<16>::Store(four, halves);
    }
    for (size_t lane = 0; lane < 4 && i + lane < bytes.size() / 2; ++lane) {
      // Store makes one NaN of all; here they keep their sign and the highest bits of their payload.
      if (std::isnan(values[i + lane])) {
        uint32_t bits;
        std::memcpy(&bits, &values[i + lane], sizeof(bits));
        halves[lane] = static_cast<uint16_t>(dtype == DType::kFloat16
                                                 ? (bits >> 16 & 0x8000) | 0x7C00 | (bits >> 13 & 0x3FF)
                                                 : bits >> 16 | 1);
      }
      std::memcpy(bytes.data() + 2 * (i + lane), &halves[lane], 2);
    }
  }
  return bytes;
}

inline ::testing::AssertionResult SameBits(const std::vector<float>& found,
                                           const std::vector<float>& expected) {
  if (found.size() != expected.size())
    return ::testing::AssertionFailure() << found.size() << " elements, not " << expected.size();
  for (size_t i = 0; i < found.size(); ++i) {
    uint32_t bits[2];
    std::memcpy(&bits[0], &found[i], 4);
    std::memcpy(&bits[1], &expected[i], 4);
    if (bits[0] != bits[1]) {
      return ::testing::AssertionFailure()
             << "element " << i << " of " << found.size() << ": " << found[i] << " (" << std::hex << bits[0]
             << "), not " << expected[i] << " (" << bits[1] << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

// The same, but that a NaN may be any.
inline ::testing::AssertionResult SameNumbers(std::vector<float> found, std::vector<float> expected) {
  for (std::vector<float>* each : {&found, &expected}) {
    for (float& value : *each) value = std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
  }
  return SameBits(found, expected);
}

}  // namespace tf_strategies::cuda

#endif  // TESTS_CORE_CUDA_INPUTS_H_

// Every compiled path against the obvious loop.
#include "ops/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/reduce/paths.h"

namespace tf_strategies {
namespace {

using reduce::Path;
using reduce::Paths;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax};

template <typename T>
T Bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

// The contract of reduce.h, spelled out.
template <typename T>
T Combine(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMean) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));
    } else {
      return a + b;
    }
  }
  if constexpr (!std::is_integral_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 0 && b == 0) {
      const bool negative =
          op == ReduceOp::kMin ? std::signbit(a) || std::signbit(b) : std::signbit(a) && std::signbit(b);
      return negative ? T(-0.0) : T(0.0);
    }
  }
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

// A 16-bit floating-point format by arithmetic on its value alone.
struct Format {
  DType dtype;
  int fraction_bits;
  int bias;

  double Value(uint16_t bits) const {
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = (bits & 0x7FFF) >> fraction_bits;
    const double sign = (bits & 0x8000) ? -1 : 1;
    if (exponent == Largest())
      return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }

  // The nearest number, ties to even.
  uint16_t Nearest(double value) const {
    if (std::isnan(value))
      return static_cast<uint16_t>((Largest() << fraction_bits) | (1 << (fraction_bits - 1)));
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    if (std::isinf(value)) return static_cast<uint16_t>(sign | (Largest() << fraction_bits));
    int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
    const double units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
    const int64_t bits =
        static_cast<int64_t>(units) + (static_cast<int64_t>(exponent + bias - 1) << fraction_bits);
    const int64_t infinity = static_cast<int64_t>(Largest()) << fraction_bits;
    return static_cast<uint16_t>(sign | std::min(bits, infinity));
  }

  int Largest() const { return (1 << (15 - fraction_bits)) - 1; }
};

constexpr Format kFloat16{DType::kFloat16, 10, 15};
constexpr Format kBFloat16{DType::kBFloat16, 7, 127};

uint16_t CombineHalf(const Format& format, ReduceOp op, uint16_t a, uint16_t b) {
  const float in_float32 =
      Combine<float>(op, static_cast<float>(format.Value(a)), static_cast<float>(format.Value(b)));
  return format.Nearest(in_float32);
}

class ReducePath : public testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (!GetParam().supported()) GTEST_SKIP() << "this machine has no " << GetParam().name;
  }

  // Odd lengths and starts: bytes before and after must stay.
  template <typename T>
  void CheckAgainstLoop(DType dtype, const std::vector<T>& pool) {
    for (ReduceOp op : kOps) {
      for (int64_t count = 0; count < 140; count = count < 70 ? count + 1 : count + 23) {
        for (int64_t offset = 0; offset < 5; ++offset) {
          std::vector<T> destination(count + 10);
          std::vector<T> source(count + 10);
          for (size_t i = 0; i < destination.size(); ++i) {
            destination[i] = pool[(i * 7 + offset * 3 + count) % pool.size()];
            source[i] = pool[(i * 13 + offset + 5) % pool.size()];
          }
          std::vector<T> expected = destination;
          for (int64_t i = 0; i < count; ++i) {
            expected[offset + i] = Combine(op, destination[offset + i], source[2 * offset % 3 + i]);
          }
          GetParam().reduce(op, dtype, destination.data() + offset, source.data() + 2 * offset % 3, count);
          for (size_t i = 0; i < destination.size(); ++i) {
            if constexpr (!std::is_integral_v<T>) {
              const bool sums = op == ReduceOp::kSum || op == ReduceOp::kMean;
              if (sums && std::isnan(expected[i]) && std::isnan(destination[i])) continue;
            }
            ASSERT_EQ(BitsOf(destination[i]), BitsOf(expected[i]))
                << DTypeName(dtype) << " " << ReduceOpName(op) << " count " << count << " offset " << offset
                << " at " << i;
          }
        }
      }
    }
  }

  template <typename T>
  std::vector<T> FloatPool() {
    using Limits = std::numeric_limits<T>;
    std::vector<T> pool = {T(0),
                           T(-0.0),
                           T(1),
                           T(-1),
                           Limits::infinity(),
                           -Limits::infinity(),
                           Limits::quiet_NaN(),
                           -Limits::quiet_NaN(),
                           Limits::denorm_min(),
                           -Limits::denorm_min(),
                           Limits::max(),
                           Limits::lowest(),
                           Limits::epsilon(),
                           T(3.25),
                           T(1) / 3};
    std::mt19937_64 random(7);
    while (pool.size() < 101)
      pool.push_back(std::ldexp(static_cast<T>(random() % 2001) - 1000, random() % 20));
    return pool;
  }

  template <typename T>
  std::vector<T> IntegerPool() {
    std::vector<T> pool = {0, 1, -1, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
    std::mt19937_64 random(7);
    while (pool.size() < 101) pool.push_back(static_cast<T>(random()));
    return pool;
  }

  // a op b for all 65536 values of a and every b of a list; and the other way around gives the same bits.
  void CheckAllPatterns(const Format& format) {
    std::vector<uint16_t> others = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00,
                                    0x3F80, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE00, 0x7F7F,
                                    0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF, 0x0080};
    std::mt19937 random(3);
    while (others.size() < 40) others.push_back(static_cast<uint16_t>(random()));
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      for (uint16_t other : others) {
        const std::vector<uint16_t> source(all.size(), other);
        std::vector<uint16_t> forward = all;
        std::vector<uint16_t> backward = source;
        GetParam().reduce(op, format.dtype, forward.data(), source.data(), static_cast<int64_t>(all.size()));
        GetParam().reduce(op, format.dtype, backward.data(), all.data(), static_cast<int64_t>(all.size()));
        ASSERT_EQ(forward, backward) << ReduceOpName(op) << " " << other;
        for (size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(forward[i], CombineHalf(format, op, all[i], other))
              << ReduceOpName(op) << " " << i << " " << other;
        }
      }
    }
  }

  void CheckHalfLengths(const Format& format) {
    std::mt19937 random(5);
    for (ReduceOp op : kOps) {
      for (int64_t count = 0; count < 70; ++count) {
        std::vector<uint16_t> destination(count + 3);
        std::vector<uint16_t> source(count + 3);
        for (uint16_t& bits : destination) bits = static_cast<uint16_t>(random());
        for (uint16_t& bits : source) bits = static_cast<uint16_t>(random());
        std::vector<uint16_t> expected = destination;
        for (int64_t i = 1; i <= count; ++i)
          expected[i] = CombineHalf(format, op, destination[i], source[i + 1]);
        GetParam().reduce(op, format.dtype, destination.data() + 1, source.data() + 2, count);
        ASSERT_EQ(destination, expected) << ReduceOpName(op) << " " << count;
      }
    }
  }

  void CheckHalfDivision(const Format& format) {
    for (int64_t divisor : {1, 2, 3, 5, 6, 7, 10, 600, 2047, 2048, 4097, 99991, 1 << 24}) {
      std::vector<uint16_t> values(65536);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
      GetParam().divide(format.dtype, values.data(), static_cast<int64_t>(values.size()), divisor);
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t expected =
            format.Nearest(format.Value(static_cast<uint16_t>(i)) / static_cast<double>(divisor));
        ASSERT_EQ(values[i], expected) << DTypeName(format.dtype) << " " << i << " / " << divisor;
      }
    }
  }
};

TEST_P(ReducePath, EqualsTheLoopForFloat32) { CheckAgainstLoop(DType::kFloat32, FloatPool<float>()); }
TEST_P(ReducePath, EqualsTheLoopForFloat64) { CheckAgainstLoop(DType::kFloat64, FloatPool<double>()); }
TEST_P(ReducePath, EqualsTheLoopForInt32) { CheckAgainstLoop(DType::kInt32, IntegerPool<int32_t>()); }
TEST_P(ReducePath, EqualsTheLoopForInt64) { CheckAgainstLoop(DType::kInt64, IntegerPool<int64_t>()); }
TEST_P(ReducePath, EqualsTheLoopForFloat16) { CheckHalfLengths(kFloat16); }
TEST_P(ReducePath, EqualsTheLoopForBFloat16) { CheckHalfLengths(kBFloat16); }

TEST_P(ReducePath, RoundsAndCommutesForEveryFloat16) { CheckAllPatterns(kFloat16); }
TEST_P(ReducePath, RoundsAndCommutesForEveryBFloat16) { CheckAllPatterns(kBFloat16); }

TEST_P(ReducePath, OrdersZerosAndSpreadsNaN) {
  const float nan = Bits<float>(0xFFC12345);
  for (int lane = 0; lane < 16; ++lane) {
    std::vector<float> low(16, 1.0f);
    std::vector<float> high(16, 2.0f);
    low[lane] = 0.0f;
    high[lane] = -0.0f;
    std::vector<float> result = low;
    GetParam().reduce(ReduceOp::kMin, DType::kFloat32, result.data(), high.data(), 16);
    EXPECT_TRUE(std::signbit(result[lane]));
    result = low;
    GetParam().reduce(ReduceOp::kMax, DType::kFloat32, result.data(), high.data(), 16);
    EXPECT_FALSE(std::signbit(result[lane]));
    high[lane] = nan;
    result = low;
    GetParam().reduce(ReduceOp::kMin, DType::kFloat32, result.data(), high.data(), 16);
    EXPECT_EQ(BitsOf(result[lane]), 0x7FC00000u);
    result = high;
    GetParam().reduce(ReduceOp::kMax, DType::kFloat32, result.data(), low.data(), 16);
    EXPECT_EQ(BitsOf(result[lane]), 0x7FC00000u);
    EXPECT_EQ(result[(lane + 1) % 16], 2.0f);
  }
}

TEST_P(ReducePath, DividesFloatsRoundingOnce) {
  for (int64_t divisor : {1, 3, 600, 4097, 1 << 24}) {
    for (int64_t count : {0, 1, 7, 16, 37}) {
      std::vector<float> singles;
      std::vector<double> doubles;
      for (int64_t i = 0; i < count; ++i) {
        singles.push_back(static_cast<float>(i * i) - 3.7f);
        doubles.push_back(static_cast<double>(i) * 1.1 - 5);
      }
      std::vector<float> single_result = singles;
      std::vector<double> double_result = doubles;
      GetParam().divide(DType::kFloat32, single_result.data(), count, divisor);
      GetParam().divide(DType::kFloat64, double_result.data(), count, divisor);
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(single_result[i], singles[i] / static_cast<float>(divisor));
        EXPECT_EQ(double_result[i], doubles[i] / static_cast<double>(divisor));
      }
    }
  }
}

TEST_P(ReducePath, DividesEveryFloat16RoundingOnce) { CheckHalfDivision(kFloat16); }
TEST_P(ReducePath, DividesEveryBFloat16RoundingOnce) { CheckHalfDivision(kBFloat16); }

TEST_P(ReducePath, DividesIntegersTowardsZero) {
  std::vector<int32_t> narrow = {7, -7, 8, -9, 0, 1, -1, std::numeric_limits<int32_t>::min()};
  std::vector<int64_t> wide(narrow.begin(), narrow.end());
  wide.push_back(std::numeric_limits<int64_t>::min());
  GetParam().divide(DType::kInt32, narrow.data(), static_cast<int64_t>(narrow.size()), 3);
  GetParam().divide(DType::kInt64, wide.data(), static_cast<int64_t>(wide.size()), 3);
  EXPECT_EQ(narrow, (std::vector<int32_t>{2, -2, 2, -3, 0, 0, 0, -715827882}));
  EXPECT_EQ(wide, (std::vector<int64_t>{2, -2, 2, -3, 0, 0, 0, -715827882, -3074457345618258602}));
}

INSTANTIATE_TEST_SUITE_P(Paths, ReducePath, testing::ValuesIn(Paths()),
                         [](const testing::TestParamInfo<Path>& info) {
                           return std::string(info.param.name);
                         });

TEST(Reduce, TakesAPathThatTheMachineSupports) {
  EXPECT_TRUE(Paths().front().supported());
  EXPECT_TRUE(reduce::BestPath().supported());
  std::vector<float> destination = {1, 2, 3};
  const std::vector<float> source = {10, 20, 30};
  Reduce(ReduceOp::kSum, DType::kFloat32, destination.data(), source.data(), 3);
  Divide(DType::kFloat32, destination.data(), 3, 11);
  EXPECT_EQ(destination, (std::vector<float>{1, 2, 3}));
}

TEST(ReduceDeathTest, RefusesOpaqueBytesAndBadDivisors) {
  float value = 1;
  EXPECT_DEATH(Reduce(ReduceOp::kSum, DType::kByte, &value, &value, 1), "dtype");
  EXPECT_DEATH(Reduce(ReduceOp::kNone, DType::kFloat32, &value, &value, 1), "op");
  EXPECT_DEATH(Divide(DType::kFloat32, &value, 1, 0), "divisor >= 1 \\(0 against 1\\)");
}

}  // namespace
}  // namespace tf_strategies

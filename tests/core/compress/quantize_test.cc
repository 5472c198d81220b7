#include "ops/compress/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "ops/compress/level_packing.h"
#include "ops/compress/levels.h"
#include "ops/compress/magnitude.h"
#include "ops/compress/message.h"
#include "tests/core/compress/damage.h"

namespace tf_strategies::compress {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Method kMethods[] = {Method::kStochastic8, Method::kTernary, Method::kSign, Method::kStochastic4};

std::vector<float> Random(int64_t count, int seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

Bytes Quantized(Method method, const std::vector<float>& gradient, int64_t bucket, Seed seed = {1, 2},
                const ParallelFor& parallel = Sequentially) {
  const auto count = static_cast<int64_t>(gradient.size());
  Bytes message(QuantizedBytes(method, count, bucket), 0xAB);
  Quantize(method, gradient.data(), count, bucket, seed, message.data(), parallel);
  return message;
}

std::vector<float> Sum(const Bytes& bytes, int64_t count, const ParallelFor& parallel = Sequentially) {
  std::vector<float> sum(count, 77);
  const Status status =
      SumQuantized(bytes.data(), static_cast<int64_t>(bytes.size()), count, sum.data(), parallel);
  EXPECT_TRUE(status.ok()) << status.message();
  return sum;
}

std::vector<float> SentOf(Method method, const std::vector<float>& gradient, int64_t bucket,
                          Seed seed = {1, 2}) {
  return Sum(Quantized(method, gradient, bucket, seed), static_cast<int64_t>(gradient.size()));
}

// Reads one message element by element, as the header of quantize.h describes it.
std::vector<float> Naive(const Bytes& message, Method method, int64_t count, int64_t bucket) {
  const int bits = method == Method::kStochastic8   ? 8
                   : method == Method::kStochastic4 ? 4
                   : method == Method::kTernary     ? 2
                                                    : 1;
  const int64_t buckets = (count + bucket - 1) / bucket;
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    float scale;
    std::memcpy(&scale, message.data() + 32 + i / bucket * 4, 4);
    const uint8_t* const levels = message.data() + 32 + buckets * 4 + i / bucket * ((bucket * bits + 7) / 8);
    const int64_t at = i % bucket * bits;
    const int code = levels[at / 8] >> at % 8 & ((1 << bits) - 1);
    const int level = bits == 8   ? static_cast<int8_t>(code)
                      : bits == 4 ? (code < 8 ? code : code - 16)
                      : bits == 1 ? 1 - 2 * code
                      : code == 3 ? -1
                                  : code;
    values[i] = static_cast<float>(level) * scale;
  }
  return values;
}

int LevelsOf(Method method) {
  return method == Method::kStochastic8 ? 127 : method == Method::kStochastic4 ? 7 : 1;
}

float LargestOf(const std::vector<float>& values, size_t begin, size_t end) {
  float largest = 0;
  for (size_t i = begin; i < std::min(end, values.size()); ++i)
    largest = std::max(largest, std::abs(values[i]));
  return largest;
}

void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(std::memcmp(&found[i], &expected[i], sizeof(float)), 0) << i << ": " << found[i];
}

// The published vectors of the authors' library Random123.
TEST(Philox, GivesThePublishedWords) {
  const struct {
    Seed seed;
    uint64_t counter;
    uint32_t words[4];
  } known[] = {
      {{0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~uint64_t{0}, ~uint64_t{0}}, ~uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x299f31d0a4093822, 0x0370734413198a2e},
       0x85a308d3243f6a88,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& each : known) {
    for (int lane = 0; lane < kPhiloxLanes; ++lane) {
      PhiloxWords words;
      PhiloxBlocks(each.seed, each.counter - lane, words);
      for (int w = 0; w < 4; ++w) EXPECT_EQ(words[w][lane], each.words[w]) << lane;
    }
  }
}

TEST(Levels, AreUnpackedFromAnywhere) {
  for (const int bits : {1, 2, 4, 8}) {
    const int largest = bits == 1 ? 1 : (1 << (bits - 1)) - 1;
    std::vector<int8_t> levels(203);
    for (int i = 0; i < 203; ++i)
      levels[i] = static_cast<int8_t>(bits == 1 ? (i * i % 3 == 0 ? -1 : 1)
                                                : i * i % 17 % (2 * largest + 1) - largest);
    Bytes packed(PackedBytes(bits, 203));
    PackLevels(bits, levels.data(), 203, packed.data());
    for (int64_t first = 0; first < 203; ++first) {
      for (int64_t n = 0; first + n <= 203; n += 7) {
        std::vector<int8_t> found(n);
        UnpackLevels(bits, packed.data(), first, n, found.data());
        ASSERT_TRUE(std::equal(found.begin(), found.end(), levels.begin() + first)) << bits << " " << first;
      }
    }
  }
}

// The inverse of a scale is rounded, so that the largest magnitude may come out above the largest level.
TEST(Levels, AreNotAboveTheLargest) {
  for (const Method method : {Method::kStochastic8, Method::kStochastic4}) {
    const int32_t largest = LargestLevel(method);
    int above = 0;
    for (const float magnitude : Random(1000, 11)) {
      const float inverse = InverseOf(ScaleOf(method, MagnitudeBits(magnitude), 0));
      above += std::abs(magnitude) * inverse > static_cast<float>(largest);
      EXPECT_LE(std::abs(StochasticLevel(magnitude, 0, inverse, largest)), largest) << magnitude;
    }
    EXPECT_GT(above, 10);
  }
}

TEST(Quantize, IsReadAsItWasWrittenWhateverTheBucket) {
  for (const Method method : kMethods) {
    for (const int64_t count : {0, 1, 9, 511, 512, 513, 40000}) {
      for (const int64_t bucket : {1, 3, 500, 512, 20001, 1 << 30}) {
        SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(bucket));
        const std::vector<float> gradient = Random(count, 1);
        const Bytes message = Quantized(method, gradient, bucket);
        ExpectSameBits(Sum(message, count, OnThreeThreads), Naive(message, method, count, bucket));
      }
    }
  }
}

TEST(Quantize, ThreadsChangeNothing) {
  for (const Method method : kMethods) {
    const std::vector<float> gradient = Random(100001, 2);
    EXPECT_EQ(Quantized(method, gradient, 100, {3, 4}, OnThreeThreads),
              Quantized(method, gradient, 100, {3, 4}));
  }
}

TEST(Quantize, RandomnessComesFromTheSeedAndTheIndexAlone) {
  std::vector<float> gradient = Random(3000, 3);
  for (const Method method : {Method::kStochastic8, Method::kStochastic4, Method::kTernary}) {
    EXPECT_NE(Quantized(method, gradient, 512, {1, 2}), Quantized(method, gradient, 512, {1, 3}));
    EXPECT_NE(Quantized(method, gradient, 512, {1, 2}), Quantized(method, gradient, 512, {2, 2}));
    const std::vector<float> one_bucket = SentOf(method, std::vector<float>(3000, 0.3f), 3000);
    const std::vector<float> small_buckets = SentOf(method, std::vector<float>(3000, 0.3f), 50);
    EXPECT_EQ(one_bucket, small_buckets);
  }
  EXPECT_EQ(Quantized(Method::kSign, gradient, 512, {1, 2}), Quantized(Method::kSign, gradient, 512, {9, 9}));
}

// The mean of what is sent over many seeds lies within five standard deviations of the gradient.
TEST(Quantize, StochasticAndTernaryAreUnbiased) {
  constexpr int kSeeds = 4000, kCount = 200, kBucket = 100;
  std::vector<float> gradient = Random(kCount, 4);
  gradient[5] = 0;
  gradient[6] = 1e-3f;
  for (const Method method : {Method::kStochastic8, Method::kStochastic4, Method::kTernary}) {
    std::vector<double> total(kCount);
    for (int seed = 0; seed < kSeeds; ++seed) {
      const std::vector<float> sent = SentOf(method, gradient, kBucket, {static_cast<uint64_t>(seed), 7});
      for (int i = 0; i < kCount; ++i) total[i] += sent[i];
    }
    for (int i = 0; i < kCount; ++i) {
      const double largest = LargestOf(gradient, i / kBucket * kBucket, (i / kBucket + 1) * kBucket);
      const double step = largest / LevelsOf(method);
      const double part = std::fmod(std::abs(gradient[i]) / step, 1.0);
      const double deviation = step * std::sqrt(part * (1 - part) / kSeeds);
      EXPECT_NEAR(total[i] / kSeeds, gradient[i], 5 * deviation + 1e-6 * largest) << i;
    }
  }
}

TEST(Quantize, StochasticIsOneOfTheTwoNeighbours) {
  const std::vector<float> gradient = Random(5000, 5);
  for (const Method method : {Method::kStochastic8, Method::kStochastic4}) {
    const std::vector<float> sent = SentOf(method, gradient, 512);
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double step = LargestOf(gradient, i / 512 * 512, i / 512 * 512 + 512) / LevelsOf(method);
      EXPECT_LT(std::abs(sent[i] - gradient[i]), step * 1.0001);
      EXPECT_NEAR(sent[i] / step, std::round(sent[i] / step), 1e-4);
    }
  }
}

TEST(Quantize, Stochastic4PutsTwoLevelsIntoAByte) {
  const std::vector<float> gradient = {7, -7, 1, -14, 0, 6, 3.5f};
  const Bytes message = Quantized(Method::kStochastic4, gradient, 3);
  const Bytes one = {0, 0, 0x80, 0x3F}, two = {0, 0, 0, 0x40}, half = {0, 0, 0, 0x3F};
  const Bytes levels = {0x97, 0x01, 0x09, 0x03, 0x07};
  EXPECT_EQ(Bytes(message.begin() + 32, message.end()), one + two + half + levels);
  EXPECT_EQ(SentOf(Method::kStochastic4, gradient, 3), gradient);
}

TEST(Quantize, TernaryIsZeroOrTheLargestMagnitude) {
  const std::vector<float> gradient = Random(5000, 6);
  const std::vector<float> sent = SentOf(Method::kTernary, gradient, 512);
  int zeros = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float largest = LargestOf(gradient, i / 512 * 512, i / 512 * 512 + 512);
    ASSERT_TRUE(sent[i] == 0 || sent[i] == std::copysign(largest, gradient[i])) << i;
    EXPECT_TRUE(std::abs(gradient[i]) < largest || sent[i] != 0) << i;
    zeros += sent[i] == 0;
  }
  EXPECT_GT(zeros, 3000);
  EXPECT_LT(zeros, 4500);
}

TEST(Quantize, SignIsTheMeanMagnitude) {
  const std::vector<float> sent = SentOf(Method::kSign, {1, -2, 0, 5, -0.5f, 0.5f, -7}, 4);
  const float last = static_cast<float>(8.0 / 3);
  EXPECT_EQ(sent, (std::vector<float>{2, -2, 2, 2, -last, last, -last}));
}

TEST(Quantize, TakesFewBits) {
  EXPECT_EQ(QuantizedBytes(Method::kStochastic8, 1 << 20, 512), 32 + 2048 * 4 + (1 << 20));
  EXPECT_EQ(QuantizedBytes(Method::kStochastic4, 1 << 20, 512), 32 + 2048 * 4 + (1 << 19));
  EXPECT_EQ(QuantizedBytes(Method::kStochastic4, 10, 3), 32 + 4 * 4 + 3 * 2 + 1);
  EXPECT_EQ(QuantizedBytes(Method::kTernary, 1 << 20, 512), 32 + 2048 * 4 + (1 << 18));
  EXPECT_EQ(QuantizedBytes(Method::kSign, 1 << 20, 512), 32 + 2048 * 4 + (1 << 17));
  EXPECT_EQ(QuantizedBytes(Method::kSign, 0, 512), 32);
}

TEST(Quantize, LargestAndLeastStayFinite) {
  for (const Method method : kMethods) {
    for (const float value : {FLT_MAX, std::nextafter(FLT_MAX, 0.0f), FLT_MIN, 1e-42f, 0.0f}) {
      for (const float each : SentOf(method, {value, -value, value / 2, 0}, 512)) {
        EXPECT_TRUE(std::isfinite(each)) << value << " by " << static_cast<int>(method);
      }
    }
  }
  EXPECT_EQ(SentOf(Method::kStochastic4, {FLT_MAX, -FLT_MAX}, 2), (std::vector<float>{FLT_MAX, -FLT_MAX}));
}

TEST(Quantize, WhatIsNotFiniteMakesItsBucketNaN) {
  for (const Method method : kMethods) {
    for (const float bad : {kNaN, kInf, -kInf}) {
      std::vector<float> gradient = Random(40, 7);
      const std::vector<float> good = SentOf(method, gradient, 10);
      gradient[13] = bad;
      const std::vector<float> sent = SentOf(method, gradient, 10);
      for (int i = 0; i < 40; ++i) {
        if (i / 10 == 1) {
          EXPECT_TRUE(std::isnan(sent[i])) << i;
        } else {
          EXPECT_EQ(sent[i], good[i]) << i;
        }
      }
    }
  }
}

TEST(SumQuantized, AddsInTheOrderOfTheMessagesWhateverTheThreads) {
  constexpr int64_t kCount = 50000;
  Bytes bytes;
  std::vector<float> expected(kCount);
  for (int rank = 0; rank < 6; ++rank) {
    std::vector<float> gradient = Random(kCount, 10 + rank);
    for (float& value : gradient) value *= rank % 2 == 0 ? 1e7f : 1;
    const int64_t bucket = 100 + 333 * rank;
    const Method method = kMethods[rank % std::size(kMethods)];
    const Bytes message = Quantized(method, gradient, bucket, {5, static_cast<uint64_t>(rank)});
    const std::vector<float> sent = Naive(message, method, kCount, bucket);
    for (int64_t i = 0; i < kCount; ++i) expected[i] += sent[i];
    bytes = bytes + message;
  }
  ExpectSameBits(Sum(bytes, kCount), expected);
  ExpectSameBits(Sum(bytes, kCount, OnThreeThreads), expected);
  EXPECT_EQ(Sum({}, 3), (std::vector<float>{0, 0, 0}));
}

TEST(DamagedQuantized, IsRefusedWithWhatIsWrong) {
  const Bytes good = Quantized(Method::kTernary, Random(1000, 8), 512);
  std::vector<float> sum(1000);
  const auto with = [&](size_t at, uint8_t byte) {
    Bytes bytes = good;
    bytes[at] = byte;
    const Status status = SumQuantized(bytes.data(), static_cast<int64_t>(bytes.size()), 1000, sum.data());
    EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument);
    return status.message();
  };
  const std::string first = "message 0, at byte 0, ";
  EXPECT_EQ(with(0, 199), "");
  EXPECT_EQ(with(2, 1), first + "holds entries, not quantized values");
  EXPECT_EQ(with(3, 4), first + "is quantized by method 4, which is not known");
  EXPECT_EQ(with(3, 3), first + "should have 508 bytes for 1000 elements; it has 258 for 1000");
  EXPECT_EQ(with(3, 2), first + "should have 133 bytes for 1000 elements; it has 258 for 1000");
  EXPECT_EQ(with(5, 0), first + "has buckets of 0 elements");
  EXPECT_EQ(with(7, 255), first + "has buckets of 4278190592 elements");
  EXPECT_EQ(with(16, 0), first + "should have 258 bytes for 1000 elements; it has 258 for 768");
  EXPECT_EQ(with(8, 0), first + "is of a vector of 768 elements, not 1000");
}

TEST(DamagedQuantized, NeverDoesHarm) {
  constexpr int64_t kCount = 3000;
  std::vector<float> sum(kCount);
  for (const Method method : kMethods) {
    const Bytes good = Quantized(method, Random(kCount, 9), 100);
    int refused = 0;
    ForDamaged(good + good, 3000, [&](const uint8_t* bytes, int64_t size) {
      refused += !SumQuantized(bytes, size, kCount, sum.data()).ok();
    });
    EXPECT_GT(refused, 1000);
  }
}

}  // namespace
}  // namespace tf_strategies::compress

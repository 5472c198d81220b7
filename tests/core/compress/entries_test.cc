#include "ops/compress/entries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "ops/compress/index_coding.h"
#include "ops/compress/message.h"
#include "tests/core/compress/damage.h"

namespace tf_strategies::compress {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr ValueFormat kFormats[] = {ValueFormat::kFloat32, ValueFormat::kFloat16, ValueFormat::kInt8};

Selection RandomEntries(int64_t count, int64_t k, int seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Selection entries;
  for (int64_t index = 0, left = k; left > 0; ++index) {
    if (static_cast<int64_t>(generator() % (count - index)) >= left) continue;
    entries.indices.push_back(index);
    entries.values.push_back(normal(generator));
    --left;
  }
  return entries;
}

Bytes Encode(const Selection& entries, int64_t count, ValueFormat format = ValueFormat::kFloat32,
             std::vector<float>* sent = nullptr) {
  Bytes message;
  std::vector<float> values(entries.values.size());
  const Status status =
      EncodeEntries(entries.indices.data(), entries.values.data(),
                    static_cast<int64_t>(entries.indices.size()), count, format, &message, values.data());
  EXPECT_TRUE(status.ok()) << status.message();
  if (sent != nullptr) *sent = values;
  return message;
}

std::vector<float> SentOf(const std::vector<float>& values, ValueFormat format) {
  Selection entries;
  entries.values = values;
  for (size_t i = 0; i < values.size(); ++i) entries.indices.push_back(static_cast<int64_t>(i) * 3);
  std::vector<float> sent;
  Encode(entries, static_cast<int64_t>(values.size()) * 3, format, &sent);
  return sent;
}

std::vector<float> Sum(const Bytes& bytes, int64_t count, const ParallelFor& parallel = Sequentially) {
  std::vector<float> sum(count, 77);
  const Status status =
      SumEntries(bytes.data(), static_cast<int64_t>(bytes.size()), count, sum.data(), parallel);
  EXPECT_TRUE(status.ok()) << status.message();
  return sum;
}

Selection Merged(const Bytes& bytes, int64_t count, const ParallelFor& parallel = Sequentially) {
  Selection merged;
  const Status status =
      MergeEntries(bytes.data(), static_cast<int64_t>(bytes.size()), count, &merged, parallel);
  EXPECT_TRUE(status.ok()) << status.message();
  return merged;
}

void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  if (expected.empty()) return;
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0);
}

std::string ErrorOf(const Bytes& bytes, int64_t count) {
  std::vector<float> sum(std::max<int64_t>(count, 0));
  Selection merged;
  const auto size = static_cast<int64_t>(bytes.size());
  const Status status = SumEntries(bytes.data(), size, count, sum.data());
  EXPECT_EQ(MergeEntries(bytes.data(), size, count, &merged).message(), status.message());
  EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument);
  return status.message();
}

TEST(Entries, AreReadAsTheyWereSent) {
  for (const int64_t count : {1, 7, 64, 1000, 65536, 200003}) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, count / 1000, count / 100, count / 3, count - 1, count}) {
      for (const ValueFormat format : kFormats) {
        SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(k));
        const Selection entries = RandomEntries(count, k, 1);
        std::vector<float> sent;
        const Bytes message = Encode(entries, count, format, &sent);
        if (format == ValueFormat::kFloat32) ExpectSameBits(sent, entries.values);
        const Selection merged = Merged(message, count);
        ASSERT_EQ(merged.indices, entries.indices);
        ExpectSameBits(merged.values, sent);
        std::vector<float> expected(count);
        for (int64_t i = 0; i < k; ++i) expected[entries.indices[i]] = sent[i];
        ExpectSameBits(Sum(message, count), expected);
      }
    }
  }
}

TEST(Entries, ReachToTheLastIndexThatMayBe) {
  const Selection entries{{0, 1, kMaxCount / 2, kMaxCount - 2, kMaxCount - 1}, {1, 2, 3, 4, 5}};
  const Bytes message = Encode(entries, kMaxCount);
  std::vector<Message> messages;
  ASSERT_TRUE(SplitMessages(message.data(), static_cast<int64_t>(message.size()), Kind::kEntries, kMaxCount,
                            &messages)
                  .ok());
  std::vector<int64_t> indices(5);
  int64_t used = 0;
  EXPECT_EQ(ReadIndices(IndexCoding::kGaps, messages[0].body, messages[0].body_bytes, 5, kMaxCount,
                        indices.data(), &used),
            "");
  EXPECT_EQ(indices, entries.indices);
}

TEST(IndexCoding, TakesTheShorterOfGapsAndBitmap) {
  for (const int64_t count : {1000, 200003}) {
    for (const int64_t per_mille : {1, 10, 100, 200, 300, 500, 900, 1000}) {
      const int64_t k = count * per_mille / 1000;
      const Selection entries = RandomEntries(count, k, 2);
      int64_t gaps = 0, last = -1;
      for (int64_t begin = 0; begin < k; begin += 128) {
        const int64_t end = std::min(k, begin + 128);
        int bits = 0;
        for (int64_t i = begin; i < end; last = entries.indices[i++])
          while ((entries.indices[i] - last - 1) >> bits > 0) ++bits;
        gaps += 1 + ((end - begin) * bits + 7) / 8;
      }
      const int64_t bitmap = (count + 7) / 8;
      Bytes bytes;
      const IndexCoding coding = AppendIndices(entries.indices.data(), k, count, &bytes);
      EXPECT_EQ(static_cast<int64_t>(bytes.size()), std::min(gaps, bitmap)) << count << ", " << per_mille;
      EXPECT_EQ(coding, gaps <= bitmap ? IndexCoding::kGaps : IndexCoding::kBitmap);
    }
  }
}

TEST(IndexCoding, OneLargeGapIsCheap) {
  std::vector<int64_t> indices(128 * 100);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i) * 4;
  Bytes even, with_gap;
  AppendIndices(indices.data(), 12800, int64_t{1} << 40, &even);
  for (size_t i = 6400; i < indices.size(); ++i) indices[i] += int64_t{1} << 39;
  AppendIndices(indices.data(), 12800, int64_t{1} << 40, &with_gap);
  EXPECT_EQ(even.size(), 100U + 100 * 128 * 2 / 8);
  EXPECT_EQ(with_gap.size(), even.size() + 128 * (40 - 2) / 8);
}

TEST(Values, HalvesAreScaledByOnePowerOfTwoToTheLargest) {
  for (const float largest : {3e38f, FLT_MAX, 7e4f, 1.0f, 1e-20f, 1e-26f}) {
    const std::vector<float> values = {largest, -largest / 3, largest * 1e-4f, -largest * 1e-7f, 0};
    const std::vector<float> sent = SentOf(values, ValueFormat::kFloat16);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(std::abs(double{sent[i]} - values[i]), std::abs(values[i]) * 0x1p-11) << largest << " " << i;
    }
  }
}

TEST(Values, HalvesRoundToNearestEven) {
  EXPECT_EQ(SentOf({1 + 0x1p-11f, 1 + 0x3p-11f, 1 + 0x1.1p-11f, -1 - 0x1p-11f}, ValueFormat::kFloat16),
            (std::vector<float>{1, 1 + 0x2p-10f, 1 + 0x1p-10f, -1}));
}

TEST(Values, BytesAreMultiplesOfTheScaleOfTheirBlock) {
  std::vector<float> values = RandomEntries(5000, 1000, 3).values;
  for (int i = 300; i < 400; ++i) values[i] *= 1e6f;
  for (const float unit : {1.0f, 1e-30f, 1e30f}) {
    std::vector<float> scaled = values;
    for (float& value : scaled) value *= unit;
    const std::vector<float> sent = SentOf(scaled, ValueFormat::kInt8);
    for (size_t begin = 0; begin < scaled.size(); begin += 256) {
      const size_t end = std::min(scaled.size(), begin + 256);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(scaled[i]));
      const double scale = largest / 127.0;
      for (size_t i = begin; i < end; ++i) {
        ASSERT_LE(std::abs(double{sent[i]} - scaled[i]), scale * 0.50001) << unit << " " << i;
        ASSERT_NEAR(sent[i] / scale, std::round(sent[i] / scale), 1e-4);
      }
    }
  }
}

TEST(Values, LargestAndLeastStayFinite) {
  for (const ValueFormat format : kFormats) {
    for (const float value : {FLT_MAX, std::nextafter(FLT_MAX, 0.0f), FLT_MIN, 1e-42f, 0.0f}) {
      for (const float each : SentOf({value, -value, value / 2}, format)) {
        EXPECT_TRUE(std::isfinite(each)) << value << " in format " << static_cast<int>(format);
      }
    }
  }
}

TEST(Values, WhatIsNotFiniteStaysSoAndSpoilsNothingElse) {
  for (const ValueFormat format : kFormats) {
    const std::vector<float> sent = SentOf({1, kInf, -0.5f, kNaN, -kInf, 0.25f}, format);
    for (const int i : {1, 3, 4}) EXPECT_FALSE(std::isfinite(sent[i])) << static_cast<int>(format);
    for (const auto& [i, value] : {std::pair<int, float>{0, 1}, {2, -0.5f}, {5, 0.25f}})
      EXPECT_NEAR(sent[i], value, 1 / 254.0) << static_cast<int>(format);
  }
}

TEST(Sum, AddsInTheOrderOfTheMessages) {
  const Bytes large = Encode({{2, 5}, {1e8f, 1e8f}}, 9);
  const Bytes one = Encode({{2, 8}, {1, 1}}, 9);
  const Bytes minus = Encode({{2, 5}, {-1e8f, -1e8f}}, 9);
  EXPECT_EQ(Sum(large + one + minus, 9), (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(Sum(large + minus + one, 9), (std::vector<float>{0, 0, 1, 0, 0, 0, 0, 0, 1}));
  const Selection merged = Merged(large + one + minus, 9);
  EXPECT_EQ(merged.indices, (std::vector<int64_t>{2, 5, 8}));
  EXPECT_EQ(merged.values, (std::vector<float>{0, 0, 1}));
}

TEST(Sum, OfNothingIsZero) {
  EXPECT_EQ(Sum({}, 3), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(Sum(Encode({}, 3) + Encode({}, 3), 3), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(Sum({}, 0), std::vector<float>{});
  EXPECT_TRUE(Merged(Encode({}, 0), 0).indices.empty());
}

TEST(Sum, ThreadsChangeNothing) {
  constexpr int64_t kCount = 300000;
  Bytes bytes;
  std::vector<float> expected(kCount);
  for (int rank = 0; rank < 7; ++rank) {
    const Selection entries = RandomEntries(kCount, 100 + 9000 * rank, 10 + rank);
    std::vector<float> sent;
    bytes = bytes + Encode(entries, kCount, kFormats[rank % 3], &sent);
    for (size_t i = 0; i < sent.size(); ++i) expected[entries.indices[i]] += sent[i];
  }
  ExpectSameBits(Sum(bytes, kCount), expected);
  ExpectSameBits(Sum(bytes, kCount, OnThreeThreads), expected);
  const Selection merged = Merged(bytes, kCount, OnThreeThreads);
  EXPECT_TRUE(std::is_sorted(merged.indices.begin(), merged.indices.end(), std::less_equal<int64_t>()));
  std::vector<float> dense(kCount);
  for (size_t i = 0; i < merged.indices.size(); ++i) dense[merged.indices[i]] = merged.values[i];
  ExpectSameBits(dense, expected);
}

TEST(EncodeEntries, RefusesBadInputWithTheValues) {
  const auto error = [](const std::vector<int64_t>& indices, int64_t count) {
    Bytes message;
    std::vector<float> values(indices.size()), sent(indices.size());
    return EncodeEntries(indices.data(), values.data(), static_cast<int64_t>(indices.size()), count,
                         ValueFormat::kFloat32, &message, sent.data())
        .message();
  };
  EXPECT_EQ(error({0, 4}, 4), "indices must be between 0 and count - 1, 3; indices[1] is 4");
  EXPECT_EQ(error({-1, 2}, 4), "indices must be between 0 and count - 1, 3; indices[0] is -1");
  EXPECT_EQ(error({1, 3, 3}, 4), "indices must be strictly ascending; indices[2] is 3, after 3");
  EXPECT_EQ(error({2, 1}, 4), "indices must be strictly ascending; indices[1] is 1, after 2");
  EXPECT_EQ(error({0, 1, 2}, 2), "there are 3 indices, of 2 elements");
  EXPECT_EQ(error({}, -1), "count must be between 0 and 281474976710656; got -1");
  EXPECT_EQ(error({}, kMaxCount + 1), "count must be between 0 and 281474976710656; got 281474976710657");
}

struct Regions {
  Bytes messages;
  std::vector<int64_t> lengths;
  std::vector<float> sent;
  std::string error;
};

Regions EncodeAll(const Selection& entries, const std::vector<int64_t>& offsets,
                  ValueFormat format = ValueFormat::kFloat32) {
  Regions regions;
  regions.lengths.resize(offsets.size() - 1);
  regions.sent.resize(entries.values.size());
  regions.error = EncodeRegions(entries.indices.data(), entries.values.data(),
                                static_cast<int64_t>(entries.indices.size()), offsets.data(),
                                static_cast<int64_t>(offsets.size()) - 1, format, &regions.messages,
                                regions.lengths.data(), regions.sent.data())
                      .message();
  return regions;
}

TEST(EncodeRegions, IsAMessageForEachRegionNumberedFromItsFirstElement) {
  constexpr int64_t kCount = 5000;
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{0, kCount}, {0, 1, 1, 700, 4999, kCount}, {0, 0, 2500, kCount, kCount}}) {
    for (const ValueFormat format : kFormats) {
      const Selection entries = RandomEntries(kCount, 600, 6);
      const Regions regions = EncodeAll(entries, offsets, format);
      ASSERT_EQ(regions.error, "");
      Bytes expected;
      std::vector<float> expected_sent;
      for (size_t r = 0; r + 1 < offsets.size(); ++r) {
        Selection own;
        for (size_t i = 0; i < entries.indices.size(); ++i) {
          if (entries.indices[i] < offsets[r] || entries.indices[i] >= offsets[r + 1]) continue;
          own.indices.push_back(entries.indices[i] - offsets[r]);
          own.values.push_back(entries.values[i]);
        }
        std::vector<float> sent;
        const Bytes message = Encode(own, offsets[r + 1] - offsets[r], format, &sent);
        EXPECT_EQ(regions.lengths[r], static_cast<int64_t>(message.size()));
        expected = expected + message;
        expected_sent.insert(expected_sent.end(), sent.begin(), sent.end());
      }
      EXPECT_EQ(regions.messages, expected);
      ExpectSameBits(regions.sent, expected_sent);
    }
  }
}

TEST(EncodeRegions, RefusesBadInputWithTheValues) {
  const Selection entries{{1, 4}, {1, 1}};
  EXPECT_EQ(EncodeAll(entries, {0, 2, 4}).error,
            "indices must be between 0 and count - 1, 3; indices[1] is 4");
  EXPECT_EQ(EncodeAll({{2, 1}, {1, 1}}, {0, 2, 5}).error,
            "indices must be strictly ascending; indices[1] is 1, after 2");
  EXPECT_EQ(EncodeAll(entries, {1, 5}).error, "offsets must be non-decreasing from 0; offsets[0] is 1");
  EXPECT_EQ(EncodeAll(entries, {0, 5, 3}).error, "offsets must be non-decreasing from 0; offsets[2] is 3");
  EXPECT_EQ(EncodeAll(entries, {0, 5, 0}).error, "offsets must be non-decreasing from 0; offsets[2] is 0");
  EXPECT_EQ(EncodeAll(entries, {0, 5, kMaxCount + 1}).error,
            "count must be between 0 and 281474976710656; got 281474976710657");
}

TEST(DamagedEntries, AreRefusedWithWhatIsWrong) {
  const Bytes good = Encode(RandomEntries(1000, 10, 4), 1000);
  EXPECT_EQ(ErrorOf(good + good, 1000), "");
  const auto with = [&](size_t at, uint8_t byte) {
    Bytes bytes = good + good;
    bytes[good.size() + at] = byte;
    return ErrorOf(bytes, 1000);
  };
  const std::string second = "message 1, at byte " + std::to_string(good.size()) + ", ";
  EXPECT_EQ(with(0, 7), second + "is no compressed gradient: its first byte is 7, not 199");
  EXPECT_EQ(with(1, 2),
            second + "has version 2, and this process reads 1: run the same tf_strategies everywhere");
  EXPECT_EQ(with(2, 2), second + "holds quantized values, not entries");
  EXPECT_EQ(with(2, 9), second + "holds something unknown, not entries");
  EXPECT_EQ(with(3, 0x03), second + "has values in format 3, which is not known");
  EXPECT_EQ(with(3, 0x20), second + "has indices in coding 2, which is not known");
  EXPECT_EQ(with(8, 0), second + "is of a vector of 768 elements, not 1000");
  EXPECT_EQ(with(17, 9), second + "has 2314 entries, of 1000 elements");
  EXPECT_EQ(with(23, 255), second + "has -72057594037927926 entries, of 1000 elements");
  EXPECT_EQ(with(16, 30),
            second + "should have 120 bytes of values; " + std::to_string(good.size() - 32) + " are left");
  EXPECT_EQ(with(24, 200), second + "should have 200 bytes; " + std::to_string(good.size()) + " are left");
  EXPECT_EQ(with(24, 31), second + "should have 31 bytes; " + std::to_string(good.size()) + " are left");
  EXPECT_EQ(with(32, 49), second + "has gaps of 49 bits in block 0");
  EXPECT_EQ(with(32, 48), second + "ends within the indices: block 0 has 60 bytes, and " +
                              std::to_string(good.size() - 33) + " are left");
  EXPECT_EQ(ErrorOf(Bytes(good.begin(), good.end() - 1), 1000),
            "message 0, at byte 0, should have " + std::to_string(good.size()) + " bytes; " +
                std::to_string(good.size() - 1) + " are left");
  EXPECT_EQ(ErrorOf(good + Bytes{199, 1, 1}, 1000), second + "is cut: 3 bytes are left, and a header has 32");
  EXPECT_EQ(ErrorOf(good, -1), "count must be between 0 and 281474976710656; got -1");
}

// What is subnormal is 0 to a thread that flushes such numbers, and something else to another.
TEST(DamagedEntries, WithASubnormalScaleAreRefused) {
  const Bytes good = Encode({{2}, {1}}, 9, ValueFormat::kInt8);
  const auto with_scale = [&](float scale) {
    Bytes bytes = good;
    std::memcpy(bytes.data() + bytes.size() - 1 - sizeof(scale), &scale, sizeof(scale));
    return ErrorOf(bytes, 9);
  };
  EXPECT_EQ(with_scale(std::numeric_limits<float>::min()), "");
  EXPECT_EQ(with_scale(0), "");
  for (const float scale :
       {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min() / 2, -1.0f, kInf, kNaN}) {
    EXPECT_NE(with_scale(scale).find("has the scale "), std::string::npos) << scale;
  }
}

TEST(DamagedEntries, NeverDoHarm) {
  constexpr int64_t kCount = 3000;
  std::vector<float> sum(kCount);
  for (const int64_t k : {3, 200, 1000}) {
    for (const ValueFormat format : kFormats) {
      const Bytes good = Encode(RandomEntries(kCount, k, 5), kCount, format);
      int refused = 0;
      ForDamaged(good + good, 3000, [&](const uint8_t* bytes, int64_t size) {
        const Status status = SumEntries(bytes, size, kCount, sum.data());
        Selection merged;
        ASSERT_EQ(MergeEntries(bytes, size, kCount, &merged).message(), status.message());
        refused += !status.ok();
        if (!status.ok()) return;
        ASSERT_TRUE(std::is_sorted(merged.indices.begin(), merged.indices.end(), std::less_equal<int64_t>()));
        ASSERT_TRUE(merged.indices.empty() || merged.indices.back() < kCount);
      });
      EXPECT_GT(refused, 1000);
    }
  }
}

}  // namespace
}  // namespace tf_strategies::compress

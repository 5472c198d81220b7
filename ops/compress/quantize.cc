#include "ops/compress/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/compress/level_packing.h"
#include "ops/compress/levels.h"
#include "ops/compress/magnitude.h"
#include "ops/compress/message.h"
#include "ops/compress/quantized_layout.h"

namespace tf_strategies::compress {
namespace {

constexpr int64_t kPartElements = 16384;
constexpr int64_t kChunk = 1024;  // elements whose levels and random words lie in the first-level cache

// The words of the elements from `first` on.
void RandomWords(Seed seed, int64_t first, int64_t n, uint32_t* words) {
  PhiloxWords group;
  for (int64_t i = 0; i < n;) {
    const int64_t skip = (first + i) % kWordGroup;
    const int64_t taken = std::min(kWordGroup - skip, n - i);
    PhiloxBlocks(seed, static_cast<uint64_t>((first + i) / kWordGroup * kPhiloxLanes), group);
    std::memcpy(words + i, &group[0][0] + skip, taken * sizeof(uint32_t));
    i += taken;
  }
}

double MeanMagnitude(const float* values, int64_t n) {
  double sums[kMeanSums] = {};
  int64_t i = 0;
  for (; i + kMeanSums <= n; i += kMeanSums) {
    for (int j = 0; j < kMeanSums; ++j) sums[j] += std::abs(static_cast<double>(values[i + j]));
  }
  for (; i < n; ++i) sums[0] += std::abs(static_cast<double>(values[i]));
  return MeanOf(sums, n);
}

int32_t LargestBits(const float* values, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, MagnitudeBits(values[i]));
  return largest;
}

void StochasticLevels(const float* values, const uint32_t* words, int64_t n, float scale,
                      int32_t largest_level, int8_t* levels) {
  const float inverse = InverseOf(scale);
  for (int64_t i = 0; i < n; ++i) levels[i] = StochasticLevel(values[i], words[i], inverse, largest_level);
}

void TernaryLevels(const float* values, const uint32_t* words, int64_t n, float scale, int8_t* levels) {
  for (int64_t i = 0; i < n; ++i) levels[i] = TernaryLevel(values[i], words[i], scale);
}

void SignLevels(const float* values, int64_t n, int8_t* levels) {
  for (int64_t i = 0; i < n; ++i) levels[i] = SignLevel(values[i]);
}

// values [n], n <= kChunk, are the elements from `first` on, of a bucket of this scale.
void Levels(Method method, const float* values, int64_t first, int64_t n, float scale, Seed seed,
            int8_t* levels) {
  uint32_t words[kChunk];
  if (std::isnan(scale)) {
    std::memset(levels, 0, n);
    return;
  }
  if (method == Method::kSign) return SignLevels(values, n, levels);
  RandomWords(seed, first, n, words);
  if (method == Method::kTernary) return TernaryLevels(values, words, n, scale, levels);
  StochasticLevels(values, words, n, scale, LargestLevel(method), levels);
}

void QuantizeBucket(Method method, const QuantizedLayout& layout, int64_t i, const float* gradient, Seed seed,
                    uint8_t* body) {
  const int64_t begin = i * layout.bucket, end = std::min(layout.count, begin + layout.bucket);
  const double mean = method == Method::kSign ? MeanMagnitude(gradient + begin, end - begin) : 0;
  const float scale = ScaleOf(method, LargestBits(gradient + begin, end - begin), mean);
  std::memcpy(body + layout.ScaleAt(i), &scale, sizeof(scale));
  uint8_t* to = body + layout.LevelsAt(i);
  int8_t levels[kChunk];
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    Levels(method, gradient + at, at, n, scale, seed, levels);
    PackLevels(layout.bits, levels, n, to);
    to += PackedBytes(layout.bits, n);
  }
}

// Adds the elements [begin, end). Product and sum are loops of their own, so that no processor makes one rounding of the two.
void AddQuantized(const uint8_t* body, const QuantizedLayout& layout, int64_t begin, int64_t end,
                  float* sum) {
  int8_t levels[kChunk];
  float values[kChunk];
  for (int64_t at = begin, next = 0; at < end; at = next) {
    const int64_t i = at / layout.bucket;
    next = std::min({end, (i + 1) * layout.bucket, at + kChunk});
    const int64_t n = next - at;
    float scale;
    std::memcpy(&scale, body + layout.ScaleAt(i), sizeof(scale));
    UnpackLevels(layout.bits, body + layout.LevelsAt(i), at - i * layout.bucket, n, levels);
    for (int64_t j = 0; j < n; ++j) values[j] = static_cast<float>(levels[j]) * scale;
    for (int64_t j = 0; j < n; ++j) sum[at + j] += values[j];
  }
}

QuantizedLayout LayoutOf(const Header& header) {
  return QuantizedLayout(static_cast<Method>(header.form), header.count, header.bucket);
}

Status Check(const Message& message) {
  const Header& header = message.header;
  if (static_cast<Method>(header.form) > kLastMethod) {
    return Damaged(message, "is quantized by method " + std::to_string(header.form) + ", which is not known");
  }
  if (header.bucket < 1 || header.bucket > kMaxBucket) {
    return Damaged(message, "has buckets of " + std::to_string(header.bucket) + " elements");
  }
  const int64_t bytes = LayoutOf(header).Bytes();
  if (bytes != message.body_bytes || header.entries != header.count) {
    return Damaged(message, "should have " + std::to_string(bytes) + " bytes for " +
                                std::to_string(header.count) + " elements; it has " +
                                std::to_string(message.body_bytes) + " for " +
                                std::to_string(header.entries));
  }
  return Status::Ok();
}

}  // namespace

int64_t QuantizedBytes(Method method, int64_t count, int64_t bucket) {
  return static_cast<int64_t>(sizeof(Header)) + QuantizedLayout(method, count, bucket).Bytes();
}

Header QuantizedHeader(Method method, int64_t count, int64_t bucket) {
  Header header;
  header.kind = static_cast<uint8_t>(Kind::kQuantized);
  header.form = static_cast<uint8_t>(method);
  header.bucket = static_cast<uint32_t>(bucket);
  header.count = count;
  header.entries = count;
  header.bytes = QuantizedBytes(method, count, bucket);
  return header;
}

void Quantize(Method method, const float* gradient, int64_t count, int64_t bucket, Seed seed,
              uint8_t* message, const ParallelFor& parallel) {
  TFS_CHECK(0 <= count && count <= kMaxCount && 1 <= bucket && bucket <= kMaxBucket);
  const QuantizedLayout layout(method, count, bucket);
  const Header header = QuantizedHeader(method, count, bucket);
  std::memcpy(message, &header, sizeof(header));
  uint8_t* const body = message + sizeof(header);
  const int64_t buckets_of_part = Ceiling(kPartElements, bucket);
  parallel(Ceiling(layout.buckets, buckets_of_part), [&](int64_t part) {
    const int64_t end = std::min(layout.buckets, (part + 1) * buckets_of_part);
    for (int64_t i = part * buckets_of_part; i < end; ++i)
      QuantizeBucket(method, layout, i, gradient, seed, body);
  });
}

Status SplitQuantized(const uint8_t* bytes, int64_t size, int64_t count, std::vector<Message>* messages) {
  TFS_RETURN_IF_ERROR(SplitMessages(bytes, size, Kind::kQuantized, count, messages));
  for (const Message& message : *messages) TFS_RETURN_IF_ERROR(Check(message));
  return Status::Ok();
}

Status SumQuantized(const uint8_t* bytes, int64_t size, int64_t count, float* sum,
                    const ParallelFor& parallel) {
  std::vector<Message> messages;
  TFS_RETURN_IF_ERROR(SplitQuantized(bytes, size, count, &messages));
  std::vector<QuantizedLayout> layouts;
  for (const Message& message : messages) layouts.push_back(LayoutOf(message.header));
  parallel(Ceiling(count, kPartElements), [&](int64_t part) {
    const int64_t begin = part * kPartElements, end = std::min(count, begin + kPartElements);
    std::fill(sum + begin, sum + end, 0.0f);
    for (size_t i = 0; i < messages.size(); ++i) AddQuantized(messages[i].body, layouts[i], begin, end, sum);
  });
  return Status::Ok();
}

}  // namespace tf_strategies::compress

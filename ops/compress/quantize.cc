#include "ops/compress/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/compress/level_packing.h"
#include "ops/compress/magnitude.h"
#include "ops/compress/message.h"

namespace tf_strategies::compress {
namespace {

constexpr int64_t kPartElements = 16384;
constexpr int64_t kChunk = 1024;  // elements whose levels and random words lie in the first-level cache
constexpr int64_t kGroup = 4 * kPhiloxLanes;

int BitsOf(Method method) {
  switch (method) {
    case Method::kStochastic8: return 8;
    case Method::kTernary: return 2;
    case Method::kSign: return 1;
  }
  return 8;
}

int64_t Ceiling(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Where the parts of a body lie.
struct Layout {
  Layout(Method method, int64_t count, int64_t bucket)
      : bits(BitsOf(method)),
        count(count),
        bucket(bucket),
        buckets(Ceiling(count, bucket)),
        bytes_of_bucket(PackedBytes(bits, bucket)) {}

  int64_t ScaleAt(int64_t i) const { return i * static_cast<int64_t>(sizeof(float)); }
  int64_t LevelsAt(int64_t i) const { return ScaleAt(buckets) + i * bytes_of_bucket; }
  int64_t Bytes() const {
    if (buckets == 0) return 0;
    return LevelsAt(buckets - 1) + PackedBytes(bits, count - (buckets - 1) * bucket);
  }

  int bits;
  int64_t count, bucket, buckets, bytes_of_bucket;
};

// The words of the elements from `first` on: element i has word i % 64 / 16 of the block i / 64 * 16 + i % 16.
void RandomWords(Seed seed, int64_t first, int64_t n, uint32_t* words) {
  PhiloxWords group;
  for (int64_t i = 0; i < n;) {
    const int64_t skip = (first + i) % kGroup;
    const int64_t taken = std::min(kGroup - skip, n - i);
    PhiloxBlocks(seed, static_cast<uint64_t>((first + i) / kGroup * kPhiloxLanes), group);
    std::memcpy(words + i, &group[0][0] + skip, taken * sizeof(uint32_t));
    i += taken;
  }
}

// In [0, 1), a multiple of 2^-24.
float Uniform(uint32_t word) { return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f; }

double MeanMagnitude(const float* values, int64_t n) {
  constexpr int kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] += std::abs(static_cast<double>(values[i + j]));
  }
  for (; i < n; ++i) sums[0] += std::abs(static_cast<double>(values[i]));
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum / static_cast<double>(n);
}

bool AllFinite(const float* values, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, MagnitudeBits(values[i]));
  return largest < kInfinityBits;
}

float ScaleOf(Method method, const float* values, int64_t n) {
  if (!AllFinite(values, n)) return std::numeric_limits<float>::quiet_NaN();
  if (method == Method::kSign) return ScaleOrZero(static_cast<float>(MeanMagnitude(values, n)));
  const float largest = LargestFinite(values, n);
  return method == Method::kStochastic8 ? ScaleOf127(largest) : ScaleOrZero(largest);
}

void StochasticLevels(const float* values, const uint32_t* words, int64_t n, float scale, int8_t* levels) {
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = values[i] * inverse;
    const auto whole = static_cast<int32_t>(scaled);  // towards zero
    const float part = scaled - static_cast<float>(whole);
    const float chance = Uniform(words[i]);
    const int32_t level = whole + (chance < part) - (part < -chance);
    levels[i] = static_cast<int8_t>(std::clamp(level, -127, 127));
  }
}

void TernaryLevels(const float* values, const uint32_t* words, int64_t n, float scale, int8_t* levels) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t level = Uniform(words[i]) * scale < std::abs(values[i]);
    levels[i] = static_cast<int8_t>(values[i] < 0 ? -level : level);
  }
}

void SignLevels(const float* values, int64_t n, int8_t* levels) {
  for (int64_t i = 0; i < n; ++i) levels[i] = static_cast<int8_t>(values[i] < 0 ? -1 : 1);
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
  if (method == Method::kStochastic8) return StochasticLevels(values, words, n, scale, levels);
  TernaryLevels(values, words, n, scale, levels);
}

void QuantizeBucket(Method method, const Layout& layout, int64_t i, const float* gradient, Seed seed,
                    uint8_t* body) {
  const int64_t begin = i * layout.bucket, end = std::min(layout.count, begin + layout.bucket);
  const float scale = ScaleOf(method, gradient + begin, end - begin);
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
void AddQuantized(const uint8_t* body, const Layout& layout, int64_t begin, int64_t end, float* sum) {
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

Status LayoutOf(const Message& message, std::vector<Layout>* layouts) {
  const Header& header = message.header;
  const auto method = static_cast<Method>(header.form);
  if (method > Method::kSign) {
    return Damaged(message, "is quantized by method " + std::to_string(header.form) + ", which is not known");
  }
  if (header.bucket < 1 || header.bucket > kMaxBucket) {
    return Damaged(message, "has buckets of " + std::to_string(header.bucket) + " elements");
  }
  layouts->emplace_back(method, header.count, header.bucket);
  if (layouts->back().Bytes() != message.body_bytes || header.entries != header.count) {
    return Damaged(message, "should have " + std::to_string(layouts->back().Bytes()) + " bytes for " +
                                std::to_string(header.count) + " elements; it has " +
                                std::to_string(message.body_bytes) + " for " +
                                std::to_string(header.entries));
  }
  return Status::Ok();
}

}  // namespace

int64_t QuantizedBytes(Method method, int64_t count, int64_t bucket) {
  return static_cast<int64_t>(sizeof(Header)) + Layout(method, count, bucket).Bytes();
}

void Quantize(Method method, const float* gradient, int64_t count, int64_t bucket, Seed seed,
              uint8_t* message, const ParallelFor& parallel) {
  TFS_CHECK(0 <= count && count <= kMaxCount && 1 <= bucket && bucket <= kMaxBucket);
  const Layout layout(method, count, bucket);
  Header header;
  header.kind = static_cast<uint8_t>(Kind::kQuantized);
  header.form = static_cast<uint8_t>(method);
  header.bucket = static_cast<uint32_t>(bucket);
  header.count = count;
  header.entries = count;
  header.bytes = QuantizedBytes(method, count, bucket);
  std::memcpy(message, &header, sizeof(header));
  uint8_t* const body = message + sizeof(header);
  const int64_t buckets_of_part = Ceiling(kPartElements, bucket);
  parallel(Ceiling(layout.buckets, buckets_of_part), [&](int64_t part) {
    const int64_t end = std::min(layout.buckets, (part + 1) * buckets_of_part);
    for (int64_t i = part * buckets_of_part; i < end; ++i)
      QuantizeBucket(method, layout, i, gradient, seed, body);
  });
}

Status SumQuantized(const uint8_t* bytes, int64_t size, int64_t count, float* sum,
                    const ParallelFor& parallel) {
  std::vector<Message> messages;
  std::vector<Layout> layouts;
  TFS_RETURN_IF_ERROR(SplitMessages(bytes, size, Kind::kQuantized, count, &messages));
  for (const Message& message : messages) TFS_RETURN_IF_ERROR(LayoutOf(message, &layouts));
  parallel(Ceiling(count, kPartElements), [&](int64_t part) {
    const int64_t begin = part * kPartElements, end = std::min(count, begin + kPartElements);
    std::fill(sum + begin, sum + end, 0.0f);
    for (size_t i = 0; i < messages.size(); ++i) AddQuantized(messages[i].body, layouts[i], begin, end, sum);
  });
  return Status::Ok();
}

}  // namespace tf_strategies::compress

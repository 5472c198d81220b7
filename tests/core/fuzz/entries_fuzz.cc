// Messages with some elements of a gradient: the sum as a vector and as a list are the same, or both are refused; the entries of a
// message can be sent on, and arrive as close as the format says.
//
// Input: the number of elements (4 bytes), the messages.

#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/compress/entries.h"
#include "ops/compress/message.h"
#include "tests/core/fuzz/input.h"
#include "tests/core/fuzz/place.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {
namespace {

using compress::Selection;
using compress::ValueFormat;

constexpr uint32_t kMostElements = 1 << 12;
constexpr int64_t kInt8Block = 256;

bool Same(float a, float b) { return std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, sizeof(a)) == 0; }

float LargestFinite(const float* values, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isfinite(values[i])) largest = std::max(largest, std::fabs(values[i]));
  }
  return largest;
}

// The bounds of value_coding.h.
void CheckSent(ValueFormat format, const std::vector<float>& values, const std::vector<float>& sent) {
  const auto k = static_cast<int64_t>(values.size());
  const int64_t block = format == ValueFormat::kInt8 ? kInt8Block : std::max<int64_t>(k, 1);
  for (int64_t begin = 0; begin < k; begin += block) {
    const double largest = LargestFinite(values.data() + begin, std::min(block, k - begin));
    for (int64_t i = begin; i < std::min(k, begin + block); ++i) {
      const float from = values[i], to = sent[i];
      if (format == ValueFormat::kFloat32) {
        TFS_CHECK(Same(from, to));
      } else if (!std::isfinite(from)) {
        TFS_CHECK(format == ValueFormat::kInt8 ? std::isnan(to) : Same(from, to));
      } else {
        const double off = std::fabs(static_cast<double>(from) - static_cast<double>(to));
        const double most =
            format == ValueFormat::kInt8 ? largest / 253 : std::fabs(from) * 0x1p-10 + largest * 0x1p-38;
        TFS_CHECK_LE(off, most + FLT_MIN);
        TFS_CHECK(to == 0 || std::fabs(to) >= FLT_MIN);
      }
    }
  }
}

// What one message says: written again by who has received it.
void SendOn(const compress::Message& message, int64_t count) {
  const auto format = static_cast<ValueFormat>(message.header.form & 0xF);
  const uint8_t* const begin = message.body - sizeof(compress::Header);
  Selection entries;
  TFS_CHECK(compress::MergeEntries(begin, message.header.bytes, count, &entries).ok());
  const auto k = static_cast<int64_t>(entries.indices.size());
  TFS_CHECK_EQ(k, message.header.entries);
  std::vector<uint8_t> written;
  std::vector<float> sent(entries.values.size());
  const Status encoded = compress::EncodeEntries(entries.indices.data(), entries.values.data(), k, count,
                                                 format, &written, sent.data());
  TFS_CHECK(encoded.ok());
  TFS_CHECK_LE(static_cast<int64_t>(written.size()), message.header.bytes);
  if (format !=
      ValueFormat::kFloat32) {  // processors that flush subnormal numbers to zero see the same values
    for (const float value : entries.values) TFS_CHECK(value == 0 || !(std::fabs(value) < FLT_MIN));
  }
  CheckSent(format, entries.values, sent);
  Selection again;
  TFS_CHECK(compress::MergeEntries(written.data(), static_cast<int64_t>(written.size()), count, &again).ok());
  TFS_CHECK(again.indices == entries.indices);
  for (size_t i = 0; i < sent.size(); ++i) TFS_CHECK(Same(again.values[i], sent[i] + 0.0f));
}

std::string SeedOf(int64_t count, int64_t k, ValueFormat format, int workers) {
  Script script;
  script.Put(static_cast<uint32_t>(count));
  std::mt19937 random(static_cast<uint32_t>(k));
  for (int worker = 0; worker < workers; ++worker) {
    Selection entries;
    for (int64_t i = 0; i < k; ++i) {
      entries.indices.push_back(i * (count / std::max<int64_t>(k, 1)) + worker);
      entries.values.push_back(
          std::ldexp(static_cast<float>(random() % 2000) - 1000, static_cast<int>(i % 30)));
    }
    std::vector<uint8_t> message;
    std::vector<float> sent(entries.values.size());
    TFS_CHECK(compress::EncodeEntries(entries.indices.data(), entries.values.data(), k, count, format,
                                      &message, sent.data())
                  .ok());
    script.PutBytes({message.begin(), message.end()});
  }
  return script.bytes();
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds{Script().Put(uint32_t{0}).bytes(), Script().Put(uint32_t{5}).bytes()};
  for (const ValueFormat format : {ValueFormat::kFloat32, ValueFormat::kFloat16, ValueFormat::kInt8}) {
    seeds.push_back(SeedOf(4000, 0, format, 1));
    seeds.push_back(SeedOf(4000, 3, format, 2));
    seeds.push_back(SeedOf(4000, 300, format, 2));
    seeds.push_back(SeedOf(400, 200, format, 2));
  }
  return seeds;
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tf_strategies;
  using namespace tf_strategies::fuzz;
  Input input(data, size);
  const int64_t count = input.Take<uint32_t>() % (kMostElements + 1);
  const std::string rest = input.TakeRest();
  const std::vector<uint8_t> bytes(rest.begin(), rest.end());
  const auto length = static_cast<int64_t>(bytes.size());
  Place place(static_cast<size_t>(count) * sizeof(float));
  Selection merged;
  const Status summed =
      compress::SumEntries(bytes.data(), length, count, reinterpret_cast<float*>(place.data()));
  const Status listed = compress::MergeEntries(bytes.data(), length, count, &merged);
  place.CheckUntouchedBehind(place.size());
  TFS_CHECK(summed.ToString() == listed.ToString());
  if (!summed.ok()) {
    TFS_CHECK(summed.code() == Code::kInvalidArgument);
    return 0;
  }
  std::vector<float> sum(static_cast<size_t>(count)), expected(static_cast<size_t>(count));
  if (count > 0) std::memcpy(sum.data(), place.data(), place.size());
  TFS_CHECK_EQ(merged.indices.size(), merged.values.size());
  for (size_t i = 0; i < merged.indices.size(); ++i) {
    TFS_CHECK_GT(merged.indices[i], i == 0 ? -1 : merged.indices[i - 1]);
    TFS_CHECK_LT(merged.indices[i], count);
    expected[static_cast<size_t>(merged.indices[i])] = merged.values[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) TFS_CHECK(Same(sum[i], expected[i]));
  std::vector<compress::Message> messages;
  TFS_CHECK(compress::SplitMessages(bytes.data(), length, compress::Kind::kEntries, count, &messages).ok());
  for (const compress::Message& message : messages) SendOn(message, count);
  return 0;
}

// Messages with all elements of a gradient in few bits: the sum is that of the plain loop over levels and scales, or it is refused.
//
// Input: the number of elements (4 bytes), the messages.

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/compress/level_packing.h"
#include "ops/compress/message.h"
#include "ops/compress/quantize.h"
#include "tests/core/fuzz/input.h"
#include "tests/core/fuzz/place.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {
namespace {

using compress::Method;

constexpr uint32_t kMostElements = 1 << 12;

bool Same(float a, float b) { return std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, sizeof(a)) == 0; }

int BitsOf(uint8_t method) { return method == 0 ? 8 : method == 1 ? 2 : method == 2 ? 1 : 4; }

// As the comment of quantize.h says it: scales, then the levels of each bucket from a new byte on.
void AddByTheBook(const compress::Message& message, std::vector<float>* sum) {
  const int bits = BitsOf(message.header.form);
  const int64_t bucket = message.header.bucket;
  const auto count = static_cast<int64_t>(sum->size());
  const int64_t buckets = (count + bucket - 1) / bucket;
  TFS_CHECK_LE(buckets * 4, message.body_bytes);
  std::vector<float> values(sum->size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t b = i / bucket, within = (i % bucket) * bits;
    float scale;
    std::memcpy(&scale, message.body + b * 4, sizeof(scale));
    const int64_t at = buckets * 4 + b * ((bucket * bits + 7) / 8) + within / 8;
    TFS_CHECK_LT(at, message.body_bytes);
    const int code = message.body[at] >> within % 8 & ((1 << bits) - 1);
    const int level = bits == 8   ? static_cast<int8_t>(code)
                      : bits == 4 ? (code < 8 ? code : code - 16)
                      : bits == 2 ? (code == 3 ? -1 : code & 1)
                                  : 1 - 2 * code;
    values[static_cast<size_t>(i)] = static_cast<float>(level) * scale;
  }
  for (size_t i = 0; i < values.size(); ++i) (*sum)[i] += values[i];
}

std::string SeedOf(Method method, int64_t count, int64_t bucket, int workers) {
  Script script;
  script.Put(static_cast<uint32_t>(count));
  for (int worker = 0; worker < workers; ++worker) {
    std::vector<float> gradient(static_cast<size_t>(count));
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = (static_cast<float>(i % 17) - 8) * static_cast<float>(worker + 1);
    }
    std::string message(static_cast<size_t>(compress::QuantizedBytes(method, count, bucket)), '\0');
    compress::Quantize(method, gradient.data(), count, bucket, {}, reinterpret_cast<uint8_t*>(&message[0]));
    script.PutBytes(message);
  }
  return script.bytes();
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds{Script().Put(uint32_t{0}).bytes(), Script().Put(uint32_t{5}).bytes()};
  for (const Method method : {Method::kStochastic8, Method::kTernary, Method::kSign, Method::kStochastic4}) {
    seeds.push_back(SeedOf(method, 0, 1, 1));
    seeds.push_back(SeedOf(method, 1, compress::kMaxBucket, 1));
    seeds.push_back(SeedOf(method, 100, 7, 3));
    seeds.push_back(SeedOf(method, 1000, 512, 2));
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
  const Status summed =
      compress::SumQuantized(bytes.data(), length, count, reinterpret_cast<float*>(place.data()));
  place.CheckUntouchedBehind(place.size());
  if (!summed.ok()) {
    TFS_CHECK(summed.code() == Code::kInvalidArgument);
    return 0;
  }
  std::vector<compress::Message> messages;
  TFS_CHECK(compress::SplitMessages(bytes.data(), length, compress::Kind::kQuantized, count, &messages).ok());
  std::vector<float> sum(static_cast<size_t>(count)), expected(static_cast<size_t>(count));
  if (count > 0) std::memcpy(sum.data(), place.data(), place.size());
  for (const compress::Message& message : messages) AddByTheBook(message, &expected);
  for (size_t i = 0; i < sum.size(); ++i) TFS_CHECK(Same(sum[i], expected[i]));
  return 0;
}

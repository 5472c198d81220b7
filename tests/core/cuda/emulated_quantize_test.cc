// The bodies of the kernels of cuda::Quantize, cuda::SumBodies and cuda::SumLists, run on threads of the CPU, against the CPU's own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "ops/compress/entries.h"
#include "ops/compress/message.h"
#include "ops/compress/quantize.h"
#include "ops/compress/topk.h"
#include "ops/cuda/buckets.h"
#include "ops/cuda/lists.h"
#include "tests/core/cuda/emulated_block.h"
#include "tests/core/cuda/inputs.h"

namespace tf_strategies::cuda {
namespace {

using compress::Method;
using compress::QuantizedLayout;
using compress::Seed;
using Bytes = std::vector<uint8_t>;

constexpr Method kMethods[] = {Method::kStochastic8, Method::kTernary, Method::kSign, Method::kStochastic4};
constexpr int64_t kHeader = sizeof(compress::Header);

Bytes Message(Method method, const std::vector<float>& gradient, int64_t bucket, Seed seed) {
  const auto count = static_cast<int64_t>(gradient.size());
  Bytes message(compress::QuantizedBytes(method, count, bucket), 0xAB);
  compress::Quantize(method, gradient.data(), count, bucket, seed, message.data());
  return message;
}

// The body, written at an odd address.
Bytes EmulatedBody(Method method, const std::vector<float>& gradient, int64_t bucket, Seed seed,
                   int threads) {
  const QuantizedLayout layout(method, static_cast<int64_t>(gradient.size()), bucket);
  Bytes body(layout.Bytes() + 1, 0xAB);
  BucketMemory memory;
  std::memset(&memory, 0x7A, sizeof(memory));
  Emulate(3, threads, [&](const EmulatedBlock& block) {
    QuantizeBuckets(block, method, layout, gradient.data(), seed, body.data() + 1, &memory);
  });
  return Bytes(body.begin() + 1, body.end());
}

void ExpectAsOnTheCpu(const std::vector<float>& gradient, int64_t bucket, int threads) {
  const Seed seed = {0x123456789ABCDEF, 0xFEDCBA987654321};
  for (const Method method : kMethods) {
    const Bytes message = Message(method, gradient, bucket, seed);
    ASSERT_EQ(EmulatedBody(method, gradient, bucket, seed, threads),
              Bytes(message.begin() + kHeader, message.end()))
        << "method " << static_cast<int>(method) << ", " << gradient.size() << " in " << bucket;
  }
}

TEST(EmulatedQuantize, WritesWhatTheCpuWrites) {
  for (const auto& [count, bucket] : std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                                              {1, 512},
                                                                              {70, 1},
                                                                              {100, 3},
                                                                              {511, 512},
                                                                              {513, 512},
                                                                              {1000, 65},
                                                                              {2000, 512},
                                                                              {5000, 1 << 30}})
    ExpectAsOnTheCpu(Random(count, 1), bucket, 32);
  ExpectAsOnTheCpu(Random(3000, 2), 1100, 96);
}

TEST(EmulatedQuantize, WritesWhatTheCpuWritesWhateverIsInIt) {
  for (const char* const kind : kKinds) {
    SCOPED_TRACE(kind);
    ExpectAsOnTheCpu(Random(900, 3, kind), 100, 32);
  }
  ExpectAsOnTheCpu({FLT_MAX, -FLT_MAX, FLT_MIN, 1e-42f, 0.0f, -0.0f, std::nextafter(FLT_MAX, 0.0f)}, 3, 32);
}

// Rounded to float32 a mean tells little of the order of its sums; the sums tell.
TEST(PartOfMean, AddsInTheOrderOfTheCpu) {
  constexpr int kSums = compress::kMeanSums;
  for (int64_t n = 1; n < 300; n += 7) {
    std::vector<float> values = Random(n, static_cast<int>(n));
    for (int64_t i = 0; i < n; ++i) values[i] = std::ldexp(values[i], static_cast<int>(i * 7 % 41) - 20);
    double expected[kSums] = {};
    for (int64_t i = 0; i < n; ++i)
      expected[i < n / kSums * kSums ? i % kSums : 0] += std::abs(static_cast<double>(values[i]));
    for (int j = 0; j < kSums; ++j) EXPECT_EQ(PartOfMean(values.data(), n, j), expected[j]) << n << ", " << j;
  }
}

TEST(EmulatedSum, IsThatOfTheCpu) {
  constexpr int64_t kCount = 3000;
  Bytes messages;
  std::vector<float> found(kCount, 77);
  for (int rank = 0; rank < 6; ++rank) {
    std::vector<float> gradient = Random(kCount, 10 + rank, rank == 0 ? "some not finite" : "normal");
    for (float& value : gradient) value *= rank % 2 == 0 ? 1e7f : -1;
    const Method method = kMethods[rank % std::size(kMethods)];
    const int64_t bucket = 1 + 334 * rank;
    const Bytes message = Message(method, gradient, bucket, {5, static_cast<uint64_t>(rank)});
    messages.insert(messages.end(), message.begin(), message.end());
    Emulate(2, 32, [&](const EmulatedBlock& block) {
      AddBody(block, message.data() + kHeader, QuantizedLayout(method, kCount, bucket), rank == 0,
              found.data());
    });
  }
  std::vector<float> expected(kCount);
  ASSERT_TRUE(
      compress::SumQuantized(messages.data(), static_cast<int64_t>(messages.size()), kCount, expected.data())
          .ok());
  EXPECT_TRUE(SameBits(found, expected));
}

TEST(EmulatedSum, FindsTheBucketOfFarElements) {
  for (const int64_t count : {int64_t{1000}, int64_t{UINT32_MAX}, int64_t{1} << 32, int64_t{1} << 40}) {
    for (const int64_t bucket : {int64_t{1}, int64_t{512}, compress::kMaxBucket}) {
      const QuantizedLayout layout(Method::kSign, count, bucket);
      for (const int64_t i : {int64_t{0}, count / 2, count - 1})
        EXPECT_EQ(BucketOf(layout, i), i / bucket) << count << " in " << bucket;
    }
  }
}

TEST(EmulatedLists, AreAddedUpAsOnTheCpu) {
  constexpr int64_t kCount = 2000;
  Bytes messages;
  std::vector<float> found(kCount);
  for (int rank = 0; rank < 5; ++rank) {
    std::vector<float> residual(kCount);
    std::vector<float> gradient = Random(kCount, 20 + rank);
    for (float& value : gradient) value *= rank % 2 == 0 ? 1e7f : -1;
    const compress::Selection list = compress::TopK(DType::kFloat32, gradient.data(), residual.data(),
                                                    residual.data(), kCount, 100 + 300 * rank);
    const auto k = static_cast<int64_t>(list.indices.size());
    Bytes message;
    std::vector<float> sent(k);
    ASSERT_TRUE(compress::EncodeEntries(list.indices.data(), list.values.data(), k, kCount,
                                        compress::ValueFormat::kFloat32, &message, sent.data())
                    .ok());
    messages.insert(messages.end(), message.begin(), message.end());
    Emulate(2, 32, [&](const EmulatedBlock& block) {
      AddList(block, list.indices.data(), list.values.data(), 0, k, found.data());
    });
  }
  std::vector<float> expected(kCount);
  ASSERT_TRUE(
      compress::SumEntries(messages.data(), static_cast<int64_t>(messages.size()), kCount, expected.data())
          .ok());
  EXPECT_TRUE(SameBits(found, expected));
}

}  // namespace
}  // namespace tf_strategies::cuda

// Quantization and both sums on the device, against the CPU's.
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/compress/entries.h"
#include "ops/compress/message.h"
#include "ops/compress/quantize.h"
#include "ops/compress/topk.h"
#include "ops/cuda/device_array.cuh"
#include "ops/cuda/entries.cuh"
#include "ops/cuda/quantize.cuh"
#include "tests/core/cuda/inputs.h"

namespace tf_strategies::cuda {
namespace {

using compress::Method;
using compress::Seed;
using Bytes = std::vector<uint8_t>;

constexpr Method kMethods[] = {Method::kStochastic8, Method::kTernary, Method::kSign, Method::kStochastic4};
constexpr int64_t kHeader = sizeof(compress::Header);

void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

Bytes Message(Method method, const std::vector<float>& gradient, int64_t bucket, Seed seed) {
  const auto count = static_cast<int64_t>(gradient.size());
  Bytes message(compress::QuantizedBytes(method, count, bucket), 0xAB);
  compress::Quantize(method, gradient.data(), count, bucket, seed, message.data());
  return message;
}

Bytes BodyOf(const Bytes& message) { return Bytes(message.begin() + kHeader, message.end()); }

void ExpectAsOnTheCpu(const std::vector<float>& gradient, int64_t bucket) {
  const Seed seed = {0x123456789ABCDEF, 0xFEDCBA987654321};
  const auto count = static_cast<int64_t>(gradient.size());
  DeviceArray<float> on_device(gradient);
  for (const Method method : kMethods) {
    const int64_t bytes = BodyBytes(method, count, bucket);
    DeviceArray<uint8_t> body(Bytes(bytes + 1, 0xAB));  // written at an odd address
    ExpectOk(Quantize(method, on_device.data(), count, bucket, seed, body.data() + 1, nullptr));
    const Bytes found = body.Get();
    ASSERT_EQ(found[0], 0xAB);
    ASSERT_TRUE(Bytes(found.begin() + 1, found.end()) == BodyOf(Message(method, gradient, bucket, seed)))
        << "method " << static_cast<int>(method) << ", " << count << " in " << bucket;
  }
}

TEST(Quantize, WritesWhatTheCpuWrites) {
  for (const auto& [count, bucket] : std::vector<std::pair<int64_t, int64_t>>{{0, 512},
                                                                              {1, 1},
                                                                              {1, 512},
                                                                              {31, 1},
                                                                              {513, 512},
                                                                              {1000, 65},
                                                                              {100'000, 1},
                                                                              {1'000'000, 1100},
                                                                              {1'000'000, 1 << 30},
                                                                              {25'000'000, 512}}) {
    ExpectAsOnTheCpu(Random(count, 1), bucket);
  }
}

TEST(Quantize, WritesWhatTheCpuWritesWhateverIsInIt) {
  for (const char* const kind : kKinds) {
    SCOPED_TRACE(kind);
    ExpectAsOnTheCpu(Random(90'000, 3, kind), 100);
    ExpectAsOnTheCpu(Random(90'000, 3, kind), 5000);
  }
  ExpectAsOnTheCpu({FLT_MAX, -FLT_MAX, FLT_MIN, 1e-42f, 0.0f, -0.0f, std::nextafter(FLT_MAX, 0.0f)}, 3);
}

TEST(SumBodies, IsThatOfTheCpu) {
  for (const int64_t count : {1, 1000, 1'000'000}) {
    Bytes messages;
    std::vector<std::unique_ptr<DeviceArray<uint8_t>>> memory;
    std::vector<Body> bodies;
    for (int rank = 0; rank < 6; ++rank) {
      std::vector<float> gradient = Random(count, 10 + rank, rank == 0 ? "some not finite" : "normal");
      for (float& value : gradient) value *= rank % 2 == 0 ? 1e7f : -1;
      const Method method = kMethods[rank % std::size(kMethods)];
      const int64_t bucket = 1 + 334 * rank;
      const Bytes message = Message(method, gradient, bucket, {5, static_cast<uint64_t>(rank)});
      messages.insert(messages.end(), message.begin(), message.end());
      Bytes shifted(message.begin() + kHeader - rank % 4, message.end());
      memory.push_back(std::make_unique<DeviceArray<uint8_t>>(shifted));
      bodies.push_back({method, bucket, memory.back()->data() + rank % 4});
    }
    std::vector<float> expected(count);
    ASSERT_TRUE(
        compress::SumQuantized(messages.data(), static_cast<int64_t>(messages.size()), count, expected.data())
            .ok());
    DeviceArray<float> sum(std::vector<float>(count, 77));
    ExpectOk(SumBodies(bodies.data(), 6, count, sum.data(), nullptr));
    EXPECT_TRUE(SameNumbers(sum.Get(), expected));
    ExpectOk(SumBodies(nullptr, 0, count, sum.data(), nullptr));
    EXPECT_TRUE(SameBits(sum.Get(), std::vector<float>(count)));
  }
}

TEST(SumLists, IsThatOfTheCpu) {
  for (const int64_t count : {1, 2000, 1'000'000}) {
    Bytes messages;
    std::vector<int64_t> ends, indices;
    std::vector<float> values;
    for (int rank = 0; rank < 5; ++rank) {
      std::vector<float> residual(count);
      std::vector<float> gradient = Random(count, 20 + rank);
      for (float& value : gradient) value *= rank % 2 == 0 ? 1e7f : -1;
      const compress::Selection list = compress::TopK(DType::kFloat32, gradient.data(), residual.data(),
                                                      residual.data(), count, rank * count / 5);
      const auto k = static_cast<int64_t>(list.indices.size());
      Bytes message;
      std::vector<float> sent(k);
      ExpectOk(compress::EncodeEntries(list.indices.data(), list.values.data(), k, count,
                                       compress::ValueFormat::kFloat32, &message, sent.data()));
      messages.insert(messages.end(), message.begin(), message.end());
      indices.insert(indices.end(), list.indices.begin(), list.indices.end());
      values.insert(values.end(), list.values.begin(), list.values.end());
      ends.push_back(static_cast<int64_t>(indices.size()));
    }
    std::vector<float> expected(count);
    ExpectOk(
        compress::SumEntries(messages.data(), static_cast<int64_t>(messages.size()), count, expected.data()));
    DeviceArray<int64_t> indices_on_device(indices);
    DeviceArray<float> values_on_device(values), sum(std::vector<float>(count, 77));
    ExpectOk(SumLists(ends.data(), 5, indices_on_device.data(), values_on_device.data(), count, sum.data(),
                      nullptr));
    EXPECT_TRUE(SameBits(sum.Get(), expected));
  }
}

TEST(Arguments, ThatCannotBeAreRefused) {
  const int64_t ends[] = {5, 4};
  EXPECT_EQ(SumLists(ends, 2, nullptr, nullptr, 10, nullptr, nullptr).message(),
            "list 1 must have 0 to 10 entries; it goes from 5 to 4");
  EXPECT_EQ(SumLists(ends, 2, nullptr, nullptr, 4, nullptr, nullptr).message(),
            "list 0 must have 0 to 4 entries; it goes from 0 to 5");
  EXPECT_EQ(Quantize(static_cast<Method>(4), nullptr, 10, 512, {}, nullptr, nullptr).message(),
            "method 4 is not known");
  EXPECT_EQ(Quantize(Method::kSign, nullptr, 10, 0, {}, nullptr, nullptr).message(),
            "a bucket must have 1 to 2147483647 elements; it has 0");
  const Body body = {Method::kSign, int64_t{1} << 31, nullptr};
  EXPECT_EQ(SumBodies(&body, 1, 10, nullptr, nullptr).message(),
            "a bucket must have 1 to 2147483647 elements; it has 2147483648");
}

}  // namespace
}  // namespace tf_strategies::cuda

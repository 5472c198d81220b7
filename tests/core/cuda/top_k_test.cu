#include "ops/cuda/top_k.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/compress/topk.h"
#include "ops/cuda/device_array.cuh"
#include "tests/core/cuda/inputs.h"

namespace tf_strategies::cuda {
namespace {

void ExpectAsOnTheCpu(DType dtype, const std::vector<float>& values, const std::vector<float>& before,
                      int64_t k) {
  const auto count = static_cast<int64_t>(before.size());
  const std::vector<uint8_t> gradient = AsElements(dtype, values);
  std::vector<float> expected_residual = before;
  const compress::Selection expected =
      compress::TopK(dtype, gradient.data(), expected_residual.data(), expected_residual.data(), count, k);

  DeviceArray<uint8_t> on_device(gradient);
  DeviceArray<float> residual(before);
  DeviceArray<int64_t> indices(k);
  DeviceArray<float> selected(k);
  const int64_t bytes = TopKWorkspaceBytes(count);
  DeviceArray<uint8_t> workspace(std::vector<uint8_t>(bytes, 0xCD));
  const Status status = TopK(dtype, on_device.data(), residual.data(), count, k, indices.data(),
                             selected.data(), workspace.data(), bytes, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(indices.Get(), expected.indices);
  ASSERT_TRUE(SameBits(selected.Get(), expected.values));
  ASSERT_TRUE(SameBits(residual.Get(), expected_residual));
}

TEST(TopK, SelectsWhatTheCpuSelects) {
  for (const int64_t count : {0, 1, 31, 512, 513, 1000, 1'000'000, 25'000'000}) {
    const std::vector<float> gradient = Random(count, 1), residual = Random(count, 2);
    for (const int64_t k : {int64_t{0}, int64_t{1}, count / 1000, count / 50, count / 2, count}) {
      SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(k));
      ExpectAsOnTheCpu(DType::kFloat32, gradient, residual, std::min(k, count));
    }
  }
}

TEST(TopK, SelectsWhatTheCpuSelectsWhateverIsInIt) {
  for (const char* const kind : kKinds) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const int64_t count : {1700, 1'000'003}) {
        for (const int64_t k : {int64_t{2}, count / 3}) {
          SCOPED_TRACE(std::string(kind) + ", " + DTypeName(dtype) + ", " + std::to_string(k));
          ExpectAsOnTheCpu(dtype, Random(count, 3, kind), std::vector<float>(count), k);
          ExpectAsOnTheCpu(dtype, Random(count, 4, kind), Random(count, 5), k);
        }
      }
    }
  }
}

TEST(TopK, InfinitiesThatCancelAreNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> gradient = Random(100, 6), residual = Random(100, 7);
  gradient[3] = kInf;
  residual[3] = -kInf;
  gradient[60] = kInf;
  residual[61] = FromBits(0xFFC12345);
  for (const int64_t k : {0, 1, 2, 3, 4}) ExpectAsOnTheCpu(DType::kFloat32, gradient, residual, k);
}

TEST(Arguments, ThatCannotBeAreRefused) {
  const auto message = [](DType dtype, int64_t count, int64_t k, uintptr_t workspace, int64_t bytes) {
    const Status status = TopK(dtype, nullptr, nullptr, count, k, nullptr, nullptr,
                               reinterpret_cast<void*>(workspace), bytes, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message(DType::kInt32, 10, 1, 0, 1 << 20),
            "the gradient must be float32, float16 or bfloat16; it is int32");
  EXPECT_EQ(message(DType::kFloat32, 10, 11, 0, 1 << 20), "k must be between 0 and count, 10; it is 11");
  EXPECT_EQ(message(DType::kFloat32, 10, -1, 0, 1 << 20), "k must be between 0 and count, 10; it is -1");
  EXPECT_EQ(message(DType::kFloat32, 10, 1, 0, 7),
            "the workspace must have 147536 bytes for 10 elements; it has 7");
  EXPECT_EQ(message(DType::kFloat32, 10, 1, 8, 1 << 20),
            "the workspace must be aligned to 16 bytes; its address ends with 8");
  EXPECT_NE(message(DType::kFloat32, -1, 0, 0, 1 << 20), "");
  EXPECT_TRUE(
      TopK(DType::kFloat32, nullptr, nullptr, 0, 0, nullptr, nullptr, nullptr, TopKWorkspaceBytes(0), nullptr)
          .ok());
}

}  // namespace
}  // namespace tf_strategies::cuda

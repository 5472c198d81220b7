// Gradients that are held until their step is applied.

#include "ops/ledger/gradient_accumulator.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace tf_strategies::ledger {
namespace {

using Values = std::vector<float>;

std::string NameOf(int worker) { return "worker " + std::to_string(worker); }

Gradient DenseOf(const std::shared_ptr<Values>& values, std::vector<int64_t> shape) {
  Gradient gradient;
  gradient.parts = {{values->data(), std::move(shape)}};
  gradient.keep_alive = values;
  return gradient;
}

std::shared_ptr<Values> ValuesOf(int worker, int64_t count) {
  auto values = std::make_shared<Values>();
  for (int64_t i = 0; i < count; ++i) values->push_back(static_cast<float>((worker + 1) * (i % 13 + 1)));
  return values;
}

Status PutDense(GradientAccumulator& accumulator, int worker, int64_t step,
                std::vector<int64_t> shape = {4}) {
  return accumulator.Put("v", worker, step, DenseOf(ValuesOf(worker, 4), std::move(shape)));
}

TEST(GradientAccumulator, AreSummedInTheOrderOfTheWorkers) {
  // 1e8 + 1 - 1e8 depends on the order.
  const int64_t count = 20000;
  GradientAccumulator accumulator(NameOf);
  for (const auto& [worker, value] : std::vector<std::pair<int, float>>{{5, -1e8F}, {0, 1e8F}, {2, 1.0F}}) {
    ASSERT_TRUE(
        accumulator.Put("v", worker, 3, DenseOf(std::make_shared<Values>(count, value), {count})).ok());
  }
  for (int again = 0; again < 2; ++again) {
    std::vector<std::shared_ptr<const Gradient>> found;
    ASSERT_TRUE(accumulator.Take("v", {0, 2, 5}, 3, &found).ok());
    std::vector<const void*> sources;
    for (const auto& gradient : found) sources.push_back(gradient->parts[0].data);
    Values sum(count, 77);
    SumInOrder(DType::kFloat32, sources, sum.data(), 1, count);
    EXPECT_EQ(sum[0], 77);
    for (int64_t i = 1; i < count; ++i) ASSERT_EQ(sum[i], (1e8F + 1.0F) - 1e8F) << i;
  }
}

TEST(GradientAccumulator, ANewerReplacesAnOlderAndFreesIt) {
  GradientAccumulator accumulator(NameOf);
  auto values = ValuesOf(0, 4);
  const std::weak_ptr<Values> watched = values;
  ASSERT_TRUE(accumulator.Put("v", 0, 0, DenseOf(values, {4})).ok());
  values.reset();
  EXPECT_FALSE(watched.expired());
  ASSERT_TRUE(PutDense(accumulator, 0, 1).ok());
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(accumulator.held(), 1);
  std::vector<std::shared_ptr<const Gradient>> found;
  EXPECT_EQ(accumulator.Take("v", {0}, 0, &found).ToString(),
            "FAILED_PRECONDITION: the gradient 'v' of worker 0 for step 0 is not here: the last one "
            "received is for step 1");
}

TEST(GradientAccumulator, DiscardFreesThisStepAndThoseBefore) {
  GradientAccumulator accumulator(NameOf);
  for (int worker = 0; worker < 3; ++worker) ASSERT_TRUE(PutDense(accumulator, worker, worker).ok());
  accumulator.Discard(1);
  EXPECT_EQ(accumulator.held(), 1);
  std::vector<std::shared_ptr<const Gradient>> found;
  EXPECT_TRUE(accumulator.Take("v", {2}, 2, &found).ok());
  EXPECT_EQ(accumulator.Take("v", {1, 2}, 2, &found).ToString(),
            "FAILED_PRECONDITION: the gradient 'v' of worker 1 for step 2 is not here: this server never "
            "received it, or has discarded it");
}

TEST(GradientAccumulator, TakenOnesOutliveDiscard) {
  GradientAccumulator accumulator(NameOf);
  ASSERT_TRUE(PutDense(accumulator, 1, 0).ok());
  std::vector<std::shared_ptr<const Gradient>> found;
  ASSERT_TRUE(accumulator.Take("v", {1}, 0, &found).ok());
  accumulator.Discard(0);
  EXPECT_EQ(static_cast<const float*>(found[0]->parts[0].data)[3], 8);
}

TEST(GradientAccumulator, DifferencesNameBothSides) {
  GradientAccumulator accumulator(NameOf);
  ASSERT_TRUE(PutDense(accumulator, 0, 5).ok());
  EXPECT_EQ(PutDense(accumulator, 1, 5, {2, 2}).ToString(),
            "MISMATCH: the gradient 'v' for step 5 is float32 [2,2] on worker 1 and float32 [4] on worker 0: "
            "run the "
            "same model on every worker");
  EXPECT_TRUE(PutDense(accumulator, 1, 6, {2, 2}).ok()) << "another step";
  Gradient rows;
  rows.is_rows = true;
  rows.parts = {{nullptr, {0}}, {nullptr, {0, 3}}};
  EXPECT_EQ(accumulator.Put("v", 2, 5, rows).message(),
            "the gradient 'v' for step 5 is rows of float32 [3] on worker 2 and float32 [4] on worker 0: run "
            "the same "
            "model on every worker");
}

TEST(GradientAccumulator, RefuseWhatMakesNoSense) {
  GradientAccumulator accumulator(NameOf);
  EXPECT_EQ(PutDense(accumulator, -1, 0).message(), "worker must be between 0 and 65535; got -1");
  EXPECT_EQ(PutDense(accumulator, 0, -1).message(), "step must be at least 0; got -1");
  ASSERT_TRUE(PutDense(accumulator, 0, 0).ok());
  std::vector<std::shared_ptr<const Gradient>> found;
  EXPECT_EQ(accumulator.Take("v", {}, 0, &found).message(), "the gradient 'v' was requested for no member");
  EXPECT_EQ(accumulator.Take("v", {2, 1}, 0, &found).message(), "members must ascend; got 2 before 1");
  EXPECT_EQ(accumulator.Take("v", {1, 1}, 0, &found).message(), "members must ascend; got 1 before 1");
  EXPECT_EQ(accumulator.Take("w", {0}, 0, &found).code(), Code::kFailedPrecondition);
}

TEST(GradientAccumulator, KeysAreBounded) {
  GradientAccumulator accumulator(NameOf);
  const auto values = ValuesOf(0, 1);
  for (size_t key = 0; key < GradientAccumulator::kMostKeys; ++key) {
    ASSERT_TRUE(accumulator.Put(std::to_string(key), 0, 0, DenseOf(values, {1})).ok());
  }
  EXPECT_EQ(accumulator.Put("one more", 0, 0, DenseOf(values, {1})).code(), Code::kResourceExhausted);
  EXPECT_TRUE(accumulator.Put("7", 1, 0, DenseOf(values, {1})).ok());
}

}  // namespace
}  // namespace tf_strategies::ledger

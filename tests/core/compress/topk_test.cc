#include "ops/compress/topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/base/half.h"
#include "ops/compress/paths.h"

namespace tf_strategies::compress {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void OnThreeThreads(int64_t count, const std::function<void(int64_t)>& task) {
  std::vector<std::thread> threads;
  for (int64_t first = 0; first < 3; ++first) {
    threads.emplace_back([&, first] {
      for (int64_t i = first; i < count; i += 3) task(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What ranks an entry: NaN above infinity.
double Rank(float value) {
  return std::isnan(value) ? 2e300 : std::isinf(value) ? 1e300 : std::abs(double{value});
}

// The obvious way: sort by magnitude, then by index.
std::vector<int64_t> Largest(const std::vector<float>& sums, int64_t k) {
  std::vector<int64_t> order(sums.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return Rank(sums[a]) > Rank(sums[b]); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<float> Sums(const std::vector<float>& gradient, const std::vector<float>& residual) {
  std::vector<float> sums(gradient.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = gradient[i] + residual[i];
  return sums;
}

bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

void ExpectExact(const std::vector<float>& gradient, const std::vector<float>& before, int64_t k,
                 const ParallelFor& parallel = Sequentially) {
  const std::vector<float> sums = Sums(gradient, before);
  std::vector<float> remaining(before.size(), -7);
  const Selection selection = TopK(DType::kFloat32, gradient.data(), before.data(), remaining.data(),
                                   static_cast<int64_t>(sums.size()), k, parallel);
  ASSERT_EQ(selection.indices, Largest(sums, k));
  std::vector<float> expected = sums;
  for (float& value : expected) value = std::isfinite(value) ? value : 0;
  for (size_t i = 0; i < selection.indices.size(); ++i) {
    ASSERT_TRUE(SameBits(selection.values[i], sums[selection.indices[i]])) << selection.indices[i];
    expected[selection.indices[i]] = 0;
  }
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(remaining[i], expected[i]) << i;
}

std::vector<float> Random(int64_t count, int seed, const std::string& kind = "normal") {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = normal(generator);
    if (kind == "heavy tails") values[i] = std::pow(values[i], 7.0f);
    if (kind == "few values") values[i] = std::round(values[i]);
    if (kind == "mostly zero") values[i] = generator() % 1000 == 0 ? values[i] : 0;
    if (kind == "zero") values[i] = 0;
    if (kind == "all large in one place") values[i] *= i > count / 2 && i < count / 2 + count / 50 ? 1000 : 1;
  }
  return values;
}

TEST(TopK, SelectsWhatSortingSelects) {
  for (const int64_t count : {1, 2, 17, 1000, 16384, 16385, 200003}) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, count / 100, count / 2, count}) {
      SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(k));
      ExpectExact(Random(count, 1), Random(count, 2), std::min(k, count));
    }
  }
}

TEST(TopK, SelectsExactlyWhateverTheDistribution) {
  for (const std::string kind :
       {"heavy tails", "few values", "mostly zero", "zero", "all large in one place"}) {
    for (const int64_t k : {1, 300, 3000, 100000}) {
      SCOPED_TRACE(kind + ", " + std::to_string(k));
      ExpectExact(Random(300000, 3, kind), Random(300000, 4, "zero"), k);
    }
  }
}

TEST(TopK, ThreadsChangeNothing) { ExpectExact(Random(400000, 5), Random(400000, 6), 4000, OnThreeThreads); }

TEST(TopK, ThreadsChangeNothingWhereManyAreEqual) {
  ExpectExact(Random(400000, 5, "few values"), Random(400000, 6, "zero"), 4000, OnThreeThreads);
}

TEST(TopK, WhatIsNotFiniteIsSentFirstAndNeverStays) {
  for (const int64_t count : {100, 300000}) {
    for (const int64_t k : {1, 2, 5, 50}) {
      std::vector<float> gradient = Random(count, 7);
      gradient[3] = kInf;
      gradient[50] = kNaN;
      gradient[count - 1] = -kInf;
      SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(k));
      ExpectExact(gradient, Random(count, 8), k);
    }
  }
}

TEST(TopK, NothingIsLost) {
  constexpr int64_t kCount = 200000;
  std::vector<float> residual(kCount), received(kCount), total(kCount);
  for (int step = 0; step < 20; ++step) {
    std::vector<float> gradient(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      gradient[i] = static_cast<float>((i * 7919 + step * 104729) % 1021 - 510);
      total[i] += gradient[i];
    }
    const Selection selection =
        TopK(DType::kFloat32, gradient.data(), residual.data(), residual.data(), kCount, 2000);
    for (size_t i = 0; i < selection.indices.size(); ++i)
      received[selection.indices[i]] += selection.values[i];
  }
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(received[i] + residual[i], total[i]);
}

TEST(TopK, HalvesAreAddedInFloat32) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t count : {37, 300000}) {
      std::vector<float> wide = Random(count, 9);
      wide.resize(count + 16);
      std::vector<uint16_t> halves(count + 16);
      std::vector<float> gradient(count + 16);
      for (int64_t i = 0; i < count; i += 4) {
        HalfLanes<16>::Floats four;
        std::memcpy(&four, wide.data() + i, sizeof(four));
        if (dtype == DType::kFloat16) {
          SoftwareFloat16Format<16>::Store(four, halves.data() + i);
          SoftwareFloat16Format<16>::Load(halves.data() + i, four);
        } else {
          BFloat16Format<16>::Store(four, halves.data() + i);
          BFloat16Format<16>::Load(halves.data() + i, four);
        }
        std::memcpy(gradient.data() + i, &four, sizeof(four));
      }
      gradient.resize(count);
      const std::vector<float> before = Random(count, 10);
      std::vector<float> residual = before;
      const int64_t k = count / 20 + 1;
      const Selection selection = TopK(dtype, halves.data(), residual.data(), residual.data(), count, k);
      EXPECT_EQ(selection.indices, Largest(Sums(gradient, before), k)) << DTypeName(dtype) << count;
    }
  }
}

TEST(SampledTopK, SelectsBetweenFourAndFiveQuartersOfK) {
  int corrected = 0;
  for (const std::string kind :
       {"normal", "heavy tails", "all large in one place", "few values", "mostly zero"}) {
    for (int seed = 0; seed < 5; ++seed) {
      constexpr int64_t kCount = 500000, kWanted = 5000;
      const std::vector<float> gradient = Random(kCount, 20 + seed, kind);
      std::vector<float> residual(kCount);
      const Selection selection = SampledTopK(DType::kFloat32, gradient.data(), residual.data(),
                                              residual.data(), kCount, kWanted, OnThreeThreads);
      const auto selected = static_cast<int64_t>(selection.indices.size());
      EXPECT_GE(selected, kWanted * 8 / 10) << kind;
      EXPECT_LE(selected, kWanted * 125 / 100) << kind;
      EXPECT_EQ(selection.indices, Largest(gradient, selected))
          << kind << ": cut by magnitude, not by position";
      corrected += selected == kWanted;
    }
  }
  EXPECT_LT(corrected, 20) << "the sample is never good enough";
}

TEST(Paths, AllFindTheSame) {
  const std::vector<float> gradient = Random(1003, 11), before = Random(1003, 12);
  std::vector<float> expected_residual = before;
  std::vector<Candidate> expected(1004);
  const int64_t count = Paths().front().scan(DType::kFloat32, gradient.data(), expected_residual.data(), 1,
                                             1002, 0x3F800000, expected.data());
  EXPECT_GT(count, 100);
  for (const Path& path : Paths()) {
    if (!path.supported()) continue;
    std::vector<float> residual = before;
    std::vector<Candidate> found(1004);
    ASSERT_EQ(path.scan(DType::kFloat32, gradient.data(), residual.data(), 1, 1002, 0x3F800000, found.data()),
              count)
        << path.name;
    EXPECT_EQ(residual, expected_residual) << path.name;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(found[i].index, expected[i].index) << path.name;
      EXPECT_EQ(found[i].value, expected[i].value) << path.name;
    }
  }
}

}  // namespace
}  // namespace tf_strategies::compress

// The bodies of the kernels of cuda::TopK, run on threads of the CPU, against compress::TopK.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ops/compress/topk.h"
#include "ops/cuda/gradient.h"
#include "ops/cuda/radix_select.h"
#include "ops/cuda/scan.h"
#include "ops/cuda/segments.h"
#include "tests/core/cuda/emulated_block.h"
#include "tests/core/cuda/inputs.h"

namespace tf_strategies::cuda {
namespace {

// Of the kernels that run in many blocks.
struct Grid {
  int64_t blocks = 2;
  int threads = 64;
};

// The launches of top_k.cu, one after the other. rank: of the bound in the sample.
template <typename Format>
compress::Selection Select(const void* gradient, std::vector<float>* residual, int64_t k, Grid grid,
                           int64_t rank) {
  const auto count = static_cast<int64_t>(residual->size());
  const auto* const elements = static_cast<const typename Format::Element*>(gradient);
  float* const sums = residual->data();
  std::vector<uint64_t> histograms(kDigitCount * kBins), of_sample(BinsOf(kDigitOfBound));
  std::vector<uint32_t> bins(BinsOf(kDigitOfBound), 0xCDCDCDCD);  // memory of a block starts with anything
  std::vector<int64_t> shared(grid.threads / kWarp, -77);
  Threshold threshold = {-1, -1}, bound = {-1, -1};
  std::vector<Counts> counts(Segments(count), {-1, -1}), of_blocks(grid.blocks, {-1, -1});
  std::vector<Places> places(grid.threads / kWarp);
  std::vector<uint32_t> marks(MarkWords(count), 0xCDCDCDCD);
  const auto choose = [&](const uint64_t* histogram, Digit digit, int64_t wanted, Threshold* chosen) {
    Emulate(1, grid.threads, [&](const EmulatedBlock& block) {
      ChooseDigit(block, histogram, digit, wanted, chosen, shared.data());
    });
  };
  Emulate(grid.blocks, grid.threads, [&](const EmulatedBlock& block) {
    CountSample<Format>(block, elements, sums, Sample(count), bins.data(), of_sample.data());
  });
  choose(of_sample.data(), kDigitOfBound, rank, &bound);
  Emulate(grid.blocks, grid.threads, [&](const EmulatedBlock& block) {
    AddAndCount<Format>(block, elements, sums, count, &bound, marks.data(), bins.data(), histograms.data());
  });
  choose(histograms.data(), kDigits[0], k, &threshold);
  Emulate(grid.blocks, grid.threads, [&](const EmulatedBlock& block) {
    CountRest(block, sums, count, &bound, &threshold, marks.data(), bins.data(), histograms.data());
  });
  choose(histograms.data(), kDigits[0], k, &threshold);
  for (int i = 1; i < kDigitCount; ++i) {
    uint64_t* const histogram = &histograms[i * kBins];
    Emulate(grid.blocks, grid.threads, [&](const EmulatedBlock& block) {
      CountDigit(block, sums, count, marks.data(), kDigits[i], &threshold, places.data(), bins.data(),
                 histogram);
    });
    choose(histogram, kDigits[i], k, &threshold);
  }
  compress::Selection selection;
  selection.indices.assign(k, -1);
  selection.values.assign(k, 12345);
  Emulate(grid.blocks, grid.threads, [&](const EmulatedBlock& block) {
    CountSegments(block, sums, count, marks.data(), &threshold, places.data(), shared.data(), counts.data(),
                  of_blocks.data());
  });
  Emulate(grid.blocks, grid.threads, [&](const EmulatedBlock& block) {
    TakeSegments(block, sums, count, marks.data(), &threshold, places.data(), shared.data(), counts.data(),
                 of_blocks.data(), selection.indices.data(), selection.values.data());
  });
  return selection;
}

void ExpectAsOnTheCpu(DType dtype, const std::vector<float>& values, const std::vector<float>& before,
                      int64_t k, Grid grid = {}, int64_t rank = -1) {
  if (rank < 0) rank = k + 16;  // all are in the sample
  const std::vector<uint8_t> gradient = AsElements(dtype, values);
  std::vector<float> expected_residual = before, residual = before;
  const compress::Selection expected =
      compress::TopK(dtype, gradient.data(), expected_residual.data(), expected_residual.data(),
                     static_cast<int64_t>(before.size()), k);
  const compress::Selection found =
      dtype == DType::kFloat32   ? Select<Float32>(gradient.data(), &residual, k, grid, rank)
      : dtype == DType::kFloat16 ? Select<Float16>(gradient.data(), &residual, k, grid, rank)
                                 : Select<BFloat16>(gradient.data(), &residual, k, grid, rank);
  ASSERT_EQ(found.indices, expected.indices);
  ASSERT_TRUE(SameBits(found.values, expected.values));
  ASSERT_TRUE(SameBits(residual, expected_residual));
}

TEST(EmulatedTopK, SelectsWhatTheCpuSelects) {
  for (const int64_t count : {1, 31, 256, 257, 4096, 4097}) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, count / 50, count / 2, count}) {
      SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(k));
      ExpectAsOnTheCpu(DType::kFloat32, Random(count, 1), Random(count, 2), std::min(k, count));
    }
  }
}

TEST(EmulatedTopK, SelectsWhatTheCpuSelectsWhateverIsInIt) {
  for (const char* const kind : kKinds) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      SCOPED_TRACE(std::string(kind) + ", " + DTypeName(dtype));
      ExpectAsOnTheCpu(dtype, Random(1200, 3, kind), std::vector<float>(1200), 500);
      ExpectAsOnTheCpu(dtype, Random(1200, 4, kind), Random(1200, 5), 2);
    }
  }
}

// A slice of a gradient need not be aligned for loads of several elements.
TEST(EmulatedTopK, SelectsTheSameFromAnyAddress) {
  constexpr int64_t kCount = 700, kSelected = 70;
  const std::vector<float> longer = Random(kCount + 1, 12);
  std::vector<float> residual = Random(kCount, 13), expected_residual = residual;
  const compress::Selection expected =
      compress::TopK(DType::kFloat32, longer.data() + 1, expected_residual.data(), expected_residual.data(),
                     kCount, kSelected);
  const compress::Selection found = Select<Float32>(longer.data() + 1, &residual, kSelected, {}, 100);
  EXPECT_EQ(found.indices, expected.indices);
  EXPECT_TRUE(SameBits(found.values, expected.values));
  EXPECT_TRUE(SameBits(residual, expected_residual));
}

TEST(EmulatedTopK, SelectsTheSameInAnyGrid) {
  for (const Grid grid : {Grid{1, 32}, Grid{1, 96}, Grid{3, 256}, Grid{40, 32}}) {
    SCOPED_TRACE(std::to_string(grid.blocks) + " blocks of " + std::to_string(grid.threads));
    ExpectAsOnTheCpu(DType::kFloat32, Random(9000, 8, "few values"), Random(9000, 9, "zero"), 4000, grid);
  }
}

// A bound that is too high leaves out keys that are selected; one that is too low marks all.
TEST(EmulatedTopK, SelectsTheSameForAnyBound) {
  for (const char* const kind : {"few values", "some not finite"}) {
    for (const int64_t k : {1, 300}) {
      for (const int64_t rank : {1, 100, 10'000}) {
        SCOPED_TRACE(std::string(kind) + ", " + std::to_string(k) + " by the rank " + std::to_string(rank));
        ExpectAsOnTheCpu(DType::kFloat32, Random(900, 10, kind), Random(900, 11), k, {}, rank);
      }
    }
  }
}

TEST(Sample, HasAPlaceInEachPart) {
  for (const int64_t count :
       {int64_t{1}, int64_t{300}, Sample::kMost, 2 * Sample::kMost - 1, int64_t{25'000'000'000}}) {
    const Sample sample(count);
    for (int64_t i = 0; i < sample.size; ++i) {
      ASSERT_LE(i * sample.part, sample.Place(i));
      ASSERT_LT(sample.Place(i), (i + 1) * sample.part);
    }
    EXPECT_LE(sample.size * sample.part, count);
  }
}

TEST(EmulatedTopK, InfinitiesThatCancelAreNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> gradient = Random(100, 6), residual = Random(100, 7);
  gradient[3] = kInf;
  residual[3] = -kInf;
  gradient[60] = kInf;
  residual[61] = FromBits(0xFFC12345);
  for (const int64_t k : {0, 1, 2, 3, 4}) ExpectAsOnTheCpu(DType::kFloat32, gradient, residual, k);
}

TEST(Gradient, Float16IsWidenedAsOnTheCpu) {
  for (uint32_t half = 0; half < 0x10000; half += 4) {
    uint16_t halves[4];
    for (uint32_t lane = 0; lane < 4; ++lane) halves[lane] = static_cast<uint16_t>(half + lane);
    HalfLanes<16>::Floats expected;
    SoftwareFloat16Format<16>::Load(halves, expected);
    for (int lane = 0; lane < 4; ++lane) {
      const float found = Float16::Widen(halves[lane]);
      ASSERT_EQ(std::memcmp(&found, reinterpret_cast<const float*>(&expected) + lane, 4), 0) << halves[lane];
    }
  }
}

// Takes the k largest from a list of all values with the digit.
TEST(ChooseDigit, FindsTheDigitOfEveryRank) {
  constexpr Digit kDigit = {20, 10};
  constexpr int64_t kOfZero = 30;
  std::vector<uint64_t> histogram(kBins);
  std::vector<int64_t> values;
  for (const int64_t value : {1023, 1022, 700, 699, 64, 63, 2, 1}) {
    histogram[value] = 1 + value % 5;
    values.insert(values.end(), histogram[value], value);
  }
  values.insert(values.end(), kOfZero, 0);
  const int32_t known = 5 << kDigit.above;
  for (const int threads : {32, 96, 256}) {
    for (size_t wanted = 1; wanted <= values.size(); wanted += threads / 32) {
      Threshold threshold = {known, static_cast<int64_t>(wanted)};
      std::vector<int64_t> shared(threads / kWarp);
      Emulate(1, threads, [&](const EmulatedBlock& block) {
        ChooseDigit(block, histogram.data(), kDigit, 77, &threshold, shared.data());
      });
      const int64_t digit = values[wanted - 1];
      EXPECT_EQ(threshold.key, known | digit << kDigit.shift) << wanted;
      EXPECT_EQ(threshold.taken, static_cast<int64_t>(wanted) -
                                     (std::find(values.begin(), values.end(), digit) - values.begin()));
    }
  }
}

TEST(AddUp, AddsUpWhatThreadsCameWith) {
  for (const int threads : {32, 64, 96}) {
    std::vector<int64_t> shared(threads / kWarp), found(threads);
    Emulate(1, threads, [&](const EmulatedBlock& block) {
      const int64_t thread = block.Thread();
      const SumOfThreads first = AddUp(block, thread * thread + 1, shared.data());
      const SumOfThreads second = AddUp(block, int64_t{1} << 40, shared.data());
      EXPECT_EQ(second.all, threads * (int64_t{1} << 40));
      found[thread] = first.before + second.before;
    });
    int64_t expected = 0;
    for (int64_t thread = 0; thread < threads; ++thread) {
      EXPECT_EQ(found[thread], expected);
      expected += thread * thread + 1 + (int64_t{1} << 40);
    }
  }
}

}  // namespace
}  // namespace tf_strategies::cuda

// Bodies of the kernels that find the key of the k-th largest sum. A key consists of the bits of a magnitude. Its digits
// are found one after the other, beginning with the highest. For each digit, the kernels count a histogram over the keys
// that have the digits found so far.
//
// Most keys are far too small. A sample of them gives a bound, and the first pass counts and marks only keys from the bound
// on. If these are fewer than k, which is rare, another pass counts and marks the rest.
#ifndef OPS_CUDA_RADIX_SELECT_H_
#define OPS_CUDA_RADIX_SELECT_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"
#include "ops/cuda/batches.h"
#include "ops/cuda/gradient.h"
#include "ops/cuda/marks.h"
#include "ops/cuda/scan.h"

namespace tf_strategies::cuda {

// The bits [shift, above) of a key.
struct Digit {
  int above;
  int shift;
};
inline constexpr Digit kDigits[] = {{31, 20}, {20, 10}, {10, 0}};
inline constexpr int kDigitCount = 3;
inline constexpr int kBins = 1 << 11;  // enough for the widest of kDigits

// Of a bound: the finer it is, the fewer keys are marked without need.
inline constexpr Digit kDigitOfBound = {31, 18};

TFS_HOST_DEVICE constexpr int BinsOf(Digit digit) { return 1 << (digit.above - digit.shift); }

// The k-th largest key, as far as it is known. After the last digit it is complete.
struct Threshold {
  int32_t key;    // the digits found so far, then zeros
  int64_t taken;  // how many keys with these digits are selected: those with the lowest indices
};

// Counts the digit of a key. The value 0 is not counted, because its number follows from the other values. If a gradient
// were all zeros, all threads would wait for one counter.
template <typename Block>
TFS_DEVICE void CountKey(const Block& block, int32_t key, int32_t known, Digit digit, uint32_t* bins) {
  if (key >> digit.above != known >> digit.above) return;
  const int value = key >> digit.shift & (BinsOf(digit) - 1);
  if (value > 0) block.Add(&bins[value], uint32_t{1});
}

template <typename Block>
TFS_DEVICE void ClearBins(const Block& block, Digit digit, uint32_t* bins) {
  for (int i = block.Thread(); i < BinsOf(digit); i += block.Threads()) bins[i] = 0;
  block.Sync();
}

template <typename Block>
TFS_DEVICE void AddBins(const Block& block, Digit digit, const uint32_t* bins, uint64_t* histogram) {
  block.Sync();
  for (int i = block.Thread(); i < BinsOf(digit); i += block.Threads()) {
    if (bins[i] != 0) block.Add(&histogram[i], uint64_t{bins[i]});
  }
}

// The elements of a sample of a vector: one at a pseudo-random place of each of `size` parts of equal length.
struct Sample {
  static constexpr int64_t kMost = 1 << 16;

  explicit Sample(int64_t count) : size(count < kMost ? count : kMost), part(size > 0 ? count / size : 0) {}

  TFS_HOST_DEVICE int64_t Place(int64_t i) const {
    return i * part + static_cast<int64_t>((static_cast<uint32_t>(i) * uint32_t{2654435761} >> 8) % part);
  }

  int64_t size, part;
};

// Counts the digits of the bound in the keys of a sample. bins, in the memory of the block, and histogram:
// [BinsOf(kDigitOfBound)].
template <typename Format, typename Block>
TFS_DEVICE void CountSample(const Block& block, const typename Format::Element* gradient,
                            const float* residual, Sample sample, uint32_t* bins, uint64_t* histogram) {
  ClearBins(block, kDigitOfBound, bins);
  for (int64_t i = block.Index() * block.Threads() + block.Thread(); i < sample.size;
       i += block.Count() * block.Threads()) {
    const int64_t place = sample.Place(i);
    const float sum = SumOf(Format::Widen(gradient[place]), residual[place]);
    CountKey(block, compress::MagnitudeBits(sum), 0, kDigitOfBound, bins);
  }
  AddBins(block, kDigitOfBound, bins, histogram);
}

// The least key that is marked. What is not finite is always marked, zeros only if the rest is.
TFS_DEVICE inline int32_t LeastMarked(const Threshold& bound) {
  if (bound.key < 1) return 1;
  return bound.key < compress::kInfinityBits ? bound.key : compress::kInfinityBits;
}

// Sets residual [count] to the sums, marks those whose keys are not below the bound, and counts their first digits.
//
// marks: [MarkWords(count)]. bins: [kBins], in the memory of the block. histogram: [kBins].
template <typename Format, typename Block>
TFS_DEVICE void AddAndCount(const Block& block, const typename Format::Element* gradient, float* residual,
                            int64_t count, const Threshold* bound, uint32_t* marks, uint32_t* bins,
                            uint64_t* histogram) {
  ClearBins(block, kDigits[0], bins);
  const int32_t least = LeastMarked(*bound);
  const bool is_aligned = IsAlignedForQuads(gradient) && IsAlignedForQuads(residual);
  const int lane = block.Thread() % kWarp;
  ForThisWarp(block, Batches(count), [&](int64_t batch) {
    const int64_t first = batch * kBatch + lane * kQuad;
    const bool is_whole = is_aligned && (batch + 1) * kBatch <= count;
    Quad<typename Format::Element> gradients[kRows];
    Quad<float> sums[kRows];
    for (int row = 0; row < kRows; ++row) {
      const int64_t i = first + row * kRow;
      gradients[row] = LoadQuad(gradient + i, is_whole, count - i);
      sums[row] = LoadQuad(residual + i, is_whole, count - i);
    }
    for (int row = 0; row < kRows; ++row) {
      const int64_t i = first + row * kRow;
      uint32_t votes = 0;
      for (int e = 0; e < kQuad; ++e) {
        const float sum = SumOf(Format::Widen(gradients[row].of[e]), sums[row].of[e]);
        sums[row].of[e] = sum;
        const int32_t key = compress::MagnitudeBits(sum);
        if (key < least) continue;
        votes |= uint32_t{1} << e;
        CountKey(block, key, 0, kDigits[0], bins);
      }
      StoreQuad(sums[row], residual + i, is_whole, count - i);
      StoreMarks(block, votes, marks + batch * kWordsOfBatch + row * kWordsOfRow);
    }
  });
  AddBins(block, kDigits[0], bins, histogram);
}

// Marks and counts what AddAndCount has left out, if the marked keys are fewer than k: the threshold is then below the bound.
template <typename Block>
TFS_DEVICE void CountRest(const Block& block, const float* sums, int64_t count, const Threshold* bound,
                          const Threshold* threshold, uint32_t* marks, uint32_t* bins, uint64_t* histogram) {
  if (threshold->key > 0) return;
  ClearBins(block, kDigits[0], bins);
  const int32_t least = LeastMarked(*bound);
  const int lane = block.Thread() % kWarp;
  ForThisWarp(block, Batches(count), [&](int64_t batch) {
    for (int64_t i = batch * kBatch + lane; i < (batch + 1) * kBatch && i < count; i += kWarp) {
      const int32_t key = compress::MagnitudeBits(sums[i]);
      if (key < least) CountKey(block, key, 0, kDigits[0], bins);
    }
    MarkAll(block, batch, count, marks);
  });
  AddBins(block, kDigits[0], bins, histogram);
}

// Counts the digit of the marked sums that have the digits found so far. places: [Threads() / kWarp], in the memory of the
// block.
template <typename Block>
TFS_DEVICE void CountDigit(const Block& block, const float* sums, int64_t count, const uint32_t* marks,
                           Digit digit, const Threshold* threshold, Places* places, uint32_t* bins,
                           uint64_t* histogram) {
  ClearBins(block, digit, bins);
  const int32_t known = threshold->key;
  ForThisWarp(block, Segments(count), [&](int64_t segment) {
    ForMarked(block, marks, segment, count, places, [&](bool is_marked, int64_t i) {
      if (is_marked) CountKey(block, compress::MagnitudeBits(sums[i]), known, digit, bins);
    });
  });
  AddBins(block, digit, bins, histogram);
}

// Finds the next digit of the threshold in its histogram [BinsOf(digit)]. The first digit is that of the k-th largest key; later digits
// belong to the `taken`-th largest key of those with equal digits. Runs in one block. shared: [Threads() / kWarp],
// in the memory of the block.
template <typename Block>
TFS_DEVICE void ChooseDigit(const Block& block, const uint64_t* histogram, Digit digit, int64_t k,
                            Threshold* threshold, int64_t* shared) {
  const bool is_first = digit.above == kDigits[0].above;
  const int32_t known = is_first ? 0 : threshold->key;
  const int64_t wanted = is_first ? k : threshold->taken;
  const int values = BinsOf(digit);
  const int share = (values + block.Threads() - 1) / block.Threads();
  // Each thread has a share of the digit's values. The first thread has the highest values.
  const int high = values - 1 - block.Thread() * share;
  const int low = high - share;
  int64_t mine = 0;
  for (int value = high; value > low && value > 0; --value) mine += static_cast<int64_t>(histogram[value]);
  auto [before, all] = AddUp(block, mine, shared);
  if (wanted == 0) {  // the threshold is above every key
    if (block.Thread() == 0) *threshold = {known | (values - 1) << digit.shift, 0};
  } else if (wanted > all) {
    if (block.Thread() == 0) *threshold = {known, wanted - all};
  } else if (before < wanted && wanted <= before + mine) {
    int value = high;
    for (; before + static_cast<int64_t>(histogram[value]) < wanted; --value)
      before += static_cast<int64_t>(histogram[value]);
    *threshold = {known | value << digit.shift, wanted - before};
  }
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_RADIX_SELECT_H_

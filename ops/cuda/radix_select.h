// Bodies of the kernels that find the key of the k-th largest sum. A key consists of the bits of a magnitude. Its digits
// are found one after the other, beginning with the highest. For each digit, the kernels count a histogram over the keys
// that have the digits found so far.
#ifndef OPS_CUDA_RADIX_SELECT_H_
#define OPS_CUDA_RADIX_SELECT_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/compress/magnitude.h"
#include "ops/cuda/batches.h"
#include "ops/cuda/gradient.h"
#include "ops/cuda/scan.h"

namespace tf_strategies::cuda {

// The bits [shift, above) of a key.
struct Digit {
  int above;
  int shift;
};
inline constexpr Digit kDigits[] = {{31, 20}, {20, 10}, {10, 0}};
inline constexpr int kDigitCount = 3;
inline constexpr int kBins = 1 << 11;  // enough for the widest digit

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
  const int value = key >> digit.shift & ((1 << (digit.above - digit.shift)) - 1);
  if (value > 0) block.Add(&bins[value], uint32_t{1});
}

template <typename Block>
TFS_DEVICE void ClearBins(const Block& block, uint32_t* bins) {
  for (int i = block.Thread(); i < kBins; i += block.Threads()) bins[i] = 0;
  block.Sync();
}

template <typename Block>
TFS_DEVICE void AddBins(const Block& block, const uint32_t* bins, uint64_t* histogram) {
  block.Sync();
  for (int i = block.Thread(); i < kBins; i += block.Threads()) {
    if (bins[i] != 0) block.Add(&histogram[i], uint64_t{bins[i]});
  }
}

// Sets residual [count] to the sums, and counts their first digits.
//
// largest: [Batches(count)], becomes the largest key of each batch. bins: [kBins], in the memory of the block.
// histogram: [kBins].
template <typename Format, typename Block>
TFS_DEVICE void AddAndCount(const Block& block, const typename Format::Element* gradient, float* residual,
                            int64_t count, int32_t* largest, uint32_t* bins, uint64_t* histogram) {
  constexpr Digit kFirst = kDigits[0];
  ClearBins(block, bins);
  const int lane = block.Thread() % kWarp;
  ForThisWarp(block, Batches(count), [&](int64_t batch) {
    const int64_t first = batch * kBatch + lane;
    float sums[kLoads];
    for (int j = 0; j < kLoads; ++j) {
      const int64_t i = first + j * kWarp;
      sums[j] = i < count ? SumOf(Format::Widen(gradient[i]), residual[i]) : 0;
    }
    int32_t mine = 0;
    for (int j = 0; j < kLoads; ++j) {
      const int64_t i = first + j * kWarp;
      if (i < count) residual[i] = sums[j];
      const int32_t key = compress::MagnitudeBits(sums[j]);
      mine = mine > key ? mine : key;
      CountKey(block, key, 0, kFirst, bins);
    }
    mine = block.LargestOfWarp(mine);
    if (lane == 0) largest[batch] = mine;
  });
  AddBins(block, bins, histogram);
}

// Counts the digit of the sums [count] that have the digits found so far.
template <typename Block>
TFS_DEVICE void CountDigit(const Block& block, const float* sums, int64_t count, const int32_t* largest,
                           Digit digit, const Threshold* threshold, uint32_t* bins, uint64_t* histogram) {
  ClearBins(block, bins);
  const int32_t known = threshold->key;
  ForThisWarp(block, Batches(count), [&](int64_t batch) {
    if (largest[batch] < known) return;
    float values[kLoads];
    int32_t keys[kLoads];
    LoadBatch(sums, batch * kBatch + block.Thread() % kWarp, count, values, keys);
    for (const int32_t key : keys) CountKey(block, key, known, digit, bins);
  });
  AddBins(block, bins, histogram);
}

// Finds the next digit of the threshold in its histogram. The first digit is that of the k-th largest key; later digits
// belong to the `taken`-th largest key of those with equal digits. Runs in one block. shared: [Threads()], in the memory
// of the block.
template <typename Block>
TFS_DEVICE void ChooseDigit(const Block& block, const uint64_t* histogram, Digit digit, int64_t k,
                            Threshold* threshold, int64_t* shared) {
  const bool is_first = digit.above == kDigits[0].above;
  const int32_t known = is_first ? 0 : threshold->key;
  const int64_t wanted = is_first ? k : threshold->taken;
  const int values = 1 << (digit.above - digit.shift);
  const int share = (values + block.Threads() - 1) / block.Threads();
  // Each thread has a share of the digit's values. The first thread has the highest values.
  const int high = values - 1 - block.Thread() * share;
  const int low = high - share;
  int64_t mine = 0;
  for (int value = high; value > low && value > 0; --value) mine += static_cast<int64_t>(histogram[value]);
  int64_t before = SumBefore(block, mine, shared);
  const int64_t all = shared[block.Threads() - 1];
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

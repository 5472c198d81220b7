#include "ops/compress/topk.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include "ops/base/check.h"
#include "ops/compress/paths.h"

namespace tf_strategies::compress {
namespace {

constexpr int64_t kPartElements = 16384;  // its candidates fit the second-level cache
constexpr int64_t kSampleBlock = 16;      // a cache line of float32
constexpr int64_t kSampleBlocks = 4096;
constexpr int32_t kInfinity = 0x7F800000;

// Orders magnitudes as integers: the bits of a float32 without its sign.
int32_t Key(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7FFFFFFF;
}

int64_t Parts(int64_t count) { return (count + kPartElements - 1) / kPartElements; }

// Spreads the blocks of the sample over the gradient, each somewhere in its stretch, so that no period is met.
int64_t BlockBegin(int64_t block, int64_t stretch) {
  const uint64_t mixed = (static_cast<uint64_t>(block) + 1) * 0x9E3779B97F4A7C15u;
  return block * stretch + static_cast<int64_t>((mixed >> 33) % (stretch - kSampleBlock + 1));
}

// The key above which about `wanted` of `count` entries lie, judged by a sample, or `margin` standard deviations more than
// that. 0 when so few entries are no work; else at least 1, for zeros need no ranking.
int32_t EstimateThreshold(const Path& path, DType dtype, const void* gradient, const float* residual,
                          int64_t count, int64_t wanted, double margin) {
  constexpr int64_t kSample = kSampleBlock * kSampleBlocks;
  if (count < 2 * kSample) return 0;
  const size_t element_bytes = DTypeSize(dtype);
  const int64_t stretch = count / kSampleBlocks;
  std::vector<int32_t> keys(kSample);
  float sums[kSampleBlock];
  Candidate all[kSampleBlock + 1];
  for (int64_t block = 0; block < kSampleBlocks; ++block) {
    const int64_t begin = BlockBegin(block, stretch);
    std::memcpy(sums, residual + begin, sizeof(sums));
    path.scan(dtype, static_cast<const char*>(gradient) + begin * element_bytes, sums, 0, kSampleBlock, 0,
              all);
    for (int64_t i = 0; i < kSampleBlock; ++i) keys[block * kSampleBlock + i] = Key(sums[i]);
  }
  const double expected = static_cast<double>(wanted) / static_cast<double>(count) * kSample;
  const auto position = static_cast<int64_t>(expected + margin * (std::sqrt(expected) + 2));
  if (position >= kSample) return 1;
  std::nth_element(keys.begin(), keys.begin() + position, keys.end(), std::greater<int32_t>());
  return std::clamp(keys[position], 1, kInfinity);
}

// Forms the sums in `remaining` and returns those from `threshold` up, by index; nothing when they are more than `limit`.
// `found` is their number, or any above the limit.
std::vector<Candidate> Scan(const Path& path, DType dtype, const void* gradient, const float* residual,
                            float* remaining, int64_t count, int32_t threshold, int64_t limit,
                            const ParallelFor& parallel, int64_t* found) {
  std::vector<std::vector<Candidate>> of_part(Parts(count));
  std::atomic<int64_t> total{0};
  parallel(Parts(count), [&](int64_t part) {
    thread_local const std::unique_ptr<Candidate[]> buffer(new Candidate[kPartElements + 1]);
    const int64_t begin = part * kPartElements;
    const int64_t end = std::min(count, begin + kPartElements);
    if (remaining != residual) std::copy(residual + begin, residual + end, remaining + begin);
    const int64_t hits = path.scan(dtype, gradient, remaining, begin, end, threshold, buffer.get());
    if (total.fetch_add(hits) + hits <= limit) of_part[part].assign(buffer.get(), buffer.get() + hits);
  });
  *found = total;
  std::vector<Candidate> candidates;
  if (*found > limit) return candidates;
  candidates.reserve(*found);
  for (const auto& each : of_part) candidates.insert(candidates.end(), each.begin(), each.end());
  return candidates;
}

// The key of the k-th largest of all sums, found digit by digit. 1 <= k <= count.
int32_t KthKey(const float* sums, int64_t count, int64_t k, const ParallelFor& parallel) {
  constexpr int kDigitBits[] = {11, 10, 10};
  int32_t prefix = 0;
  int shift = 31;
  for (const int bits : kDigitBits) {
    const int above = shift;
    shift -= bits;
    std::vector<int64_t> histogram(int64_t{1} << bits);
    std::mutex mutex;
    parallel(Parts(count), [&](int64_t part) {
      std::vector<int32_t> mine(histogram.size());
      const int64_t end = std::min(count, (part + 1) * kPartElements);
      for (int64_t i = part * kPartElements; i < end; ++i) {
        const int32_t key = Key(sums[i]);
        if (above == 31 || key >> above == prefix >> above) ++mine[(key >> shift) & (mine.size() - 1)];
      }
      const std::lock_guard<std::mutex> lock(mutex);
      for (size_t digit = 0; digit < mine.size(); ++digit) histogram[digit] += mine[digit];
    });
    auto digit = static_cast<int64_t>(histogram.size()) - 1;
    for (; histogram[digit] < k; --digit) k -= histogram[digit];
    prefix |= static_cast<int32_t>(digit) << shift;
  }
  return prefix;
}

// All sums whose key is at least `key`, by index.
std::vector<Candidate> From(const float* sums, int64_t count, int32_t key, int64_t most_equal) {
  std::vector<Candidate> candidates;
  int64_t equal = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t mine = Key(sums[i]);
    if (mine > key || (mine == key && equal++ < most_equal) || mine >= kInfinity)
      candidates.push_back({i, sums[i]});
  }
  return candidates;
}

// Of candidates that hold the k largest, takes those: all above the k-th key and the first that equal it. What is taken is
// cleared from what remains, and so is what is not finite.
Selection Take(const std::vector<Candidate>& candidates, int64_t k, float* remaining) {
  Selection selection;
  selection.indices.reserve(k);
  selection.values.reserve(k);
  int32_t kth = 0;
  int64_t equal = k;
  if (k > 0) {
    std::vector<int32_t> keys(candidates.size());
    std::transform(candidates.begin(), candidates.end(), keys.begin(),
                   [](const Candidate& each) { return Key(each.value); });
    std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(), std::greater<int32_t>());
    kth = keys[k - 1];
    equal = k - std::count_if(keys.begin(), keys.begin() + k, [kth](int32_t key) { return key > kth; });
  }
  for (const Candidate& each : candidates) {
    const int32_t key = Key(each.value);
    const bool taken = k > 0 && (key > kth || (key == kth && equal-- > 0));
    if (taken) {
      selection.indices.push_back(each.index);
      selection.values.push_back(each.value);
    }
    if (taken || key >= kInfinity) remaining[each.index] = 0;
  }
  return selection;
}

// Adds the zeros of lowest index until there are `k` candidates: for gradients that are zero almost everywhere. Candidates
// are all entries that are not zero, by index.
std::vector<Candidate> WithZeros(const std::vector<Candidate>& candidates, int64_t k) {
  std::vector<Candidate> filled;
  filled.reserve(k);
  int64_t zeros = k - static_cast<int64_t>(candidates.size());
  auto next = candidates.begin();
  for (int64_t index = 0; static_cast<int64_t>(filled.size()) < k; ++index) {
    if (next != candidates.end() && (zeros == 0 || next->index == index)) {
      index = next->index;
      filled.push_back(*next++);
    } else {
      filled.push_back({index, 0});
      --zeros;
    }
  }
  return filled;
}

// From the sums that a scan left in `remaining`.
Selection Exactly(float* remaining, int64_t count, int64_t k, const ParallelFor& parallel) {
  const int32_t kth = KthKey(remaining, count, std::max<int64_t>(k, 1), parallel);
  return Take(From(remaining, count, kth, k), k, remaining);
}

}  // namespace

Selection TopK(DType dtype, const void* gradient, const float* residual, float* remaining, int64_t count,
               int64_t k, const ParallelFor& parallel) {
  TFS_CHECK(0 <= k && k <= count);
  const Path& path = BestPath();
  const int64_t limit = 4 * k + 8 * kPartElements;
  const int32_t threshold = EstimateThreshold(path, dtype, gradient, residual, count, k, 3);
  int64_t found = 0;
  const auto candidates =
      Scan(path, dtype, gradient, residual, remaining, count, threshold, limit, parallel, &found);
  if (found < k && threshold == 1) return Take(WithZeros(candidates, k), k, remaining);
  if (found < k || found > limit) return Exactly(remaining, count, k, parallel);
  return Take(candidates, k, remaining);
}

Selection SampledTopK(DType dtype, const void* gradient, const float* residual, float* remaining,
                      int64_t count, int64_t k, const ParallelFor& parallel) {
  TFS_CHECK(0 <= k && k <= count);
  const Path& path = BestPath();
  const int64_t limit = 4 * k + 8 * kPartElements;
  const int32_t threshold = EstimateThreshold(path, dtype, gradient, residual, count, k, 0);
  int64_t found = 0;
  const auto candidates =
      Scan(path, dtype, gradient, residual, remaining, count, threshold, limit, parallel, &found);
  if (5 * found < 4 * k && threshold == 1) return Take(WithZeros(candidates, k), k, remaining);
  if (5 * found < 4 * k || found > limit) return Exactly(remaining, count, k, parallel);
  return Take(candidates, 4 * found > 5 * k ? k : found, remaining);
}

}  // namespace tf_strategies::compress

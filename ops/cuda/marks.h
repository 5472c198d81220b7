// Marks of the elements that can be selected, with one bit for each element: bit i of word j belongs to element 32 * j + i.
// The first pass stores them. Later passes read the marks, and of the sums only those that are marked.
#ifndef OPS_CUDA_MARKS_H_
#define OPS_CUDA_MARKS_H_

#include <cstdint>

#include "ops/base/host_device.h"
#include "ops/cuda/batches.h"

namespace tf_strategies::cuda {

inline constexpr int kWordsOfRow = kRow / 32;
inline constexpr int kWordsOfBatch = kWordsOfRow * kRows;

TFS_HOST_DEVICE inline int64_t MarkWords(int64_t count) { return Batches(count) * kWordsOfBatch; }

// Stores the marks [kWordsOfRow] of a row. votes: bit e belongs to element e of this lane's quad. All lanes of the warp must
// call it.
template <typename Block>
TFS_DEVICE void StoreMarks(const Block& block, uint32_t votes, uint32_t* marks) {
  constexpr int kLanesOfWord = 32 / kQuad;
  const int lane = block.Thread() % kWarp;
  uint32_t word = votes << lane % kLanesOfWord * kQuad;
  for (int other = 1; other < kLanesOfWord; other *= 2) word |= block.OfLaneXor(word, other);
  if (lane % kLanesOfWord == 0) marks[lane / kLanesOfWord] = word;
}

// Marks all elements of a batch.
template <typename Block>
TFS_DEVICE void MarkAll(const Block& block, int64_t batch, int64_t count, uint32_t* marks) {
  const int lane = block.Thread() % kWarp;
  if (lane >= kWordsOfBatch) return;
  const int64_t left = count - batch * kBatch - lane * 32;
  marks[batch * kWordsOfBatch + lane] = left >= 32 ? ~uint32_t{0} : left > 0 ? (uint32_t{1} << left) - 1 : 0;
}

// The part of a vector that a warp visits at once: words of marks for each lane.
inline constexpr int kWordsOfLane = 4;
inline constexpr int kGroup = kWarp * 32;  // the elements of one word for each lane
inline constexpr int64_t kSegment = kGroup * kWordsOfLane;

TFS_HOST_DEVICE inline int64_t Segments(int64_t count) { return (count + kSegment - 1) / kSegment; }

// The places of the marked elements of a group, in the memory of the block, for each warp.
struct Places {
  uint16_t in_group[kGroup];
};

// Calls visit(is_marked, i) for each marked element i of a segment, in ascending order over the lanes and then the calls.
// All lanes call it equally often; a lane without an element passes false. places: [Threads() / kWarp].
template <typename Block, typename Visit>
TFS_DEVICE void ForMarked(const Block& block, const uint32_t* marks, int64_t segment, int64_t count,
                          Places* places, const Visit& visit) {
  const int lane = block.Thread() % kWarp;
  uint16_t* const list = places[block.Thread() / kWarp].in_group;
  uint32_t words[kWordsOfLane];
  for (int j = 0; j < kWordsOfLane; ++j) {
    const int64_t word = (segment * kWordsOfLane + j) * kWarp + lane;
    words[j] = word < MarkWords(count) ? marks[word] : 0;
  }
  for (int j = 0; j < kWordsOfLane; ++j) {
    const int ones = Block::CountOnes(words[j]);
    int place = static_cast<int>(block.SumBeforeInWarp(ones));
    const int all = block.LargestOfWarp(place + ones);  // where the last lane ends
    for (uint32_t bits = words[j]; bits != 0; bits &= bits - 1)
      list[place++] = static_cast<uint16_t>(lane * 32 + Block::LowestOne(bits));
    block.SyncWarp();
    const int64_t first = (segment * kWordsOfLane + j) * kGroup;
    for (int at = lane; at - lane < all; at += kWarp) visit(at < all, first + list[at < all ? at : 0]);
    block.SyncWarp();
  }
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_MARKS_H_

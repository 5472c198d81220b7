// Divides a vector into batches. A warp loads a batch at once, in rows of four consecutive elements for each lane.
#ifndef OPS_CUDA_BATCHES_H_
#define OPS_CUDA_BATCHES_H_

#include <cstdint>

#include "ops/base/host_device.h"

namespace tf_strategies::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kQuad = 4;  // consecutive elements that a lane loads at once
inline constexpr int kRow = kWarp * kQuad;
inline constexpr int kRows = 2;
inline constexpr int64_t kBatch = kRow * kRows;

TFS_HOST_DEVICE inline int64_t Batches(int64_t count) { return (count + kBatch - 1) / kBatch; }

// Calls visit(i) for the numbers from 0 to n - 1 that belong to this warp.
template <typename Block, typename Visit>
TFS_DEVICE void ForThisWarp(const Block& block, int64_t n, const Visit& visit) {
  const int64_t warps = block.Threads() / kWarp;
  for (int64_t i = block.Index() * warps + block.Thread() / kWarp; i < n; i += block.Count() * warps)
    visit(i);
}

template <typename Element>
struct alignas(kQuad * sizeof(Element)) Quad {
  Element of[kQuad];
};

template <typename Element>
TFS_DEVICE bool IsAlignedForQuads(const Element* elements) {
  return reinterpret_cast<uintptr_t>(elements) % alignof(Quad<Element>) == 0;
}

// Loads the `left` first elements of a quad; the others are 0. is_whole: the pointer is aligned, and no element is missing.
template <typename Element>
TFS_DEVICE Quad<Element> LoadQuad(const Element* from, bool is_whole, int64_t left) {
  if (is_whole) return *reinterpret_cast<const Quad<Element>*>(from);
  Quad<Element> quad = {};
  for (int e = 0; e < kQuad; ++e) {
    if (e < left) quad.of[e] = from[e];
  }
  return quad;
}

// Stores what LoadQuad loads.
template <typename Element>
TFS_DEVICE void StoreQuad(const Quad<Element>& quad, Element* to, bool is_whole, int64_t left) {
  if (is_whole) {
    *reinterpret_cast<Quad<Element>*>(to) = quad;
    return;
  }
  for (int e = 0; e < kQuad; ++e) {
    if (e < left) to[e] = quad.of[e];
  }
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_BATCHES_H_

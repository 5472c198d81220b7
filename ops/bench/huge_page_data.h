// Vectors in huge pages.
#ifndef OPS_BENCH_HUGE_PAGE_DATA_H_
#define OPS_BENCH_HUGE_PAGE_DATA_H_

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#include "ops/channel/huge_pages.h"

namespace tf_strategies {

// Uses huge pages for large buffers if the machine has them, as NumPy does for the peers.
template <typename T>
struct HugePageAllocator {
  using value_type = T;
  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t count) {
    constexpr size_t kAlignment = 64;
    const size_t bytes = (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    channel::PreferHugePages(memory, bytes);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { std::free(memory); }
  bool operator==(const HugePageAllocator&) const { return true; }
  bool operator!=(const HugePageAllocator&) const { return false; }
};

template <typename T>
using Data = std::vector<T, HugePageAllocator<T>>;

}  // namespace tf_strategies

#endif  // OPS_BENCH_HUGE_PAGE_DATA_H_

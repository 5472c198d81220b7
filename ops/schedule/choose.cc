#include "ops/schedule/choose.h"

#include <algorithm>

#include "ops/base/check.h"
#include "ops/schedule/algorithms.h"

namespace tf_strategies::schedule {
namespace {

bool IsPowerOfTwo(int size) { return (size & (size - 1)) == 0; }

// The largest ratio of neighbouring blocks of binary_blocks: the number of ranks to which one rank may have
// to send its piece. 600 = 512 + 64 + 16 + 8: 8. 1 for a power of two.
int LargestGap(int size) {
  int gap = 1;
  int larger = 0;
  for (int block = 1 << 30; block >= 1; block /= 2) {
    if (!(size & block)) continue;
    if (larger > 0) gap = std::max(gap, larger / block);
    larger = block;
  }
  return gap;
}

// Up to this number of bytes, the algorithm with the fewest steps is the fastest.
int64_t ShortBytes(const Group& group) { return group.wire == Wire::kSharedMemory ? 16 << 10 : 64 << 10; }

// A row applies when its predicate holds; the first that applies is taken. For 2, 3, 4 and 6 ranks the bounds were measured,
// in shared memory and over TCP (benchmarks/NOTES.md); for others they come from the cost model (cost.h) with the latency of
// shared memory, 3 to 5 us, and 4 GB/s. They are tested against it.
struct Row {
  const char* algorithm;
  bool (*applies)(const Group& group, int64_t bytes);
};

constexpr Row kTable[] = {
    // 2n goes through the network of a host once, instead of once for each of its ranks.
    {"hierarchical",
     [](const Group& group, int64_t bytes) {
       return 1 < group.per_host && group.per_host < group.size && bytes > 32 << 10;
     }},
    {"recursive_doubling",
     [](const Group& group, int64_t bytes) {
       return (IsPowerOfTwo(group.size) || group.size <= 8) && bytes <= ShortBytes(group);
     }},
    {"halving_doubling", [](const Group& group, int64_t) { return IsPowerOfTwo(group.size); }},
    // One or two elements for each rank cannot be cut.
    {"recursive_doubling",
     [](const Group& group, int64_t bytes) { return bytes < 16 * int64_t{group.size}; }},
    // Short messages over a wide gap, where one rank serves many.
    {"recursive_doubling",
     [](const Group& group, int64_t bytes) {
       return group.size > 8 && bytes <= LargestGap(group.size) * int64_t{2 << 10};
     }},
    // A ring of few ranks has few steps, and sends 2n(P-1)/P where blocks send up to 2n.
    {"ring",
     [](const Group& group, int64_t bytes) {
       return group.wire == Wire::kNetwork && group.size <= 7 &&
              bytes > (group.size == 3 ? 128 << 10 : 8 << 20);
     }},
    {"ring", [](const Group& group,
                int64_t bytes) { return (group.size == 3 || group.size == 7) && bytes > 64 << 20; }},
    {"binary_blocks", [](const Group&, int64_t) { return true; }},
};

template <Schedule (*kBuild)(int, int, int64_t)>
Schedule WhereverTheyAre(int rank, const Group& group, int64_t count) {
  return kBuild(rank, group.size, count);
}

Schedule InsideHostsFirst(int rank, const Group& group, int64_t count) {
  return Hierarchical(rank, group.size, count, group.per_host, WhereverTheyAre<BinaryBlocks>);
}

}  // namespace

const std::vector<Algorithm>& AllReduceAlgorithms() {
  static const std::vector<Algorithm>* const algorithms = new std::vector<Algorithm>{
      {"ring", WhereverTheyAre<Ring>},
      {"recursive_doubling", WhereverTheyAre<RecursiveDoubling>},
      {"halving_doubling", WhereverTheyAre<HalvingDoubling>},
      {"binary_blocks", WhereverTheyAre<BinaryBlocks>},
      {"hierarchical", InsideHostsFirst},
  };
  return *algorithms;
}

const Algorithm* FindAlgorithm(const std::string& name) {
  for (const Algorithm& algorithm : AllReduceAlgorithms()) {
    if (name == algorithm.name) return &algorithm;
  }
  return nullptr;
}

const Algorithm& Choose(const Group& group, int64_t bytes) {
  TFS_CHECK_GE(group.size, 1);
  TFS_CHECK_GE(bytes, 0);
  const Row* row = kTable;
  while (!row->applies(group, bytes)) ++row;
  return *FindAlgorithm(row->algorithm);
}

}  // namespace tf_strategies::schedule

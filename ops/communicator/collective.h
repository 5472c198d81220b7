// What a collective is: its kind, and what the ranks must agree on.
#ifndef OPS_COMMUNICATOR_COLLECTIVE_H_
#define OPS_COMMUNICATOR_COLLECTIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/base/dtype.h"

namespace tf_strategies {

enum class CollectiveKind : uint8_t { kAllReduce, kBroadcast, kAllGather, kAllToAll, kBarrier };

// The limit of elements from one rank to another in an all-to-all, so that size * size times this number does
// not overflow.
constexpr int64_t kMostSegment = int64_t{1} << 36;

const char* CollectiveKindName(CollectiveKind kind);

struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  std::string name;
  std::string layout;  // how the elements are to be read; must agree to the letter
  std::string shape;
  ReduceOp op = ReduceOp::kNone;
  DType dtype = DType::kByte;
  int64_t count = 0;
  int root = 0;  // of a broadcast
  std::vector<int64_t>
      offsets;  // of an all-gather; of an all-to-all those of what is sent; of an all-reduce where its
                // parts begin, if it has several
  std::vector<int64_t> receive_offsets;  // of an all-to-all
  int algorithm = -1;                    // of an all-reduce: position in schedule::AllReduceAlgorithms

  // "all_reduce 'gradients/3': float32 [128], sum"
  std::string Describe() const;

  // The 22-bit signature in each message: a hash of everything that must agree, and of the number of uses of
  // the instance. Two different collectives have the same signature once in four million. Digits and
  // underscores of the name do not count, because Keras numbers layers within a process.
  uint32_t Signature(uint32_t uses) const;
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_COLLECTIVE_H_

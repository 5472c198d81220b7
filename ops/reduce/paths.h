// The instruction sets for which the reduction is compiled.
#ifndef OPS_REDUCE_PATHS_H_
#define OPS_REDUCE_PATHS_H_

#include <cstdint>
#include <vector>

#include "ops/base/dtype.h"

namespace tf_strategies::reduce {

struct Path {
  const char* name;     // "portable", "avx2", "avx512"
  bool (*supported)();  // by this machine
  // The same as Reduce and Divide of reduce.h, for valid arguments.
  void (*reduce)(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count);
  void (*divide)(DType dtype, void* buffer, int64_t count, int64_t divisor);
};

// All that were compiled, from the narrowest to the widest. The first is supported everywhere.
const std::vector<Path>& Paths();

// The widest that this machine supports.
const Path& BestPath();

}  // namespace tf_strategies::reduce

#endif  // OPS_REDUCE_PATHS_H_

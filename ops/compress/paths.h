// The instruction sets for which the loop over a gradient is compiled.
#ifndef OPS_COMPRESS_PATHS_H_
#define OPS_COMPRESS_PATHS_H_

#include <cstdint>
#include <vector>

#include "ops/base/dtype.h"

namespace tf_strategies::compress {

struct Candidate {
  int64_t index;
  float value;
};

struct Path {
  const char* name;     // "portable", "avx2", "avx512"
  bool (*supported)();  // by this machine
  // For i in [begin, end): residual[i] += gradient[i]; where the magnitude's bits are at least `threshold`, appends i and the
  // sum to `candidates`, which has room for end - begin + 1. Returns how many. dtype: float32, float16 or bfloat16.
  int64_t (*scan)(DType dtype, const void* gradient, float* residual, int64_t begin, int64_t end,
                  int32_t threshold, Candidate* candidates);
};

// All that were compiled, from the narrowest to the widest. The first is supported everywhere.
const std::vector<Path>& Paths();

// The widest that this machine supports.
const Path& BestPath();

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_PATHS_H_

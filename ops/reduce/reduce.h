// Elementwise reduction of two buffers on the CPU.
#ifndef OPS_REDUCE_REDUCE_H_
#define OPS_REDUCE_REDUCE_H_

#include <cstdint>

#include "ops/base/dtype.h"
#include "ops/base/status.h"

namespace tf_strategies {

// destination[i] = destination[i] (op) source[i] for i in [0, count). Buffers do not overlap; any alignment that the
// dtype itself needs. op is kSum, kMean (added like kSum), kMin or kMax. Every op is commutative bit for bit: min and
// max return NaN when either side is NaN and order -0 before +0; a NaN result is the canonical quiet NaN for
// float16 and bfloat16. float16 and bfloat16 are computed in float32 and rounded to nearest even.
// float32 and float64: a sum's NaN payload is the only thing that may depend on the order of the two sides.
void Reduce(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count);

// buffer[i] = buffer[i] / divisor, rounded once; integers are divided towards zero. 1 <= divisor <= 2^24.
void Divide(DType dtype, void* buffer, int64_t count, int64_t divisor);

}  // namespace tf_strategies

#endif  // OPS_REDUCE_REDUCE_H_

// The wider paths of paths.cc, each in a file of its own; callable only where the machine supports them.
#ifndef OPS_REDUCE_PATH_X86_H_
#define OPS_REDUCE_PATH_X86_H_

#include <cstdint>

#include "ops/base/dtype.h"

namespace tf_strategies::reduce {

void ReduceAvx2(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count);
void DivideAvx2(DType dtype, void* buffer, int64_t count, int64_t divisor);

void ReduceAvx512(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count);
void DivideAvx512(DType dtype, void* buffer, int64_t count, int64_t divisor);

}  // namespace tf_strategies::reduce

#endif  // OPS_REDUCE_PATH_X86_H_

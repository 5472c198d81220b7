// The kernels (kernels.h) are compiled for each instruction set, and the best one of this machine is chosen
// at run time. The build needs no -march, and all paths give the same bits.
#include "ops/reduce/reduce.h"

#include "ops/base/check.h"
#include "ops/reduce/paths.h"

namespace tf_strategies {

void Reduce(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count) {
  TFS_CHECK_GE(count, 0);
  TFS_CHECK(op == ReduceOp::kSum || op == ReduceOp::kMean || op == ReduceOp::kMin || op == ReduceOp::kMax);
  TFS_CHECK(dtype != DType::kByte);
  reduce::BestPath().reduce(op, dtype, destination, source, count);
}

void Divide(DType dtype, void* buffer, int64_t count, int64_t divisor) {
  TFS_CHECK_GE(count, 0);
  TFS_CHECK_GE(divisor, 1);
  TFS_CHECK_LE(divisor,
               int64_t{1} << 24);  // so that every floating-point type but the 16-bit ones holds it exactly
  TFS_CHECK(dtype != DType::kByte);
  reduce::BestPath().divide(dtype, buffer, count, divisor);
}

}  // namespace tf_strategies

// The element types that a collective can carry, and the ways to combine two elements.
#ifndef OPS_BASE_DTYPE_H_
#define OPS_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace tf_strategies {

enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kByte = 6,  // opaque bytes: gathered and broadcast, never reduced
};

enum class ReduceOp : uint8_t {
  kNone = 0,  // broadcast, all-gather
  kSum = 1,
  kMean = 2,  // summed, then divided by the number of ranks once
  kMin = 3,
  kMax = 4,
};

size_t DTypeSize(DType dtype);  // bytes
const char* DTypeName(DType dtype);
const char* ReduceOpName(ReduceOp op);

}  // namespace tf_strategies

#endif  // OPS_BASE_DTYPE_H_

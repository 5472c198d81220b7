// Converts TensorFlow's dtypes to those of the core.
#ifndef OPS_KERNELS_DTYPE_CONVERT_H_
#define OPS_KERNELS_DTYPE_CONVERT_H_

#include "ops/base/dtype.h"
#include "tensorflow/core/framework/types.h"

namespace tf_strategies {

// Returns kByte for every dtype that the core does not reduce.
inline DType FromTensorFlow(tensorflow::DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_FLOAT: return DType::kFloat32;
    case tensorflow::DT_DOUBLE: return DType::kFloat64;
    case tensorflow::DT_HALF: return DType::kFloat16;
    case tensorflow::DT_BFLOAT16: return DType::kBFloat16;
    case tensorflow::DT_INT32: return DType::kInt32;
    case tensorflow::DT_INT64: return DType::kInt64;
    default: return DType::kByte;
  }
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_DTYPE_CONVERT_H_

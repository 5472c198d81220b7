// Inputs of TfStrategies>TopK.
#ifndef OPS_KERNELS_TOP_K_INPUTS_H_
#define OPS_KERNELS_TOP_K_INPUTS_H_

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_strategies {

// Checks gradient, residual and k. k: in the memory of the host.
inline absl::Status ReadTopKInputs(tensorflow::OpKernelContext* context, int64_t* k) {
  const tensorflow::Tensor& gradient = context->input(0);
  const tensorflow::Tensor& residual = context->input(1);
  const tensorflow::Tensor& wanted = context->input(2);
  if (gradient.shape() != residual.shape()) {
    return absl::InvalidArgumentError(absl::StrCat("residual must have the shape of gradient, ",
                                                   gradient.shape().DebugString(), "; got ",
                                                   residual.shape().DebugString()));
  }
  if (wanted.dims() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("k must be a scalar; got shape ", wanted.shape().DebugString()));
  }
  *k = wanted.scalar<int64_t>()();
  if (0 <= *k && *k <= gradient.NumElements()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "k must be between 0 and the number of elements of gradient, ", gradient.NumElements(), "; got ", *k));
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_TOP_K_INPUTS_H_

// Attributes and inputs of TfStrategies>Quantize.
#ifndef OPS_KERNELS_QUANTIZE_INPUTS_H_
#define OPS_KERNELS_QUANTIZE_INPUTS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/compress/quantize.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_strategies {

// Reads the attributes of an operation from the construction of its kernel, or from shape inference.
template <typename Context>
absl::Status ReadQuantizeAttributes(Context* context, compress::Method* method, int64_t* bucket) {
  std::string name;
  TF_RETURN_IF_ERROR(context->GetAttr("method", &name));
  *method = name == "ternary"       ? compress::Method::kTernary
            : name == "sign"        ? compress::Method::kSign
            : name == "stochastic4" ? compress::Method::kStochastic4
                                    : compress::Method::kStochastic8;
  TF_RETURN_IF_ERROR(context->GetAttr("bucket", bucket));
  if (1 <= *bucket && *bucket <= compress::kMaxBucket) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bucket must be between 1 and ", compress::kMaxBucket, "; got ", *bucket));
}

// seed: in the memory of the host.
inline absl::Status ReadQuantizeInputs(tensorflow::OpKernelContext* context, compress::Seed* seed) {
  const tensorflow::Tensor& gradient = context->input(0);
  const tensorflow::Tensor& numbers = context->input(1);
  if (gradient.dims() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient must be a vector; got shape ", gradient.shape().DebugString()));
  }
  if (numbers.dims() != 1 || numbers.NumElements() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("seed must be a vector of 2 numbers; got shape ", numbers.shape().DebugString()));
  }
  const auto values = numbers.flat<int64_t>();
  *seed = {static_cast<uint64_t>(values(0)), static_cast<uint64_t>(values(1))};
  return absl::OkStatus();
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_QUANTIZE_INPUTS_H_

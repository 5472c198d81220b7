#include "ops/kernels/gradient_kernel.h"

#include <utility>

#include "ops/kernels/dtype_convert.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status ReadMembers(OpKernelContext* context, std::vector<int>* members) {
  const Tensor* input = nullptr;
  TF_RETURN_IF_ERROR(context->input("members", &input));
  if (input->dims() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("members must be a vector; got shape ", input->shape().DebugString()));
  }
  const auto values = input->vec<int32_t>();
  members->assign(values.data(), values.data() + values.size());
  return absl::OkStatus();
}

ledger::Part PartOf(const Tensor& tensor) {
  const auto sizes = tensor.shape().dim_sizes();
  return {tensor.data(), {sizes.begin(), sizes.end()}};
}

}  // namespace

GradientKernel::GradientKernel(tensorflow::OpKernelConstruction* construction) : LedgerKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("key", &key_));
}

absl::Status GradientKernel::Put(OpKernelContext* context, bool is_rows, std::vector<Tensor> tensors) const {
  int worker = 0;
  int64_t step = 0;
  TF_RETURN_IF_ERROR(ReadScalar<int>(context, "worker", &worker));
  TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "step", &step));
  ledger::Gradient gradient;
  gradient.is_rows = is_rows;
  gradient.dtype = FromTensorFlow(tensors.back().dtype());
  for (const Tensor& tensor : tensors) gradient.parts.push_back(PartOf(tensor));
  gradient.keep_alive = std::make_shared<const std::vector<Tensor>>(std::move(tensors));
  TF_RETURN_IF_ERROR(ToTensorFlow(accumulator().Put(key_, worker, step, std::move(gradient))));
  return WriteScalar(context, "held", accumulator().held());
}

absl::Status GradientKernel::Take(OpKernelContext* context, bool is_rows, tensorflow::DataType dtype,
                                  size_t parts, Found* found) const {
  std::vector<int> members;
  int64_t step = 0;
  TF_RETURN_IF_ERROR(ReadMembers(context, &members));
  TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "step", &step));
  TF_RETURN_IF_ERROR(ToTensorFlow(accumulator().Take(key_, members, step, found)));
  const ledger::Gradient& first = *found->front();
  if (first.is_rows == is_rows && first.dtype == FromTensorFlow(dtype) && first.parts.size() == parts) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the gradient '", key_, "' was accumulated as ", first.is_rows ? "rows" : "dense", " ",
                   DTypeName(first.dtype), " in ", first.parts.size(), " parts, and is requested as ",
                   is_rows ? "rows" : "dense", " ", DTypeName(FromTensorFlow(dtype)), " in ", parts));
}

}  // namespace tf_strategies

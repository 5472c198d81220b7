// TfStrategies>LedgerAccumulateRows, LedgerGatherRows: gradients of rows that a server holds until their step is applied.

#include <cstring>
#include <vector>

#include "ops/kernels/gradient_kernel.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("TfStrategies>LedgerAccumulateRows")
    .Input("worker: int32")
    .Input("step: int64")
    .Input("indices: int64")
    .Input("values: T")
    .Output("held: int64")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("ledger: string")
    .Attr("key: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle indices, values, ignored;
      tensorflow::shape_inference::DimensionHandle rows;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 0, &ignored));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &ignored));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 1, &indices));
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(3), 1, &values));
      context->set_output(0, context->Scalar());
      return context->Merge(context->Dim(indices, 0), context->Dim(values, 0), &rows);
    })
    .Doc(R"doc(
Keeps rows of a worker's gradient. They replace the former ones of the same key.

worker: Whose they are.
step: At which it read the weights.
indices: [n] of the rows.
values: [n, ...]; the shape of a row agrees between workers.
held: How many gradients this server keeps for the ledger.
ledger: Its name.
key: What they are a gradient of.
)doc");

class PutRows final : public GradientKernel {
 public:
  using GradientKernel::GradientKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    const Tensor* indices = nullptr;
    const Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(context->input("indices", &indices));
    TF_RETURN_IF_ERROR(context->input("values", &values));
    if (indices->dims() != 1 || values->dims() < 1 || indices->dim_size(0) != values->dim_size(0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("indices must have the shape [n] and values [n, ...]; got ",
                       indices->shape().DebugString(), " and ", values->shape().DebugString()));
    }
    return Put(context, true, {*indices, *values});
  }
};

REGISTER_OP("TfStrategies>LedgerGatherRows")
    .Input("members: int32")
    .Input("step: int64")
    .Output("indices: int64")
    .Output("values: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("row_shape: shape")
    .Attr("ledger: string")
    .Attr("key: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle ignored, row, values;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 1, &ignored));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &ignored));
      PartialTensorShape row_shape;
      TF_RETURN_IF_ERROR(context->GetAttr("row_shape", &row_shape));
      TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(row_shape, &row));
      const auto rows = context->Vector(InferenceContext::kUnknownDim);
      TF_RETURN_IF_ERROR(context->Concatenate(rows, row, &values));
      context->set_output(0, rows);
      context->set_output(1, values);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Concatenates the members' rows for a step, in the order of their numbers. The rows are kept.

members: [m] the workers, ascending.
step: Of the gradients.
indices: [n], with repetitions.
values: [n, ...].
row_shape: What is known of the shape of a row.
ledger: Its name.
key: What they are a gradient of.
)doc");

class TakeRows final : public GradientKernel {
 public:
  explicit TakeRows(OpKernelConstruction* construction) : GradientKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("T", &dtype_));
    OP_REQUIRES_OK(construction, construction->GetAttr("row_shape", &row_shape_));
  }

 protected:
  absl::Status Call(OpKernelContext* context) override {
    Found found;
    TF_RETURN_IF_ERROR(Take(context, true, dtype_, 2, &found));
    int64_t rows = 0;
    for (const auto& gradient : found) rows += gradient->parts[0].shape[0];
    std::vector<int64_t> sizes = found.front()->parts[1].shape;
    sizes[0] = rows;
    TensorShape shape, row;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(sizes, &shape));
    row = shape;
    row.RemoveDim(0);
    if (!row_shape_.IsCompatibleWith(row)) {
      return absl::InvalidArgumentError(absl::StrCat("the gradient '", key_,
                                                     "' was accumulated in rows of shape ", row.DebugString(),
                                                     "; ", row_shape_.DebugString(), " is expected"));
    }
    Tensor* indices = nullptr;
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output("indices", TensorShape({rows}), &indices));
    TF_RETURN_IF_ERROR(context->allocate_output("values", shape, &values));
    const int64_t row_bytes = row.num_elements() * tensorflow::DataTypeSize(dtype_);
    char* to_indices = static_cast<char*>(indices->data());
    char* to_values = static_cast<char*>(values->data());
    for (const auto& gradient : found) {
      const int64_t count = gradient->parts[0].shape[0];
      to_indices = Append(to_indices, gradient->parts[0].data, count * static_cast<int64_t>(sizeof(int64_t)));
      to_values = Append(to_values, gradient->parts[1].data, count * row_bytes);
    }
    return absl::OkStatus();
  }

 private:
  static char* Append(char* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return to + bytes;
  }

  tensorflow::DataType dtype_ = tensorflow::DT_INVALID;
  PartialTensorShape row_shape_;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerAccumulateRows").Device(tensorflow::DEVICE_CPU), PutRows);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerGatherRows").Device(tensorflow::DEVICE_CPU), TakeRows);

}  // namespace
}  // namespace tf_strategies

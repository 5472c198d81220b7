// TfStrategies>LedgerAccumulate, LedgerSumGradients, LedgerAccumulateRows, LedgerGatherRows, LedgerDiscard: gradients that a server
// holds until their step is applied.

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/dtype_convert.h"
#include "ops/kernels/ledger_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

using Found = std::vector<std::shared_ptr<const ledger::Gradient>>;

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

// What holds for all of these kernels: the key.
class GradientKernel : public LedgerKernel {
 public:
  explicit GradientKernel(OpKernelConstruction* construction) : LedgerKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("key", &key_));
  }

 protected:
  absl::Status Put(OpKernelContext* context, bool is_rows, std::vector<Tensor> tensors) const {
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

  absl::Status Take(OpKernelContext* context, bool is_rows, tensorflow::DataType dtype, size_t parts,
                    Found* found) const {
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

  std::string key_;
};

REGISTER_OP("TfStrategies>LedgerAccumulate")
    .Input("worker: int32")
    .Input("step: int64")
    .Input("tensors: N * T")
    .Output("held: int64")
    .Attr("N: int >= 1")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("ledger: string")
    .Attr("key: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle ignored;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 0, &ignored));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &ignored));
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Keeps a worker's gradients. They replace the former ones of the same key.

worker: Whose they are.
step: At which it read the weights.
tensors: Their shapes agree between workers.
held: How many gradients this server keeps for the ledger.
ledger: Its name.
key: What they are gradients of.
)doc");

class PutDense final : public GradientKernel {
 public:
  using GradientKernel::GradientKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    tensorflow::OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("tensors", &inputs));
    return Put(context, false, {inputs.begin(), inputs.end()});
  }
};

REGISTER_OP("TfStrategies>LedgerSumGradients")
    .Input("members: int32")
    .Input("step: int64")
    .Output("sums: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("shapes: list(shape)")
    .Attr("ledger: string")
    .Attr("key: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle ignored;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 1, &ignored));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &ignored));
      std::vector<PartialTensorShape> shapes;
      TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
      if (static_cast<int>(shapes.size()) != context->num_outputs()) {
        return absl::InvalidArgumentError(absl::StrCat("shapes must be one for each of the ",
                                                       context->num_outputs(), " sums; got ", shapes.size()));
      }
      for (int i = 0; i < context->num_outputs(); ++i) {
        ShapeHandle shape;
        TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
        context->set_output(i, shape);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the sum of the members' gradients for a step, added in the order of their numbers. The gradients are kept.

members: [m] the workers, ascending.
step: Of the gradients.
sums: One for each tensor of a gradient.
shapes: What is known of theirs.
ledger: Its name.
key: What they are gradients of.
)doc");

class TakeDense final : public GradientKernel {
 public:
  explicit TakeDense(OpKernelConstruction* construction) : GradientKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("T", &dtype_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes_));
    OP_REQUIRES(
        construction, static_cast<int>(shapes_.size()) == construction->num_outputs(),
        absl::InvalidArgumentError(absl::StrCat("shapes must be one for each of the ",
                                                construction->num_outputs(), " sums; got ", shapes_.size())));
  }

 protected:
  absl::Status Call(OpKernelContext* context) override {
    Found found;
    TF_RETURN_IF_ERROR(Take(context, false, dtype_, shapes_.size(), &found));
    for (size_t i = 0; i < shapes_.size(); ++i) TF_RETURN_IF_ERROR(Sum(context, found, i));
    return absl::OkStatus();
  }

 private:
  absl::Status Sum(OpKernelContext* context, const Found& found, size_t part) const {
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(found.front()->parts[part].shape, &shape));
    if (!shapes_[part].IsCompatibleWith(shape)) {
      return absl::InvalidArgumentError(absl::StrCat("the gradient '", key_, "' was accumulated with shape ",
                                                     shape.DebugString(), "; ", shapes_[part].DebugString(),
                                                     " is expected"));
    }
    std::vector<const void*> sources;
    for (const auto& gradient : found) sources.push_back(gradient->parts[part].data);
    Tensor* sum = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(static_cast<int>(part), shape, &sum));
    const DType dtype = FromTensorFlow(dtype_);
    const int64_t count = shape.num_elements();
    const auto& threads = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(
        threads.num_threads, threads.workers, count, static_cast<int64_t>(sources.size()) * kElementCost,
        [&](int64_t begin, int64_t end) { ledger::SumInOrder(dtype, sources, sum->data(), begin, end); });
    return absl::OkStatus();
  }

  static constexpr int64_t kElementCost = 1;  // cycles, for each member

  tensorflow::DataType dtype_ = tensorflow::DT_INVALID;
  std::vector<PartialTensorShape> shapes_;
};

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

REGISTER_OP("TfStrategies>LedgerDiscard")
    .Input("step: int64")
    .Output("held: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Frees the gradients of this step and of all steps before it, under every key.

step: The last that has been applied.
held: How many gradients this server still keeps for the ledger.
ledger: Its name.
)doc");

class DiscardKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    int64_t step = 0;
    TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "step", &step));
    accumulator().Discard(step);
    return WriteScalar(context, "held", accumulator().held());
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerAccumulate").Device(tensorflow::DEVICE_CPU), PutDense);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerSumGradients").Device(tensorflow::DEVICE_CPU), TakeDense);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerAccumulateRows").Device(tensorflow::DEVICE_CPU), PutRows);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerGatherRows").Device(tensorflow::DEVICE_CPU), TakeRows);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerDiscard").Device(tensorflow::DEVICE_CPU), DiscardKernel);

}  // namespace
}  // namespace tf_strategies

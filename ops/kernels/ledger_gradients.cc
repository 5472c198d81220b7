// TfStrategies>LedgerAccumulate, LedgerSumGradients, LedgerDiscard: dense gradients that a server holds until their step is
// applied.

#include <utility>
#include <vector>

#include "ops/kernels/dtype_convert.h"
#include "ops/kernels/gradient_kernel.h"
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
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerDiscard").Device(tensorflow::DEVICE_CPU), DiscardKernel);

}  // namespace
}  // namespace tf_strategies

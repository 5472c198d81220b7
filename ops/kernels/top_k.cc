// TfStrategies>TopK: selects the entries of a gradient to send, and leaves the rest in a residual.

#include <algorithm>
#include <cstdint>

#include "ops/compress/topk.h"
#include "ops/kernels/dtype_convert.h"
#include "ops/kernels/on_pool.h"
#include "ops/kernels/top_k_inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfStrategies>TopK")
    .Input("gradient: T")
    .Input("residual: float")
    .Input("k: int64")
    .Output("indices: int64")
    .Output("values: float")
    .Output("remaining: float")
    .Attr("T: {float, half, bfloat16}")
    .Attr("sampled: bool = false")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle shape, scalar;
      TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(1), &shape));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 0, &scalar));
      bool sampled = false;
      TF_RETURN_IF_ERROR(context->GetAttr("sampled", &sampled));
      auto selected = context->UnknownDim();
      if (!sampled) TF_RETURN_IF_ERROR(context->MakeDimForScalarInput(2, &selected));
      context->set_output(0, context->Vector(selected));
      context->set_output(1, context->Vector(selected));
      context->set_output(2, shape);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Selects the k entries of gradient + residual that are largest in magnitude.

gradient: Of any shape; indices count its elements in row-major order.
residual: What former selections left, of the same shape.
k: Between 0 and the number of elements.
indices: [k], ascending. Among equal magnitudes the lower index is selected.
values: [k], the sums there. What is not finite is selected first.
remaining: The sums that were not selected, 0 elsewhere and where a sum is not finite: the next residual.
sampled: Selects by a threshold estimated from a sample: between 0.8 k and 1.25 k entries.
)doc");

class TopKKernel final : public tensorflow::OpKernel {
 public:
  explicit TopKKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("sampled", &sampled_));
  }

  void Compute(OpKernelContext* context) override {
    int64_t k = 0;
    OP_REQUIRES_OK(context, ReadTopKInputs(context, &k));
    const Tensor& gradient = context->input(0);
    const Tensor& residual = context->input(1);
    const int64_t count = gradient.NumElements();
    Tensor* remaining = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({1}, 2, residual.shape(), &remaining));
    const auto select = sampled_ ? compress::SampledTopK : compress::TopK;
    const compress::Selection selection =
        select(FromTensorFlow(gradient.dtype()), gradient.data(), residual.flat<float>().data(),
               remaining->flat<float>().data(), count, k, OnPool(context, kPartCost));
    const auto selected = static_cast<int64_t>(selection.indices.size());
    Tensor* indices = nullptr;
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({selected}), &indices));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({selected}), &values));
    std::copy(selection.indices.begin(), selection.indices.end(), indices->flat<int64_t>().data());
    std::copy(selection.values.begin(), selection.values.end(), values->flat<float>().data());
  }

 private:
  static constexpr int64_t kPartCost = 50000;  // cycles, for 16,384 elements

  bool sampled_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>TopK").Device(tensorflow::DEVICE_CPU), TopKKernel);

}  // namespace
}  // namespace tf_strategies

// TfStrategies>Quantize, SumQuantized: quantize a dense gradient to one message, and add up such messages.

#include <cstdint>

#include "ops/compress/quantize.h"
#include "ops/kernels/message_inputs.h"
#include "ops/kernels/on_pool.h"
#include "ops/kernels/quantize_inputs.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/denormal.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfStrategies>Quantize")
    .Input("gradient: float")
    .Input("seed: int64")
    .Output("message: uint8")
    .Attr("method: {'stochastic8', 'ternary', 'sign', 'stochastic4'}")
    .Attr("bucket: int = 512")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle gradient, seed;
      tensorflow::shape_inference::DimensionHandle two;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 1, &gradient));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 1, &seed));
      TF_RETURN_IF_ERROR(context->WithValue(context->Dim(seed, 0), 2, &two));
      auto method = compress::Method::kStochastic8;
      int64_t bucket = 0;
      TF_RETURN_IF_ERROR(ReadQuantizeAttributes(context, &method, &bucket));
      const auto count = context->Dim(gradient, 0);
      const bool known = context->ValueKnown(count);
      context->set_output(
          0, known ? context->Vector(compress::QuantizedBytes(method, context->Value(count), bucket))
                   : context->Vector(context->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Writes a vector in 8, 4, 2 or 1 bits an element as one message. Its length is a function of n, method and bucket.

gradient: [n].
seed: [2]. The message is a function of gradient and seed: another seed for every step and worker. 'sign' needs none.
message: [m]: a scale for each bucket, then the levels.
method: 'stochastic8': 127 levels of either sign, randomly rounded (QSGD, Alistarh et al. 2017). 'stochastic4': the same with 7
  levels. 'ternary': -1, 0 or 1 times the largest magnitude, at random (TernGrad, Wen et al. 2017). Of these three the mean is the
  gradient. 'sign': 1 or -1 times the mean magnitude; needs error feedback (Karimireddy et al. 2019).
bucket: Elements that share a scale. One that is not finite makes all of its bucket NaN for every reader.
)doc");

REGISTER_OP("TfStrategies>SumQuantized")
    .Input("messages: uint8")
    .Input("count: int64")
    .Output("sum: float")
    .SetShapeFn(SumShape)
    .Doc(R"doc(
Adds up what Quantize wrote, in the order of the messages: the same bits for all who have the same bytes.

messages: [m], any number of messages, one after another, of any method.
count: Elements of each.
sum: [count].
)doc");

class QuantizeKernel final : public tensorflow::OpKernel {
 public:
  explicit QuantizeKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, ReadQuantizeAttributes(construction, &method_, &bucket_));
  }

  void Compute(OpKernelContext* context) override {
    const tensorflow::port::ScopedFlushDenormal as_in_the_pool;
    compress::Seed seed;
    OP_REQUIRES_OK(context, ReadQuantizeInputs(context, &seed));
    const Tensor& gradient = context->input(0);
    const int64_t count = gradient.NumElements();
    Tensor* message = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(0, TensorShape({compress::QuantizedBytes(method_, count, bucket_)}),
                                          &message));
    compress::Quantize(method_, gradient.flat<float>().data(), count, bucket_, seed,
                       message->flat<uint8_t>().data(), OnPool(context, kPartCost));
  }

 private:
  static constexpr int64_t kPartCost = 150000;  // cycles, for 16,384 elements

  compress::Method method_ = compress::Method::kStochastic8;
  int64_t bucket_ = 0;
};

class SumQuantizedKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override { ComputeSum(context, compress::SumQuantized, kPartCost); }

 private:
  static constexpr int64_t kPartCost = 30000;  // cycles, for 16,384 elements of a few messages
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>Quantize").Device(tensorflow::DEVICE_CPU), QuantizeKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>SumQuantized").Device(tensorflow::DEVICE_CPU), SumQuantizedKernel);

}  // namespace
}  // namespace tf_strategies

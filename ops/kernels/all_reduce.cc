// TfStrategies>AllReduce: reduces a pack of tensors, elementwise, over all ranks of a communicator.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/collective_kernel.h"
#include "ops/kernels/dtype_convert.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfStrategies>AllReduce")
    .Input("tensors: N * T")
    .Output("reduced: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {float, double, half, bfloat16, int32, int64}")
    .Attr("reduction: {'sum', 'mean', 'min', 'max'}")
    .Attr("communicator: int")
    .Attr("instance: int >= 0")
    .Attr("label: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Reduces each tensor, elementwise, over all ranks of a communicator. Every rank gets the same bits.

tensors: A pack, reduced as one message. Shapes, dtype and number agree between the ranks.
reduced: The results, one for each tensor.
reduction: `mean` is the sum divided by the number of ranks once.
communicator: Its id.
instance: Names this collective: the same on all ranks, unique among those in flight.
label: For messages.
)doc");

ReduceOp ParseReduction(const std::string& name) {
  if (name == "mean") return ReduceOp::kMean;
  if (name == "min") return ReduceOp::kMin;
  if (name == "max") return ReduceOp::kMax;
  return ReduceOp::kSum;
}

class AllReduceKernel final : public CollectiveKernel {
 public:
  explicit AllReduceKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {
    std::string reduction;
    OP_REQUIRES_OK(construction, construction->GetAttr("reduction", &reduction));
    op_ = ParseReduction(reduction);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    auto buffer = std::make_shared<Tensor>();
    const absl::Status packed =
        context->num_inputs() == 1 ? Forward(context, buffer.get()) : Pack(context, buffer.get());
    if (!packed.ok()) return Refuse(context, communicator.get(), packed, done);
    Communicator::Request request = MakeRequest();
    for (int i = 0; i < context->num_inputs(); ++i) {
      request.shape += (i == 0 ? "" : " ") + context->input(i).shape().DebugString();
    }
    request.dtype = FromTensorFlow(buffer->dtype());
    request.data = buffer->data();
    request.count = buffer->NumElements();
    request.keep_alive = std::move(buffer);
    request.done = EndOf(Completion::Begin(context, label_, std::move(done)));
    communicator->AllReduce(op_, std::move(request));
  }

 private:
  // One tensor is reduced where it stands when nobody else needs its input value, else in a copy.
  absl::Status Forward(OpKernelContext* context, Tensor* buffer) const {
    const Tensor& input = context->input(0);
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({0}, 0, input.shape(), &output));
    if (!output->SharesBufferWith(input)) std::memcpy(output->data(), input.data(), input.TotalBytes());
    *buffer = *output;
    return absl::OkStatus();
  }

  // Several tensors are copied side by side, each from an aligned address, so that the outputs can be views.
  absl::Status Pack(OpKernelContext* context, Tensor* buffer) const {
    const tensorflow::DataType dtype = context->input(0).dtype();
    const int64_t element_bytes = tensorflow::DataTypeSize(dtype);
    const int64_t aligned = tensorflow::Allocator::kAllocatorAlignment / element_bytes;
    std::vector<int64_t> begins;
    int64_t total = 0;
    for (int i = 0; i < context->num_inputs(); ++i) {
      begins.push_back(total);
      total += (context->input(i).NumElements() + aligned - 1) / aligned * aligned;
    }
    TF_RETURN_IF_ERROR(context->allocate_temp(dtype, TensorShape({total}), buffer));
    char* const data = static_cast<char*>(buffer->data());
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& input = context->input(i);
      const int64_t end = i + 1 < context->num_inputs() ? begins[i + 1] : total;
      char* const target = data + begins[i] * element_bytes;
      const size_t bytes = input.NumElements() * element_bytes;
      if (bytes > 0) std::memcpy(target, input.data(), bytes);
      std::memset(target + bytes, 0, (end - begins[i]) * element_bytes - bytes);
      Tensor view;
      if (!view.CopyFrom(buffer->Slice(begins[i], begins[i] + input.NumElements()), input.shape())) {
        return absl::InternalError(absl::StrCat("no view of shape ", input.shape().DebugString()));
      }
      context->set_output(i, view);
    }
    return absl::OkStatus();
  }

  ReduceOp op_ = ReduceOp::kSum;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>AllReduce").Device(tensorflow::DEVICE_CPU), AllReduceKernel);

}  // namespace
}  // namespace tf_strategies

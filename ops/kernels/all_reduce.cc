// TfStrategies>AllReduce: reduces a pack of tensors, elementwise, over all ranks of a communicator.

#include <algorithm>
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
    .Attr("layout: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Reduces each tensor, elementwise, over all ranks of a communicator. Every rank gets the same bits.

tensors: A pack, reduced as one buffer. Shapes, dtype and number agree between the ranks.
reduced: The results, one for each tensor.
reduction: `mean` is the sum divided by the number of ranks once.
communicator: Its id.
instance: Names this collective: the same on all ranks, unique among those in flight.
label: For messages.
layout: How the elements are to be read; must agree.
)doc");

// To copy this number of bytes within the cache takes as long as a message.
constexpr size_t kLargeBytes = 64 << 10;
constexpr size_t kMostLarge = 1024;

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
    auto memory = std::make_shared<std::vector<Tensor>>();
    const absl::Status laid_out = LayOut(context, memory.get());
    if (!laid_out.ok()) return Refuse(context, communicator.get(), laid_out, done);
    Communicator::Request request = MakeRequest();
    for (int i = 0; i < context->num_inputs(); ++i) {
      request.shape += (i == 0 ? "" : " ") + context->input(i).shape().DebugString();
    }
    request.dtype = FromTensorFlow(context->input_dtype(0));
    for (const Tensor& part : *memory) {
      if (part.NumElements() > 0) request.parts.push_back({part.data(), part.NumElements()});
    }
    request.keep_alive = std::move(memory);
    const ReduceOp op = op_;  // the kernel may go from here on
    request.done = EndOf(Completion::Begin(context, label_, std::move(done)));
    communicator->AllReduce(op, std::move(request));
  }

 private:
  // A large tensor is reduced in place. Small tensors are copied into one buffer, because a message for each
  // would cost more.
  absl::Status LayOut(OpKernelContext* context, std::vector<Tensor>* memory) const {
    size_t total = 0;
    for (int i = 0; i < context->num_inputs(); ++i) total += context->input(i).TotalBytes();
    const size_t large = std::max(kLargeBytes, total / kMostLarge);
    std::vector<int> small;
    for (int i = 0; i < context->num_inputs(); ++i) {
      if (context->input(i).TotalBytes() < large && context->num_inputs() > 1) {
        small.push_back(i);
      } else {
        TF_RETURN_IF_ERROR(InPlace(context, i, &memory->emplace_back()));
      }
    }
    return small.empty() ? absl::OkStatus() : Pack(context, small, &memory->emplace_back());
  }

  // The output uses the memory of the input if its value is not needed elsewhere; otherwise it is a copy.
  static absl::Status InPlace(OpKernelContext* context, int i, Tensor* part) {
    const Tensor& input = context->input(i);
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({i}, i, input.shape(), &output));
    if (!output->SharesBufferWith(input)) std::memcpy(output->data(), input.data(), input.TotalBytes());
    *part = *output;
    return absl::OkStatus();
  }

  // Each tensor begins at an aligned address, so that the outputs can be views.
  static absl::Status Pack(OpKernelContext* context, const std::vector<int>& inputs, Tensor* pack) {
    const tensorflow::DataType dtype = context->input_dtype(0);
    const int64_t element_bytes = tensorflow::DataTypeSize(dtype);
    const int64_t aligned = tensorflow::Allocator::kAllocatorAlignment / element_bytes;
    const auto room = [&](int i) {
      return (context->input(i).NumElements() + aligned - 1) / aligned * aligned;
    };
    int64_t total = 0;
    for (int i : inputs) total += room(i);
    TF_RETURN_IF_ERROR(context->allocate_temp(dtype, TensorShape({total}), pack));
    int64_t begin = 0;
    for (int i : inputs) {
      const Tensor& input = context->input(i);
      char* const target = static_cast<char*>(pack->data()) + begin * element_bytes;
      const size_t bytes = input.TotalBytes();
      if (bytes > 0) std::memcpy(target, input.data(), bytes);
      std::memset(target + bytes, 0, room(i) * element_bytes - bytes);
      Tensor view;
      if (!view.CopyFrom(pack->Slice(begin, begin + input.NumElements()), input.shape())) {
        return absl::InternalError(absl::StrCat("no view of shape ", input.shape().DebugString()));
      }
      context->set_output(i, view);
      begin += room(i);
    }
    return absl::OkStatus();
  }

  ReduceOp op_ = ReduceOp::kSum;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>AllReduce").Device(tensorflow::DEVICE_CPU), AllReduceKernel);

}  // namespace
}  // namespace tf_strategies

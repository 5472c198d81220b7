// TfStrategies>AllReduce: reduces a pack of tensors, elementwise, over all ranks of a communicator.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/collective_kernel.h"
#include "ops/kernels/pack_layout.h"
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

class AllReduceKernel final : public CollectiveKernel {
 public:
  explicit AllReduceKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {
    OP_REQUIRES_OK(construction, ReadReduction(construction, &op_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    auto memory = std::make_shared<std::vector<Tensor>>();
    const absl::Status laid_out = LayOut(context, memory.get());
    if (!laid_out.ok()) return Refuse(context, communicator.get(), laid_out, done);
    Communicator::Request request = MakeRequest();
    DescribePack(context, &request);
    for (const Tensor& part : *memory) {
      if (part.NumElements() > 0) request.parts.push_back({part.data(), part.NumElements()});
    }
    request.keep_alive = std::move(memory);
    const ReduceOp op = op_;  // the kernel may go from here on
    request.done = EndOf(Completion::Begin(context, label_, std::move(done)));
    communicator->AllReduce(op, std::move(request));
  }

 private:
  // A large tensor is reduced in place, the others in one buffer.
  static absl::Status LayOut(OpKernelContext* context, std::vector<Tensor>* memory) {
    const PackLayout layout(context);
    for (const int i : layout.large) TF_RETURN_IF_ERROR(InPlace(context, i, &memory->emplace_back()));
    return layout.small.empty() ? absl::OkStatus() : Pack(context, layout, &memory->emplace_back());
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

  // The outputs are views of the buffer.
  static absl::Status Pack(OpKernelContext* context, const PackLayout& layout, Tensor* pack) {
    const tensorflow::DataType dtype = context->input_dtype(0);
    TF_RETURN_IF_ERROR(context->allocate_temp(dtype, TensorShape({layout.small_elements}), pack));
    for (size_t j = 0; j < layout.small.size(); ++j) {
      const int i = layout.small[j];
      const int64_t begin = layout.begins[j];
      const Tensor& input = context->input(i);
      char* const target = static_cast<char*>(pack->data()) + begin * tensorflow::DataTypeSize(dtype);
      if (input.TotalBytes() > 0) std::memcpy(target, input.data(), input.TotalBytes());
      layout.ClearRestOf(context, j, target);
      Tensor view;
      if (!view.CopyFrom(pack->Slice(begin, begin + input.NumElements()), input.shape())) {
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

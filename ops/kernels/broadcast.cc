// TfStrategies>Broadcast: gives every rank the root's tensor.

#include <cstring>
#include <memory>
#include <utility>

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

REGISTER_OP("TfStrategies>Broadcast")
    .Input("tensor: T")
    .Output("received: T")
    .Attr("T: {numbertype, bool}")
    .Attr("root: int >= 0 = 0")
    .Attr("communicator: int")
    .Attr("instance: int >= 0")
    .Attr("label: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Gives every rank the value that the tensor has on the root.

tensor: Shape and dtype agree between the ranks.
received: The root's value.
root: A rank.
communicator: Its id.
instance: Names this collective: the same on all ranks, unique among those in flight.
label: For messages.
)doc");

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root", &root_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    const Tensor& input = context->input(0);
    Tensor* output = nullptr;
    const absl::Status allocated = context->forward_input_or_allocate_output({0}, 0, input.shape(), &output);
    if (!allocated.ok()) return Refuse(context, communicator.get(), allocated, done);
    if (communicator->rank() == root_ && !output->SharesBufferWith(input)) {
      std::memcpy(output->data(), input.data(), input.TotalBytes());
    }
    Communicator::Request request = MakeRequest();
    request.shape = tensorflow::DataTypeString(input.dtype()) + input.shape().DebugString();
    request.dtype = FromTensorFlow(input.dtype());
    request.data = output->data();
    request.count = static_cast<int64_t>(output->TotalBytes() / DTypeSize(request.dtype));
    request.keep_alive = std::make_shared<Tensor>(*output);
    const int root = static_cast<int>(root_);  // the kernel may go from here on
    request.done = EndOf(Completion::Begin(context, label_, std::move(done)));
    communicator->Broadcast(root, std::move(request));
  }

 private:
  int64_t root_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>Broadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);

}  // namespace
}  // namespace tf_strategies

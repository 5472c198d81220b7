// TfStrategies>Barrier: completes when every rank has called it.

#include <utility>

#include "ops/kernels/collective_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace tf_strategies {
namespace {

REGISTER_OP("TfStrategies>Barrier")
    .Attr("communicator: int")
    .Attr("instance: int >= 0")
    .Attr("label: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Completes when every rank of the communicator has called it.

communicator: Its id.
instance: Names this collective: the same on all ranks, unique among those in flight.
label: For messages.
)doc");

class BarrierKernel final : public CollectiveKernel {
 public:
  explicit BarrierKernel(tensorflow::OpKernelConstruction* construction) : CollectiveKernel(construction) {}

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    Communicator::Request request = MakeRequest();
    request.done = EndOf(Completion::Begin(context, label_, std::move(done)));
    communicator->Barrier(std::move(request));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>Barrier").Device(tensorflow::DEVICE_CPU), BarrierKernel);

}  // namespace
}  // namespace tf_strategies

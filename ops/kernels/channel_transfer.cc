// TfStrategies>ChannelSend, TfStrategies>ChannelReceive: one tensor from one process to another, without TensorFlow's own runtime.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/channel/registry.h"
#include "ops/kernels/completion.h"
#include "ops/kernels/status_convert.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_strategies {
namespace {

using tensorflow::DataType;
using tensorflow::DataTypeString;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfStrategies>ChannelSend")
    .Input("tensor: T")
    .Attr("T: {numbertype, bool}")
    .Attr("channel: int")
    .Attr("key: int >= 0")
    .Attr("label: string")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Sends a tensor to the ChannelReceive of the same key, step and loop iteration at the other end of the channel; completes when
the tensor's memory is read no longer.

tensor: Any shape.
channel: The id of the channel in the process that runs this operation.
key: Names this pair of operations.
label: For messages.
timeout: Seconds it may take; after them the channel has failed.
)doc");

REGISTER_OP("TfStrategies>ChannelReceive")
    .Output("tensor: T")
    .Attr("T: {numbertype, bool}")
    .Attr("shape: shape")
    .Attr("channel: int")
    .Attr("key: int >= 0")
    .Attr("label: string")
    .Attr("timeout: float")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::ExplicitShape)
    .Doc(R"doc(
Receives the tensor that the ChannelSend of the same key, step and loop iteration sends at the other end of the channel.

tensor: What was sent.
shape: What is known of the shape; a tensor of another shape or dtype is refused.
channel: The id of the channel in the process that runs this operation.
key: Names this pair of operations.
label: For messages.
timeout: Seconds it may take; after them the channel has failed.
)doc");

// TensorFlow itself matches the two halves of a transfer by these numbers, which are equal on the processes
// that run one step.
TransferId IdOf(const OpKernelContext& context, uint32_t key) {
  const tensorflow::FrameAndIter loop = context.frame_iter();
  const uint64_t iteration = loop.frame_id * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(loop.iter_id);
  return {key, context.step_id(), iteration};
}

class ChannelKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit ChannelKernel(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    int64_t key = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("channel", &channel_));
    OP_REQUIRES_OK(construction, construction->GetAttr("key", &key));
    OP_REQUIRES_OK(construction, construction->GetAttr("label", &label_));
    OP_REQUIRES_OK(construction, construction->GetAttr("timeout", &timeout_));
    OP_REQUIRES(
        construction, key <= UINT32_MAX,
        absl::InvalidArgumentError(absl::StrCat("key ", key, " of ", label_, " has more than 32 bits")));
    key_ = static_cast<uint32_t>(key);
  }

 protected:
  // Returns null and sets the context's status if the channel was closed.
  std::shared_ptr<Channel> GetChannel(OpKernelContext* context) const {
    auto channel = FindChannel(channel_);
    if (channel == nullptr) {
      context->SetStatus(
          absl::AbortedError(absl::StrCat(label_,
                                          " uses a channel that does not exist here: it was closed, or this "
                                          "process was forked after it was opened. "
                                          "Trace the function again, in the process that opened the channel, "
                                          "with an open channel")));
    }
    return channel;
  }

  // A cancelled step cannot wait for the channel's completion: the kernel ends at once, and cancels the
  // transfer.
  std::shared_ptr<Completion> Begin(OpKernelContext* context, int64_t ticket, DoneCallback done) const {
    return Completion::Begin(context, label_, std::move(done), [id = channel_, ticket] {
      const auto channel = FindChannel(id);
      if (channel != nullptr) channel->GiveUp(ticket);
    });
  }

  // A cancellation before the channel knew of the transfer had no effect, so it is repeated.
  static void GiveUpIfEnded(const std::shared_ptr<Completion>& completion, Channel* channel, int64_t ticket) {
    if (!completion->WithContext([](OpKernelContext*) {})) channel->GiveUp(ticket);
  }

  void Fill(Channel::Request* request, const OpKernelContext& context) const {
    request->id = IdOf(context, key_);
    request->label = label_;
    request->timeout_seconds = timeout_;
  }

  static Channel::Done EndOf(std::shared_ptr<Completion> completion) {
    return
        [completion = std::move(completion)](const Status& status) { completion->End(ToTensorFlow(status)); };
  }

  int64_t channel_ = 0;
  uint32_t key_ = 0;
  std::string label_;
  float timeout_ = 0;
};

class ChannelSendKernel final : public ChannelKernel {
 public:
  explicit ChannelSendKernel(OpKernelConstruction* construction) : ChannelKernel(construction) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto channel = GetChannel(context);
    if (channel == nullptr) return done();
    auto tensor = std::make_shared<Tensor>(context->input(0));
    Channel::Outgoing out;
    Fill(&out, *context);
    out.info.dtype = tensor->dtype();
    for (int axis = 0; axis < tensor->dims(); ++axis) out.info.dims.push_back(tensor->dim_size(axis));
    out.info.bytes = tensor->TotalBytes();
    out.data = tensor->data();
    out.keep_alive = std::move(tensor);
    const int64_t ticket = channel->NewTicket();
    const auto completion = Begin(context, ticket, std::move(done));
    out.done = EndOf(completion);
    channel->Send(ticket, std::move(out));
    GiveUpIfEnded(completion, channel.get(), ticket);
  }
};

class ChannelReceiveKernel final : public ChannelKernel {
 public:
  explicit ChannelReceiveKernel(OpKernelConstruction* construction) : ChannelKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("T", &dtype_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto channel = GetChannel(context);
    if (channel == nullptr) return done();
    Channel::Incoming in;
    Fill(&in, *context);
    const int64_t ticket = channel->NewTicket();
    const auto completion = Begin(context, ticket, std::move(done));
    // The kernel may be deleted when its step is cancelled, so this must not refer to it.
    in.place = [completion, expected = Expected{label_, dtype_, shape_}](const TensorInfo& info,
                                                                         Channel::Incoming::Place* place) {
      return FromTensorFlow(PlaceIn(completion.get(), expected, info, place));
    };
    in.done = EndOf(completion);
    channel->Receive(ticket, std::move(in));
    GiveUpIfEnded(completion, channel.get(), ticket);
  }

 private:
  struct Expected {
    std::string label;
    DataType dtype;
    PartialTensorShape shape;
  };

  static absl::Status PlaceIn(Completion* completion, const Expected& expected, const TensorInfo& info,
                              Channel::Incoming::Place* place) {
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(info.dims, &shape));
    if (info.dtype != expected.dtype || !expected.shape.IsCompatibleWith(shape)) {
      const auto sent = static_cast<DataType>(info.dtype);
      return absl::InvalidArgumentError(absl::StrCat(
          expected.label, " expects ", DataTypeString(expected.dtype), expected.shape.DebugString(),
          ", but the other end sent ", DataTypeString(sent), shape.DebugString()));
    }
    const size_t item = static_cast<size_t>(tensorflow::DataTypeSize(expected.dtype));
    if (info.bytes % item != 0 || info.bytes / item != static_cast<size_t>(shape.num_elements())) {
      return absl::InvalidArgumentError(absl::StrCat(expected.label, " received ", info.bytes, " bytes for ",
                                                     DataTypeString(expected.dtype), shape.DebugString()));
    }
    absl::Status allocated;
    Tensor* tensor = nullptr;
    const bool running = completion->WithContext(
        [&](OpKernelContext* context) { allocated = context->allocate_output(0, shape, &tensor); });
    if (!running) return absl::CancelledError(absl::StrCat(expected.label, " was cancelled"));
    TF_RETURN_IF_ERROR(allocated);
    place->data = tensor->data();
    place->keep_alive = std::make_shared<Tensor>(*tensor);
    return absl::OkStatus();
  }

  DataType dtype_ = tensorflow::DT_FLOAT;
  PartialTensorShape shape_;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>ChannelSend").Device(tensorflow::DEVICE_CPU), ChannelSendKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>ChannelReceive").Device(tensorflow::DEVICE_CPU),
                        ChannelReceiveKernel);

}  // namespace
}  // namespace tf_strategies

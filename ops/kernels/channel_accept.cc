// TfStrategies>ChannelAccept, TfStrategies>ChannelClose: operations that a worker runs on a server's device
// to open and close a channel.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/channel/end.h"
#include "ops/channel/registry.h"
#include "ops/kernels/status_convert.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

constexpr size_t kMostText = 1024;

REGISTER_OP("TfStrategies>ChannelAccept")
    .Input("address: string")
    .Input("host: string")
    .Input("worker: string")
    .Input("server: string")
    .Input("transports: string")
    .Input("token: string")
    .Output("channel: int64")
    .Output("server_address: string")
    .Output("same_host: bool")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle unused;
      for (int i = 0; i < 4; ++i) TF_RETURN_IF_ERROR(context->WithRank(context->input(i), 0, &unused));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(4), 1, &unused));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(5), 0, &unused));
      for (int i = 0; i < 3; ++i) context->set_output(i, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Opens the server's end of a channel to a worker. Runs in the server's process, which has called channel.prepare().

address: The wire address of the worker's end.
host: Equal to the server's own exactly when the two can share memory.
worker: The worker's name, for messages and for finding its channels.
server: The server's name, for messages.
transports: What UCX may use, [n] values of UCX_TLS to be tried in this order.
token: Identifies the worker's data connection; empty if there is none.
channel: The id of the channel in the server's process.
server_address: The wire address of the server's end.
same_host: Whether the two can share memory.
)doc");

REGISTER_OP("TfStrategies>ChannelClose")
    .Input("channel: int64")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle unused;
      return context->WithRank(context->input(0), 0, &unused);
    })
    .Doc(R"doc(
Closes a channel of the process that runs this; nothing happens when it is closed already.

channel: Its id there.
)doc");

class ChannelAcceptKernel final : public tensorflow::OpKernel {
 public:
  explicit ChannelAcceptKernel(OpKernelConstruction* construction) : OpKernel(construction) {}

  void Compute(OpKernelContext* context) override {
    Request request;
    Names names;
    OP_REQUIRES_OK(context, Text(context, 0, UcxWorker::kMaxAddressBytes, &request.address));
    OP_REQUIRES_OK(context, Text(context, 1, kMostText, &request.host));
    OP_REQUIRES_OK(context, Text(context, 2, kMostText, &names.peer));
    OP_REQUIRES_OK(context, Text(context, 3, kMostText, &names.mine));
    OP_REQUIRES_OK(context, Texts(context, 4, kMostText, &request.transports));
    OP_REQUIRES_OK(context, Text(context, 5, kMostText, &request.token));
    Accepted accepted;
    OP_REQUIRES_OK(context, ToTensorFlow(Accept(request, names, &accepted)));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<int64_t>()() = accepted.channel;
    OP_REQUIRES_OK(context, context->allocate_output(1, {}, &output));
    output->scalar<tstring>()() = accepted.address;
    OP_REQUIRES_OK(context, context->allocate_output(2, {}, &output));
    output->scalar<bool>()() = accepted.same_host;
  }

 private:
  static absl::Status Texts(OpKernelContext* context, int input, size_t most,
                            std::vector<std::string>* texts) {
    const auto values = context->input(input).flat<tstring>();
    for (int64_t i = 0; i < values.size(); ++i) {
      if (values(i).size() > most) {
        return absl::InvalidArgumentError(absl::StrCat("input ", input, " of ChannelAccept has ",
                                                       values(i).size(), " bytes; at most ", most,
                                                       " are accepted"));
      }
      texts->emplace_back(values(i));
    }
    return absl::OkStatus();
  }

  static absl::Status Text(OpKernelContext* context, int input, size_t most, std::string* text) {
    std::vector<std::string> texts;
    TF_RETURN_IF_ERROR(Texts(context, input, most, &texts));
    if (texts.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", input, " of ChannelAccept has ", texts.size(), " texts instead of one"));
    }
    *text = texts[0];
    return absl::OkStatus();
  }
};

class ChannelCloseKernel final : public tensorflow::OpKernel {
 public:
  explicit ChannelCloseKernel(OpKernelConstruction* construction) : OpKernel(construction) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& id = context->input(0);
    OP_REQUIRES(
        context, id.NumElements() == 1,
        absl::InvalidArgumentError(absl::StrCat("ChannelClose takes one id, not ", id.NumElements())));
    CloseChannel(id.flat<int64_t>()(0));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>ChannelAccept").Device(tensorflow::DEVICE_CPU),
                        ChannelAcceptKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>ChannelClose").Device(tensorflow::DEVICE_CPU), ChannelCloseKernel);

}  // namespace
}  // namespace tf_strategies

// TfStrategies>LedgerPull, LedgerPush, LedgerStaleness: asynchronous training with bounded staleness.

#include <utility>

#include "ops/kernels/ledger_kernel.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelContext;

REGISTER_OP("TfStrategies>LedgerPull")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("max_staleness: int64")
    .Input("timeout: double")
    .Output("step: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Waits until the worker may read the weights.

worker: Of the caller.
incarnation: Of the caller.
max_staleness: How many updates it may be ahead of the slowest worker that trains; -1: any number.
timeout: How long to wait for slower workers, in seconds.
step: How many updates have been applied.
ledger: Its name.
)doc");

class PullKernel final : public WaitingLedgerKernel {
 public:
  using WaitingLedgerKernel::WaitingLedgerKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ledger::Caller caller;
    int64_t max_staleness = 0;
    double timeout = 0;
    OP_REQUIRES_OK_ASYNC(context, ReadCaller(context, &caller), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<int64_t>(context, "max_staleness", &max_staleness), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<double>(context, "timeout", &timeout), done);
    Waiting call = Begin(context, caller, "LedgerPull", std::move(done), WriteStep);
    ledger().Pull(caller, max_staleness, timeout, call.ticket, std::move(call.answer));
  }
};

REGISTER_OP("TfStrategies>LedgerPush")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("pulled: int64")
    .Output("staleness: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Counts one update.

worker: Of the caller.
incarnation: Of the caller.
pulled: The step at which the worker read the weights.
staleness: How many updates there have been since.
ledger: Its name.
)doc");

class PushKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    ledger::Caller caller;
    int64_t pulled = 0;
    int64_t staleness = 0;
    TF_RETURN_IF_ERROR(ReadCaller(context, &caller));
    TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "pulled", &pulled));
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger().Push(caller, pulled, &staleness)));
    return WriteScalar(context, "staleness", staleness);
  }
};

REGISTER_OP("TfStrategies>LedgerStaleness")
    .Output("histogram: int64")
    .Output("count: int64")
    .Output("total: int64")
    .Output("maximum: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(ledger::StalenessCounts::kBins));
      for (int output : {1, 2, 3}) context->set_output(output, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns how stale the gradients were that have been applied.

histogram: [256] updates by staleness; the last counts 255 or more.
count: Updates.
total: The sum of their staleness.
maximum: The greatest.
ledger: Its name.
)doc");

class StalenessKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    const ledger::StalenessCounts counts = ledger().Staleness();
    TF_RETURN_IF_ERROR(WriteVector<int64_t>(context, "histogram", counts.histogram));
    TF_RETURN_IF_ERROR(WriteScalar(context, "count", counts.count));
    TF_RETURN_IF_ERROR(WriteScalar(context, "total", counts.total));
    return WriteScalar(context, "maximum", counts.maximum);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerPull").Device(tensorflow::DEVICE_CPU), PullKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerPush").Device(tensorflow::DEVICE_CPU), PushKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerStaleness").Device(tensorflow::DEVICE_CPU), StalenessKernel);

}  // namespace
}  // namespace tf_strategies

// TfStrategies>LedgerSubmit, LedgerApplied, LedgerCounts, LedgerSubmitters: synchronous training with backup workers.

#include <utility>
#include <vector>

#include "ops/kernels/ledger_kernel.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelContext;

REGISTER_OP("TfStrategies>LedgerSubmit")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("step: int64")
    .Input("rows: int64")
    .Input("quorum: int32")
    .Input("timeout: double")
    .Output("decision: int32")
    .Output("current: int64")
    .Output("members: int32")
    .Output("total_rows: int64")
    .Output("update: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0, 0, 1, 0, 0>)
    .Doc(R"doc(
Submits the worker's gradients of a step, which it has accumulated before, and waits until they are counted or dropped.

worker: Of the caller.
incarnation: Of the caller.
step: At which the worker read the weights.
rows: Of input that the gradients stand for.
quorum: How many workers' gradients make an update, if so many train.
timeout: How long to wait for the others, in seconds.
decision: 0: dropped, as they are late. 1: counted, and applied by another worker. 2: the caller is to apply the gradients of the
  members for the current step, then to call LedgerApplied; it may be no member itself, when the worker that was to apply is lost.
current: The current step; with decision 2 the one to apply.
members: With decision 2: the workers whose gradients count, ascending; else empty.
total_rows: With decision 2: the rows of all members; else 0.
update: With decision 2: the number of this update, for LedgerRunOnce; else -1.
ledger: Its name.
)doc");

class SubmitKernel final : public WaitingLedgerKernel {
 public:
  using WaitingLedgerKernel::WaitingLedgerKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ledger::Caller caller;
    ledger::SubmitRequest request;
    OP_REQUIRES_OK_ASYNC(context, ReadCaller(context, &caller), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<int64_t>(context, "step", &request.step), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<int64_t>(context, "rows", &request.rows), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<int32_t>(context, "quorum", &request.quorum), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<double>(context, "timeout", &request.timeout), done);
    Waiting call = Begin(context, caller, "LedgerSubmit", std::move(done), WriteDecision);
    ledger().Submit(caller, request, call.ticket, std::move(call.answer));
  }

 private:
  static absl::Status WriteDecision(OpKernelContext* context, const ledger::Outcome& outcome) {
    TF_RETURN_IF_ERROR(WriteScalar<int32_t>(context, "decision", outcome.decision));
    TF_RETURN_IF_ERROR(WriteScalar(context, "current", outcome.step));
    TF_RETURN_IF_ERROR(WriteVector<int32_t>(context, "members", outcome.members));
    TF_RETURN_IF_ERROR(WriteScalar(context, "total_rows", outcome.rows));
    return WriteScalar(context, "update", outcome.update);
  }
};

REGISTER_OP("TfStrategies>LedgerApplied")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("step: int64")
    .Output("next: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Says that the step is applied; the next one begins.

worker: Of the caller, which was told to apply it.
incarnation: Of the caller.
step: The one applied.
next: The current step from now on.
ledger: Its name.
)doc");

class AppliedKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    ledger::Caller caller;
    int64_t step = 0;
    int64_t next = 0;
    TF_RETURN_IF_ERROR(ReadCaller(context, &caller));
    TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "step", &step));
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger().Applied(caller, step, &next)));
    return WriteScalar(context, "next", next);
  }
};

REGISTER_OP("TfStrategies>LedgerCounts")
    .Output("dropped: int64")
    .Output("counted: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<1, 1>)
    .Doc(R"doc(
Returns how many submissions of each worker were dropped and counted.

dropped: [size] by worker.
counted: [size] by worker.
ledger: Its name.
)doc");

class CountsKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    std::vector<int64_t> dropped, counted;
    ledger().Counts(&dropped, &counted);
    TF_RETURN_IF_ERROR(WriteVector<int64_t>(context, "dropped", dropped));
    return WriteVector<int64_t>(context, "counted", counted);
  }
};

REGISTER_OP("TfStrategies>LedgerSubmitters")
    .Output("workers: int32")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<1>)
    .Doc(R"doc(
Returns the workers that have submitted gradients for the current step.

workers: [m] ascending.
ledger: Its name.
)doc");

class SubmittersKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    return WriteVector<int32_t>(context, "workers", ledger().Submitters());
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerSubmit").Device(tensorflow::DEVICE_CPU), SubmitKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerApplied").Device(tensorflow::DEVICE_CPU), AppliedKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerCounts").Device(tensorflow::DEVICE_CPU), CountsKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerSubmitters").Device(tensorflow::DEVICE_CPU),
                        SubmittersKernel);

}  // namespace
}  // namespace tf_strategies

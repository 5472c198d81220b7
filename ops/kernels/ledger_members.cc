// TfStrategies>LedgerJoin, LedgerAgree, LedgerLeave, LedgerEnter, LedgerStep, LedgerSetStep, LedgerRollBack: the
// members and the number of the step.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/ledger_kernel.h"
#include "ops/ledger/checks.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::tstring;

REGISTER_OP("TfStrategies>LedgerJoin")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("size: int32")
    .Input("names: string")
    .Input("options: string")
    .Output("step: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle ignored;
      for (int i : {0, 1, 2, 4}) TF_RETURN_IF_ERROR(context->WithRank(context->input(i), 0, &ignored));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(3), 1, &ignored));
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Makes the calling process the worker of this number, in place of a former one.

worker: 0 to size - 1.
incarnation: Tells this process from others of the same worker.
size: How many workers there are.
names: [size] for messages: "worker 1 (10.0.0.2:2222)".
options: What must be the same on every worker; the first that joins decides.
step: The current one.
ledger: Its name.
)doc");

class JoinKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    ledger::Caller caller;
    int32_t size = 0;
    std::string options;
    const tensorflow::Tensor* names = nullptr;
    TF_RETURN_IF_ERROR(ReadCaller(context, &caller));
    TF_RETURN_IF_ERROR(ReadScalar<int32_t>(context, "size", &size));
    TF_RETURN_IF_ERROR((ReadScalar<std::string, tstring>(context, "options", &options)));
    TF_RETURN_IF_ERROR(context->input("names", &names));
    if (names->dims() != 1 || names->dim_size(0) != size) {
      return absl::InvalidArgumentError(
          absl::StrCat("names must have the shape [size], [", size, "]; got ", names->shape().DebugString()));
    }
    std::vector<std::string> texts;
    for (int i = 0; i < size; ++i) texts.emplace_back(names->vec<tstring>()(i));
    int64_t step = 0;
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger().Join(caller, texts, options, &step)));
    return WriteScalar(context, "step", step);
  }
};

REGISTER_OP("TfStrategies>LedgerAgree")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("key: string")
    .Input("text: string")
    .Output("step: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Fails unless every worker brings the same text for the key.

worker: Of the caller.
incarnation: Of the caller.
key: What is compared.
text: The first that comes stays.
step: The current one.
ledger: Its name.
)doc");

class AgreeKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    ledger::Caller caller;
    std::string key, text;
    TF_RETURN_IF_ERROR(ReadCaller(context, &caller));
    TF_RETURN_IF_ERROR((ReadScalar<std::string, tstring>(context, "key", &key)));
    TF_RETURN_IF_ERROR((ReadScalar<std::string, tstring>(context, "text", &text)));
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger().Agree(caller, key, text)));
    return WriteScalar(context, "step", ledger().Step());
  }
};

REGISTER_OP("TfStrategies>LedgerLeave")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("finished: bool")
    .Output("step: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Says that the worker trains no more; its calls that wait end.

worker: Of the caller.
incarnation: Of the caller.
finished: For good, or until its next fit.
step: The current one.
ledger: Its name.
)doc");

class LeaveKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    ledger::Caller caller;
    bool finished = false;
    TF_RETURN_IF_ERROR(ReadCaller(context, &caller));
    TF_RETURN_IF_ERROR(ReadScalar<bool>(context, "finished", &finished));
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger().Leave(caller, finished)));
    return WriteScalar(context, "step", ledger().Step());
  }
};

REGISTER_OP("TfStrategies>LedgerEnter")
    .Input("worker: int32")
    .Input("incarnation: int64")
    .Input("generation: int64")
    .Input("timeout: double")
    .Output("step: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Begins a fit, together with the other workers.

worker: Of the caller.
incarnation: Of the caller.
generation: Which fit, from 1.
timeout: How long to wait for the others, in seconds; 0: not at all.
step: The current one.
ledger: Its name.
)doc");

class EnterKernel final : public WaitingLedgerKernel {
 public:
  using WaitingLedgerKernel::WaitingLedgerKernel;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ledger::Caller caller;
    int64_t generation = 0;
    double timeout = 0;
    OP_REQUIRES_OK_ASYNC(context, ReadCaller(context, &caller), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<int64_t>(context, "generation", &generation), done);
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<double>(context, "timeout", &timeout), done);
    Waiting call = Begin(context, caller, "LedgerEnter", std::move(done), WriteStep);
    ledger().Enter(caller, generation, timeout, call.ticket, std::move(call.answer));
  }
};

REGISTER_OP("TfStrategies>LedgerStep")
    .Output("step: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Returns how many updates have been applied.

step: Counted from the step that was set last.
ledger: Its name.
)doc");

class StepKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    return WriteScalar(context, "step", ledger().Step());
  }
};

REGISTER_OP("TfStrategies>LedgerSetStep")
    .Input("step: int64")
    .Output("current: int64")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0>)
    .Doc(R"doc(
Sets the step, as after restoring a checkpoint. Fails while gradients are pending.

step: 0 or more.
current: The same.
ledger: Its name.
)doc");

class SetStepKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    int64_t step = 0;
    TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "step", &step));
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger().SetStep(step)));
    return WriteScalar(context, "current", step);
  }
};

REGISTER_OP("TfStrategies>LedgerRollBack")
    .Input("step: int64")
    .Input("first: int64")
    .Output("next: int64")
    .Output("idle: bool")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsIn<0, 0>)
    .Doc(R"doc(
Returns to a step before: ends what waits to be applied, forgets its gradients, and refuses parts of earlier updates.

Does not wait. To be called again, with the same inputs, until it is idle.

step: 0 or more.
first: The first update whose parts may run from now on; -1: as this ledger numbers it.
next: The first update whose parts may run from now on.
idle: Whether no part of an update is running.
ledger: Its name.
)doc");

class RollBackKernel final : public LedgerKernel {
 public:
  using LedgerKernel::LedgerKernel;

 protected:
  absl::Status Call(OpKernelContext* context) override {
    int64_t step = 0, first = 0, next = 0;
    TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "step", &step));
    TF_RETURN_IF_ERROR(ReadScalar<int64_t>(context, "first", &first));
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger::CheckAtLeast("first", first, -1)));
    TF_RETURN_IF_ERROR(ToTensorFlow(ledger().RollBack(step, &next)));
    if (first >= 0) next = first;
    accumulator().Discard(std::numeric_limits<int64_t>::max());
    TF_RETURN_IF_ERROR(WriteScalar(context, "idle", exactly_once().Fence(next)));
    return WriteScalar(context, "next", next);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerJoin").Device(tensorflow::DEVICE_CPU), JoinKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerAgree").Device(tensorflow::DEVICE_CPU), AgreeKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerLeave").Device(tensorflow::DEVICE_CPU), LeaveKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerEnter").Device(tensorflow::DEVICE_CPU), EnterKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerStep").Device(tensorflow::DEVICE_CPU), StepKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerSetStep").Device(tensorflow::DEVICE_CPU), SetStepKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerRollBack").Device(tensorflow::DEVICE_CPU), RollBackKernel);

}  // namespace
}  // namespace tf_strategies

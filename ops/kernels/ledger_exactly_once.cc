// TfStrategies>LedgerRunOnce: runs a server's part of an update exactly once, even if the worker that
// requested it is lost meanwhile.

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/kernels/ledger_kernel.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/function.h"

namespace tf_strategies {
namespace {

using tensorflow::FunctionLibraryRuntime;
using tensorflow::NameAttrList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("TfStrategies>LedgerRunOnce")
    .Input("update: int64")
    .Input("arguments: Targs")
    .Output("now: bool")
    .Attr("Targs: list(type) >= 0")
    .Attr("f: func")
    .Attr("part: int >= 0")
    .Attr("ledger: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Calls a function on this device, unless it was called for the same part of the same update before. Waits while it is being called.

Once begun, the function runs to its end, even if the step that asked for it is cancelled. If it fails, it is not called again
for this update.

update: As LedgerSubmit numbers it.
arguments: Of the function.
now: Whether it was called now.
f: Without results. All it uses is on this device.
part: Those of one update ascend.
ledger: Its name.
)doc");

class ExactlyOnceKernel final : public WaitingLedgerKernel {
 public:
  explicit ExactlyOnceKernel(OpKernelConstruction* construction) : WaitingLedgerKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("f", &function_));
    OP_REQUIRES_OK(construction, construction->GetAttr("part", &part_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    int64_t update = 0;
    FunctionLibraryRuntime::Handle handle = 0;
    OP_REQUIRES_OK_ASYNC(context, ReadScalar<int64_t>(context, "update", &update), done);
    OP_REQUIRES_OK_ASYNC(context, Instantiate(context->function_library(), &handle), done);
    exactly_once().Begin(
        update, part_, [this, context, handle, done = std::move(done)](ledger::ExactlyOnce::Answer answer) {
          switch (answer) {
            case ledger::ExactlyOnce::Answer::kNow: return Run(context, handle, done);
            case ledger::ExactlyOnce::Answer::kDone: return End(context, false, done);
            case ledger::ExactlyOnce::Answer::kFailed:
              context->SetStatus(
                  absl::FailedPreconditionError("this update failed on this server before, and may have been "
                                                "made in part; continue from a checkpoint"));
              return done();
          }
        });
  }

 private:
  // The objects that a run needs until it ends, besides the context.
  struct Running {
    tensorflow::CancellationManager never_cancelled;
    std::vector<Tensor> results;
  };

  absl::Status Instantiate(FunctionLibraryRuntime* library, FunctionLibraryRuntime::Handle* handle) {
    if (library == nullptr) return absl::InternalError("LedgerRunOnce needs a function library");
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = handles_.find(library);
    if (found != handles_.end()) {
      *handle = found->second;
      return absl::OkStatus();
    }
    FunctionLibraryRuntime::InstantiateOptions options;
    options.target = library->device()->name();
    TF_RETURN_IF_ERROR(
        library->Instantiate(function_.name(), tensorflow::AttrSlice(&function_.attr()), options, handle));
    handles_.emplace(library, *handle);
    return absl::OkStatus();
  }

  void Run(OpKernelContext* context, FunctionLibraryRuntime::Handle handle, const DoneCallback& done) const {
    auto running = std::make_shared<Running>();
    FunctionLibraryRuntime::Options options(context->step_id());
    options.create_rendezvous = true;
    options.cancellation_manager = &running->never_cancelled;
    options.step_container = context->step_container();
    options.runner = context->runner();
    options.stats_collector = context->stats_collector();
    std::vector<Tensor> arguments;
    for (int i = 1; i < context->num_inputs(); ++i) arguments.push_back(context->input(i));
    context->function_library()->Run(options, handle, arguments, &running->results,
                                     [this, context, running, done](const absl::Status& status) {
                                       if (!status.ok()) context->SetStatus(status);
                                       exactly_once().End(status.ok());
                                       End(context, true, done);
                                     });
  }

  static void End(OpKernelContext* context, bool now, const DoneCallback& done) {
    const absl::Status written = WriteScalar(context, "now", now);
    if (!written.ok()) context->SetStatus(written);
    done();
  }

  NameAttrList function_;
  int part_ = 0;
  std::mutex mutex_;
  std::map<FunctionLibraryRuntime*, FunctionLibraryRuntime::Handle> handles_;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>LedgerRunOnce").Device(tensorflow::DEVICE_CPU), ExactlyOnceKernel);

}  // namespace
}  // namespace tf_strategies

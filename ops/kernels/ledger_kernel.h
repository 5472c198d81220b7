// The common base of the kernels of a ledger: the ledger, the caller, checked scalars, and calls that wait.
//
// Every operation has an output. An eager operation on the device of another process returns before it has
// run, and only its outputs can be waited for.
#ifndef OPS_KERNELS_LEDGER_KERNEL_H_
#define OPS_KERNELS_LEDGER_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/completion.h"
#include "ops/kernels/status_convert.h"
#include "ops/ledger/registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/tstring.h"

namespace tf_strategies {

// Returns a scalar input, converted to To. Sets the context's status if it is not a scalar.
template <typename To, typename From = To>
absl::Status ReadScalar(tensorflow::OpKernelContext* context, const char* name, To* value) {
  const tensorflow::Tensor* input = nullptr;
  TF_RETURN_IF_ERROR(context->input(name, &input));
  if (input->dims() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be a scalar; got shape ", input->shape().DebugString()));
  }
  *value = To(input->scalar<From>()());
  return absl::OkStatus();
}

inline absl::Status ReadCaller(tensorflow::OpKernelContext* context, ledger::Caller* caller) {
  TF_RETURN_IF_ERROR(ReadScalar<int>(context, "worker", &caller->worker));
  return ReadScalar<int64_t>(context, "incarnation", &caller->incarnation);
}

template <typename T>
absl::Status WriteScalar(tensorflow::OpKernelContext* context, const char* name, T value) {
  tensorflow::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(name, {}, &output));
  output->scalar<T>()() = value;
  return absl::OkStatus();
}

template <typename T, typename Values>
absl::Status WriteVector(tensorflow::OpKernelContext* context, const char* name, const Values& values) {
  tensorflow::Tensor* output = nullptr;
  const tensorflow::TensorShape shape({static_cast<int64_t>(values.size())});
  TF_RETURN_IF_ERROR(context->allocate_output(name, shape, &output));
  std::copy(values.begin(), values.end(), output->vec<T>().data());
  return absl::OkStatus();
}

// All inputs are scalars; every output has the rank given.
template <int... kRanks>
absl::Status ScalarsIn(tensorflow::shape_inference::InferenceContext* context) {
  tensorflow::shape_inference::ShapeHandle ignored;
  for (int i = 0; i < context->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(context->WithRank(context->input(i), 0, &ignored));
  }
  int output = 0;
  (context->set_output(output++, context->UnknownShapeOfRank(kRanks)), ...);
  return absl::OkStatus();
}

// A call that does not wait. Attribute: ledger (its name).
class LedgerKernel : public tensorflow::OpKernel {
 public:
  explicit LedgerKernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    std::string name;
    OP_REQUIRES_OK(construction, construction->GetAttr("ledger", &name));
    OP_REQUIRES_OK(construction, ToTensorFlow(ledger::OpenBooks(name, &books_)));
  }

  void Compute(tensorflow::OpKernelContext* context) final { OP_REQUIRES_OK(context, Call(context)); }

 protected:
  virtual absl::Status Call(tensorflow::OpKernelContext* context) = 0;
  ledger::Ledger& ledger() const { return books_->ledger; }
  ledger::GradientAccumulator& accumulator() const { return books_->accumulator; }
  ledger::ExactlyOnce& exactly_once() const { return books_->exactly_once; }

 private:
  ledger::Books* books_ = nullptr;
};

// A call that may wait. If TensorFlow cancels the step, the ledger removes the call.
class WaitingLedgerKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit WaitingLedgerKernel(tensorflow::OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    std::string name;
    OP_REQUIRES_OK(construction, construction->GetAttr("ledger", &name));
    OP_REQUIRES_OK(construction, ToTensorFlow(ledger::OpenBooks(name, &books_)));
  }

 protected:
  using Write = absl::Status (*)(tensorflow::OpKernelContext* context, const ledger::Outcome& outcome);

  // A call in progress.
  struct Waiting {
    int64_t ticket;
    ledger::Ledger::Answer answer;
  };

  // The context must not be used afterwards. write: makes the outputs.
  Waiting Begin(tensorflow::OpKernelContext* context, const ledger::Caller& caller, const char* what,
                DoneCallback done, Write write) const {
    ledger::Ledger* const ledger = &books_->ledger;
    const int64_t ticket = ledger->NewTicket();
    const std::string text = absl::StrCat(what, " of ", ledger->NameOf(caller.worker));
    auto completion =
        Completion::Begin(context, text, std::move(done), [ledger, ticket] { ledger->Cancel(ticket); });
    return {ticket, [completion = std::move(completion), write](const Status& status,
                                                                const ledger::Outcome& outcome) {
              absl::Status end = ToTensorFlow(status);
              if (end.ok()) {
                completion->WithContext(
                    [&](tensorflow::OpKernelContext* context) { end = write(context, outcome); });
              }
              return completion->TryEnd(end) && end.ok();
            }};
  }

  static absl::Status WriteStep(tensorflow::OpKernelContext* context, const ledger::Outcome& outcome) {
    return WriteScalar(context, "step", outcome.step);
  }

  ledger::Ledger& ledger() const { return books_->ledger; }
  ledger::ExactlyOnce& exactly_once() const { return books_->exactly_once; }

 private:
  ledger::Books* books_ = nullptr;
};

}  // namespace tf_strategies

#endif  // OPS_KERNELS_LEDGER_KERNEL_H_

// The common base of the kernels of collectives: their attributes, communicator and completion.
#ifndef OPS_KERNELS_COLLECTIVE_KERNEL_H_
#define OPS_KERNELS_COLLECTIVE_KERNEL_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/communicator/registry.h"
#include "ops/kernels/completion.h"
#include "ops/kernels/status_convert.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_strategies {

// The error that peers get if a rank fails before the collective begins.
inline Status CannotBegin(const std::string& label, const absl::Status& why) {
  const Status cause = FromTensorFlow(why);
  return Status(cause.code(), "collective '" + label + "' could not begin: " + cause.message());
}

// An async kernel that submits to a communicator. For a small message its thread polls until nothing has
// arrived for a millisecond, at most 10 ms. Attributes: communicator (its id), instance, label (for
// messages), layout (where there is one).
class CollectiveKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit CollectiveKernel(tensorflow::OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("communicator", &communicator_));
    OP_REQUIRES_OK(construction, construction->GetAttr("instance", &instance_));
    OP_REQUIRES_OK(construction, construction->GetAttr("label", &label_));
    if (construction->HasAttr("layout")) {
      OP_REQUIRES_OK(construction, construction->GetAttr("layout", &layout_));
    }
  }

  // The thread that computes the last input then submits the collective at once, without waiting for an
  // inter-op thread. So packs are sent early.
  bool IsExpensive() override { return false; }

 protected:
  // Returns null and sets the context's status if the communicator was closed.
  std::shared_ptr<Communicator> GetCommunicator(tensorflow::OpKernelContext* context) const {
    auto communicator = FindCommunicator(communicator_);
    if (communicator == nullptr) {
      context->SetStatus(absl::CancelledError(
          absl::StrCat("collective '", label_,
                       "' uses a communicator that does not exist here: its strategy has ended, or this "
                       "process was forked after the strategy "
                       "was made; make strategies in the process that uses them")));
    }
    return communicator;
  }

  Communicator::Request MakeRequest() const {
    Communicator::Request request;
    request.name = label_;
    request.layout = layout_;
    request.instance = static_cast<int>(instance_);
    return request;
  }

  // Ends the kernel with an error before its collective begins. The peers that wait for it get the error,
  // too.
  void Refuse(tensorflow::OpKernelContext* context, Communicator* communicator, const absl::Status& why,
              const DoneCallback& done) const {
    communicator->Report(static_cast<int>(instance_), CannotBegin(label_, why));
    context->SetStatus(why);
    done();
  }

  // Called on the progress thread. It does not block this thread: after an async kernel, TensorFlow's
  // executor runs ready operations on its own pool.
  static Communicator::Done EndOf(std::shared_ptr<Completion> completion) {
    return
        [completion = std::move(completion)](const Status& status) { completion->End(ToTensorFlow(status)); };
  }

  int64_t communicator_ = 0;
  int64_t instance_ = 0;
  std::string label_;
  std::string layout_;
};

}  // namespace tf_strategies

#endif  // OPS_KERNELS_COLLECTIVE_KERNEL_H_

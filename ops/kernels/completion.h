// Completes an asynchronous kernel exactly once: when its collective ends, or earlier if TensorFlow cancels
// the step because another operation failed.
//
// A cancelled collective continues without its kernel. The request keeps its memory alive, so the peers get
// their results and the group does not fail.
#ifndef OPS_KERNELS_COMPLETION_H_
#define OPS_KERNELS_COMPLETION_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_strategies {

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  using DoneCallback = tensorflow::AsyncOpKernel::DoneCallback;

  // From now on the context, the kernel and its inputs may be deleted at any time: use the context only in
  // WithContext.
  static std::shared_ptr<Completion> Begin(tensorflow::OpKernelContext* context, const std::string& label,
                                           DoneCallback done) {
    return Begin(context, absl::StrCat("collective '", label, "'"), std::move(done), [] {});
  }

  // cancelled() is called when TensorFlow has ended the kernel with an error that names `what`.
  static std::shared_ptr<Completion> Begin(tensorflow::OpKernelContext* context, const std::string& what,
                                           DoneCallback done, std::function<void()> cancelled) {
    auto completion = std::make_shared<Completion>(context, std::move(done));
    completion->Watch(what, std::move(cancelled));
    return completion;
  }

  Completion(tensorflow::OpKernelContext* context, DoneCallback done)
      : context_(context), manager_(context->cancellation_manager()), done_(std::move(done)) {}

  // The first call ends the kernel; later ones do nothing.
  void End(const absl::Status& status) { TryEnd(status); }

  // The same as End. Returns whether this was the first call.
  bool TryEnd(const absl::Status& status) {
    DoneCallback done;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (context_ == nullptr) return false;
      if (!status.ok()) context_->SetStatus(status);
      context_ = nullptr;
      done = std::move(done_);
    }
    if (manager_ != nullptr) manager_->TryDeregisterCallback(token_);
    done();
    return true;
  }

  // Calls use(context), during which the kernel cannot end. Returns false without a call if it has ended.
  template <typename Use>
  bool WithContext(const Use& use) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (context_ == nullptr) return false;
    use(context_);
    return true;
  }

 private:
  void Watch(const std::string& what, std::function<void()> cancelled) {
    if (manager_ == nullptr) return;
    token_ = manager_->get_cancellation_token();
    const auto cancel = [self = shared_from_this(), what, cancelled = std::move(cancelled)] {
      const bool ended = self->TryEnd(absl::CancelledError(
          absl::StrCat(what, " was cancelled, because another operation of the same step failed")));
      if (ended) cancelled();
    };
    if (!manager_->RegisterCallback(token_, cancel)) cancel();
  }

  std::mutex mutex_;
  tensorflow::OpKernelContext* context_;  // null once the kernel has ended
  tensorflow::CancellationManager* const manager_;
  tensorflow::CancellationToken token_ = 0;
  DoneCallback done_;
};

}  // namespace tf_strategies

#endif  // OPS_KERNELS_COMPLETION_H_

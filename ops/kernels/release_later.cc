// TfStrategies>ReleaseLater: a resource that nobody else uses any more ends on a thread of its own.
//
// In TensorFlow the end of an iterator of tf.data waits for the thread that tunes it. That thread can miss the signal, and
// then sleeps for as long as the iterator has lived, a minute at most. Whoever drops the last handle waits for it, in Python with
// the interpreter locked.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_strategies {
namespace {

using tensorflow::ResourceHandle;

REGISTER_OP("TfStrategies>ReleaseLater")
    .Input("handle: resource")
    .Attr("at_exit: bool = false")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Ends a resource on a thread of its own, as soon as nobody else has a handle of it.

handle: [], of a resource that is counted by its handles; any other is left alone.
at_exit: The process ends: this resource, and those that are still waited for, are left as they are.
)doc");

constexpr std::chrono::milliseconds kFirstLook{5};
constexpr std::chrono::milliseconds kLongestPause{500};
constexpr std::chrono::milliseconds kAtExit{200};

// What all threads share; it is never destroyed, for the threads may outlive the statics.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool exits = false;
  int threads = 0;
  std::vector<ResourceHandle> kept;  // until the process ends
};

Shared& TheShared() {
  static Shared* const shared = new Shared;
  return *shared;
}

// Takes the only copy that the thread keeps: handles cannot be moved, so `std::thread` itself would keep another.
void Release(std::unique_ptr<ResourceHandle> handle) {
  Shared& shared = TheShared();
  std::unique_lock<std::mutex> lock(shared.mutex);
  for (auto pause = kFirstLook; !shared.exits && !handle->resource()->RefCountIsOne();
       pause = std::min(2 * pause, kLongestPause)) {
    shared.changed.wait_for(lock, pause);
  }
  if (shared.exits) {
    shared.kept.push_back(*handle);
  } else {
    lock.unlock();
    handle.reset();
    lock.lock();
  }
  --shared.threads;
  shared.changed.notify_all();
}

// The others get a moment to end what they have: its threads may need the interpreter, which goes soon.
void KeepUntilTheEnd(ResourceHandle handle) {
  Shared& shared = TheShared();
  std::unique_lock<std::mutex> lock(shared.mutex);
  shared.kept.push_back(std::move(handle));
  if (!shared.exits) shared.changed.wait_for(lock, kAtExit, [&shared] { return shared.threads == 0; });
  shared.exits = true;
  shared.changed.notify_all();
}

class ReleaseLaterKernel final : public tensorflow::OpKernel {
 public:
  explicit ReleaseLaterKernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("at_exit", &at_exit_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    ResourceHandle handle = context->input(0).scalar<ResourceHandle>()();
    if (!handle.IsRefCounting()) return;
    if (at_exit_) return KeepUntilTheEnd(std::move(handle));
    Shared& shared = TheShared();
    {
      const std::lock_guard<std::mutex> lock(shared.mutex);
      ++shared.threads;
    }
    std::thread(Release, std::make_unique<ResourceHandle>(handle)).detach();
  }

  bool IsExpensive() override { return false; }

 private:
  bool at_exit_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>ReleaseLater").Device(tensorflow::DEVICE_CPU), ReleaseLaterKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>ReleaseLater").Device(tensorflow::DEVICE_GPU).HostMemory("handle"),
                        ReleaseLaterKernel);

}  // namespace
}  // namespace tf_strategies

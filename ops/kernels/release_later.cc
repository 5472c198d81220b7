// TfStrategies>ReleaseLater: deletes an unused resource on a thread of its own. TfStrategies>StopReleasing:
// keeps the remaining resources until the process ends.
//
// In TensorFlow the destructor of a tf.data iterator waits for the thread that tunes it. This thread can miss
// the signal to stop, and then sleeps as long as the iterator has existed, at most a minute. The thread that
// deletes the last handle waits for this, in Python with the interpreter locked.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
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
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Ends a resource on a thread of its own, as soon as nobody else has a handle of it. After StopReleasing, keeps the resource.

handle: [], of a resource that is counted by its handles; any other is left alone.
)doc");

REGISTER_OP("TfStrategies>StopReleasing")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Prepares for the end of the process. Waits up to a second for resources that are ending, and keeps all others until then.
)doc");

constexpr std::chrono::milliseconds kFirstLook{5};
constexpr std::chrono::milliseconds kLongestPause{500};
constexpr std::chrono::seconds kAtExit{1};

// The state that all threads share. It is never destroyed, because the threads may outlive static objects.
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

thread_local bool is_release_thread = false;
std::terminate_handler terminate_before = nullptr;

// A dataset may hold Python objects, whose deletion needs the interpreter. When the interpreter is ending,
// Python before 3.14 unwinds the stack of a thread that requests it, and unwinding a destructor ends the
// process with SIGABRT. So a thread that deletes a dataset waits here until the process has ended.
void StayOrTerminate() {
  while (is_release_thread) pause();
  if (terminate_before != nullptr) terminate_before();
}

// Takes the only copy of the handle. Handles cannot be moved, so `std::thread` would keep another copy.
void Release(std::unique_ptr<ResourceHandle> handle) {
  is_release_thread = true;
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

class ReleaseLaterKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    auto handle = std::make_unique<ResourceHandle>(context->input(0).scalar<ResourceHandle>()());
    if (!handle->IsRefCounting()) return;
    Shared& shared = TheShared();
    {
      const std::lock_guard<std::mutex> lock(shared.mutex);
      if (shared.exits) return shared.kept.push_back(*handle);
      ++shared.threads;
    }
    std::thread(Release, std::move(handle)).detach();
  }

  bool IsExpensive() override { return false; }
};

// Gives the threads a moment to finish, because they may need the interpreter.
class StopReleasingKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext*) override {
    Shared& shared = TheShared();
    std::unique_lock<std::mutex> lock(shared.mutex);
    shared.changed.wait_for(lock, kAtExit, [&shared] { return shared.threads == 0; });
    shared.exits = true;
    shared.changed.notify_all();
    if (shared.threads > 0) terminate_before = std::set_terminate(StayOrTerminate);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>ReleaseLater").Device(tensorflow::DEVICE_CPU), ReleaseLaterKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>ReleaseLater").Device(tensorflow::DEVICE_GPU).HostMemory("handle"),
                        ReleaseLaterKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>StopReleasing").Device(tensorflow::DEVICE_CPU),
                        StopReleasingKernel);

}  // namespace
}  // namespace tf_strategies

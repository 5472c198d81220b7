// TfStrategies>ReleaseLater: deletes an unused resource on a thread of its own. TfStrategies>StopReleasing:
// keeps the remaining resources until the process ends.
//
// In TensorFlow the destructor of a tf.data iterator waits for the thread that tunes it. This thread can miss
// the signal to stop, and then sleeps as long as the iterator has existed, at most a minute. The thread that
// deletes the last handle waits for this, in Python with the interpreter locked.
//
// The destructor of an iterator of several devices frees its dataset before it has stopped the thread that reads
// from it (TensorFlow 2.21, multi_device_iterator_ops.cc). So the dataset must be kept longer than the iterator.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
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
    .Input("kept: N * variant")
    .Attr("N: int >= 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Ends a resource on a thread of its own, as soon as nobody else has a handle of it. After StopReleasing, keeps the resource.
Only one call may wait for a resource.

handle: [], of a resource that is counted by its handles; any other is left alone.
kept: [], datasets that are kept until the resource has ended.
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

// A resource that is to end, and what is freed after it. If something is kept, the resource may still be in use.
struct Ending {
  std::vector<tensorflow::Tensor> kept;
  ResourceHandle handle;  // destroyed first

  bool IsUnused() const { return handle.resource()->RefCountIsOne(); }
};

// The state that all threads share. It is never destroyed, because the threads may outlive static objects.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool exits = false;
  std::set<const Ending*> waiting;  // until nobody else has a handle
  int deleting = 0;                 // threads

  bool HasWork() const {
    return deleting > 0 || std::any_of(waiting.begin(), waiting.end(), [](const Ending* ending) {
             return ending->kept.empty() || ending->IsUnused();
           });
  }
  std::vector<std::unique_ptr<Ending>> kept;  // until the process ends
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

// Takes the only copy of the handle.
void Release(Ending* taken) {
  std::unique_ptr<Ending> ending(taken);
  is_release_thread = true;
  Shared& shared = TheShared();
  std::unique_lock<std::mutex> lock(shared.mutex);
  // The end of another resource can make this one unused, and wakes this thread.
  for (auto pause = kFirstLook; !shared.exits && !ending->IsUnused();
       pause = std::min(2 * pause, kLongestPause)) {
    shared.changed.wait_for(lock, pause);
  }
  shared.waiting.erase(ending.get());
  if (shared.exits) return shared.kept.push_back(std::move(ending));
  ++shared.deleting;
  lock.unlock();
  ending.reset();
  lock.lock();
  --shared.deleting;
  shared.changed.notify_all();
}

class ReleaseLaterKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    auto ending = std::make_unique<Ending>();
    ending->handle = context->input(0).scalar<ResourceHandle>()();
    if (!ending->handle.IsRefCounting()) return;
    for (int i = 1; i < context->num_inputs(); ++i) ending->kept.push_back(context->input(i));
    Shared& shared = TheShared();
    {
      const std::lock_guard<std::mutex> lock(shared.mutex);
      if (shared.exits) return shared.kept.push_back(std::move(ending));
      shared.waiting.insert(ending.get());
    }
    Ending* const waiting = ending.release();
    try {
      std::thread(Release, waiting).detach();
    } catch (const std::system_error&) {  // no thread can be started
      const std::lock_guard<std::mutex> lock(shared.mutex);
      shared.waiting.erase(waiting);
      shared.kept.emplace_back(waiting);
    }
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
    shared.changed.wait_for(lock, kAtExit, [&shared] { return !shared.HasWork(); });
    shared.exits = true;
    shared.changed.notify_all();
    if (shared.deleting > 0) terminate_before = std::set_terminate(StayOrTerminate);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>ReleaseLater").Device(tensorflow::DEVICE_CPU), ReleaseLaterKernel);
REGISTER_KERNEL_BUILDER(
    Name("TfStrategies>ReleaseLater").Device(tensorflow::DEVICE_GPU).HostMemory("handle").HostMemory("kept"),
    ReleaseLaterKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>StopReleasing").Device(tensorflow::DEVICE_CPU),
                        StopReleasingKernel);

}  // namespace
}  // namespace tf_strategies

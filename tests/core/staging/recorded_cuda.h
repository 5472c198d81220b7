// RecordedCuda: a stand-in for the CUDA library that runs on the CPU. Streams are threads, so their work happens late and in
// any order that events allow. It checks each copy when it happens: both ends must be memory that still exists.
#ifndef TESTS_CORE_STAGING_RECORDED_CUDA_H_
#define TESTS_CORE_STAGING_RECORDED_CUDA_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/functions.h"
#include "ops/staging/serial_thread.h"

namespace tf_strategies {

// There is one at a time, which its functions use.
class RecordedCuda {
 public:
  using Memory = std::shared_ptr<std::vector<uint8_t>>;

  RecordedCuda();
  ~RecordedCuda();

  const TfsCudaFunctions* functions() const;

  // Memory of the device or pinned memory of the host. When it is freed, no copy may use it.
  Memory Allocate(int64_t bytes, uint8_t value = 0);

  TfsStream NewStream();
  // Adds work to a stream, as a kernel would be.
  void Launch(TfsStream stream, std::function<void()> work);
  // Waits for the work that is on the stream now.
  void Finish(TfsStream stream);
  void FinishAll();

  // Lets the n-th call of a function from now on fail, counted from 0.
  void FailCall(int n);

  std::vector<std::string> errors() const;  // copies that used memory which does not exist

 private:
  struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t recorded = 0, completed = 0;
  };

  static TfsCudaError Count();
  static TfsCudaError DeviceOfStream(TfsStream stream, int* device);
  static TfsCudaError CreateStream(int device, TfsStream* stream);
  static TfsCudaError CreateEvent(int device, TfsEvent* event);
  static TfsCudaError RecordEvent(int device, TfsEvent event, TfsStream stream);
  static TfsCudaError StreamWaits(int device, TfsStream stream, TfsEvent event);
  static TfsCudaError HostWaits(int device, TfsEvent event);
  static TfsCudaError Copy(int device, void* to, const void* from, int64_t bytes, TfsStream stream);
  static void Wait(Event* event, int64_t recorded);

  bool Exists(const void* begin, int64_t bytes) const;  // with mutex_ held
  void Pause();

  static RecordedCuda* current;

  mutable std::mutex mutex_;
  std::mt19937 random_{1};
  std::map<const uint8_t*, int64_t> memory_;
  std::vector<std::string> errors_;
  int calls_ = 0, failing_ = -1;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<SerialThread>> streams_;
};

}  // namespace tf_strategies

#endif  // TESTS_CORE_STAGING_RECORDED_CUDA_H_

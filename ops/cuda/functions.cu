#include "ops/cuda/functions.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/entries.cuh"
#include "ops/cuda/quantize.cuh"
#include "ops/cuda/top_k.cuh"

namespace tf_strategies::cuda {
namespace {

thread_local std::string last_error;

TfsCudaError ErrorOf(const Status& status) {
  if (status.ok()) return nullptr;
  last_error = status.message();
  return last_error.c_str();
}

TfsCudaError ErrorOf(cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // or the next launch would report it again
  return cudaGetErrorString(error);
}

// Returns whether this thread uses a device. The runtime would answer 0 for a thread that uses none.
bool HasDevice() {
  using GetCurrent = CUresult (*)(CUcontext*);
  static const GetCurrent get_current = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    constexpr unsigned int kVersion = 4000;  // the first CUDA that has it
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &found, kVersion, cudaEnableDefault, &result);
    return error == cudaSuccess ? reinterpret_cast<GetCurrent>(found) : nullptr;
  }();
  CUcontext context = nullptr;
  return get_current != nullptr && get_current(&context) == CUDA_SUCCESS && context != nullptr;
}

// Makes a device the current one of this thread, and in the end the former one again, if there was one: to go back to a
// device that nobody uses would take memory of it.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    const bool had_one = HasDevice();
    error_ = cudaGetDevice(&before_);
    if (error_ != cudaSuccess || (had_one && before_ == device)) return;
    error_ = cudaSetDevice(device);
    changed_ = had_one && error_ == cudaSuccess;
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

template <typename Call>
TfsCudaError On(int device, const Call& call) {
  const CurrentDevice current(device);
  if (current.error() != cudaSuccess) return ErrorOf(current.error());
  return ErrorOf(call());
}

TfsCudaError ErrorOf(std::string text) {
  last_error = std::move(text);
  return last_error.c_str();
}

std::string Version(int number) {  // as CUDA numbers them
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

TfsCudaError WhyUnusable() {
  constexpr int kOldestDriver = 12080, kLeastCapability = 8;
  int driver = 0, devices = 0;
  const TfsCudaError error = ErrorOf(cudaGetDeviceCount(&devices));
  if (error != nullptr) return error;
  if (devices == 0) return "CUDA finds no GPU";
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver < kOldestDriver) {
    return ErrorOf("the driver knows CUDA " + Version(driver) + ", and must know CUDA " +
                   Version(kOldestDriver));
  }
  for (int device = 0; device < devices; ++device) {
    int capability = 0;
    const TfsCudaError unknown =
        ErrorOf(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device));
    if (unknown != nullptr) return unknown;
    if (capability < kLeastCapability) {
      return ErrorOf("GPU " + std::to_string(device) + " has compute capability " +
                     std::to_string(capability) + ".x; 8.0 or later is needed");
    }
  }
  return nullptr;
}

TfsCudaError DeviceOfStream(TfsStream stream, int* device) {
  return ErrorOf(cudaStreamGetDevice(static_cast<cudaStream_t>(stream), device));
}

TfsCudaError CreateStream(int device, TfsStream* stream) {
  return On(device, [&] {
    cudaStream_t made = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    *stream = made;
    return error;
  });
}

TfsCudaError CreateEvent(int device, TfsEvent* event) {
  return On(device, [&] {
    cudaEvent_t made = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming | cudaEventBlockingSync);
    *event = made;
    return error;
  });
}

TfsCudaError RecordEvent(int device, TfsEvent event, TfsStream stream) {
  return On(device, [&] {
    return cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream));
  });
}

TfsCudaError StreamWaits(int device, TfsStream stream, TfsEvent event) {
  return On(device, [&] {
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0);
  });
}

TfsCudaError HostWaits(int device, TfsEvent event) {
  return On(device, [&] { return cudaEventSynchronize(static_cast<cudaEvent_t>(event)); });
}

TfsCudaError Copy(int device, void* to, const void* from, int64_t bytes, TfsStream stream) {
  return On(device, [&] {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream));
  });
}

TfsCudaError LaunchTopK(int device, int dtype, const void* gradient, float* residual, int64_t count,
                        int64_t k, int64_t* indices, float* values, void* workspace, int64_t workspace_bytes,
                        TfsStream stream) {
  return On(device, [&] {
    return TopK(static_cast<DType>(dtype), gradient, residual, count, k, indices, values, workspace,
                workspace_bytes, static_cast<cudaStream_t>(stream));
  });
}

TfsCudaError LaunchSumLists(int device, const int64_t* ends, int64_t lists, const int64_t* indices,
                            const float* values, int64_t count, float* sum, TfsStream stream) {
  return On(device, [&] {
    return SumLists(ends, lists, indices, values, count, sum, static_cast<cudaStream_t>(stream));
  });
}

TfsCudaError LaunchQuantize(int device, int method, const float* gradient, int64_t count, int64_t bucket,
                            uint64_t seed, uint64_t stream_of_seed, uint8_t* body, TfsStream stream) {
  return On(device, [&] {
    return Quantize(static_cast<compress::Method>(method), gradient, count, bucket, {seed, stream_of_seed},
                    body, static_cast<cudaStream_t>(stream));
  });
}

TfsCudaError LaunchSumBodies(int device, const int* methods, const int64_t* buckets,
                             const uint8_t* const* bodies, int64_t n, int64_t count, float* sum,
                             TfsStream stream) {
  return On(device, [&] {
    std::vector<Body> all;
    for (int64_t i = 0; i < n; ++i)
      all.push_back({static_cast<compress::Method>(methods[i]), buckets[i], bodies[i]});
    return SumBodies(all.data(), n, count, sum, static_cast<cudaStream_t>(stream));
  });
}

constexpr TfsCudaFunctions kFunctions = {
    WhyUnusable, DeviceOfStream,     CreateStream, CreateEvent,    RecordEvent,    StreamWaits,     HostWaits,
    Copy,        TopKWorkspaceBytes, LaunchTopK,   LaunchSumLists, LaunchQuantize, LaunchSumBodies,
};

}  // namespace
}  // namespace tf_strategies::cuda

extern "C" __attribute__((visibility("default"))) const TfsCudaFunctions* tfs_cuda_functions(int version) {
  return version == kTfsCudaVersion ? &tf_strategies::cuda::kFunctions : nullptr;
}

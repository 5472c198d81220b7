// Device memory for tests and benchmarks. The launchers allocate no memory.
#ifndef OPS_CUDA_DEVICE_ARRAY_CUH_
#define OPS_CUDA_DEVICE_ARRAY_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/base/check.h"

namespace tf_strategies::cuda {

inline void CheckCuda(cudaError_t error) { TFS_CHECK_EQ(std::string(cudaGetErrorString(error)), "no error"); }

// Returns the reason why no kernel can run on this machine, or "".
inline std::string WhyNoDevice() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return std::string("no GPU that CUDA can use: ") + cudaGetErrorString(error);
  return devices == 0 ? "no GPU" : "";
}

// Holds elements in device memory, and copies them from and to the host. The copies wait for the device, so they must
// not be part of a measurement.
template <typename Element>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t size) : size_(size) { CheckCuda(cudaMalloc(&data_, Bytes() + 1)); }
  explicit DeviceArray(const std::vector<Element>& from) : DeviceArray(static_cast<int64_t>(from.size())) {
    Set(from);
  }
  ~DeviceArray() { CheckCuda(cudaFree(data_)); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Element* data() { return data_; }
  void Set(const std::vector<Element>& from) {
    TFS_CHECK_EQ(static_cast<int64_t>(from.size()), size_);
    CheckCuda(cudaMemcpy(data_, from.data(), Bytes(), cudaMemcpyHostToDevice));
  }
  std::vector<Element> Get() {
    std::vector<Element> to(size_);
    CheckCuda(cudaDeviceSynchronize());
    CheckCuda(cudaMemcpy(to.data(), data_, Bytes(), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  size_t Bytes() const { return size_ * sizeof(Element); }

  int64_t size_;
  Element* data_ = nullptr;
};

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_DEVICE_ARRAY_CUH_

// Copies between a GPU and pinned memory that overlap with kernels, as in training.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "ops/cuda/device_array.cuh"
#include "ops/cuda/functions.h"
#include "ops/staging/stager.h"

extern "C" const TfsCudaFunctions* tfs_cuda_functions(int version);

namespace tf_strategies::cuda {
namespace {

constexpr int64_t kPause = 300'000;  // ticks that a kernel takes at least

__global__ void Fill(int32_t* to, int64_t count, int32_t value) {
  const int64_t start = clock64();
  while (clock64() - start < kPause) {
  }
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = value;
}

// Counts the elements that are not `value`, and destroys them.
__global__ void CountOthers(int32_t* from, int64_t count, int32_t value, unsigned int* others) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (from[i] != value) atomicAdd(others, 1u);
    from[i] = -1;
  }
}

class Pinned {
 public:
  explicit Pinned(int64_t count) { CheckCuda(cudaHostAlloc(&data_, count * sizeof(int32_t), 0)); }
  ~Pinned() { CheckCuda(cudaFreeHost(data_)); }
  int32_t* data() { return static_cast<int32_t*>(data_); }

 private:
  void* data_ = nullptr;
};

std::unique_ptr<Stager> NewStager() {
  std::unique_ptr<Stager> stager;
  EXPECT_TRUE(Stager::Make(tfs_cuda_functions(kTfsCudaVersion), 0, &stager).ok());
  return stager;
}

// Each of `rounds` packs is written by a kernel, changed on the host, and read by the next kernel of the stream.
unsigned int WrongElements(Stager* stager, int64_t count, int rounds, int first) {
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  DeviceArray<int32_t> device(count);
  DeviceArray<unsigned int> wrong(std::vector<unsigned int>{0});
  Pinned host(count);
  unsigned int wrong_on_host = 0;
  for (int round = 0; round < rounds; ++round) {
    const int32_t value = first + round;
    Fill<<<8, 256, 0, stream>>>(device.data(), count, value);
    std::promise<void> told;
    const std::vector<Stager::Piece> pieces = {
        {device.data(), host.data(), count / 2 * 4},
        {device.data() + count / 2, host.data() + count / 2, (count - count / 2) * 4}};
    stager->ToHost(stream, pieces, nullptr, [&](const Status& down) {
      TFS_CHECK(down.ok());
      for (int64_t i = 0; i < count; ++i) {
        wrong_on_host += host.data()[i] != value ? 1 : 0;
        host.data()[i] = value + 1;
      }
      stager->ToDevice(stream, pieces, nullptr, [&](const Status& up) {
        TFS_CHECK(up.ok());
        told.set_value();
      });
    });
    told.get_future().get();
    CountOthers<<<8, 256, 0, stream>>>(device.data(), count, value + 1, wrong.data());
    CheckCuda(cudaGetLastError());
    CheckCuda(cudaStreamSynchronize(stream));  // the host's memory is used again
  }
  const unsigned int found = wrong.Get()[0] + wrong_on_host;
  CheckCuda(cudaStreamDestroy(stream));
  return found;
}

TEST(Staging, WaitsForKernelsAndIsWaitedFor) {
  const auto stager = NewStager();
  for (const int64_t count : {1, 1000, 3'000'000}) EXPECT_EQ(WrongElements(stager.get(), count, 10, 5), 0u);
}

TEST(Staging, ServesManyStreams) {
  const auto stager = NewStager();
  std::vector<std::thread> threads;
  std::vector<unsigned int> wrong(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { wrong[i] = WrongElements(stager.get(), 100'000 * (i + 1), 20, 1000 * i); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<unsigned int>(4, 0));
}

TEST(Staging, TheDeviceOfAStreamIsFound) {
  const TfsCudaFunctions* const cuda = tfs_cuda_functions(kTfsCudaVersion);
  ASSERT_NE(cuda, nullptr);
  TfsStream stream = nullptr;
  ASSERT_EQ(cuda->create_stream(0, &stream), nullptr);
  int device = -1;
  EXPECT_EQ(cuda->device_of_stream(stream, &device), nullptr);
  EXPECT_EQ(device, 0);
  EXPECT_NE(cuda->create_stream(1000, &stream), nullptr);
}

TEST(Arguments, AnotherVersionOfTheTableIsRefused) {
  EXPECT_EQ(tfs_cuda_functions(kTfsCudaVersion + 1), nullptr);
}

}  // namespace
}  // namespace tf_strategies::cuda

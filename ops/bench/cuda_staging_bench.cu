// Times the copies of collectives between a GPU and the host: cuda_staging_bench [--packs 8] [--repeats 20].
// Prints CSV for packs of 4 KiB to 64 MiB: bytes of a pack; the median milliseconds in which all packs go down and up again,
// one after the other with plain copies, and through the stager; GB/s of the stager in each direction, and those as a share
// of a plain copy's. Ends with 77 where there is no GPU.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "ops/cuda/device_array.cuh"
#include "ops/cuda/functions.h"
#include "ops/staging/stager.h"

extern "C" const TfsCudaFunctions* tfs_cuda_functions(int version);

namespace tf_strategies::cuda {
namespace {

double MedianMilliseconds(int repeats, const std::function<void()>& run) {
  std::vector<double> times;
  for (int repeat = -2; repeat < repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    if (repeat >= 0) times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int Main(int packs, int repeats) {
  const std::string reason = WhyNoDevice();
  if (!reason.empty()) {
    std::printf("%s\n", reason.c_str());
    return 77;
  }
  std::unique_ptr<Stager> stager;
  const Status made = Stager::Make(tfs_cuda_functions(kTfsCudaVersion), 0, &stager);
  TFS_CHECK_EQ(made.ToString(), Status::Ok().ToString());
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("bytes,copies_ms,stager_ms,gb_per_s,share_of_copy\n");
  for (int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) {
    DeviceArray<uint8_t> device(bytes * packs);
    void* host = nullptr;
    CheckCuda(cudaHostAlloc(&host, bytes * packs, 0));
    const auto piece = [&](int i) {
      return Stager::Piece{device.data() + i * bytes, static_cast<char*>(host) + i * bytes, bytes};
    };
    const double copies = MedianMilliseconds(repeats, [&] {
      for (int i = 0; i < packs; ++i) {
        const Stager::Piece one = piece(i);
        CheckCuda(cudaMemcpyAsync(one.host, one.device, bytes, cudaMemcpyDeviceToHost, stream));
        CheckCuda(cudaMemcpyAsync(one.device, one.host, bytes, cudaMemcpyHostToDevice, stream));
      }
      CheckCuda(cudaStreamSynchronize(stream));
    });
    const double staged = MedianMilliseconds(repeats, [&] {
      std::vector<std::promise<void>> told(packs);
      for (int i = 0; i < packs; ++i) {
        stager->ToHost(stream, {piece(i)}, nullptr, [&, i](const Status& down) {
          TFS_CHECK(down.ok());
          stager->ToDevice(stream, {piece(i)}, nullptr, [&, i](const Status& up) {
            TFS_CHECK(up.ok());
            told[i].set_value();
          });
        });
      }
      for (std::promise<void>& each : told) each.get_future().get();
      CheckCuda(cudaStreamSynchronize(stream));
    });
    std::printf("%lld,%.4f,%.4f,%.2f,%.2f\n", static_cast<long long>(bytes), copies, staged,
                static_cast<double>(bytes) * packs / staged / 1e6, copies / 2 / staged);
    CheckCuda(cudaFreeHost(host));
  }
  return 0;
}

}  // namespace
}  // namespace tf_strategies::cuda

int main(int argc, char** argv) {
  int packs = 8, repeats = 20;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--packs") {
      packs = std::atoi(argv[i + 1]);
    } else if (name == "--repeats") {
      repeats = std::atoi(argv[i + 1]);
    } else {
      std::fprintf(stderr, "unknown option %s\n", name.c_str());
      return 2;
    }
  }
  return tf_strategies::cuda::Main(packs, repeats);
}

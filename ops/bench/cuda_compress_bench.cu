// Times compression on the GPU: cuda_compress_bench [--repeats 20] [--count N] [--k K] [--bucket 512].
// Prints CSV: n, what, median, least and greatest milliseconds, GB/s of the bytes that must be moved, and those as a share of what a
// copy on the device reaches in the same run. Ends with 77 where there is no GPU. What comes out is held against the CPU first.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#if __has_include(<cub/device/device_topk.cuh>)
#include <cuda/iterator>

#include <cub/device/device_topk.cuh>
#define TFS_HAS_CUB_TOP_K 1
#endif

#include "ops/compress/message.h"
#include "ops/compress/topk.h"
#include "ops/cuda/device_array.cuh"
#include "ops/cuda/entries.cuh"
#include "ops/cuda/quantize.cuh"
#include "ops/cuda/top_k.cuh"

namespace tf_strategies::cuda {
namespace {

using compress::Method;

struct Options {
  int repeats = 20;
  int64_t count = 25'000'000;
  int64_t k = 25'000;
  int64_t bucket = 512;
};

void CheckOk(const Status& status) { TFS_CHECK_EQ(status.ToString(), Status::Ok().ToString()); }

// Milliseconds on the device, of each repeat.
std::vector<double> Times(int repeats, const std::function<void()>& launch) {
  cudaEvent_t start, end;
  CheckCuda(cudaEventCreate(&start));
  CheckCuda(cudaEventCreate(&end));
  std::vector<double> times;
  for (int repeat = -2; repeat < repeats; ++repeat) {
    CheckCuda(cudaEventRecord(start));
    launch();
    CheckCuda(cudaEventRecord(end));
    CheckCuda(cudaEventSynchronize(end));
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, start, end));
    if (repeat >= 0) times.push_back(milliseconds);
  }
  CheckCuda(cudaEventDestroy(start));
  CheckCuda(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times;
}

// What error feedback costs without any selection.
__global__ void AddKernel(const float* gradient, float* residual, int64_t count) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x)
    residual[i] += gradient[i];
}

#ifdef TFS_HAS_CUB_TOP_K
struct Magnitude {
  __host__ __device__ float operator()(float value) const { return fabsf(value); }
};
#endif

class Table {
 public:
  explicit Table(const Options& options) : options_(options) {
    std::printf("n,what,median_ms,min_ms,max_ms,gb_per_s,share_of_copy\n");
  }

  // bytes: read and written at least.
  void Row(const char* what, double bytes, const std::function<void()>& launch) {
    const std::vector<double> times = Times(options_.repeats, launch);
    const double median = times[times.size() / 2], speed = bytes / median / 1e6;
    if (copy_speed_ == 0) copy_speed_ = speed;
    std::printf("%lld,%s,%.4f,%.4f,%.4f,%.0f,%.2f\n", static_cast<long long>(options_.count), what, median,
                times.front(), times.back(), speed, speed / copy_speed_);
  }

 private:
  const Options options_;
  double copy_speed_ = 0;  // of the first row
};

int Main(const Options& options) {
  const std::string reason = WhyNoDevice();
  if (!reason.empty()) {
    std::printf("%s\n", reason.c_str());
    return 77;
  }
  const int64_t n = options.count, k = options.k;
  const auto size = static_cast<double>(n);
  std::vector<float> gradient(n), expected_residual(n);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (float& value : gradient) value = normal(generator);

  DeviceArray<float> on_device(gradient), residual(expected_residual), values(k), sum(n);
  DeviceArray<int64_t> indices(k);
  DeviceArray<uint8_t> workspace(TopKWorkspaceBytes(n));
  const auto top_k = [&] {
    CheckOk(TopK(DType::kFloat32, on_device.data(), residual.data(), n, k, indices.data(), values.data(),
                 workspace.data(), TopKWorkspaceBytes(n), nullptr));
  };
  top_k();
  const compress::Selection expected = compress::TopK(
      DType::kFloat32, gradient.data(), expected_residual.data(), expected_residual.data(), n, k);
  TFS_CHECK(indices.Get() == expected.indices && values.Get() == expected.values &&
            residual.Get() == expected_residual);

  Table table(options);
  table.Row("copy", 8 * size, [&] {
    CheckCuda(
        cudaMemcpyAsync(sum.data(), on_device.data(), n * sizeof(float), cudaMemcpyDeviceToDevice, nullptr));
  });
  const auto add = [&] {
    AddKernel<<<132 * 8, 256>>>(on_device.data(), residual.data(), n);
    CheckCuda(cudaGetLastError());
  };
  table.Row("add", 12 * size, add);
  table.Row("top_k", 12 * size, top_k);
#ifdef TFS_HAS_CUB_TOP_K
  // The k largest in any order, and any of those that tie; the residual keeps them.
  const auto keys = ::cuda::transform_iterator(residual.data(), Magnitude{});
  const ::cuda::counting_iterator<int64_t> places(0);
  const auto any_order = ::cuda::std::execution::env{::cuda::execution::require(
      ::cuda::execution::determinism::not_guaranteed, ::cuda::execution::output_ordering::unsorted)};
  size_t bytes_of_cub = 0;
  const auto cub_top_k = [&](void* memory) {
    CheckCuda(cub::DeviceTopK::MaxPairs(memory, bytes_of_cub, keys, values.data(), places, indices.data(), n,
                                        k, any_order));
  };
  cub_top_k(nullptr);
  DeviceArray<uint8_t> memory_of_cub(static_cast<int64_t>(bytes_of_cub));
  table.Row("add_and_cub_top_k", 12 * size, [&] {
    add();
    cub_top_k(memory_of_cub.data());
  });
#endif
  const int64_t ends[] = {k};
  table.Row("sum_lists", 4 * size + 20 * static_cast<double>(k),
            [&] { CheckOk(SumLists(ends, 1, indices.data(), values.data(), n, sum.data(), nullptr)); });
  const struct {
    Method method;
    const char *name, *name_of_sum;
  } kinds[] = {{Method::kStochastic8, "stochastic8", "sum_stochastic8"},
               {Method::kStochastic4, "stochastic4", "sum_stochastic4"},
               {Method::kTernary, "ternary", "sum_ternary"},
               {Method::kSign, "sign", "sum_sign"}};
  for (const auto& kind : kinds) {
    const int64_t bytes = BodyBytes(kind.method, n, options.bucket);
    DeviceArray<uint8_t> body(bytes);
    const auto quantize = [&] {
      CheckOk(Quantize(kind.method, on_device.data(), n, options.bucket, {1, 2}, body.data(), nullptr));
    };
    quantize();
    std::vector<uint8_t> message(sizeof(compress::Header) + bytes);
    compress::Quantize(kind.method, gradient.data(), n, options.bucket, {1, 2}, message.data());
    TFS_CHECK(std::memcmp(message.data() + sizeof(compress::Header), body.Get().data(), bytes) == 0);
    table.Row(kind.name, 4 * size + static_cast<double>(bytes), quantize);
    const Body one = {kind.method, options.bucket, body.data()};
    table.Row(kind.name_of_sum, 4 * size + static_cast<double>(bytes),
              [&] { CheckOk(SumBodies(&one, 1, n, sum.data(), nullptr)); });
  }
  return 0;
}

}  // namespace
}  // namespace tf_strategies::cuda

int main(int argc, char** argv) {
  tf_strategies::cuda::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const long long value = std::atoll(argv[i + 1]);
    if (name == "--repeats") {
      options.repeats = static_cast<int>(value);
    } else if (name == "--count") {
      options.count = value;
    } else if (name == "--k") {
      options.k = value;
    } else if (name == "--bucket") {
      options.bucket = value;
    } else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  return tf_strategies::cuda::Main(options);
}

// Times the selection of the k largest of n: topk_bench [--threads 2] [--repeats 9] [--count N] [--k K].
// Prints CSV: n, k, kind, median, least and greatest milliseconds, and those of moving the same bytes.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/compress/topk.h"

namespace tf_strategies::compress {
namespace {

struct Options {
  int threads = 2;
  int repeats = 9;
  int64_t count = 25'000'000;
  int64_t k = 25'000;
};

double Milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

ParallelFor Threads(int threads) {
  return [threads](int64_t count, const std::function<void(int64_t)>& task) {
    std::vector<std::thread> started;
    for (int64_t first = 0; first < threads; ++first) {
      started.emplace_back([=, &task] {
        for (int64_t i = count * first / threads; i < count * (first + 1) / threads; ++i) task(i);
      });
    }
    for (std::thread& thread : started) thread.join();
  };
}

// The bytes that any selection must move: read the gradient and the residual, write the residual.
void AddTo(const float* gradient, float* residual, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) residual[i] += gradient[i];
}

void Print(const Options& options, const char* kind, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf("%lld,%lld,%s,%.3f,%.3f,%.3f\n", static_cast<long long>(options.count),
              static_cast<long long>(options.k), kind, times[times.size() / 2], times.front(), times.back());
}

int Main(const Options& options) {
  std::vector<float> gradient(options.count), residual(options.count);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (float& value : gradient) value = normal(generator);
  const ParallelFor parallel = Threads(options.threads);
  std::vector<double> limit, exact, sampled;
  constexpr int64_t kPart = 16384;
  for (int repeat = -1; repeat < options.repeats; ++repeat) {
    const double moved = Milliseconds([&] {
      parallel((options.count + kPart - 1) / kPart, [&](int64_t part) {
        AddTo(gradient.data(), residual.data(), part * kPart, std::min(options.count, (part + 1) * kPart));
      });
    });
    const double by_rank = Milliseconds([&] {
      TopK(DType::kFloat32, gradient.data(), residual.data(), residual.data(), options.count, options.k,
           parallel);
    });
    const double by_sample = Milliseconds([&] {
      SampledTopK(DType::kFloat32, gradient.data(), residual.data(), residual.data(), options.count,
                  options.k, parallel);
    });
    if (repeat < 0) continue;  // warm-up
    limit.push_back(moved);
    exact.push_back(by_rank);
    sampled.push_back(by_sample);
  }
  std::printf("n,k,kind,median_ms,min_ms,max_ms\n");
  Print(options, "limit", limit);
  Print(options, "exact", exact);
  Print(options, "sampled", sampled);
  return 0;
}

}  // namespace
}  // namespace tf_strategies::compress

int main(int argc, char** argv) {
  tf_strategies::compress::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const long long value = std::atoll(argv[i + 1]);
    if (name == "--threads") {
      options.threads = static_cast<int>(value);
    } else if (name == "--repeats") {
      options.repeats = static_cast<int>(value);
    } else if (name == "--count") {
      options.count = value;
    } else if (name == "--k") {
      options.k = value;
    } else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  return tf_strategies::compress::Main(options);
}

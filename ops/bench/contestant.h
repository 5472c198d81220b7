// A contestant of benchmarks.allreduce; benchmarks/contestant.py has the protocol.
#ifndef OPS_BENCH_CONTESTANT_H_
#define OPS_BENCH_CONTESTANT_H_

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "ops/base/status.h"

namespace tf_strategies {

// What a contestant does with an order.
struct Contestant {
  int rank;
  std::function<void()> barrier;
  std::function<void(int64_t bytes)> prepare;  // frees what was, allocates, warms up, checks
  std::function<void()> call;
};

// A line of /proc/self/status, in bytes: "VmRSS", or "VmHWM", the highest of it.
inline int64_t MemoryOf(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::atoll(line.c_str() + field.size() + 1) << 10;
  }
  return 0;
}

// Gives back what malloc keeps of freed memory, and lets VmHWM begin anew.
inline void ForgetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
}

// As benchmarks/contestant.py. Orders are BYTES, a multiple of 4, and CALLS.
inline Status Serve(const Contestant& contestant, const std::string& folder) {
  // Without waiting for the front, which may be gone.
  const int held_open =
      open((folder + "/orders." + std::to_string(contestant.rank)).c_str(), O_RDONLY | O_NONBLOCK);
  const int answers = open((folder + "/answers").c_str(), O_WRONLY | O_NONBLOCK);
  if (held_open < 0 || answers < 0) return InvalidArgument("no orders or no answers in " + folder);
  fcntl(held_open, F_SETFL, 0);
  FILE* orders = fdopen(held_open, "r");
  contestant.prepare(1 << 10);
  const int64_t before = MemoryOf("VmRSS");
  int64_t held = 0;
  long long bytes = 0;
  for (int calls = 0; std::fscanf(orders, "%lld %d", &bytes, &calls) == 2;) {
    if (bytes != held) {
      contestant.prepare(bytes);
      held = bytes;
    }
    contestant.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) contestant.call();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    char text[128];
    const int length = std::snprintf(
        text, sizeof(text), "{\"rank\": %d, \"seconds\": %.9f, \"extra_bytes\": %lld}\n", contestant.rank,
        seconds.count() / calls, std::max(0LL, static_cast<long long>(MemoryOf("VmHWM") - before) - bytes));
    if (write(answers, text, length) != length) break;
  }
  return Status::Ok();
}

}  // namespace tf_strategies

#endif  // OPS_BENCH_CONTESTANT_H_

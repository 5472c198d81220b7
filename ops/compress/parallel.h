// How loops over a gradient run on threads, which the caller provides.
#ifndef OPS_COMPRESS_PARALLEL_H_
#define OPS_COMPRESS_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace tf_strategies::compress {

// Runs task(0) ... task(count - 1), several at a time, and returns when all have ended.
using ParallelFor = std::function<void(int64_t count, const std::function<void(int64_t)>& task)>;

// Runs one after the other.
inline void Sequentially(int64_t count, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < count; ++i) task(i);
}

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_PARALLEL_H_

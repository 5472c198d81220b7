// Runs loops of the core on TensorFlow's thread pool.
#ifndef OPS_KERNELS_ON_POOL_H_
#define OPS_KERNELS_ON_POOL_H_

#include <cstdint>
#include <functional>

#include "ops/compress/parallel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_strategies {

// task_cost: the approximate number of cycles of one task.
inline compress::ParallelFor OnPool(tensorflow::OpKernelContext* context, int64_t task_cost) {
  return [context, task_cost](int64_t tasks, const std::function<void(int64_t)>& task) {
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, tasks, task_cost,
                      [&task](int64_t begin, int64_t end) {
                        for (int64_t each = begin; each < end; ++each) task(each);
                      });
  };
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_ON_POOL_H_

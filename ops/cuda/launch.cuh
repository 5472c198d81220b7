// Functions of all launchers: the number of blocks that fill the device, and the Status of a launch.
#ifndef OPS_CUDA_LAUNCH_CUH_
#define OPS_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "ops/base/status.h"

namespace tf_strategies::cuda {

inline constexpr int kThreads = 256;  // the threads of a block in kernels with many blocks

inline Status StatusOf(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return Status::Ok();
  return Internal(std::string(what) + ": " + cudaGetErrorString(error));
}

// Computes the number of blocks of `threads` threads for `items` items, with `items_of_block` items in each block. The
// number is at most what the current device can run at once, because kernels loop over their items.
template <typename... Parameters>
Status BlocksFor(void (*kernel)(Parameters...), int threads, int64_t items, int64_t items_of_block,
                 int* blocks) {
  int device = 0, multiprocessors = 0, of_multiprocessor = 0;
  TFS_RETURN_IF_ERROR(StatusOf(cudaGetDevice(&device), "cudaGetDevice"));
  TFS_RETURN_IF_ERROR(StatusOf(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "the device's size"));
  TFS_RETURN_IF_ERROR(
      StatusOf(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, kernel, threads, 0),
               "the blocks of a multiprocessor"));
  const int64_t needed = (items + items_of_block - 1) / items_of_block;
  const int64_t most = int64_t{of_multiprocessor} * multiprocessors;
  *blocks = static_cast<int>(needed < most ? needed : most);
  return *blocks > 0 ? Status::Ok()
                     : Internal("this device has no room for a block of " + std::to_string(threads));
}

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_LAUNCH_CUH_

// DeviceBlock: the block of threads that runs the body of a kernel. Bodies are templates over this class, so that the
// tests of the core can run the same code on threads of the CPU (tests/core/cuda/emulated_block.h).
#ifndef OPS_CUDA_BLOCK_CUH_
#define OPS_CUDA_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace tf_strategies::cuda {

class DeviceBlock {
 public:
  // The number of this thread in the block, and of the block in the grid. Threads() is a multiple of kWarp.
  __device__ int Thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int Threads() const { return static_cast<int>(blockDim.x); }
  __device__ int64_t Index() const { return blockIdx.x; }
  __device__ int64_t Count() const { return gridDim.x; }

  // Waits for all threads of the block. Afterwards all threads see what the others have written.
  __device__ void Sync() const { __syncthreads(); }

  // Returns a word in which bit i is the vote of lane i of this warp. All lanes must call it.
  __device__ uint32_t Ballot(bool vote) const { return __ballot_sync(0xFFFFFFFFu, vote); }
  // Returns the largest value of the lanes of this warp. All lanes must call it.
  __device__ int32_t LargestOfWarp(int32_t value) const { return __reduce_max_sync(0xFFFFFFFFu, value); }
  // Returns the sum of the values of all lanes before this one. All lanes of the warp must call it.
  __device__ int64_t SumBeforeInWarp(int64_t value) const {
    const unsigned lane = threadIdx.x % warpSize;
    int64_t sum = value;
    for (unsigned reach = 1; reach < warpSize; reach *= 2) {
      const int64_t other = __shfl_up_sync(0xFFFFFFFFu, sum, reach);
      if (lane >= reach) sum += other;
    }
    return sum - value;
  }
  // Returns the value of the lane whose number is this lane's with the bits of `other` inverted. All lanes of the warp must
  // call it.
  __device__ uint32_t OfLaneXor(uint32_t value, int other) const {
    return __shfl_xor_sync(0xFFFFFFFFu, value, other);
  }
  // Waits for all lanes of this warp. Afterwards they see what the others have written to the memory of the block.
  __device__ void SyncWarp() const { __syncwarp(); }

  __device__ static int CountOnes(uint32_t word) { return __popc(word); }
  // Returns the number of the lowest bit that is 1; word is not 0.
  __device__ static int LowestOne(uint32_t word) { return __ffs(static_cast<int>(word)) - 1; }

  // These functions are atomic. `to` is in the memory of the block or of the device.
  __device__ void Add(uint32_t* to, uint32_t value) const { atomicAdd(to, value); }
  __device__ void Add(uint64_t* to, uint64_t value) const {
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t), "atomicAdd knows no other type of 64 bits");
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
  }
  __device__ void RaiseTo(int32_t* to, int32_t value) const { atomicMax(to, value); }
};

}  // namespace tf_strategies::cuda

#endif  // OPS_CUDA_BLOCK_CUH_

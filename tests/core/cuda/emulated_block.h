// Runs the body of a kernel of ops/cuda on threads of the CPU: a thread for each of the block's, one block after the other. A body
// that lacks a Sync() is found by ThreadSanitizer, one whose threads part ways at a Sync() by the deadline.
#ifndef TESTS_CORE_CUDA_EMULATED_BLOCK_H_
#define TESTS_CORE_CUDA_EMULATED_BLOCK_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "ops/base/check.h"
#include "ops/cuda/batches.h"

namespace tf_strategies::cuda {

class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t round = round_;
    if (++waiting_ == threads_) {
      waiting_ = 0;
      ++round_;
      all_here_.notify_all();
      return;
    }
    TFS_CHECK(all_here_.wait_for(lock, std::chrono::minutes(2), [&] { return round_ != round; }));
  }

 private:
  const int threads_;
  int waiting_ = 0;
  int64_t round_ = 0;
  std::mutex mutex_;
  std::condition_variable all_here_;
};

class EmulatedBlock {
 public:
  static constexpr int kLanes = kWarp;

  // What the lanes of a warp share.
  struct Warp {
    Barrier barrier{kLanes};
    int64_t values[2][kLanes] = {};
  };

  EmulatedBlock(int thread, int threads, int64_t index, int64_t count, Barrier* barrier, Warp* warp)
      : thread_(thread), threads_(threads), index_(index), count_(count), barrier_(barrier), warp_(warp) {}

  int Thread() const { return thread_; }
  int Threads() const { return threads_; }
  int64_t Index() const { return index_; }
  int64_t Count() const { return count_; }
  void Sync() const { barrier_->Wait(); }

  uint32_t Ballot(bool vote) const {
    const int64_t* const votes = Exchange(vote);
    uint32_t word = 0;
    for (int lane = 0; lane < kLanes; ++lane) word |= static_cast<uint32_t>(votes[lane]) << lane;
    return word;
  }
  int32_t LargestOfWarp(int32_t value) const {
    const int64_t* const values = Exchange(value);
    return static_cast<int32_t>(*std::max_element(values, values + kLanes));
  }
  int64_t SumBeforeInWarp(int64_t value) const {
    const int64_t* const values = Exchange(value);
    return std::accumulate(values, values + thread_ % kLanes, int64_t{0});
  }
  uint32_t OfLaneXor(uint32_t value, int other) const {
    return static_cast<uint32_t>(Exchange(value)[(thread_ % kLanes) ^ other]);
  }
  void SyncWarp() const { warp_->barrier.Wait(); }

  static int CountOnes(uint32_t word) { return __builtin_popcount(word); }
  static int LowestOne(uint32_t word) { return __builtin_ctz(word); }

  void Add(uint32_t* to, uint32_t value) const { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
  void Add(uint64_t* to, uint64_t value) const { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
  void RaiseTo(int32_t* to, int32_t value) const {
    int32_t before = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (before < value &&
           !__atomic_compare_exchange_n(to, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }

 private:
  // What all lanes came with. Two places in turn: who writes to one again has met all lanes at the other, so they have read it.
  const int64_t* Exchange(int64_t value) const {
    int64_t* const values = warp_->values[turn_];
    turn_ = 1 - turn_;
    values[thread_ % kLanes] = value;
    warp_->barrier.Wait();
    return values;
  }

  int thread_, threads_;
  int64_t index_, count_;
  Barrier* barrier_;
  Warp* warp_;
  mutable int turn_ = 0;
};

// Runs body(block) as a grid of `blocks` blocks of `threads` threads, a multiple of kWarp.
inline void Emulate(int64_t blocks, int threads, const std::function<void(const EmulatedBlock&)>& body) {
  TFS_CHECK(threads % EmulatedBlock::kLanes == 0);
  Barrier barrier(threads);
  std::deque<EmulatedBlock::Warp> warps(threads / EmulatedBlock::kLanes);
  std::vector<std::thread> started;
  for (int thread = 0; thread < threads; ++thread) {
    started.emplace_back([&, thread] {
      for (int64_t index = 0; index < blocks; ++index) {
        body(EmulatedBlock(thread, threads, index, blocks, &barrier, &warps[thread / EmulatedBlock::kLanes]));
        barrier.Wait();
      }
    });
  }
  for (std::thread& thread : started) thread.join();
}

}  // namespace tf_strategies::cuda

#endif  // TESTS_CORE_CUDA_EMULATED_BLOCK_H_

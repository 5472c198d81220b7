// A group of communicators in one process, with a stand-in for the control plane: the first failure that a rank reports
// is given to all ranks as the verdict.
#ifndef TESTS_CORE_SUPPORT_GROUP_H_
#define TESTS_CORE_SUPPORT_GROUP_H_

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/communicator/communicator.h"
#include "ops/transport/in_process.h"

namespace tf_strategies::testing {

class Group {
 public:
  using Wrap = std::function<std::unique_ptr<Transport>(int rank, std::unique_ptr<Transport>)>;

  explicit Group(int size, CommunicatorOptions options = {}, size_t eager_bytes = 1024,
                 const Wrap& wrap = nullptr) {
    auto fabric = MakeInProcessFabric(size, eager_bytes);
    for (int rank = 0; rank < size; ++rank) options.peer_names.push_back("worker " + std::to_string(rank));
    for (int rank = 0; rank < size; ++rank) {
      auto transport = MakeInProcessTransport(fabric, rank);
      if (wrap) transport = wrap(rank, std::move(transport));
      ranks_.push_back(std::make_unique<Communicator>(
          std::move(transport), options, [this](const Failure& failure) { OnFailure(failure); }));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    complete_ = true;
    if (!verdict_.ok()) Tell();
  }

  ~Group() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      complete_ = false;
    }
    ranks_.clear();
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  Communicator& operator[](int rank) { return *ranks_[rank]; }

 private:
  void OnFailure(const Failure& failure) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!verdict_.ok()) return;
    verdict_ = failure.status;
    if (complete_) Tell();
  }

  void Tell() {
    for (auto& rank : ranks_) rank->Abort(verdict_);
  }

  std::mutex mutex_;
  bool complete_ = false;
  Status verdict_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

// The outcome of one request, to wait for with a deadline. Its destructor waits too: a tensor declared before it then
// outlives the collective that reads the tensor.
class Outcome {
 public:
  Outcome() = default;
  Outcome(Outcome&&) = default;
  Outcome& operator=(Outcome&&) = default;
  ~Outcome() {
    if (requested_ && future_.valid()) future_.wait_for(std::chrono::seconds(20));
  }

  Communicator::Done Callback() {
    requested_ = true;
    return [promise = promise_](const Status& status) { promise->set_value(status); };
  }
  Status Wait(double seconds = 20) {
    if (future_.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
      return Internal("the test waited " + std::to_string(seconds) + " s in vain");
    }
    return future_.get();
  }

 private:
  bool requested_ = false;
  std::shared_ptr<std::promise<Status>> promise_ = std::make_shared<std::promise<Status>>();
  std::future<Status> future_ = promise_->get_future();
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};

template <typename T>
Communicator::Request RequestFor(std::vector<T>* data, Outcome* outcome, int instance = 0) {
  Communicator::Request request;
  request.name = "test";
  request.instance = instance;
  request.dtype = DTypeOf<T>::value;
  request.data = data->data();
  request.count = static_cast<int64_t>(data->size());
  request.done = outcome->Callback();
  return request;
}

// Values that differ by rank and by index and whose sum over ranks is exact in any order.
template <typename T>
std::vector<T> InputOf(int rank, int64_t count) {
  std::vector<T> data(count);
  for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>((rank + 1) * 10 + i % 977);
  return data;
}

template <typename T>
std::vector<T> SumOf(int size, int64_t count) {
  std::vector<T> sum(count, 0);
  for (int rank = 0; rank < size; ++rank) {
    const auto input = InputOf<T>(rank, count);
    for (int64_t i = 0; i < count; ++i) sum[i] += input[i];
  }
  return sum;
}

}  // namespace tf_strategies::testing

#endif  // TESTS_CORE_SUPPORT_GROUP_H_

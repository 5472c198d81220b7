// GradientAccumulator: gradients that a server holds until their step is applied.
//
// It stores the latest gradient for each key (a variable, or a pack of variables) and worker. It does not
// copy: a gradient keeps the owner of its memory alive.
#ifndef OPS_LEDGER_GRADIENT_ACCUMULATOR_H_
#define OPS_LEDGER_GRADIENT_ACCUMULATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/base/dtype.h"
#include "ops/base/status.h"

namespace tf_strategies::ledger {

struct Part {
  const void* data = nullptr;
  std::vector<int64_t> shape;
};

struct Gradient {
  // False: the parts are dense tensors. True: they are rows of one tensor: indices [n] (int64) and values [n, ...].
  bool is_rows = false;
  DType dtype = DType::kFloat32;  // the dtype of the tensors or values
  std::vector<Part> parts;
  std::shared_ptr<const void> keep_alive;
  int64_t step = 0;  // set by Put
};

// Thread-safe.
class GradientAccumulator {
 public:
  static constexpr size_t kMostKeys = 1 << 16;
  static constexpr int kMostWorkers = 1 << 16;

  // name_of: returns the name of a worker, for messages.
  explicit GradientAccumulator(std::function<std::string(int)> name_of) : name_of_(std::move(name_of)) {}

  // Stores a gradient in place of the worker's previous gradient of the key. Returns kMismatch if another worker's
  // gradient for the same step has other shapes, another dtype or another kind.
  Status Put(const std::string& key, int worker, int64_t step, Gradient gradient);

  // Returns the members' gradients for a step, in the order of members, which must ascend. The gradients stay in the
  // accumulator until Discard.
  Status Take(const std::string& key, const std::vector<int>& members, int64_t step,
              std::vector<std::shared_ptr<const Gradient>>* found) const;

  // Removes the gradients of this step and of all earlier steps.
  void Discard(int64_t step);

  // Returns the number of gradients.
  int64_t held() const;

 private:
  using OfKey = std::map<int, std::shared_ptr<const Gradient>>;  // by worker

  Status CheckAlike(const std::string& key, int worker, const Gradient& gradient, const OfKey& others) const;

  const std::function<std::string(int)> name_of_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, OfKey> by_key_;
  int64_t held_ = 0;
};

// Sets destination[i] to sources[0][i] + sources[1][i] + ... for begin <= i < end. It adds in this order, like
// ops/reduce.
void SumInOrder(DType dtype, const std::vector<const void*>& sources, void* destination, int64_t begin,
                int64_t end);

std::string ShapeText(const std::vector<int64_t>& shape);  // "[3,4]"

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_GRADIENT_ACCUMULATOR_H_

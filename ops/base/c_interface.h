// Helpers of the C functions that Python calls: the last error of a thread, texts, and objects behind ids.
#ifndef OPS_BASE_C_INTERFACE_H_
#define OPS_BASE_C_INTERFACE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ops/base/status.h"

namespace tf_strategies {

// The message of the last error that this thread has reported.
const std::string& LastError();

// Returns the code of a status, 0 for OK, and keeps the message of an error for LastError.
int Report(const Status& status);

// Copies as much of a text as fits into out [capacity]. Returns the length of the whole text.
int64_t CopyOut(const std::string& text, char* out, int64_t capacity);

// Objects by id, from 1. Thread-safe.
template <typename T>
class Handles {
 public:
  int64_t Add(std::unique_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    objects_[++last_] = std::move(object);
    return last_;
  }

  // Returns null if there is no object with this id.
  std::unique_ptr<T> Take(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(number);
    if (found == objects_.end()) return nullptr;
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Returns the result of `use` for the object, or `otherwise` if there is no object with this id.
  template <typename Use, typename Result>
  Result With(int64_t number, Use use, Result otherwise) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(number);
    return found == objects_.end() ? otherwise : use(*found->second);
  }

 private:
  std::mutex mutex_;
  int64_t last_ = 0;
  std::map<int64_t, std::unique_ptr<T>> objects_;
};

}  // namespace tf_strategies

#endif  // OPS_BASE_C_INTERFACE_H_

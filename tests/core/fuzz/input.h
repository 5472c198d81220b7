// Takes an input apart: numbers and runs of bytes, one after the other. Where the input has ended, numbers are 0.
#ifndef TESTS_CORE_FUZZ_INPUT_H_
#define TESTS_CORE_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tf_strategies::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }

  // A number of type T, as it lies in memory.
  template <typename T>
  T Take() {
    T value{};
    const size_t bytes = std::min(left_, sizeof(T));
    if (bytes > 0) std::memcpy(&value, data_, bytes);
    Skip(bytes);
    return value;
  }

  // Up to `most` bytes.
  std::string TakeBytes(size_t most) {
    const size_t bytes = std::min(left_, most);
    std::string taken(reinterpret_cast<const char*>(data_), bytes);
    Skip(bytes);
    return taken;
  }

  std::string TakeRest() { return TakeBytes(left_); }

 private:
  void Skip(size_t bytes) {
    data_ += bytes;
    left_ -= bytes;
  }

  const uint8_t* data_;
  size_t left_;
};

// Writes what Input takes.
class Script {
 public:
  template <typename T>
  Script& Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Script& PutBytes(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace tf_strategies::fuzz

#endif  // TESTS_CORE_FUZZ_INPUT_H_

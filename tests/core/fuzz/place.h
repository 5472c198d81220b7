// A place for bytes of a peer, with bytes around it that nobody may write to.
#ifndef TESTS_CORE_FUZZ_PLACE_H_
#define TESTS_CORE_FUZZ_PLACE_H_

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "ops/base/check.h"

namespace tf_strategies::fuzz {

class Place {
 public:
  explicit Place(size_t bytes) : memory_(bytes + 2 * kMargin, kUntouched) {}

  char* data() { return memory_.data() + kMargin; }
  size_t size() const { return memory_.size() - 2 * kMargin; }

  bool Holds(const std::string& bytes) const {
    return bytes.size() <= size() && std::memcmp(bytes.data(), memory_.data() + kMargin, bytes.size()) == 0;
  }

  // That nothing was written but for the first `written` bytes of the place.
  void CheckUntouchedBehind(size_t written) const {
    TFS_CHECK_LE(written, size());
    CheckUntouched(memory_.data(), kMargin);
    CheckUntouched(memory_.data() + kMargin + written, kMargin + size() - written);
  }

 private:
  static constexpr size_t kMargin = 64;
  static constexpr char kUntouched = '\x5A';

  // Each byte is as the next: memcmp is fast where loops are watched by sanitizers.
  static void CheckUntouched(const char* begin, size_t bytes) {
    TFS_CHECK_EQ(begin[0], kUntouched);
    TFS_CHECK(std::memcmp(begin, begin + 1, bytes - 1) == 0);
  }

  std::vector<char> memory_;
};

}  // namespace tf_strategies::fuzz

#endif  // TESTS_CORE_FUZZ_PLACE_H_

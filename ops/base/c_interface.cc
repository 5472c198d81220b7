#include "ops/base/c_interface.h"

#include <algorithm>
#include <cstring>

namespace tf_strategies {
namespace {

std::string& StoredError() {
  thread_local std::string error;
  return error;
}

}  // namespace

const std::string& LastError() { return StoredError(); }

int Report(const Status& status) {
  if (!status.ok()) StoredError() = status.message();
  return static_cast<int>(status.code());
}

int64_t CopyOut(const std::string& text, char* out, int64_t capacity) {
  const int64_t copied = std::min<int64_t>(capacity, static_cast<int64_t>(text.size()));
  if (copied > 0) std::memcpy(out, text.data(), static_cast<size_t>(copied));
  return static_cast<int64_t>(text.size());
}

}  // namespace tf_strategies

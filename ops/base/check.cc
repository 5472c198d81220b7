#include "ops/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tf_strategies {

void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "tf_strategies: %s:%d: check failed: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tf_strategies

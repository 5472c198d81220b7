#include "ops/reduce/paths.h"

#include "ops/base/cpu.h"
#include "ops/base/widest.h"
#include "ops/reduce/kernels.h"
#include "ops/reduce/path_x86.h"

namespace tf_strategies::reduce {
namespace {

// What every machine of the architecture has: 16 bytes.
void ReducePortable(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count) {
  ReduceAny<16, SoftwareFloat16Format<16>>(op, dtype, destination, source, count);
}

void DividePortable(DType dtype, void* buffer, int64_t count, int64_t divisor) {
  DivideAny<16, SoftwareFloat16Format<16>>(dtype, buffer, count, divisor);
}

}  // namespace

const std::vector<Path>& Paths() {
  static const std::vector<Path>* const paths = new std::vector<Path> {
    {"portable", [] { return true; }, ReducePortable, DividePortable},
#if defined(__x86_64__)
        {"avx2", HasAvx2, ReduceAvx2, DivideAvx2}, {"avx512", HasAvx512, ReduceAvx512, DivideAvx512},
#endif
  };
  return *paths;
}

const Path& BestPath() {
  static const Path& best = WidestSupported(Paths());
  return best;
}

}  // namespace tf_strategies::reduce

#include "ops/compress/paths.h"

#include "ops/base/cpu.h"
#include "ops/base/half.h"
#include "ops/base/widest.h"
#include "ops/compress/path_x86.h"
#include "ops/compress/scan.h"

namespace tf_strategies::compress {
namespace {

// What every machine of the architecture has: 16 bytes.
int64_t ScanPortable(DType dtype, const void* gradient, float* residual, int64_t begin, int64_t end,
                     int32_t threshold, Candidate* candidates) {
  return ScanAny<16, SoftwareFloat16Format<16>>(dtype, gradient, residual, begin, end, threshold, candidates);
}

}  // namespace

const std::vector<Path>& Paths() {
  static const std::vector<Path>* const paths = new std::vector<Path> {
    {"portable", [] { return true; }, ScanPortable},
#if defined(__x86_64__)
        {"avx2", HasAvx2, ScanAvx2}, {"avx512", HasAvx512, ScanAvx512},
#endif
  };
  return *paths;
}

const Path& BestPath() {
  static const Path& best = WidestSupported(Paths());
  return best;
}

}  // namespace tf_strategies::compress

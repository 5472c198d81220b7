// The wider paths of paths.cc, each in a file of its own; callable only where the machine supports them.
#ifndef OPS_COMPRESS_PATH_X86_H_
#define OPS_COMPRESS_PATH_X86_H_

#include <cstdint>

#include "ops/base/dtype.h"
#include "ops/compress/paths.h"

namespace tf_strategies::compress {

int64_t ScanAvx2(DType dtype, const void* gradient, float* residual, int64_t begin, int64_t end,
                 int32_t threshold, Candidate* candidates);
int64_t ScanAvx512(DType dtype, const void* gradient, float* residual, int64_t begin, int64_t end,
                   int32_t threshold, Candidate* candidates);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_PATH_X86_H_

// Top-k by magnitude with error feedback, in one pass over the gradient.
//
// Source: error feedback as in Seide et al. 2014 and Lin et al. 2018 (section 3): what is not sent stays in the residual.
#ifndef OPS_COMPRESS_TOPK_H_
#define OPS_COMPRESS_TOPK_H_

#include <cstdint>
#include <vector>

#include "ops/base/dtype.h"
#include "ops/compress/parallel.h"

namespace tf_strategies::compress {

// The entries of one gradient that are sent, ordered by index.
struct Selection {
  std::vector<int64_t> indices;
  std::vector<float> values;
};

// What is ranked is sum[i] = gradient[i] + residual[i], in float32. Selects the k largest |sum[i]|; among equals the lower index.
// remaining becomes sum where nothing is selected and 0 where something is: the next residual.
//
// A NaN ranks above infinity: what is not finite is sent first, for everyone to see. It never stays: an entry that is not
// finite and not selected leaves 0.
//
// gradient: [count] of float32, float16 or bfloat16. residual, remaining: [count] float32, distinct from gradient; one or two.
// 0 <= k <= count.
Selection TopK(DType dtype, const void* gradient, const float* residual, float* remaining, int64_t count,
               int64_t k, const ParallelFor& parallel = Sequentially);

// The same with a threshold estimated from a sample: selects between 0.8 k and 1.25 k entries, all at least as large as any
// other but for those above 1.25 k, which are cut to the k largest. An estimate that selects fewer than 0.8 k is
// corrected by an exact selection.
Selection SampledTopK(DType dtype, const void* gradient, const float* residual, float* remaining,
                      int64_t count, int64_t k, const ParallelFor& parallel = Sequentially);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_TOPK_H_

// Encodes all elements of a vector with few bits, as one message, and adds up the messages of all workers.
//
// A bucket is a number of elements that share one scale. An element is decoded as level * scale.
//
//   stochastic8  8 bits  scale = largest magnitude / 127; |level| is |g| / scale, rounded up with the probability of its
//                        fraction: the mean is g. QSGD with 127 levels and the maximum norm, Alistarh et al. 2017, section 3.2.
//   stochastic4  4 bits  scale = largest magnitude / 7; level as of stochastic8: QSGD with 7 levels.
//   ternary      2 bits  scale = largest magnitude; level = sign(g) with probability |g| / scale, else 0: the mean is g.
//                        TernGrad, Wen et al. 2017, section 3.
//   sign         1 bit   scale = mean magnitude; level = -1 where g < 0, else 1. The mean is not g: it needs error feedback.
//                        Seide et al. 2014; Karimireddy et al. 2019, section 4.
//
// Body: a float32 scale for each bucket, then the levels of each (level_packing.h), each bucket from a new byte on. Header: form =
// method. Scales below 2^-126 are 0. A bucket with an element that is not finite has the scale NaN: all its elements are NaN to
// every reader. Probabilities are multiples of 2^-24.
#ifndef OPS_COMPRESS_QUANTIZE_H_
#define OPS_COMPRESS_QUANTIZE_H_

#include <cstdint>
#include <vector>

#include "ops/base/status.h"
#include "ops/compress/message.h"
#include "ops/compress/parallel.h"
#include "ops/compress/philox.h"

namespace tf_strategies::compress {

enum class Method : uint8_t { kStochastic8 = 0, kTernary = 1, kSign = 2, kStochastic4 = 3 };

inline constexpr Method kLastMethod = Method::kStochastic4;

inline constexpr int64_t kMaxBucket = INT32_MAX;

// What the message of `count` elements takes. 0 <= count <= kMaxCount, 1 <= bucket <= kMaxBucket.
int64_t QuantizedBytes(Method method, int64_t count, int64_t bucket);

// Writes gradient [count] to the QuantizedBytes at `message`. Randomness is a function of the seed and of each element's index,
// so the message is the same whatever the threads; `sign` uses none.
void Quantize(Method method, const float* gradient, int64_t count, int64_t bucket, Seed seed,
              uint8_t* message, const ParallelFor& parallel = Sequentially);

// Returns the header of that message.
Header QuantizedHeader(Method method, int64_t count, int64_t bucket);

// Finds the messages of `Quantize` in bytes [size], and checks their headers and lengths. InvalidArgument as of SumQuantized.
Status SplitQuantized(const uint8_t* bytes, int64_t size, int64_t count, std::vector<Message>* messages);

// sum [count] becomes the sum of all messages in bytes [size], 0 where there are none, each element added up in the order of the
// messages: the same bits whatever the threads. Methods and buckets may differ from message to message. InvalidArgument for
// bytes that are no such messages; sum is then undefined.
Status SumQuantized(const uint8_t* bytes, int64_t size, int64_t count, float* sum,
                    const ParallelFor& parallel = Sequentially);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_QUANTIZE_H_

// Some elements of a vector as one message, and the sum of the messages of all workers.
//
// Body: the indices (index_coding.h), then the values (value_coding.h). Header: form = value format | index coding << 4.
#ifndef OPS_COMPRESS_ENTRIES_H_
#define OPS_COMPRESS_ENTRIES_H_

#include <cstdint>
#include <vector>

#include "ops/base/status.h"
#include "ops/compress/parallel.h"
#include "ops/compress/topk.h"
#include "ops/compress/value_coding.h"

namespace tf_strategies::compress {

// Writes the message of indices [k] and values [k], entries of a vector of `count` elements, and to sent [k] the values that all
// who read it will see. InvalidArgument unless indices are strictly ascending in [0, count), and count in [0, kMaxCount].
Status EncodeEntries(const int64_t* indices, const float* values, int64_t k, int64_t count,
                     ValueFormat format, std::vector<uint8_t>* message, float* sent);

// The same cut into regions [offsets[r], offsets[r+1]) of the vector, offsets being [regions + 1], non-decreasing from 0: appends to
// messages one for each, which numbers its entries from the region's first element on, and is lengths[r] bytes long.
Status EncodeRegions(const int64_t* indices, const float* values, int64_t k, const int64_t* offsets,
                     int64_t regions, ValueFormat format, std::vector<uint8_t>* messages, int64_t* lengths,
                     float* sent);

// sum [count] becomes the sum of all messages in bytes [size], 0 where there are none, each element added up in the order of the
// messages: the same bits whatever the threads. InvalidArgument for bytes that are no such messages; sum is then undefined.
Status SumEntries(const uint8_t* bytes, int64_t size, int64_t count, float* sum,
                  const ParallelFor& parallel = Sequentially);

// The same sum as a list: every index that a message has, ascending, also where values cancel to 0.
Status MergeEntries(const uint8_t* bytes, int64_t size, int64_t count, Selection* merged,
                    const ParallelFor& parallel = Sequentially);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_ENTRIES_H_

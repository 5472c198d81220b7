// Encodes selected elements of a vector as one message, and adds up the messages of all workers.
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

// Encodes indices [k] and values [k], entries of a vector of `count` elements. Writes the decoded values to
// sent [k]. Returns InvalidArgument unless indices are strictly ascending in [0, count), and count is in [0,
// kMaxCount].
Status EncodeEntries(const int64_t* indices, const float* values, int64_t k, int64_t count,
                     ValueFormat format, std::vector<uint8_t>* message, float* sent);

// The same for regions [offsets[r], offsets[r+1]) of the vector, where offsets [regions + 1] is
// non-decreasing from 0. Appends a message for each region to `messages`. Its entries are numbered from the
// first element of the region, and it has lengths[r] bytes.
Status EncodeRegions(const int64_t* indices, const float* values, int64_t k, const int64_t* offsets,
                     int64_t regions, ValueFormat format, std::vector<uint8_t>* messages, int64_t* lengths,
                     float* sent);

// Decodes the messages in bytes [size], one list for each. Returns InvalidArgument if the bytes are not such messages.
Status ReadEntries(const uint8_t* bytes, int64_t size, int64_t count, std::vector<Selection>* lists,
                   const ParallelFor& parallel = Sequentially);

// Writes the sum of all messages in bytes [size] to sum [count], and 0 where no message has an entry. Each
// element is added up in the order of the messages, so the bits do not depend on the threads. Returns
// InvalidArgument if the bytes are not such messages; sum is then undefined.
Status SumEntries(const uint8_t* bytes, int64_t size, int64_t count, float* sum,
                  const ParallelFor& parallel = Sequentially);

// The same sum as a list of all indices of the messages, ascending, also where values cancel to 0.
Status MergeEntries(const uint8_t* bytes, int64_t size, int64_t count, Selection* merged,
                    const ParallelFor& parallel = Sequentially);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_ENTRIES_H_

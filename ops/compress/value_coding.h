// float32 values in fewer bytes.
//
// float32: as they are.
// float16: one signed byte e, then halves h, rounded to nearest even; a value is h * 2^e. e brings the largest finite magnitude
//          into [2^14, 2^15), so that none overflows and the smallest lose as little as can be; -102 <= e <= 113. What would
//          round to 2^128 becomes the half below.
// int8:    one float32 scale for each 256 values, then bytes q, rounded to nearest; a value is q * scale, or NaN where q is -128.
//          A scale is the largest finite magnitude / 127.
//
// What is not finite stays so: in float32 and float16 as it is, in int8 as NaN. What is below 2^-126 in magnitude may become 0,
// and no value that is read from float16 or int8 is subnormal: flushing modes of the processor change no value on one side only.
#ifndef OPS_COMPRESS_VALUE_CODING_H_
#define OPS_COMPRESS_VALUE_CODING_H_

#include <cstdint>
#include <string>

namespace tf_strategies::compress {

enum class ValueFormat : uint8_t { kFloat32 = 0, kFloat16 = 1, kInt8 = 2 };

// The number of bytes of k values. `format` is one of the three.
int64_t ValueBytes(ValueFormat format, int64_t k);

// Writes values [k] to the ValueBytes at `to`.
void WriteValues(ValueFormat format, const float* values, int64_t k, uint8_t* to);

// Reads values [k] from their ValueBytes. Returns a description of an error, or "".
std::string ReadValues(ValueFormat format, const uint8_t* bytes, int64_t k, float* values);

}  // namespace tf_strategies::compress

#endif  // OPS_COMPRESS_VALUE_CODING_H_

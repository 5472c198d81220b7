// The loops of the reduction, written once over vectors of the compiler's own (GCC and Clang: vector_size),
// so that each instruction set gets its own width without intrinsics and without counting on the optimiser.
//
// `kBytes` is the width of a register. Everything is inlined into the function of paths.cc that names the
// instruction set; vectors are passed by reference only, for their calling convention depends on it.
#ifndef OPS_REDUCE_KERNELS_H_
#define OPS_REDUCE_KERNELS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/base/dtype.h"
#include "ops/base/half.h"

namespace tf_strategies::reduce {

// Elements of T in one register, with the integers of the same width.
template <typename T, int kBytes>
struct Lanes;

#define TFS_LANES(T, INTEGER)                                  \
  template <int kBytes>                                        \
  struct Lanes<T, kBytes> {                                    \
    using Integer = INTEGER;                                   \
    typedef T Vector __attribute__((vector_size(kBytes)));     \
    typedef INTEGER Bits __attribute__((vector_size(kBytes))); \
    static constexpr int kCount = kBytes / sizeof(T);          \
  }
TFS_LANES(float, int32_t);
TFS_LANES(double, int64_t);
TFS_LANES(int32_t, int32_t);
TFS_LANES(int64_t, int64_t);
#undef TFS_LANES

// Signed overflow of integer sums wraps, as in TensorFlow: vectors of unsigned integers are added.
template <typename T, int kBytes>
struct Sum {
  using L = Lanes<T, kBytes>;
  static TFS_INLINE void Apply(typename L::Vector& a, const typename L::Vector& b) {
    if constexpr (std::is_integral_v<T>) {
      typedef std::make_unsigned_t<T> Unsigned __attribute__((vector_size(kBytes)));
      a = (typename L::Vector)((Unsigned)a + (Unsigned)b);
    } else {
      a = a + b;
    }
  }
};

// Where the sides are equal they differ at most in the sign of zero: min takes all bits of both, so that -0
// wins, and max the common ones. A comparison with NaN is false, which leaves the lanes that are neither
// less, equal nor greater.
template <typename T, int kBytes, bool kIsMin>
struct Extreme {
  using L = Lanes<T, kBytes>;
  static TFS_INLINE void Apply(typename L::Vector& a, const typename L::Vector& b) {
    using Bits = typename L::Bits;
    const Bits a_bits = (Bits)a;
    const Bits b_bits = (Bits)b;
    const Bits a_wins = kIsMin ? (Bits)(a < b) : (Bits)(a > b);
    if constexpr (std::is_integral_v<T>) {
      a = (typename L::Vector)((a_bits & a_wins) | (b_bits & ~a_wins));
    } else {
      const Bits b_wins = kIsMin ? (Bits)(b < a) : (Bits)(b > a);
      const Bits equal = (Bits)(a == b);
      const Bits both = kIsMin ? (a_bits | b_bits) : (a_bits & b_bits);
      const Bits nan = ~(a_wins | b_wins | equal);
      constexpr typename L::Integer kNan = sizeof(T) == 4
                                               ? typename L::Integer{0x7FC00000}
                                               : static_cast<typename L::Integer>(0x7FF8000000000000);
      a = (typename L::Vector)((a_bits & a_wins) | (b_bits & b_wins) | (both & equal) | (nan & kNan));
    }
  }
};

template <typename T, int kBytes>
using Min = Extreme<T, kBytes, true>;
template <typename T, int kBytes>
using Max = Extreme<T, kBytes, false>;

// destination[i] = destination[i] (op) source[i]. The rest shorter than a register goes through a padded one.
template <template <typename, int> class Op, typename T, int kBytes>
TFS_INLINE void ReduceLoop(T* destination, const T* source, int64_t count) {
  using L = Lanes<T, kBytes>;
  typename L::Vector a;
  typename L::Vector b;
  int64_t i = 0;
  for (; i + L::kCount <= count; i += L::kCount) {
    std::memcpy(&a, destination + i, kBytes);
    std::memcpy(&b, source + i, kBytes);
    Op<T, kBytes>::Apply(a, b);
    std::memcpy(destination + i, &a, kBytes);
  }
  if (i == count) return;
  const size_t rest = static_cast<size_t>(count - i) * sizeof(T);
  a = typename L::Vector{};
  b = typename L::Vector{};
  std::memcpy(&a, destination + i, rest);
  std::memcpy(&b, source + i, rest);
  Op<T, kBytes>::Apply(a, b);
  std::memcpy(destination + i, &a, rest);
}

// The same for 16-bit floating point in registers of float32. Format: see half.h.
template <template <typename, int> class Op, typename Format, int kBytes>
TFS_INLINE void ReduceHalfLoop(uint16_t* destination, const uint16_t* source, int64_t count) {
  constexpr int kLanes = kBytes / 4;
  typename Lanes<float, kBytes>::Vector a;
  typename Lanes<float, kBytes>::Vector b;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Format::Load(destination + i, a);
    Format::Load(source + i, b);
    Op<float, kBytes>::Apply(a, b);
    Format::Store(a, destination + i);
  }
  if (i == count) return;
  uint16_t left[kLanes] = {};
  uint16_t right[kLanes] = {};
  const size_t rest = static_cast<size_t>(count - i) * sizeof(uint16_t);
  std::memcpy(left, destination + i, rest);
  std::memcpy(right, source + i, rest);
  Format::Load(left, a);
  Format::Load(right, b);
  Op<float, kBytes>::Apply(a, b);
  Format::Store(a, left);
  std::memcpy(destination + i, left, rest);
}

// Half is the format of float16: software or hardware.
template <template <typename, int> class Op, int kBytes, typename Half>
TFS_INLINE void ReduceAll(DType dtype, void* destination, const void* source, int64_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return ReduceLoop<Op, float, kBytes>(static_cast<float*>(destination),
                                           static_cast<const float*>(source), count);
    case DType::kFloat64:
      return ReduceLoop<Op, double, kBytes>(static_cast<double*>(destination),
                                            static_cast<const double*>(source), count);
    case DType::kInt32:
      return ReduceLoop<Op, int32_t, kBytes>(static_cast<int32_t*>(destination),
                                             static_cast<const int32_t*>(source), count);
    case DType::kInt64:
      return ReduceLoop<Op, int64_t, kBytes>(static_cast<int64_t*>(destination),
                                             static_cast<const int64_t*>(source), count);
    case DType::kFloat16:
      return ReduceHalfLoop<Op, Half, kBytes>(static_cast<uint16_t*>(destination),
                                              static_cast<const uint16_t*>(source), count);
    case DType::kBFloat16:
      return ReduceHalfLoop<Op, BFloat16Format<kBytes>, kBytes>(static_cast<uint16_t*>(destination),
                                                                static_cast<const uint16_t*>(source), count);
    case DType::kByte: return;
  }
}

template <int kBytes, typename Half>
TFS_INLINE void ReduceAny(ReduceOp op, DType dtype, void* destination, const void* source, int64_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean: return ReduceAll<Sum, kBytes, Half>(dtype, destination, source, count);
    case ReduceOp::kMin: return ReduceAll<Min, kBytes, Half>(dtype, destination, source, count);
    case ReduceOp::kMax: return ReduceAll<Max, kBytes, Half>(dtype, destination, source, count);
    case ReduceOp::kNone: return;
  }
}

template <typename T>
TFS_INLINE void DivideIntegers(T* buffer, int64_t count, T divisor) {
  for (int64_t i = 0; i < count; ++i) buffer[i] = buffer[i] / divisor;
}

template <typename T, int kBytes>
TFS_INLINE void DivideFloats(T* buffer, int64_t count, T divisor) {
  using L = Lanes<T, kBytes>;
  typename L::Vector a;
  int64_t i = 0;
  for (; i + L::kCount <= count; i += L::kCount) {
    std::memcpy(&a, buffer + i, kBytes);
    a = a / divisor;
    std::memcpy(buffer + i, &a, kBytes);
  }
  for (; i < count; ++i) buffer[i] = buffer[i] / divisor;
}

// The quotient in float32, rounded so that rounding it again to 16 bits is as if it were rounded once: cut,
// with the last bit set when something was cut off (round to odd).
TFS_INLINE float OddQuotient(float dividend, double divisor) {
  const double exact = dividend / divisor;
  float quotient = static_cast<float>(exact);
  if (static_cast<double>(quotient) == exact || quotient != quotient) return quotient;
  uint32_t bits;
  std::memcpy(&bits, &quotient, sizeof(bits));
  const bool away = exact < 0 ? quotient < exact : quotient > exact;
  bits = (bits - (away ? 1 : 0)) | 1;
  std::memcpy(&quotient, &bits, sizeof(bits));
  return quotient;
}

// A quotient x/d of a 16-bit number x is either the middle m of two neighbouring ones or at least 2^-12/d of
// itself away from it, since x and m*d are multiples of half a last place. So float32, with its 24 bits,
// never rounds onto a middle as long as d is below 2^11, and two roundings equal one. Larger divisors take
// the careful way.
template <typename Format, int kBytes>
TFS_INLINE void DivideHalves(uint16_t* buffer, int64_t count, int64_t divisor) {
  constexpr int kLanes = kBytes / 4;
  constexpr int64_t kSmallDivisor = 1 << 11;
  typename Lanes<float, kBytes>::Vector a;
  float lanes[kLanes];
  uint16_t block[kLanes];
  for (int64_t i = 0; i < count; i += kLanes) {
    const size_t bytes = (count - i < kLanes ? static_cast<size_t>(count - i) : kLanes) * sizeof(uint16_t);
    std::memset(block, 0, sizeof(block));
    std::memcpy(block, buffer + i, bytes);
    Format::Load(block, a);
    if (divisor < kSmallDivisor) {
      a = a / static_cast<float>(divisor);
    } else {
      std::memcpy(lanes, &a, sizeof(lanes));
      for (float& lane : lanes) lane = OddQuotient(lane, static_cast<double>(divisor));
      std::memcpy(&a, lanes, sizeof(lanes));
    }
    Format::Store(a, block);
    std::memcpy(buffer + i, block, bytes);
  }
}

template <int kBytes, typename Half>
TFS_INLINE void DivideAny(DType dtype, void* buffer, int64_t count, int64_t divisor) {
  switch (dtype) {
    case DType::kFloat32:
      return DivideFloats<float, kBytes>(static_cast<float*>(buffer), count, static_cast<float>(divisor));
    case DType::kFloat64:
      return DivideFloats<double, kBytes>(static_cast<double*>(buffer), count, static_cast<double>(divisor));
    case DType::kInt32:
      return DivideIntegers(static_cast<int32_t*>(buffer), count, static_cast<int32_t>(divisor));
    case DType::kInt64: return DivideIntegers(static_cast<int64_t*>(buffer), count, divisor);
    case DType::kFloat16: return DivideHalves<Half, kBytes>(static_cast<uint16_t*>(buffer), count, divisor);
    case DType::kBFloat16:
      return DivideHalves<BFloat16Format<kBytes>, kBytes>(static_cast<uint16_t*>(buffer), count, divisor);
    case DType::kByte: return;
  }
}

}  // namespace tf_strategies::reduce

#endif  // OPS_REDUCE_KERNELS_H_

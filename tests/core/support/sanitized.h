// Whether a sanitizer watches. A program is then some ten times slower, and loops over sizes end earlier.
#ifndef TESTS_CORE_SUPPORT_SANITIZED_H_
#define TESTS_CORE_SUPPORT_SANITIZED_H_

namespace tf_strategies {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tf_strategies

#endif  // TESTS_CORE_SUPPORT_SANITIZED_H_

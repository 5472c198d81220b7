// Checks for programming errors: print both values and abort. Errors of input or of the network are Status instead.
#ifndef OPS_BASE_CHECK_H_
#define OPS_BASE_CHECK_H_

#include <sstream>
#include <string>

namespace tf_strategies {

[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

template <typename A, typename B>
[[noreturn]] void CheckCompareFailed(const char* file, int line, const char* expression, const A& a,
                                     const B& b) {
  std::ostringstream text;
  text << expression << " (" << a << " against " << b << ")";
  CheckFailed(file, line, text.str());
}

}  // namespace tf_strategies

#define TFS_CHECK(condition)                                                        \
  do {                                                                              \
    if (!(condition)) ::tf_strategies::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#define TFS_CHECK_COMPARE_(a, op, b)                                                              \
  do {                                                                                            \
    const auto& tfs_a_ = (a);                                                                     \
    const auto& tfs_b_ = (b);                                                                     \
    if (!(tfs_a_ op tfs_b_))                                                                      \
      ::tf_strategies::CheckCompareFailed(__FILE__, __LINE__, #a " " #op " " #b, tfs_a_, tfs_b_); \
  } while (false)

#define TFS_CHECK_EQ(a, b) TFS_CHECK_COMPARE_(a, ==, b)
#define TFS_CHECK_GE(a, b) TFS_CHECK_COMPARE_(a, >=, b)
#define TFS_CHECK_GT(a, b) TFS_CHECK_COMPARE_(a, >, b)
#define TFS_CHECK_LE(a, b) TFS_CHECK_COMPARE_(a, <=, b)
#define TFS_CHECK_LT(a, b) TFS_CHECK_COMPARE_(a, <, b)

#endif  // OPS_BASE_CHECK_H_

// How much memory this process takes.
#ifndef TESTS_CORE_SUPPORT_RESIDENT_BYTES_H_
#define TESTS_CORE_SUPPORT_RESIDENT_BYTES_H_

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace tf_strategies {

inline int64_t ResidentBytes() {
  int64_t unused = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> unused >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace tf_strategies

#endif  // TESTS_CORE_SUPPORT_RESIDENT_BYTES_H_

// Ends a benchmark with an error.
#ifndef OPS_BENCH_DIE_UNLESS_H_
#define OPS_BENCH_DIE_UNLESS_H_

#include <cstdio>
#include <cstdlib>

#include "ops/base/status.h"

namespace tf_strategies {

// Prints the error and ends the process, unless the status is OK.
inline void DieUnless(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "benchmark: %s\n", status.ToString().c_str());
  std::_Exit(1);
}

}  // namespace tf_strategies

#endif  // OPS_BENCH_DIE_UNLESS_H_

// StalenessCounts: statistics of the staleness of applied gradients.
#ifndef OPS_LEDGER_STALENESS_H_
#define OPS_LEDGER_STALENESS_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace tf_strategies::ledger {

struct StalenessCounts {
  static constexpr int64_t kBins = 256;

  std::array<int64_t, kBins> histogram{};  // the last bin counts all values from kBins - 1
  int64_t count = 0;
  int64_t total = 0;
  int64_t maximum = 0;

  void Add(int64_t staleness) {
    ++histogram[std::min(staleness, kBins - 1)];
    ++count;
    total += staleness;
    maximum = std::max(maximum, staleness);
  }
};

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_STALENESS_H_

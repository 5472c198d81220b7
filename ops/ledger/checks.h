// Checks arguments of the ledger's calls.
#ifndef OPS_LEDGER_CHECKS_H_
#define OPS_LEDGER_CHECKS_H_

#include <cstdint>
#include <sstream>
#include <string>

#include "ops/base/status.h"

namespace tf_strategies::ledger {

constexpr double kLongestTimeout = 1e7;  // seconds

inline std::string SecondsText(double seconds) {
  std::ostringstream text;
  text << seconds;
  return text.str();
}

inline Status CheckAtLeast(const char* what, int64_t value, int64_t least) {
  if (value >= least) return Status::Ok();
  return InvalidArgument(std::string(what) + " must be at least " + std::to_string(least) + "; got " +
                         std::to_string(value));
}

inline Status CheckTimeout(double timeout) {
  if (timeout >= 0 && timeout <= kLongestTimeout) return Status::Ok();
  return InvalidArgument("timeout must be between 0 and " + SecondsText(kLongestTimeout) + " seconds; got " +
                         SecondsText(timeout));
}

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_CHECKS_H_

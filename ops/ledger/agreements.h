// Agreements: texts that must be the same on every worker, by key; the first to bring one decides. Not thread-safe.
#ifndef OPS_LEDGER_AGREEMENTS_H_
#define OPS_LEDGER_AGREEMENTS_H_

#include <string>
#include <unordered_map>

#include "ops/base/status.h"

namespace tf_strategies::ledger {

class Agreements {
 public:
  static constexpr size_t kMostKeys = 1 << 16;
  static constexpr size_t kMostBytes = 64 << 20;  // of all keys and texts

  // Returns kMismatch when another text was brought for the key; the message names both sides.
  // who: the name of the worker that brings it.
  Status Bring(const std::string& who, const std::string& key, const std::string& text);

 private:
  struct Entry {
    std::string text;
    std::string who;
  };
  std::unordered_map<std::string, Entry> entries_;
  size_t bytes_ = 0;
};

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_AGREEMENTS_H_

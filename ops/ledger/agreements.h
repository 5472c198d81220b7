// Agreements: texts that must be equal on all workers, by key. The first text for a key is kept. Not
// thread-safe.
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

  // Returns kMismatch if a different text was given for the key; the message shows both. who: the name of the
  // calling worker.
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

// Agreements: texts that must be equal on all workers, by key. The first text for a key is stored. Not thread-safe.
#ifndef OPS_LEDGER_AGREEMENTS_H_
#define OPS_LEDGER_AGREEMENTS_H_

#include <string>
#include <unordered_map>

#include "ops/base/status.h"

namespace tf_strategies::ledger {

class Agreements {
 public:
  static constexpr size_t kMostKeys = 1 << 16;
  static constexpr size_t kMostBytes = 64 << 20;  // the limit for all keys and texts

  // Compares the text with the stored text of the key, or stores it. Returns kMismatch if they differ; the message
  // shows both. Returns kResourceExhausted if there is no room for another text.
  //
  // who: the name of the calling worker.
  Status Check(const std::string& who, const std::string& key, const std::string& text);

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

#include "ops/ledger/agreements.h"

#include "ops/ledger/roster.h"

namespace tf_strategies::ledger {

Status Agreements::Check(const std::string& who, const std::string& key, const std::string& text) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    const Entry& first = found->second;
    if (first.text == text) return Status::Ok();
    return Mismatch("'" + key + "' differs between " + who + " and " + first.who +
                    "; the first difference: " + FirstDifference(text, first.text));
  }
  TFS_RETURN_IF_ERROR(CheckText("the key of an agreement", key, kMostBytes));
  const size_t bytes = key.size() + text.size();
  if (entries_.size() >= kMostKeys || bytes > kMostBytes - bytes_) {
    return ResourceExhausted(who + " sends '" + key.substr(0, 100) + "' of " + std::to_string(bytes) +
                             " bytes, but " + std::to_string(entries_.size()) + " texts of " +
                             std::to_string(bytes_) + " bytes are stored; the limits are " +
                             std::to_string(kMostKeys) + " texts and " + std::to_string(kMostBytes) +
                             " bytes");
  }
  bytes_ += bytes;
  entries_.emplace(key, Entry{text, who});
  return Status::Ok();
}

}  // namespace tf_strategies::ledger

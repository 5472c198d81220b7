#include "ops/communicator/recorder.h"

#include <algorithm>
#include <utility>

namespace tf_strategies {

int64_t Recorder::Submitted(int instance, std::shared_ptr<const Collective> collective,
                            Clock::time_point when) {
  Entry& entry = entries_[next_ % entries_.size()];
  entry = {};
  entry.number = next_;
  entry.instance = instance;
  entry.collective = std::move(collective);
  entry.submitted = when;
  if (outstanding_++ == 0) outstanding_since_ = when;
  return next_++;
}

void Recorder::Started(int64_t number, int64_t use) {
  Entry* const entry = Find(number);
  if (entry == nullptr) return;
  entry->started = Clock::now();
  entry->use = use;
}

void Recorder::Ended(int64_t number, int last_peer, Code code) {
  const auto now = Clock::now();
  if (--outstanding_ == 0) outstanding_before_ += now - outstanding_since_;
  Entry* const entry = Find(number);
  if (entry == nullptr) return;
  entry->ended = now;
  entry->last_peer = last_peer;
  entry->code = code;
}

double Recorder::SecondsOutstanding() const {
  Clock::duration total = outstanding_before_;
  if (outstanding_ > 0) total += Clock::now() - outstanding_since_;
  return std::chrono::duration<double>(total).count();
}

const Collective* Recorder::LastOn(int instance) const {
  const int64_t kept = static_cast<int64_t>(entries_.size());
  for (int64_t number = next_ - 1; number >= std::max<int64_t>(0, next_ - kept); --number) {
    const Entry& entry = entries_[number % kept];
    if (entry.instance == instance) return entry.collective.get();
  }
  return nullptr;
}

std::vector<Recorder::Entry> Recorder::Entries() const {
  const int64_t kept = static_cast<int64_t>(entries_.size());
  std::vector<Entry> entries;
  for (int64_t number = std::max<int64_t>(0, next_ - kept); number < next_; ++number) {
    entries.push_back(entries_[number % kept]);
  }
  return entries;
}

Recorder::Entry* Recorder::Find(int64_t number) {
  Entry& entry = entries_[number % entries_.size()];
  return entry.number == number ? &entry : nullptr;
}

}  // namespace tf_strategies

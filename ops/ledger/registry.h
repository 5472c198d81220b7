// The ledgers of this process, by name, and the thread that ends their overdue waits.
#ifndef OPS_LEDGER_REGISTRY_H_
#define OPS_LEDGER_REGISTRY_H_

#include <string>
#include <vector>

#include "ops/base/status.h"
#include "ops/ledger/exactly_once.h"
#include "ops/ledger/gradient_accumulator.h"
#include "ops/ledger/ledger.h"

namespace tf_strategies::ledger {

// The state of a server for one ledger. It lives as long as the process.
struct Books {
  Books(const std::string& name, Ledger::Clock clock, std::function<void(double)> on_deadline)
      : ledger(name, std::move(clock), std::move(on_deadline)),
        accumulator([this](int worker) { return ledger.NameOf(worker); }) {}

  Ledger ledger;
  GradientAccumulator accumulator;
  ExactlyOnce exactly_once;
};

constexpr size_t kMostLedgers = 1024;
constexpr size_t kLongestLedgerName = 256;  // bytes

// Thread-safe. Returns the state of a ledger, and makes it on first use.
Status OpenBooks(const std::string& name, Books** books);
// Thread-safe. Returns null if there is no such ledger.
Books* FindBooks(const std::string& name);
// Thread-safe. Returns the names of all ledgers.
std::vector<std::string> NamesOfBooks();

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_REGISTRY_H_

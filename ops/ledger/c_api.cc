#include "ops/ledger/c_api.h"

#include <string>

#include "ops/base/c_interface.h"
#include "ops/ledger/registry.h"

using tf_strategies::CopyOut;
using tf_strategies::ledger::FindBooks;

int64_t tfs_ledger_names(char* text, int64_t capacity) {
  std::string lines;
  for (const std::string& name : tf_strategies::ledger::NamesOfBooks()) lines += name + "\n";
  return CopyOut(lines, text, capacity);
}

int64_t tfs_ledger_members(const char* ledger, char* text, int64_t capacity) {
  const auto* books = FindBooks(ledger);
  if (books == nullptr) return -1;
  std::string lines;
  for (const auto& member : books->ledger.Members()) {
    lines += MemberStatusName(member.status) + (" " + std::to_string(member.incarnation)) + " " +
             member.name + "\n";
  }
  return CopyOut(lines, text, capacity);
}

int tfs_ledger_mark_lost(const char* ledger, int worker, int64_t incarnation) {
  auto* books = FindBooks(ledger);
  return books == nullptr ? -1 : static_cast<int>(books->ledger.MarkLost({worker, incarnation}));
}

int tfs_ledger_hold(const char* ledger) {
  auto* books = FindBooks(ledger);
  return books == nullptr ? -1 : static_cast<int>(books->ledger.Hold());
}

int tfs_ledger_release(const char* ledger) {
  auto* books = FindBooks(ledger);
  if (books == nullptr) return -1;
  books->ledger.Release();
  return 0;
}

#include "ops/ledger/registry.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace tf_strategies::ledger {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLongestSleep = 3600;  // seconds

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Lock order: a thread that holds the lock of a ledger may lock alarm_mutex_, but not the other way round.
class Registry {
 public:
  Registry() {
    std::thread([this] { EndOverdue(); }).detach();
  }

  Status Open(const std::string& name, Books** books) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = books_.find(name);
    if (found != books_.end()) {
      *books = found->second.get();
      return Status::Ok();
    }
    TFS_RETURN_IF_ERROR(CheckText("the name of a ledger", name, kLongestLedgerName));
    if (books_.size() >= kMostLedgers) {
      return ResourceExhausted("ledger '" + name + "' cannot be made: this process has " +
                               std::to_string(kMostLedgers) +
                               " ledgers, which is the limit; restart this parameter server");
    }
    auto made = std::make_unique<Books>(name, Now, [this](double at) { WakeAt(at); });
    *books = made.get();
    books_.emplace(name, std::move(made));
    return Status::Ok();
  }

  Books* Find(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = books_.find(name);
    return found == books_.end() ? nullptr : found->second.get();
  }

  std::vector<std::string> Names() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, books] : books_) names.push_back(name);
    return names;
  }

 private:
  void WakeAt(double at) {
    std::lock_guard<std::mutex> lock(alarm_mutex_);
    if (at >= wake_at_) return;
    wake_at_ = at;
    alarm_.notify_all();
  }

  [[noreturn]] void EndOverdue() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(alarm_mutex_);
        while (Now() < wake_at_) {
          alarm_.wait_for(lock, std::chrono::duration<double>(std::min(wake_at_ - Now(), kLongestSleep)));
        }
        wake_at_ = kNever;
      }
      double next = kNever;
      for (Books* books : All()) next = std::min(next, books->ledger.Expire());
      WakeAt(next);
    }
  }

  std::vector<Books*> All() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Books*> all;
    for (const auto& [name, books] : books_) all.push_back(books.get());
    return all;
  }

  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Books>> books_;
  std::mutex alarm_mutex_;
  std::condition_variable alarm_;
  double wake_at_ = kNever;
};

// It is never destroyed, because its thread runs until the process ends.
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

}  // namespace

Status OpenBooks(const std::string& name, Books** books) { return TheRegistry().Open(name, books); }

Books* FindBooks(const std::string& name) { return TheRegistry().Find(name); }

std::vector<std::string> NamesOfBooks() { return TheRegistry().Names(); }

}  // namespace tf_strategies::ledger

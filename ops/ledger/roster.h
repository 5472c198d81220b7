// Roster: the workers of one ledger, the process of each worker, and its status. Not thread-safe.
//
// A worker has a number from 0 to size - 1. An incarnation identifies one process of a worker.
#ifndef OPS_LEDGER_ROSTER_H_
#define OPS_LEDGER_ROSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/base/status.h"

namespace tf_strategies::ledger {

enum class MemberStatus : uint8_t {
  kExpected = 0,  // has not joined yet
  kTraining = 1,
  kIdle = 2,      // between two fits
  kFinished = 3,  // has stopped finally
  kLost = 4,      // was declared lost
};

const char* MemberStatusName(MemberStatus status);

struct Member {
  std::string name;  // "worker 1 (10.0.0.2:2222)"
  MemberStatus status = MemberStatus::kExpected;
  int64_t incarnation = 0;
  int64_t generation = 0;  // the fit that it has entered last
  bool entering = false;   // whether it waits until the other workers enter
  int64_t clock = 0;       // the number of its pushes, plus the clock with which it began
  int64_t counted = 0;     // the number of its submissions that counted
  int64_t dropped = 0;     // the number of its submissions that were dropped
};

struct Caller {
  int worker = -1;
  int64_t incarnation = 0;
};

class Roster {
 public:
  static constexpr int64_t kMostWorkers = 1 << 16;
  static constexpr size_t kLongestName = 1024;        // bytes
  static constexpr size_t kLongestOptions = 1 << 20;  // bytes

  explicit Roster(std::string ledger) : ledger_(std::move(ledger)) {}

  // Returns an error if the caller must not join. The first process that joins sets names (one for each worker) and
  // options. Other processes must have the same.
  Status CheckJoin(const Caller& caller, const std::vector<std::string>& names,
                   const std::string& options) const;

  // Call it after CheckJoin. Returns true if the caller is new. It trains from now on.
  bool Join(const Caller& caller, const std::vector<std::string>& names, const std::string& options);

  // Returns an error if the caller is not the current process of its worker, or was declared lost.
  Status CheckCaller(const Caller& caller) const;
  // Returns an error also if the caller has finished.
  Status CheckActive(const Caller& caller) const;

  // Makes a member train. If it did not train before, its clock becomes that of the slowest member that trains.
  void Train(int worker);

  bool begun() const { return !members_.empty(); }
  int size() const { return static_cast<int>(members_.size()); }
  Member& operator[](int worker) { return members_[worker]; }
  const Member& operator[](int worker) const { return members_[worker]; }
  const std::string& ledger() const { return ledger_; }

  // Returns the number of workers that may submit: members that are expected, or that train and do not wait in Enter.
  int64_t Available() const;
  bool IsAvailable(int worker) const;
  // Returns true if the worker is neither finished nor lost.
  bool IsPresent(int worker) const;

  std::string NameOf(int worker) const;
  // "worker 0 (...), worker 1 (...)"; long lists are cut.
  std::string NamesOf(const std::vector<int>& workers) const;

 private:
  std::string Where() const { return "ledger '" + ledger_ + "'"; }

  const std::string ledger_;
  std::vector<Member> members_;
  std::string options_;
  int first_joined_ = -1;  // the worker that set names and options
};

// Returns excerpts of two texts around their first difference: "'..., rate=0.1' and '..., rate=0.2'".
std::string FirstDifference(const std::string& a, const std::string& b);

// Returns an error if the text is empty, too long (in bytes), or has control characters.
Status CheckText(const char* what, const std::string& text, size_t longest);

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_ROSTER_H_

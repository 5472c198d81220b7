// Roster: the workers of one ledger, which process each of them is, and what it is doing. Not thread-safe.
//
// A worker is known by its number, 0..size-1; an incarnation tells one process of it from the next.
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
  kFinished = 3,  // done for good
  kLost = 4,      // declared dead
};

const char* MemberStatusName(MemberStatus status);

struct Member {
  std::string name;  // "worker 1 (10.0.0.2:2222)"
  MemberStatus status = MemberStatus::kExpected;
  int64_t incarnation = 0;
  int64_t generation = 0;  // the fit it has entered last
  bool entering = false;   // waits for the others to enter
  int64_t clock = 0;       // its pushes, or where it began
  int64_t counted = 0;     // of its submissions
  int64_t dropped = 0;     // of its submissions
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

  // What Join would refuse. The first process to join fixes names (one a worker) and options; the others must bring the same.
  Status CheckJoin(const Caller& caller, const std::vector<std::string>& names,
                   const std::string& options) const;

  // After CheckJoin. Returns whether the caller is new: it trains from now on.
  bool Join(const Caller& caller, const std::vector<std::string>& names, const std::string& options);

  // That the caller is the current process of its worker and has not been declared lost.
  Status CheckCaller(const Caller& caller) const;
  // Also that it has not finished.
  Status CheckActive(const Caller& caller) const;

  // A member that did not train begins where the slowest of those that train are.
  void Train(int worker);

  bool begun() const { return !members_.empty(); }
  int size() const { return static_cast<int>(members_.size()); }
  Member& operator[](int worker) { return members_[worker]; }
  const Member& operator[](int worker) const { return members_[worker]; }
  const std::string& ledger() const { return ledger_; }

  // How many workers a submission may count on: members that are expected, or train and do not wait for others to enter.
  int64_t Available() const;
  bool IsAvailable(int worker) const;
  // Whether it may come yet, or is here.
  bool IsPresent(int worker) const;

  std::string NameOf(int worker) const;
  std::string NamesOf(
      const std::vector<int>& workers) const;  // "worker 0 (...), worker 1 (...)"; long lists are cut

 private:
  std::string Where() const { return "ledger '" + ledger_ + "'"; }

  const std::string ledger_;
  std::vector<Member> members_;
  std::string options_;
  int founder_ = -1;  // who fixed names and options
};

// Where two texts differ first, with a little of both: "'..., rate=0.1' and '..., rate=0.2'".
std::string FirstDifference(const std::string& a, const std::string& b);

// Text that fits a line of a message: no control characters, not empty, not too long.
Status CheckText(const char* what, const std::string& text, size_t longest);

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_ROSTER_H_

#include "ops/ledger/roster.h"

#include <algorithm>
#include <limits>

namespace tf_strategies::ledger {
namespace {

constexpr size_t kBefore = 40;  // bytes of context in FirstDifference
constexpr size_t kAfter = 60;
constexpr size_t kMostNames = 8;

std::string Excerpt(const std::string& text, size_t begin) {
  const std::string part = text.substr(begin, kBefore + kAfter);
  return std::string("'") + (begin > 0 ? "..." : "") + part +
         (begin + part.size() < text.size() ? "..." : "") + "'";
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

const char* MemberStatusName(MemberStatus status) {
  switch (status) {
    case MemberStatus::kExpected: return "expected";
    case MemberStatus::kTraining: return "training";
    case MemberStatus::kIdle: return "idle";
    case MemberStatus::kFinished: return "finished";
    case MemberStatus::kLost: return "lost";
  }
  return "unknown";
}

std::string FirstDifference(const std::string& a, const std::string& b) {
  const size_t shorter = std::min(a.size(), b.size());
  const size_t at = std::mismatch(a.begin(), a.begin() + shorter, b.begin()).first - a.begin();
  const size_t begin = at > kBefore ? at - kBefore : 0;
  return Excerpt(a, begin) + " and " + Excerpt(b, begin);
}

Status CheckText(const char* what, const std::string& text, size_t longest) {
  const std::string name(what);
  if (text.empty()) return InvalidArgument(name + " is empty");
  if (text.size() > longest) {
    return InvalidArgument(name + " has " + std::to_string(text.size()) + " bytes; at most " +
                           std::to_string(longest) + " are allowed");
  }
  const auto bad = std::find_if(text.begin(), text.end(), IsControl);
  if (bad == text.end()) return Status::Ok();
  return InvalidArgument(name + " has the control character " +
                         std::to_string(static_cast<unsigned char>(*bad)) + " at byte " +
                         std::to_string(bad - text.begin()));
}

Status Roster::CheckJoin(const Caller& caller, const std::vector<std::string>& names,
                         const std::string& options) const {
  const auto size = static_cast<int64_t>(names.size());
  if (size < 1 || size > kMostWorkers) {
    return InvalidArgument(Where() + " of " + std::to_string(size) + " workers: 1 to " +
                           std::to_string(kMostWorkers) + " are allowed");
  }
  if (caller.worker < 0 || caller.worker >= size) {
    return InvalidArgument("worker " + std::to_string(caller.worker) + " joins " + Where() + " of " +
                           std::to_string(size) + " workers: it must be 0 to " + std::to_string(size - 1));
  }
  for (const std::string& name : names) {
    TFS_RETURN_IF_ERROR(CheckText("the name of a worker", name, kLongestName));
  }
  if (options.size() > kLongestOptions) {
    return InvalidArgument("options have " + std::to_string(options.size()) + " bytes; at most " +
                           std::to_string(kLongestOptions) + " are allowed");
  }
  if (!begun()) return Status::Ok();
  const std::string mine = names[caller.worker];
  const std::string theirs = members_[first_joined_].name;
  if (size != this->size()) {
    return Mismatch(Where() + ": " + mine + " says that there are " + std::to_string(size) + " workers, " +
                    theirs + " said " + std::to_string(this->size()));
  }
  for (int worker = 0; worker < size; ++worker) {
    if (names[worker] != members_[worker].name) {
      return Mismatch(Where() + ": " + mine + " calls worker " + std::to_string(worker) + " '" +
                      names[worker] + "', " + theirs + " called it '" + members_[worker].name + "'");
    }
  }
  if (options != options_) {
    return Mismatch(Where() + ": " + mine + " joins with other options than " + theirs +
                    "; the first difference: " + FirstDifference(options, options_));
  }
  const Member& member = members_[caller.worker];
  if (member.status == MemberStatus::kLost && member.incarnation == caller.incarnation) {
    return CheckCaller(caller);
  }
  return Status::Ok();
}

bool Roster::Join(const Caller& caller, const std::vector<std::string>& names, const std::string& options) {
  if (!begun()) {
    first_joined_ = caller.worker;
    options_ = options;
    members_.resize(names.size());
    for (size_t worker = 0; worker < names.size(); ++worker) members_[worker].name = names[worker];
  }
  Member& member = members_[caller.worker];
  if (member.status != MemberStatus::kExpected && member.incarnation == caller.incarnation) return false;
  member.incarnation = caller.incarnation;
  member.generation = 0;
  member.entering = false;
  member.status = MemberStatus::kIdle;
  Train(caller.worker);
  return true;
}

Status Roster::CheckCaller(const Caller& caller) const {
  if (caller.worker < 0 || (begun() && caller.worker >= size())) {
    return InvalidArgument("worker " + std::to_string(caller.worker) + " calls " + Where() + " of " +
                           std::to_string(size()) + " workers");
  }
  if (!begun() || members_[caller.worker].status == MemberStatus::kExpected) {
    return FailedPrecondition(NameOf(caller.worker) + " has not joined " + Where() +
                              " in this process: was this parameter server restarted? Restart the workers");
  }
  const Member& member = members_[caller.worker];
  if (member.incarnation != caller.incarnation) {
    return Aborted(member.name + " was replaced in " + Where() +
                   ": a newer process has joined as this worker; end this one");
  }
  if (member.status == MemberStatus::kLost) {
    return Aborted(member.name + " was declared lost in " + Where() +
                   ": its connection to the parameter server broke; restart it");
  }
  return Status::Ok();
}

Status Roster::CheckActive(const Caller& caller) const {
  TFS_RETURN_IF_ERROR(CheckCaller(caller));
  if (members_[caller.worker].status == MemberStatus::kFinished) {
    return FailedPrecondition(members_[caller.worker].name + " has finished in " + Where() +
                              ": start a new process to train again");
  }
  return Status::Ok();
}

void Roster::Train(int worker) {
  Member& member = members_[worker];
  if (member.status == MemberStatus::kTraining) return;
  int64_t slowest = std::numeric_limits<int64_t>::max();
  for (const Member& other : members_) {
    if (other.status == MemberStatus::kTraining) slowest = std::min(slowest, other.clock);
  }
  if (slowest != std::numeric_limits<int64_t>::max()) member.clock = slowest;
  member.status = MemberStatus::kTraining;
}

bool Roster::IsAvailable(int worker) const {
  const Member& member = members_[worker];
  return member.status == MemberStatus::kExpected ||
         (member.status == MemberStatus::kTraining && !member.entering);
}

bool Roster::IsPresent(int worker) const {
  const MemberStatus status = members_[worker].status;
  return status != MemberStatus::kFinished && status != MemberStatus::kLost;
}

int64_t Roster::Available() const {
  int64_t count = 0;
  for (int worker = 0; worker < size(); ++worker) count += IsAvailable(worker);
  return count;
}

std::string Roster::NameOf(int worker) const {
  if (worker >= 0 && worker < size()) return members_[worker].name;
  return "worker " + std::to_string(worker);
}

std::string Roster::NamesOf(const std::vector<int>& workers) const {
  std::string text;
  for (size_t i = 0; i < workers.size() && i < kMostNames; ++i) {
    text += (i > 0 ? ", " : "") + NameOf(workers[i]);
  }
  if (workers.size() > kMostNames) text += " and " + std::to_string(workers.size() - kMostNames) + " more";
  return text.empty() ? "nobody" : text;
}

}  // namespace tf_strategies::ledger

#include "ops/transport/transport_list.h"

#include <algorithm>
#include <sstream>

namespace tf_strategies {

TransportList::TransportList(const std::string& tls) {
  excludes_ = tls.empty() || tls[0] == '^';
  std::istringstream names(excludes_ && !tls.empty() ? tls.substr(1) : tls);
  for (std::string name; std::getline(names, name, ',');) names_.insert(name);
}

// cma, knem and the like only help those that carry messages.
bool TransportList::SharesMemory() const {
  if (!excludes_) return NamesOneOf({"all", "sm", "shm", "mm", "posix", "sysv", "xpmem"});
  // Without both of these only xpmem is left, which few systems have.
  return !NamesOneOf({"sm", "shm", "mm"}) && !(NamesOneOf({"posix"}) && NamesOneOf({"sysv"}));
}

bool TransportList::HasTcp() const { return excludes_ ? !NamesOneOf({"tcp"}) : NamesOneOf({"all", "tcp"}); }

bool TransportList::HasSelf() const {
  return excludes_ ? !NamesOneOf({"self"}) : NamesOneOf({"all", "self"});
}

bool TransportList::NamesOneOf(const std::set<std::string>& names) const {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return names_.count(name) != 0; });
}

}  // namespace tf_strategies

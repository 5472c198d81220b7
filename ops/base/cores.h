// How many cores this process may use.
#ifndef OPS_BASE_CORES_H_
#define OPS_BASE_CORES_H_

#include <string>

namespace tf_strategies {

// Returns the cores that the affinity of this thread and the quotas of its control groups allow, at least 1. A quota of 1.5 cores
// counts as 1: a second busy thread would be stopped for a part of each period.
//
// root: the folder that has proc/self/cgroup and sys/fs/cgroup, for tests.
int AvailableCores(const std::string& root = "/");

}  // namespace tf_strategies

#endif  // OPS_BASE_CORES_H_

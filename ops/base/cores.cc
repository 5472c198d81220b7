#include "ops/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace tf_strategies {
namespace {

int CoresOfAffinity() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) !=
      0) {  // a machine with more cores than the set has bits
    return static_cast<int>(std::thread::hardware_concurrency());
  }
  return CPU_COUNT(&allowed);
}

// Microseconds that may be used in a period, over the period. No quota, or a file that says something else: `cores`.
int CoresOfQuota(const std::string& quota, const std::string& period, int cores) {
  std::istringstream quota_text(quota), period_text(period);
  double used = 0, whole = 0;
  if (!(quota_text >> used) || !(period_text >> whole) || used <= 0 || whole <= 0) return cores;
  return static_cast<int>(std::min<double>(cores, used / whole));
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The folder and its parents up to the mount: the smallest quota of all.
template <typename Cores>
int SmallestOfParents(const std::string& mount, std::string group, Cores cores_of) {
  int cores = cores_of(mount);
  while (!group.empty() && group != "/") {
    cores = std::min(cores, cores_of(mount + group));
    group.erase(group.rfind('/'));
  }
  return cores;
}

// proc(5), cgroups(7): lines "hierarchy:controllers:path". Version 2 has hierarchy 0 and no controllers.
int CoresOfGroups(const std::string& root, int cores) {
  std::ifstream groups(root + "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/' || path.find("/..") != std::string::npos) continue;
    if (controllers == ",,") {
      cores = SmallestOfParents(root + "sys/fs/cgroup", path, [cores](const std::string& folder) {
        std::istringstream limit(FirstLine(folder + "/cpu.max"));  // "150000 100000" or "max 100000"
        std::string quota, period;
        limit >> quota >> period;
        return CoresOfQuota(quota, period, cores);
      });
    } else if (controllers.find(",cpu,") != std::string::npos) {
      cores = SmallestOfParents(root + "sys/fs/cgroup/cpu", path, [cores](const std::string& folder) {
        return CoresOfQuota(FirstLine(folder + "/cpu.cfs_quota_us"), FirstLine(folder + "/cpu.cfs_period_us"),
                            cores);
      });
    }
  }
  return cores;
}

}  // namespace

int AvailableCores(const std::string& root) { return std::max(1, CoresOfGroups(root, CoresOfAffinity())); }

}  // namespace tf_strategies

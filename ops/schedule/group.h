// The ranks of a group and their connections, on which the choice of an algorithm depends.
#ifndef OPS_SCHEDULE_GROUP_H_
#define OPS_SCHEDULE_GROUP_H_

namespace tf_strategies::schedule {

enum class Wire {
  kSharedMemory,  // all ranks are on one host and share memory
  kNetwork,
};

struct Group {
  Group(int ranks, int ranks_per_host = 1,
        Wire joined_by = Wire::kSharedMemory)  // NOLINT: a number of ranks is a group
      : size(ranks), per_host(ranks_per_host), wire(joined_by) {}

  int size;
  int per_host;  // ranks of each host, which follow one another; 1 where hosts have different numbers; divides size
  Wire wire;
};

}  // namespace tf_strategies::schedule

#endif  // OPS_SCHEDULE_GROUP_H_

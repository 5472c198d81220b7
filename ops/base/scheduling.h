// How the operating system shares cores between this thread and others.
#ifndef OPS_BASE_SCHEDULING_H_
#define OPS_BASE_SCHEDULING_H_

namespace tf_strategies {

// For a thread that wakes often and works little: it takes its share of the cores in short turns, and so comes to its turn soon
// after it wakes, although threads that compute keep all cores. Its share stays the same. Needs Linux 6.12; otherwise does nothing.
void PreferShortTurns();

}  // namespace tf_strategies

#endif  // OPS_BASE_SCHEDULING_H_

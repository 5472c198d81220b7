// How the operating system shares cores between this thread and others.
#ifndef OPS_BASE_SCHEDULING_H_
#define OPS_BASE_SCHEDULING_H_

namespace tf_strategies {

// For a thread that wakes up often and works little: it gets short time slices, and so runs soon after it
// wakes up, even if other threads use all cores. Its share of the cores does not change. Needs Linux 6.12;
// does nothing otherwise.
void PreferShortTurns();

}  // namespace tf_strategies

#endif  // OPS_BASE_SCHEDULING_H_

// Chooses among versions of code that are compiled for several instruction sets.
#ifndef OPS_BASE_WIDEST_H_
#define OPS_BASE_WIDEST_H_

#include <vector>

namespace tf_strategies {

// The last of `paths` that this machine supports. They go from the narrowest to the widest; the first is supported everywhere.
// Path has a member `bool (*supported)()`.
template <typename Path>
const Path& WidestSupported(const std::vector<Path>& paths) {
  const Path* widest = &paths.front();
  for (const Path& path : paths) {
    if (path.supported()) widest = &path;
  }
  return *widest;
}

}  // namespace tf_strategies

#endif  // OPS_BASE_WIDEST_H_

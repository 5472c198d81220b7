// Each of the d trees over P ranks needs P-1 places for children; each rank offers d. Lay the d*P places out
// in the order of ranks and give tree i the places [i(P-1), (i+1)(P-1)): it has inner nodes on neighbouring
// ranks only, all but the first and the last of them with d children. Numbering ranks from the first inner
// node (positions), node after node takes the next positions as its children, breadth first, so every place
// follows from arithmetic.
#include "ops/schedule/balanced_trees.h"

#include <algorithm>

#include "ops/base/check.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {

TreePlace BalancedTreePlace(int rank, int size, int trees, int tree) {
  const int64_t first_place = static_cast<int64_t>(tree) * (size - 1);
  const int root = static_cast<int>(first_place / trees);
  const int64_t root_children = std::min<int64_t>(size - 1, trees - first_place % trees);
  const int position = (rank - root + size) % size;

  TreePlace place;
  place.root = root;
  place.root_children = static_cast<int>(root_children);
  // The number of children of the nodes before this position, and of those up to and including it.
  const int64_t before = position == 0 ? 0 : root_children + static_cast<int64_t>(position - 1) * trees;
  const int64_t with = root_children + static_cast<int64_t>(position) * trees;
  const int64_t first = std::min<int64_t>(before, size - 1);
  place.first_child = static_cast<int>(1 + first);
  place.children = static_cast<int>(std::min<int64_t>(with, size - 1) - first);
  if (position > 0) {
    const int64_t sibling = position - 1;
    const int64_t parent = sibling < root_children ? 0 : 1 + (sibling - root_children) / trees;
    place.parent = static_cast<int>((root + parent) % size);
  }
  return place;
}

namespace {

// The number of edges between a position and the root. The root has `root_children` children, and other nodes
// have `trees`.
int Depth(int64_t position, int64_t root_children, int trees) {
  int depth = 0;
  for (; position > 0; ++depth) {
    position = position - 1 < root_children ? 0 : 1 + (position - 1 - root_children) / trees;
  }
  return depth;
}

}  // namespace

void AppendBalancedTrees(const Range& range, int trees, Schedule* schedule) {
  const int size = schedule->size;
  if (range.empty() || size == 1) return;
  TFS_CHECK_EQ(range.size() % trees, 0);

  std::vector<TreePlace> places;
  int deepest = 0;
  for (int tree = 0; tree < trees; ++tree) {
    places.push_back(BalancedTreePlace(schedule->rank, size, trees, tree));
    deepest = std::max(deepest, Depth(size - 1, places.back().root_children, trees));
  }

  // A message between depth k and k - 1 belongs to round deepest - k on the way up and deepest + k - 1 on the
  // way down. All trees go through a round together, and all ranks through the rounds in the same order.
  std::vector<Step> rounds(2 * deepest);
  for (int tree = 0; tree < trees; ++tree) {
    const TreePlace& place = places[tree];
    const Range segment = Part(range, trees, tree);
    const int depth = Depth((schedule->rank - place.root + size) % size, place.root_children, trees);
    for (int i = 0; i < place.children; ++i) {
      const int child = (place.root + place.first_child + i) % size;
      rounds[deepest - depth - 1].push_back({ActionKind::kReceiveReduce, child, segment});
      rounds[deepest + depth].push_back({ActionKind::kSend, child, segment});
    }
    if (place.parent >= 0) {
      rounds[deepest - depth].push_back({ActionKind::kSend, place.parent, segment});
      rounds[deepest + depth - 1].push_back({ActionKind::kReceiveCopy, place.parent, segment});
    }
  }
  for (const Step& round : rounds) AppendStep(schedule, round);
}

}  // namespace tf_strategies::schedule

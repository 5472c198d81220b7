#include "ops/schedule/halving.h"

#include <gtest/gtest.h>

#include "ops/schedule/balanced_trees.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {
namespace {

TEST(Part, CoversTheRangeInOrderWithSizesThatDifferByOne) {
  for (int64_t count : {0, 1, 2, 7, 100}) {
    for (int parts : {1, 2, 3, 7, 101}) {
      int64_t end = 10;
      for (int i = 0; i < parts; ++i) {
        const Range part = Part({10, 10 + count}, parts, i);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.size(), count / parts);
        EXPECT_LE(part.size(), count / parts + 1);
        end = part.end;
      }
      EXPECT_EQ(end, 10 + count);
    }
  }
}

TEST(HalvingPiece, NestsInThePiecesOfAGroupHalfAsLarge) {
  for (int64_t count : {0, 1, 5, 37, 1000}) {
    for (int pieces = 1; pieces <= 64; pieces *= 2) {
      for (int i = 0; i < pieces; ++i) {
        const Range whole = HalvingPiece({0, count}, pieces, i);
        const Range lower = HalvingPiece({0, count}, 2 * pieces, 2 * i);
        const Range upper = HalvingPiece({0, count}, 2 * pieces, 2 * i + 1);
        EXPECT_EQ(lower.begin, whole.begin);
        EXPECT_EQ(lower.end, upper.begin);
        EXPECT_EQ(upper.end, whole.end);
      }
    }
  }
}

TEST(BalancedTreePlace, GivesEveryRankOneParentAndAtMostOneChildATree) {
  for (int size : {2, 3, 4, 7, 12, 33, 100}) {
    for (int trees : {1, 2, 3, 5, 17}) {
      std::vector<int> load(size, 0);
      for (int tree = 0; tree < trees; ++tree) {
        std::vector<int> parent(size, -2);
        for (int rank = 0; rank < size; ++rank) {
          const TreePlace place = BalancedTreePlace(rank, size, trees, tree);
          load[rank] += place.children;
          for (int i = 0; i < place.children; ++i) {
            int& slot = parent[(place.root + place.first_child + i) % size];
            EXPECT_EQ(slot, -2) << "two parents";
            slot = rank;
          }
          if (place.parent < 0) parent[rank] = -1;
        }
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_EQ(parent[rank], BalancedTreePlace(rank, size, trees, tree).parent) << size << " " << trees;
        }
      }
      for (int rank = 0; rank < size; ++rank)
        EXPECT_LE(load[rank], trees) << size << " " << trees << " " << rank;
    }
  }
}

}  // namespace
}  // namespace tf_strategies::schedule

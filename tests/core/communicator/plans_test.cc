#include "ops/communicator/plans.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace tf_strategies {
namespace {

constexpr int64_t kChunk = 256 << 10;

Collective AllReduceOf(int64_t count) {
  Collective collective;
  collective.kind = CollectiveKind::kAllReduce;
  collective.op = ReduceOp::kSum;
  collective.dtype = DType::kFloat32;
  collective.count = count;
  collective.algorithm = 0;
  return collective;
}

class PlansTest : public testing::Test {
 protected:
  std::shared_ptr<const Plan> For(Plans* plans, int64_t count) {
    std::shared_ptr<const Plan> plan;
    const Status status = plans->For(AllReduceOf(count), &plan);
    EXPECT_TRUE(status.ok()) << status.message();
    return plan;
  }
};

TEST_F(PlansTest, APlanIsMadeOnce) {
  Plans plans(0, schedule::Group(3), kChunk);
  const auto first = For(&plans, 1000);
  const size_t bytes = plans.bytes();
  EXPECT_GT(bytes, sizeof(Plan));
  EXPECT_EQ(For(&plans, 1000), first);
  EXPECT_EQ(plans.bytes(), bytes);
  EXPECT_NE(For(&plans, 1001), first);
  EXPECT_EQ(plans.size(), 2u);
}

TEST_F(PlansTest, TheLeastRecentlyUsedPlanIsForgottenFirst) {
  Plans plans(1, schedule::Group(2), kChunk);
  const auto kept = For(&plans, 1), forgotten = For(&plans, 2);
  for (int64_t count = 3; plans.size() < Plans::kMostPlans; ++count) For(&plans, count);
  EXPECT_EQ(For(&plans, 1), kept);
  For(&plans, 1 << 20);
  EXPECT_EQ(plans.size(), Plans::kMostPlans);
  EXPECT_EQ(For(&plans, 1), kept);
  EXPECT_NE(For(&plans, 2), forgotten);
}

TEST_F(PlansTest, PlansTakeNoMoreThanTheirBytes) {
  Plans unbounded(0, schedule::Group(2), kChunk);
  For(&unbounded, 100);
  const size_t most = 3 * unbounded.bytes();
  Plans plans(0, schedule::Group(2), kChunk, most);
  for (int64_t count = 100; count < 120; ++count) {
    For(&plans, count);
    EXPECT_LE(plans.bytes(), most);
  }
  EXPECT_EQ(plans.size(), 3u);
  const auto large = For(&plans, 4 << 20);  // in many chunks: no room for it, and the others stay
  EXPECT_GT(large->pieces.size(), 30u);
  EXPECT_EQ(plans.size(), 3u);
  EXPECT_LE(plans.bytes(), most);
}

uint32_t SignatureOf(const std::string& shape, const std::string& layout, const std::string& name) {
  Collective collective = AllReduceOf(10);
  collective.shape = shape;
  collective.layout = layout;
  collective.name = name;
  return collective.Signature(1);
}

TEST(Signature, EveryPartOfItCounts) {
  const uint32_t one = SignatureOf("[10], [20]", "indices", "gradients/kernel");
  EXPECT_EQ(one, SignatureOf("[10], [20]", "indices", "gradients/kernel"));
  EXPECT_EQ(one, SignatureOf("[10], [20]", "indices", "gradients_1/kernel_23"))
      << "digits of a name do not count";
  EXPECT_NE(one, SignatureOf("[10], [21]", "indices", "gradients/kernel"));
  EXPECT_NE(one, SignatureOf("[10], [20]", "indicez", "gradients/kernel"));
  EXPECT_NE(one, SignatureOf("[10], [20]", "indices", "gradients/kernex"));
  EXPECT_NE(one, SignatureOf("[10], [20]indices", "", "gradients/kernel")) << "a text ends where it ends";
  EXPECT_NE(SignatureOf("", "ab", ""), SignatureOf("", "a", "b"));
}

TEST(Signature, TextsThatDifferInOneCharacterRarelyLookAlike) {
  const std::string shape(200, 'x');
  const uint32_t one = SignatureOf(shape, "", "");
  int alike = 0;
  for (size_t place = 0; place < shape.size(); ++place) {
    for (int character = 32; character < 127; ++character) {
      std::string changed = shape;
      changed[place] = static_cast<char>(character);
      alike += changed != shape && SignatureOf(changed, "", "") == one ? 1 : 0;
    }
  }
  EXPECT_LE(alike, 1) << "of 18,800; one in four million is expected";
}

}  // namespace
}  // namespace tf_strategies

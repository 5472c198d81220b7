#include "ops/base/registry.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace tf_strategies {
namespace {

TEST(RegistryTest, FindsWhatWasAddedUntilItIsRemoved) {
  auto& registry = Registry<int>::Get();
  const int64_t first = registry.Add(std::make_shared<int>(1));
  const int64_t second = registry.Add(std::make_shared<int>(2));
  EXPECT_NE(first, second);
  EXPECT_EQ(*registry.Find(first), 1);
  EXPECT_EQ(registry.All().size(), 2);
  EXPECT_EQ(*registry.Remove(first), 1);
  EXPECT_EQ(registry.Remove(first), nullptr);
  EXPECT_EQ(registry.Find(first), nullptr);
  EXPECT_EQ(registry.RemoveAll().count(second), 1);
  EXPECT_TRUE(registry.All().empty());
  EXPECT_GT(registry.Add(std::make_shared<int>(3)), second);
}

TEST(RegistryTest, FurtherIdsNameAnObjectUntilItIsRemoved) {
  auto& registry = Registry<int>::Get();
  const int64_t former = registry.Add(std::make_shared<int>(1));
  registry.Remove(former);
  const int64_t present = registry.Add(std::make_shared<int>(2));
  registry.AlsoCall(former, present);
  EXPECT_EQ(*registry.Find(former), 2);
  EXPECT_EQ(*registry.Remove(present), 2);
  EXPECT_EQ(registry.Find(former), nullptr);
  registry.AlsoCall(former, present);
  EXPECT_EQ(registry.Find(former), nullptr);
}

struct Counted {
  ~Counted() { ++destroyed; }
  static inline int destroyed = 0;
};

TEST(RegistryTest, AForkedChildFindsNothingAndDestroysNothing) {
  auto& registry = Registry<Counted>::Get();
  const int64_t id = registry.Add(std::make_shared<Counted>());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool empty = registry.Find(id) == nullptr && registry.RemoveAll().empty();
    _exit(empty && Counted::destroyed == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_NE(registry.Find(id), nullptr);
}

}  // namespace
}  // namespace tf_strategies

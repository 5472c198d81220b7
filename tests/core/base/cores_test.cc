#include "ops/base/cores.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace tf_strategies {
namespace {

// A folder in place of the root of the file system. The test's thread may use every core.
class Root {
 public:
  Root() : path_(testing::TempDir() + "/cores_" + std::to_string(count_++)) {
    std::filesystem::remove_all(path_);
  }
  ~Root() { std::filesystem::remove_all(path_); }

  Root& File(const std::string& name, const std::string& text) {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return *this;
  }
  int Cores() const { return AvailableCores(path_ + "/"); }

 private:
  static inline int count_ = 0;
  const std::string path_;
};

int CoresWithoutQuota() { return Root().Cores(); }

TEST(Cores, WithoutGroupsTheAffinityDecides) {
  int cores = 0;
  std::thread([&cores] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    cores = Root().Cores();
  }).join();
  EXPECT_EQ(cores, 1);
  EXPECT_GE(CoresWithoutQuota(), 1);
}

TEST(Cores, AQuotaOfVersionTwoIsRoundedDownButNeverToNone) {
  const auto cores = [](const std::string& limit) {
    return Root()
        .File("proc/self/cgroup", "0::/job/worker\n")
        .File("sys/fs/cgroup/job/worker/cpu.max", limit)
        .Cores();
  };
  EXPECT_EQ(cores("100000 100000\n"), 1);
  EXPECT_EQ(cores("199999 100000\n"), 1);
  EXPECT_EQ(cores("5000 100000\n"), 1);
  EXPECT_EQ(cores("max 100000\n"), CoresWithoutQuota());
  EXPECT_EQ(cores("99900000 100000\n"), CoresWithoutQuota());
  EXPECT_EQ(cores("nonsense\n"), CoresWithoutQuota());
  EXPECT_EQ(cores(""), CoresWithoutQuota());
}

TEST(Cores, TheSmallestQuotaOfAllParentsCounts) {
  Root root;
  root.File("proc/self/cgroup", "0::/job/worker\n").File("sys/fs/cgroup/job/worker/cpu.max", "max 100000\n");
  EXPECT_EQ(root.Cores(), CoresWithoutQuota());
  root.File("sys/fs/cgroup/job/cpu.max", "100000 100000\n");
  EXPECT_EQ(root.Cores(), 1);
  EXPECT_EQ(
      Root().File("proc/self/cgroup", "0::/\n").File("sys/fs/cgroup/cpu.max", "100000 100000\n").Cores(), 1);
}

TEST(Cores, AQuotaOfVersionOneCounts) {
  const auto cores = [](const std::string& quota) {
    return Root()
        .File("proc/self/cgroup", "7:memory:/a\n4:cpu,cpuacct:/a\n0::/\n")
        .File("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", quota)
        .File("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
        .Cores();
  };
  EXPECT_EQ(cores("100000\n"), 1);
  EXPECT_EQ(cores("-1\n"), CoresWithoutQuota());
}

TEST(Cores, LinesThatNameNoGroupAreIgnored) {
  EXPECT_EQ(Root().File("proc/self/cgroup", "\n:\n0::\n0::worker\n0::/../../x\nrandom text\n").Cores(),
            CoresWithoutQuota());
}

TEST(Cores, ThisMachineHasSome) {
  EXPECT_GE(AvailableCores(), 1);
  EXPECT_LE(AvailableCores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace tf_strategies

// The main function of the tests that need a GPU. Without one it runs those named Arguments, then says why it leaves out the others and
// ends with 77, which tools/run_core_tests.sh reports as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "ops/cuda/device_array.cuh"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string reason = tf_strategies::cuda::WhyNoDevice();
  if (reason.empty()) return RUN_ALL_TESTS();
  ::testing::GTEST_FLAG(filter) = "Arguments.*";
  if (RUN_ALL_TESTS() != 0) return 1;
  std::printf("%s\n", reason.c_str());
  return 77;
}

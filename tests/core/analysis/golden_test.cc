// The tables in golden/ are what a reader sees of binary blocks; they change only when someone means it.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ops/analysis/print.h"
#include "ops/schedule/algorithms.h"

namespace tf_strategies::schedule {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The lines that differ, by their number.
std::string Difference(const std::string& golden, const std::string& now) {
  const std::vector<std::string> a = Lines(golden);
  const std::vector<std::string> b = Lines(now);
  std::ostringstream text;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && a[i] == b[i]) continue;
    if (i < a.size()) text << i + 1 << " - " << a[i] << "\n";
    if (i < b.size()) text << i + 1 << " + " << b[i] << "\n";
  }
  return text.str();
}

class Golden : public testing::TestWithParam<int> {};

TEST_P(Golden, BinaryBlocksIsAsWritten) {
  const int size = GetParam();
  const std::string path = "tests/core/analysis/golden/binary_blocks_" + std::to_string(size) + ".txt";
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " cannot be read; run from the root of the repository";
  std::ostringstream golden;
  golden << file.rdbuf();
  const std::string now =
      FormatGroup("binary_blocks", size, [&](int rank) { return BinaryBlocks(rank, size, 24); });
  EXPECT_TRUE(golden.str() == now) << Difference(golden.str(), now)
                                   << "if this is meant: print_schedule binary_blocks --size " << size
                                   << " > " << path;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Golden, testing::Values(3, 5, 6, 7, 12));

}  // namespace
}  // namespace tf_strategies::schedule

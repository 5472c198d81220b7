// Prints the schedules of all ranks of a collective.
//
//   print_schedule binary_blocks --size 6 [--count 24]
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "ops/analysis/print.h"
#include "ops/analysis/verify.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/choose.h"
#include "ops/schedule/chunking.h"

namespace tf_strategies::schedule {
namespace {

constexpr int64_t kDefaultCount = 24;
constexpr int64_t kLargestSize = 4096;

std::string Names() {
  std::string names;
  for (const Algorithm& algorithm : AllReduceAlgorithms()) names += std::string(algorithm.name) + ", ";
  return names + "broadcast_tree, ring_all_gather, pairwise_all_to_all";
}

std::string Usage() {
  return "usage: print_schedule ALGORITHM --size P [--count N]\n"
         "  ALGORITHM  " +
         Names() +
         "\n"
         "  --size P   ranks, 1 to " +
         std::to_string(kLargestSize) +
         "\n"
         "  --count N  elements of the buffer (for pairwise_all_to_all, of each rank); default " +
         std::to_string(kDefaultCount) + "\n";
}

int Refuse(const std::string& why) {
  std::cerr << "print_schedule: " << why << "\n" << Usage();
  return 2;
}

// Parses a text that must be one integer in [least, most].
bool ParseInteger(const std::string& text, int64_t least, int64_t most, int64_t* value) {
  char* end = nullptr;
  errno = 0;
  *value = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && errno == 0 && *value >= least && *value <= most;
}

int Print(const std::string& name, int size, int64_t count) {
  BuildRank build;
  Status verified;
  if (const Algorithm* algorithm = FindAlgorithm(name)) {
    build = [=](int rank) { return algorithm->build(rank, size, count); };
    verified = VerifyAllReduce(size, count, build);
  } else if (name == "broadcast_tree") {
    build = [=](int rank) { return BroadcastTree(rank, size, count, 0); };
    verified = VerifyBroadcast(size, count, 0, build);
  } else if (name == "ring_all_gather") {
    std::vector<int64_t> offsets = {0};
    for (int rank = 0; rank < size; ++rank) offsets.push_back(Part({0, count}, size, rank).end);
    build = [=](int rank) { return RingAllGather(rank, size, offsets); };
    verified = VerifyAllGather(size, offsets, build);
  } else if (name == "pairwise_all_to_all") {
    std::vector<int64_t> lengths;
    for (int rank = 0; rank < size; ++rank) lengths.push_back(Part({0, count}, size, rank).size());
    const std::vector<std::vector<int64_t>> of_all(size, lengths);
    build = [=](int rank) {
      return PairwiseAllToAll(rank, size, lengths[0], lengths, std::vector<int64_t>(size, lengths[rank]));
    };
    verified = VerifyAllToAll(size, lengths[0], of_all, build);
  } else {
    return Refuse("there is no algorithm '" + name + "'");
  }
  std::cout << FormatGroup(name, size, build);
  if (!verified.ok()) {
    std::cerr << "print_schedule: this schedule is wrong: " << verified.message() << "\n";
    return 1;
  }
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  std::string name;
  int64_t size = 0;
  int64_t count = kDefaultCount;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      std::cout << Usage();
      return 0;
    }
    if (argument == "--size" || argument == "--count") {
      if (i + 1 == arguments.size()) return Refuse(argument + " needs a number");
      const std::string& value = arguments[++i];
      const bool is_size = argument == "--size";
      const bool good = is_size ? ParseInteger(value, 1, kLargestSize, &size)
                                : ParseInteger(value, 0, int64_t{1} << 40, &count);
      if (!good) {
        return Refuse(argument + " '" + value + "' is not a whole number " +
                      (is_size ? "from 1 to " + std::to_string(kLargestSize) : "from 0 to 2^40"));
      }
    } else if (argument.rfind("-", 0) == 0) {
      return Refuse("there is no option '" + argument + "'");
    } else if (!name.empty()) {
      return Refuse("one algorithm at a time: '" + name + "' and '" + argument + "' are given");
    } else {
      name = argument;
    }
  }
  if (name.empty()) return Refuse("name an algorithm");
  if (size == 0) return Refuse("--size is missing: how many ranks?");
  return Print(name, static_cast<int>(size), count);
}

}  // namespace
}  // namespace tf_strategies::schedule

int main(int argc, char** argv) {
  return tf_strategies::schedule::Main(std::vector<std::string>(argv + 1, argv + argc));
}
